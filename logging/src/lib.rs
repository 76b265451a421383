//! The log of each program, on standard error: one event is one line, whatever text its fields have.
//!
//! Names, messages and errors have text of clients. A line break in it would begin a line of its own, which looks like
//! one of cronbox, and an escape code would control the terminal of the reader. So [`line`] escapes both, in all lines.

mod file;
mod line;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal as _};
use std::panic::{self, PanicHookInfo};
use std::str::FromStr;

use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub use file::LogFile;
use line::{LineWriter, Sequences};

/// The form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// For people; with colours if standard error is a terminal.
    #[default]
    Text,
    /// For programs: each line is one JSON object.
    Json,
}

impl FromStr for Form {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Form::Text),
            "json" => Ok(Form::Json),
            _ => Err("it must be text or json"),
        }
    }
}

/// Starts the log of this process, and logs panics in it. `RUST_LOG` replaces the filter. Call it once.
///
/// # Panics
/// Panics if the process has a log already.
pub fn start_log(form: Form, filter: &str) {
    let has_colours = form == Form::Text && io::stderr().is_terminal() && !is_without_colours();
    let sequences = if has_colours { Sequences::Kept } else { Sequences::Escaped };
    start(form, filter, has_colours, move || LineWriter::new(io::stderr(), sequences));
}

/// Starts the log of this process as JSON lines on standard error and in a file, otherwise like [`start_log`].
///
/// # Panics
/// Panics if the process has a log already.
pub fn start_log_in_file(filter: &str, file: LogFile) {
    let lines = move || LineWriter::new(file.clone(), Sequences::Escaped);
    start(Form::Json, filter, false, lines.and(|| LineWriter::new(io::stderr(), Sequences::Escaped)));
}

/// Starts the log of this process as JSON lines in a file, beside what `shown` prints of the same events, and logs panics
/// in both. Call it once.
///
/// # Panics
/// Panics if the process has a log already.
pub fn start_log_beside(shown: impl Layer<Registry> + Send + Sync + 'static, filter: &str, file: LogFile) {
    let lines = move || LineWriter::new(file.clone(), Sequences::Escaped);
    let lines = tracing_subscriber::fmt::layer().json().log_internal_errors(false).with_writer(lines);
    // The filter is of the complete subscriber, see `new_subscriber`.
    tracing_subscriber::registry().with(shown).with(lines).with(EnvFilter::new(filter)).init();
    panic::set_hook(Box::new(log_panic));
}

fn start<W>(form: Form, filter: &str, has_colours: bool, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, refused) = choose_filter(named_filter(), filter);
    new_subscriber(form, filter, has_colours, writer).init();
    panic::set_hook(Box::new(log_panic));
    if let Some(error) = refused {
        tracing::warn!(%error, "RUST_LOG is not a filter and is ignored");
    }
}

#[expect(clippy::disallowed_methods, reason = "the variable is of no program, but of the library")]
fn named_filter() -> Option<String> {
    std::env::var("RUST_LOG").ok()
}

/// Returns the filter of the environment, or the default one, and why that of the environment is none.
fn choose_filter(environment: Option<String>, default: &str) -> (EnvFilter, Option<ParseError>) {
    match environment.filter(|text| !text.is_empty()).map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(error)) => (EnvFilter::new(default), Some(error)),
        None => (EnvFilter::new(default), None),
    }
}

/// Returns the subscriber of a log with this form.
///
/// The filter is of the complete subscriber. A filter of one layer would lose the event after a question whether another
/// one is wanted, as sqlx asks it for each statement.
fn new_subscriber<W>(form: Form, filter: EnvFilter, has_colours: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // If a line cannot be written because the reader of the pipe has exited, it is lost; it must not end a task.
    let log = tracing_subscriber::fmt().log_internal_errors(false);
    let log = log.with_env_filter(filter).with_ansi(has_colours).with_writer(writer);
    match form {
        Form::Text => Box::new(log.finish()),
        Form::Json => Box::new(log.json().finish()),
    }
}

