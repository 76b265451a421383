//! Limits of a team: over each, a request is refused with the limit's name; other teams do not notice.

use std::collections::BTreeSet;

use db::Transaction;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Answer, Api, PATIENCE, Story};

use crate::tenant_isolation::{WAITING, another_team, begin_holder};

/// The body of a workflow.
fn workflow(name: &str, cron: &str) -> Value {
    json!({"name": name, "cron_schedule": cron, "action": {"type": "log", "message": "hi"}})
}

async fn set_limits(s: &Story, limits: Value) -> Answer {
    let path = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    tests::send_request(s.admin().request(reqwest::Method::PUT, &path).json(&limits)).await
}

#[tokio::test]
async fn workflows_of_a_team_are_limited() {
    let mut s = Story::with_app(|config| config.team_workflows = 1).await;
    let second = s.another_url().await;
    let editor = s.editor();
    let only = editor.post("/api/v1/workflows", &workflow("a", "0 9 * * *")).await.expect(201).id();
    editor.post("/api/v1/workflows", &workflow("b", "0 9 * * *")).await.refused(409, "limit_workflows", None);
    another_team(&s, "strangers").await.post("/api/v1/workflows", &workflow("b", "0 9 * * *")).await.expect(201);
    editor.patch(&format!("/api/v1/workflows/{only}"), &json!({"description": "x"})).await.expect(200);
    s.archive(WorkflowId(only)).await;
    editor.post("/api/v1/workflows", &workflow("b", "0 9 * * *")).await.expect(201);
    editor.post("/api/v1/workflows", &workflow("c", "0 9 * * *")).await.refused(409, "limit_workflows", None);
    // Without a restart, and on an instance that did not get the request, too.
    set_limits(&s, json!({"workflows": 2})).await.expect(200);
    let there = Api::new(&second, &s.keys.editor);
    there.post("/api/v1/workflows", &workflow("c", "0 9 * * *")).await.expect(201);
    there.post("/api/v1/workflows", &workflow("d", "0 9 * * *")).await.refused(409, "limit_workflows", None);
    editor.post("/api/v1/workflows", &workflow("d", "0 9 * * *")).await.refused(409, "limit_workflows", None);
    s.end().await;
}

/// Two edits at once must not both take the last place.
#[tokio::test]
async fn concurrent_edits_exceed_no_limit() {
    let s = Story::with_app(|config| config.team_workflows = 3).await;
    let editor = s.editor();
    let bodies: Vec<_> = (0..12).map(|i| workflow(&format!("w{i}"), "0 9 * * *")).collect();
    let answers = futures::future::join_all(bodies.iter().map(|body| editor.post("/api/v1/workflows", body))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 3, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.json["code"] == "limit_workflows").count(), 9);
    assert_eq!(s.count("SELECT count(*) FROM workflows").await, 3);
    s.end().await;
}

#[tokio::test]
async fn fires_of_a_team_are_limited() {
    let s = Story::with_app(|config| config.team_fires_per_minute = 1).await;
    let editor = s.editor();
    let each_minute = editor.post("/api/v1/workflows", &workflow("a", "* * * * *")).await.expect(201).id();
    let hourly = workflow("b", "0 * * * *");
    editor.post("/api/v1/workflows", &hourly).await.refused(409, "limit_fires_per_minute", None);
    another_team(&s, "strangers").await.post("/api/v1/workflows", &hourly).await.expect(201);
    editor
        .patch(&format!("/api/v1/schedules/{each_minute}"), &json!({"cron_schedule": "0-58 * * * *"}))
        .await
        .expect(200);
    let hourly = editor.post("/api/v1/workflows", &hourly).await.expect(201).id();
    let twice = json!({"cron_schedule": "0,30 * * * *"});
    let path = format!("/api/v1/schedules/{hourly}");
    editor.patch(&path, &twice).await.refused(409, "limit_fires_per_minute", None);
    assert_eq!(editor.get(&path).await.expect(200).json["cron_schedule"], "0 * * * *", "nothing was changed");
    set_limits(&s, json!({"fires_per_minute": 2})).await.expect(200);
    editor.patch(&path, &twice).await.expect(200);
    s.end().await;
}

