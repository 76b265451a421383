//! Tasks of an operator who is paged at night.

use std::process::Stdio;
use std::time::{Duration, Instant};

use app::jobs::Did;
use chrono::{SecondsFormat, TimeDelta};
use reqwest::{Method, Response};
use schedule::Clock;
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story, find_kept_port};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::Person;

/// Two workflows run each minute; then no fire arrives, and the watchdog decides what became due.
#[tokio::test]
async fn missed_times_of_the_night_are_listed() {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    for name in ["a", "b"] {
        let fields = json!({"name": name, "cron_schedule": "* * * * *", "timezone": "UTC", "catch_up_policy": "none"});
        s.create_with(fields).await;
    }
    s.publish().await;
    s.clock_to("2026-03-02T09:01:30Z").await;
    s.now_is("2026-03-02T09:09:30Z").await;
    let admin = Person::admin(&s);
    let span = ["--from", "2026-03-02T00:00:00Z", "--to", "2026-03-02T10:00:00Z"];
    let behind = admin.run(&[&["missed"], &span[..]].concat()).await;
    assert_eq!(behind.code, 1, "a time without a decision gives exit code 1: {behind:?}");
    assert!(behind.err.contains("times since 2026-03-02T0") && behind.err.contains("not decided yet"), "{behind:?}");
    s.job("watchdog").await;
    let said = admin.run(&[&["missed"], &span[..]].concat()).await;
    assert_eq!(said.code, 1, "a missed time gives exit code 1: {said:?}");
    assert_eq!(said.out.matches(" missed ").count(), 6, "{}", said.out);
    let fine = admin.run(&["missed", "--from", "2026-03-02T00:00:00Z", "--to", "2026-03-02T09:00:00Z"]).await;
    assert_eq!((fine.code, fine.out.as_str()), (0, "nothing\n"));
    // Skipped times fill the list, and do not hide the missed ones.
    s.editor().post("/api/v1/freezes", &json!({"reason": "a deployment"})).await.expect(201);
    s.now_is("2026-03-02T09:30:30Z").await;
    s.job("watchdog").await;
    let shown = admin.run(&[&["missed", "--skipped", "--limit", "1"], &span[..]].concat()).await;
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.err.contains("only the first 1 are shown"), "{shown:?}");
    s.end_early().await;
}

/// A workflow whose receiver refuses, and then recovers.
async fn story_with_failed_runs(count: usize) -> (Story, Person, String) {
    let s = Story::today().await;
    let person = Person::editor(&s);
    let nowhere = format!("127.0.0.1:{}", find_kept_port());
    let target = format!("http://{nowhere}/");
    person
        .ok(&[
            "workflow",
            "create",
            "job",
            "--target",
            &target,
            "--overlap",
            "concurrent",
            "--set",
            "max_concurrent=50",
        ])
        .await;
    for _ in 0..count {
        person.ok(&["workflow", "fire", "job"]).await;
    }
    s.runs_end().await;
    (s, person, nowhere)
}

