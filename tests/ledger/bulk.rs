//! Bulk operations: one request for many workflows or runs, each item once.

use std::time::Duration;

use futures::future::join_all;
use ledger::bulk::{BulkCursor, PASS, Pass, advance_operations};
use ledger::requested_fires::DefaultRate;
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, PgConnection};
use tests::{Answer, Api, PATIENCE, Story, refused_action};
use tokio::task::JoinHandle;

use crate::backfills::requests::{ask, finished_backfill};
use crate::catch_up::watchdog_races::WAITING;
use crate::process::{App, idle};
use crate::steps::{fire_on_time, hourly, session_without_limits, story_without_executor};

async fn request(api: &Api, body: &Value) -> Answer {
    api.post("/api/v1/bulk", body).await
}

/// Processes all items; returns the operation as it is then.
async fn finish(s: &Story, created: &Answer) -> Value {
    s.job("bulk").await;
    let path = format!("/api/v1/bulk/{}", created.json["id"].as_str().unwrap());
    s.editor().get(&path).await.expect(200).json
}

/// One pass of the job over all teams, by an instance of its own.
async fn advance(s: &Story) -> Pass {
    let mut pass = Pass::default();
    let cursor = BulkCursor::default();
    advance_operations(&s.pool, &cursor, PASS, DefaultRate(0), &s.clock, &mut pass).await.unwrap();
    pass
}

async fn items(s: &Story, created: &Answer, query: &str) -> Vec<Value> {
    let path = format!("/api/v1/bulk/{}/items?limit=200{query}", created.json["id"].as_str().unwrap());
    s.editor().get(&path).await.expect(200).json["items"].as_array().unwrap().clone()
}

