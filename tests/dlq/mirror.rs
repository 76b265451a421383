//! The publisher mirrors the queues into a table, and redrives and discards what operators request there.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use local::stack::{SCHEDULE_DLQ, StackOptions};
use schedule::WorkflowId;
use serde_json::{Value, json};
use stand_in::dead_letters::DeadLetter;
use tests::{Answer, Api, Story};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::queue::{each_ran_once, undelivered, undrained, unsent};

/// A story at 09:01 whose publisher mirrors the stand-in's queues; 09:00 was due for each workflow.
async fn mirrored<const N: usize>(change: fn(&mut publisher::Config)) -> (Story, [WorkflowId; N]) {
    let now = Some("2026-03-02T08:59:00Z".parse().unwrap());
    let options = StackOptions { now, mirrors_dead_letters: true, publisher: change, ..StackOptions::default() };
    let s = Story::with(options).await;
    let mut workflows = [WorkflowId(0); N];
    for workflow in &mut workflows {
        *workflow = s.create("0 9 * * *", "UTC").await;
    }
    s.now_is("2026-03-02T09:01:00Z").await;
    (s, workflows)
}

fn put(s: &Story, letters: impl IntoIterator<Item = DeadLetter>) {
    letters.into_iter().for_each(|letter| s.stand_in.dead_letters.push(letter));
}

async fn list(api: &Api, query: &str) -> Vec<Value> {
    let page = api.get(&format!("/api/v1/dead-letters?{query}")).await.expect(200).json;
    page["items"].as_array().unwrap().clone()
}

async fn id_of(s: &Story, workflow: WorkflowId) -> i64 {
    list(&s.admin(), &format!("workflow_id={workflow}")).await[0]["id"].as_i64().unwrap()
}

async fn request(api: &Api, id: i64, verb: &str) -> Answer {
    api.post_empty(&format!("/api/v1/dead-letters/{id}:{verb}")).await
}

/// A row of the table, in words.
async fn row(s: &Story, id: i64) -> String {
    let letter = s.admin().get(&format!("/api/v1/dead-letters/{id}")).await.expect(200).json;
    let text = |field: &str| letter[field].as_str().unwrap_or("-").to_owned();
    format!("{} {} {}", text("state"), letter["attempt_count"], text("result"))
}

/// SQS's real client of the stand-in's queues.
fn sqs(s: &Story) -> Client {
    let config = aws_sdk_sqs::Config::builder().behavior_version(BehaviorVersion::v2026_01_12());
    let config = config.region(Region::new("us-east-1")).endpoint_url(s.scheduler_url());
    Client::from_conf(config.credentials_provider(Credentials::new("a", "b", None, None, "test")).build())
}

/// Makes every message visible that a killed process has received: the stand-in numbers its receipts.
async fn release(s: &Story) {
    for receipt in 1..20 {
        let shown = sqs(s).change_message_visibility().queue_url(s.queue_url(SCHEDULE_DLQ));
        shown.receipt_handle(receipt.to_string()).visibility_timeout(0).send().await.unwrap();
    }
}

