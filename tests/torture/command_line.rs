//! The command line and the output.

use std::process::ExitCode;
use std::time::Instant;

use crate::histories::{About, Bad, Until, Verdict, torture};
use crate::leaked_secrets::search_log;
use crate::ledger::Ablation;
use crate::publishing::ablations::Variant;

/// Seeds that once found a bug, with its description; they run first. 500210: a start passed between the publisher's
/// reading of the clock and EventBridge's at the request.
const REGRESSIONS: [u64; 1] = [500_210];
/// The numbers of histories of publishing and of the ledger, in `make test` and with `--full`.
const USUAL: [u64; 2] = [300, 200];
const FULL: [u64; 2] = [3_000, 1_000];
/// This many histories must contain all required events; fewer may lack some by chance.
const ENOUGH_TO_FAIL: usize = 100;
/// An ablation must have failed within this many histories; one of the ledger fails sooner.
const ENOUGH: u64 = 1_000;
const ENOUGH_OF_THE_LEDGER: u64 = 100;

const SHIPPED: About = About::Publishing(Variant::Shipped);
const LEDGER: About = About::Ledger(Ablation::Shipped);

/// The parsed arguments.
struct Arguments {
    histories: Option<u64>,
    seed: u64,
    only: Option<About>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    // `cargo test NAME` starts every test program; another name selects other tests.
    let is_ours = |name: &String| name.starts_with("--") || "torture".contains(name.as_str());
    let after =
        |flag: &str| arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1));
    let number = |flag: &str| after(flag).and_then(|value| value.parse::<u64>().ok());
    let is_full = arguments.iter().any(|argument| argument == "--full");
    if number("--histories").is_none() && !is_full && !arguments.iter().skip(1).all(is_ours)
        || arguments.iter().any(|a| a == "--list")
    {
        return ExitCode::SUCCESS;
    }
    search_log();
    let only = after("--variant").and_then(|name| named(name));
    let arguments = Arguments { histories: number("--histories"), seed: number("--seed").unwrap_or(1), only };
    let started = Instant::now();
    let verdict = match (arguments.histories, arguments.only) {
        (Some(count), Some(about)) => run_histories(&seeds(arguments.seed, count), about),
        (Some(count), None) => both(&seeds(arguments.seed, count), &seeds(arguments.seed, count)),
        (None, _) if is_full => full(arguments.seed),
        (None, _) => usual(),
    };
    report(&verdict);
    for gap in &verdict.gaps {
        println!("too rare for these histories to prove anything: {gap}");
    }
    println!("{:.1} s", started.elapsed().as_secs_f64());
    println!("{} histories, {} bad, {} kills", verdict.histories, verdict.bad.len(), verdict.coverage.kills);
    ExitCode::from(u8::from(!verdict.bad.is_empty() || !verdict.gaps.is_empty()))
}

fn named(name: &str) -> Option<About> {
    match name {
        "Ledger" => Some(LEDGER),
        "Shipped" => Some(SHIPPED),
        name => Variant::named(name).map(About::Publishing).or_else(|| Ablation::named(name).map(About::Ledger)),
    }
}

/// Runs histories. If there are enough, it also checks what they contained.
fn run_histories(seeds: &[u64], about: About) -> Verdict {
    let mut verdict = torture(seeds, about, Until::AllAreThrough);
    if verdict.histories >= ENOUGH_TO_FAIL {
        verdict.gaps = match about {
            SHIPPED => verdict.coverage.gaps(verdict.histories),
            LEDGER => verdict.coverage.unsaid(verdict.histories),
            About::Publishing(_) | About::Ledger(_) => Vec::new(),
        };
    }
    verdict
}

/// Runs histories of publishing and of the ledger.
fn both(publishing: &[u64], ledger: &[u64]) -> Verdict {
    let mut verdict = run_histories(publishing, SHIPPED);
    let ledger = run_histories(ledger, LEDGER);
    verdict.histories += ledger.histories;
    verdict.bad.extend(ledger.bad);
    verdict.gaps.extend(ledger.gaps);
    verdict.coverage.add(ledger.coverage);
    verdict
}

fn usual() -> Verdict {
    let [publishing, ledger] = USUAL;
    let mut verdict = both(&[&REGRESSIONS[..], &seeds(1, publishing)].concat(), &seeds(1, ledger));
    for about in ablations() {
        let known = torture(about.known_seeds(), about, Until::OneIsBad(about.noticed_by()));
        if !has_failed(about, &known) {
            println!("{} passes its known seeds {:?}: it is searched for others", about.name(), about.known_seeds());
            verdict.bad.extend(missed(about, 1));
        }
    }
    verdict
}

/// Runs more of everything, starting at a seed of the day.
fn full(seed: u64) -> Verdict {
    let [publishing, ledger] = FULL;
    let mut verdict = both(&seeds(seed, publishing), &seeds(seed, ledger));
    verdict.bad.extend(ablations().filter_map(|about| missed(about, seed)));
    verdict
}

fn ablations() -> impl Iterator<Item = About> {
    Variant::ABLATIONS.into_iter().map(About::Publishing).chain(Ablation::ALL.into_iter().map(About::Ledger))
}

/// Reports an ablation that does not fail within enough histories.
fn missed(about: About, seed: u64) -> Option<Bad> {
    let enough = if matches!(about, About::Ledger(_)) { ENOUGH_OF_THE_LEDGER } else { ENOUGH };
    let searched = torture(&seeds(seed, enough), about, Until::OneIsBad(about.noticed_by()));
    if has_failed(about, &searched) {
        return None;
    }
    let mut why = vec![format!("{} passes {enough} histories: the torture sees nothing", about.name())];
    why.extend(about.unmade());
    Some(Bad { about, seed, why: why.join("; "), trace: Vec::new() })
}

/// Whether an ablation has failed for the expected reason, and has made all its rewrites.
fn has_failed(about: About, verdict: &Verdict) -> bool {
    let failed = verdict.bad.iter().find(|bad| bad.why.starts_with(about.noticed_by()));
    if let Some(Bad { seed, why, .. }) = failed {
        println!("{} fails, as it must: seed {seed}, {} histories: {why}", about.name(), verdict.histories);
    }
    failed.is_some() && about.unmade().is_empty()
}

fn report(verdict: &Verdict) {
    for line in &verdict.replay {
        println!("    {line}");
    }
    for Bad { about, seed, why, trace } in &verdict.bad {
        for line in trace {
            println!("    {line}");
        }
        let variant = about.name();
        println!("seed {seed} is bad: {why}\n  replay: make torture N=1 SEED={seed} VARIANT={variant}");
    }
    println!("{}", verdict.coverage);
}

fn seeds(from: u64, count: u64) -> Vec<u64> {
    (from..from + count).collect()
}