/// An editor of another team.
async fn another_team(s: &Story) -> Api {
    let team = s.admin().post("/api/v1/teams", &json!({"name": "strangers"})).await.expect(201).id();
    let body = json!({"name": "o", "kind": "team", "team_id": team, "role": "editor"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    Api::new(s.url(), key["key"].as_str().unwrap())
}

#[tokio::test]
async fn many_workflows_are_paused_by_one_request() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let mut ids = Vec::new();
    for nth in 0..5 {
        let fields = json!({"name": format!("report {nth}"), "cron_schedule": "0 9 * * *", "timezone": "UTC"});
        ids.push(s.create_with(fields).await);
    }
    s.create_with(json!({"name": "payroll", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    s.pause(ids[4]).await;
    let body =
        json!({"verb": "pause", "filter": {"q": "REPORT"}, "reason": "holiday", "until": "2026-03-09T00:00:00Z"});
    let dry = s.editor().post("/api/v1/bulk?dry_run=true", &body).await.expect(200).json;
    let would = &dry["changes"][0]["after"];
    assert_eq!((&would["total"], &would["sample"][0]), (&json!(5), &json!(format!("workflow:{}", ids[0]))));
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 0);

    let created = request(&s.editor(), &body).await.expect(202);
    assert_eq!(
        (&created.json["state"], &created.json["total"], &created.json["processed"]),
        (&json!("running"), &json!(5), &json!(0))
    );
    let done = finish(&s, &created).await;
    assert_eq!((&done["state"], &done["processed"], &done["refused"]), (&json!("finished"), &json!(5), &json!(0)));
    for (id, reason) in ids.iter().zip(["holiday", "holiday", "holiday", "holiday", "test"]) {
        let workflow = s.workflow(*id).await;
        assert_eq!((&workflow["state"], &workflow["pause_reason"]), (&json!("paused"), &json!(reason)), "{id}");
    }
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE state = 'active'").await, 1, "payroll is not a report");
    // Each edit is in the audit log under the actor of the request, and published like any other.
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'pause' AND after ->> 'pause_reason' = 'holiday'";
    assert_eq!(s.count(audited).await, 4, "the last one had been paused before");
    s.publish().await;
    let again = request(&s.editor(), &json!({"verb": "resume", "filter": {"workflow_ids": [ids[0].0, ids[1].0]}}))
        .await
        .expect(202);
    finish(&s, &again).await;
    let twice =
        request(&s.editor(), &json!({"verb": "resume", "filter": {"workflow_ids": [ids[0].0]}})).await.expect(202);
    finish(&s, &twice).await;
    assert_eq!(items(&s, &twice, "").await[0]["outcome"], "unchanged");
    s.publish().await;
    s.end().await;
}

/// The operation had to wait until its pause was over. The time that is due and not decided yet is caught up.
#[tokio::test]
async fn a_pause_that_is_over_changes_nothing() {
    let s = story_without_executor("2026-03-02T08:55:00Z").await;
    let wf = hourly(&s, json!({"catch_up_policy": "run_all"})).await;
    let until = json!({"verb": "pause", "filter": {"workflow_ids": [wf.0]}, "until": "2026-03-02T09:00:00Z"});
    let created = request(&s.editor(), &until).await.expect(202);
    s.now_is("2026-03-02T09:01:00Z").await;
    assert_eq!(finish(&s, &created).await["state"], "finished");
    assert_eq!(items(&s, &created, "").await[0]["outcome"], "unchanged");
    assert_eq!(s.count("SELECT count(*) FROM schedule_versions").await, 1);
    s.now_is("2026-03-02T09:06:00Z").await;
    s.job("watchdog").await;
    assert_eq!(s.occurrences(wf).await, "2026-03-02T09:00Z caught_up");
    s.end_early().await;
}

#[tokio::test]
async fn all_that_failed_is_repeated_once() {
    let s = Story::with_app(|config| config.executor_slots = 0).await;
    let workflow = s.create_with(json!({"overlap_policy": "concurrent", "max_concurrent": 50})).await;
    let archived = s.create_with(json!({"name": "archived"})).await;
    for (id, count) in [(workflow, 3), (archived, 1)] {
        for _ in 0..count {
            s.editor().post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
        }
    }
    let cancelled = request(&s.editor(), &json!({"verb": "cancel"})).await.expect(202);
    assert_eq!(finish(&s, &cancelled).await["refused"], 0);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'cancelled'").await, 4);
    s.archive(archived).await;
    let body = json!({"verb": "retry", "filter": {"run_states": ["cancelled"]}});
    let retried = request(&s.editor(), &body).await.expect(202);
    let done = finish(&s, &retried).await;
    assert_eq!((&done["processed"], &done["refused"]), (&json!(4), &json!(1)), "{done}");
    let refused = items(&s, &retried, "&outcome=refused").await;
    assert_eq!((&refused[0]["workflow_id"], &refused[0]["code"]), (&json!(archived.0), &json!("archived")));
    for item in items(&s, &retried, "&outcome=done").await {
        let run = s.editor().get(&format!("/api/v1/runs/{}", item["new_run_id"].as_str().unwrap())).await.expect(200);
        assert_eq!((&run.json["retry_of"], &run.json["trigger"]), (&item["run_id"], &json!("retry")));
    }
    // What is being repeated is not repeated again.
    let again = request(&s.editor(), &body).await.expect(202);
    assert_eq!(finish(&s, &again).await["refused"], 4);
    let codes: Vec<Value> = items(&s, &again, "").await.iter().map(|item| item["code"].clone()).collect();
    assert_eq!(codes.iter().filter(|code| *code == "run_live").count(), 3, "{codes:?}");
    s.publish().await;
    s.end_early().await;
}

/// A workflow whose runs fail, however often they are repeated.
async fn create_failing(s: &Story, name: &str) -> WorkflowId {
    let fields = json!({"name": name, "cron_schedule": "0 9 * * *", "timezone": "UTC", "action": refused_action(), "max_attempts": 1});
    s.create_with(fields).await
}

async fn mend(s: &Story, workflow: WorkflowId) {
    s.edit(workflow, json!({"action": {"type": "log", "url": null, "method": null, "message": "mended"}})).await;
}

async fn fire_now(s: &Story, workflow: WorkflowId) {
    s.editor().post(&format!("/api/v1/schedules/{workflow}:fire"), &json!({})).await.expect(202);
    s.runs_end().await;
}

/// A field of each item of an operation.
async fn of_items(s: &Story, created: &Answer, field: &str) -> Vec<Value> {
    items(s, created, "").await.iter().map(|item| item[field].clone()).collect()
}

/// A run that failed stays failed after its retry has succeeded, so the next shift finds it when it repeats what failed.
#[tokio::test]
async fn work_that_is_done_is_not_repeated() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (scheduled, manual) = (create_failing(&s, "scheduled").await, create_failing(&s, "manual").await);
    s.now_is("2026-03-02T09:00:05Z").await;
    assert_eq!(s.invoke(scheduled, "2026-03-02T09:00:00Z").await.status, 202);
    s.runs_end().await;
    fire_now(&s, manual).await;
    let body = json!({"verb": "retry", "filter": {"run_states": ["failed", "timed_out", "abandoned"]}});
    let in_vain = request(&s.editor(), &body).await.expect(202);
    assert_eq!(finish(&s, &in_vain).await["refused"], 0);
    s.runs_end().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'failed'").await, 4);

    mend(&s, scheduled).await;
    mend(&s, manual).await;
    let retried = request(&s.editor(), &body).await.expect(202);
    assert_eq!(retried.json["total"], 2, "one of the due time, and one of the manual run");
    assert_eq!(of_items(&s, &retried, "run_id").await, of_items(&s, &in_vain, "new_run_id").await, "the newest ones");
    assert_eq!(finish(&s, &retried).await["refused"], 0);
    s.runs_end().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'succeeded'").await, 2);

    request(&s.editor(), &body).await.refused(409, "nothing_selected", None);
    let failed = of_items(&s, &in_vain, "run_id").await;
    let by_ids = json!({"verb": "retry", "filter": {"run_ids": failed}});
    request(&s.editor(), &by_ids).await.refused(409, "nothing_selected", None);
    // The caller of a single retry names the run.
    s.editor().post_empty(&format!("/api/v1/runs/{}:retry", failed[0].as_str().unwrap())).await.expect(202);
    s.runs_end().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'succeeded'").await, 3);
    s.end_early().await;
}

/// The span of an outage also has runs that succeeded: payroll must not be sent twice.
#[tokio::test]
async fn retries_without_states_repeat_only_failures() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (failing, fine) = (create_failing(&s, "failing").await, create_failing(&s, "fine").await);
    mend(&s, fine).await;
    fire_now(&s, failing).await;
    fire_now(&s, fine).await;
    let run_of = async |workflow| s.runs_of(workflow).await[0]["id"].as_str().unwrap().to_owned();
    let (failed, succeeded) = (run_of(failing).await, run_of(fine).await);
    let selected = async |filter: Value| {
        let body = json!({"verb": "retry", "filter": filter});
        let dry = s.editor().post("/api/v1/bulk?dry_run=true", &body).await.expect(200).json;
        dry["changes"][0]["after"]["sample"].clone()
    };
    let since = "2026-03-02T08:00:00Z";
    for filter in [json!({"from": since}), json!({"workflow_ids": [failing.0, fine.0]}), json!({})] {
        assert_eq!(selected(filter.clone()).await, json!([format!("run:{failed}")]), "{filter}");
    }
    for filter in [json!({"from": since, "run_states": ["succeeded"]}), json!({"run_ids": [succeeded]})] {
        assert_eq!(selected(filter.clone()).await, json!([format!("run:{succeeded}")]), "{filter}");
    }
    s.end_early().await;
}

async fn make_fail(s: &Story, workflow: WorkflowId) {
    let mut action = refused_action();
    action["message"] = Value::Null;
    s.edit(workflow, json!({ "action": action })).await;
}

/// A deliberate backfill repeats work that was done, so the success before it does not end the retry of its runs.
#[tokio::test]
async fn failed_backfills_of_done_times_are_repeated() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let workflow = create_failing(&s, "rates").await;
    mend(&s, workflow).await;
    s.now_is("2026-03-02T09:00:05Z").await;
    assert_eq!(s.invoke(workflow, "2026-03-02T09:00:00Z").await.status, 202);
    s.runs_end().await;
    make_fail(&s, workflow).await;
    s.now_is("2026-03-02T12:10:00Z").await;
    let span = json!({"start": "2026-03-02T09:00:00Z", "end": "2026-03-02T12:00:00Z", "only": "all"});
    let backfill = ask(&s, workflow, &span).await.expect(202).json;
    finished_backfill(&s, &backfill).await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE trigger = 'backfill' AND state = 'failed'").await, 1);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE trigger = 'schedule' AND state = 'succeeded'").await, 1);

    mend(&s, workflow).await;
    let body = json!({"verb": "retry", "filter": {"run_states": ["failed"]}});
    let retried = request(&s.editor(), &body).await.expect(202);
    assert_eq!(retried.json["total"], 1);
    assert_eq!(finish(&s, &retried).await["refused"], 0);
    s.runs_end().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'succeeded'").await, 2);
    request(&s.editor(), &body).await.refused(409, "nothing_selected", None);
    s.end_early().await;
}