/// Each of six workflows may fire each minute, but no more than two of them.
#[tokio::test]
async fn concurrent_cron_edits_exceed_no_limit() {
    let s = Story::with_app(|config| config.team_fires_per_minute = 3).await;
    let mut paths = Vec::new();
    for _ in 0..6 {
        paths.push(format!("/api/v1/schedules/{}", s.create("0 9 * * *", "UTC").await));
    }
    let (editor, each_minute) = (s.editor(), json!({"cron_schedule": "* * * * *"}));
    let answers = futures::future::join_all(paths.iter().map(|path| editor.patch(path, &each_minute))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 2, "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer.json["code"] == "limit_fires_per_minute").count(), 4);
    assert_eq!(s.count("SELECT fires_per_hour FROM team_usage").await, 124);
    s.end().await;
}

/// Asserts that the third run in a minute is refused for half a minute.
#[track_caller]
fn assert_no_start(answer: &Answer) {
    answer.refused(429, "limit_fires_per_minute", None);
    let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("retry-after"), "30");
    assert_eq!(header("ratelimit-policy"), "\"team-requested-fires\";q=2;w=60");
    assert_eq!(header("ratelimit"), "\"team-requested-fires\";r=0;t=30");
}

/// Two instances count manual runs and retries of a team together. The fires of its schedule never count.
#[tokio::test]
async fn requested_runs_of_a_team_are_limited() {
    let mut s = Story::at("2026-03-02T12:00:00Z").await;
    set_limits(&s, json!({"fires_per_minute": 2})).await.expect(200);
    let second = Api::new(&s.another_url().await, &s.keys.editor);
    let wf = s.create_with(json!({"cron_schedule": "* * * * *", "overlap_policy": "concurrent"})).await;
    let (editor, fire) = (s.editor(), format!("/api/v1/schedules/{wf}:fire"));
    let first = editor.post_empty(&fire).await.expect(202).json["run_id"].as_str().unwrap().to_owned();
    second.post_empty(&fire).await.expect(202);
    s.runs_end().await;
    for api in [&editor, &second] {
        assert_no_start(&api.post_empty(&fire).await);
        assert_no_start(&api.post_empty(&format!("/api/v1/runs/{first}:retry")).await);
    }
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 2, "nothing of a refused request stays");
    let stranger = another_team(&s, "strangers").await;
    let theirs = stranger.post("/api/v1/workflows", &workflow("a", "0 9 * * *")).await.expect(201).id();
    stranger.post_empty(&format!("/api/v1/schedules/{theirs}:fire")).await.expect(202);
    s.now_is("2026-03-02T12:01:00Z").await;
    for _ in 0..2 {
        second.post_empty(&fire).await.expect(202);
    }
    assert_no_start(&editor.post_empty(&fire).await);
    assert_eq!(s.invoke(wf, "2026-03-02T12:01:00Z").await.status, 202, "a fire of the schedule");
    set_limits(&s, json!({"fires_per_minute": 0})).await.expect(200);
    editor.post_empty(&fire).await.expect(202);
    s.end().await;
}

#[tokio::test]
async fn input_bytes_of_a_team_are_limited() {
    let s = Story::with_app(|config| config.team_input_bytes = 2_000).await;
    let editor = s.editor();
    let with_inputs = |name: &str, bytes: usize| json!({"name": name, "starting_inputs": {"a": "x".repeat(bytes)}, "action": {"type": "log", "message": "hi"}});
    let first = editor.post("/api/v1/workflows", &with_inputs("a", 1_500)).await.expect(201).id();
    editor.post("/api/v1/workflows", &with_inputs("b", 1_000)).await.refused(409, "limit_input_bytes", None);
    another_team(&s, "strangers").await.post("/api/v1/workflows", &with_inputs("b", 1_000)).await.expect(201);
    // A team above its limit may shrink.
    set_limits(&s, json!({"input_bytes": 1_000})).await.expect(200);
    let path = format!("/api/v1/workflows/{first}");
    editor.patch(&path, &json!({"starting_inputs": {"a": "x".repeat(1_400)}})).await.expect(200);
    editor.patch(&path, &json!({"starting_inputs": {"a": "x".repeat(1_450)}})).await.refused(
        409,
        "limit_input_bytes",
        None,
    );
    set_limits(&s, json!({"input_bytes": 0})).await.expect(200);
    editor.post("/api/v1/workflows", &with_inputs("b", 100_000)).await.expect(201);
    s.end().await;
}

