//! The content of a dead letter: the release zip runs in MiniStack's Lambda, and the app refuses its request.
//!
//! In the stand-in, our own code writes dead letters. MiniStack runs the zip's `bootstrap`, reads what it posts to the
//! runtime API, tries three times, and fills the on-failure queue.

use local::config::target_folder;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::process::Command;

use crate::account::{credentials, text};
use crate::ministack::{MiniStack, Options};

const FUNCTION: &str = "cronbox-dev-runner";
const QUEUE: &str = "cronbox-dev-runner-dlq";
const TIME: &str = "2026-03-02T09:00:00Z";

/// The runner in the emulator.
struct Runner(MiniStack);

impl Runner {
    /// Creates the runner from its zip, as Terraform configures it, and its on-failure queue. Returns the queue's URL.
    async fn deploy_runner(&self, app: &str, key: &str) -> String {
        let queue = text(&self.aws(["sqs", "create-queue", "--queue-name", QUEUE]).await["QueueUrl"]);
        let requested = ["sqs", "get-queue-attributes", "--queue-url", &queue, "--attribute-names", "QueueArn"];
        let arn = text(&self.aws(requested).await["Attributes"]["QueueArn"]);
        let zip = format!("fileb://{}", target_folder().join("lambdas/x86_64/runner.zip").display());
        let environment =
            json!({"Variables": {"CRONBOX_APP_BASE_URL": app, "CRONBOX_SCHEDULER_API_KEY": key}}).to_string();
        let create = ["lambda", "create-function", "--function-name", FUNCTION, "--runtime", "provided.al2023"];
        let more = ["--handler", "bootstrap", "--role", "arn:aws:iam::000000000000:role/runner", "--timeout", "15"];
        let code = ["--zip-file", &zip, "--environment", &environment];
        self.aws([&create[..], &more[..], &code[..]].concat()).await;
        let destination = json!({"OnFailure": {"Destination": arn}}).to_string();
        let retries = ["lambda", "put-function-event-invoke-config", "--function-name", FUNCTION];
        let on_failure = ["--maximum-retry-attempts", "2", "--destination-config", &destination];
        self.aws([&retries[..], &on_failure[..]].concat()).await;
        queue
    }

    /// Invokes the runner, and returns Lambda's answer and the function's.
    async fn invoke(&self, kind: &str, fire: &Value) -> (Value, Value) {
        let (payload, answer) = (fire.to_string(), self.0.folder.join("answer.json"));
        let invoke = ["lambda", "invoke", "--function-name", FUNCTION, "--invocation-type", kind];
        let reply = ["--payload", &payload, answer.to_str().unwrap()];
        let answered = self.aws([&invoke[..], &reply[..]].concat()).await;
        (answered, serde_json::from_slice(&std::fs::read(&answer).unwrap()).unwrap_or(Value::Null))
    }

    /// The first message of the queue; it stays in the queue.
    async fn message(&self, queue: &str) -> Value {
        let receive = ["sqs", "receive-message", "--visibility-timeout", "0", "--queue-url", queue];
        let arrived = async {
            loop {
                let received = self.aws(receive).await;
                if let Some(message) = received["Messages"].get(0) {
                    return serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
                }
            }
        };
        tokio::time::timeout(PATIENCE, arrived).await.expect("a dead letter")
    }

    /// The output of `cronbox dlq ls`.
    async fn dlq_ls(&self, s: &Story, queue: &str) -> String {
        let mut command = Command::new(target_folder().join("debug/cronbox"));
        command.args(["dlq", "ls", "--queue", queue]).kill_on_drop(true).env_clear().envs(credentials()).envs([
            ("AWS_ENDPOINT_URL_SQS", self.0.endpoint.as_str()),
            ("CRONBOX_URL", s.url()),
            ("CRONBOX_KEY", &s.keys.admin),
        ]);
        let done = command.output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    async fn aws<'a>(&self, arguments: impl AsRef<[&'a str]>) -> Value {
        self.0.aws(arguments).await
    }
}

/// The app refuses the runner's key, for example after a rotation without the runner. The dead letter must say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_say_why_in_a_sentence() {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let workflow = s.create("0 9 * * *", "UTC").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let ministack = Runner(
        MiniStack::start(Options { name: "deploy-ministack", retry_base_secs: "0.1", checks_permissions: false }).await,
    );
    let queue = ministack.deploy_runner(s.url(), "cbx_no_such_key").await;
    let fire = fire_of(workflow);
    let said = json!({"errorType": "NotTheApp", "errorMessage": "status 401 is not an answer of the app"});

    let (answered, error) = ministack.invoke("RequestResponse", &fire).await;
    assert_eq!((&answered["FunctionError"], &error), (&json!("Unhandled"), &said));

    ministack.invoke("Event", &fire).await;
    let message = ministack.message(&queue).await;
    assert_eq!((&message["requestPayload"], &message["responsePayload"]), (&fire, &said));
    assert_eq!(message["requestContext"]["approximateInvokeCount"], 3);
    let table = ministack.dlq_ls(&s, &queue).await;
    let row = table.lines().nth(1).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains(TIME) && row.contains("status 401 is not an answer of the app (NotTheApp"), "{table}");
    s.end_early().await;
}

fn fire_of(workflow: WorkflowId) -> Value {
    json!({"workflow_id": workflow, "scheduled_time": TIME, "execution_id": "e-1", "attempt": "1"})
}