/// The filter says which runs to repeat, and not which ones prove that their work is done.
#[tokio::test]
async fn a_success_before_the_filter_counts() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let workflow = create_failing(&s, "manual").await;
    fire_now(&s, workflow).await;
    let retry = format!("/api/v1/runs/{}:retry", s.runs_of(workflow).await[0]["id"].as_str().unwrap());
    mend(&s, workflow).await;
    s.now_is("2026-03-02T09:00:00Z").await;
    s.editor().post_empty(&retry).await.expect(202);
    s.runs_end().await;
    make_fail(&s, workflow).await;
    s.now_is("2026-03-02T11:00:00Z").await;
    s.editor().post_empty(&retry).await.expect(202);
    s.runs_end().await;
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'failed'").await, 2);
    let filter = json!({"run_states": ["failed"], "from": "2026-03-02T10:00:00Z"});
    let since = json!({"verb": "retry", "filter": filter});
    request(&s.editor(), &since).await.refused(409, "nothing_selected", None);
    s.end_early().await;
}

/// Two operations select the same runs, as a double click does; the second begins when the runs of the first have ended.
#[tokio::test]
async fn a_second_operation_repeats_no_work() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let (mended, failing) = (create_failing(&s, "mended").await, create_failing(&s, "failing").await);
    fire_now(&s, mended).await;
    fire_now(&s, failing).await;
    mend(&s, mended).await;
    let body = json!({"verb": "retry", "filter": {"run_states": ["failed"]}});
    let first = request(&s.editor(), &body).await.expect(202);
    let second = request(&s.editor(), &body).await.expect(202);
    assert_eq!((&first.json["total"], &second.json["total"]), (&json!(2), &json!(2)));
    assert_eq!(finish(&s, &first).await["refused"], 0);
    s.runs_end().await;
    let done = finish(&s, &second).await;
    assert_eq!((&done["state"], &done["refused"]), (&json!("finished"), &json!(2)));
    assert_eq!(of_items(&s, &second, "code").await, ["already_succeeded", "already_repeated"]);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 4, "each run was repeated once");
    s.end_early().await;
}

