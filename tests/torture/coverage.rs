//! Counts what the histories contained, because a torture without faults proves nothing.

use std::collections::BTreeMap;
use std::fmt;

use crate::publishing::wire::Fate;

/// Counts over many histories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) kills: u32,
    killed_at: BTreeMap<String, u32>,
    met: BTreeMap<Fate, u32>,
    pub(crate) takeovers_of_the_living: u32,
    pub(crate) arrived: u32,
    pub(crate) cut: u32,
    /// Changes in Scheduler without the publisher.
    pub(crate) manual_changes: u32,
    /// How often all rows of `workflows` vanished.
    pub(crate) vanished: u32,
    /// Counts of the ledger's decisions and run states.
    ledger: BTreeMap<String, u32>,
}

/// The decisions and run states that the histories of the ledger must contain.
const SAID: [&str; 29] = [
    "fired",
    "caught_up",
    "backfilled",
    "missed",
    "skipped_overlap",
    "skipped_paused",
    "abandoned",
    "run succeeded",
    "run failed",
    "run cancelled",
    "run abandoned",
    "run of hand",
    "run of retry",
    "tried again",
    "taken over",
    "late result",
    "called twice",
    "handed over",
    "cut off",
    "claim unanswered",
    "late statements",
    "started by a late commit",
    "panic",
    "standstill",
    "suspended",
    "clock steps",
    "started by its fire",
    "started and lost",
    "ends in a batch",
];

/// All points at which an actor can be killed.
const POINTS: [&str; 19] = [
    "P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P13", "C1", "C2", "E1", "E2",
    "E3",
];

const FATES: [Fate; 13] = [
    Fate::Through,
    Fate::Throttled,
    Fate::ErrorBefore,
    Fate::ErrorAfter,
    Fate::TimeoutAfter,
    Fate::Late,
    Fate::Lost,
    Fate::Conflict,
    Fate::AssumeRole,
    Fate::MissingGroup,
    Fate::NotFound,
    Fate::Stale,
    Fate::Expired,
];

impl Coverage {
    pub(crate) fn killed(&mut self, points: &[String]) {
        self.kills += 1;
        for point in points {
            *self.killed_at.entry(point.clone()).or_default() += 1;
        }
    }

    pub(crate) fn said(&mut self, said: impl IntoIterator<Item = (String, u32)>) {
        for (what, count) in said {
            *self.ledger.entry(what).or_default() += count;
        }
    }

    /// What the ledgers of this many histories contained too rarely.
    pub(crate) fn unsaid(&self, histories: usize) -> Vec<String> {
        let enough = u32::try_from(histories).unwrap_or(u32::MAX) / 100;
        let said = |what: &str| self.ledger.get(what).copied().unwrap_or_default();
        SAID.iter().filter(|what| said(what) < enough).map(|what| format!("{} times {what}", said(what))).collect()
    }

    pub(crate) fn met(&mut self, met: &BTreeMap<Fate, u32>) {
        for (fate, count) in met {
            *self.met.entry(*fate).or_default() += count;
        }
    }

    pub(crate) fn add(&mut self, other: Coverage) {
        self.kills += other.kills;
        for (point, count) in other.killed_at {
            *self.killed_at.entry(point).or_default() += count;
        }
        self.met(&other.met);
        self.takeovers_of_the_living += other.takeovers_of_the_living;
        self.arrived += other.arrived;
        self.cut += other.cut;
        self.manual_changes += other.manual_changes;
        self.vanished += other.vanished;
        self.said(other.ledger);
    }

    /// What this many histories of publishing contained too rarely.
    pub(crate) fn gaps(&self, histories: usize) -> Vec<String> {
        let enough = |most: u32| most.min(u32::try_from(histories).unwrap_or(u32::MAX) / 100);
        let kills = |point: &str| self.killed_at.get(point).copied().unwrap_or_default();
        let rare = POINTS.iter().filter(|point| kills(point) < enough(30));
        let mut gaps: Vec<String> = rare.map(|point| format!("{} kills at {point}", kills(point))).collect();
        let met = |fate: &Fate| self.met.get(fate).copied().unwrap_or_default();
        let rare = FATES.iter().filter(|fate| met(fate) < enough(100));
        gaps.extend(rare.map(|fate| format!("{} times {fate:?}", met(fate))));
        if self.takeovers_of_the_living < enough(20) {
            gaps.push(format!("{} takeovers while the former owner lived", self.takeovers_of_the_living));
        }
        if self.manual_changes < enough(100) {
            gaps.push(format!("{} manual changes", self.manual_changes));
        }
        if self.vanished < enough(100) {
            gaps.push(format!("rows of workflows vanished {} times", self.vanished));
        }
        gaps
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kills, fates) = (&self.killed_at, &self.met);
        writeln!(f, "killed at {kills:?}")?;
        writeln!(f, "requests {fates:?}, {} arrived late", self.arrived)?;
        write!(
            f,
            "{} takeovers while the former owner lived, {} connections cut, {} manual changes, rows vanished {} times",
            self.takeovers_of_the_living, self.cut, self.manual_changes, self.vanished
        )?;
        if self.ledger.is_empty() { Ok(()) } else { write!(f, "\nledger {:?}", self.ledger) }
    }
}
