//! Ablations of the app: each lacks one remedy. The torture must notice each, or its oracle has a gap.
//!
//! An ablation changes a statement on its way to Postgres, or the instance's clock. The app itself does not change.
//!
//! No other remedy covers for the missing one. For example, R0's leases are renewed before R6 hands the claims over,
//! and R1's renewals succeed, so that no attempt stops by the clock of its process.
//!
//! | ablation | what it lacks | what notices it |
//! |---|---|---|
//! | R0 | a heartbeat renews only the attempts that its process executes | S12 |
//! | R1 | a heartbeat stops an attempt whose run was taken away | S13 |
//! | R2 | a lease ends when its row says so, and not by the settings of the instance that checks it | S14 |
//! | R3 | an attempt that was stopped or that panicked is released | S15 |
//! | R4 | an interrupted attempt is handed over with `is_recovery` | S16 |
//! | R5 | the database's clock decides, not the instance's own | S17 |
//! | R6 | claims whose reply was lost are handed over | S15 |
//! | R7 | a run that was started by the decision of its fire, whose reply was lost, is handed over | S15 |
//! | R8 | a hand-over that Postgres executes late changes no later claim | S16 |

use super::history::Profile;
use crate::random::Dice;
use crate::tap::Rewrite;

/// The app of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ablation {
    /// The unchanged app.
    Shipped,
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
}

impl Ablation {
    pub(crate) const ALL: [Ablation; 9] = [
        Ablation::R0,
        Ablation::R1,
        Ablation::R2,
        Ablation::R3,
        Ablation::R4,
        Ablation::R5,
        Ablation::R6,
        Ablation::R7,
        Ablation::R8,
    ];

    pub(crate) fn named(name: &str) -> Option<Ablation> {
        Ablation::ALL.into_iter().find(|ablation| format!("{ablation:?}") == name)
    }