/// A filter is applied when the operation is created, which is later than its caller has read how many it selects.
#[tokio::test]
async fn a_changed_selection_is_refused() {
    let s = Story::today().await;
    for name in ["test a", "test b"] {
        s.create_with(json!({"name": name})).await;
    }
    let body = |total: i64| json!({"verb": "archive", "filter": {"q": "test"}, "expected_total": total});
    let dry = s.editor().post("/api/v1/bulk?dry_run=true", &body(2)).await.expect(200).json;
    assert_eq!(dry["changes"][0]["after"]["total"], 2);
    s.create_with(json!({"name": "payroll", "description": "not in test mode"})).await;
    for path in ["/api/v1/bulk", "/api/v1/bulk?dry_run=true"] {
        s.editor().post(path, &body(2)).await.refused(409, "selection_changed", None);
    }
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 0);
    let created = request(&s.editor(), &body(3)).await.expect(202);
    assert_eq!(finish(&s, &created).await["processed"], 3);
    s.end_early().await;
}

/// A workflow that is paused until a day must be resumed on that day, whatever else is paused meanwhile.
#[tokio::test]
async fn a_pause_of_many_replaces_no_pause() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    let paused = s.create_with(json!({"name": "paused", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    s.create_with(json!({"name": "active", "cron_schedule": "0 9 * * *", "timezone": "UTC"})).await;
    let own = json!({"reason": "holiday", "until": "2026-12-24T06:00:00Z"});
    s.editor().post(&format!("/api/v1/workflows/{paused}:pause"), &own).await.expect(200);
    let mut body = json!({"verb": "pause", "reason": "incident"});
    let created = request(&s.editor(), &body).await.expect(202);
    finish(&s, &created).await;
    assert_eq!(of_items(&s, &created, "outcome").await, ["unchanged", "done"]);
    let kept = s.workflow(paused).await;
    assert_eq!((&kept["pause_reason"], &kept["pause_until"]), (&own["reason"], &own["until"]));

    body["replace_pause"] = json!(true);
    let replaced = request(&s.editor(), &body).await.expect(202);
    finish(&s, &replaced).await;
    let workflow = s.workflow(paused).await;
    assert_eq!((&workflow["pause_reason"], &workflow["pause_until"]), (&json!("incident"), &Value::Null));
    body["verb"] = json!("resume");
    body["reason"] = Value::Null;
    request(&s.editor(), &body).await.refused(400, "invalid_field", Some("replace_pause"));
    s.end_early().await;
}

/// As a cancellation of one run does, without a turn of the job `queue`.
#[tokio::test]
async fn bulk_cancels_give_slots_to_waiting_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = hourly(&s, json!({"overlap_policy": "queue"})).await;
    for time in ["2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z"] {
        assert_eq!(fire_on_time(&s, workflow, time).await, "accepted");
    }
    let newest_first: Vec<Value> = s.runs_of(workflow).await.iter().map(|run| run["id"].clone()).collect();
    let body = json!({"verb": "cancel", "filter": {"run_ids": [newest_first[2]]}});
    let one = request(&s.editor(), &body).await.expect(202);
    finish(&s, &one).await;
    assert_eq!(
        s.runs(workflow).await,
        "2026-03-02T09:00Z schedule cancelled\n2026-03-02T10:00Z schedule accepted\n2026-03-02T11:00Z schedule queued"
    );
    // A run that waits is cancelled before the run whose slot it would get.
    let others = request(&s.editor(), &json!({"verb": "cancel"})).await.expect(202);
    finish(&s, &others).await;
    assert_eq!(of_items(&s, &others, "run_id").await, newest_first[..2]);
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'cancelled'").await, 3);
    s.end_early().await;
}

/// A run that waited had no slot. A check for the next run would read all others that wait, for each of them.
#[tokio::test]
async fn cancels_of_waiting_runs_check_no_others() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = hourly(&s, json!({"overlap_policy": "queue"})).await;
    for time in ["2026-03-02T09:00:00Z", "2026-03-02T10:00:00Z", "2026-03-02T11:00:00Z"] {
        assert_eq!(fire_on_time(&s, workflow, time).await, "accepted");
    }
    let waiting = json!({"verb": "cancel", "filter": {"run_states": ["queued"]}});
    for (body, cancelled, advanced) in [(waiting, 2, 0), (json!({"verb": "cancel"}), 1, 1)] {
        assert_eq!(request(&s.editor(), &body).await.expect(202).json["total"], cancelled);
        let pass = advance(&s).await;
        assert_eq!((pass.runs, pass.advanced), (cancelled, advanced));
    }
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state = 'cancelled'").await, 3);
    s.end_early().await;
}

/// As a resume of one workflow does, without a turn of the job `queue`.
#[tokio::test]
async fn bulk_resumes_give_slots_to_waiting_runs() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    let workflow = hourly(&s, json!({})).await;
    assert_eq!(fire_on_time(&s, workflow, "2026-03-02T09:00:00Z").await, "accepted");
    let paused = request(&s.editor(), &json!({"verb": "pause"})).await.expect(202);
    finish(&s, &paused).await;
    s.job("queue").await;
    assert_eq!(s.runs(workflow).await, "2026-03-02T09:00Z schedule queued");
    request(&s.editor(), &json!({"verb": "resume"})).await.expect(202);
    let pass = advance(&s).await;
    assert_eq!((pass.edits, pass.runs), (1, 1), "it notifies the publisher and the executor");
    assert_eq!(s.runs(workflow).await, "2026-03-02T09:00Z schedule accepted");
    s.end_early().await;
}

