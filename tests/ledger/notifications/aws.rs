//! Messages to AWS: the real notifier, against moto's event bus and topics, each of which has a queue.

use std::collections::BTreeMap;
use std::process::Stdio;

use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use local::config::target_folder;
use local::postgres::{Login, log_in_as};
use serde_json::{Value, json};
use tests::{Api, Moto, Runtime, Story};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::team::{channel, rule, send};
use crate::receiver::NOON;

/// moto's account.
const ARN: &str = "us-east-1:123456789012";
/// Ends a run of a new workflow as the app ends it.
const ONE_FAILS: &str = "
    INSERT INTO workflows (team_id, name, action, revision, created_on, updated_on)
    SELECT (SELECT min(team_id) FROM notification_rules), 'payroll', '{\"type\": \"log\", \"message\": \"m\"}', 0, cronbox_now(), cronbox_now();
    INSERT INTO runs_ended (id, workflow_id, trigger, state, run_after, created_on, finished_on, error, team_id)
    SELECT gen_random_uuid(), id, 'manual', 'failed', cronbox_now(), cronbox_now(), cronbox_now(), 'no answer', team_id
      FROM workflows WHERE name = 'payroll';";

/// Clients of one moto.
struct Aws {
    moto: Moto,
    buses: aws_sdk_eventbridge::Client,
    topics: aws_sdk_sns::Client,
    queues: aws_sdk_sqs::Client,
}

/// The settings of a client of moto, which every service has in a type of its own.
macro_rules! client {
    ($sdk:ident, $moto:expr) => {
        $sdk::Client::from_conf(
            $sdk::Config::builder()
                .behavior_version(BehaviorVersion::v2026_01_12())
                .region(Region::new("us-east-1"))
                .endpoint_url(&$moto.endpoint)
                .credentials_provider(Credentials::new("a", "b", None, None, "test"))
                .build(),
        )
    };
}

impl Aws {
    async fn start() -> Self {
        let moto = Moto::start().await;
        let (buses, topics) = (client!(aws_sdk_eventbridge, moto), client!(aws_sdk_sns, moto));
        let queues = client!(aws_sdk_sqs, moto);
        Self { moto, buses, topics, queues }
    }

    /// Makes a topic, and a queue with all of its messages; returns the ARN.
    async fn make_topic(&self, name: &str) -> String {
        let mut topic = self.topics.create_topic().name(name);
        let mut queue = self.queues.create_queue().queue_name(name);
        if name.ends_with(".fifo") {
            topic = topic.attributes("FifoTopic", "true");
            queue = queue.attributes(aws_sdk_sqs::types::QueueAttributeName::FifoQueue, "true");
        }
        queue.send().await.unwrap();
        let arn = topic.send().await.unwrap().topic_arn.unwrap();
        let subscribe = self.topics.subscribe().topic_arn(&arn).protocol("sqs");
        subscribe.endpoint(format!("arn:aws:sqs:{ARN}:{name}")).send().await.unwrap();
        arn
    }

