//! A dead-letter queue in moto, its messages, and the `cronbox dlq` command.

use std::process::Stdio;
use std::time::{Duration, Instant};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use chrono::DateTime;
use local::stack::{RUNNER, RUNNER_DLQ, SCHEDULE_DLQ};
use schedule::WorkflowId;
use serde_json::{Value, json};
use stand_in::dead_letters::{DeadLetter, FailedEvent, UnsentFire};
use stand_in::invoke::FunctionError;
use tests::{Moto, PATIENCE, Story};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// The scheduled time of all fires in these tests.
pub(crate) const NINE: &str = "2026-03-02T09:00:00Z";
const PUBLISHER: &str = "arn:aws:lambda:us-east-1:123456789012:function:cronbox-publisher";

/// A queue for one test.
pub(crate) struct Queue {
    client: Client,
    url: String,
    moto: Moto,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// Standard output, parsed as one JSON value per line.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}"))).collect()
    }
}

impl Queue {
    pub(crate) async fn new() -> Self {
        let moto = Moto::start().await;
        let config = aws_sdk_sqs::Config::builder().behavior_version(BehaviorVersion::v2026_01_12());
        let config = config.region(Region::new("us-east-1")).endpoint_url(&moto.endpoint);
        let config = config.credentials_provider(Credentials::new("a", "b", None, None, "test"));
        let client = Client::from_conf(config.build());
        let made = client.create_queue().queue_name("dead-letters").send().await.unwrap();
        Queue { client, url: made.queue_url.unwrap(), moto }
    }

    /// Puts a message into the queue, as AWS does; returns its message id.
    pub(crate) async fn put(&self, message: &DeadLetter) -> String {
        self.put_raw(&message.body.to_string(), message.attributes.iter()).await
    }

