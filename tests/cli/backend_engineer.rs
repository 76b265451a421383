//! Tasks of a backend engineer.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::json;
use tests::{PATIENCE, Story, find_kept_port};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{Person, data};

/// A profile of a person whose token has ended, and that cannot be renewed.
const ENDED: &str = r#"[profiles.default]
url = "https://cron.example.com"

[profiles.default.oidc]
issuer = "https://id.example.com"
client_id = "cronbox-cli"
token = "t"
expires_on = "2020-01-01T00:00:00Z"
"#;

/// Start: one command keeps the address and the key, and no key is needed after it.
#[tokio::test]
async fn login_keeps_address_and_key() {
    let s = Story::today().await;
    let person = Person::without_key();
    let lost = person.run(&["workflow", "ls", "--url", s.url()]).await;
    assert_eq!(lost.code, 1);
    assert!(lost.err.contains("set CRONBOX_KEY, or run `cronbox login`"), "{lost:?}");
    let wrong = person.run_with(&["login", "--url", s.url()], "cbt_wrong\n").await;
    assert!(wrong.code == 1 && wrong.err.contains("401"), "{wrong:?}");

    let said = person.run_with(&["login", "--url", s.url()], &format!("{}\n", s.keys.editor)).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.out.contains(&s.keys.editor), "{said:?}");
    let me = person.json(&["me"]).await;
    assert_eq!(me["teams"][0]["role"], "editor");

    // The key of a profile is sent to no other address.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let elsewhere = person.run(&["me", "--url", &other]).await;
    assert!(elsewhere.err.contains("there is no key"), "{elsewhere:?}");

    person.ok(&["logout"]).await;
    assert!(person.run(&["me", "--url", s.url()]).await.err.contains("there is no key"));
    s.end().await;
}

/// The environment of CI and of `make up` has an address and its key. Another address, for example that of a receiver, gets no
/// key by mistake.
#[tokio::test]
async fn a_key_of_the_environment_goes_to_its_address_only() {
    let s = Story::today().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let other = format!("http://{}", listener.local_addr().unwrap());
    let person = Person::editor(&s);
    let refused = person.run(&["workflow", "edit", "report", "--url", &other]).await;
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("CRONBOX_KEY belongs to CRONBOX_URL"), "{refused:?}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nothing was sent");
    person.ok(&["me", "--url", &format!("{}/", s.url())]).await;

    // The key of another address is no answer to the question of `login`.
    let elsewhere = Person::without_key().set("CRONBOX_URL", &other).set("CRONBOX_KEY", "cbt_other");
    let said = elsewhere.run_with(&["login", "--url", s.url()], &format!("{}\n", s.keys.editor)).await;
    assert_eq!(said.code, 0, "{said:?}");
    // A key that is named with the address is for it.
    elsewhere.ok(&["me", "--url", s.url(), "--key", &s.keys.editor]).await;
    // With one variable only, the key belongs to the address of the command line.
    Person::without_key().set("CRONBOX_KEY", &s.keys.editor).ok(&["me", "--url", s.url()]).await;
    s.end().await;
}

/// A sign-in that has ended matters only where its token would be sent.
#[tokio::test]
async fn a_sign_in_that_has_ended_refuses_no_other_address() {
    let s = Story::today().await;
    let person = Person::without_key();
    let file = person.write(".config/cronbox/config.toml", ENDED);
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
    let ended = person.run(&["me"]).await;
    assert!(ended.code == 1 && ended.err.contains("the sign-in of profile default has ended"), "{ended:?}");
    let elsewhere = person.run(&["me", "--url", s.url()]).await;
    assert!(elsewhere.err.contains("there is no key"), "{elsewhere:?}");
    s.end().await;
}

#[tokio::test]
async fn a_team_gets_a_key() {
    let s = Story::today().await;
    let admin = Person::admin(&s);
    let team = admin.json(&["team", "create", "payroll"]).await;
    assert!(team["signing_secret"].as_str().unwrap().starts_with("whsec_"));
    let id = team["id"].to_string();
    let key = admin.json(&["key", "create", "ci", "--kind", "team", "--team", &id, "--role", "editor"]).await;
    let theirs = Person::with_key(&s, key["key"].as_str().unwrap());
    assert_eq!(theirs.json(&["me"]).await["teams"][0]["team_id"], team["id"]);
    assert!(admin.ok(&["team", "ls"]).await.contains("payroll"));
    let listed = admin.ok(&["key", "ls"]).await;
    assert!(listed.contains("ci") && !listed.contains(key["key"].as_str().unwrap()), "{listed}");
    admin.ok(&["key", "revoke", key["id"].as_str().unwrap()]).await;
    assert!(!admin.ok(&["key", "ls"]).await.contains(" ci "));
    s.end().await;
}

/// The file that an import of 200 lines of a crontab makes.
async fn imported(person: &Person) -> String {
    let said = person.run(&["import", "crontab", &data("crontab.txt"), "--owner", "web01"]).await;
    assert!(said.err.contains("190 schedules taken over, 10 not"), "{}", said.err);
    person.write("web01.yaml", &said.out)
}