/// An archived workflow is in no other limit, and its row stays until an admin deletes it.
#[tokio::test]
async fn archived_workflows_of_a_team_are_limited() {
    let s = Story::with_app(|config| config.team_archived_workflows = 2).await;
    let editor = s.editor();
    let create = async |name: &str| editor.post("/api/v1/workflows", &workflow(name, "0 9 * * *")).await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(create(name).await.expect(201).id());
    }
    s.archive(WorkflowId(ids[0])).await;
    s.archive(WorkflowId(ids[1])).await;
    create("d").await.refused(409, "limit_archived_workflows", None);
    another_team(&s, "strangers").await.post("/api/v1/workflows", &workflow("d", "0 9 * * *")).await.expect(201);
    // What exists may be edited, and archived.
    let path = format!("/api/v1/workflows/{}", ids[2]);
    editor.patch(&path, &json!({"starting_inputs": {"a": "x".repeat(1_000)}})).await.expect(200);
    s.archive(WorkflowId(ids[2])).await;
    for id in &ids[..2] {
        create("d").await.refused(409, "limit_archived_workflows", None);
        s.admin().delete(&format!("/api/v1/workflows/{id}")).await.expect(204);
    }
    create("d").await.expect(201);
    s.end_early().await;
}

/// A loop of creates and archives stays below the limit of inputs, and could fill the disk.
#[tokio::test]
async fn archived_bytes_of_a_team_are_limited() {
    let limits = |config: &mut app::Config| (config.team_input_bytes, config.team_archived_bytes) = (2_000, 4_000);
    let s = Story::with_app(limits).await;
    let body = |nth: usize| json!({"name": format!("w{nth}"), "starting_inputs": {"a": "x".repeat(1_500)}, "action": {"type": "log", "message": "hi"}});
    for nth in 0..3 {
        let id = s.editor().post("/api/v1/workflows", &body(nth)).await.expect(201).id();
        s.archive(WorkflowId(id)).await;
    }
    s.editor().post("/api/v1/workflows", &body(3)).await.refused(409, "limit_archived_bytes", None);
    let path = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    let shown = s.editor().get(&path).await.expect(200).json;
    assert_eq!((&shown["usage"]["workflows"], &shown["usage"]["archived_workflows"]), (&json!(0), &json!(3)));
    assert!(shown["usage"]["archived_bytes"].as_i64().unwrap() > 4_500, "{shown}");
    set_limits(&s, json!({"archived_bytes": 0})).await.expect(200);
    s.editor().post("/api/v1/workflows", &body(3)).await.expect(201);
    s.end_early().await;
}