#[tokio::test]
async fn operators_redrive_what_teams_see() {
    let (s, [a, b]) = mirrored(|_| {}).await;
    let other = s.admin().post("/api/v1/teams", &json!({"name": "others"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": other, "role": "editor"});
    let other = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let other = Api::new(s.url(), other["key"].as_str().unwrap());
    put(&s, [unsent(a), undelivered(b), undrained()]);

    s.publisher.mirror_dead_letters().await;

    assert_eq!(s.stand_in.dead_letters.all_messages().len(), 3, "what is mirrored stays in its queue");
    assert_eq!(list(&s.editor(), "").await.len(), 2, "a team sees its fires");
    assert_eq!(list(&s.admin(), "").await.len(), 3, "an operator sees all");
    assert_eq!(list(&other, "").await.len(), 0);
    let first = list(&s.admin(), "queue=schedules&state=present").await.pop().unwrap();
    let said = json!([first["workflow_id"], first["scheduled_time"], first["kind"], first["tries"], first["body"]]);
    assert_eq!(said, json!([a, "2026-03-02T09:00:00Z", "fire", 1, null]));
    let id = first["id"].as_i64().unwrap();
    let whole = s.admin().get(&format!("/api/v1/dead-letters/{id}")).await.expect(200).json;
    assert_eq!(whole["body"], unsent(a).body.to_string());
    assert_eq!(whole["attributes"]["ERROR_CODE"], "AccessDeniedException");
    let of_team = s.editor().get(&format!("/api/v1/dead-letters/{id}")).await.expect(200).json;
    let said = json!([of_team["error"], of_team["body"], of_team["attributes"]]);
    assert_eq!(said, json!(["AccessDeniedException", null, null]), "its words name the account and its roles");
    other.get(&format!("/api/v1/dead-letters/{id}")).await.refused(404, "not_found", None);
    request(&s.editor(), id, "redrive").await.refused(403, "forbidden", None);

    for _ in 0..2 {
        let requested = request(&s.admin(), id, "redrive").await.expect(202).json;
        assert_eq!(requested["state"], "redrive_requested");
    }
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'dead_letter.redrive'";
    assert_eq!(s.count(audited).await, 1, "a repeat is no change");
    s.publisher.mirror_dead_letters().await;

    assert_eq!(row(&s, id).await, "redriven 1 accepted");
    each_ran_once(&s, &[a]).await;
    assert_eq!(s.stand_in.dead_letters.all_messages().len(), 2);
    request(&s.admin(), id, "redrive").await.expect(202);
    request(&s.admin(), id, "discard").await.refused(409, "dead_letter_settled", None);

    let tick = list(&s.admin(), "queue=runner").await.into_iter().find(|letter| letter["kind"] == "tick").unwrap();
    let tick = tick["id"].as_i64().unwrap();
    request(&s.admin(), tick, "redrive").await.refused(409, "nothing_to_redrive", None);
    request(&s.admin(), tick, "discard").await.expect(202);
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, tick).await, "discarded 0 -");
    assert_eq!(s.stand_in.dead_letters.all_messages().len(), 1);
    s.end_early().await;
}

#[tokio::test]
async fn an_unanswered_redrive_keeps_the_message() {
    let (s, [a]) = mirrored(|config| config.letters.app_base_url = Some("http://127.0.0.1:9".parse().unwrap())).await;
    put(&s, [unsent(a)]);
    s.publisher.mirror_dead_letters().await;
    let id = id_of(&s, a).await;
    request(&s.admin(), id, "redrive").await.expect(202);

    s.publisher.mirror_dead_letters().await;

    let failed = row(&s, id).await;
    assert!(failed.starts_with("redrive_failed 1 http://127.0.0.1:9 does not answer"), "{failed}");
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, id).await, failed, "nothing repeats it but a request");
    let received = sqs(&s).receive_message().queue_url(s.queue_url(SCHEDULE_DLQ)).send().await.unwrap();
    assert_eq!(received.messages().len(), 1, "it is visible again");
    s.end_early().await;
}

/// An operator holds the message for longer than 15 minutes, and then returns it.
#[tokio::test]
async fn vanished_messages_are_gone_until_seen() {
    let (s, [a]) = mirrored(|_| {}).await;
    put(&s, [unsent(a)]);
    s.publisher.mirror_dead_letters().await;
    let id = id_of(&s, a).await;
    let receive = sqs(&s).receive_message().queue_url(s.queue_url(SCHEDULE_DLQ)).visibility_timeout(43_200);
    assert_eq!(receive.send().await.unwrap().messages().len(), 1);

    s.now_is("2026-03-02T09:15:00Z").await;
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, id).await, "present 0 -", "14 minutes");
    s.now_is("2026-03-02T09:17:00Z").await;
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, id).await, "gone 0 left_the_queue", "16 minutes");
    request(&s.admin(), id, "redrive").await.refused(409, "dead_letter_settled", None);

    release(&s).await;
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, id).await, "present 0 -");

    receive_and_delete(&s).await;
    s.now_is("2026-03-02T09:40:00Z").await;
    s.publisher.mirror_dead_letters().await;
    assert_eq!(row(&s, id).await, "gone 0 left_the_queue");
    s.now_is("2026-04-02T09:40:00Z").await;
    s.publisher.mirror_dead_letters().await;
    assert_eq!(s.count("SELECT count(*) FROM dead_letters").await, 0, "history of 30 days");
    s.end_early().await;
}

/// Another program holds the message for longer than 15 minutes; the operator's request is not forgotten meanwhile.
#[tokio::test]
async fn requests_outlive_vanished_messages() {
    for (verb, gone, at_last) in [
        ("redrive", "gone 0 left_the_queue_before_redrive", "redriven 1 "),
        ("discard", "gone 0 left_the_queue_before_discard", "discarded 0 -"),
    ] {
        let (s, [a]) = mirrored(|_| {}).await;
        put(&s, [unsent(a)]);
        s.publisher.mirror_dead_letters().await;
        let id = id_of(&s, a).await;
        let receive = sqs(&s).receive_message().queue_url(s.queue_url(SCHEDULE_DLQ)).visibility_timeout(43_200);
        assert_eq!(receive.send().await.unwrap().messages().len(), 1);
        request(&s.admin(), id, verb).await.expect(202);

        s.now_is("2026-03-02T09:17:00Z").await;
        s.publisher.mirror_dead_letters().await;
        assert_eq!(row(&s, id).await, gone);

        release(&s).await;
        s.publisher.mirror_dead_letters().await;
        let settled = row(&s, id).await;
        assert!(settled.starts_with(at_last), "{verb}: {settled}");
        assert_eq!(s.stand_in.dead_letters.all_messages().len(), 0, "{verb}");
        s.end_early().await;
    }
}

