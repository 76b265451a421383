//! Encryption at rest: the database has no header value and no signing secret as text, and receivers see no difference.

use local::stack::StackOptions;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::Story;
use tokio::process::Command;

use super::signatures::{noon, received_by_the_docs};
use crate::receiver::{NOON, Receiver, accept, until_state};

pub(super) const KEY: &str = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEXT_KEY: &str = "k2:HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";
const THIRD_KEY: &str = "k3:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
const CANARY: &str = "Bearer canary-7d1";

/// A story whose app encrypts secrets.
pub(super) async fn encrypting() -> Story {
    let app = |config: &mut app::Config| config.secrets.secrets_key = Some(KEY.to_owned());
    Story::with(StackOptions { now: Some(NOON.parse().unwrap()), app, ..StackOptions::default() }).await
}

/// Creates a team and a workflow with a header; returns the signing secret and the workflow.
async fn team_with_header(s: &Story, team: &str, receiver: &Receiver) -> (String, WorkflowId) {
    let team = s.admin().post("/api/v1/teams", &json!({ "name": team })).await.expect(201);
    let workflow = json!({"team_id": team.id(), "name": "w", "action": with_header(receiver.action())});
    let id = s.admin().post("/api/v1/workflows", &workflow).await.expect(201).id();
    (team.json["signing_secret"].as_str().unwrap().to_owned(), WorkflowId(id))
}

fn with_header(mut action: Value) -> Value {
    action["headers"] = json!({ "Authorization": CANARY });
    action
}

pub(super) async fn run_of(s: &Story, workflow: WorkflowId, state: &str) -> Value {
    let id = accept(s, workflow).await;
    let began = std::time::Instant::now();
    while began.elapsed() < tests::PATIENCE {
        let run = s.admin().get(&format!("/api/v1/runs/{id}")).await.expect(200).json;
        if run["state"] == state {
            return run;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the run does not become {state}");
}

async fn change(s: &Story, sql: String) {
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&s.pool).await.unwrap();
}

/// All that the database has of teams and workflows.
async fn stored(s: &Story) -> String {
    s.table("SELECT teams::text FROM teams").await + &s.table("SELECT workflows::text FROM workflows").await
}

fn command(s: &Story, words: &[&str], keys: &str) -> Command {
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox-app"));
    command.args(words).env_clear().env("DATABASE_URL", s.dsn()).env("CRONBOX_BIND_ADDR", "127.0.0.1:0");
    if !keys.is_empty() {
        command.env("CRONBOX_SECRETS_KEY", keys);
    }
    command.kill_on_drop(true);
    command
}

#[tokio::test]
async fn secrets_are_encrypted_at_rest() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let (secret, wf) = team_with_header(&s, "books", &receiver).await;
    let stored = stored(&s).await;
    assert!(!stored.contains("canary") && !stored.contains(&secret[6..]), "{stored}");
    assert!(stored.contains("sealed"), "{stored}");
    run_of(&s, wf, "succeeded").await;
    let path = format!("/api/v1/workflows/{wf}");
    let same = json!({"action": with_header(receiver.action())});
    assert_eq!(s.admin().patch(&path, &same).await.expect(200).json["version"], 1, "the same value changes nothing");
    s.admin().merge_patch(&path, &json!({"action": {"url": format!("{}/b", receiver.url)}})).await.expect(200);
    run_of(&s, wf, "succeeded").await;
    let received = receiver.received();
    assert!(received.iter().all(|request| request.headers["authorization"] == CANARY));
    assert_eq!(received_by_the_docs(&secret, &received, noon()).await, (vec![200, 200], 2));
    s.end().await;
}

/// A ciphertext is bound to the team, the origin and the name of the header.
#[tokio::test]
async fn moved_ciphertexts_cannot_be_decrypted() {
    let s = encrypting().await;
    let (receiver, other) = (Receiver::kind().await, Receiver::kind().await);
    let (_, wf) = team_with_header(&s, "books", &receiver).await;
    let (_, foreign) = team_with_header(&s, "others", &receiver).await;
    let move_to = async |action: String| {
        change(&s, format!("UPDATE workflows SET action = {action} WHERE id = {foreign}")).await;
        let failed = run_of(&s, foreign, "failed").await;
        assert!(failed["error"].as_str().unwrap().contains("cannot be decrypted"), "{failed}");
    };
    move_to(format!("(SELECT action FROM workflows WHERE id = {wf})")).await;
    s.admin()
        .patch(&format!("/api/v1/workflows/{foreign}"), &json!({"action": with_header(receiver.action())}))
        .await
        .expect(200);
    move_to(format!("jsonb_set(action, '{{url}}', '\"{}\"')", other.url)).await;
    s.admin()
        .patch(&format!("/api/v1/workflows/{foreign}"), &json!({"action": with_header(receiver.action())}))
        .await
        .expect(200);
    move_to(
        "jsonb_set(action #- '{headers,Authorization}', '{headers,X-Other}', action #> '{headers,Authorization}')"
            .into(),
    )
    .await;
    assert!(receiver.received().is_empty() && other.received().is_empty(), "nothing is sent");
    let forged = json!({"name": "f", "action": {"type": "http", "method": "GET", "url": other.url, "headers": {"a": {"sealed": "1:AAAA"}}}});
    s.editor().post("/api/v1/workflows", &forged).await.refused(400, "invalid_field", Some("action.headers.a"));
    s.end().await;
}

