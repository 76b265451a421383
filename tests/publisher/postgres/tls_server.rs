//! A Postgres that accepts only TLS, with a certificate only for `localhost`, signed by a new authority.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use local::postgres::{Folder, Postgres, Purpose};
use local::stack::prepare_database;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sqlx::{Connection, PgConnection};
use tests::PATIENCE;

/// The server; it stops when this value is dropped.
pub(crate) struct Secured {
    postgres: Postgres,
    /// The file of the authority's certificate
    pub(crate) ca: PathBuf,
    /// The file of another authority's certificate
    pub(crate) stranger: PathBuf,
}

const ONLY_TLS: &str = "hostssl all all 127.0.0.1/32 password\nhostssl all all ::1/128 password\n";
const DATABASE: &str = "cronbox";

impl Secured {
    pub(crate) async fn new() -> Secured {
        let folder = Folder::create_temporary().unwrap();
        let (postgres, folder) = tokio::task::spawn_blocking(move || {
            let postgres = Postgres::start_server(&folder, Purpose::ThrowAway).unwrap();
            (postgres, folder)
        })
        .await
        .unwrap();
        let mut admin = PgConnection::connect(&postgres.dsn("postgres")).await.unwrap();
        sqlx::raw_sql("CREATE DATABASE cronbox").execute(&mut admin).await.unwrap();
        prepare_database(&postgres, DATABASE).await.unwrap();

        let (ca, issuer) = authority();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        for (name, pem) in [("server.crt", server.pem()), ("server.key", key.serialize_pem())] {
            let path = folder.data_folder().join(name);
            fs::write(&path, pem).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            folder.give_to_user(&path).unwrap();
        }
        fs::write(folder.data_folder().join("pg_hba.conf"), ONLY_TLS).unwrap();
        sqlx::raw_sql("ALTER SYSTEM SET ssl = on").execute(&mut admin).await.unwrap();
        sqlx::raw_sql("SELECT pg_reload_conf()").execute(&mut admin).await.unwrap();

        let [ca_file, stranger] = ["ca.pem", "stranger.pem"].map(|name| folder.root().join(name));
        fs::write(&ca_file, ca).unwrap();
        fs::write(&stranger, authority().0).unwrap();
        let secured = Secured { postgres, ca: ca_file, stranger };
        secured.until_secured().await;
        secured
    }

    /// The DSN with the name in the certificate; `query` is, for example, `sslmode=require`.
    pub(crate) fn dsn(&self, query: &str) -> String {
        format!("{}?{query}", self.dsn_by_address("").trim_end_matches('?').replace("127.0.0.1", "localhost"))
    }

    /// The DSN with an address that the certificate does not contain.
    pub(crate) fn dsn_by_address(&self, query: &str) -> String {
        format!("{}?{query}", self.postgres.dsn(DATABASE))
    }

    /// The port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.postgres.dsn(DATABASE).parse::<sqlx::postgres::PgConnectOptions>().unwrap().get_port()
    }

    /// Waits until Postgres has reloaded its configuration.
    async fn until_secured(&self) {
        let started = Instant::now();
        let [tls, plain] = ["sslmode=require", "sslmode=disable"].map(|query| self.dsn(query));
        while PgConnection::connect(&tls).await.is_err() || PgConnection::connect(&plain).await.is_ok() {
            assert!(started.elapsed() < PATIENCE, "Postgres does not take up TLS");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A certificate authority: its certificate as PEM, and its signing key.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}
