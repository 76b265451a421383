//! A real mail server on this machine (aiosmtpd), which stores what it accepts.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use local::config::target_folder;
use tests::{PATIENCE, find_kept_port};
use tokio::process::{Child, Command};

/// The port of all mail servers of this program: a configuration is a function without a state.
static PORT: OnceLock<u16> = OnceLock::new();

/// A mail server that ends with its test.
pub(super) struct MailServer {
    folder: PathBuf,
    port: u16,
    _process: Child,
}

/// Makes an app send e-mail to the mail server of this program.
pub(super) fn with_mail(config: &mut app::Config) {
    config.mail.smtp_url = Some(format!("smtp://127.0.0.1:{}?tls=none", port()));
    config.mail.mail_from = Some("cronbox <cronbox@example.com>".to_owned());
    config.mail.public_url = Some("https://cronbox.example".parse().unwrap());
}

fn port() -> u16 {
    *PORT.get_or_init(find_kept_port)
}

impl MailServer {
    /// Starts the server of [`with_mail`], and waits until it answers.
    pub(super) async fn start() -> Self {
        Self::start_at(port()).await
    }

    /// Starts a server of its own, for processes that get [`MailServer::settings`].
    pub(super) async fn start_another() -> Self {
        Self::start_at(find_kept_port()).await
    }

    async fn start_at(port: u16) -> Self {
        let program = target_folder().join("venv/bin/aiosmtpd");
        assert!(program.exists(), "aiosmtpd is not installed: run `make setup`");
        let folder = std::env::temp_dir().join(format!("cronbox-mail-{}", uuid::Uuid::new_v4()));
        let mut command = Command::new(program);
        command.args(["-n", "-l", &format!("127.0.0.1:{port}"), "-c", "aiosmtpd.handlers.Mailbox"]).arg(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().unwrap();
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the mail server does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { folder, port, _process: process }
    }

    /// The settings of a process that sends e-mail to this server.
    pub(super) fn settings(&self) -> [(&'static str, String); 2] {
        let url = format!("smtp://127.0.0.1:{}?tls=none", self.port);
        [("CRONBOX_SMTP_URL", url), ("CRONBOX_MAIL_FROM", "cronbox <cronbox@example.com>".to_owned())]
    }

    /// The e-mails that it has accepted.
    pub(super) fn mails(&self) -> Vec<String> {
        let Ok(files) = fs::read_dir(self.folder.join("new")) else { return Vec::new() };
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect()
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}
