//! Traces: the spans of each program, sent to the operator's OpenTelemetry collector by OTLP over HTTP.
//!
//! Off without `OTEL_EXPORTER_OTLP_ENDPOINT`: then a span is `None`, and beginning one checks only that. A collector that is
//! dead, slow or wrong changes no decision: spans wait in a bounded queue, and are dropped and counted if it is full.
//!
//! A span has ids, codes and names of hosts. It never has a header, a body, or a URL with its path or query, because these
//! may contain secrets.

mod export;
mod queue;
mod span;
mod traceparent;

pub use export::{flush, start_export};
pub use queue::{Dropped, dropped_spans, take_dropped_spans};
pub use span::{Kind, Parent, Span, current_span};
