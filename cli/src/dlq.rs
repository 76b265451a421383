//! `cronbox dlq`: the fires that were not delivered, and what an operator can do about them.
//!
//! Three queues with three message formats are shown in one table. A message is deleted only after the app has answered
//! for its fire, or when an operator discards it.

mod in_flight;
mod ledger;
mod place;
mod redrive;
mod table;
mod text;

use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use dead_letters::{Content, DeadMessage};

use self::in_flight::{InFlight, Stop};
use self::ledger::Known;
use self::place::{At, open_queue, require_all_found};
use self::redrive::redrive_messages;
use self::table::MessageView;
use self::text::message_line;
use crate::client::{Access, Client, wait_for};
use crate::common::OperatorCommon;
use crate::listing::print_first;
use crate::output::{OutputOrJson, Stream};
use crate::print::{Printed, print_error};

/// What can be done about dead-letter messages.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List the messages: workflow, time, error, and the app's decision about that time.
    ///
    /// Returns all messages to the queue at once; but SQS counts each receive, so the receive counts of the messages
    /// rise. Says on standard error how many messages it does not list, because another receiver has them in flight.
    Ls(List),
    /// Show complete messages, as they are in the queue; returns them to the queue at once.
    Show(Show),
    /// Post each fire to the app, and delete its message after the app has answered for it.
    ///
    /// Safe to repeat, to interrupt and to run twice at once, because the app records each time once. Messages that the
    /// app does not answer for stay in the queue, and so do unreadable ones; exit 1 if there are any.
    Redrive(redrive::Arguments),
    /// Delete messages without posting them: their fires are lost, unless the app received them otherwise.
    ///
    /// For programs it prints each complete message before it is deleted, so that `-o json` can save them to a file.
    /// What cannot be printed stays in the queue.
    Discard(Discard),
}

/// The arguments of `ls`.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    common: OperatorCommon,
    /// Show at most this many.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

/// The arguments of `show`.
#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    common: OperatorCommon,
    /// The messages, by message id.
    #[arg(value_name = "ID", required = true, value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
}

/// The arguments of `discard`.
#[derive(Args)]
pub(crate) struct Discard {
    #[command(flatten)]
    at: At,
    /// The messages, by message id.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all", value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    /// All messages of the queue.
    #[arg(long, requires = "yes")]
    all: bool,
    /// Confirm --all.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    output: OutputOrJson,
}

/// How a discard ended.
enum Discarded {
    /// It has deleted these; no others that are selected are visible.
    All(Vec<DeadMessage>),
    /// The reader of standard output has closed it, so the messages from the first one on that was not printed stay.
    UntilClosed,
}

/// Runs the command.
pub(crate) fn run_dlq(verb: &Verb) -> anyhow::Result<ExitCode> {
    wait_for(async {
        match verb {
            Verb::Ls(list) => ls(list).await,
            Verb::Show(arguments) => show(arguments).await,
            Verb::Redrive(arguments) => redrive_messages(arguments).await,
            Verb::Discard(arguments) => discard(arguments).await,
        }
    })
}

async fn ls(list: &List) -> anyhow::Result<ExitCode> {
    let queue = open_queue(&list.at).await;
    let mut in_flight = InFlight::new(&queue, Stop::by_signal()?);
    // One more than is shown, which says that the queue has more.
    let messages = receive_wanted(&mut in_flight, list.limit.saturating_add(1), |_| true).await;
    // Before its own messages return: SQS's count, which may be old, would have them as those of another receiver.
    let elsewhere = in_flight.count_elsewhere().await.unwrap_or_default();
    in_flight.put_back().await;
    let messages = messages?;
    if elsewhere > 0 {
        print_error(&format!(
            "messages that another receiver has in flight are not listed (about {elsewhere}): repeat the command, because \
             the publisher returns its own within seconds"
        ));
    }
    let known = read_decisions(&list.common.access, &messages).await?;
    let rows: Vec<_> = messages.iter().zip(&known).map(|(message, known)| MessageView::of(message, known)).collect();
    print_first(list.common.output(), rows, list.limit)
}

