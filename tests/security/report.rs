//! What the attacks tried, and what got through: one row of the table for each.

use crate::expected_open::finding_of;

/// How many of the things that got through are printed for one attack, and for one that is expected to get through.
const SHOWN: (usize, usize) = (12, 2);

/// What one attack tried.
#[derive(Default)]
pub(crate) struct Tally {
    /// How many requests, addresses or connections were tried.
    pub(crate) tries: usize,
    /// What got through, one sentence each.
    pub(crate) through: Vec<String>,
    /// Whether the attack itself failed, so that it says nothing about its finding.
    pub(crate) is_broken: bool,
    /// Why the attack cannot run on this machine.
    pub(crate) skipped: Option<&'static str>,
}

impl Tally {
    /// Counts one try; `what` describes it if it got through.
    pub(crate) fn record(&mut self, is_refused: bool, what: impl FnOnce() -> String) {
        self.tries += 1;
        if !is_refused {
            self.through.push(what());
        }
    }

    /// Adds something that got through and is no try of its own.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.through.push(what.into());
    }

    /// Adds the tries of another part of the same attack.
    pub(crate) fn add(&mut self, other: Tally) {
        self.tries += other.tries;
        self.through.extend(other.through);
    }

    /// An attack that needs what this machine does not have.
    pub(crate) fn skipped(why: &'static str) -> Self {
        Self { skipped: Some(why), ..Self::default() }
    }
}

/// How an attack ended, compared with what is expected of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nothing got through.
    Closed,
    /// Something got through, and the list of open findings says so.
    Open(&'static str),
    /// Something got through.
    Broken,
    /// Nothing got through, although the list of open findings has it.
    Stale(&'static str),
    /// It cannot run here.
    Skipped,
}

fn verdict(name: &str, tally: &Tally) -> Verdict {
    if tally.skipped.is_some() {
        return Verdict::Skipped;
    }
    match (finding_of(name), tally.through.is_empty()) {
        _ if tally.is_broken => Verdict::Broken,
        (None, true) => Verdict::Closed,
        (None, false) => Verdict::Broken,
        (Some(finding), false) => Verdict::Open(finding),
        (Some(finding), true) => Verdict::Stale(finding),
    }
}

/// Prints what got through and the table; returns whether the program succeeds.
pub(crate) fn print_report(tallies: &[(&'static str, Tally)]) -> bool {
    for (name, tally) in tallies.iter().filter(|(_, tally)| !tally.through.is_empty()) {
        println!("\n{name}: {} got through", tally.through.len());
        let shown = if matches!(verdict(name, tally), Verdict::Open(_)) { SHOWN.1 } else { SHOWN.0 };
        tally.through.iter().take(shown).for_each(|what| println!("  {}", shorten(what)));
    }
    println!("\n{:<34} {:>7} {:>8}  verdict", "attack", "tries", "through");
    let mut succeeds = true;
    for (name, tally) in tallies {
        let verdict = verdict(name, tally);
        succeeds &=
            !matches!(verdict, Verdict::Broken | Verdict::Stale(_)) && (tally.tries > 0 || tally.skipped.is_some());
        println!("{name:<34} {:>7} {:>8}  {}", tally.tries, tally.through.len(), describe(verdict, tally));
    }
    let tries: usize = tallies.iter().map(|(_, tally)| tally.tries).sum();
    let through: usize = tallies.iter().map(|(_, tally)| tally.through.len()).sum();
    println!("{:<34} {tries:>7} {through:>8}", "all");
    succeeds
}

fn describe(verdict: Verdict, tally: &Tally) -> String {
    match verdict {
        Verdict::Closed => "closed".to_owned(),
        Verdict::Open(finding) => format!("OPEN: {finding}"),
        Verdict::Broken => "GOT THROUGH".to_owned(),
        Verdict::Stale(finding) => format!("nothing got through: remove {finding} from expected_open.rs"),
        Verdict::Skipped => format!("SKIPPED: {}", tally.skipped.unwrap_or_default()),
    }
}

/// The beginning of a sentence, on one line.
fn shorten(what: &str) -> String {
    what.escape_debug().take(300).collect()
}