    /// Makes an event bus, and a queue with all events of cronbox; returns the ARN.
    async fn make_bus(&self, name: &str) -> String {
        self.queues.create_queue().queue_name(name).send().await.unwrap();
        let arn = self.buses.create_event_bus().name(name).send().await.unwrap().event_bus_arn.unwrap();
        let rule = self.buses.put_rule().event_bus_name(name).name(name).event_pattern(r#"{"source": ["cronbox"]}"#);
        rule.send().await.unwrap();
        let target = Target::builder().id("queue").arn(format!("arn:aws:sqs:{ARN}:{name}")).build().unwrap();
        self.buses.put_targets().event_bus_name(name).rule(name).targets(target).send().await.unwrap();
        arn
    }

    /// The messages of a queue that were not read yet.
    async fn arrived(&self, name: &str) -> Vec<Value> {
        let url = self.queues.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap();
        let mut arrived = Vec::new();
        loop {
            let batch = self.queues.receive_message().queue_url(&url).max_number_of_messages(10).send().await.unwrap();
            let Some(batch) = batch.messages.filter(|batch| !batch.is_empty()) else { return arrived };
            for message in batch {
                arrived.push(serde_json::from_str(&message.body.unwrap()).unwrap());
                let delete = self.queues.delete_message().queue_url(&url);
                delete.receipt_handle(message.receipt_handle.unwrap()).send().await.unwrap();
            }
        }
    }
}

/// A notifier, as Lambda runs it.
struct Notifier {
    runtime: Runtime,
    process: Child,
}

impl Notifier {
    async fn start(s: &Story, endpoint: &str) -> Self {
        let runtime = Runtime::start().await;
        let mut command = Command::new(target_folder().join("debug/cronbox-notifier"));
        command.kill_on_drop(true).env_clear().envs(runtime.environment("notifier")).envs([
            ("CRONBOX_ENV", "dev"),
            ("CRONBOX_PUBLIC_URL", "https://cron.example.com"),
            ("CRONBOX_DB_DSN", &log_in_as(&s.owner_dsn(), Login::Notifier)),
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
        ]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Self { runtime, process }
    }

    async fn tick(&mut self) -> Value {
        self.runtime.invoke(json!({"source": "aws.events"})).await.returned()
    }

    /// The metrics of all ticks; the notifier ends.
    async fn metrics(mut self) -> Vec<Value> {
        self.process.kill().await.unwrap();
        let output = String::from_utf8(self.process.wait_with_output().await.unwrap().stdout).unwrap();
        let lines = output.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| !line["_aws"].is_null()).collect()
    }
}

/// A story in which a run has failed, with a message for each of these targets.
async fn failed_run(targets: &[String]) -> Story {
    let s = Story::at(NOON).await;
    let mut channels = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        channels.push(channel(&s, json!({"name": at.to_string(), "kind": "aws", "target_arn": target})).await);
    }
    rule(&s, channels[0], json!({"event": "run_failed", "group_secs": 0, "channel_ids": channels})).await;
    s.execute(ONE_FAILS).await;
    send(&s).await;
    let waiting = "SELECT count(*) FROM notification_messages WHERE state = 'pending' AND attempt_count = 0";
    assert_eq!(s.count(waiting).await, i64::try_from(targets.len()).unwrap(), "the app sends none of them");
    s
}

/// The messages of the API, by their ids.
async fn messages(s: &Story) -> BTreeMap<String, Value> {
    let page = s.editor().get("/api/v1/notification-messages?limit=200").await.expect(200).json;
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| (item["id"].as_str().unwrap().to_owned(), item.clone())).collect()
}

/// Why messages were not sent, as a caller reads it.
async fn errors_for(api: &Api) -> Vec<String> {
    let page = api.get("/api/v1/notification-messages?limit=200").await.expect(200).json;
    sorted(
        page["items"].as_array().unwrap().iter().map(|item| item["last_error"].as_str().unwrap().to_owned()).collect(),
    )
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

/// The id of a message that a topic has passed on, in the three places where it is.
fn id_of_topic(message: &Value) -> String {
    let body: Value = serde_json::from_str(message["Message"].as_str().unwrap()).unwrap();
    assert_eq!(message["MessageAttributes"]["id"]["Value"], body["id"]);
    body["id"].as_str().unwrap().to_owned()
}

/// Two notifiers work at the same time, and a message of each channel arrives once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_buses_and_topics_once() {
    let aws = Aws::start().await;
    let targets = [aws.make_bus("bus").await, aws.make_topic("topic").await, aws.make_topic("topic.fifo").await];
    let s = failed_run(&targets.iter().cycle().take(18).cloned().collect::<Vec<_>>()).await;
    let (mut one, mut other) =
        (Notifier::start(&s, &aws.moto.endpoint).await, Notifier::start(&s, &aws.moto.endpoint).await);
    let (ours, theirs) = tokio::join!(one.tick(), other.tick());
    assert_eq!(ours["sent"].as_u64().unwrap() + theirs["sent"].as_u64().unwrap(), 18, "{ours} {theirs}");

    let events = aws.arrived("bus").await;
    assert_eq!((&events[0]["source"], &events[0]["detail-type"]), (&json!("cronbox"), &json!("cronbox.run_failed")));
    let data = &events[0]["detail"]["data"];
    assert_eq!((&data["environment"], &data["text"]), (&json!("dev"), &json!("payroll failed: no answer")));
    assert!(data["notifications"][0]["link"].as_str().unwrap().starts_with("https://cron.example.com/api/v1/runs/"));
    let mut ids: Vec<String> = events.iter().map(|event| event["detail"]["id"].as_str().unwrap().to_owned()).collect();
    for topic in ["topic", "topic.fifo"] {
        let arrived = aws.arrived(topic).await;
        assert_eq!(arrived.len(), 6, "{topic}");
        assert_eq!(arrived[0]["Subject"], "[cronbox dev] payroll failed: no answer");
        assert_eq!(arrived[0]["MessageAttributes"]["type"]["Value"], "cronbox.run_failed");
        ids.extend(arrived.iter().map(id_of_topic));
    }
    let messages = messages(&s).await;
    assert_eq!(sorted(ids), messages.keys().cloned().collect::<Vec<_>>());
    let is_sent_once = |message: &Value| message["state"] == "sent" && message["attempt_count"] == 1;
    assert!(messages.values().all(is_sent_once), "{messages:?}");
    assert_eq!(one.tick().await, json!({"sent": 0, "retried": 0, "failed": 0}));
    s.end().await;
}

