//! B7: what a fire costs the app, compared with the naive app.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::Clock;
use tests::measure::{PostgresMeter, tree_cpu_secs};

use crate::backlog::Backlog;
use crate::load_generator::{Answered, Request, invoke, send};
use crate::service::Service;
use crate::table::{Row, median};

const CONNECTIONS: usize = 64;
const WORKFLOWS: usize = 20_000;
/// Fires that are sent before the measurement begins.
const WARM_UP: usize = 1_000;
const TIMES: usize = 3;

/// All cases, ours and the peer's in turn. No run is executed, because B7 measures only the decision.
pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    let workflows = i64::try_from(WORKFLOWS + WARM_UP).unwrap();
    backlog.fill(workflows, workflows).await;
    sqlx::raw_sql(EVERY_MINUTE).execute(&backlog.pool).await.unwrap();
    backlog.begin_versions().await;
    let mut ours = Service::app(&backlog, 0).await;
    let peer = Service::fastapi(&backlog).await;
    let empty = Service::empty_handler().await;
    // All cases use the same current minute, so that no case uses the times of another.
    let now = Clock::System.now();
    let minutes_before = |minutes| now - TimeDelta::seconds(now.timestamp() % 60) - TimeDelta::minutes(minutes);
    // The temporary cluster has no autovacuum, so ANALYZE gives the planner what autovacuum would after the first
    // minute.
    send(ours.address, CONNECTIONS, fires_of_workflows(&ours, WORKFLOWS..WORKFLOWS + WARM_UP, minutes_before(0))).await;
    sqlx::raw_sql("ANALYZE occurrences, runs").execute(&backlog.pool).await.unwrap();
    let meter = PostgresMeter::of(&backlog.pool).await;
    let [mut fresh, mut duplicate] = [const { [const { Vec::new() }; 2] }; 2];
    let mut least = Vec::new();
    for nth in 0..TIMES {
        for (who, service) in [&ours, &peer].into_iter().enumerate() {
            // The peer gets fewer requests, so that its turn takes no longer.
            let (workflows, again) = if who == 0 { (WORKFLOWS / TIMES, 60_000) } else { (1_000, 6_000) };
            let first = nth * (WORKFLOWS / TIMES);
            let fires = fires_of_workflows(service, first..first + workflows, minutes_before(0));
            let load = Load::sent(&meter, service, fires.clone()).await;
            assert_eq!(load.answered.of(202), workflows, "fresh fires: {:?}", load.answered.by_status);
            fresh[who].push(load);
            let again: Vec<Request> = fires.iter().cycle().take(again).cloned().collect();
            let load = Load::sent(&meter, service, again).await;
            assert_eq!(load.answered.by_status.len(), 1, "duplicates: {:?}", load.answered.by_status);
            duplicate[who].push(load);
        }
        let fires = fires_of_workflows(&empty, 0..WORKFLOWS, minutes_before(0));
        least.push(Load::sent(&meter, &empty, fires.iter().cycle().take(60_000).cloned().collect()).await);
    }
    let least = of_empty_handler(&least, &duplicate);
    let mut rows = compared("fresh", fresh, 4.0, 10.0);
    rows.extend(compared("duplicate", duplicate, 10.0, 20.0));
    rows.push(least);
    // Of the minute before, and each of other workflows, so that all are on time.
    rows.push(mixed(&backlog, &meter, &ours, minutes_before(1)).await);
    rows.push(one_key(&backlog, &meter, &ours, minutes_before(1)).await);
    rows.push(restarted(&backlog, &mut ours, minutes_before(1)).await);
    drop((ours, peer, empty));
    backlog.end().await;
    rows
}

/// One load, and the processor time of 1,000 of its requests. Other work on the machine moves the latter less than the
/// rate.
struct Load {
    answered: Answered,
    service_ms: f64,
    postgres_ms: f64,
}

impl Load {
    async fn sent(meter: &PostgresMeter, service: &Service, requests: Vec<Request>) -> Load {
        #[expect(clippy::cast_precision_loss, reason = "a number of requests")]
        let thousands = requests.len() as f64 / 1_000.0;
        let before = (tree_cpu_secs(service.pid()), meter.read_usage().await);
        let answered = send(service.address, CONNECTIONS, requests).await;
        let service_secs = tree_cpu_secs(service.pid()) - before.0;
        let postgres_secs = meter.read_usage().await.since(before.1).cpu_secs;
        let [service_ms, postgres_ms] = [service_secs, postgres_secs].map(|secs| secs * 1_000.0 / thousands);
        Load { answered, service_ms, postgres_ms }
    }

    fn report(self, what: &str) -> Row {
        let mut row = report(what, self.answered);
        let of_1_000 = [("app ms / 1,000", self.service_ms), ("Postgres ms / 1,000", self.postgres_ms)];
        row.figures.extend(of_1_000);
        row
    }
}

/// The median of a figure of several loads.
fn median_of(loads: &[Load], figure: fn(&Load) -> f64) -> f64 {
    median(&loads.iter().map(figure).collect::<Vec<_>>())
}

