//! Both libraries of Standard Webhooks verify what a webhook channel receives.

use std::process::Stdio;

use local::config::target_folder;
use serde_json::json;
use tests::Story;
use tokio::process::Command;

use super::team::{rule, send, webhook};
use crate::receiver::{NOON, Receiver, accept, until_state};

const PYTHON: &str = "
import os
from standardwebhooks.webhooks import Webhook
headers = {name: os.environ[name.replace('-', '_')] for name in ('webhook-id', 'webhook-timestamp', 'webhook-signature')}
import standardwebhooks.webhooks as library, datetime
class Then(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(int(headers['webhook-timestamp']), tz)
library.datetime = Then
print(Webhook(os.environ['SECRET']).verify(os.environ['BODY'], headers)['type'])
";

const NODE: &str = "
const { Webhook } = require('standardwebhooks');
const names = ['webhook-id', 'webhook-timestamp', 'webhook-signature'];
const headers = Object.fromEntries(names.map((name) => [name, process.env[name.replaceAll('-', '_')]]));
Date.now = () => Number(headers['webhook-timestamp']) * 1000;
console.log(new Webhook(process.env.SECRET).verify(process.env.BODY, headers).type);
";

#[tokio::test]
async fn both_libraries_verify_a_notification() {
    let s = Story::at(NOON).await;
    let receiver = Receiver::kind().await;
    let channel = webhook(&s, &receiver).await;
    rule(&s, channel, json!({"event": "run_failed", "group_secs": 0})).await;
    let workflow = s.create_with(json!({"action": Receiver::answering(&[(500, "")]).await.action()})).await;
    let run = accept(&s, workflow).await;
    until_state(&s, run, "failed").await;
    send(&s).await;
    let secret = s.table("SELECT signing_secret FROM teams ORDER BY id LIMIT 1").await;
    let received = receiver.received().remove(0);
    let mut python = Command::new(target_folder().join("venv-examples/bin/python"));
    python.args(["-c", PYTHON]);
    let mut node = Command::new("node");
    node.args(["-e", NODE]).current_dir(target_folder().join("examples/typescript"));
    for mut library in [python, node] {
        library.env("SECRET", &secret).env("BODY", std::str::from_utf8(&received.body).unwrap()).stdin(Stdio::null());
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            library.env(name.replace('-', "_"), received.headers[name].to_str().unwrap());
        }
        let done = library.output().await.unwrap();
        assert!(done.status.success(), "{library:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "cronbox.run_failed");
    }
    s.end().await;
}
