//! moto's server: AWS's other APIs on this machine. It ends with the test.

use std::process::Stdio;
use std::time::Duration;

use local::config::target_folder;
use tokio::process::{Child, Command};

use crate::find_kept_port;

/// moto's server, which in 5.2.1 does not know the tags of scalable targets; Terraform reads them.
const SERVER: &str = "
import json
from moto.applicationautoscaling.responses import ApplicationAutoScalingResponse as Scaling
from moto.server import main

tags = {}
register = Scaling.register_scalable_target

def register_with_tags(self):
    answer = register(self)
    tags.setdefault(json.loads(answer)['ScalableTargetARN'], {}).update(self._get_param('Tags') or {})
    return answer

Scaling.register_scalable_target = register_with_tags
Scaling.list_tags_for_resource = lambda self: json.dumps({'Tags': tags.get(self._get_param('ResourceARN'), {})})
main()
";

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
        assert!(target_folder().join("venv/bin/moto_server").exists(), "moto is not installed: run `make setup`");
        let port = find_kept_port();
        let mut command = Command::new(target_folder().join("venv/bin/python"));
        command.args(["-c", SERVER, "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn().expect("moto's server starts");
        let endpoint = format!("http://127.0.0.1:{port}");
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        let answers = async {
            while http.get(format!("{endpoint}/moto-api/data.json")).send().await.is_err() {
                assert!(matches!(process.try_wait(), Ok(None)), "moto's server ended at its start");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, answers).await.expect("moto's server answers");
        Moto { endpoint, _process: process }
    }
}