#[tokio::test]
async fn members_read_limits_that_admins_set() {
    let s = Story::with_app(|config| config.team_workflows = 7).await;
    s.create("* * * * *", "UTC").await;
    let path = format!("/api/v1/teams/{}/limits", s.keys.team_id);
    let set = set_limits(&s, json!({"lists_in_flight": 3, "running_runs": 5})).await.expect(200).json;
    assert_eq!((&set["set"]["lists_in_flight"], &set["set"]["workflows"]), (&json!(3), &json!(null)));
    assert_eq!((&set["in_force"]["workflows"], &set["in_force"]["running_runs"]), (&json!(7), &json!(5)));
    assert_eq!((&set["usage"]["workflows"], &set["usage"]["fires_per_hour"]), (&json!(1), &json!(60)));
    assert_eq!(s.editor().get(&path).await.expect(200).json, set);
    another_team(&s, "strangers").await.get(&path).await.refused(404, "not_found", None);
    for (limit, value) in [("lists_in_flight", -1), ("running_runs", 1_000_000_000_001), ("fires_per_minute", i64::MAX)]
    {
        set_limits(&s, json!({limit: value})).await.refused(400, "invalid_field", Some(limit));
    }
    set_limits(&s, json!({"workflows": "many"})).await.refused(400, "invalid_field", Some("workflows"));
    set_limits(&s, json!({"runs": 1})).await.refused(400, "unknown_field", Some("runs"));
    let own = s.editor().request(reqwest::Method::PUT, &path).json(&json!({"workflows": 8}));
    tests::send_request(own).await.refused(403, "forbidden", None);
    let missing = s.admin().request(reqwest::Method::PUT, "/api/v1/teams/999999/limits").json(&json!({}));
    tests::send_request(missing).await.refused(404, "not_found", None);
    let audited = s.table("SELECT verb || ' ' || after FROM audit_log WHERE subject LIKE 'team:%' AND verb = 'limits'");
    assert_eq!(audited.await, r#"limits {"running_runs": 5, "lists_in_flight": 3}"#);
    s.end().await;
}

/// What a trigger counts for each edit is what the workflows add up to.
#[tokio::test]
async fn usage_follows_each_edit() {
    let s = Story::today().await;
    let edited = s.create("0 9 * * *", "UTC").await;
    s.create("5,35 9 * * *", "UTC").await;
    let counted = "SELECT workflows || ' ' || fires_per_hour || ' ' || input_bytes FROM team_usage";
    let added_up = "SELECT count(*) || ' ' || sum(fires_per_hour) || ' ' || sum(input_bytes) FROM workflows WHERE state <> 'archived'";
    let archived = "SELECT archived_workflows || ' ' || archived_bytes FROM team_usage";
    let archived_added_up =
        "SELECT count(*) || ' ' || COALESCE(sum(input_bytes), 0) FROM workflows WHERE state = 'archived'";
    let mut states = BTreeSet::from([s.table(counted).await]);
    for edit in [
        json!({"cron_schedule": "*/10 * * * *"}),
        json!({"starting_inputs": {"amount": 1_000}}),
        json!({"action": {"type": "log", "message": "more than before"}}),
        json!({"cron_schedule": "0 0 1 1 *"}),
    ] {
        s.edit(edited, edit).await;
        assert_eq!(s.table(counted).await, s.table(added_up).await);
        assert!(states.insert(s.table(counted).await), "the edit changed the usage");
    }
    s.edit(edited, json!({"description": "x"})).await;
    assert!(!states.insert(s.table(counted).await), "this one did not");
    s.archive(edited).await;
    assert_eq!(s.table(counted).await, s.table(added_up).await);
    assert_eq!(s.table(archived).await, s.table(archived_added_up).await);
    assert!(s.table(archived).await.starts_with("1 "));
    s.publish().await;
    s.admin().delete(&format!("/api/v1/workflows/{edited}")).await.expect(204);
    assert_eq!(s.table(archived).await, "0 0");
    assert_eq!(s.table(counted).await, s.table(added_up).await);
    s.end().await;
}

/// An older version writes neither of the two columns.
#[tokio::test]
async fn workflows_of_older_versions_are_counted() {
    let s = Story::today().await;
    s.create("* * * * *", "UTC").await;
    s.create("5,35 9 * * *", "UTC").await;
    let archived = s.create("* * * * *", "UTC").await;
    s.archive(archived).await;
    let usage = "SELECT workflows || ' ' || fires_per_hour || ' ' || input_bytes FROM team_usage";
    let counted = s.table(usage).await;
    assert!(counted.starts_with("2 62 "), "{counted}");
    let write_as_before = "UPDATE workflows SET fires_per_hour = NULL, input_bytes = NULL";
    s.execute(write_as_before).await;
    assert_eq!(s.table(usage).await, "2 0 0");
    let options = app::config::database_options(&s.owner_dsn(), 1);
    app::migrate_database(&options, false).await.unwrap();
    // Postgres writes a blank after each colon and comma, so the bytes may differ a little.
    assert!(s.table(usage).await.starts_with("2 62 "));
    // An instance of the older version may still write after the migration.
    s.execute(write_as_before).await;
    s.job("prune").await;
    assert!(s.table(usage).await.starts_with("2 62 "));
    s.end().await;
}

/// Keeps every list of runs waiting until it ends. No statement of the executor reads that table.
async fn lock_runs_list(s: &Story) -> Transaction {
    let mut tx = begin_holder(s).await;
    sqlx::raw_sql("LOCK TABLE deleted_workflows IN ACCESS EXCLUSIVE MODE").execute(&mut *tx).await.unwrap();
    tx
}

/// What `meanwhile` returns while a list of each of these callers waits. A list waits for two seconds at most, so if one has ended
/// before `meanwhile`, all of it is repeated.
async fn while_lists_wait<T>(s: &Story, callers: &[Api], meanwhile: impl AsyncFn() -> T) -> T {
    let (began, count) = (std::time::Instant::now(), i64::try_from(callers.len()).unwrap());
    loop {
        assert!(began.elapsed() < PATIENCE, "the lists never wait");
        let locked = lock_runs_list(s).await;
        let list = |caller: Api| tokio::spawn(async move { caller.get("/api/v1/runs").await });
        let lists: Vec<_> = callers.iter().cloned().map(list).collect();
        while s.count(WAITING).await < count && !lists.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let seen = meanwhile().await;
        let all_wait = s.count(WAITING).await == count;
        locked.rollback().await.unwrap();
        for list in lists {
            list.await.unwrap();
        }
        if all_wait {
            return seen;
        }
    }
}

/// Asserts that an answer names a limit of 1 that is reached.
#[track_caller]
fn assert_limited(answer: &Answer, code: &str, policy: &str) {
    answer.refused(429, code, None);
    let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("retry-after"), "1");
    assert_eq!(header("ratelimit-policy"), format!("\"{policy}\";q=1;qu=\"concurrent-requests\""));
    assert_eq!(header("ratelimit"), format!("\"{policy}\";r=0;t=1"));
}