#[tokio::test]
async fn all_runs_that_failed_run_again() {
    let (s, person, _) = story_with_failed_runs(40).await;
    let since = (Clock::System.now() - TimeDelta::hours(1)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let failed = person.json(&["run", "ls", "--state", "failed", "--from", &since, "--limit", "100"]).await;
    assert_eq!(failed.as_array().unwrap().len(), 40);
    // The receiver is back: the action is another one.
    person.ok(&["workflow", "edit", "job", "--log", "fine"]).await;
    let words = ["bulk", "retry", "--state", "failed", "--from", since.as_str()];
    let dry = person.ok(&[&words[..], &["--dry-run"]].concat()).await;
    assert!(dry.contains("total: 40"), "{dry}");
    let operation = person.json(&words).await;
    let id = operation["id"].as_str().unwrap();
    // A turn ends after 30 s, also if items are left.
    while let Did::Some(_) = s.job("bulk").await {}
    let ended = person.json(&["bulk", "get", id]).await;
    assert_eq!((&ended["state"], &ended["processed"], &ended["refused"]), (&json!("finished"), &json!(40), &json!(0)));
    s.runs_end().await;
    let items = person.json(&["bulk", "items", id]).await;
    assert!(items.as_array().unwrap().iter().all(|item| item["new_run_id"].is_string()), "{items}");
    let again = person.json(&["run", "ls", "--state", "succeeded", "--trigger", "retry", "--limit", "100"]).await;
    assert_eq!(again.as_array().unwrap().len(), 40);
    s.end().await;
}

/// The span of an outage also has runs that succeeded.
#[tokio::test]
async fn bulk_retries_leave_successes_alone() {
    let (s, person, _) = story_with_failed_runs(2).await;
    person.ok(&["workflow", "create", "fine", "--log", "m"]).await;
    person.ok(&["workflow", "fire", "fine"]).await;
    s.runs_end().await;
    for (words, total) in [(&[][..], 2), (&["--state", "succeeded"][..], 1)] {
        let operation = person.json(&[&["bulk", "retry", "--last", "1h"], words].concat()).await;
        assert_eq!(operation["total"], total, "{words:?}");
    }
    s.end_early().await;
}

/// A forgotten filter would be all of the team.
#[tokio::test]
async fn all_of_a_team_needs_a_confirmation() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    for name in ["a", "b"] {
        person.ok(&["workflow", "create", name, "--log", "m"]).await;
    }
    let of_workflows = "select by --workflow, --state or -q, or all of the team by --all --yes";
    let of_runs = "select by --run, --workflow, --state, --last, --from or --to, or all of the team by --all --yes";
    for (words, sentence) in [
        (&["archive"][..], of_workflows),
        (&["fire", "--yes"][..], of_workflows),
        (&["resume", "-q", ""][..], of_workflows),
        (&["cancel"][..], of_runs),
        (&["delete", "--all"][..], "confirm --all by --yes"),
        (&["pause", "--all", "--yes", "-q", "a"][..], "--all excludes --workflow, --state or -q"),
    ] {
        let said = person.run(&[&["bulk"], words].concat()).await;
        assert!(said.code == 2 && said.err.contains(sentence), "{words:?}: {said:?}");
    }
    assert_eq!(person.json(&["bulk", "ls"]).await, json!([]), "nothing was requested");

    for words in [&["bulk", "pause", "--dry-run"][..], &["bulk", "pause", "--all", "--dry-run"]] {
        let dry = person.ok(words).await;
        assert!(dry.contains("total: 2"), "{words:?}: {dry}");
    }
    let said = person.run(&["bulk", "pause", "--all", "--yes", "--expect", "3"]).await;
    assert!(said.code == 1 && said.err.contains("selection_changed"), "{said:?}");
    let operation = person.json(&["bulk", "pause", "--all", "--yes", "--expect", "2"]).await;
    s.job("bulk").await;
    let ended = person.json(&["bulk", "get", operation["id"].as_str().unwrap()]).await;
    assert_eq!((&ended["state"], &ended["processed"]), (&json!("finished"), &json!(2)));
    s.end().await;
}

#[tokio::test]
async fn runs_that_failed_since_two_are_listed() {
    let (s, person, _) = story_with_failed_runs(2).await;
    let listed = person.ok(&["run", "ls", "--state", "failed", "--state", "timed_out", "--last", "6h"]).await;
    assert_eq!(listed.lines().count(), 3, "{listed}");
    let first = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let shown = person.ok(&["run", "get", &first]).await;
    assert!(shown.contains("error"), "{shown}");
    s.end().await;
}

#[tokio::test]
async fn everything_stops_and_goes_on() {
    let s = Story::today().await;
    let admin = Person::admin(&s);
    let freeze = admin.json(&["freeze", "start", "database is down", "--all-teams"]).await;
    assert_eq!((&freeze["state"], &freeze["team_id"]), (&json!("in_force"), &Value::Null));
    let open = admin.ok(&["freeze", "ls", "--open"]).await;
    assert!(open.contains("database is down") && open.contains("in_force"), "{open}");
    let lifted = admin.json(&["freeze", "lift", freeze["id"].as_str().unwrap()]).await;
    assert_eq!(lifted["state"], "ended");
    assert_eq!(admin.ok(&["freeze", "ls", "--open"]).await, "nothing\n");
    s.end().await;
}

