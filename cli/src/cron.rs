//! `cronbox cron explain`: what a cron means, offline.

mod explain;
mod plain;
mod zone_files;

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand};
use schedule::ZoneSet;

use crate::cron::explain::Request;
use crate::print;

/// Exit code of bad input, as clap uses it too.
const BAD_INPUT: u8 = 2;

/// What can be asked of a cron.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Say what a cron means, what EventBridge gets, and when it fires next.
    Explain(Explain),
}

/// The arguments of `explain`.
#[derive(Args)]
pub(crate) struct Explain {
    /// The cron: 5 fields, 6 with seconds first, 7 with the year last, a macro, or cron(...).
    #[arg(
        value_name = "EXPR",
        required_unless_present = "stdin",
        conflicts_with = "stdin",
        allow_hyphen_values = true
    )]
    cron: Option<String>,
    /// A name of the IANA database, such as Europe/Paris.
    #[arg(long, value_name = "TZ", default_value = "UTC", conflicts_with = "stdin")]
    timezone: String,
    /// The instant after which to look, RFC 3339; now, if it is not given.
    #[arg(long, value_name = "RFC3339", conflicts_with = "stdin")]
    from: Option<String>,
    /// How many times to show, at most 1000.
    #[arg(long, value_name = "N", default_value_t = explain::DEFAULT_COUNT, conflicts_with = "stdin")]
    count: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Answer one JSON request (cron, timezone, from, count) a line with one JSON answer a line.
    #[arg(long)]
    stdin: bool,
    /// A folder of zone files, such as /usr/share/zoneinfo; the zone data of this program, if it is not given.
    #[arg(long, value_name = "DIR", env = "CRONBOX_TZDIR")]
    tzdir: Option<PathBuf>,
}

/// Does what was asked; bad input is exit code 2.
pub(crate) fn run(verb: &Verb) -> anyhow::Result<ExitCode> {
    let Verb::Explain(arguments) = verb;
    let clock = schedule::Clock::System;
    if let Some(folder) = &arguments.tzdir {
        let set = zone_files::read_zones(folder).with_context(|| format!("cannot use {}", folder.display()))?;
        ZoneSet::install(set.into());
    }
    if arguments.stdin {
        return answer_lines(io::stdin().lock(), io::stdout().lock(), &clock);
    }
    let request = Request {
        cron: arguments.cron.clone().unwrap_or_default(),
        timezone: Some(arguments.timezone.clone()),
        from: arguments.from.clone(),
        count: Some(arguments.count),
    };
    let answer = explain::explain(&request, &clock);
    match (answer, arguments.json) {
        (Ok(explanation), true) => print::json(&explanation),
        (Ok(explanation), false) => print::text(&plain::text(&explanation)),
        (Err(refusal), true) => print::json(&refusal).map(|_| BAD_INPUT.into()),
        (Err(refusal), false) => {
            eprintln!("cronbox: {}", refusal.error.message);
            Ok(BAD_INPUT.into())
        }
    }
}

/// One answer a line, in order; a bad request is answered too and ends nothing.
fn answer_lines(requests: impl BufRead, mut answers: impl Write, clock: &schedule::Clock) -> anyhow::Result<ExitCode> {
    for line in requests.split(b'\n') {
        let line = line.context("could not read from standard input")?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = Request::from_json(&line).and_then(|request| explain::explain(&request, clock));
        let answer = match &answer {
            Ok(explanation) => serde_json::to_string(explanation),
            Err(refusal) => serde_json::to_string(refusal),
        };
        if print::told_no_more(writeln!(answers, "{}", answer?).and_then(|()| answers.flush()))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
