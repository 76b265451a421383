//! `make bench`: measures the binaries that ship. Prints a table, and writes JSON to `target/bench/`.
//!
//! Machines differ, so a case fails only by a ratio within the same run, and some cases have no goal. The numbers of
//! the cases are those of docs/performance.md.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on fails")]

mod backlog;
mod cold_start;
mod console_pages;
mod drain;
mod edits;
mod empty_handler;
mod fairness;
mod fire_costs;
mod fires;
mod history;
mod invoke;
mod large_table;
mod load_generator;
mod memory;
mod notification_rules;
mod open_transaction;
mod outage;
mod poolers;
mod process_start;
mod publish_latency;
mod queue_comparison;
mod quota;
mod receiver;
mod service;
mod sweep;
mod table;
mod watchdog;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use executor::claim::Slots;
use local::config::target_folder;

/// How many rows the cases with large tables have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// As many as a machine makes within minutes.
    Usual,
    /// As many as the goals name, or as fit into half of the free disk.
    Full,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let value =
        |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    if let Some(address) = value(empty_handler::ARGUMENT) {
        empty_handler::serve(address.parse().unwrap()).await;
        return ExitCode::SUCCESS;
    }
    let only = value("--only");
    let size = match value("--size").map(String::as_str) {
        None | Some("usual") => Size::Usual,
        Some("full") => Size::Full,
        Some(other) => panic!("--size {other}: write usual or full"),
    };
    let wanted = |case: &str| only.is_none_or(|only| only.split(',').any(|name| name == case));
    let mut rows = Vec::new();
    if wanted("B1") {
        rows.extend(table::shown(drain::all().await));
    }
    if wanted("B2") {
        rows.extend(table::shown(queue_comparison::all().await));
    }
    if wanted("B3") {
        rows.extend(table::shown(quota::all().await));
    }
    if wanted("B4") {
        rows.extend(table::shown(open_transaction::all().await));
    }
    if wanted("B5") {
        rows.extend(table::shown(publish_latency::all().await));
    }
    if wanted("B6") {
        rows.extend(table::shown(edits::all().await));
    }
    if wanted("B7") {
        rows.extend(table::shown(invoke::all().await));
        rows.extend(table::shown(fire_costs::all().await));
        rows.extend(table::shown(notification_rules::all().await));
    }
    if wanted("B8") {
        rows.extend(table::shown(cold_start::all().await));
        rows.extend(table::shown(vec![process_start::app_to_ready(9).await, process_start::up_to_ready(5).await]));
    }
    if wanted("B9") {
        rows.extend(table::shown(sweep::all().await));
    }
    if wanted("B10") {
        rows.extend(table::shown(fires::all().await));
    }
    if wanted("B11") {
        rows.extend(table::shown(watchdog::all().await));
    }
    if wanted("B12") {
        rows.extend(table::shown(fairness::all().await));
    }
    if wanted("B13") {
        rows.extend(table::shown(large_table::all(size).await));
    }
    if wanted("B14") {
        rows.extend(table::shown(outage::all(size).await));
    }
    if wanted("B15") {
        rows.extend(table::shown(memory::all().await));
    }
    if wanted("B16") {
        rows.extend(table::shown(poolers::all().await));
    }
    if wanted("B17") {
        rows.extend(table::shown(console_pages::all(size).await));
    }
    table::evaluate_rows(&rows)
}

pub(crate) fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

/// A program that `make bench` has built. A debug build in another folder would give wrong figures.
pub(crate) fn program(name: &str) -> PathBuf {
    let built = target_folder().join("release").join(name);
    assert!(built.exists(), "{name} is missing: run `cargo build --release --workspace --bins`");
    built
}

/// An executor with so many slots, which are all free for one team.
pub(crate) fn free_slots(slots: i64) -> Slots {
    Slots::all_free(slots)
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
