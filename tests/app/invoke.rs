//! `:invoke`: one run for each time, for any number of callers and repetitions, and for each spelling of the time.

use futures::future::join_all;
use serde_json::{Value, json};
use tests::{PATIENCE, Story, Way};

const NINE: [&str; 5] = [
    "2026-03-02T09:00:00Z",
    "2026-03-02T09:00:00.000Z",
    "2026-03-02T09:00:00+00:00",
    "2026-03-02T11:00:00+02:00",
    "2026-03-02t09:00:41z",
];

fn path(wf: impl std::fmt::Display) -> String {
    format!("/api/v1/cron/workflows/{wf}:invoke")
}

fn fire(time: &str) -> Value {
    json!({"scheduled_time": time, "execution_id": "e-1", "attempt": "1"})
}

/// Two instances answer so, whichever of them has started the run.
#[tokio::test]
async fn spellings_of_one_time_are_duplicates() {
    let mut s = Story::at("2026-03-02T08:59:00Z").await;
    let second = s.runner_at_another_app().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let first = s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(202).json;
    assert_eq!(first["accepted"], true);
    for api in [s.scheduler_key(), second] {
        for spelling in NINE {
            let again = api.post(&path(wf), &fire(spelling)).await.expect(200).json;
            assert_eq!(again, json!({"accepted": false, "reason": "duplicate", "run_id": first["run_id"]}));
        }
    }
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 1);
    s.end().await;
}

/// Two instances get a hundred calls at once. One is answered 202, and all others name the same run.
#[tokio::test]
async fn concurrent_fires_start_one_run() {
    let mut s = Story::at("2026-03-02T08:59:00Z").await;
    let second = s.runner_at_another_app().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let apis = [s.scheduler_key(), second];
    let calls = (0..100).map(|i| {
        let (api, spelling, path) = (apis[i % 2].clone(), NINE[i % 5], path(wf));
        async move { api.post(&path, &fire(spelling)).await }
    });
    let answers = join_all(calls).await;
    let accepted: Vec<_> = answers.iter().filter(|answer| answer.status == 202).collect();
    assert_eq!(accepted.len(), 1);
    let run = &accepted[0].json["run_id"];
    assert!(answers.iter().all(|answer| &answer.json["run_id"] == run), "all name the one run");
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 99);
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 1);
    s.end().await;
}

#[tokio::test]
async fn answers_agree_with_recorded_decisions() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T12:00:10Z").await;
    let invoke = async |time: &str| {
        let answer = s.scheduler_key().post(&path(wf), &fire(time)).await;
        (answer.status, answer.json["reason"].as_str().or(answer.json["code"].as_str()).map(str::to_owned))
    };
    let said = |status: u16, word: &str| (status, Some(word.to_owned()));
    assert_eq!(invoke("2026-03-02T12:06:00Z").await, said(503, "clock_skew"));
    assert_eq!(invoke("2026-03-02T11:30:00Z").await, said(200, "not_due"), "the cron does not name it");
    assert_eq!(invoke("2026-03-02T08:00:00Z").await, said(200, "not_due"), "before the first version");
    assert_eq!(invoke("2026-03-02T12:00:00Z").await, (202, None));
    assert_eq!(invoke("2026-03-02T12:00:00Z").await, said(200, "duplicate"));
    assert_eq!(s.occurrences(wf).await, "2026-03-02T12:00Z fired");

    s.now_is("2026-03-03T13:00:00Z").await;
    assert_eq!(invoke("2026-03-02T11:00:00Z").await, said(200, "too_old"));
    assert_eq!(invoke("2026-03-02T11:00:00Z").await, said(200, "too_old"));
    assert_eq!(s.occurrences(wf).await, "2026-03-02T11:00Z missed\n2026-03-02T12:00Z fired");

    s.editor().post(&format!("/api/v1/workflows/{wf}:pause"), &json!({"reason": "audit"})).await.expect(200);
    assert_eq!(invoke("2026-03-03T12:00:00Z").await, said(200, "paused"), "due, but paused now");
    let decided = "2026-03-02T11:00Z missed\n2026-03-02T12:00Z fired\n2026-03-03T12:00Z skipped_paused";
    assert_eq!(s.occurrences(wf).await, decided);
    s.now_is("2026-03-03T15:00:00Z").await;
    assert_eq!(invoke("2026-03-03T14:00:00Z").await, said(200, "paused"), "paused at that time: no time was due");
    assert_eq!(s.occurrences(wf).await, decided, "a time that was not due has no row");
    s.editor().post_empty(&format!("/api/v1/workflows/{wf}:resume")).await.expect(200);
    assert_eq!(invoke("2026-03-03T14:00:00Z").await, said(200, "paused"), "still: paused at that time");
    assert_eq!(invoke("2026-03-03T12:00:00Z").await, said(200, "paused"), "a decision is repeated");
    s.end().await;
}