#[tokio::test]
async fn a_crontab_of_200_lines_is_imported() {
    let person = Person::without_key();
    let file = imported(&person).await;
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!((text.matches("\n  - name: ").count(), text.matches("NOT TAKEN OVER").count()), (190, 10));
    for part in [
        "timezone: Europe/Berlin",
        "MAILTO=ops@example.com",
        "# not taken over: start.sh",
        "what followed was its standard input",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[tokio::test]
async fn a_plan_changes_nothing() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let plan = person.run(&["diff", "-f", &imported(&person).await]).await;
    assert_eq!(plan.code, 1, "{plan:?}");
    assert!(plan.out.contains("Plan: 190 to create, 0 to change, 0 to archive, 0 unchanged."), "{}", plan.out);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 0);
    s.end().await;
}

#[tokio::test]
async fn a_file_is_applied_once() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let file = imported(&person).await;
    let applied = person.ok(&["apply", "-f", &file]).await;
    assert!(applied.contains("Applied: 190 done, 0 failed."), "{applied}");
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE labels ->> 'owner' = 'web01'").await, 190);
    let again = person.ok(&["apply", "-f", &file]).await;
    assert!(again.contains("0 to create, 0 to change, 0 to archive, 190 unchanged"), "{again}");
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE version = 1").await, 190);
    s.end().await;
}

#[tokio::test]
async fn a_workflow_is_fired_and_followed() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "hello", "--log", "hello world"]).await;
    let run = person.json(&["workflow", "fire", "hello", "--input", "month=May", "--wait"]).await;
    assert_eq!((&run["state"], &run["inputs"]), (&json!("succeeded"), &json!({"month": "May"})));
    let shown = person.ok(&["run", "get", run["id"].as_str().unwrap()]).await;
    assert!(shown.contains("timeline") && shown.contains("accepted ") && shown.contains("ended "), "{shown}");
    assert!(shown.contains("ATTEMPT") && shown.contains("hello"), "{shown}");
    s.end().await;
}

/// A workflow calls a receiver of this machine, which verifies the signature.
#[tokio::test]
async fn requests_are_received_and_verified_here() {
    let s = Story::today().await;
    let admin = Person::admin(&s);
    let path = format!("/api/v1/teams/{}:rotate-signing-secret", s.keys.team_id);
    let secret = s.admin().post(&path, &json!({"overlap_secs": 0})).await.expect(200).json;
    let listener = Person::without_key().set("CRONBOX_SIGNING_SECRET", secret["signing_secret"].as_str().unwrap());
    let mut command = listener.command(&["listen", "0", "--count", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut announced = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = announced.next_line().await.unwrap().unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    let team = s.keys.team_id.to_string();
    admin.ok(&["workflow", "create", "call", "--team", &team, "--target", &format!("{address}/payroll")]).await;
    let run = admin.json(&["workflow", "fire", "call", "--wait"]).await;
    assert_eq!(run["state"], "succeeded", "{run}");
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("POST /payroll  signature valid"), "{said}");
    assert!(said.contains("x-cronbox-trigger: manual"), "{said}");
    s.end().await;
}

/// The example of Standard Webhooks, and the same with one changed byte.
#[tokio::test]
async fn a_signature_is_verified() {
    let person = Person::without_key().set("CRONBOX_SIGNING_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let words = [
        "signature",
        "verify",
        "--id",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "--timestamp",
        "1614265330",
        "--signature",
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        "--any-age",
    ];
    let good = person.run_with(&words, r#"{"test": 2432232314}"#).await;
    assert_eq!((good.code, good.out.as_str()), (0, "the signature is valid\n"));
    let bad = person.run_with(&words, r#"{"test": 2432232315}"#).await;
    assert!(bad.code == 1 && bad.out.contains("no signature fits"), "{bad:?}");
    let old = person.run_with(&words[..words.len() - 1], r#"{"test": 2432232314}"#).await;
    assert!(old.code == 1 && old.out.contains("--any-age"), "{old:?}");
}

#[tokio::test]
async fn yesterdays_edit_is_undone() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person
        .ok(&["workflow", "create", "payroll", "--log", "m", "--cron", "0 9 * * *", "--timezone", "Europe/Paris"])
        .await;
    person.ok(&["workflow", "edit", "payroll", "--cron", "0 10 * * *"]).await;
    let history = person.json(&["workflow", "history", "payroll"]).await;
    let crons: Vec<_> = history.as_array().unwrap().iter().map(|version| version["cron_schedule"].clone()).collect();
    assert_eq!(crons, ["0 10 * * *", "0 9 * * *"]);
    let revision = history[1]["revision"].to_string();
    let plan = person.ok(&["workflow", "restore", "payroll", &revision, "--dry-run"]).await;
    assert!(plan.contains("~ cron_schedule: \"0 10 * * *\" -> \"0 9 * * *\""), "{plan}");
    person.ok(&["workflow", "restore", "payroll", &revision]).await;
    assert_eq!(person.json(&["workflow", "get", "payroll"]).await["cron_schedule"], "0 9 * * *");
    s.end().await;
}

#[tokio::test]
async fn what_failed_since_yesterday_is_listed() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let nowhere = format!("http://127.0.0.1:{}", find_kept_port());
    person.ok(&["workflow", "create", "bad", "--target", &nowhere]).await;
    let run = person.run(&["workflow", "fire", "bad", "--wait", "-o", "json"]).await;
    assert_eq!(run.code, 1, "{run:?}");
    let listed = person.ok(&["run", "ls", "--state", "failed", "--from", "yesterday"]).await;
    assert!(listed.lines().count() == 2 && listed.contains("bad") && listed.contains("failed"), "{listed}");
    assert_eq!(person.ok(&["run", "ls", "--state", "failed", "--to", "yesterday"]).await, "nothing\n");
    s.end().await;
}
