//! Steps 1 and 7 of 7: the requests of this instance on `/metrics`: their rate, errors and duration, by route.
//!
//! A route is a row of the table of routes, so the number of series is limited, whatever clients request.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper limits of the buckets in seconds; a request takes 30 s at most.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// The label of requests that the table of routes does not have: the pages of the description, and paths that no route serves.
const OTHER_ROUTE: &str = "other";

type MethodAndRoute = [(&'static str, &'static str); 2];
type WithStatus = [(&'static str, &'static str); 3];

/// The requests of this instance since its start; clones share the counts.
#[derive(Clone, Debug)]
pub struct Requests {
    answered: Family<WithStatus, Counter>,
    seconds: Family<MethodAndRoute, Histogram, fn() -> Histogram>,
    in_flight: Gauge,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            answered: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Gauge::default(),
        }
    }
}

impl Requests {
    /// Counts a request whose answer begins now.
    pub(crate) fn begin_request(&self) {
        self.in_flight.inc();
    }

    /// Counts the answer to a request; `route` is `None` if the table of routes does not have it.
    pub(crate) fn end_request(&self, method: &'static str, route: Option<&'static str>, status: u16, took: Duration) {
        self.in_flight.dec();
        let [method, route] = [("method", method), ("route", route.unwrap_or(OTHER_ROUTE))];
        self.answered.get_or_create(&[method, route, ("status", status_class(status))]).inc();
        self.seconds.get_or_create(&[method, route]).observe(took.as_secs_f64());
    }

    /// Adds the metrics.
    pub(super) fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "http_requests",
            "Answered requests, by method, route of the description and class of the status; 4xx has also the clients that disconnected",
            self.answered.clone(),
        );
        registry.register(
            "http_request_duration_seconds",
            "Seconds from the head of a request to the head of its answer, by method and route of the description",
            self.seconds.clone(),
        );
        registry.register("http_requests_in_flight", "Requests that this instance answers now", self.in_flight.clone());
    }
}

fn status_class(status: u16) -> &'static str {
    match status / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}
