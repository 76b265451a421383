//! The metrics for the alarms: each condition appears in the line that CloudWatch reads.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger::invoke::{Answer, FireDecider, Reason};
use schedule::Fire;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use crate::entry::lambda::{Invoker, Runtime, answer, metrics, serve};
use crate::proxy::DENIED;
use crate::world::{LIST, World, name};

const MINUTE: Duration = Duration::from_secs(60);

/// The publisher as a Lambda that the test invokes.
pub(super) struct Ticker {
    _lambda: Child,
    lines: Lines<BufReader<ChildStdout>>,
    runtime: Arc<Runtime>,
    invoker: Invoker,
}

impl Ticker {
    pub(super) async fn start(world: &World) -> Ticker {
        Self::start_with(world, &[]).await
    }

    async fn start_with(world: &World, settings: &[(&str, &str)]) -> Ticker {
        let (runtime, invoker) = Runtime::new();
        let mut command = world.lambda_command(&serve(runtime.clone()).await);
        let mut lambda = command.envs(settings.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(lambda.stdout.take().unwrap()).lines();
        Ticker { _lambda: lambda, lines, runtime, invoker }
    }

    /// Invokes a tick with a sweep; returns the answer and the metrics.
    async fn tick(&mut self) -> ((String, Value), Value) {
        self.tick_with(json!({"sweep": true})).await
    }

    /// Invokes a tick with this event.
    pub(super) async fn tick_with(&mut self, event: Value) -> ((String, Value), Value) {
        let (invoke, answered) = &mut self.invoker;
        invoke.send(event).unwrap();
        let answered = answer(answered).await;
        (answered, metrics(&mut self.lines).await)
    }
}

fn figure(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// The metric of an alarm, and from which value on it rings, as Terraform deploys it.
fn alarm(name: &str) -> (&'static str, f64) {
    let alarms = include_str!("../../../terraform/modules/cron/alarms.tf");
    let (_, rest) = alarms.split_once(&format!(" {name} = {{")).unwrap();
    let field = |name: &str| {
        let of = |line: &'static str| line.split_once('=').filter(|(field, _)| field.trim() == name);
        rest.lines().take_while(|line| line.trim() != "}").find_map(of).unwrap().1.trim()
    };
    (field("metric").trim_matches('"'), field("value").parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_orphans_are_a_figure() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.publish().await;
    for id in 1001..=1150 {
        world.make_like(workflow, &format!("wf-{id}-dev")).await;
    }
    let mut ticker = Ticker::start(&world).await;
    let (_, first) = ticker.tick().await;
    assert_eq!((&first["OrphansRefused"], &first["OrphansWaiting"]), (&json!(0), &json!(150)));
    world.skip(MINUTE * 15).await;
    let (_, second) = ticker.tick().await;
    assert_eq!(second["OrphansRefused"], json!(150));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_changes_are_a_figure() {
    let world = World::new().await;
    for _ in 0..12 {
        world.create("0 9 * * *", "UTC").await;
    }
    world.publish().await;
    let past_the_app = "SET session_replication_role = replica; UPDATE workflows SET cron_schedule = NULL;
                        RESET session_replication_role";
    sqlx::raw_sql(past_the_app).execute(&world.pool).await.unwrap();
    world.skip(MINUTE).await;
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    assert_eq!(line["ChangesRefused"], json!(12), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_drain_is_a_figure() {
    let world = World::new().await;
    for _ in 0..3 {
        let workflow = world.create("0 9 * * *", "UTC").await;
        world.front.always(&name(workflow), Some(DENIED));
    }
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    assert_eq!((&line["DrainsStopped"], &line["failed"]), (&json!(1), &json!(0)), "{line}");
}

/// The first deployment has one workflow and a wrong policy. While its backoff grows, ticks make no call and still count,
/// because the alarm needs two minutes in a row. A success ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refused_workflow_is_a_figure() {
    let (metric, threshold) = alarm("drains-stopped");
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    world.front.always(&name(workflow), Some(DENIED));
    let mut ticker = Ticker::start(&world).await;
    // Enough to claim, for which 10 s must be left after the way to the claim; too little to wait for many retries.
    ticker.runtime.end_after(TimeDelta::seconds(15));
    for _ in 0..3 {
        let (_, line) = ticker.tick().await;
        assert!(figure(&line, metric) >= threshold && line["failed"] == json!(0), "{line}");
    }
    world.front.always(&name(workflow), None);
    world.skip(MINUTE * 15).await;
    let (_, line) = ticker.tick().await;
    assert_eq!((&line[metric], &line["created"]), (&json!(0), &json!(1)), "{line}");
}

/// A publisher of another database with the same environment and group writes no schedule, and its metric raises an
/// alarm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_schedules_are_a_figure() {
    let world = World::new().await;
    let mut workflows = Vec::new();
    for _ in 0..3 {
        workflows.push(world.create("0 9 * * *", "UTC").await);
    }
    world.publish().await;
    let another = "DELETE FROM publications; DELETE FROM outbox_events;
                   UPDATE database_identity SET uuid = gen_random_uuid()";
    sqlx::raw_sql(another).execute(&world.pool).await.unwrap();
    for workflow in workflows {
        world.patch(workflow, json!({"cron_schedule": "0 17 * * *"})).await;
    }
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    assert_eq!(
        (&line["DrainsStopped"], &line["failed"], &line["updated"]),
        (&json!(1), &json!(0), &json!(0)),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_that_never_ends_grows_old() {
    let world = World::new().await;
    world.front.always(LIST, Some(DENIED));
    let mut ticker = Ticker::start(&world).await;
    ticker.tick().await;
    world.skip(MINUTE * 65).await;
    let (_, line) = ticker.tick().await;
    assert!(figure(&line, "SweepAgeSeconds") >= 3600.0, "{line}");
}

/// The oldest message that is not settled counts, from when it was sent. An empty queue has the age 0, and a queue that is not
/// mirrored has none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_dead_letters_grow_old() {
    let world = World::new().await;
    // At this address nothing listens, so no pass settles the rows.
    let queue = ("CRONBOX_RUNNER_DLQ_URL", "http://127.0.0.1:9/123456789012/runner-dlq");
    let mut ticker = Ticker::start_with(&world, &[queue]).await;
    // Too little for a pass over the queue.
    ticker.runtime.end_after(TimeDelta::seconds(12));
    let (_, empty) = ticker.tick().await;
    assert_eq!(empty["DeadLetterAgeSeconds_runner"], json!(0.0), "{empty}");
    let rows = "INSERT INTO dead_letters (queue, message_id, kind, error, attributes, body, body_bytes, sent_on, first_seen,
                                          last_seen, state, settled_on)
                SELECT queue, id, 'unreadable', '', '{}', '', 0, cronbox_now() - age, cronbox_now(), cronbox_now(), state,
                       CASE state WHEN 'gone' THEN cronbox_now() END
                  FROM (VALUES ('runner', 'a', INTERVAL '13 hours', 'present'),
                               ('runner', 'b', INTERVAL '1 hour', 'redrive_failed'),
                               ('runner', 'c', INTERVAL '20 hours', 'gone'),
                               ('schedules', 'd', INTERVAL '30 hours', 'present')) AS m (queue, id, age, state)";
    sqlx::raw_sql(rows).execute(&world.pool).await.unwrap();
    let (_, line) = ticker.tick().await;
    let age = figure(&line, "DeadLetterAgeSeconds_runner");
    assert!((46_800.0..46_860.0).contains(&age), "{line}");
    assert_eq!(line["DeadLetterAgeSeconds_schedules"], Value::Null, "{line}");
}

/// Workflows are counted when they are settled. A later error of another workflow must not remove them from the
/// metrics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_with_an_error_counts_too() {
    let world = World::new().await;
    for _ in 0..4 {
        world.create("0 9 * * *", "UTC").await;
    }
    // A suspect is claimed last and separately, so the others are settled when its statement fails.
    let broken = "UPDATE publications SET attempt_count = 15 WHERE workflow_id = (SELECT max(id) FROM workflows);
                  CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'stay'; END $$;
                  CREATE TRIGGER stay BEFORE UPDATE ON publications FOR EACH ROW WHEN (OLD.attempt_count = 15) EXECUTE FUNCTION stay()";
    sqlx::raw_sql(broken).execute(&world.pool).await.unwrap();
    let mut ticker = Ticker::start(&world).await;
    let ((kind, error), line) = ticker.tick().await;
    assert_eq!((kind.as_str(), &error["errorType"]), ("error", &json!("DatabaseError")), "{error}");
    assert!(error["errorMessage"].as_str().unwrap().contains("stay"), "the cause, not only the outermost: {error}");
    assert_eq!((&line["created"], &line["processed"], &line["remaining"]), (&json!(3), &json!(3), &json!(1)));
}

/// One metric cannot be read. The others must be reported, and the missing one must not be reported as zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_figures_hide_no_other() {
    let world = World::new().await;
    sqlx::raw_sql("ALTER TABLE occurrences RENAME TO elsewhere").execute(&world.pool).await.unwrap();
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    assert!(line["Missed"].is_null(), "{line}");
    for reply in ["OutboxLagSeconds", "DriftCount", "SweepAgeSeconds", "RunsWaitingSeconds"] {
        figure(&line, reply);
    }
}

/// A slow metric ends at its own limit. A limit for all metrics together would drop those that were already read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_figures_hide_no_other() {
    let world = World::new().await;
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    let lock = "SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE occurrences";
    sqlx::raw_sql(lock).execute(&mut session).await.unwrap();
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    assert!(line["Missed"].is_null(), "{line}");
    for reply in ["OutboxLagSeconds", "DriftCount", "SweepAgeSeconds", "RunsWaitingSeconds"] {
        figure(&line, reply);
    }
}

/// After two slow metrics, the publisher skips the rest. Without this count, all their alarms would stay silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_figures_are_a_figure() {
    let world = World::new().await;
    let mut session = PgConnection::connect(&world.dsn).await.unwrap();
    let lock = "SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE occurrences, runs";
    sqlx::raw_sql(lock).execute(&mut session).await.unwrap();
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    let skipped = [
        "Missed",
        "Abandoned",
        "RunsWaitingSeconds",
        "FiresDisagree",
        "RunsFailed",
        "AutoPaused",
        "SkippedOverlap",
        "MessagesFailed",
    ];
    for unread in skipped {
        assert!(line[unread].is_null(), "{line}");
    }
    assert_eq!(line["FiguresUnread"], json!(8), "two are slow, and six are not read: {line}");
    session.close().await.unwrap();
    assert_eq!(ticker.tick().await.1["FiguresUnread"], json!(0));
}

