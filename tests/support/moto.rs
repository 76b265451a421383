//! moto's server: AWS's other APIs on this machine. It ends with the test.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use local::config::target_folder;
use tokio::process::{Child, Command};

/// A server for one test only: no other test shares its queues, secrets and schedules.
pub struct Moto {
    /// Its base URL.
    pub endpoint: String,
    _process: Child,
}

impl Moto {
    /// Starts a server, and waits until it answers.
    ///
    /// # Panics
    /// moto is not installed, or does not start.
    pub async fn start() -> Self {
        let program = target_folder().join("venv/bin/moto_server");
        assert!(program.exists(), "moto is not installed: run `make setup`");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().expect("moto's server starts");
        let endpoint = format!("http://127.0.0.1:{port}");
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        let answers = async || {
            while http.get(format!("{endpoint}/moto-api/data.json")).send().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, answers()).await.expect("moto's server answers");
        Moto { endpoint, _process: process }
    }
}
