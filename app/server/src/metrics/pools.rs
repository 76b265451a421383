//! Steps 1 and 7 of 7: the use of the database pools on `/metrics`, by purpose.

use std::fmt;

use db::PgPool;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::MetricLabel;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Purpose {
    pool: MetricLabel,
}

/// The waits of all pools: a family, whose histograms are those of the pools themselves.
#[derive(Debug)]
struct WaitSeconds(Vec<(Purpose, Histogram)>);

impl EncodeMetric for WaitSeconds {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(purpose, seconds)| seconds.encode(encoder.encode_family(purpose)?))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Adds the metrics of all pools.
pub(super) fn register_pools(registry: &mut Registry, pools: &[(&'static str, &PgPool)]) {
    let gauge = Family::<Purpose, Gauge>::default;
    let (limits, used, idle, waiting) = (gauge(), gauge(), gauge(), gauge());
    let timed_out = Family::<Purpose, Counter>::default();
    for &(name, pool) in pools {
        let (purpose, current) = (purpose_of(name), pool.current_use());
        limits.get_or_create(&purpose).set(current.limit.into());
        for (family, count) in [(&used, current.used), (&idle, current.idle), (&waiting, current.waiting)] {
            family.get_or_create(&purpose).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        timed_out.get_or_create(&purpose).inc_by(current.timed_out);
    }
    registry.register("db_connections_limit", "Database connections that a pool may have, by pool", limits);
    registry.register("db_connections_used", "Database connections in use, by pool", used);
    registry.register("db_connections_idle", "Database connections that are open and not in use, by pool", idle);
    registry.register("db_connection_waits", "Callers that wait for a database connection now, by pool", waiting);
    registry.register(
        "db_connection_timeouts",
        "Callers that got no database connection within 5 s, by pool",
        timed_out,
    );
    let waits = pools.iter().map(|&(name, pool)| (purpose_of(name), pool.wait_seconds().clone()));
    registry.register(
        "db_connection_wait_seconds",
        "Seconds for which callers waited for a database connection, by pool",
        WaitSeconds(waits.collect()),
    );
}

fn purpose_of(name: &'static str) -> Purpose {
    Purpose { pool: MetricLabel(name) }
}
