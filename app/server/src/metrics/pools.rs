//! Steps 1 and 7 of 7: the use of the database pools on `/metrics`, by purpose.

use db::PgPool;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::MetricLabel;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Purpose {
    pool: MetricLabel,
}

/// Adds the gauges of all pools.
pub(super) fn register_gauges(registry: &mut Registry, pools: &[(&'static str, &PgPool)]) {
    let (used, waiting) = (Family::<Purpose, Gauge>::default(), Family::<Purpose, Gauge>::default());
    let timed_out = Family::<Purpose, Counter>::default();
    for &(name, pool) in pools {
        let (purpose, current) = (Purpose { pool: MetricLabel(name) }, pool.current_use());
        used.get_or_create(&purpose).set(i64::try_from(current.used).unwrap_or(i64::MAX));
        waiting.get_or_create(&purpose).set(i64::try_from(current.waiting).unwrap_or(i64::MAX));
        timed_out.get_or_create(&purpose).inc_by(current.timed_out);
    }
    registry.register("db_connections_used", "Database connections in use, by pool", used);
    registry.register("db_connection_waits", "Callers that wait for a database connection now, by pool", waiting);
    registry.register(
        "db_connection_timeouts",
        "Callers that got no database connection within 5 s, by pool",
        timed_out,
    );
}