/// The version that was in force at the scheduled time decides, whatever revision the fire names.
#[tokio::test]
async fn fires_follow_the_version_in_force() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:30:00Z").await;
    s.edit(wf, json!({"cron_schedule": "15 * * * *"})).await;
    s.now_is("2026-03-02T10:17:00Z").await;
    let invoke = async |time: &str, revision: i64| {
        let body = json!({"scheduled_time": time, "revision": revision});
        s.scheduler_key().post(&path(wf), &body).await
    };
    let ended = invoke("2026-03-02T09:00:00Z", 1).await.expect(200).json;
    assert_eq!(ended["reason"], "missed", "due, but late and by a version that an edit has ended");
    let stale = invoke("2026-03-02T10:00:00Z", 1).await.expect(200).json;
    assert_eq!(stale["reason"], "stale_revision");
    let refused = invoke("2026-03-02T10:00:00Z", 2).await.expect(200).json;
    assert_eq!(refused["reason"], "not_due");
    invoke("2026-03-02T10:15:00Z", 1).await.expect(202);
    let metrics = s.admin().get("/metrics").await.text;
    assert!(metrics.contains("cronbox_fires_disagree_total 1"), "{metrics}");
    s.end().await;
}

#[tokio::test]
async fn times_are_due_from_start_until_end() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let body = json!({"name": "w", "cron_schedule": "0 * * * *", "action": {"type": "log", "message": "hi"},
                      "starts_at": "2026-03-02T10:00:00Z", "ends_at": "2026-03-02T12:00:00Z"});
    let made = s.editor().post("/api/v1/workflows", &body).await.expect(201);
    assert_eq!(made.json["next_fire_at"], "2026-03-02T10:00:00Z");
    for (hour, status) in [(9, 200), (10, 202), (11, 202), (12, 200)] {
        s.now_is(&format!("2026-03-02T{hour:02}:02:00Z")).await;
        let answer = s.scheduler_key().post(&path(made.id()), &fire(&format!("2026-03-02T{hour:02}:00:00Z"))).await;
        s.runs_end().await;
        assert_eq!(answer.status, status, "{hour}: {answer:?}");
        assert!(status == 202 || answer.json["reason"] == "outside_window", "{answer:?}");
    }
    s.end().await;
}

#[tokio::test]
async fn fires_of_deleted_workflows_remove_orphans() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.delete(wf).await;
    s.publish().await;
    assert_eq!(s.schedule(wf), "none");
    // A request that was sent before the delete arrives late, so the schedule exists again without the publisher's
    // knowledge.
    s.create_orphan(wf).await;
    assert_eq!(s.schedule(wf), "cron(0 * * * ? *) UTC ENABLED");
    s.clock_to("2026-03-02T09:00:30Z").await;
    s.publish().await;
    assert_eq!(s.schedule(wf), "none", "the orphan has removed itself by firing");
    s.end().await;
}

/// The answer is 410; only the sweep decides about such a schedule.
#[tokio::test]
async fn fires_of_unknown_workflows_enqueue_nothing() {
    let s = Story::at("2026-03-02T09:00:00Z").await;
    s.scheduler_key().post(&path(4711), &fire(NINE[0])).await.refused(410, "workflow_gone", None);
    assert_eq!(s.count("SELECT count(*) FROM outbox_events").await, 0);
    s.end().await;
}

#[tokio::test]
async fn an_archived_workflow_still_lists_its_runs() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T10:00:05Z").await;
    let run = s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(202).json["run_id"].clone();
    s.editor().post_empty(&format!("/api/v1/workflows/{wf}:archive")).await.expect(200);
    assert_eq!(s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(200).json["run_id"], run);
    let second = s.runner_at_another_app().await;
    assert_eq!(second.post(&path(wf), &fire(NINE[0])).await.expect(200).json["run_id"], run);
    s.scheduler_key().post(&path(wf), &fire("2026-03-02T10:00:00Z")).await.refused(410, "workflow_gone", None);
    s.end().await;
}

/// The repeated fire must start the run, because it is no duplicate.
#[tokio::test]
async fn failed_decisions_are_not_cached() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    // The transaction writes the occurrence, and then cannot write the run.
    s.execute("ALTER TABLE runs RENAME TO runs_away").await;
    s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(500);
    assert_eq!(s.count("SELECT count(*) FROM occurrences").await, 0);
    s.execute("ALTER TABLE runs_away RENAME TO runs").await;
    s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(202);
    s.end().await;
}

#[tokio::test]
async fn client_disconnects_cancel_no_decision() {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    // The test locks the workflow's row, so the decision waits while its client disconnects.
    let mut holder = db::begin_transaction(&s.pool).await.unwrap();
    sqlx::query("SELECT 1 FROM workflows WHERE id = $1 FOR UPDATE").bind(wf.0).execute(&mut *holder).await.unwrap();
    let (api, path) = (s.scheduler_key(), path(wf));
    let call = tokio::spawn(async move { api.post(&path, &fire(NINE[0])).await });
    s.until("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()", 1)
        .await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    holder.rollback().await.unwrap();
    s.until("SELECT count(*) FROM runs", 1).await;
    s.end().await;
}