/// A dump stays open for 5,000 transactions. The threshold of the alarm is too high to reach in a test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_snapshot_is_a_figure() {
    let (metric, _) = alarm("xmin-age");
    let world = World::new().await;
    let mut ticker = Ticker::start(&world).await;
    let mut dump = PgConnection::connect(&world.dsn).await.unwrap();
    let open =
        "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM workflows";
    sqlx::raw_sql(open).execute(&mut dump).await.unwrap();
    let transactions = "DO $$ BEGIN FOR nth IN 1..5000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$";
    sqlx::raw_sql(transactions).execute(&world.pool).await.unwrap();
    let during = figure(&ticker.tick().await.1, metric);
    assert!(during >= 5_000.0, "{during} transactions");
    dump.close().await.unwrap();
}

/// A tick that publishes nothing because the database is held succeeds, so only this metric raises an alarm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_database_is_a_figure() {
    let world = World::new().await;
    let mut ticker = Ticker::start(&world).await;
    assert_eq!(ticker.tick().await.1["Held"], json!(0));
    let hold = "UPDATE database_identity SET held_on = cronbox_now(), held_reason = 'marked'";
    sqlx::raw_sql(hold).execute(&world.pool).await.unwrap();
    let workflow = world.create("0 9 * * *", "UTC").await;
    let ((kind, _), line) = ticker.tick().await;
    assert_eq!((kind.as_str(), &line["Held"]), ("response", &json!(1)), "{line}");
    assert_eq!(world.schedule(workflow).await, None);
    let accepted = "UPDATE database_identity SET held_on = NULL, held_reason = NULL";
    sqlx::raw_sql(accepted).execute(&world.pool).await.unwrap();
    assert_eq!(ticker.tick().await.1["Held"], json!(0));
    assert!(world.schedule(workflow).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_without_an_executor_are_a_figure() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    sqlx::query(
        "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on)
         VALUES (gen_random_uuid(), $1, 'manual', 'accepted', cronbox_now(), cronbox_now())",
    )
    .bind(workflow.0)
    .execute(&world.pool)
    .await
    .unwrap();
    let mut ticker = Ticker::start(&world).await;
    world.skip(MINUTE * 10).await;
    assert!(figure(&ticker.tick().await.1, "RunsWaitingSeconds") >= 600.0);
    sqlx::query("UPDATE workflows SET state = 'paused', revision = revision + 1").execute(&world.pool).await.unwrap();
    assert_eq!(ticker.tick().await.1["RunsWaitingSeconds"], json!(0.0), "a paused one waits for its owner");
}

