//! The publisher sends its password only to the database: it verifies TLS, the authority and the name.

use std::path::Path;

use tests::PATIENCE;
use tokio::process::Command;

use crate::postgres::tls_server::Secured;

/// Whether a connection uses TLS, or the error in one line.
async fn connect(dsn: String) -> Result<bool, String> {
    let options = db::Options { acquire_timeout: PATIENCE, ..app::config::database_options(&dsn, 1) };
    let pool = db::connect_pool(&options).await.map_err(|error| format!("{error:#}"))?;
    let is_tls = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    Ok(is_tls.fetch_one(&pool).await.unwrap())
}

fn trusting(dsn: &str, ca: &Path) -> String {
    db::with_ca(dsn, Some(ca))
}

#[tokio::test]
async fn wrong_authorities_and_names_are_refused() {
    let secured = Secured::new().await;
    let full = secured.dsn("sslmode=verify-full");
    assert_eq!(connect(trusting(&full, &secured.ca)).await, Ok(true));

    let refused = connect(full.clone()).await.unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "only the public authorities: {refused}");
    let refused = connect(trusting(&full, &secured.stranger)).await.unwrap_err();
    assert!(refused.contains("invalid peer certificate"), "another authority: {refused}");
    let by_address = secured.dsn_by_address("sslmode=verify-full");
    let refused = connect(trusting(&by_address, &secured.ca)).await.unwrap_err();
    assert!(refused.contains("not valid for name"), "another name: {refused}");
    // The `sslmode` of the DSN is used as it is, and shows what verify-full adds.
    assert_eq!(connect(trusting(&by_address, &secured.stranger).replace("verify-full", "require")).await, Ok(true));
}

#[tokio::test]
async fn connections_are_encrypted_on_both_sides() {
    let secured = Secured::new().await;
    let refused = connect(secured.dsn("sslmode=disable")).await.unwrap_err();
    assert!(refused.contains("no encryption"), "{refused}");
    let (_, plain) = crate::database::fresh().await;
    let refused = connect(format!("{plain}?sslmode=verify-full")).await.unwrap_err();
    assert!(refused.contains("server does not support TLS"), "{refused}");
    assert_eq!(connect(plain).await, Ok(false), "on this machine nothing is asked for");
}

#[tokio::test]
async fn the_app_verifies_the_authority_too() {
    let secured = Secured::new().await;
    let migrate = async |ca: &Path| {
        let mut app = Command::new(local::config::target_folder().join("debug/cronbox-app"));
        app.arg("migrate")
            .env_clear()
            .env("DATABASE_URL", secured.dsn("sslmode=verify-full"))
            .env("CRONBOX_DB_CA_FILE", ca);
        let output = app.output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(migrate(&secured.ca).await.0, Some(0));
    let (code, said) = migrate(&secured.stranger).await;
    assert!(code == Some(1) && said.contains("invalid peer certificate"), "{said}");
    let (code, said) = migrate(Path::new("/nowhere/ca.pem")).await;
    assert!(code == Some(1) && said.contains("'--db-ca-file <DB_CA_FILE>': cannot be read"), "{said}");
}
