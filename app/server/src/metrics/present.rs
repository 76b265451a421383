//! Step 7 of 7: the present state of all teams on `/metrics`.

use ledger::stats::Present;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry;

type Label = (&'static str, &'static str);

/// Adds the gauges.
pub(super) fn register_present(registry: &mut Registry, present: &Present) {
    let Present { workflows, runs, waiting } = present;
    let by_state = Family::<[Label; 2], Gauge>::default();
    for (state, paused_by, count) in [
        ("active", "", workflows.active),
        ("paused", "client", workflows.paused_by_client),
        ("paused", "cronbox", workflows.paused_by_cronbox),
    ] {
        by_state.get_or_create(&[("state", state), ("paused_by", paused_by)]).set(count);
    }
    registry.register(
        "workflows",
        "Workflows that are not archived, by state; cronbox pauses those whose runs fail; of all instances together",
        by_state,
    );
    let unfinished =
        of_label("state", [("accepted", runs.accepted), ("queued", runs.queued), ("running", runs.running)]);
    registry.register("runs_unfinished", "Runs that have not ended, by state; of all instances together", unfinished);
    let by_age = of_label(
        "age",
        [
            ("under_1m", waiting.under_1m),
            ("under_5m", waiting.under_5m),
            ("under_1h", waiting.under_1h),
            ("over_1h", waiting.over_1h),
        ],
    );
    registry.register(
        "runs_waiting",
        "Runs that a free executor would start now, by how long they have waited; of more than 10,000 the oldest; of all instances together",
        by_age,
    );
    registry.register(
        "runs_waiting_seconds",
        "Seconds for which the oldest of them has waited; of all instances together",
        ConstGauge::new(waiting.oldest_secs),
    );
}

fn of_label<const N: usize>(label: &'static str, counts: [(&'static str, i64); N]) -> Family<[Label; 1], Gauge> {
    let family = Family::<[Label; 1], Gauge>::default();
    for (value, count) in counts {
        family.get_or_create(&[(label, value)]).set(count);
    }
    family
}
