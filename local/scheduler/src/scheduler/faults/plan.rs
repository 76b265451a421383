//! Step 4 of 7: which faults, how often, on which operations: the body of `POST /_faults`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// After this many seconds no signature is valid any more, for any service (AWS documents 5 minutes "in most cases").
const SIGNATURES_DIE_SECS: u32 = 900;
const SLOWEST_MS: u32 = 600_000;
/// A day in seconds; AWS documents no limit.
const LONGEST_DELETION_SECS: u32 = 86_400;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// 429, not executed
    Throttle,
    /// 500, not executed
    ErrorBefore,
    /// 500, but executed
    ErrorAfter,
    /// Executed, and never answered
    TimeoutAfter,
    /// Never answered, and executed later, at most `late_secs`
    Late,
    /// 409, for an update or a delete: the schedule is being changed
    Conflict,
    /// 400, for a create or an update: the role has not propagated yet
    AssumeRole,
    /// 404, for a create: the schedule group
    MissingGroup,
    /// Takes up to `slow_ms` longer, before or after the execution
    Slow,
    /// A get or a list shows the state before the last changes
    Stale,
}

/// The operations on schedules; those on schedule groups and tags have no faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// POST
    CreateSchedule,
    /// PUT
    UpdateSchedule,
    /// DELETE
    DeleteSchedule,
    /// GET of one schedule
    GetSchedule,
    /// GET of all schedules
    ListSchedules,
}

/// A plan of faults.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Absent: the seed with which the stand-in was started, else 0
    pub seed: Option<u64>,
    /// How late a late request may be, in seconds; 0 to 900
    #[serde(default = "signatures_die")]
    pub late_secs: u32,
    /// How slow a slow call may be, in milliseconds
    #[serde(default = "a_second")]
    pub slow_ms: u32,
    /// How many seconds the deletion of a schedule group takes; until then its schedules fire and cannot be changed
    #[serde(default)]
    pub group_delete_secs: u32,
    /// Empty: no faults any more
    #[serde(default)]
    pub faults: Vec<Rule>,
}

/// One kind of fault, and its probability.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The kind
    pub kind: Kind,
    /// The probability per call, 0 to 1
    pub chance: f64,
    /// Only for these operations; absent: for all to which it applies
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<Operation>>,
    /// At most this often; absent: no limit
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// A field of a request to the control API that is not valid.
#[derive(Debug, Serialize)]
pub struct Wrong {
    /// The field; empty: the complete body
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
    /// Checks whether the plan is valid.
    ///
    /// # Errors
    /// Returns the first field that is not valid.
    pub fn check_fields(&self) -> Result<(), Wrong> {
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
            // The sum of ten tenths is slightly below or above 1.
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