/// A run of a workflow, accepted now.
const ACCEPTED: &str = "INSERT INTO runs (id, workflow_id, trigger, state, scheduled_time, run_after, created_on)
     VALUES (gen_random_uuid(), $1, $2::text, 'accepted', CASE $2::text WHEN 'schedule' THEN cronbox_now() END, cronbox_now(),
             cronbox_now())";
/// A run that an instance executes for another hour.
const RUNNING: &str = "INSERT INTO runs (id, workflow_id, trigger, state, run_after, created_on, started_on, attempt, locked_by,
                                         locked_at, lease_until)
     VALUES (gen_random_uuid(), $1, 'manual', 'running', cronbox_now(), cronbox_now(), cronbox_now(), 1, gen_random_uuid(),
             cronbox_now(), cronbox_now() + INTERVAL '1 hour')";

/// An alarm for runs that no executor may start would ring all night, start tasks for them, and hide the runs that do wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_runs_wait_for_no_executor() {
    let mut world = World::new().await;
    let (workflow, busy) = (world.create("0 9 * * *", "UTC").await, world.create("0 9 * * *", "UTC").await);
    let mut ticker = Ticker::start(&world).await;
    sqlx::query(ACCEPTED).bind(workflow.0).bind("schedule").execute(&world.pool).await.unwrap();
    world.skip(MINUTE * 10).await;
    assert!(figure(&ticker.tick().await.1, "RunsWaitingSeconds") >= 600.0);

    let freeze = "INSERT INTO freezes (id, reason, starts_on, actor, created_on)
                  VALUES (gen_random_uuid(), 'night', cronbox_now(), 'key:test', cronbox_now())";
    sqlx::raw_sql(freeze).execute(&world.pool).await.unwrap();
    assert_eq!(ticker.tick().await.1["RunsWaitingSeconds"], json!(0.0), "a freeze stops runs of schedules");
    sqlx::raw_sql("UPDATE freezes SET team_id = (SELECT team_id FROM workflows LIMIT 1)")
        .execute(&world.pool)
        .await
        .unwrap();
    assert_eq!(ticker.tick().await.1["RunsWaitingSeconds"], json!(0.0), "also one of their team");
    sqlx::query(ACCEPTED).bind(workflow.0).bind("manual").execute(&world.pool).await.unwrap();
    world.skip(MINUTE * 15).await;
    let waiting = figure(&ticker.tick().await.1, "RunsWaitingSeconds");
    assert!((300.0..900.0).contains(&waiting), "a freeze stops no manual run: {waiting}");

    sqlx::query(RUNNING).bind(busy.0).execute(&world.pool).await.unwrap();
    let limit = "INSERT INTO team_limits (team_id, running_runs) SELECT DISTINCT team_id, 1 FROM workflows
                 ON CONFLICT (team_id) DO UPDATE SET running_runs = 1";
    sqlx::raw_sql(limit).execute(&world.pool).await.unwrap();
    assert_eq!(ticker.tick().await.1["RunsWaitingSeconds"], json!(0.0), "they wait for a run of their team");

    let team =
        "INSERT INTO teams (name, signing_secret, created_on) VALUES ('theirs', 'whsec_a', cronbox_now()) RETURNING id";
    world.team = sqlx::query_scalar(team).fetch_one(&world.pool).await.unwrap();
    let theirs = world.create("0 9 * * *", "UTC").await;
    sqlx::query(ACCEPTED).bind(theirs.0).bind("schedule").execute(&world.pool).await.unwrap();
    world.skip(MINUTE * 18).await;
    let waiting = figure(&ticker.tick().await.1, "RunsWaitingSeconds");
    assert!((180.0..480.0).contains(&waiting), "another team is not hidden: {waiting}");

    sqlx::raw_sql("UPDATE runs SET handed_over_until = cronbox_now() - INTERVAL '1 second' WHERE state = 'accepted'")
        .execute(&world.pool)
        .await
        .unwrap();
    assert_eq!(ticker.tick().await.1["RunsWaitingSeconds"], json!(0.0), "it was handed over for too long");
}