/// More runs than an operation may have, which wait for a slot.
const TOO_MANY_QUEUED: &str = "INSERT INTO runs (id, workflow_id, team_id, trigger, state, run_after, created_on)
    SELECT gen_random_uuid(), id, team_id, 'manual', 'queued', cronbox_now(), cronbox_now()
      FROM workflows, generate_series(1, 100001)";

const REFUSE_ITEMS: &str =
    "CREATE FUNCTION refuse_items() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'an item is written'; END $$;
     CREATE TRIGGER refuse_items BEFORE INSERT ON bulk_items FOR EACH STATEMENT EXECUTE FUNCTION refuse_items()";

/// A selection of 100,000 that is written and taken back costs the disk as much as one that stays.
#[tokio::test]
async fn refused_requests_and_dry_runs_write_no_items() {
    let s = story_without_executor("2026-03-02T08:30:00Z").await;
    s.create_with(json!({"name": "report"})).await;
    s.execute(REFUSE_ITEMS).await;
    let pause = |total: i64| json!({"verb": "pause", "expected_total": total});
    request(&s.editor(), &pause(2)).await.refused(409, "selection_changed", None);
    let dry = s.editor().post("/api/v1/bulk?dry_run=true", &pause(1)).await.expect(200).json;
    assert_eq!(dry["changes"][0]["after"]["total"], 1);
    s.execute_long(TOO_MANY_QUEUED).await;
    request(&s.editor(), &json!({"verb": "cancel"})).await.refused(400, "invalid_field", Some("filter"));
    s.execute(
        "INSERT INTO bulk_operations (id, team_id, verb, total, actor, created_on)
         SELECT gen_random_uuid(), team_id, 'pause', 1, 'test', cronbox_now() FROM workflows, generate_series(1, 10)",
    )
    .await;
    request(&s.editor(), &pause(1)).await.refused(409, "bulk_running", None);
    s.end_early().await;
}

/// Each of them selects before it writes, so without a line they would count the same operations.
#[tokio::test]
async fn requests_at_once_keep_to_the_limit() {
    let s = Story::today().await;
    s.create_with(json!({"name": "report"})).await;
    let (api, body) = (s.editor(), json!({"verb": "pause"}));
    let answers = join_all((0..16).map(|_| request(&api, &body))).await;
    let accepted = answers.iter().filter(|answer| answer.status == 202).count();
    let refused = answers.iter().filter(|answer| answer.json["code"] == "bulk_running").count();
    assert_eq!((accepted, refused), (10, 6));
    s.end_early().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let s = Story::today().await;
    s.create_with(json!({})).await;
    let refused = async |body: Value, code: &str, field: Option<&str>| {
        let answer = request(&s.editor(), &body).await;
        answer.refused(if field.is_some() { 400 } else { 409 }, code, field);
    };
    refused(json!({"verb": "forget"}), "invalid_field", Some("verb")).await;
    refused(json!({"verb": "pause", "filter": {"run_states": ["failed"]}}), "invalid_field", Some("filter.run_states"))
        .await;
    refused(json!({"verb": "retry", "filter": {"q": "x"}}), "invalid_field", Some("filter.q")).await;
    // A program fills them from a variable that is not set.
    for verb in ["cancel", "retry"] {
        let body = json!({"verb": verb, "filter": {"run_states": []}});
        refused(body, "invalid_field", Some("filter.run_states")).await;
    }
    for q in ["", " "] {
        refused(json!({"verb": "archive", "filter": {"q": q}}), "invalid_field", Some("filter.q")).await;
    }
    refused(json!({"verb": "fire", "filter": {"workflow_ids": []}}), "nothing_selected", None).await;
    refused(json!({"verb": "cancel", "filter": {"run_ids": []}}), "nothing_selected", None).await;
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations").await, 0);
    refused(json!({"verb": "resume", "reason": "x"}), "invalid_field", Some("reason")).await;
    refused(json!({"verb": "pause", "until": "2020-01-01T00:00:00Z"}), "invalid_field", Some("until")).await;
    refused(
        json!({"verb": "fire", "filter": {"workflow_ids": vec![1; 1_001]}}),
        "invalid_field",
        Some("filter.workflow_ids"),
    )
    .await;
    refused(json!({"verb": "fire", "filter": {"workflow_ids": [999_999]}}), "nothing_selected", None).await;
    let foreign = request(&s.admin(), &json!({"verb": "fire", "team_id": 987_654})).await;
    foreign.refused(400, "unknown_team", Some("team_id"));
    let created = request(&s.editor(), &json!({"verb": "pause"})).await.expect(202);
    let path = format!("/api/v1/bulk/{}", created.json["id"].as_str().unwrap());
    let cancelled = s.editor().post_empty(&format!("{path}:cancel")).await.expect(200).json;
    assert_eq!((&cancelled["state"], &cancelled["processed"]), (&json!("cancelled"), &json!(0)));
    assert_eq!(finish(&s, &created).await["processed"], 0, "nothing more is done");
    assert_eq!(s.editor().post_empty(&format!("{path}:cancel")).await.expect(200).json, cancelled);
    let done = request(&s.editor(), &json!({"verb": "pause"})).await.expect(202);
    finish(&s, &done).await;
    let path = format!("/api/v1/bulk/{}:cancel", done.json["id"].as_str().unwrap());
    s.editor().post_empty(&path).await.refused(409, "bulk_ended", None);
    s.publish().await;
    s.end().await;
}