/// The convention of <https://no-color.org>.
#[expect(clippy::disallowed_methods, reason = "the variable is of no program, and the library reads it here, too")]
fn is_without_colours() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    let message = panic.payload_as_str().unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(place, error = message, backtrace, "panicked");
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(form: Form, filter: &str, events: impl FnOnce()) -> String {
        logged_to(Sequences::Escaped, form, filter, events)
    }

    fn logged_to(sequences: Sequences, form: Form, filter: &str, events: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let writer = move || LineWriter::new(writer.clone(), sequences);
        let has_colours = sequences == Sequences::Kept;
        tracing::subscriber::with_default(new_subscriber(form, EnvFilter::new(filter), has_colours, writer), events);
        written.text()
    }

    #[test]
    fn a_wrong_filter_is_reported() {
        let (filter, refused) = choose_filter(Some("info,app=none".to_owned()), "warn");
        assert!(refused.is_some() && filter.to_string() == "warn", "{filter}");
        for (environment, expected) in [(None, "warn"), (Some(""), "warn"), (Some("debug"), "debug")] {
            let (filter, refused) = choose_filter(environment.map(str::to_owned), "warn");
            assert!(refused.is_none() && filter.to_string() == expected, "{filter}");
        }
    }

    /// A client may write lines that look like those of cronbox, or codes that control a terminal.
    #[test]
    fn text_of_clients_stays_in_its_line() {
        let forged = "hi\n2026-11-21T23:59:59Z ERROR app: FORGED\r\u{1b}[2J\u{85}\u{2028}\u{2029}\u{202e}\u{7f}\t\0 é";
        let events = || {
            tracing::info!(text = forged, "as a field");
            tracing::info!(text = %forged, "as it is displayed");
            tracing::info!(text = ?forged, "as it is debugged");
            tracing::info!("in the message: {forged}");
        };
        for form in [Form::Text, Form::Json] {
            let log = logged(form, "info", events);
            assert_eq!(log.lines().count(), 4, "{log}");
            assert_eq!(log.chars().filter(|one| one.is_control()).collect::<String>(), "\n\n\n\n", "{log}");
            assert!(!log.contains(['\u{2028}', '\u{2029}', '\u{202e}']), "{log}");
            assert_eq!(log.matches('é').count(), 4, "{log}");
        }
        for line in logged(Form::Json, "info", events).lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = &event["fields"];
            let text = fields["text"].as_str().unwrap_or_else(|| fields["message"].as_str().unwrap());
            assert!(text.contains("FORGED"), "{line}");
        }
    }

    /// There the colours of the formatter are kept, and no other sequence.
    #[test]
    fn text_of_clients_controls_no_terminal() {
        let forged = "hi\u{1b}[2J\u{1b}]0;title\u{7}\u{1b}[8m";
        let log = logged_to(Sequences::Kept, Form::Text, "info", || {
            tracing::info!(text = forged, "as a field");
            tracing::info!(text = %forged, "as it is displayed");
            tracing::info!(text = ?forged, "as it is debugged");
            tracing::info!("in the message: {forged}");
        });
        assert!(log.contains("\u{1b}[32m INFO\u{1b}[0m"), "{log:?}");
        for code in ["\u{1b}[2J", "\u{1b}]0", "\u{1b}[8m", "\u{7}"] {
            assert!(!log.contains(code), "{log:?}");
        }
        assert_eq!(log.lines().count(), 4, "{log:?}");
    }

    #[test]
    fn the_json_form_is_that_of_lambdas() {
        let log = logged(Form::Json, "info", || tracing::warn!(target: "app", workflow_id = 12, "run accepted"));
        let event: serde_json::Value = serde_json::from_str(&log).unwrap();
        assert_eq!((&event["level"], &event["target"]), (&"WARN".into(), &"app".into()));
        assert_eq!(event["fields"], serde_json::json!({"message": "run accepted", "workflow_id": 12}));
        assert!(event["timestamp"].is_string(), "{log}");
    }
}
