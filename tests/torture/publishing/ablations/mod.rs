//! Ablations of publishing: protocols without a part of the shipped one. The torture must catch each, or its oracle has
//! a gap. Those of the ledger are in `ledger/ablation.rs`.
//!
//! | variant | what it lacks |
//! |---|---|
//! | V0 | emits after the edit's commit; claims a row, and keeps it locked during the call |
//! | V1 | emits within the edit, as shipped; claims a row, and keeps it locked during the call |
//! | V2 | as V1, but claims with a lease on the row |
//! | V3 | the shipped publisher, with a database that drops every verify pass |
//! | V4 | the shipped publisher, with an AWS that accepts requests for longer than the verify pass waits |
//! | V5 | the shipped publisher, with a database that treats every vanished row as a delete event |

pub(crate) mod after_commit;
pub(crate) mod row_lease;
pub(crate) mod row_lock;
pub(crate) mod row_publisher;

use chrono::TimeDelta;

use crate::publishing::editor::Emission;
use crate::random::Dice;

/// The protocol of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    Shipped,
    V0,
    V1,
    V2,
    V3,
    V4,
    V5,
}

impl Variant {
    pub(crate) const ABLATIONS: [Variant; 6] =
        [Variant::V0, Variant::V1, Variant::V2, Variant::V3, Variant::V4, Variant::V5];

    pub(crate) fn named(name: &str) -> Option<Variant> {
        Variant::ABLATIONS.into_iter().find(|variant| format!("{variant:?}") == name)
    }

    /// Seeds at which this variant fails.
    pub(crate) fn known_seeds(self) -> &'static [u64] {
        match self {
            Variant::Shipped => &[],
            Variant::V0 => &[4],
            Variant::V1 => &[8],
            Variant::V2 => &[56, 65, 85],
            Variant::V3 => &[69, 40],
            Variant::V4 => &[7],
            Variant::V5 => &[2, 4, 12],
        }
    }

    /// The chance that a call gets a fault; with many faults, an ablation fails sooner.
    pub(crate) fn fault_chances(self) -> &'static [f64] {
        if self == Variant::Shipped { &[0.0, 0.2, 0.3, 0.5, 0.6] } else { &[0.4, 0.6] }
    }

    /// The maximal number of workflows; with fewer, more actors meet at each.
    pub(crate) fn workflows(self) -> &'static [usize] {
        if self == Variant::Shipped { &[2, 2, 3, 4] } else { &[1, 2] }
    }

    pub(crate) fn emission(self) -> Emission {
        if self == Variant::V0 { Emission::AfterCommit } else { Emission::Within }
    }

    /// Whether rows of `workflows` vanish without the app. The row-wise publishers are not designed for that.
    pub(crate) fn vanishes(self, dice: &Dice) -> bool {
        match self {
            Variant::Shipped => dice.chance(0.3),
            Variant::V5 => true,
            _ => false,
        }
    }

    /// How soon vanished rows return; if they return later, more publishers run without them.
    pub(crate) fn return_weight(self) -> u32 {
        if self == Variant::V5 { 2 } else { 10 }
    }

    /// For how long AWS accepts a signed request.
    pub(crate) fn window(self) -> TimeDelta {
        TimeDelta::minutes(if self == Variant::V4 { 120 } else { 15 })
    }

    /// The changes to its database after the migrations.
    pub(crate) fn setup(self) -> &'static str {
        match self {
            Variant::V2 => row_lease::SETUP,
            Variant::V3 => UNVERIFIED,
            Variant::V5 => UNGUARDED,
            _ => VERIFIED,
        }
    }

    /// Whether it runs the shipped publisher.
    pub(crate) fn is_shipped_code(self) -> bool {
        matches!(self, Variant::Shipped | Variant::V3 | Variant::V4 | Variant::V5)
    }
}

const VERIFIED: &str =
    "DROP TRIGGER IF EXISTS unverified ON publications; DROP TRIGGER IF EXISTS unguarded ON publications";

const UNVERIFIED: &str = "
    CREATE OR REPLACE FUNCTION forget_verify() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.verify_at := NULL; RETURN NEW; END';
    CREATE OR REPLACE TRIGGER unverified BEFORE INSERT OR UPDATE ON publications
        FOR EACH ROW EXECUTE FUNCTION forget_verify();
    DROP TRIGGER IF EXISTS unguarded ON publications;
";

const UNGUARDED: &str = "
    CREATE OR REPLACE FUNCTION permit_removal() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.removal_revision := NEW.desired_revision; RETURN NEW; END';
    CREATE OR REPLACE TRIGGER unguarded BEFORE INSERT OR UPDATE ON publications
        FOR EACH ROW EXECUTE FUNCTION permit_removal();
    DROP TRIGGER IF EXISTS unverified ON publications;
";
