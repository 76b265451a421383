//! Step 1 of 7: the validated fields of a workflow, and when it is due.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use schedule::{Coverage, Cron, CronError, Timezone, TimezoneError, TimezoneHistory, ZoneHistory, compile_cron};
use serde_json::{Map, Value};

use crate::definition::field::{Faults, FieldError};
use crate::definition::labels::Labels;
use crate::definition::policies::Policies;

/// The validated fields of a workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// For selection.
    pub labels: Labels,
    /// When it is due.
    pub timing: Timing,
    /// A label.
    pub is_api: bool,
    /// The action's document; [`Action::parse`](crate::definition::action::Action::parse) parses it.
    pub action: Value,
    /// Inputs passed to each run.
    pub starting_inputs: Map<String, Value>,
    /// How it handles overlaps, missed times, failures and losses.
    pub policies: Policies,
}

/// How much a workflow adds to the usage of its team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many times its cron fires in an hour in which it fires; 0 without a cron.
    pub fires_per_hour: i16,
    /// Bytes of its inputs and its action as JSON.
    pub input_bytes: i32,
}

impl Spec {
    /// Returns how much it adds to the usage of its team.
    #[must_use]
    pub fn count_usage(&self) -> Usage {
        let bytes = json_bytes(&self.starting_inputs) + json_bytes(&self.action);
        let fires = self.timing.parsed_cron().map_or(0, |cron| cron.fires_per_hour());
        Usage {
            fires_per_hour: i16::try_from(fires).unwrap_or(i16::MAX),
            input_bytes: i32::try_from(bytes).unwrap_or(i32::MAX),
        }
    }
}

/// The length of a document, which is never kept.
fn json_bytes(document: &impl serde::Serialize) -> usize {
    serde_json::to_vec(document).map_or(0, |json| json.len())
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

/// A timezone or a cron that is not known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

/// The bounds of the validation.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Business time of the edit.
    pub now: DateTime<Utc>,
    /// How long the ledger keeps its rows: no older time may run.
    pub retention: TimeDelta,
}

impl Timing {
    /// Parses its cron; `None` without one, or if it is not known any more.
    #[must_use]
    pub fn parsed_cron(&self) -> Option<Cron> {
        Cron::parse(self.cron.as_deref()?).ok()
    }

    /// Finds its timezone in the zone data of now.
    ///
    /// # Errors
    /// Fails if newer zone data dropped it.
    pub fn parsed_timezone(&self) -> Result<Timezone, TimezoneError> {
        self.timezone.as_deref().map_or(Ok(Timezone::UTC), schedule::parse_timezone)
    }

    /// Returns its cron and its timezone of now; `None` without a cron, or if one of them is not known any more.
    #[must_use]
    pub fn parsed_now(&self) -> Option<(Cron, Timezone)> {
        Some((self.parsed_cron()?, self.parsed_timezone().ok()?))
    }

    /// Whether its cron names a time from `since` until `within` later; also if the cron or the timezone is not known any more.
    #[must_use]
    pub fn is_due_within(&self, since: DateTime<Utc>, within: TimeDelta) -> bool {
        match self.parsed_over(&ZoneHistory::installed()) {
            Ok(None) => false,
            Ok(Some((cron, timezone))) => {
                let first = timezone.next_after(&cron, since - TimeDelta::microseconds(1));
                first.is_some_and(|first| first <= since + within)
            }
            Err(Unknown) => true,
        }
    }

