//! No event is lost by a filter, in a process of its own: other subscribers in a process hide the loss.

use std::process::Command;

use tracing::callsite::{Callsite, Identifier};
use tracing::field::FieldSet;
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, dispatcher};

/// What the crate `log` asks for sqlx before each statement: whether lines about it are wanted.
struct Question;

static QUESTION: Question = Question;
static ASKED: Metadata<'static> = Metadata::new(
    "statement",
    "sqlx::query",
    Level::DEBUG,
    None,
    None,
    None,
    FieldSet::new(&[], Identifier(&QUESTION)),
    Kind::HINT,
);

impl Callsite for Question {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &ASKED
    }
}

/// Logs events after questions, as an app that waits for its database; the other test starts it.
#[test]
#[ignore = "writes the log that the other test reads"]
fn log_after_questions() {
    logging::start_log(logging::Form::Json, "info");
    for _ in 0..3 {
        assert!(!dispatcher::get_default(|log| log.enabled(&ASKED)), "the line about the statement is not wanted");
        tracing::debug!(target: "app", "event of the app");
        assert!(!dispatcher::get_default(|log| log.enabled(&ASKED)));
        tracing::info!(target: "ledger", "event of the ledger");
    }
}

/// With a filter of one layer, the event after a question was lost.
#[test]
fn no_event_is_lost_after_a_question() {
    for filter in ["info,app=debug", "info,sqlx=warn,app=debug"] {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["log_after_questions", "--exact", "--ignored", "--nocapture"]).env("RUST_LOG", filter);
        let output = command.output().expect("it runs");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
        let events = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        assert_eq!((events("event of the app"), events("event of the ledger")), (3, 3), "{filter}: {log}");
    }
}