/// An operation of one team reaches no workflow of another one, even by its id, and does not delay its operations. Two copies of
/// the job at once process each item once.
#[tokio::test]
async fn teams_and_copies_of_the_job_share_nothing() {
    let s = Story::today().await;
    let stranger = another_team(&s).await;
    let own = s.create_with(json!({"name": "own"})).await;
    let by_id = json!({"verb": "pause", "filter": {"workflow_ids": [own.0]}});
    request(&stranger, &by_id).await.refused(409, "nothing_selected", None);
    for nth in 0..150 {
        let body = json!({"name": format!("theirs {nth}"), "action": {"type": "log", "message": "m"}});
        stranger.post("/api/v1/workflows", &body).await.expect(201);
    }
    let mut theirs = Vec::new();
    for nth in 0..11 {
        let answer = request(&stranger, &json!({"verb": "pause", "reason": nth.to_string()})).await;
        if nth == 10 {
            answer.refused(409, "bulk_running", None);
        } else {
            theirs.push(answer.expect(202).json["id"].clone());
        }
    }
    let path = format!("/api/v1/bulk/{}", theirs[0].as_str().unwrap());
    for path in [path.clone(), format!("{path}/items")] {
        s.editor().get(&path).await.refused(404, "not_found", None);
    }
    s.editor().post_empty(&format!("{path}:cancel")).await.refused(404, "not_found", None);
    let ours = request(&s.editor(), &by_id).await.expect(202);
    let (one, two) = tokio::join!(advance(&s), advance(&s));
    // Of a team only the oldest operation, and in each copy of the job another one at most.
    assert!((51..=101).contains(&(one.processed + two.processed)), "{one:?} {two:?}");
    let path = format!("/api/v1/bulk/{}", ours.json["id"].as_str().unwrap());
    assert_eq!(s.editor().get(&path).await.expect(200).json["state"], "finished", "the first pass has reached it");
    assert_eq!(
        s.count("SELECT sum(processed)::bigint FROM bulk_operations").await,
        i64::try_from(one.processed + two.processed).unwrap()
    );
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'pause' AND subject LIKE 'workflow:%'";
    assert_eq!(s.count(audited).await, i64::try_from(one.edits + two.edits).unwrap(), "each once");
    s.end_early().await;
}

/// The time of a pass is over after each item, so the next pass continues behind the team, which has another item.
#[tokio::test]
async fn a_cut_pass_comes_to_each_team() {
    let s = Story::today().await;
    for api in [s.editor(), another_team(&s).await] {
        for name in ["a", "b"] {
            let body = json!({"name": name, "action": {"type": "log", "message": "m"}});
            api.post("/api/v1/workflows", &body).await.expect(201);
        }
        request(&api, &json!({"verb": "pause"})).await.expect(202);
    }
    let cursor = BulkCursor::default();
    let pass = async |limit| {
        let mut pass = Pass::default();
        advance_operations(&s.pool, &cursor, limit, DefaultRate(0), &s.clock, &mut pass).await.unwrap();
        (pass.processed, pass.has_more)
    };
    for teams in 1..=2 {
        assert_eq!(pass(Duration::ZERO).await, (1, true));
        assert_eq!(s.count("SELECT count(*) FROM bulk_operations WHERE processed > 0").await, teams);
    }
    assert_eq!(pass(PASS).await, (0, true), "no team is left behind the cursor, but those before it");
    assert_eq!(pass(PASS).await, (2, false));
    s.end_early().await;
}

const FAIL_AT_THE_SECOND: &str = "CREATE FUNCTION fail_item() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = '53100'; END $$;
     CREATE TRIGGER fail_item BEFORE UPDATE ON bulk_items FOR EACH ROW WHEN (NEW.nth = 2) EXECUTE FUNCTION fail_item()";

/// What the items before a failure committed must be published, and the job must know it.
#[tokio::test]
async fn failed_passes_count_their_items() {
    let s = Story::today().await;
    for name in ["a", "b"] {
        s.create_with(json!({"name": name})).await;
    }
    request(&s.editor(), &json!({"verb": "pause"})).await.expect(202);
    s.execute(FAIL_AT_THE_SECOND).await;
    let (cursor, mut pass) = (BulkCursor::default(), Pass::default());
    let failed = advance_operations(&s.pool, &cursor, PASS, DefaultRate(0), &s.clock, &mut pass).await;
    assert!(failed.is_err());
    assert_eq!((pass.processed, pass.edits), (1, 1));
    s.end_early().await;
}