/// The row of the first data key goes with a transaction that rolls back, so its key must not be used again.
#[tokio::test]
async fn a_data_key_that_rolled_back_is_forgotten() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    s.execute("UPDATE teams SET signing_secret = 'whsec_AAAA'").await;
    s.execute("DELETE FROM team_data_keys").await;
    let made = json!({"name": "w", "action": {"type": "log", "message": "hi"}});
    s.editor().post("/api/v1/workflows", &made).await.expect(201);
    let mut again = json!({"name": "w", "action": with_header(receiver.action())});
    s.editor().post("/api/v1/workflows", &again).await.refused(409, "name_taken", None);
    assert_eq!(s.count("SELECT count(*) FROM team_data_keys").await, 0);
    again["name"] = json!("x");
    let id = s.editor().post("/api/v1/workflows", &again).await.expect(201).id();
    run_of(&s, WorkflowId(id), "succeeded").await;
    assert_eq!(receiver.received()[0].headers["authorization"], CANARY);
    s.end().await;
}

async fn reencrypt(s: &Story, more: &[&str], keys: &str) -> Value {
    let done = command(s, &[&["secrets", "re-encrypt"], more].concat(), keys).output().await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn counts(done: Value) -> [u64; 6] {
    ["data_keys", "new_data_keys", "signing_secrets", "team_secrets", "workflows", "channels"]
        .map(|name| done[name].as_u64().unwrap())
}

/// The thief of the first key has a copy of the database, and so the first data keys. Nothing that is stored later is
/// encrypted with one of them.
#[tokio::test]
async fn new_data_keys_end_a_theft() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let secret = json!({"value": "named-3f2"});
    let path = format!("/api/v1/teams/{}/secrets/token", s.keys.team_id);
    tests::send_request(s.admin().request(reqwest::Method::PUT, &path).json(&secret)).await.expect(201);
    let mut action = with_header(receiver.action());
    action["headers"]["x-token"] = json!("${secret:token}");
    let mut ids = Vec::new();
    // More than one transaction writes.
    for nth in 0..25 {
        let made = json!({"name": format!("w{nth}"), "action": action});
        ids.push(s.editor().post("/api/v1/workflows", &made).await.expect(201).id());
    }
    let channel = json!({"name": "slack", "kind": "slack", "url": "https://1.1.1.1/services/s3cret"});
    s.editor().post("/api/v1/notification-channels", &channel).await.expect(201);
    let keys = format!("{NEXT_KEY},{KEY}");
    let teams = u64::try_from(s.count("SELECT count(*) FROM team_data_keys").await).unwrap();
    assert_eq!(counts(reencrypt(&s, &["--new-data-keys"], &keys).await), [teams, teams, teams, 1, 25, 1]);
    let old = "SELECT (SELECT count(*) FROM workflows WHERE action::text LIKE '%\"sealed\": \"1:%')
                    + (SELECT count(*) FROM team_secrets WHERE ciphertext LIKE '1:%')
                    + (SELECT count(*) FROM notification_channels WHERE url LIKE 'sealed:1:%' OR url LIKE '%s3cret%')
                    + (SELECT count(*) FROM teams WHERE signing_secret LIKE 'sealed:1:%')";
    assert_eq!(s.count(old).await, 0);
    assert_eq!(counts(reencrypt(&s, &[], &keys).await), [0; 6]);
    assert_eq!(s.count("SELECT count(*) FROM audit_log WHERE verb = 're-encrypt'").await, 2);
    // The instance knows only the first key, which the new data keys are not encrypted with.
    let failed = run_of(&s, WorkflowId(ids[0]), "failed").await;
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("cannot be decrypted") && !error.contains("k2") && !error.contains("CRONBOX"), "{error}");
    assert_eq!(counts(reencrypt(&s, &[], &format!("{KEY},{NEXT_KEY}")).await), [2 * teams, 0, 0, 0, 0, 0]);
    run_of(&s, WorkflowId(ids[0]), "succeeded").await;
    let received = receiver.received();
    assert_eq!(received[0].headers["authorization"], CANARY);
    assert_eq!(received[0].headers["x-token"], "named-3f2");
    s.end().await;
}

