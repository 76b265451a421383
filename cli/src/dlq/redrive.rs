//! `cronbox dlq redrive`: step 6 of 7, run by an operator. Post, wait for the app's answer, delete: in this order.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use dead_letters::{DeadMessage, FireClient, FireKey, Queue};
use futures::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use schedule::Delivered;

use super::in_flight::{InFlight, Stop};
use super::ledger::Known;
use super::place::{At, open_queue, require_all_found};
use super::table::MessageView;
use super::text::{message_line, why_it_stays};
use crate::client::Opener;
use crate::output::{OutputOrJson, Stream};
use crate::print::print_text;

/// After this many batches in a row without an answer of the app, the redrive stops.
const STRIKES: u32 = 3;

/// The arguments of `redrive`.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    opener: Opener,
    /// Only these messages, by message id (default: all)
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    ids: Vec<String>,
    /// Print what would be posted; post and delete nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputOrJson,
}

/// The result for one message.
enum Fate {
    /// The app answered for it, and it is deleted.
    Delivered(Delivered),
    /// The app answered for it, but it could not be deleted; posting it again is safe.
    Undeleted(String),
    /// The app did not answer for it.
    Unanswered(String),
    /// There is nothing to post.
    Unposted(String),
    /// It would be posted.
    Postable,
}

/// The results of a redrive.
#[derive(Default)]
struct Tally {
    seen: Vec<DeadMessage>,
    deleted: u64,
    stay: u64,
    strikes: u32,
}

/// One redrive.
struct Redrive<'a> {
    arguments: &'a Arguments,
    queue: &'a Queue,
    /// `None` in a dry run.
    client: Option<(FireClient, FireKey)>,
    bar: ProgressBar,
}

/// Posts all fires that can be posted.
///
/// # Errors
/// Fails if the queue cannot be read, or if the app answers for no fire of several batches in a row.
pub(super) async fn redrive_messages(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let client = if arguments.dry_run { None } else { Some(arguments.opener.connect()?) };
    let queue = open_queue(&arguments.at).await;
    let mut in_flight = InFlight::new(&queue, Stop::by_signal()?);
    let redrive = Redrive { arguments, queue: &queue, client, bar: bar(&queue, arguments).await? };
    let output = arguments.output.resolve();
    let (mut tally, mut stream) = (Tally::default(), Stream::new(output));
    let ended = redrive.all(&mut in_flight, &mut tally, &mut stream).await;
    let is_stopped = in_flight.is_stopped();
    in_flight.put_back().await;
    redrive.bar.finish_and_clear();
    stream.end()?;
    if !output.is_for_programs() {
        print_text(&tally.summary(arguments.dry_run, is_stopped))?;
    }
    ended?;
    if is_stopped {
        return Ok(ExitCode::FAILURE);
    }
    require_all_found(&arguments.ids, &tally.seen)?;
    Ok(if arguments.dry_run || tally.stay == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// On standard error, and only if that is a terminal.
async fn bar(queue: &Queue, arguments: &Arguments) -> anyhow::Result<ProgressBar> {
    let length = if arguments.ids.is_empty() { queue.count_messages().await } else { Some(arguments.ids.len() as u64) };
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} messages, {eta} left")
        .context("cannot show the progress bar")?;
    Ok(ProgressBar::new(length.unwrap_or_default()).with_style(style))
}

impl Redrive<'_> {
    async fn all(&self, in_flight: &mut InFlight<'_>, tally: &mut Tally, stream: &mut Stream) -> anyhow::Result<()> {
        let ids = &self.arguments.ids;
        while ids.is_empty() || tally.seen.len() < ids.len() {
            let messages = in_flight.receive_new().await?;
            if messages.is_empty() {
                break;
            }
            let messages: Vec<DeadMessage> =
                messages.into_iter().filter(|message| ids.is_empty() || ids.contains(&message.id)).collect();
            let fates = join_all(messages.iter().map(|message| self.one(message))).await;
            tally.strike(&fates);
            for (message, fate) in messages.into_iter().zip(fates) {
                self.print_fate(&message, &fate, stream)?;
                if matches!(fate, Fate::Delivered(_)) {
                    in_flight.forget_message(&message);
                }
                tally.count(message, &fate);
            }
            if tally.strikes == STRIKES {
                bail!(
                    "the app answered for no message of the last {STRIKES} batches: the remaining messages stay in the queue"
                );
            }
        }
        Ok(())
    }

    /// Posts one message, and deletes it after the app's answer.
    async fn one(&self, message: &DeadMessage) -> Fate {
        let Some(fire) = message.fire() else {
            return Fate::Unposted(why_it_stays(message).unwrap_or_default());
        };
        let Some((client, key)) = &self.client else { return Fate::Postable };
        match client.post_fire(fire, key).await {
            Ok(delivered) => match self.queue.delete_message(&message.receipt).await {
                Ok(()) => Fate::Delivered(delivered),
                Err(error) => Fate::Undeleted(format!("{error:#}")),
            },
            Err(error) => Fate::Unanswered(format!("{error:#}")),
        }
    }

    fn print_fate(&self, message: &DeadMessage, fate: &Fate, stream: &mut Stream) -> anyhow::Result<()> {
        // A redrive goes on without a reader: what it deletes, the app has answered for.
        self.bar.inc(1);
        let view = MessageView::of(message, &Known::Unasked).with_outcome(fate.word(), fate.detail());
        let line = || format!("{} {}\n", message_line(message), fate.sentence());
        self.bar.suspend(|| stream.print_next(&view, line)).map(drop)
    }
}