/// A read that is no list, which every key may make.
async fn explain(api: &Api) -> Answer {
    api.post("/api/v1/cron:explain", &json!({"cron": "@daily"})).await
}

#[tokio::test]
async fn lists_in_flight_are_limited() {
    let mut s = Story::with_app(|config| config.team_lists_in_flight = 1).await;
    let second = s.another_url().await;
    let stranger = another_team(&s, "strangers").await;
    let waiting = [s.editor()];
    let second_list = while_lists_wait(&s, &waiting, async || {
        let answer = s.editor().get("/api/v1/backfills").await;
        stranger.get("/api/v1/backfills").await.expect(200);
        explain(&s.editor()).await.expect(200);
        answer
    });
    assert_limited(&second_list.await, "limit_lists_in_flight", "team-lists");
    s.editor().get("/api/v1/backfills").await.expect(200);
    raised_limits_hold_everywhere(&s, &second).await;
    s.end().await;
}

/// An admin lowers the limit of the second instance, which has none, and raises that of both.
async fn raised_limits_hold_everywhere(s: &Story, second: &str) {
    for (limit, is_limited) in [(1, true), (2, false)] {
        set_limits(s, json!({"lists_in_flight": limit})).await.expect(200);
        for url in [s.url(), second] {
            let api = Api::new(url, &s.keys.editor);
            let began = std::time::Instant::now();
            // A key is cached for some seconds.
            while second_list_is_limited(s, &api).await != is_limited {
                assert!(began.elapsed() < PATIENCE, "{url} does not apply the limit {limit}");
            }
        }
    }
}

/// Whether a list is refused while another one waits.
async fn second_list_is_limited(s: &Story, api: &Api) -> bool {
    let locked = lock_runs_list(s).await;
    let first = loop {
        let waiting = api.clone();
        let mut first = tokio::spawn(async move { waiting.get("/api/v1/runs").await });
        tokio::select! {
            // The place of the list before it becomes free only after its answer.
            refused = &mut first => assert_eq!(refused.unwrap().status, 429),
            () = s.until(WAITING, 1) => break first,
        }
    };
    let second = api.get("/api/v1/backfills").await.status;
    locked.rollback().await.unwrap();
    first.await.unwrap();
    second == 429
}

#[tokio::test]
async fn edits_in_flight_are_limited() {
    let s = Story::with_app(|config| config.team_edits_in_flight = 1).await;
    let (locked, other) = (s.create("0 9 * * *", "UTC").await, s.create("0 9 * * *", "UTC").await);
    let stranger = another_team(&s, "strangers").await;
    let edit = json!({"description": "x"});
    let holder = crate::tenant_isolation::lock_workflow(&s, locked).await;
    let (editor, body) = (s.editor(), edit.clone());
    let first = tokio::spawn(async move { editor.patch(&format!("/api/v1/workflows/{locked}"), &body).await });
    s.until(WAITING, 1).await;
    let second = s.editor().patch(&format!("/api/v1/workflows/{other}"), &edit).await;
    assert_limited(&second, "limit_edits_in_flight", "team-edits");
    stranger.post("/api/v1/workflows", &workflow("a", "0 9 * * *")).await.expect(201);
    s.editor().get("/api/v1/workflows").await.expect(200);
    holder.rollback().await.unwrap();
    first.await.unwrap();
    s.editor().patch(&format!("/api/v1/workflows/{other}"), &edit).await.expect(200);
    s.end().await;
}