/// A turn of the job that applies a verb to two workflows, and fails at the second one.
async fn fail_at_the_second(s: &Story, verb: &str) {
    request(&s.editor(), &json!({"verb": verb})).await.expect(202);
    s.execute(FAIL_AT_THE_SECOND).await;
    let failed = s.try_job("bulk").await.unwrap_err();
    assert!(format!("{failed:#}").contains("the disk is full"), "{failed:#}");
    assert_eq!(s.count("SELECT processed::bigint FROM bulk_operations").await, 1);
    s.execute("DROP TRIGGER fail_item ON bulk_items").await;
}

/// The run of the item before the failure does not wait for the next poll of its executor.
#[tokio::test]
async fn failed_turns_wake_the_executor() {
    // No poll comes within the test.
    let s = Story::with_app(|config| config.executor_poll_ms = 3_600_000).await;
    for name in ["a", "b"] {
        s.create_with(json!({"name": name})).await;
    }
    fail_at_the_second(&s, "fire").await;
    let succeeded = "SELECT count(*) FROM runs WHERE state = 'succeeded'";
    s.until(succeeded, 1).await;
    // The next turn, which may be one of another instance, goes on with the second item.
    s.job("bulk").await;
    s.until(succeeded, 2).await;
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations WHERE state = 'finished' AND refused = 0").await, 1);
    s.end().await;
}

/// The next notification of an edit to the publisher.
async fn next_notification(listener: &mut PgListener) {
    let notification = tokio::time::timeout(PATIENCE, listener.recv()).await.expect("a notification").unwrap();
    assert_eq!(notification.channel(), "cronbox_outbox");
}

/// The edit of the item before the failure does not wait for the next poll of the publisher.
#[tokio::test]
async fn failed_turns_notify_the_publisher() {
    let s = Story::today().await;
    let mut listener = PgListener::connect(&s.dsn()).await.unwrap();
    listener.listen("cronbox_outbox").await.unwrap();
    for name in ["a", "b"] {
        s.create_with(json!({"name": name})).await;
        // Each is notified once, so none is on its way when the job begins.
        next_notification(&mut listener).await;
    }
    fail_at_the_second(&s, "pause").await;
    next_notification(&mut listener).await;
    s.job("bulk").await;
    next_notification(&mut listener).await;
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE state = 'paused'").await, 2);
    s.end().await;
}

/// A request with this reason waits in its transaction, after its turn has begun and before its operation is written.
const WAIT_IN_THE_REQUEST: &str =
    "CREATE FUNCTION wait_in_the_request() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
     CREATE TRIGGER wait_in_the_request BEFORE INSERT ON bulk_operations
         FOR EACH ROW WHEN (NEW.reason = 'waits') EXECUTE FUNCTION wait_in_the_request()";

/// A request to pause the workflows of the story's team.
fn pause_of_team(s: &Story, reason: &str) -> Value {
    json!({"verb": "pause", "team_id": s.keys.team_id, "reason": reason, "replace_pause": true})
}

/// Sends a request that waits until the session is closed.
async fn begin_waiting(s: &Story, api: Api) -> (PgConnection, JoinHandle<Answer>) {
    let mut holder = session_without_limits(s).await;
    sqlx::raw_sql("SELECT pg_advisory_lock(1)").execute(&mut holder).await.unwrap();
    let body = pause_of_team(s, "waits");
    let waiting = tokio::spawn(async move { request(&api, &body).await });
    s.until(WAITING, 1).await;
    (holder, waiting)
}

/// An admin stops what a team floods: its request for a team waits in another line than those of the team, and is in none of the team's
/// limits of requests in progress. It takes no place of the team, either.
#[tokio::test]
async fn requests_of_admins_and_teams_wait_apart() {
    let s = Story::with_app(|config| (config.team_edits_in_flight, config.edit_lock_timeout_ms) = (1, 600_000)).await;
    s.create_with(json!({"name": "report"})).await;
    s.execute(WAIT_IN_THE_REQUEST).await;
    let body = pause_of_team(&s, "at once");
    for (waits, other) in [(s.editor(), s.admin()), (s.admin(), s.editor())] {
        let (holder, waiting) = begin_waiting(&s, waits).await;
        request(&other, &body).await.expect(202);
        assert!(!waiting.is_finished(), "the answer came while the first request waited");
        holder.close().await.unwrap();
        waiting.await.unwrap().expect(202);
    }
    let (holder, waiting) = begin_waiting(&s, s.editor()).await;
    request(&s.editor(), &body).await.refused(429, "limit_edits_in_flight", None);
    holder.close().await.unwrap();
    waiting.await.unwrap().expect(202);
    assert_eq!(s.count("SELECT count(*) FROM bulk_operations WHERE state = 'running'").await, 5);
    s.end_early().await;
}

