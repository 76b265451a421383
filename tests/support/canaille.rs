//! Canaille, a real provider of `OpenID` Connect, on this machine. It ends with the test.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use local::config::target_folder;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{PATIENCE, find_kept_port};

/// The provider, with `ann` of the developers, `bob` of the visitors, and `eve` of no group.
pub struct Canaille {
    /// The provider, as its tokens name it.
    pub issuer: String,
    /// Its certificate, which it has signed itself, in PEM.
    pub certificate: String,
    /// A folder of its own, which is removed in the end.
    folder: PathBuf,
    _program: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Canaille {
    /// The password of each person.
    pub const PASSWORD: &str = "correct horse battery staple";

    /// Starts it, and waits until it answers.
    ///
    /// # Panics
    /// Canaille is not installed, or does not start.
    pub async fn start() -> Self {
        let python = target_folder().join("venv-oidc/bin/python");
        assert!(python.exists(), "{} is missing: run `make oidc`", python.display());
        let folder = std::env::temp_dir().join(format!("cronbox-oidc-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).expect("a folder");
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = folder.join("key.pem");
        std::fs::write(certificate_in(&folder), made.cert.pem()).expect("a file of the certificate");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file of the key");
        let port = find_kept_port();
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc/provider.py"));
        command.arg(port.to_string()).args([&certificate_in(&folder), &key]).current_dir(&folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut program = command.spawn().expect("Canaille starts");
        let requests = program.stdin.take().expect("its stdin");
        let answers = BufReader::new(program.stdout.take().expect("its stdout")).lines();
        let issuer = format!("https://localhost:{port}");
        let mut started = Self { issuer, certificate: made.cert.pem(), folder, _program: program, requests, answers };
        started.expect_answer("ready").await;
        started
    }

    /// The settings of an app: developers edit the data of this team, visitors read them, and people sign in to the console.
    ///
    /// # Panics
    /// The file of groups cannot be written.
    #[must_use]
    pub fn settings(&self, team_id: i64) -> app::config::Oidc {
        let groups = json!({"groups": [
            {"group": "developers", "team_id": team_id, "role": "editor"},
            {"group": "visitors", "team_id": team_id, "role": "viewer"},
        ]});
        let file = self.folder.join("groups.json");
        std::fs::write(&file, groups.to_string()).expect("a file of groups");
        app::config::Oidc {
            oidc_issuer: Some(self.issuer.clone()),
            oidc_audience: Some("cronbox".to_owned()),
            oidc_groups_file: Some(file),
            oidc_groups: None,
            oidc_groups_claim: "groups".to_owned(),
            oidc_ca_file: Some(certificate_in(&self.folder)),
            oidc_allow_http: false,
            oidc_client_id: Some("cronbox-console".to_owned()),
            oidc_client_secret: Some("a-secret-of-the-console".to_owned()),
        }
    }

    /// Registers an address to which the console may send people back.
    ///
    /// # Panics
    /// The provider does not answer.
    pub async fn register_callback(&mut self, address: &str) {
        self.requests.write_all(format!("{address}\n").as_bytes()).await.expect("it reads");
        self.expect_answer("registered").await;
    }

    async fn expect_answer(&mut self, expected: &str) {
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await.expect("it answers");
        assert_eq!(line.expect("a line").as_deref(), Some(expected), "Canaille does not start");
    }
}

fn certificate_in(folder: &Path) -> PathBuf {
    folder.join("certificate.pem")
}

impl Drop for Canaille {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}