impl Fate {
    fn word(&self) -> &'static str {
        match self {
            Fate::Delivered(Delivered::Accepted { .. }) => "accepted",
            Fate::Delivered(Delivered::Declined { .. }) => "declined",
            Fate::Delivered(Delivered::Gone) => "gone",
            Fate::Undeleted(_) => "undeleted",
            Fate::Unanswered(_) => "unanswered",
            Fate::Unposted(_) => "unposted",
            Fate::Postable => "postable",
        }
    }

    fn detail(&self) -> Option<&str> {
        match self {
            Fate::Delivered(Delivered::Accepted { run_id }) => run_id.as_deref(),
            Fate::Delivered(Delivered::Declined { reason }) => Some(reason),
            Fate::Undeleted(why) | Fate::Unanswered(why) | Fate::Unposted(why) => Some(why),
            Fate::Delivered(Delivered::Gone) | Fate::Postable => None,
        }
    }

    fn sentence(&self) -> String {
        let detail = self.detail().unwrap_or_default();
        match self {
            Fate::Delivered(Delivered::Accepted { .. }) => format!("accepted, run {detail}"),
            Fate::Delivered(Delivered::Declined { .. }) => format!("no new run: {detail}"),
            Fate::Delivered(Delivered::Gone) => "the workflow is gone".to_owned(),
            Fate::Undeleted(_) => format!("posted, but not deleted: {detail}"),
            Fate::Unanswered(_) | Fate::Unposted(_) => format!("stays: {detail}"),
            Fate::Postable => "would be posted".to_owned(),
        }
    }
}

impl Tally {
    /// Counts a posted batch if the app answered for none of its fires; any answer resets the count.
    fn strike(&mut self, fates: &[Fate]) {
        let is_taken = |fate: &Fate| matches!(fate, Fate::Delivered(_) | Fate::Undeleted(_));
        if fates.iter().any(is_taken) {
            self.strikes = 0;
        } else if fates.iter().any(|fate| matches!(fate, Fate::Unanswered(_))) {
            self.strikes += 1;
        }
    }

    fn count(&mut self, message: DeadMessage, fate: &Fate) {
        match fate {
            Fate::Delivered(_) => self.deleted += 1,
            Fate::Undeleted(_) | Fate::Unanswered(_) | Fate::Unposted(_) => self.stay += 1,
            Fate::Postable => {}
        }
        self.seen.push(message);
    }

    fn summary(&self, is_dry: bool, is_stopped: bool) -> String {
        let (seen, stay) = (self.seen.len() as u64, self.stay);
        let stopped = if is_stopped { "stopped: " } else { "" };
        match (seen, is_dry) {
            (0, _) => format!("{stopped}nothing\n"),
            (_, true) => format!("{stopped}{} would be posted, {stay} would remain\n", seen - stay),
            (_, false) => format!("{stopped}{} answered and deleted, {stay} remain\n", self.deleted),
        }
    }
}