    /// Returns its cron and its timezone by the zone data that were in force at a time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn parsed_at(&self, time: DateTime<Utc>) -> Result<Option<(Cron, Timezone)>, Unknown> {
        let Some((cron, timezone)) = self.parsed_over(&ZoneHistory::installed())? else { return Ok(None) };
        Ok(Some((cron, timezone.timezone_at(time).ok_or(Unknown)?)))
    }

    /// Whether a fire at a time can only be surplus: EventBridge has more times than the cron, and by the last rules of the
    /// timezone this is one of them.
    #[must_use]
    pub fn is_surplus(&self, time: DateTime<Utc>, zones: &ZoneHistory) -> bool {
        let Ok(Some((cron, timezone))) = self.parsed_over(zones) else { return false };
        let last = timezone.last_rules();
        compile_cron(&cron, last).coverage != Coverage::Exact && !cron.matches(time, last)
    }

    /// Returns its cron and its timezone's rules over time; `None` if it has no cron.
    ///
    /// # Errors
    /// Fails if one of them is no longer known.
    pub fn parsed_over(&self, zones: &ZoneHistory) -> Result<Option<(Cron, TimezoneHistory)>, Unknown> {
        if self.cron.is_none() {
            return Ok(None);
        }
        let cron = self.parsed_cron().ok_or(Unknown)?;
        let timezone = zones.find(self.timezone.as_deref().unwrap_or("UTC")).ok_or(Unknown)?;
        Ok(Some((cron, timezone)))
    }

    /// Whether a time lies in the window from `starts_at` to `ends_at`.
    #[must_use]
    pub fn is_in_window(&self, time: DateTime<Utc>) -> bool {
        self.starts_at.is_none_or(|start| time >= start) && self.is_before_end(time)
    }

    /// Whether a time lies before `ends_at`.
    #[must_use]
    pub fn is_before_end(&self, time: DateTime<Utc>) -> bool {
        self.ends_at.is_none_or(|end| time < end)
    }

    /// Returns the instant after which to search for times: now, or just before a start in the future.
    #[must_use]
    pub fn first_instant_after(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.starts_at.map_or(now, |starts_at| now.max(starts_at - TimeDelta::microseconds(1)))
    }

    /// Whether cron and timezone are the same texts, known or not.
    #[must_use]
    pub fn has_same_texts(&self, other: &Self) -> bool {
        (&self.cron, &self.timezone) == (&other.cron, &other.timezone)
    }

    /// Whether both have the same window.
    pub(super) fn has_same_window(&self, other: &Self) -> bool {
        (self.starts_at, self.ends_at) == (other.starts_at, other.ends_at)
    }

    /// Whether cron and timezone of both name the same times, whatever their texts, for example `0#2` and `8-14 * */7`, or
    /// no timezone and `UTC`. A text that cannot be parsed any more equals only itself.
    pub(super) fn has_same_cron(&self, other: &Self) -> bool {
        let crons = match (&self.cron, &other.cron) {
            (Some(one), Some(another)) => one == another || name_same_times(one, another),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        crons && not_utc(self.timezone.as_deref()) == not_utc(other.timezone.as_deref())
    }

    /// Returns the timing to store: canonical, or with the existing texts `kept`, which name the same times.
    pub(super) fn into_canonical(self, kept: Option<&Self>, now: DateTime<Utc>, faults: &mut Faults) -> Option<Self> {
        let timezone = faults.check(self.timezone.as_deref().map(check_timezone).transpose());
        let order = faults.check(self.check_order());
        let cron = faults.check(self.cron.as_deref().map(cron).transpose());
        let (Some(timezone), Some(()), Some(cron)) = (timezone, order, cron) else { return None };
        if let Some(cron) = &cron {
            faults.check(self.must_fire(cron, timezone.unwrap_or(Timezone::UTC), now))?;
        }
        Some(match kept {
            Some(kept) => Self { cron: kept.cron.clone(), timezone: kept.timezone.clone(), ..self },
            None => Self {
                cron: cron.map(|cron| cron.to_string()),
                timezone: not_utc(self.timezone.as_deref()).map(str::to_owned),
                ..self
            },
        })
    }

    fn check_order(&self) -> Result<(), FieldError> {
        match (self.starts_at, self.ends_at) {
            (Some(starts_at), Some(ends_at)) if starts_at >= ends_at => {
                Err(FieldError::invalid("ends_at", "ends_at must be later than starts_at"))
            }
            _ => Ok(()),
        }
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
pub fn check_timezone(name: &str) -> Result<Timezone, FieldError> {
    schedule::parse_timezone(name).map_err(|error| FieldError::new(error.code(), "timezone", error.to_string()))
}

fn cron(text: &str) -> Result<Cron, FieldError> {
    Cron::parse(text).map_err(|error| refused_cron(text, &error))
}

fn refused_cron(text: &str, error: &CronError) -> FieldError {
    FieldError::of_cron("cron_schedule", text, error)
}