/// A workflow that always fails, until cronbox pauses it; and a time that an earlier run prevents. The counts are of an hour,
/// the pause stays until a caller ends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_workflows_are_figures() {
    let world = World::new().await;
    let workflow = world.create("0 9 * * *", "UTC").await;
    let mut ticker = Ticker::start(&world).await;
    let (_, line) = ticker.tick().await;
    for metric in ["RunsFailed", "AutoPaused", "SkippedOverlap"] {
        assert_eq!(line[metric], json!(0), "{line}");
    }
    let failed = "INSERT INTO runs_ended (id, workflow_id, trigger, state, run_after, created_on, finished_on)
                  SELECT gen_random_uuid(), $1, 'manual', state, cronbox_now(), cronbox_now(), cronbox_now()
                    FROM unnest(ARRAY['failed', 'timed_out', 'succeeded']) AS state";
    let skipped = "INSERT INTO occurrences (id, workflow_id, scheduled_time, decision, lateness_s, decided_on, created_on, updated_on)
                   SELECT gen_random_uuid(), $1, date_trunc('minute', cronbox_now()), 'skipped_overlap', 0, cronbox_now(),
                          cronbox_now(), cronbox_now()";
    let paused = "UPDATE workflows SET state = 'paused', paused_by = 'cronbox', revision = revision + 1
                   WHERE id = $1";
    for statement in [failed, skipped, paused] {
        sqlx::query(statement).bind(workflow.0).execute(&world.pool).await.unwrap();
    }
    let (_, line) = ticker.tick().await;
    for (metric, count) in [("RunsFailed", 2), ("AutoPaused", 1), ("SkippedOverlap", 1)] {
        assert_eq!(line[metric], json!(count), "{metric} in {line}");
    }
    // The job `statistics` moves the counts of past minutes.
    let now: DateTime<Utc> = sqlx::query_scalar("SELECT cronbox_now()").fetch_one(&world.pool).await.unwrap();
    ledger::stats::add_up_minutes(&world.pool, now + TimeDelta::minutes(10)).await.unwrap();
    assert_eq!(ticker.tick().await.1["RunsFailed"], json!(2));
    world.skip(MINUTE * 61).await;
    let (_, line) = ticker.tick().await;
    for (metric, count) in [("RunsFailed", 0), ("AutoPaused", 1), ("SkippedOverlap", 0)] {
        assert_eq!(line[metric], json!(count), "{metric} in {line}");
    }
}

