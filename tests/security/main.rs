//! Attacks on the app's program, on a real Postgres. Each returns how many tries it made and what got through.
//!
//! `make security` runs all of them, in a network namespace of their own if the machine allows it, and prints one table.
//! Anything that gets through fails the program, unless `expected_open.rs` lists it. `--only A,B` runs the attacks whose
//! names contain A or B.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod action_headers;
mod addresses;
mod bad_keys;
mod bombs;
mod browser;
mod canaries;
mod cursors;
mod expected_open;
mod ground;
mod identity_provider;
mod lenience;
mod log_lines;
mod matrix;
mod name_servers;
mod network;
mod parsers;
mod process;
mod properties;
mod raw;
mod receivers;
mod report;
mod slow_clients;
mod smuggling;
mod stored_headers;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _};

use self::report::Tally;

/// No attack takes longer than this; one that does got through.
const LIMIT: Duration = Duration::from_secs(600);

/// Attacks at once. Each has its own database and app, and most of them wait.
const AT_ONCE: usize = 3;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Size {
    /// For each change: some minutes.
    Ci,
    /// Before a release.
    Full,
}

#[derive(Parser)]
struct Arguments {
    /// How much is tried
    #[arg(long, value_enum, default_value = "ci")]
    size: Size,
    /// Runs only the attacks whose names contain one of these texts
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The network is a namespace of its own, in which every address is this machine's, as scripts/security.sh makes it
    #[arg(long)]
    isolated: bool,
}

/// One row of the table.
struct Attack {
    name: &'static str,
    begin: fn(Size) -> LocalBoxFuture<'static, Tally>,
}

static ATTACKS: [Attack; 36] = [
    Attack { name: "matrix", begin: |size| matrix::attack_routes(size).boxed_local() },
    Attack { name: "lists of other teams", begin: |_| matrix::attack_lists().boxed_local() },
    Attack { name: "addresses", begin: |size| addresses::attack_addresses(size).boxed_local() },
    Attack { name: "cloud platform addresses", begin: |_| addresses::attack_platforms().boxed_local() },
    Attack { name: "clear-text actions", begin: |_| addresses::attack_clear_text().boxed_local() },
    Attack { name: "lying name servers", begin: |_| name_servers::attack_by_lies().boxed_local() },
    Attack { name: "silent name servers", begin: |_| name_servers::attack_by_silence().boxed_local() },
    Attack { name: "malicious receivers", begin: |_| receivers::attack_by_answers().boxed_local() },
    Attack { name: "endless 100s", begin: |_| receivers::attack_by_endless_100s().boxed_local() },
    Attack { name: "headers kept on a new origin", begin: |_| stored_headers::attack_origins().boxed_local() },
    Attack { name: "reserved action headers", begin: |_| action_headers::attack_headers().boxed_local() },
    Attack { name: "slow headers", begin: |_| slow_clients::attack_by_headers().boxed_local() },
    Attack { name: "slow bodies", begin: |_| slow_clients::attack_by_bodies().boxed_local() },
    Attack { name: "unfinished sign-ins", begin: |_| slow_clients::attack_by_forms().boxed_local() },
    Attack { name: "slow reads", begin: |_| slow_clients::attack_by_reads().boxed_local() },
    Attack { name: "idle connections", begin: |_| slow_clients::attack_by_idleness().boxed_local() },
    Attack { name: "smuggling", begin: |_| smuggling::attack_framing().boxed_local() },
    Attack { name: "lenient requests", begin: |_| lenience::attack_requests().boxed_local() },
    Attack { name: "names that look alike", begin: |_| lenience::attack_names().boxed_local() },
    Attack { name: "missing response headers", begin: |_| lenience::attack_browsers().boxed_local() },
    Attack { name: "docs in a browser", begin: |_| browser::attack_docs().boxed_local() },
    Attack { name: "JSON bombs", begin: |_| bombs::attack_by_json().boxed_local() },
    Attack { name: "YAML bombs", begin: |_| bombs::attack_by_yaml().boxed_local() },
    Attack { name: "forged cursors", begin: |size| cursors::attack_cursors(size).boxed_local() },
    Attack { name: "texts: cursors", begin: |size| parsers::attack_parser(&parsers::CURSORS, size).boxed_local() },
    Attack { name: "texts: keys", begin: |size| parsers::attack_parser(&parsers::KEYS, size).boxed_local() },
    Attack { name: "texts: URLs", begin: |size| parsers::attack_parser(&parsers::URLS, size).boxed_local() },
    Attack {
        name: "texts: references",
        begin: |size| parsers::attack_parser(&parsers::REFERENCES, size).boxed_local(),
    },
    Attack { name: "texts: actions", begin: |size| parsers::attack_parser(&parsers::ACTIONS, size).boxed_local() },
    Attack { name: "bad keys in the database", begin: |_| bad_keys::attack_by_bad_keys().boxed_local() },
    Attack { name: "log lines", begin: |_| log_lines::attack_log().boxed_local() },
    Attack { name: "canaries in the log", begin: |_| canaries::attack_log().boxed_local() },
    Attack { name: "canaries in the audit log", begin: |_| canaries::attack_audit().boxed_local() },
    Attack { name: "canaries in answers", begin: |_| canaries::attack_answers().boxed_local() },
    Attack { name: "canaries at rest", begin: |_| canaries::attack_tables().boxed_local() },
    Attack { name: "keys at rest", begin: |_| canaries::attack_keys().boxed_local() },
];

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    for listed in expected_open::listed_attacks() {
        assert!(ATTACKS.iter().any(|attack| attack.name == listed), "expected_open.rs: no attack is called {listed}");
    }
    network::set_isolated(arguments.isolated);
    println!("network: {}", network::describe());
    let selected = ATTACKS.iter().filter(|attack| is_selected(attack.name, &arguments.only));
    let attacks = futures::stream::iter(selected).map(|attack| run_attack(attack, arguments.size));
    let tallies: Vec<_> = attacks.buffered(AT_ONCE).collect().await;
    if report::print_report(&tallies) && !tallies.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run_attack(attack: &'static Attack, size: Size) -> (&'static str, Tally) {
    let began = Instant::now();
    let tally = end_of((attack.begin)(size)).await;
    println!("{}: {} tries, {} through, {:.0?}", attack.name, tally.tries, tally.through.len(), began.elapsed());
    (attack.name, tally)
}

fn is_selected(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|text| name.contains(text.as_str()))
}

/// An attack that panics or does not end has got through: the product did what the attack did not foresee.
async fn end_of(attack: LocalBoxFuture<'static, Tally>) -> Tally {
    let mut broken = Tally { tries: 1, is_broken: true, ..Tally::default() };
    match tokio::time::timeout(LIMIT, AssertUnwindSafe(attack).catch_unwind()).await {
        Ok(Ok(tally)) => return tally,
        Ok(Err(panic)) => {
            let text = panic.downcast_ref::<String>().cloned();
            broken.fail(text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default());
        }
        Err(_) => broken.fail(format!("it does not end within {} s", LIMIT.as_secs())),
    }
    broken
}
