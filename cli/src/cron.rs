//! `cronbox cron explain`: explains a cron, offline.

mod explain;
mod explanation_text;
mod zone_files;

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use schedule::ZoneSet;

use crate::cron::explain::{Request, explain_cron};
use crate::cron::explanation_text::format_explanation;
use crate::print::{is_pipe_closed, print_json, print_text};

/// Exit code of bad input, the same as clap's.
const BAD_INPUT: u8 = 2;

/// The commands about crons.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Explain a cron: its meaning, the expression for EventBridge, and its next times.
    Explain(Explain),
}

/// The arguments of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// The cron: 5 fields, 6 with seconds first, 7 with the year last, a macro, or cron(...). Its fields may be written without
    /// quotes, unless the shell reads * as names of files.
    #[arg(value_name = "EXPR", required_unless_present = "stdin", conflicts_with = "stdin", num_args = 1..)]
    cron: Vec<String>,
    /// A name of the IANA database, for example Europe/Paris.
    #[arg(long, value_name = "TZ", default_value = "UTC", conflicts_with = "stdin")]
    timezone: String,
    /// Show times after this instant, RFC 3339 (default: now)
    #[arg(long, value_name = "RFC3339", conflicts_with = "stdin")]
    from: Option<String>,
    /// How many times to show, at most 1000.
    #[arg(long, value_name = "N", default_value_t = explain::DEFAULT_COUNT, conflicts_with = "stdin")]
    count: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Read one JSON request (cron, timezone, from, count) per line, and write one JSON answer per line.
    #[arg(long)]
    stdin: bool,
    /// A folder of zone files, for example /usr/share/zoneinfo (default: the zone data of this program)
    #[arg(long, value_name = "DIR", env = "CRONBOX_TZDIR")]
    tzdir: Option<PathBuf>,
}

/// Runs the command; bad input is exit code 2.
pub(crate) fn run_cron(verb: &Verb) -> anyhow::Result<ExitCode> {
    let Verb::Explain(arguments) = verb;
    let clock = schedule::Clock::System;
    if let Some(folder) = &arguments.tzdir {
        let set = zone_files::read_zones(folder).with_context(|| format!("cannot use {}", folder.display()))?;
        ZoneSet::install_set(set.into());
    }
    if arguments.stdin {
        return answer_lines(io::stdin().lock(), io::stdout().lock(), &clock);
    }
    let request = Request {
        cron: arguments.cron.join(" "),
        timezone: Some(arguments.timezone.clone()),
        from: arguments.from.clone(),
        count: Some(arguments.count),
    };
    let answer = explain_cron(&request, &clock);
    match (answer, arguments.json) {
        (Ok(explanation), true) => print_json(&explanation),
        (Ok(explanation), false) => print_text(&format_explanation(&explanation)),
        (Err(refusal), true) => print_json(&refusal).map(|_| BAD_INPUT.into()),
        (Err(refusal), false) => {
            eprintln!("cronbox: {}", refusal.error.message);
            Ok(BAD_INPUT.into())
        }
    }
}

/// Writes one answer per line, in order; a bad request gets an answer too, and later requests are still read.
fn answer_lines(requests: impl BufRead, mut answers: impl Write, clock: &schedule::Clock) -> anyhow::Result<ExitCode> {
    for line in requests.split(b'\n') {
        let line = line.context("could not read from standard input")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = Request::from_json(&line).and_then(|request| explain_cron(&request, clock));
        let answer = match &answer {
            Ok(explanation) => serde_json::to_string(explanation),
            Err(refusal) => serde_json::to_string(refusal),
        };
        if is_pipe_closed(writeln!(answers, "{}", answer?).and_then(|()| answers.flush()))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