/// Two rows for the loads of ours and of the peer: the rate, and the processor time.
fn compared(what: &str, [ours, peers]: [Vec<Load>; 2], floor: f64, goal: f64) -> Vec<Row> {
    let rates = [&ours, &peers].map(|loads| median_of(loads, |load| load.answered.per_sec()));
    let app = [&ours, &peers].map(|loads| median_of(loads, |load| load.service_ms));
    let postgres = [&ours, &peers].map(|loads| median_of(loads, |load| load.postgres_ms));
    let taken_ms = ours.into_iter().last().map(|load| load.answered.taken_ms).unwrap_or_default();
    let mut rate = Row::of_times("B7", format!("{what} invokes, {CONNECTIONS} connections"), taken_ms);
    rate.figures.extend([("req/s", rates[0]), ("FastAPI req/s", rates[1])]);
    let cost = vec![
        ("app ms", app[0]),
        ("Postgres ms", postgres[0]),
        ("FastAPI ms", app[1]),
        ("FastAPI's Postgres ms", postgres[1]),
        ("FastAPI against app", app[1] / app[0]),
    ];
    vec![
        rate.against("against FastAPI", rates[0] / rates[1], floor, goal),
        Row::new("B7", format!("processor time of 1,000 {what} invokes"), cost),
    ]
}

/// A row for the server that does nothing, under the load of the duplicates: what the others can reach at most.
fn of_empty_handler(least: &[Load], [ours, peers]: &[Vec<Load>; 2]) -> Row {
    let rates = [least, ours, peers].map(|loads| median_of(loads, |load| load.answered.per_sec()));
    let figures = vec![
        ("req/s", rates[0]),
        ("app ms / 1,000", median_of(least, |load| load.service_ms)),
        ("against FastAPI", rates[0] / rates[2]),
        ("our % of its req/s", 100.0 * rates[1] / rates[0]),
        (
            "its % of our app ms",
            100.0 * median_of(least, |load| load.service_ms) / median_of(ours, |load| load.service_ms),
        ),
    ];
    Row::new("B7", format!("an empty handler instead of the app, {CONNECTIONS} connections"), figures)
}

/// 90 % of the requests are duplicates.
async fn mixed(backlog: &Backlog, meter: &PostgresMeter, ours: &Service, time: DateTime<Utc>) -> Row {
    let runs_before = runs(backlog).await;
    let fires = fires_of_workflows(ours, 0..2_000, time);
    let requests: Vec<Request> = (0..20_000).map(|nth| fires[nth / 10].clone()).collect();
    let load = Load::sent(meter, ours, requests).await;
    exactly(backlog, runs_before, 2_000).await;
    load.report("90 % duplicates")
}

/// All requests are for one workflow and one time.
async fn one_key(backlog: &Backlog, meter: &PostgresMeter, ours: &Service, time: DateTime<Utc>) -> Row {
    let runs_before = runs(backlog).await;
    let fire = fires_of_workflows(ours, 2_000..2_001, time).remove(0);
    let load = Load::sent(meter, ours, vec![fire; 20_000]).await;
    assert_eq!(load.answered.of(202), 1, "one is accepted");
    exactly(backlog, runs_before, 1).await;
    load.report("one key")
}

/// The app is killed during the load, and loses its cache.
async fn restarted(backlog: &Backlog, ours: &mut Service, time: DateTime<Utc>) -> Row {
    let runs_before = runs(backlog).await;
    let fires = fires_of_workflows(ours, 4_000..6_000, time);
    let requests: Vec<Request> = fires.iter().cycle().take(40_000).cloned().collect();
    let storm = tokio::spawn(send(ours.address, CONNECTIONS, requests));
    while runs(backlog).await < runs_before + 200 {
        tokio::task::yield_now().await;
    }
    ours.restart().await;
    let answered = storm.await.unwrap();
    exactly(backlog, runs_before, 2_000).await;
    report("a restart in the storm", answered)
}

fn report(what: &str, answered: Answered) -> Row {
    let per_sec = answered.per_sec();
    let mut row = Row::of_times("B7", format!("{what}, {CONNECTIONS} connections"), answered.taken_ms);
    row.figures.push(("req/s", per_sec));
    row
}

async fn runs(backlog: &Backlog) -> i64 {
    backlog.scalar("SELECT COUNT(*) FROM runs").await
}

async fn exactly(backlog: &Backlog, before: i64, keys: i64) {
    assert_eq!(runs(backlog).await - before, keys, "as many runs as distinct keys");
}

/// One fire of each workflow for `time`.
pub(crate) fn fires_of_workflows(
    service: &Service,
    workflows: std::ops::Range<usize>,
    time: DateTime<Utc>,
) -> Vec<Request> {
    let time = time.to_rfc3339_opts(SecondsFormat::Secs, true);
    workflows.map(|nth| invoke(&service.scheduler, i64::try_from(nth).unwrap() + 1, &time)).collect()
}

/// Every minute is due for each workflow.
pub(crate) const EVERY_MINUTE: &str = "
    ALTER TABLE workflows DISABLE TRIGGER workflows_guard_revision;
    UPDATE workflows SET cron_schedule = '* * * * *', overlap_policy = 'concurrent', max_concurrent = 100, catch_up_policy = 'none',
                         schedule_activated_at = clock_timestamp() - INTERVAL '1 hour';
    ALTER TABLE workflows ENABLE TRIGGER workflows_guard_revision;
";
