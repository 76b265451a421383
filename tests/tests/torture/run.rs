//! The command line, and what is printed.

use std::process::ExitCode;
use std::time::Instant;

use crate::ablations::Variant;
use crate::canary;
use crate::ledger::Ablation;
use crate::torture::{About, Bad, Until, Verdict, torture};

/// Seeds that once found a fault, with what it was; they run first.
/// 500210: a start passed between the look at the clock and EventBridge's at the request.
const REGRESSIONS: [u64; 1] = [500_210];
/// What runs under `make test`.
const USUAL: u64 = 300;
/// They are longer.
const USUAL_OF_THE_LEDGER: u64 = 40;
/// Fewer may by chance lack what more would meet.
const ENOUGH_TO_JUDGE: usize = 400;
/// Within so many an ablation must have failed.
const ENOUGH: u64 = 1_000;

const SHIPPED: About = About::Publishing(Variant::Shipped);
const LEDGER: About = About::Ledger(Ablation::Shipped);

/// What was asked for.
struct Wish {
    histories: Option<u64>,
    seed: u64,
    only: Option<About>,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    // Under `cargo test NAME` every test program is started; a name that is not ours is for another.
    let is_ours = |name: &String| name.starts_with("--") || "torture".contains(name.as_str());
    let after =
        |flag: &str| arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1));
    let number = |flag: &str| after(flag).and_then(|value| value.parse::<u64>().ok());
    if number("--histories").is_none() && !arguments.iter().skip(1).all(is_ours)
        || arguments.iter().any(|a| a == "--list")
    {
        return ExitCode::SUCCESS;
    }
    canary::listen();
    let only = after("--variant").and_then(|name| named(name));
    let wish = Wish { histories: number("--histories"), seed: number("--seed").unwrap_or(1), only };
    let started = Instant::now();
    let verdict = match (wish.histories, wish.only) {
        (Some(count), Some(about)) => judged(&seeds(wish.seed, count), about),
        (Some(count), None) => both(&seeds(wish.seed, count), &seeds(wish.seed, count)),
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

/// Histories that are enough of them to be judged by what they met, too.
fn judged(seeds: &[u64], about: About) -> Verdict {
    let mut verdict = torture(seeds, about, Until::AllAreThrough);
    if verdict.histories >= ENOUGH_TO_JUDGE {
        verdict.gaps = match about {
            SHIPPED => verdict.coverage.gaps(verdict.histories),
            LEDGER => verdict.coverage.unsaid(verdict.histories),
            About::Publishing(_) | About::Ledger(_) => Vec::new(),
        };
    }
    verdict
}

/// Histories of publishing and of the ledger.
fn both(publishing: &[u64], ledger: &[u64]) -> Verdict {
    let mut verdict = judged(publishing, SHIPPED);
    let ledger = judged(ledger, LEDGER);
    verdict.bad.extend(ledger.bad);
    verdict.gaps.extend(ledger.gaps);
    verdict.coverage.add(ledger.coverage);
    verdict
}

fn usual() -> Verdict {
    let mut verdict = both(&[&REGRESSIONS[..], &seeds(1, USUAL)].concat(), &seeds(1, USUAL_OF_THE_LEDGER));
    // V5 and those of the ledger's leases need longer: `make torture N=100 VARIANT=V5`.
    let quick = Variant::ABLATIONS.into_iter().filter(|variant| !matches!(variant, Variant::V5));
    for about in quick.map(About::Publishing) {
        let ablation = torture(&seeds(1, ENOUGH), about, Until::OneIsBad);
        match ablation.bad.first() {
            Some(Bad { seed, why, .. }) => {
                println!("{} fails, as it must: seed {seed}, {} histories: {why}", about.name(), ablation.histories);
            }
            None => verdict.bad.push(Bad {
                about,
                seed: 1,
                why: format!("{} passes {ENOUGH} histories: the torture sees nothing", about.name()),
                trace: Vec::new(),
            }),
        }
    }
    verdict
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