/// AWS has the message, and the notifier is killed before it gets the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_notifiers_repeat_under_one_id() {
    let aws = Aws::start().await;
    let s = failed_run(&[aws.make_topic("topic").await, aws.make_topic("topic.fifo").await]).await;
    let (silent, mut passed) = silent_aws(&aws.moto.endpoint).await;
    let mut killed = Notifier::start(&s, &silent).await;
    tokio::select! {
        report = killed.tick() => panic!("no answer arrives: {report}"),
        () = async { for _ in 0..2 { passed.recv().await.unwrap() } } => {}
    }
    killed.process.kill().await.unwrap();

    let mut next = Notifier::start(&s, &aws.moto.endpoint).await;
    s.now_is("2026-03-02T12:01:59Z").await;
    assert_eq!(next.tick().await["sent"], 0, "the leases of the killed one last");
    s.now_is("2026-03-02T12:02:00Z").await;
    assert_eq!(next.tick().await["sent"], 2);
    let ids: Vec<String> = aws.arrived("topic").await.iter().map(id_of_topic).collect();
    assert_eq!(ids.len(), 2, "once more");
    assert_eq!(ids[0], ids[1]);
    assert_eq!(aws.arrived("topic.fifo").await.len(), 1, "a FIFO topic drops the repeated one");
    let messages = messages(&s).await;
    assert_eq!((&messages[&ids[0]]["state"], &messages[&ids[0]]["attempt_count"]), (&json!("sent"), &json!(2)));
    let metrics = next.metrics().await;
    assert_eq!(metrics[0]["NotificationsWaitingSeconds"], 119.0, "from the begin of the message");
    assert_eq!(
        (&metrics[1]["NotificationsSent"], &metrics[1]["NotificationsWaitingSeconds"]),
        (&json!(2), &json!(0.0))
    );
    s.end().await;
}