#[tokio::test]
async fn who_changed_a_cron_is_shown() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "payroll", "--log", "m", "--cron", "0 9 * * *"]).await;
    person.ok(&["workflow", "edit", "payroll", "--cron", "0 10 * * *"]).await;
    let history = person.ok(&["workflow", "history", "payroll", "-o", "wide"]).await;
    let newest = history.lines().nth(1).unwrap();
    assert!(newest.contains("0 10 * * *") && newest.contains("update") && newest.contains("key:cbt_"), "{history}");
    let id = person.json(&["workflow", "get", "payroll"]).await["id"].to_string();
    let log = Person::admin(&s).run(&["audit", "ls", "--subject", &format!("workflow:{id}")]).await;
    assert!(log.out.contains("update"), "{log:?}");
    s.end().await;
}

#[tokio::test]
async fn what_waits_for_an_executor_is_listed() {
    let s = Story::with_app(|config| config.executor_slots = 0).await;
    let person = Person::editor(&s);
    person.ok(&["workflow", "create", "job", "--log", "m", "--overlap", "concurrent"]).await;
    for _ in 0..2 {
        person.ok(&["workflow", "fire", "job"]).await;
    }
    let waiting = person.ok(&["run", "ls", "--state", "accepted", "--state", "queued"]).await;
    assert_eq!(waiting.matches(" accepted ").count(), 2, "{waiting}");
    let overview = person.ok(&["top"]).await;
    assert!(overview.contains("2 live runs") && overview.contains("running\n"), "{overview}");
    let id = waiting.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let cancelled = person.json(&["run", "cancel", &id, "--wait"]).await;
    assert_eq!(cancelled["state"], "cancelled");
    s.end_early().await;
}

/// The id of a request leads from the error of a command to the line of the log.
#[tokio::test]
async fn the_log_line_of_a_request_is_found() {
    let person = Person::without_key();
    let log = concat!(
        "2026-03-02T09:00:00Z  INFO edit: paused workflow_id=12 request_id=4bf92f3577b34da6a3ce929d0e0e4736\n",
        "{\"level\":\"ERROR\",\"fields\":{\"message\":\"boom\"},\"request_id\":\"0af7651916cd43dd8448eb211c80319c\",\"workflow_id\":12}\n",
        "2026-03-02T09:00:01Z  INFO edit: paused workflow_id=123 request_id=ffffffffffffffffffffffffffffffff\n",
    );
    let file = person.write("app.log", log);
    let found = person.ok(&["logs", "--request", "0af7651916cd43dd8448eb211c80319c", &file]).await;
    assert!(found.lines().count() == 1 && found.contains("boom"), "{found}");
    assert_eq!(person.ok(&["logs", "--workflow", "12", &file]).await.lines().count(), 2);
    assert_eq!(person.run(&["logs", "--request", "none", &file]).await.code, 1);
    let piped = person.run_with(&["logs", "--workflow", "123"], log).await;
    assert!(piped.code == 0 && piped.out.contains("workflow_id=123"), "{piped:?}");
}

/// The local stack names its log, which has a previous file once it was full.
#[tokio::test]
async fn the_log_of_the_local_stack_needs_no_name() {
    let person = Person::without_key();
    let file = person.write("cronbox.log", "second workflow_id=12\nworkflow_id=13\n");
    person.write("cronbox.log.1", "first workflow_id=12\n");
    let unnamed = async |person: &Person| {
        let mut command = person.command(&["logs", "--workflow", "12"]);
        command.stdin(std::process::Stdio::null()).output().await.unwrap()
    };
    let refused = unnamed(&person).await;
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && text.contains("name the log"), "{text}");
    let person = person.set("CRONBOX_LOG_FILE", &file);
    let found = String::from_utf8(unnamed(&person).await.stdout).unwrap();
    assert_eq!(found, "first workflow_id=12\nsecond workflow_id=12\n");
}

#[tokio::test]
async fn last_night_is_proven() {
    let s = Story::today().await;
    let admin = Person::admin(&s);
    s.create("* * * * *", "UTC").await;
    s.execute("UPDATE schedule_versions SET valid_from = valid_from - interval '2 days'").await;
    let missing = admin.run(&["verify", "--last", "1h"]).await;
    assert!(missing.code == 1 || missing.code == 2, "{missing:?}");
    // 2 is also the answer to an option that does not exist.
    assert!(!missing.err.contains("Usage"), "{missing:?}");
    let wrong = admin.run(&["verify", "--from", "-2h"]).await;
    assert_eq!(wrong.code, 2, "a span has two ends: {wrong:?}");
    s.end_early().await;
}