    /// The invariant that notices it.
    pub(crate) fn noticed_by(self) -> &'static str {
        match self {
            Ablation::Shipped => "",
            Ablation::R0 => "S12",
            Ablation::R1 => "S13",
            Ablation::R2 => "S14",
            Ablation::R3 | Ablation::R6 | Ablation::R7 => "S15",
            Ablation::R4 | Ablation::R8 => "S16",
            Ablation::R5 => "S17",
        }
    }

    /// Seeds at which it has failed. A history depends on real time because of the app's pauses, so no seed is certain.
    /// R0 failed at 7 of 40 seeds, R1 at 5 of 70, R2 at 4 of 24, R7 at 4 of 60, R8 at 7 of 80, and the rest at more.
    pub(crate) fn known_seeds(self) -> &'static [u64] {
        match self {
            Ablation::Shipped => &[],
            Ablation::R0 => &[11, 14, 17, 24, 30, 33, 40],
            Ablation::R1 => &[13, 18, 37, 49, 64, 104, 106, 16],
            Ablation::R2 => &[7, 6, 9, 14, 4],
            Ablation::R3 => &[1, 2, 3, 4],
            Ablation::R4 => &[1, 4, 2, 3],
            Ablation::R5 => &[3, 5, 2, 4, 6],
            Ablation::R6 => &[1, 3, 4, 5, 6],
            Ablation::R7 => &[32, 34, 43, 58, 20, 4, 3, 6],
            Ablation::R8 => &[2, 9, 11, 31, 60, 77, 78],
        }
    }

    /// The rewrites that it should have made, and has not made in any history so far.
    pub(crate) fn unmade(self) -> Vec<String> {
        let unmade = self.rewrites(0).into_iter().filter(|rewrite| !rewrite.was_made());
        unmade.map(|rewrite| format!("no statement was `{}`", rewrite.statement)).collect()
    }

    /// Whether its statements differ between instances.
    pub(super) fn depends_on_lease(self) -> bool {
        self == Ablation::R2
    }

    /// The rewrites of the statements of an instance with this lease.
    pub(super) fn rewrites(self, lost_after_secs: u64) -> Vec<Rewrite> {
        let rewrite = |statement, from, to: &str| Rewrite { statement, from, to: to.to_owned() };
        match self {
            Ablation::Shipped | Ablation::R5 => Vec::new(),
            Ablation::R0 => vec![rewrite("renew leases", "r.id = own.id AND r.attempt = own.attempt AND ", "")],
            Ablation::R1 => vec![
                rewrite("renew leases", "renewed.id IS NOT NULL", "TRUE"),
                rewrite(
                    "renew leases",
                    "FROM executed LEFT JOIN",
                    "FROM (SELECT id, attempt, FALSE AS is_cancelled
                             FROM UNNEST($2::uuid[], $3::int[]) AS claimed (id, attempt)) AS executed LEFT JOIN",
                ),
            ],
            Ablation::R2 => vec![Rewrite {
                statement: "lock lost runs",
                from: "r.lease_until <= cronbox_now()",
                to: format!("r.locked_at <= cronbox_now() - make_interval(secs => {lost_after_secs})"),
            }],
            Ablation::R3 => {
                vec![rewrite(
                    "release attempts that stopped",
                    "WHERE r.state = 'running' AND r.locked_by = $1",
                    "WHERE FALSE AND r.locked_by = $1",
                )]
            }
            Ablation::R4 => vec![rewrite("hand over a run", "cut_off = cut_off + $2", "cut_off = cut_off + 0 * $2")],
            Ablation::R6 => {
                vec![rewrite(
                    "hand over unknown claims",
                    "WHERE r.state = 'running' AND r.locked_by = $1",
                    "WHERE FALSE AND r.locked_by = $1",
                )]
            }
            Ablation::R7 => {
                vec![rewrite(
                    "hand over unknown claims",
                    "WHERE r.state = 'running' AND r.locked_by = $1",
                    "WHERE NOT EXISTS (SELECT FROM torture_started AS s WHERE s.id = r.id)
                       AND r.state = 'running' AND r.locked_by = $1",
                )]
            }
            Ablation::R8 => {
                vec![rewrite(
                    "hand over unknown claims",
                    "r.id = claimed.id AND r.attempt = claimed.attempt",
                    "r.id = claimed.id",
                )]
            }
        }
    }

    /// How often a hand-over is delayed, and a claim instead of a lost answer. The histories of the older ablations have no
    /// delays.
    pub(super) fn delay_chance(self) -> f64 {
        match self {
            Ablation::Shipped => 0.25,
            Ablation::R8 => 0.5,
            _ => 0.0,
        }
    }

    /// Whether commits of fires are delayed, too. R8 lacks nothing that concerns them, and keeps its known seeds.
    pub(super) fn delays_commits(self) -> bool {
        self == Ablation::Shipped
    }

    /// The profile of its histories. With many runs, an error in the leases shows sooner.
    pub(super) fn profile(self, dice: &Dice) -> Profile {
        match self {
            Ablation::Shipped => {
                dice.pick(&[Profile::Decisions, Profile::Leases]).copied().unwrap_or(Profile::Decisions)
            }
            Ablation::R5 => Profile::Decisions,
            _ => Profile::Leases,
        }
    }

    /// How often an instance offers the slots of its executor to fires, and how often it ends runs in batches. The
    /// histories of the older ablations have neither.
    pub(super) fn slot_and_batch_chances(self) -> Option<(f64, f64)> {
        match self {
            Ablation::Shipped => Some((0.6, 0.7)),
            Ablation::R7 => Some((1.0, 0.7)),
            _ => None,
        }
    }

    /// How many seconds the deciding clock of an instance differs from the database's.
    pub(super) fn skew_secs(self, dice: &Dice) -> i64 {
        if self == Ablation::R5 { dice.pick(&[0, 720]).copied().unwrap_or_default() } else { 0 }
    }
}