/// The topic does not exist. An operator creates it, and an editor requests another delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_targets_become_dead_letters() {
    let aws = Aws::start().await;
    let bus = format!("arn:aws:events:{ARN}:event-bus/late");
    let s = failed_run(&[format!("arn:aws:sns:{ARN}:late"), bus]).await;
    let mut notifier = Notifier::start(&s, &aws.moto.endpoint).await;
    assert_eq!(notifier.tick().await, json!({"sent": 0, "retried": 2, "failed": 0}));
    s.now_is("2026-03-02T12:00:09Z").await;
    assert_eq!(notifier.tick().await, json!({"sent": 0, "retried": 0, "failed": 0}), "the first wait is 10 s");
    for attempt in 2..20 {
        s.execute("UPDATE notification_messages SET due_at = cronbox_now()").await;
        assert_eq!(notifier.tick().await["retried"], 2, "attempt {attempt}");
    }
    s.execute("UPDATE notification_messages SET due_at = cronbox_now()").await;
    assert_eq!(notifier.tick().await, json!({"sent": 0, "retried": 0, "failed": 2}));
    let failed = messages(&s).await;
    assert!(failed.values().all(|message| message["state"] == "failed" && message["attempt_count"] == 20));
    let refused = ["NotFound", "ResourceNotFoundException"]
        .map(|code| format!("{code}: AWS refuses the message, ask an operator"));
    assert_eq!(errors_for(&s.editor()).await, refused);
    assert_eq!(
        errors_for(&s.admin()).await,
        ["NotFound: Endpoint does not exist", "ResourceNotFoundException: Event bus late does not exist."],
        "only an admin reads the words of AWS"
    );

    aws.make_topic("late").await;
    aws.buses.create_event_bus().name("late").send().await.unwrap();
    for id in failed.keys() {
        s.editor().post_empty(&format!("/api/v1/notification-messages/{id}:retry")).await.expect(200);
    }
    assert_eq!(notifier.tick().await, json!({"sent": 2, "retried": 0, "failed": 0}));
    let arrived = aws.arrived("late").await;
    assert!(failed.contains_key(&id_of_topic(&arrived[0])), "under its id");
    let metrics = notifier.metrics().await;
    let sum = |name: &str| metrics.iter().map(|line| line[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(["NotificationsSent", "NotificationsRetried", "NotificationsFailed"].map(sum), [2, 38, 2]);
    s.end().await;
}

/// The service has no AWS client, so the notifier sends the test, too. An impatient editor makes one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_reaches_its_topic() {
    let aws = Aws::start().await;
    let s = Story::at(NOON).await;
    let target = aws.make_topic("topic").await;
    let id = channel(&s, json!({"name": "on call", "kind": "aws", "target_arn": target})).await;
    let test = format!("/api/v1/notification-channels/{id}:test");
    let tested = s.editor().post_empty(&test).await.expect(200).json;
    assert_eq!((&tested["delivered"], &tested["error"]), (&json!(false), &Value::Null));
    assert_eq!(s.editor().post_empty(&test).await.expect(200).json, tested, "it waits already");
    let path = format!("/api/v1/notification-messages/{}", tested["message_id"].as_str().unwrap());
    let waiting = s.editor().get(&path).await.expect(200).json;
    assert_eq!((&waiting["state"], &waiting["event"], &waiting["items"]), (&json!("pending"), &Value::Null, &json!(0)));

    let mut notifier = Notifier::start(&s, &aws.moto.endpoint).await;
    assert_eq!(notifier.tick().await, json!({"sent": 1, "retried": 0, "failed": 0}));
    let arrived = aws.arrived("topic").await;
    assert_eq!(arrived[0]["Subject"], format!("[cronbox dev] This is a test of the channel {id}"));
    assert_eq!(arrived[0]["MessageAttributes"]["type"]["Value"], "cronbox.test");
    assert_eq!(json!(id_of_topic(&arrived[0])), tested["message_id"]);
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "sent");
    assert_ne!(s.editor().post_empty(&test).await.expect(200).json["message_id"], tested["message_id"]);
    // A test that failed is not sent again beside the newer one.
    s.execute("UPDATE notification_messages SET state = 'failed', failed_on = cronbox_now() WHERE state = 'sent'")
        .await;
    s.editor().post_empty(&format!("{path}:retry")).await.refused(409, "not_failed", None);
    assert_eq!(notifier.tick().await["sent"], 1);
    s.end().await;
}

/// AWS whose answers do not arrive: each request is passed on, and counted when AWS has answered.
async fn silent_aws(endpoint: &str) -> (String, UnboundedReceiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (passed, passes) = unbounded_channel();
    let app = Router::new().fallback(pass_on).with_state((endpoint.to_owned(), passed));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, passes)
}

async fn pass_on(
    State((endpoint, passed)): State<(String, UnboundedSender<()>)>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) {
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    headers.remove("host");
    let answer = http.request(method, format!("{endpoint}{uri}")).headers(headers).body(body).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    passed.send(()).unwrap();
    std::future::pending::<()>().await;
}