async fn receive_and_delete(s: &Story) {
    let url = s.queue_url(SCHEDULE_DLQ);
    let received = sqs(s).receive_message().queue_url(&url).send().await.unwrap();
    let receipt = received.messages()[0].receipt_handle().unwrap();
    sqs(s).delete_message().queue_url(&url).receipt_handle(receipt).send().await.unwrap();
}

#[tokio::test]
async fn two_publishers_run_each_fire_once() {
    let (s, workflows) = mirrored::<12>(|_| {}).await;
    put(&s, workflows.map(unsent));
    s.publisher.mirror_dead_letters().await;
    for workflow in workflows {
        request(&s.admin(), id_of(&s, workflow).await, "redrive").await.expect(202);
    }
    let second = s.another_publisher().unwrap();

    tokio::join!(s.publisher.mirror_dead_letters(), second.mirror_dead_letters());
    s.publisher.mirror_dead_letters().await;

    let redriven = "SELECT count(*) FROM dead_letters WHERE state = 'redriven' AND attempt_count = 1";
    assert_eq!(s.count(redriven).await, 12);
    assert_eq!(s.stand_in.dead_letters.all_messages().len(), 0);
    each_ran_once(&s, &workflows).await;
    s.end_early().await;
}

const SECRET: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key-AbCdEf";

/// A server in place of Secrets Manager. Its secret has a key that no app knows, and before had this one.
async fn serve_secret(previous: String) -> String {
    let read = async |State(previous): State<String>, body: String| {
        let request: Value = serde_json::from_str(&body).unwrap();
        let secret = if request["VersionStage"] == "AWSPREVIOUS" { previous } else { "not-known-yet".to_owned() };
        Json(json!({"ARN": SECRET, "Name": "key", "SecretString": secret}))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", post(read)).with_state(previous);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A rotation has stored a key, and the deployment that makes it known to the app hangs.
#[tokio::test]
async fn redrives_use_the_previous_key() {
    let (s, [a]) = mirrored(|_| {}).await;
    s.publish().await;
    put(&s, [unsent(a)]);
    s.publisher.mirror_dead_letters().await;
    let id = id_of(&s, a).await;
    request(&s.admin(), id, "redrive").await.expect(202);
    let secrets = serve_secret(s.keys.scheduler.clone()).await;

    let mut publisher = Command::new(local::config::target_folder().join("debug/cronbox-publisher"));
    publisher.arg("--once").env_clear().envs(s.publisher_environment()).envs(s.dead_letter_environment());
    publisher.env_remove("CRONBOX_SCHEDULER_API_KEY").env("CRONBOX_SCHEDULER_API_KEY_SECRET_ARN", SECRET);
    let done = publisher.env("AWS_ENDPOINT_URL_SECRETS_MANAGER", secrets).output().await.unwrap();

    assert!(done.status.success(), "{done:?}");
    assert_eq!(row(&s, id).await, "redriven 1 accepted");
    assert_eq!(s.stand_in.dead_letters.all_messages().len(), 0);
    each_ran_once(&s, &[a]).await;
    s.end_early().await;
}

/// The program is killed between post and settle (R1), and between settle and delete (R2).
#[tokio::test]
async fn a_killed_publisher_loses_no_fire() {
    for (point, after, at_last) in
        [("R1", "redriving 1 -", "redriven 2 duplicate"), ("R2", "redriven 1 accepted", "redriven 1 accepted")]
    {
        let (s, [a]) = mirrored(|_| {}).await;
        s.publish().await;
        put(&s, [unsent(a)]);
        s.publisher.mirror_dead_letters().await;
        let id = id_of(&s, a).await;
        request(&s.admin(), id, "redrive").await.expect(202);

        let mut victim = Command::new(local::config::target_folder().join("debug/cronbox-publisher"));
        victim.arg("--once").env_clear().envs(s.publisher_environment()).envs(s.dead_letter_environment());
        let killed = victim.env("CRONBOX_FAULT", format!("{point}:1:kill")).output().await.unwrap();

        assert_eq!(killed.status.code(), None, "{point}: {killed:?}");
        assert_eq!(row(&s, id).await, after, "{point}");
        assert_eq!(s.stand_in.dead_letters.all_messages().len(), 1, "{point}: it is not deleted");
        release(&s).await;
        s.publisher.mirror_dead_letters().await;
        // Its lease of a minute ends.
        s.now_is("2026-03-02T09:03:00Z").await;
        release(&s).await;
        s.publisher.mirror_dead_letters().await;
        assert_eq!(row(&s, id).await, at_last, "{point}");
        assert_eq!(s.stand_in.dead_letters.all_messages().len(), 0, "{point}");
        each_ran_once(&s, &[a]).await;
        s.end_early().await;
    }
}
