//! Step 1 of 7: what a client writes, a workflow or only its schedule, and its validation.
//!
//! A schedule has no row of its own: it is the timing of a workflow with a cron. So a write of a schedule is an edit of
//! the workflow by [`crate::save_workflow`], with the workflow's version and ETag.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::definition::action::{self, Action};
use crate::definition::field::{self, Faults, FieldError};
use crate::definition::labels::{Labels, check_labels};
use crate::definition::patch::{self, PatchKind};
use crate::definition::policies::{CatchUp, OnLost, Overlap, Policies};
use crate::definition::redaction;
use crate::definition::sealed;
use crate::definition::spec::{Bounds, Spec, Timing};
use api_types::actions::ActionBody;

/// Defines a body: its first fields, the fields that both bodies have, and its last fields. The order is that of an
/// error which lists the fields. `#[serde(flatten)]` is no alternative, because it permits unknown fields.
macro_rules! define_body {
    ($(#[$about:meta])* $name:ident { $($first:tt)* } .. { $($last:tt)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($first)*
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
            $($last)*
        }
    };
}

define_body! {
    /// A workflow in a request.
    WorkflowBody {
        /// The owner, at creation only: needed with an admin key, else the key's team.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub team_id: Option<i64>,
        /// Unique in its team among the workflows that are not archived; one line, at most 200 characters.
        pub name: String,
        /// For people; at most 2,000 characters.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<String>,
        /// For selection (`GET /workflows?label=owner:payroll`); at most 20. A key begins with a letter or
        /// a digit, and has at most 63 letters, digits, `-`, `_`, `.` and `/`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = json!({"owner": "payroll"}))]
        pub labels: Option<Labels>,
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
        /// What a run does.
        #[schema(value_type = ActionBody)]
        pub action: Value,
        /// Inputs passed to each run; an object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<Object>)]
        pub starting_inputs: Option<Map<String, Value>>,
    } .. {
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
}

define_body! {
    /// A schedule in a request; in a PUT an absent field takes its default.
    ScheduleBody {
        /// Cron, for example `0 9 * * MON-FRI`.
        #[schema(example = "0 9 * * MON-FRI")]
        pub cron_schedule: String,
        /// IANA timezone of the cron; absent = UTC.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(example = "Europe/Paris")]
        pub timezone: Option<String>,
    } .. {
        /// After how many failed runs in a row the workflow is paused, 1 to 1000; absent = never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub pause_after_failures: Option<i32>,
    }
}

impl WorkflowBody {
    /// Returns the body that would write a workflow again; a PATCH changes it.
    #[must_use]
    pub fn from_spec(spec: &Spec) -> Self {
        Self {
            team_id: None,
            name: spec.name.clone(),
            description: spec.description.clone(),
            labels: Some(spec.labels.clone()),
            cron_schedule: spec.timing.cron.clone(),
            timezone: spec.timing.timezone.clone(),
            is_api: Some(spec.is_api),
            action: spec.action.clone(),
            starting_inputs: Some(spec.starting_inputs.clone()),
            starts_at: spec.timing.starts_at,
            ends_at: spec.timing.ends_at,
            overlap_policy: Some(spec.policies.overlap),
            max_concurrent: Some(spec.policies.max_concurrent),
            catch_up_policy: Some(spec.policies.catch_up),
            catch_up_window_secs: Some(spec.policies.catch_up_window_secs),
            spread_secs: Some(spec.policies.spread_secs),
            timeout_secs: Some(spec.policies.timeout_secs),
            max_attempts: Some(spec.policies.max_attempts),
            on_lost: Some(spec.policies.on_lost),
            pause_after_failures: spec.policies.pause_after_failures,
        }
    }

    /// Validates the fields and returns those of the workflow; `existing` is the current workflow.
    ///
    /// Fields that do not change are not validated again: a timezone that newer zone data dropped, or a cron without a
    /// further time, must not prevent a rename.
    ///
    /// # Errors
    /// Returns the first field that is not valid, with the others.
    pub fn into_spec(mut self, existing: Option<&Spec>, bounds: &Bounds) -> Result<Spec, FieldError> {
        let mut faults = Faults::default();
        faults.check(self.check_action(existing));
        faults.check(self.check_name(existing));
        faults
            .check(self.description.as_deref().map_or(Ok(()), |text| field::check_text("description", text, 0, 2_000)));
        let labels = self.labels.take().unwrap_or_default();
        faults.check(check_labels(&labels));
        let starting_inputs = self.starting_inputs.take().unwrap_or_default();
        faults.check(check_inputs(existing, &starting_inputs));
        faults.check(self.check_body_of_action(existing));
        let starts_at = checked_time("starts_at", self.starts_at, &mut faults);
        let ends_at = checked_time("ends_at", self.ends_at, &mut faults);
        let policies = self.policies(&mut faults);
        if existing.is_none_or(|existing| existing.policies.catch_up_window_secs != policies.catch_up_window_secs) {
            faults.check(policies.check_window(bounds.retention));
        }
        let written = Timing { cron: self.cron_schedule, timezone: self.timezone, starts_at, ends_at };
        let kept = existing.map(|existing| &existing.timing).filter(|existing| existing.has_same_cron(&written));
        let timing = match kept {
            Some(kept) if kept.has_same_window(&written) => Some(kept.clone()),
            kept => written.into_canonical(kept, bounds.now, &mut faults),
        };
        faults.finish(timing.map(|timing| Spec {
            name: self.name,
            description: self.description,
            labels,
            timing,
            is_api: self.is_api.unwrap_or(false),
            action: self.action,
            starting_inputs,
            policies,
        }))
    }

    fn check_action(&self, existing: Option<&Spec>) -> Result<(), FieldError> {
        let action = sealed::without_existing_seals(&self.action, existing.map(|spec| &spec.action))?;
        Action::parse(action.as_ref())?;
        if existing.is_none_or(|existing| !differs_only_in_header_values(&existing.action, &self.action)) {
            action::check_new_action(&self.action)?;
        }
        Ok(())
    }

    fn check_name(&self, existing: Option<&Spec>) -> Result<(), FieldError> {
        if existing.is_some_and(|existing| existing.name == self.name) {
            return Ok(());
        }
        field::check_name("name", &self.name)
    }

    fn check_body_of_action(&self, existing: Option<&Spec>) -> Result<(), FieldError> {
        if existing.is_some_and(|existing| existing.action["body"] == self.action["body"]) {
            return Ok(());
        }
        field::check_extent("action.body", &self.action["body"])?;
        redaction::refuse_redacted("action.body", &self.action["body"])
    }

    /// Validates the policies; an absent one has its default.
    fn policies(&self, faults: &mut Faults) -> Policies {
        let usual = Policies::DEFAULT;
        let mut within = |field: &str, written: Option<i32>, usual: i32, least: i32, most: i32| {
            faults.check(within(field, written, usual, least, most)).unwrap_or(usual)
        };
        Policies {
            overlap: self.overlap_policy.unwrap_or(usual.overlap),
            max_concurrent: within("max_concurrent", self.max_concurrent, usual.max_concurrent, 1, 100),
            catch_up: self.catch_up_policy.unwrap_or(usual.catch_up),
            catch_up_window_secs: within(
                "catch_up_window_secs",
                self.catch_up_window_secs,
                usual.catch_up_window_secs,
                60,
                30 * 24 * 60 * 60,
            ),
            spread_secs: within("spread_secs", self.spread_secs, usual.spread_secs, 0, 3_600),
            timeout_secs: within("timeout_secs", self.timeout_secs, usual.timeout_secs, 1, 24 * 60 * 60),
            max_attempts: within("max_attempts", self.max_attempts, usual.max_attempts, 1, 20),
            on_lost: self.on_lost.unwrap_or(usual.on_lost),
            pause_after_failures: self
                .pause_after_failures
                .map(|written| within("pause_after_failures", Some(written), 1, 1, 1_000)),
        }
    }
}

fn check_inputs(existing: Option<&Spec>, starting_inputs: &Map<String, Value>) -> Result<(), FieldError> {
    if existing.is_some_and(|existing| existing.starting_inputs == *starting_inputs) {
        return Ok(());
    }
    field::check_inputs("starting_inputs", starting_inputs)?;
    redaction::refuse_redacted_members("starting_inputs", starting_inputs)
}

fn checked_time(field: &str, time: Option<DateTime<Utc>>, faults: &mut Faults) -> Option<DateTime<Utc>> {
    time.and_then(|time| faults.check(field::check_instant(field, time)))
}

/// Whether two actions are equal except for the values of headers: a file has the text of a value that is stored encrypted.
fn differs_only_in_header_values(existing: &Value, written: &Value) -> bool {
    existing == written || {
        let [mut existing, mut written] = [existing.clone(), written.clone()];
        redaction::hide_headers(&mut existing);
        redaction::hide_headers(&mut written);
        existing == written
    }
}

fn within(field: &str, written: Option<i32>, usual: i32, least: i32, most: i32) -> Result<i32, FieldError> {
    match written.unwrap_or(usual) {
        value if (least..=most).contains(&value) => Ok(value),
        _ => Err(FieldError::invalid(field, format!("{field} must be from {least} to {most}"))),
    }
}

impl ScheduleBody {
    /// Returns the workflow with this schedule and otherwise unchanged.
    ///
    /// # Errors
    /// Returns the first field that is not valid.
    pub fn apply_to(self, existing: &Spec, bounds: &Bounds) -> Result<Spec, FieldError> {
        let body = WorkflowBody {
            cron_schedule: Some(self.cron_schedule),
            timezone: self.timezone,
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            overlap_policy: self.overlap_policy,
            max_concurrent: self.max_concurrent,
            catch_up_policy: self.catch_up_policy,
            catch_up_window_secs: self.catch_up_window_secs,
            spread_secs: self.spread_secs,
            pause_after_failures: self.pause_after_failures,
            ..WorkflowBody::from_spec(existing)
        };
        body.into_spec(Some(existing), bounds)
    }

    /// Returns the body that would write a workflow's schedule again; `None` without a cron.
    fn from_spec(spec: &Spec) -> Option<Self> {
        let policies = &spec.policies;
        Some(Self {
            cron_schedule: spec.timing.cron.clone()?,
            timezone: spec.timing.timezone.clone(),
            starts_at: spec.timing.starts_at,
            ends_at: spec.timing.ends_at,
            overlap_policy: Some(policies.overlap),
            max_concurrent: Some(policies.max_concurrent),
            catch_up_policy: Some(policies.catch_up),
            catch_up_window_secs: Some(policies.catch_up_window_secs),
            spread_secs: Some(policies.spread_secs),
            pause_after_failures: policies.pause_after_failures,
        })
    }
}

/// Returns a workflow after a patch.
///
/// # Errors
/// Returns the field that the patch makes invalid.
pub fn patch_workflow(
    existing: &Spec,
    patch: Map<String, Value>,
    kind: PatchKind,
    bounds: &Bounds,
) -> Result<Spec, FieldError> {
    patched_body(existing, patch, kind)?.into_spec(Some(existing), bounds)
}

fn patched_body(existing: &Spec, patch: Map<String, Value>, kind: PatchKind) -> Result<WorkflowBody, FieldError> {
    if patch.contains_key("team_id") {
        return Err(FieldError::new("immutable_field", "team_id", "team_id cannot be changed"));
    }
    let document = serde_json::to_value(WorkflowBody::from_spec(existing))
        .map_err(|error| FieldError::invalid("", format!("the stored workflow cannot be patched: {error}")))?;
    let changes_action = patch.contains_key("action");
    if !changes_action && !patch.contains_key("starting_inputs") {
        return field::parse_document("", patch::apply_patch(document, patch, kind));
    }
    let sent = Value::Object(patch.clone());
    // In a merge patch, null would remove the mark, too.
    redaction::refuse_redacted("action.body", &sent["action"]["body"])?;
    redaction::refuse_redacted("starting_inputs", &sent["starting_inputs"])?;
    let before = changes_action.then(|| document.clone());
    let after = patch::apply_patch(document, patch, kind);
    if let Some(before) = before {
        redaction::require_secrets_again(&before, &after, &sent)?;
    }
    field::parse_document("", after)
}

/// Returns a workflow after a patch of its schedule; `None` if it has none.
///
/// # Errors
/// Returns the field that the patch makes invalid.
pub fn patch_schedule(
    existing: &Spec,
    patch: Map<String, Value>,
    kind: PatchKind,
    bounds: &Bounds,
) -> Result<Option<Spec>, FieldError> {
    let Some(current) = ScheduleBody::from_spec(existing) else { return Ok(None) };
    let document = serde_json::to_value(current)
        .map_err(|error| FieldError::invalid("", format!("the stored schedule cannot be patched: {error}")))?;
    let body: ScheduleBody = field::parse_document("", patch::apply_patch(document, patch, kind))?;
    body.apply_to(existing, bounds).map(Some)
}

/// Returns the workflow without a schedule; its policies do not change.
#[must_use]
pub fn remove_schedule(current: &Spec) -> Spec {
    let timing = Timing { cron: None, ..current.timing.clone() };
    Spec { timing, ..current.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn current() -> Spec {
        Spec {
            name: "nightly".into(),
            description: Some("books".into()),
            labels: [("owner".to_owned(), "payroll".to_owned())].into(),
            timing: Timing {
                cron: Some("0 9 * * *".into()),
                timezone: Some("Europe/Paris".into()),
                ..Timing::default()
            },
            is_api: true,
            action: json!({"type": "http", "method": "GET", "url": "https://a.example", "headers": {"a": "1", "b": "2"}}),
            starting_inputs: Map::new(),
            policies: Policies::DEFAULT,
        }
    }

    fn patch(document: Value, kind: PatchKind) -> Result<WorkflowBody, FieldError> {
        let Value::Object(members) = document else { panic!("a patch is an object") };
        patched_body(&current(), members, kind)
    }

    #[test]
    fn replace_takes_null_as_absent() {
        let body = patch(json!({"cron_schedule": null, "action": {"type": "log"}}), PatchKind::Replace).unwrap();
        assert_eq!(body.cron_schedule.as_deref(), Some("0 9 * * *"));
        assert_eq!(body.action, json!({"type": "log"}));
    }

    #[test]
    fn merge_removes_by_null_and_goes_deep() {
        let document = json!({"cron_schedule": null, "is_api": null, "action": {"headers": {"a": null}}});
        let body = patch(document, PatchKind::Merge).unwrap();
        assert_eq!((body.cron_schedule, body.is_api), (None, None));
        assert_eq!(body.action["headers"], json!({"b": "2"}));
    }

    #[test]
    fn merge_refuses_null_for_a_required_field() {
        let error = patch(json!({"name": null}), PatchKind::Merge).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), ("missing_field", "name"));
    }

    /// A claim reads the bodies of many runs of all teams. An earlier version stored larger ones: their URL can be changed.
    #[test]
    fn only_new_bodies_are_bounded() {
        let bounds = Bounds { now: DateTime::UNIX_EPOCH, retention: chrono::TimeDelta::days(30) };
        let refused = |existing: &Spec, url: &str, sent: Value| {
            let mut body = WorkflowBody::from_spec(existing);
            body.action = json!({"type": "http", "method": "POST", "url": url, "body": sent});
            body.into_spec(Some(existing), &bounds).map(drop).map_err(|error| error.field)
        };
        let (mut existing, moved) = (current(), "https://b.example");
        assert_eq!(refused(&existing, moved, json!(vec![0; 10_000])), Ok(()));
        assert_eq!(refused(&existing, moved, json!(vec![0; 10_001])), Err("action.body".to_owned()));
        assert_eq!(refused(&existing, moved, json!(vec![1e300; 1_000])), Err("action.body".to_owned()));
        existing.action["body"] = json!(vec![0; 12_000]);
        assert_eq!(refused(&existing, moved, existing.action["body"].clone()), Ok(()));
        assert_eq!(refused(&existing, moved, json!(vec![1; 12_000])), Err("action.body".to_owned()));
    }

    /// A file has the text of what is stored encrypted, and an earlier version permitted more names.
    #[test]
    fn existing_header_names_stay_valid() {
        let bounds = Bounds { now: DateTime::UNIX_EPOCH, retention: chrono::TimeDelta::days(30) };
        let mut existing = current();
        existing.action["headers"] = json!({"via": {"sealed": "1:x"}});
        let mut body = WorkflowBody::from_spec(&existing);
        body.action["headers"] = json!({"via": "text"});
        assert!(body.clone().into_spec(Some(&existing), &bounds).is_ok());
        body.action["headers"] = json!({"via": "text", "date": "text"});
        assert!(body.into_spec(Some(&existing), &bounds).is_err());
    }

    #[test]
    fn refused_patches_name_their_field() {
        assert_eq!(patch(json!({"team_id": 2}), PatchKind::Merge).unwrap_err().code, "immutable_field");
        let error = patch(json!({"state": "paused"}), PatchKind::Replace).unwrap_err();
        assert_eq!((error.code, error.field.as_str()), ("unknown_field", "state"));
    }
}