    pub(crate) async fn put_raw<'a>(
        &self,
        body: &str,
        attributes: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> String {
        let mut message = self.client.send_message().queue_url(&self.url).message_body(body);
        for (name, value) in attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value).build().unwrap();
            message = message.message_attributes(name, value);
        }
        message.send().await.unwrap().message_id.unwrap()
    }

    /// Receives up to ten messages as another program, which keeps them for half a day.
    pub(crate) async fn receive_elsewhere(&self) -> usize {
        let receive = self.client.receive_message().queue_url(&self.url).max_number_of_messages(10);
        receive.visibility_timeout(43_200).send().await.unwrap().messages().len()
    }

    /// The number of visible messages, and of messages in flight.
    pub(crate) async fn counts(&self) -> (u32, u32) {
        let reply = self.client.get_queue_attributes().queue_url(&self.url);
        let reply = reply.attribute_names(QueueAttributeName::All).send().await.unwrap().attributes.unwrap();
        let count = |name| reply[&name].parse().unwrap();
        (
            count(QueueAttributeName::ApproximateNumberOfMessages),
            count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }

    /// Returns when the queue has these counts.
    pub(crate) async fn until(&self, counts: (u32, u32)) {
        let started = Instant::now();
        loop {
            let found = self.counts().await;
            if found == counts {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{found:?} and never {counts:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs `cronbox dlq <verb> --queue ..` against the story's app.
    pub(crate) async fn dlq(&self, s: &Story, verb: &str, more: &[&str]) -> Said {
        self.dlq_at(s, s.url(), verb, more).await
    }

    /// The same, against another address.
    pub(crate) async fn dlq_at(&self, s: &Story, app: &str, verb: &str, more: &[&str]) -> Said {
        let output = self.command(s, app, verb, more).output().await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, with another standard output.
    pub(crate) async fn dlq_into(&self, s: &Story, verb: &str, more: &[&str], output: impl Into<Stdio>) -> Said {
        let mut command = self.command(s, s.url(), verb, more);
        let child = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().await.unwrap();
        Said { code: output.status.code(), out: String::new(), err: String::from_utf8(output.stderr).unwrap() }
    }

    /// The same, without waiting for its end.
    pub(crate) fn begin(&self, s: &Story, app: &str, verb: &str, more: &[&str]) -> Child {
        self.command(s, app, verb, more).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn command(&self, s: &Story, app: &str, verb: &str, more: &[&str]) -> Command {
        let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
        command.args(["dlq", verb, "--queue", &self.url]).args(more).kill_on_drop(true).env_clear().envs([
            ("AWS_ENDPOINT_URL_SQS", self.moto.endpoint.as_str()),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("CRONBOX_URL", app),
            ("CRONBOX_KEY", &s.keys.admin),
            ("CRONBOX_SCHEDULER_KEY", &s.keys.scheduler),
        ]);
        command
    }
}

/// A story at 09:01 with this many workflows for which 09:00 was due.
pub(crate) async fn due_at_nine<const N: usize>() -> (Story, [WorkflowId; N]) {
    let s = Story::at("2026-03-02T08:59:00Z").await;
    let mut workflows = [WorkflowId(0); N];
    for workflow in &mut workflows {
        *workflow = s.create("0 9 * * *", "UTC").await;
    }
    s.now_is("2026-03-02T09:01:00Z").await;
    (s, workflows)
}

/// The payload that the schedule of a workflow sends to the runner.
pub(crate) fn fire(workflow: WorkflowId) -> Value {
    json!({
        "workflow_id": workflow, "scheduled_time": NINE, "execution_id": "e-1", "attempt": "1",
        "schedule_arn": schedule_arn(workflow), "revision": 1, "template": 1,
    })
}

fn schedule_arn(workflow: WorkflowId) -> String {
    format!("arn:aws:scheduler:us-east-1:123456789012:schedule/cronbox/wf-{workflow}-dev")
}

/// EventBridge could not deliver the fire to Lambda.
pub(crate) fn unsent(workflow: WorkflowId) -> DeadLetter {
    let fire = UnsentFire {
        schedule_arn: &schedule_arn(workflow),
        scheduled_time: NINE,
        execution_id: "e-1",
        target_arn: RUNNER,
        payload: &fire(workflow).to_string(),
        error_code: "AccessDeniedException",
        error_message: "not authorized to perform lambda:InvokeFunction",
        exhausted: None,
    };
    DeadLetter::of_schedule(SCHEDULE_DLQ, &fire)
}

/// The same, with a request that is too long for SQS.
pub(crate) fn truncated(workflow: WorkflowId) -> (String, DeadLetter) {
    let mut message = unsent(workflow);
    message.attributes.insert("IS_PAYLOAD_TRUNCATED".to_owned(), "true".to_owned());
    let whole = message.body.to_string();
    (whole[..whole.len() / 2].to_owned(), message)
}

/// The runner failed on the fire.
pub(crate) fn undelivered(workflow: WorkflowId) -> DeadLetter {
    failed(RUNNER, &fire(workflow), "the app did not answer: timeout")
}

/// The publisher failed in its tick.
pub(crate) fn undrained() -> DeadLetter {
    let tick = json!({
        "version": "0", "id": Uuid::new_v4(), "detail-type": "Scheduled Event", "source": "aws.events",
        "account": "123456789012", "time": NINE, "region": "us-east-1", "detail": {},
        "resources": ["arn:aws:events:us-east-1:123456789012:rule/cronbox-publisher-tick"],
    });
    failed(PUBLISHER, &tick, "the database does not answer")
}

fn failed(function: &str, payload: &Value, message: &str) -> DeadLetter {
    let event = FailedEvent { request_id: Uuid::new_v4(), function, payload, tries: 3 };
    let error = FunctionError { error_type: "Error".to_owned(), message: message.to_owned() };
    DeadLetter::of_function(RUNNER_DLQ, &event, &error, DateTime::parse_from_rfc3339(NINE).unwrap().to_utc())
}

/// Asserts that each of these workflows ran once, triggered by its schedule.
pub(crate) async fn each_ran_once(s: &Story, workflows: &[WorkflowId]) {
    s.runs_end().await;
    for workflow in workflows {
        assert_eq!(s.runs(*workflow).await, "2026-03-02T09:00Z schedule succeeded");
    }
}