#[tokio::test]
async fn a_key_is_rotated() {
    let s = Story::today().await;
    s.execute("UPDATE api_keys SET created_on = created_on - interval '1 day'").await;
    let person = Person::editor(&s);
    let new = person.json(&["key", "rotate", "--overlap", "1h"]).await;
    let next = Person::with_key(&s, new["key"].as_str().unwrap());
    assert_eq!(next.json(&["me"]).await["teams"], person.json(&["me"]).await["teams"], "both are accepted for an hour");
    s.end().await;
}

/// The app is away while a schedule fires; afterwards the operator delivers what was left, by the queues of the local stack.
#[tokio::test]
async fn dead_letters_of_the_local_stack_are_redriven() {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    let workflow = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    let nowhere = format!("http://127.0.0.1:{}", find_kept_port());
    s.deliver_to(&nowhere).unwrap();
    s.clock_to("2026-03-02T09:20:00Z").await;
    s.deliver_to(s.url()).unwrap();
    let queue = format!("{}/123456789012/cronbox-runner-dlq", s.scheduler_url());
    let admin = Person::admin(&s).set("CRONBOX_SCHEDULER_KEY", &s.keys.scheduler);
    let listed = admin.ok(&["dlq", "ls", "--queue", &queue]).await;
    assert!(listed.contains(&workflow.to_string()) && listed.contains("2026-03-02T09:00"), "{listed}");
    let redriven = admin.ok(&["dlq", "redrive", "--queue", &queue]).await;
    assert!(redriven.contains('1'), "{redriven}");
    let again = admin.ok(&["dlq", "ls", "--queue", &queue]).await;
    assert!(!again.contains("2026-03-02T09:00"), "{again}");
    assert_eq!(s.occurrences(workflow).await.matches("fired").count(), 1);
    s.end_early().await;
}

/// What changes is a list of what happened since a place, or a stream.
#[tokio::test]
async fn what_changes_is_followed() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    // Events are written only while a client follows.
    let first = person.run(&["events", "-o", "json"]).await;
    assert_eq!((first.code, first.out.as_str()), (0, "[]\n"));
    let cursor = first.err.trim().rsplit(' ').next().unwrap().to_owned();
    person.ok(&["workflow", "create", "job", "--log", "m"]).await;
    let mut listed = Value::Null;
    for _ in 0..200 {
        listed = person.json(&["events", "--kind", "edit", "--cursor", &cursor]).await;
        if listed != json!([]) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!((&listed[0]["kind"], &listed[0]["what"]), (&json!("edit"), &json!("create")), "{listed}");
    s.end().await;
}

async fn open_stream(caller: &Api) -> Response {
    caller.request(Method::GET, "/api/v1/events").header("accept", "text/event-stream").send().await.unwrap()
}

/// A key has five streams: one less for other programs while a command follows. The place of a stream becomes free a moment after it has
/// ended, so only a refusal that lasts shows that the command has one.
#[tokio::test]
async fn a_command_follows_by_a_stream() {
    let s = Story::today().await;
    let person = Person::editor(&s);
    // With it, the command misses no edit, however late it begins.
    let page = s.editor().get("/api/v1/events").await.expect(200).json;
    let from = page["next_cursor"].as_str().unwrap();
    let mut command = person.command(&["events", "--follow", "--kind", "edit", "--cursor", from]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let editor = s.editor();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(open_stream(&editor).await);
    }
    let (began, mut refused_since) = (Instant::now(), None::<Instant>);
    while refused_since.is_none_or(|since| since.elapsed() < Duration::from_secs(2)) {
        assert!(began.elapsed() < PATIENCE, "the command opens no stream");
        let is_refused = open_stream(&editor).await.status() == 429;
        refused_since = is_refused.then(|| refused_since.unwrap_or_else(Instant::now));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    person.ok(&["workflow", "create", "job", "--log", "m"]).await;
    let line = tokio::time::timeout(PATIENCE, printed.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("edit") && line.contains("create"), "{line}");
    child.kill().await.unwrap();
    drop(others);
    s.end().await;
}