/// The operations of a team are processed in the order of their requests: that of an admin neither overtakes those of the team nor starves
/// behind later ones.
#[tokio::test]
async fn operations_of_admins_keep_their_place() {
    let s = Story::at("2026-03-02T08:00:00Z").await;
    for name in ["a", "b"] {
        s.create_with(json!({"name": name})).await;
    }
    for (nth, api) in [s.editor(), s.admin(), s.editor()].iter().enumerate() {
        // The ids of operations begin with their time.
        s.now_is(&format!("2026-03-02T08:00:0{nth}Z")).await;
        request(api, &pause_of_team(&s, &format!("request {nth}"))).await.expect(202);
    }
    for processed in ["1 0 0", "2 0 0", "2 1 0", "2 2 0", "2 2 1", "2 2 2"] {
        // A pass without time processes one item.
        let (cursor, mut pass) = (BulkCursor::default(), Pass::default());
        advance_operations(&s.pool, &cursor, Duration::ZERO, DefaultRate(0), &s.clock, &mut pass).await.unwrap();
        assert_eq!(
            s.table("SELECT string_agg(processed::text, ' ' ORDER BY id) FROM bulk_operations").await,
            processed
        );
    }
    let by_who_requested = "SELECT count(*) FROM audit_log a JOIN bulk_operations o ON o.actor = a.actor AND o.reason = a.after ->> 'pause_reason'
                             WHERE a.verb = 'pause'";
    assert_eq!(s.count(by_who_requested).await, 6);
    s.end_early().await;
}

/// The ten operations of a team are those of its workflows, so that of an admin is one of them. The admin can end another one for it.
#[tokio::test]
async fn operations_of_admins_count_for_their_team() {
    let s = Story::today().await;
    s.create_with(json!({"name": "report"})).await;
    let body = pause_of_team(&s, "incident");
    let first = request(&s.editor(), &body).await.expect(202);
    for _ in 1..10 {
        request(&s.admin(), &body).await.expect(202);
    }
    for api in [s.editor(), s.admin()] {
        request(&api, &body).await.refused(409, "bulk_running", None);
    }
    let path = format!("/api/v1/bulk/{}:cancel", first.json["id"].as_str().unwrap());
    assert_eq!(s.admin().post_empty(&path).await.expect(200).json["state"], "cancelled");
    request(&s.admin(), &body).await.expect(202);
    request(&s.editor(), &body).await.refused(409, "bulk_running", None);
    // Another team is not concerned.
    let theirs = another_team(&s).await;
    theirs
        .post("/api/v1/workflows", &json!({"name": "a", "action": {"type": "log", "message": "m"}}))
        .await
        .expect(201);
    request(&theirs, &json!({"verb": "pause"})).await.expect(202);
    s.end_early().await;
}

/// 2,000 workflows; the instance is killed when some of them are processed, and the next one goes on.
#[tokio::test]
async fn a_killed_instance_repeats_and_skips_no_item() {
    let s = idle().await;
    s.create_with(json!({"name": "first"})).await;
    s.execute(
        "INSERT INTO workflows (team_id, name, action, created_on, updated_on)
         SELECT team_id, 'copy ' || nth, action, now(), now() FROM workflows, generate_series(2, 2000) AS nth",
    )
    .await;
    let every_second = [("CRONBOX_JOB_BACKFILLS", "1s")];
    let app = App::with(&s.dsn(), &every_second).await;
    // Behind this item the job does not come before the kill, however late the kill is.
    let mut held = PgConnection::connect(&s.owner_dsn()).await.unwrap();
    let hold = "SET idle_in_transaction_session_timeout = 0; BEGIN;
                SELECT FROM workflows WHERE name = 'copy 1500' FOR NO KEY UPDATE";
    sqlx::raw_sql(hold).execute(&mut held).await.unwrap();
    let created = request(&app.editor(&s), &json!({"verb": "pause", "reason": "bulk"})).await.expect(202);
    assert_eq!(created.json["total"], 2_000);
    let began = std::time::Instant::now();
    while s.count("SELECT processed::bigint FROM bulk_operations").await < 500 {
        assert!(began.elapsed() < tests::PATIENCE, "not so many items are processed");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    app.signal("-KILL").await;
    app.assert_killed("some of the items").await;
    held.close().await.unwrap();
    let at_the_kill = s.count("SELECT processed::bigint FROM bulk_operations").await;
    assert!((500..2_000).contains(&at_the_kill), "{at_the_kill}");
    // As if the lease of the killed instance, of a minute, had ended.
    s.execute("UPDATE jobs SET locked_by = NULL, locked_until = NULL").await;
    let _next = App::with(&s.dsn(), &every_second).await;
    s.until_grown("SELECT processed::bigint FROM bulk_operations", 2_000).await;
    s.until("SELECT count(*) FROM bulk_operations WHERE state = 'finished' AND refused = 0", 1).await;
    assert_eq!(s.count("SELECT count(*) FROM bulk_items WHERE outcome = 'done'").await, 2_000);
    assert_eq!(s.count("SELECT count(*) FROM workflows WHERE state = 'paused' AND version = 2").await, 2_000);
    let audited = "SELECT count(*) FROM audit_log WHERE verb = 'pause' AND subject LIKE 'workflow:%'";
    assert_eq!(s.count(audited).await, 2_000, "each once");
    s.end_early().await;
}