/// From the fire to the line that the alarm reads: a fire that the published expression names raises none, one that it
/// does not name raises it for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disagreeing_fires_are_a_figure() {
    let (metric, threshold) = alarm("fires-disagree");
    let world = World::new().await;
    // Either day: EventBridge gets `cron(0 9 * * ? *)`, and the app refuses the other days.
    let workflow = world.create("0 9 13 * FRI", "UTC").await;
    let decider = FireDecider::new(world.pool.clone(), TimeDelta::days(90));
    let fires = async |time: &str| {
        let fire = json!({"workflow_id": workflow.0, "scheduled_time": time, "revision": 1});
        decider.decide_fire(&Fire::from_event(&fire).unwrap()).await.unwrap()
    };
    let mut ticker = Ticker::start(&world).await;
    assert_eq!(fires("2026-03-03T09:00:00Z").await, Answer::Declined(Reason::NotDue), "the surplus of a superset");
    assert!(figure(&ticker.tick().await.1, metric) < threshold);
    assert_eq!(fires("2026-03-03T10:00:00Z").await, Answer::Declined(Reason::Disagrees));
    assert!(figure(&ticker.tick().await.1, metric) >= threshold);
    world.skip(MINUTE * 61).await;
    assert!(figure(&ticker.tick().await.1, metric) < threshold);
}