/// A client that waits for EventBridge loads nothing.
#[tokio::test]
async fn committed_edits_free_their_place() {
    let s = Story::with_app(|config| config.team_edits_in_flight = 1).await;
    let (first, other) = (s.create("0 9 * * *", "UTC").await, s.create("0 9 * * *", "UTC").await);
    let editor = s.editor();
    let waiting = tokio::spawn(async move {
        editor.patch(&format!("/api/v1/workflows/{first}?wait=25"), &json!({"cron_schedule": "0 10 * * *"})).await
    });
    s.until("SELECT count(*) FROM workflows WHERE cron_schedule = '0 10 * * *'", 1).await;
    let path = format!("/api/v1/workflows/{other}");
    let began = std::time::Instant::now();
    // The commit is visible a moment before the place is free.
    while s.editor().patch(&path, &json!({"description": "x"})).await.status == 429 {
        assert!(began.elapsed() < PATIENCE, "the place is not freed");
    }
    assert!(!waiting.is_finished(), "it waits for the publisher");
    s.publish().await;
    waiting.await.unwrap().expect(200);
    s.end().await;
}

#[tokio::test]
async fn requests_in_flight_are_limited() {
    let s = Story::with_app(|config| (config.team_requests_in_flight, config.key_requests_in_flight) = (1, 2)).await;
    let (admin, stranger) = (s.admin(), another_team(&s, "strangers").await);
    // An admin belongs to no team, so only its key is counted.
    let waiting = [s.editor(), admin.clone(), admin.clone()];
    let more = while_lists_wait(&s, &waiting, async || {
        let of_team = explain(&s.editor()).await;
        explain(&stranger).await.expect(200);
        s.scheduler_key().post("/api/v1/cron/workflows/1:invoke", &json!({})).await.expect(400);
        (of_team, explain(&admin).await)
    });
    let (of_team, third) = more.await;
    assert_limited(&of_team, "limit_requests_in_flight", "team-requests");
    third.refused(429, "limit_requests_in_flight", None);
    assert_eq!(third.headers["ratelimit-policy"], "\"key-requests\";q=2;qu=\"concurrent-requests\"");
    explain(&s.editor()).await.expect(200);
    explain(&admin).await.expect(200);
    s.end().await;
}

/// The remaining time is known, so that a client can wait for it.
#[tokio::test]
async fn rate_limits_name_their_policy() {
    let s = Story::with_app(|config| config.key_requests_per_sec = 1).await;
    let editor = s.editor();
    let answers = futures::future::join_all((0..30).map(|_| explain(&editor))).await;
    let limited = answers.iter().find(|answer| answer.status == 429).expect("30 at once are above one a second");
    limited.refused(429, "rate_limited", None);
    assert_eq!(limited.headers["ratelimit-policy"], "\"key-requests-per-second\";q=1;w=1");
    assert_eq!(limited.headers["ratelimit"], "\"key-requests-per-second\";r=0;t=1");
    s.end().await;
}

/// Each edit stored all inputs twice, and no job removes entries.
#[tokio::test]
async fn large_edits_add_small_audit_entries() {
    let s = Story::today().await;
    let id = s.create("0 9 * * *", "UTC").await;
    for nth in 0..5_u64 {
        // Random, so that Postgres cannot compress it.
        let noise: String = (0..15_000).map(|_| format!("{:016x}", rand::random::<u64>())).collect();
        let patch = json!({"starting_inputs": {"nth": nth, "noise": noise}});
        s.editor().patch(&format!("/api/v1/workflows/{id}"), &patch).await.expect(200);
    }
    let sizes = "SELECT max(octet_length(audit_log::text))::bigint FROM audit_log";
    assert!(s.count(sizes).await < 10_000, "{} bytes", s.count(sizes).await);
    let changed = "SELECT count(*) FROM audit_log WHERE verb = 'update' AND before ? 'starting_inputs'
                    AND after -> 'starting_inputs' ? 'sha256' AND NOT after ? 'cron_schedule'";
    assert_eq!(s.count(changed).await, 5, "each names what it changed, and nothing else");
    s.end().await;
}
