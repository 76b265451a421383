//! Step 4 of 7: which faults, how often, on which operations: the body of `POST /_faults`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// After this no signature is good any more, whatever the service (AWS speaks of 5 minutes "in most cases").
const SIGNATURES_DIE_SECS: u32 = 900;
const SLOWEST_MS: u32 = 600_000;
/// A day; AWS names no limit.
const LONGEST_DELETION_SECS: u32 = 86_400;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// 429, nothing done
    Throttle,
    /// 500, nothing done
    ErrorBefore,
    /// 500, and yet done
    ErrorAfter,
    /// Done, and never answered
    TimeoutAfter,
    /// Never answered, and done later, at most `late_secs`
    Late,
    /// 409, of an update or a delete: the schedule is being changed
    Conflict,
    /// 400, of a create or an update: the role is not known everywhere yet
    AssumeRole,
    /// 404, of a create: the group
    MissingGroup,
    /// Takes up to `slow_ms` longer, before or after it is done
    Slow,
    /// A get or a list that shows what stood before the last changes
    Stale,
}

/// The operations on schedules; groups and tags meet no faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// POST
    CreateSchedule,
    /// PUT
    UpdateSchedule,
    /// DELETE
    DeleteSchedule,
    /// GET of one
    GetSchedule,
    /// GET of all
    ListSchedules,
}

/// What goes wrong from now on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Absent: the one that the stand-in was started with, else 0
    pub seed: Option<u64>,
    /// How late a late request may be; 0 to 900
    #[serde(default = "signatures_die")]
    pub late_secs: u32,
    /// How slow a slow call may be
    #[serde(default = "a_second")]
    pub slow_ms: u32,
    /// How long the deletion of a group takes; until then its schedules fire and nothing in it changes
    #[serde(default)]
    pub group_delete_secs: u32,
    /// None: nothing goes wrong any more
    #[serde(default)]
    pub faults: Vec<Rule>,
}

/// One kind of fault, and how often.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which
    pub kind: Kind,
    /// Of each call, 0 to 1
    pub chance: f64,
    /// Of these alone; absent: of all that can meet it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<Operation>>,
    /// So often at most; absent: no limit
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A field of a request to the stand-in's switches that cannot be.
#[derive(Debug, Serialize)]
pub struct Wrong {
    /// Which field; empty: the body as a whole
    pub field: String,
    /// What is wrong with it
    pub message: String,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: None,
            late_secs: SIGNATURES_DIE_SECS,
            slow_ms: a_second(),
            group_delete_secs: 0,
            faults: Vec::new(),
        }
    }
}

fn signatures_die() -> u32 {
    SIGNATURES_DIE_SECS
}

fn a_second() -> u32 {
    1000
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::CreateSchedule,
        Operation::UpdateSchedule,
        Operation::DeleteSchedule,
        Operation::GetSchedule,
        Operation::ListSchedules,
    ];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl Kind {
    fn meets(self, operation: Operation) -> bool {
        use Operation::{CreateSchedule, DeleteSchedule, GetSchedule, ListSchedules, UpdateSchedule};
        match self {
            Kind::Throttle | Kind::ErrorBefore | Kind::ErrorAfter | Kind::TimeoutAfter | Kind::Slow => true,
            Kind::Late => matches!(operation, CreateSchedule | UpdateSchedule | DeleteSchedule),
            Kind::Conflict => matches!(operation, UpdateSchedule | DeleteSchedule),
            Kind::AssumeRole => matches!(operation, CreateSchedule | UpdateSchedule),
            Kind::MissingGroup => operation == CreateSchedule,
            Kind::Stale => matches!(operation, GetSchedule | ListSchedules),
        }
    }
}

impl Rule {
    pub(super) fn applies_to(&self, operation: Operation) -> bool {
        self.kind.meets(operation) && self.operations.as_ref().is_none_or(|only| only.contains(&operation))
    }
}

impl Plan {
    /// Whether it can be gone by.
    ///
    /// # Errors
    /// Returns the first field that is not valid.
    pub fn check(&self) -> Result<(), Wrong> {
        if self.late_secs > SIGNATURES_DIE_SECS {
            return wrong(
                "late_secs",
                format!("{} is above {SIGNATURES_DIE_SECS}: no signature lives longer", self.late_secs),
            );
        }
        if self.slow_ms > SLOWEST_MS {
            return wrong("slow_ms", format!("{} is above {SLOWEST_MS}", self.slow_ms));
        }
        if self.group_delete_secs > LONGEST_DELETION_SECS {
            let longest = format!("{} is above {LONGEST_DELETION_SECS}", self.group_delete_secs);
            return wrong("group_delete_secs", longest);
        }
        for (n, rule) in self.faults.iter().enumerate() {
            if !(0.0..=1.0).contains(&rule.chance) {
                return wrong(format!("faults[{n}].chance"), format!("{} is not between 0 and 1", rule.chance));
            }
            let unmet = rule.operations.iter().flatten().find(|operation| !rule.kind.meets(**operation));
            if let Some(operation) = unmet {
                return wrong(format!("faults[{n}].operations"), format!("{operation} never meets this fault"));
            }
        }
        for operation in Operation::ALL {
            let sum: f64 = self.faults.iter().filter(|rule| rule.applies_to(operation)).map(|rule| rule.chance).sum();
            // The sum of ten tenths is not quite one.
            if sum > 1.0 + 1e-9 {
                return wrong("faults", format!("the chances of {operation} add up to {sum:.2}, above 1"));
            }
        }
        Ok(())
    }
}

fn wrong(field: impl Into<String>, message: String) -> Result<(), Wrong> {
    Err(Wrong { field: field.into(), message })
}
