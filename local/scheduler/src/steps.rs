//! The lines that `cronbox-local` prints: each step when it happens, and warnings.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

use crate::clock::Clock;

/// Prints every event that carries a `step`, and every warning.
#[derive(Debug)]
pub struct Steps;

/// The app's span around a dry run: none of its steps happens.
const DRY_RUN: &str = "dry_run";

/// The parts of a line.
#[derive(Default)]
struct Line {
    step: Option<usize>,
    message: String,
    /// The field `error`.
    error: String,
    /// The other fields.
    rest: String,
}

/// Starts printing; call it once.
pub fn print_steps() {
    tracing_subscriber::registry().with(Steps.with_filter(LevelFilter::INFO)).init();
}

/// Prints a line. The reader may have exited, so a failure to print is ignored.
pub fn print_line(line: &str) {
    let _written = writeln!(std::io::stdout().lock(), "{line}");
}

/// Prints an event as one line: a name or an error of a client must neither begin a line nor control the terminal.
fn print_event(event: &str) {
    let is_refused = |one: char| one.is_control() || matches!(one, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    print_line(&event.replace(is_refused, "\u{fffd}"));
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Steps {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let is_dry_run = context.event_scope(event).is_some_and(|mut spans| spans.any(|span| span.name() == DRY_RUN));
        let mut line = Line::default();
        event.record(&mut line);
        let time = Clock::System.now().format("%H:%M:%S%.3fZ");
        let level = *event.metadata().level();
        match line.step {
            Some(_) if is_dry_run => {}
            Some(step) => print_event(&format!("{time}  {step}  {}{}", line.message, line.error)),
            None if level <= Level::WARN => {
                let Line { message, error, rest, .. } = line;
                print_event(&format!("{time}  !  {}: {message}{error}{rest}", level.as_str().to_lowercase()));
            }
            None => {}
        }
    }
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "step" {
            self.step = usize::try_from(value).ok();
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.error, ": {value:?}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }
}