/// Two copies run at once, and a third is killed somewhere. Each value can be decrypted at every moment.
#[tokio::test]
async fn copies_of_a_renewal_agree() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let made = json!({"name": "w", "action": with_header(receiver.action())});
    let id = WorkflowId(s.editor().post("/api/v1/workflows", &made).await.expect(201).id());
    let renewal = ["--new-data-keys"];
    tokio::join!(reencrypt(&s, &renewal, KEY), reencrypt(&s, &renewal, KEY), run_of(&s, id, "succeeded"));
    let mut killed = command(&s, &["secrets", "re-encrypt", "--new-data-keys"], KEY).spawn().unwrap();
    s.until(
        "SELECT count(*) FROM team_data_keys WHERE version = (SELECT max(version) FROM team_data_keys) AND version > 2",
        1,
    )
    .await;
    killed.kill().await.unwrap();
    run_of(&s, id, "succeeded").await;
    reencrypt(&s, &[], KEY).await;
    assert_eq!(counts(reencrypt(&s, &[], KEY).await), [0; 6]);
    run_of(&s, id, "succeeded").await;
    assert!(receiver.received().iter().all(|request| request.headers["authorization"] == CANARY));
    s.end().await;
}

/// Rows of versions before go on working as text. The command encrypts them, and changes the key, while an app runs.
#[tokio::test]
async fn text_is_encrypted_by_a_command() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let wf = s.create_with(json!({"action": receiver.action()})).await;
    change(
        &s,
        format!("UPDATE workflows SET action = action || '{{\"headers\": {{\"Authorization\": \"{CANARY}\"}}}}'"),
    )
    .await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    change(&s, format!("UPDATE teams SET signing_secret = '{secret}'")).await;
    until_state(&s, accept(&s, wf).await, "succeeded").await;
    let version = s.editor().get(&format!("/api/v1/workflows/{wf}")).await.json["version"].clone();
    let reencrypt = async |keys: &str| counts(reencrypt(&s, &[], keys).await);
    assert_eq!(reencrypt(KEY).await, [0, 0, 1, 0, 1, 0]);
    let stored = stored(&s).await;
    assert!(!stored.contains("canary") && !stored.contains(secret), "{stored}");
    until_state(&s, accept(&s, wf).await, "succeeded").await;
    assert_eq!(reencrypt(&format!("{NEXT_KEY},{KEY}")).await, [1, 0, 0, 0, 0, 0]);
    assert_eq!(s.table("SELECT DISTINCT wrapping_key FROM team_data_keys").await, "k2");
    assert_eq!(reencrypt(NEXT_KEY).await, [0; 6]);
    until_state(&s, accept(&s, wf).await, "succeeded").await;
    let received = receiver.received();
    assert!(received.iter().all(|request| request.headers["authorization"] == CANARY));
    assert_eq!(received_by_the_docs(secret, &received, noon()).await, (vec![200; 3], 3));
    assert_eq!(s.editor().get(&format!("/api/v1/workflows/{wf}")).await.json["version"], version, "it is no edit");
    s.end().await;
}

/// An app without the key would fail each run of these teams, so it does not start.
#[tokio::test]
async fn a_missing_key_is_an_error_at_start() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    team_with_header(&s, "books", &receiver).await;
    let wrong = NEXT_KEY.replace("k2:", "k1:");
    for (keys, expected) in [
        ("", "encrypted with the key `k1`"),
        (NEXT_KEY, "encrypted with the key `k1`"),
        (&wrong, "cannot be decrypted"),
        ("k1:hunter2", "32 bytes"),
    ] {
        let ended =
            tokio::time::timeout(tests::PATIENCE, command(&s, &["serve"], keys).output()).await.unwrap().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.code() == Some(1) && said.contains(expected), "{said}");
        assert!(!said.contains("hunter2") && !said.contains(&NEXT_KEY[3..]), "{said}");
    }
    s.end().await;
}

/// A restored backup has the data keys of its time. After two rotations its key is still in the list.
#[tokio::test]
async fn earlier_keys_open_a_backup() {
    let s = encrypting().await;
    let receiver = Receiver::kind().await;
    let (_, wf) = team_with_header(&s, "books", &receiver).await;
    assert_eq!(s.table("SELECT DISTINCT wrapping_key FROM team_data_keys").await, "k1", "the backup");
    reencrypt(&s, &[], &format!("{THIRD_KEY},{NEXT_KEY},{KEY}")).await;
    assert_eq!(s.table("SELECT DISTINCT wrapping_key FROM team_data_keys").await, "k3");
    // The app of the story has the first key, and the data key in memory.
    run_of(&s, wf, "succeeded").await;
    s.end().await;
}