async fn show(arguments: &Show) -> anyhow::Result<ExitCode> {
    let queue = open_queue(&arguments.at).await;
    let mut in_flight = InFlight::new(&queue, Stop::by_signal()?);
    let is_wanted = |message: &DeadMessage| arguments.ids.contains(&message.id);
    let messages = receive_wanted(&mut in_flight, arguments.ids.len(), is_wanted).await;
    in_flight.put_back().await;
    let messages = messages?;
    require_all_found(&arguments.ids, &messages)?;
    let known = read_decisions(&arguments.common.access, &messages).await?;
    let views = messages.iter().zip(&known).map(|(message, known)| MessageView::of(message, known).with_content());
    let views: Vec<_> = views.collect();
    arguments
        .common
        .output()
        .print_rows_with(&views, |_| views.iter().map(MessageView::full_text).collect::<Vec<_>>().join("\n"))
}

async fn discard(arguments: &Discard) -> anyhow::Result<ExitCode> {
    let queue = open_queue(&arguments.at).await;
    let mut in_flight = InFlight::new(&queue, Stop::by_signal()?);
    let mut stream = Stream::new(arguments.output.resolve());
    let discarded = discard_from(&mut in_flight, arguments, &mut stream).await;
    let is_stopped = in_flight.is_stopped();
    in_flight.put_back().await;
    stream.end()?;
    match discarded? {
        Discarded::All(_) if is_stopped => Ok(ExitCode::FAILURE),
        Discarded::All(discarded) => require_all_found(&arguments.ids, &discarded).map(|()| ExitCode::SUCCESS),
        Discarded::UntilClosed => {
            print_error("standard output is closed: the messages that were not printed stay in the queue");
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints each message before it is deleted, and deletes none that was not printed.
async fn discard_from(
    in_flight: &mut InFlight<'_>,
    arguments: &Discard,
    stream: &mut Stream,
) -> anyhow::Result<Discarded> {
    let mut discarded = Vec::new();
    while arguments.all || discarded.len() < arguments.ids.len() {
        let messages = in_flight.receive_new().await?;
        if messages.is_empty() {
            break;
        }
        for message in messages.into_iter().filter(|message| arguments.all || arguments.ids.contains(&message.id)) {
            let view = MessageView::of(&message, &Known::Unasked).with_content();
            let printed = stream.print_next(&view, || format!("discarded {}\n", message_line(&message)))?;
            if printed == Printed::Closed {
                return Ok(Discarded::UntilClosed);
            }
            in_flight.delete_message(&message).await?;
            discarded.push(message);
        }
    }
    Ok(Discarded::All(discarded))
}

/// Receives the selected messages, up to `limit`.
async fn receive_wanted(
    in_flight: &mut InFlight<'_>,
    limit: usize,
    is_wanted: impl Fn(&DeadMessage) -> bool,
) -> anyhow::Result<Vec<DeadMessage>> {
    let mut wanted = Vec::new();
    while wanted.len() < limit {
        let messages = in_flight.receive_new().await?;
        if messages.is_empty() {
            break;
        }
        wanted.extend(messages.into_iter().filter(&is_wanted));
    }
    wanted.truncate(limit);
    Ok(wanted)
}

/// Reads what the app knows about each message's time; after a failure of the app it sends no further requests.
async fn read_decisions(access: &Access, messages: &[DeadMessage]) -> anyhow::Result<Vec<Known>> {
    let client = Client::connect(access).await?;
    let mut known = Vec::new();
    let mut is_away = false;
    for message in messages {
        known.push(match &message.content {
            Content::Fire(fire) if !is_away => ledger::read_decision(&client, fire).await.unwrap_or_else(|error| {
                is_away = true;
                print_error(&format!("the app's decisions are unknown: {error:#}"));
                Known::Unasked
            }),
            _ => Known::Unasked,
        });
    }
    Ok(known)
}
