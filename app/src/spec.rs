//! Step 1 of 7: a workflow as a client writes it, and what that is to be.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::{Cron, CronError, Timezone};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::actions::Action;
use crate::field::{self, FieldError};
use crate::policies::{CatchUp, OnLost, Overlap, Policies};

/// A workflow as a client writes it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowBody {
    /// The owner, at creation only: needed with an admin key, else the key's team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<i64>,
    /// Unique in its team among the workflows that are not archived; one line, at most 200 characters.
    pub name: String,
    /// For people; at most 2,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Cron, e.g. `0 9 * * MON-FRI`; absent = no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * MON-FRI")]
    pub cron_schedule: Option<String>,
    /// IANA timezone in which the cron is read; absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Paris")]
    pub timezone: Option<String>,
    /// A label: the workflow is also called by API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_api: Option<bool>,
    /// `{"type":"log","message":".."}` or `{"type":"http","method":"POST","url":"..","headers"?,"body"?}`
    #[schema(value_type = Object, example = json!({"type": "log", "message": "hello"}))]
    pub action: Value,
    /// Inputs handed to each run; an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub starting_inputs: Option<Map<String, Value>>,
    /// Owes nothing before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime<Utc>>,
    /// Owes nothing at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// What a fire does while a run before it has not ended; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<Overlap>,
    /// Runs at once under `concurrent`, 1 to 100; absent = 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// Which missed times run late; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_policy: Option<CatchUp>,
    /// A missed time older than these seconds does not run any more, 60 to 2592000; absent = 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_secs: Option<i32>,
    /// Execution waits a fixed share of these seconds, 0 to 3600; absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_secs: Option<i32>,
    /// How many seconds one attempt of a run may take, 1 to 86400; absent = 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<i32>,
    /// Answers that may fail before a run has failed, 1 to 20; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// What becomes of a run whose instance died; absent = `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<OnLost>,
    /// Failed runs in a row that pause the workflow, 1 to 1000; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<i32>,
}

/// What a workflow is to be: a body that was found right.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// The timing facet.
    pub timing: Timing,
    /// A label.
    pub is_api: bool,
    /// The action's document; [`Action::parse`] reads it.
    pub action: Value,
    /// Inputs handed to each run.
    pub starting_inputs: Map<String, Value>,
    /// What it does with overlaps, missed times, failures and losses.
    pub policies: Policies,
}

/// When a workflow is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Canonical cron, none = no schedule.
    pub cron: Option<String>,
    /// IANA name as written, none = UTC.
    pub timezone: Option<String>,
    /// Owes nothing before.
    pub starts_at: Option<DateTime<Utc>>,
    /// Owes nothing at or after.
    pub ends_at: Option<DateTime<Utc>>,
}

/// What a workflow is validated against, beside its own fields.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Business time of the edit.
    pub now: DateTime<Utc>,
    /// For how long the ledger keeps its rows: no older time may run.
    pub retention: TimeDelta,
}

impl Spec {
    /// Validates a body; `existing` is what the workflow is already.
    ///
    /// What does not change is not validated again: a timezone that a newer database dropped, or a
    /// cron whose last time has passed, must not stop the caller from renaming the workflow.
    ///
    /// # Errors
    /// Returns the first field that is not valid.
    pub fn new(body: WorkflowBody, existing: Option<&Self>, bounds: &Bounds) -> Result<Self, FieldError> {
        field::name("name", &body.name)?;
        body.description.as_deref().map_or(Ok(()), |text| field::text("description", text, 0, 2_000))?;
        field::no_nul("action", &body.action)?;
        Action::parse(&body.action)?;
        let policies = Policies::new(&body)?;
        if existing.is_none_or(|existing| existing.policies.catch_up_window_secs != policies.catch_up_window_secs) {
            policies.check_window(bounds.retention)?;
        }
        let starting_inputs = body.starting_inputs.unwrap_or_default();
        field::no_nul("starting_inputs", &Value::Object(starting_inputs.clone()))?;
        let written = Timing {
            cron: body.cron_schedule,
            timezone: body.timezone,
            starts_at: body.starts_at.map(|time| field::instant("starts_at", time)).transpose()?,
            ends_at: body.ends_at.map(|time| field::instant("ends_at", time)).transpose()?,
        };
        let timing = match existing.map(|existing| &existing.timing) {
            Some(existing) if existing.names_same_times(&written) => existing.clone(),
            existing => written.validated(existing, bounds.now)?,
        };
        Ok(Self {
            name: body.name,
            description: body.description,
            timing,
            is_api: body.is_api.unwrap_or(false),
            action: body.action,
            starting_inputs,
            policies,
        })
    }

