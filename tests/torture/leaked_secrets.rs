//! S10: searches the product's log for every secret that a history knows.
//!
//! It searches the complete log at TRACE, and prints only what `RUST_LOG` selects.

use std::fmt::{self, Write as _};
use std::io;
use std::sync::{Mutex, RwLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());
static LEAKED: Mutex<Option<String>> = Mutex::new(None);

/// From now on, no line of the log may contain this.
pub(crate) fn watch_secret(secret: impl Into<String>) {
    let (secret, mut secrets) = (secret.into(), SECRETS.write().unwrap());
    if !secrets.contains(&secret) {
        secrets.push(secret);
    }
}

/// The first line that contained a secret; returned once.
pub(crate) fn take_leaked_line() -> Option<String> {
    LEAKED.lock().unwrap().take()
}

/// Searches all log output from now on, and prints what `RUST_LOG` selects, for example `RUST_LOG=ledger=debug`.
pub(crate) fn search_log() {
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    let printed = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_filter(wanted);
    tracing_subscriber::registry().with(printed).with(Search).init();
    let ours = "torture-canary-5e0d";
    watch_secret(ours);
    tracing::trace!(ours);
    assert!(take_leaked_line().is_some(), "the search is blind");
}

/// Formats only the fields of events and spans, because there are thousands per second.
struct Search;

impl<S: Subscriber> Layer<S> for Search {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        search(|line| attributes.record(line));
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        search(|line| values.record(line));
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        search(|line| event.record(line));
    }
}

/// The fields of an event or span, one after another.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{field}={value:?} ");
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, "{field}={value} ");
    }
}

fn search(record: impl FnOnce(&mut Line)) {
    let mut line = Line::default();
    record(&mut line);
    if SECRETS.read().unwrap().iter().any(|secret| line.0.contains(secret)) {
        LEAKED.lock().unwrap().get_or_insert(line.0);
    }
}
