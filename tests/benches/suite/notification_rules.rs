//! B7: what ten notification rules of a team cost its fires: triggers look for rules when a time is decided and when a run
//! ends.

use tests::measure::PostgresMeter;

use crate::backlog::Backlog;
use crate::fire_costs::{app_with_workflows, decided, fire_and_end, this_minute};
use crate::table::{Row, median};

/// Fires of one measurement, each of another workflow.
const FIRES: usize = 4_000;
/// Pairs of measurements: one with rules, one without.
const PAIRS: usize = 8;
/// The least that must be left of the rate without rules. Below the goal there is room for the noise of a pair.
const FLOOR: f64 = 0.85;
const GOAL: f64 = 0.95;

pub(crate) async fn all() -> Vec<Row> {
    vec![decided_fires().await, ended_runs().await]
}

/// Fires per second, with and without rules in turn, on the same database. No run is executed.
async fn decided_fires() -> Row {
    let backlog = Backlog::new(0, None).await;
    let app = app_with_workflows(&backlog, (2 * PAIRS + 1) * FIRES, 0).await;
    decided(&app, 0..FIRES, this_minute(), 202).await;
    sqlx::raw_sql("ANALYZE").execute(&backlog.pool).await.unwrap();
    let (mut with, mut without, mut latest) = (Vec::new(), Vec::new(), Vec::new());
    for nth in 1..=2 * PAIRS {
        let has_rules = is_with_rules(nth);
        set_rules(&backlog, has_rules).await;
        let answered = decided(&app, nth * FIRES..(nth + 1) * FIRES, this_minute(), 202).await;
        if has_rules {
            with.push(answered.per_sec());
            latest = answered.taken_ms;
        } else {
            without.push(answered.per_sec());
        }
    }
    drop(app);
    backlog.end().await;
    let mut row = Row::of_times("B7", "B7 with ten rules per team: fresh invokes", latest);
    row.figures.extend([("req/s", median(&with)), ("without rules req/s", median(&without))]);
    row.against("with rules against without", median(&with) / median(&without), FLOOR, GOAL)
}

/// Processor time of Postgres from the decision of a fire to the end of its run, with and without rules in turn.
#[expect(clippy::cast_precision_loss, reason = "a number of fires and bytes")]
async fn ended_runs() -> Row {
    let backlog = Backlog::new(0, None).await;
    let app = app_with_workflows(&backlog, (2 * PAIRS + 1) * FIRES, 256).await;
    fire_and_end(&backlog, &app, 0..FIRES, this_minute()).await;
    sqlx::raw_sql("ANALYZE").execute(&backlog.pool).await.unwrap();
    let meter = PostgresMeter::of(&backlog.pool).await;
    let (mut with, mut without, mut wal_bytes) = (Vec::new(), Vec::new(), [0_i64; 2]);
    for nth in 1..=2 * PAIRS {
        let has_rules = is_with_rules(nth);
        set_rules(&backlog, has_rules).await;
        let before = meter.read_usage().await;
        fire_and_end(&backlog, &app, nth * FIRES..(nth + 1) * FIRES, this_minute()).await;
        let used = meter.read_usage().await.since(before);
        if has_rules { &mut with } else { &mut without }.push(1_000.0 * 1_000.0 * used.cpu_secs / FIRES as f64);
        wal_bytes[usize::from(has_rules)] += used.wal_bytes;
    }
    drop(app);
    backlog.end().await;
    let wal_of = |bytes: i64| bytes as f64 / (PAIRS * FIRES) as f64;
    let figures = vec![
        ("Postgres CPU ms / 1,000 fires", median(&with)),
        ("without rules", median(&without)),
        ("WAL bytes a fire", wal_of(wal_bytes[1])),
        ("WAL bytes without rules", wal_of(wal_bytes[0])),
    ];
    Row::new("B7", "B7 with ten rules per team: from the decision to the end of the run", figures).against(
        "processor time without rules against with",
        median(&without) / median(&with),
        FLOOR,
        GOAL,
    )
}

/// The first of a pair has rules, and of the next pair the second, so that neither always meets the smaller tables.
fn is_with_rules(nth: usize) -> bool {
    matches!(nth % 4, 1 | 0)
}

/// Gives each team one channel and ten rules, or none.
async fn set_rules(backlog: &Backlog, has_rules: bool) {
    sqlx::raw_sql(NO_RULES).execute(&backlog.pool).await.unwrap();
    if has_rules {
        sqlx::raw_sql(TEN_RULES).execute(&backlog.pool).await.unwrap();
    }
}

const NO_RULES: &str = "DELETE FROM notification_rules; DELETE FROM notification_channels;";

/// Nothing listens at the address, and no fire of the case is an event of a rule.
const TEN_RULES: &str = "
    INSERT INTO notification_channels (team_id, name, kind, url, origin, max_per_hour, is_enabled, created_on, updated_on)
    SELECT id, 'bench', 'webhook', 'http://127.0.0.1:9/', 'http://127.0.0.1:9', 60, true, cronbox_now(), cronbox_now() FROM teams;
    INSERT INTO notification_rules (team_id, event, threshold, after_secs, group_secs, is_enabled, version, created_on, updated_on)
    SELECT teams.id, event, threshold, after_secs, 60, true, 1, cronbox_now(), cronbox_now()
      FROM teams,
           (VALUES ('run_failed', NULL, NULL), ('failures_in_a_row', 3, NULL), ('recovered', 3, NULL), ('missed', NULL, NULL),
                   ('abandoned', NULL, NULL), ('skipped_overlap', 3, NULL), ('auto_paused', NULL, NULL), ('sync_failed', NULL, NULL),
                   ('run_late', NULL, 3600), ('run_long', NULL, 3600)) AS rules (event, threshold, after_secs);
    INSERT INTO notification_rule_channels (rule_id, channel_id)
    SELECT r.id, c.id FROM notification_rules r JOIN notification_channels c ON c.team_id = r.team_id;
";