    /// The body that would write this workflow again; what a PATCH changes.
    #[must_use]
    pub fn to_body(&self) -> WorkflowBody {
        WorkflowBody {
            team_id: None,
            name: self.name.clone(),
            description: self.description.clone(),
            cron_schedule: self.timing.cron.clone(),
            timezone: self.timing.timezone.clone(),
            is_api: Some(self.is_api),
            action: self.action.clone(),
            starting_inputs: Some(self.starting_inputs.clone()),
            starts_at: self.timing.starts_at,
            ends_at: self.timing.ends_at,
            overlap_policy: Some(self.policies.overlap),
            max_concurrent: Some(self.policies.max_concurrent),
            catch_up_policy: Some(self.policies.catch_up),
            catch_up_window_secs: Some(self.policies.catch_up_window_secs),
            spread_secs: Some(self.policies.spread_secs),
            timeout_secs: Some(self.policies.timeout_secs),
            max_attempts: Some(self.policies.max_attempts),
            on_lost: Some(self.policies.on_lost),
            pause_after_failures: self.policies.pause_after_failures,
        }
    }
}

impl Timing {
    /// The instant to look for times after: now, or just before the start that lies ahead.
    #[must_use]
    pub fn first_instant_after(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.starts_at.map_or(now, |starts_at| now.max(starts_at - TimeDelta::microseconds(1)))
    }

    /// Whether both name the same times, whatever their texts: `0#2` and `8-14 * */7`, no timezone and `UTC`.
    #[must_use]
    pub fn names_same_times(&self, other: &Self) -> bool {
        (self.starts_at, self.ends_at) == (other.starts_at, other.ends_at) && self.has_same_cron(other)
    }

    /// The same for cron and timezone only. A text that cannot be read any more equals only itself.
    fn has_same_cron(&self, other: &Self) -> bool {
        let crons = match (&self.cron, &other.cron) {
            (Some(one), Some(another)) => one == another || name_same_times(one, another),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        crons && not_utc(self.timezone.as_deref()) == not_utc(other.timezone.as_deref())
    }

    /// The timing as it is stored: canonical, or in the existing texts if they name the same times.
    fn validated(self, existing: Option<&Self>, now: DateTime<Utc>) -> Result<Self, FieldError> {
        let timezone = self.timezone.as_deref().map(timezone).transpose()?.unwrap_or(Timezone::UTC);
        if let (Some(starts_at), Some(ends_at)) = (self.starts_at, self.ends_at)
            && starts_at >= ends_at
        {
            return Err(FieldError::invalid("ends_at", "ends_at must be later than starts_at"));
        }
        let cron = self.cron.as_deref().map(cron).transpose()?;
        if let Some(cron) = &cron {
            self.must_fire(cron, timezone, now)?;
        }
        Ok(match existing.filter(|existing| existing.has_same_cron(&self)) {
            Some(existing) => Self { cron: existing.cron.clone(), timezone: existing.timezone.clone(), ..self },
            None => Self {
                cron: cron.map(|cron| cron.to_string()),
                timezone: not_utc(self.timezone.as_deref()).map(str::to_owned),
                ..self
            },
        })
    }

    /// Refuses a cron that has no time between now or `starts_at` and `ends_at`.
    fn must_fire(&self, cron: &Cron, timezone: Timezone, now: DateTime<Utc>) -> Result<(), FieldError> {
        let first = cron.must_fire_after(self.first_instant_after(now), timezone);
        let first = first.map_err(|error| refused_cron(&cron.to_string(), &error))?;
        match self.ends_at {
            Some(ends_at) if ends_at <= first => {
                let first = first.to_rfc3339_opts(SecondsFormat::Secs, true);
                let detail =
                    format!("ends_at must be later than the first due time, {first}: the schedule never fires");
                Err(FieldError::new(NEVER_FIRES, "ends_at", detail))
            }
            _ => Ok(()),
        }
    }
}

/// The code of a schedule that has no time left.
pub const NEVER_FIRES: &str = "never_fires";

/// The names of UTC in the IANA database: no timezone is UTC, too.
const UTC_NAMES: [&str; 8] = ["UTC", "Etc/UTC", "UCT", "Etc/UCT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu"];

/// A timezone's name, none if it is a name of UTC.
fn not_utc(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !UTC_NAMES.contains(name))
}

fn name_same_times(one: &str, another: &str) -> bool {
    match (Cron::parse(one), Cron::parse(another)) {
        (Ok(one), Ok(another)) => one.has_same_times(&another),
        _ => false,
    }
}

/// Reads a timezone's name.
///
/// # Errors
/// Returns `invalid_timezone` with similar names.
pub fn timezone(name: &str) -> Result<Timezone, FieldError> {
    schedule::parse_timezone(name).map_err(|error| FieldError::new(error.code(), "timezone", error.to_string()))
}

fn cron(text: &str) -> Result<Cron, FieldError> {
    Cron::parse(text).map_err(|error| refused_cron(text, &error))
}

fn refused_cron(text: &str, error: &CronError) -> FieldError {
    FieldError::of_cron("cron_schedule", text, error)
}
