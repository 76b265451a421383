//! Step 1 of 7: the fields of a workflow in a request, and their validation.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::{Cron, CronError, Timezone};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::actions::Action;
use crate::field::{self, FieldError};
use crate::policies::{CatchUp, OnLost, Overlap, Policies};

/// A workflow in a request.
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
    /// Cron, for example `0 9 * * MON-FRI`; absent = no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "0 9 * * MON-FRI")]
    pub cron_schedule: Option<String>,
    /// IANA timezone of the cron; absent = UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Paris")]
    pub timezone: Option<String>,
    /// A label: the workflow is also called by API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_api: Option<bool>,
    /// `{"type":"log","message":".."}` or `{"type":"http","method":"POST","url":"..","headers"?,"body"?}`
    #[schema(value_type = Object, example = json!({"type": "log", "message": "hello"}))]
    pub action: Value,
    /// Inputs passed to each run; an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub starting_inputs: Option<Map<String, Value>>,
    /// No time before this one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this one is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<DateTime<Utc>>,
    /// What happens to a fire while a previous run has not ended; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_policy: Option<Overlap>,
    /// How many runs may be active at once under `concurrent`, 1 to 100; absent = 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<i32>,
    /// Which missed times run late; absent = `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_policy: Option<CatchUp>,
    /// Seconds. A missed time that is older does not run any more, 60 to 2592000; absent = 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_window_secs: Option<i32>,
    /// Seconds. Each run starts later by a fixed part of this span, which the workflow's id determines, 0 to 3600;
    /// absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_secs: Option<i32>,
    /// How many seconds one attempt of a run may take, 1 to 86400; absent = 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<i32>,
    /// How many attempts may fail before the run fails, 1 to 20; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i32>,
    /// What happens to a run whose instance was lost; absent = `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost: Option<OnLost>,
    /// After how many failed runs in a row the workflow is paused, 1 to 1000; absent = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_after_failures: Option<i32>,
}

/// The validated fields of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// When it is due.
    pub timing: Timing,
    /// A label.
    pub is_api: bool,
    /// The action's document; [`Action::parse`] parses it.
    pub action: Value,
    /// Inputs passed to each run.
    pub starting_inputs: Map<String, Value>,
    /// How it handles overlaps, missed times, failures and losses.
    pub policies: Policies,
}

/// When a workflow is due.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Canonical cron; `None` = no schedule.
    pub cron: Option<String>,
    /// IANA name as the client wrote it; `None` = UTC.
    pub timezone: Option<String>,
    /// No time before this one is due.
    pub starts_at: Option<DateTime<Utc>>,
    /// No time at or after this one is due.
    pub ends_at: Option<DateTime<Utc>>,
}

/// The bounds of the validation.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Business time of the edit.
    pub now: DateTime<Utc>,
    /// How long the ledger keeps its rows: no older time may run.
    pub retention: TimeDelta,
}

impl Spec {
    /// Validates a body; `existing` is the current workflow.
    ///
    /// Fields that do not change are not validated again: a timezone that newer zone data dropped, or a cron without a
    /// further time, must not prevent a rename.
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

    /// Returns the body that would write this workflow again; a PATCH changes it.
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
    /// Returns the instant after which to search for times: now, or just before a start in the future.
    #[must_use]
    pub fn first_instant_after(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.starts_at.map_or(now, |starts_at| now.max(starts_at - TimeDelta::microseconds(1)))
    }

    /// Whether both name the same times, whatever their texts, for example `0#2` and `8-14 * */7`, or no timezone and
    /// `UTC`.
    #[must_use]
    pub fn names_same_times(&self, other: &Self) -> bool {
        (self.starts_at, self.ends_at) == (other.starts_at, other.ends_at) && self.has_same_cron(other)
    }

    /// The same for cron and timezone only. A text that cannot be parsed any more equals only itself.
    fn has_same_cron(&self, other: &Self) -> bool {
        let crons = match (&self.cron, &other.cron) {
            (Some(one), Some(another)) => one == another || name_same_times(one, another),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        crons && not_utc(self.timezone.as_deref()) == not_utc(other.timezone.as_deref())
    }

    /// Returns the timing to store: canonical, or with the existing texts if they name the same times.
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

/// The names of UTC in the IANA database. No timezone is UTC, too.
const UTC_NAMES: [&str; 8] = ["UTC", "Etc/UTC", "UCT", "Etc/UCT", "Universal", "Etc/Universal", "Zulu", "Etc/Zulu"];

/// Returns a timezone's name, `None` if it is a name of UTC.
fn not_utc(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !UTC_NAMES.contains(name))
}

fn name_same_times(one: &str, another: &str) -> bool {
    match (Cron::parse(one), Cron::parse(another)) {
        (Ok(one), Ok(another)) => one.has_same_times(&another),
        _ => false,
    }
}

/// Parses a timezone's name.
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