#[tokio::test]
async fn a_duplicate_touches_no_database() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let mut way = Way::to(&s.dsn()).await;
    let runner = s.runner_behind(&way).await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let run = runner.post(&path(wf), &fire(NINE[0])).await.expect(202).json["run_id"].clone();
    way.cut().await;
    for spelling in NINE {
        assert_eq!(runner.post(&path(wf), &fire(spelling)).await.expect(200).json["run_id"], run);
    }
    way.mend().await;
    s.end().await;
}

/// Nothing runs, and the repetition of the fire after the outage is accepted.
#[tokio::test]
async fn without_database_fires_are_answered_503() {
    let mut s = Story::at("2026-03-02T08:30:00Z").await;
    let mut way = Way::to(&s.dsn()).await;
    let runner = s.runner_behind(&way).await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    runner.post(&path(wf), &fire("2026-03-02T08:59:00Z")).await.expect(200);
    way.cut().await;
    let away = runner.post(&path(wf), &fire(NINE[0])).await;
    away.refused(503, "database_unavailable", None);
    assert!(away.headers.contains_key("retry-after"));
    runner.get("/readyz").await.refused(503, "database_unavailable", None);
    runner.get("/healthz").await.expect(200);
    assert_eq!(s.count("SELECT count(*) FROM runs").await, 0);
    way.mend().await;
    runner.post(&path(wf), &fire(NINE[0])).await.expect(202);
    runner.get("/readyz").await.expect(200);
    s.end().await;
}

#[tokio::test]
async fn fires_of_deleted_workflows_are_gone() {
    let mut s = Story::at("2026-03-02T08:59:00Z").await;
    let second = s.runner_at_another_app().await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.publish().await;
    s.now_is("2026-03-02T09:00:05Z").await;
    s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(202);
    second.post(&path(wf), &fire(NINE[0])).await.expect(200);
    s.runs_end().await;
    s.admin().delete(&format!("/api/v1/workflows/{wf}")).await.expect(204);
    s.scheduler_key().post(&path(wf), &fire(NINE[0])).await.expect(410);
    // The other instance has the run in its cache until it is notified of the deletion.
    let learned = async {
        while second.post(&path(wf), &fire(NINE[0])).await.status != 410 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, learned).await.expect("the other instance learns of it");
    s.publish().await;
    s.end().await;
}

/// EventBridge's zone data differ from ours. A fire of a superset or of an older revision is then an hour off, too.
#[tokio::test]
async fn fires_an_hour_off_are_disagreements() {
    let s = Story::at("2026-12-03T08:30:00Z").await;
    let exact = s.create("0 9 * * *", "America/Vancouver").await;
    // Either day matches: EventBridge gets `cron(0 9 * * ? *)`, and the app refuses the other days.
    let superset = s.create("0 9 13 * FRI", "America/Vancouver").await;
    let renamed = s.create("0 9 * * *", "UTC").await;
    s.edit(renamed, json!({"cron_schedule": "0 10 * * *"})).await;
    s.edit(renamed, json!({"cron_schedule": "0 9 * * *"})).await;
    s.now_is("2026-12-04T17:02:00Z").await;
    let fires = async |wf, time: &str, revision: i64| {
        let body = json!({"scheduled_time": time, "revision": revision});
        let answer = s.scheduler_key().post(&path(wf), &body).await;
        (answer.json["reason"].as_str().map(str::to_owned), s.count("SELECT count(*) FROM fire_disagreements").await)
    };
    let not_due = || Some("not_due".to_owned());
    // In the current data, Vancouver is at -07:00 all year since 2026, so 09:00 is 16:00 UTC. In older data it was
    // 17:00.
    assert_eq!(fires(superset, "2026-12-03T16:00:00Z", 1).await, (not_due(), 0), "the surplus of a superset");
    assert_eq!(fires(superset, "2026-12-04T17:00:00Z", 1).await, (not_due(), 1));
    assert_eq!(fires(exact, "2026-12-04T17:00:00Z", 1).await, (not_due(), 2));
    assert_eq!(fires(exact, "2026-12-04T17:00:00Z", 1).await, (not_due(), 2), "repeated");
    assert_eq!(
        fires(renamed, "2026-12-04T08:00:00Z", 1).await,
        (not_due(), 3),
        "an older revision, the same expression"
    );
    let stale = Some("stale_revision".to_owned());
    assert_eq!(fires(renamed, "2026-12-04T10:00:00Z", 2).await, (stale, 3), "another expression");
    let metrics = s.admin().get("/metrics").await.text;
    assert!(metrics.contains("cronbox_fires_disagree_total 4"), "{metrics}");
    s.end().await;
}
