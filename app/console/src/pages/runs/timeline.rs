//! The steps of a run, from its due time to its end, with the time between them.

use api_types::occurrences::OccurrenceView;
use api_types::runs::{AttemptView, RunDetailView, RunState};
use chrono::{DateTime, TimeDelta, Utc};

use super::states::has_ended;
use crate::times;
use crate::words;

/// One step.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// The class, for the colour of its dot.
    pub class: &'static str,
    /// What happened.
    pub words: String,
    /// When.
    pub at: DateTime<Utc>,
    /// The same, in the zone of the workflow.
    pub at_words: String,
    /// More of it, for example an error.
    pub detail: Option<String>,
    /// How long after the step before.
    pub waited: Option<String>,
    /// Until when it lasted, if it is no single moment.
    until: Option<DateTime<Utc>>,
}

/// The steps of a run in their order; `zone` is that of its workflow.
pub(super) fn steps(
    detail: &RunDetailView,
    occurrence: Option<&OccurrenceView>,
    zone: Option<&str>,
    now: DateTime<Utc>,
) -> Vec<Step> {
    let mut steps = before_attempts(detail, occurrence);
    steps.extend(detail.attempts.iter().filter_map(of_attempt));
    if let Some(at) = detail.cancel_requested_on {
        let mut requested = step("", "End requested".to_owned(), at);
        requested.detail = Some(detail.cancel_reason.clone().unwrap_or_else(|| "A caller requested it.".to_owned()));
        steps.push(requested);
    }
    steps.sort_by_key(|step| step.at);
    steps.push(last(detail, now));
    name_times(&mut steps, zone);
    steps
}

fn step(class: &'static str, words: String, at: DateTime<Utc>) -> Step {
    Step { class, words, at, at_words: String::new(), detail: None, waited: None, until: None }
}

/// The due time, the decision, the acceptance, and the time before which the run does not start.
fn before_attempts(detail: &RunDetailView, occurrence: Option<&OccurrenceView>) -> Vec<Step> {
    let run = &detail.run;
    let mut steps: Vec<_> = run.scheduled_time.map(|time| step("", "Due".to_owned(), time)).into_iter().collect();
    if let Some(occurrence) = occurrence {
        let decision = words::decision(&occurrence.decision);
        let decided = step(decision.class, format!("Decided: {}", decision.words), occurrence.decided_on);
        steps.push(Step { detail: occurrence.reason.clone(), ..decided });
    }
    steps.push(step("", format!("Accepted, {}", words::trigger(&run.trigger)), run.created_on));
    let first_start = detail.attempts.iter().find_map(|attempt| attempt.started_on);
    if detail.run_after > run.created_on && first_start.is_none_or(|start| start >= detail.run_after) {
        let spread = step("", "May begin".to_owned(), detail.run_after);
        steps.push(Step { detail: Some("The spread of the workflow delays it.".to_owned()), ..spread });
    }
    steps
}

fn of_attempt(attempt: &AttemptView) -> Option<Step> {
    let at = attempt.started_on.or(attempt.ended_on)?;
    let outcome = words::attempt_outcome(&attempt.outcome);
    let took = match (attempt.started_on, attempt.ended_on) {
        (Some(start), Some(end)) => format!(" after {}", fine_span(end - start)),
        _ => String::new(),
    };
    let words = format!("Attempt {}: {} {}{took}", attempt.attempt, outcome.mark, outcome.words);
    Some(Step { detail: attempt.error.clone(), until: attempt.ended_on, ..step(outcome.class, words, at) })
}

/// The end, or what a run that has not ended does now.
fn last(detail: &RunDetailView, now: DateTime<Utc>) -> Step {
    let run = &detail.run;
    let state = words::run_state(&run.state);
    if let Some(end) = run.finished_on.filter(|_| has_ended(run.state)) {
        let begin = run.scheduled_time.unwrap_or(run.created_on);
        let ended = step(state.class, format!("Ended: {} {}", state.mark, state.words), end);
        let since = if run.scheduled_time.is_some() { "due time" } else { "request" };
        return Step { detail: Some(format!("{} after its {since}.", fine_span(end - begin))), ..ended };
    }
    let waits = run.state != RunState::Running && detail.run_after > now;
    let present = step(state.class, format!("Now: {} {}", state.mark, state.words), now);
    let not_before = || format!("It does not start before {}.", times::in_utc_to_the_second(&detail.run_after));
    Step { detail: waits.then(not_before), ..present }
}

fn name_times(steps: &mut [Step], zone: Option<&str>) {
    let mut before: Option<DateTime<Utc>> = None;
    for step in steps {
        step.at_words = in_zone_to_the_second(&step.at, zone);
        let waited = before.map(|before| step.at - before).filter(|waited| *waited > TimeDelta::zero());
        step.waited = waited.map(|waited| format!("{} later", fine_span(waited)));
        before = Some(step.until.unwrap_or(step.at));
    }
}

/// The seconds count here, which [`times::in_zone`] leaves out.
fn in_zone_to_the_second(time: &DateTime<Utc>, zone: Option<&str>) -> String {
    let minutes = times::in_zone(time, zone);
    let mut parts: Vec<String> = minutes.split(' ').map(str::to_owned).collect();
    if let Some(clock) = parts.get_mut(2) {
        clock.push_str(&time.format(":%S").to_string());
    }
    parts.join(" ")
}

fn fine_span(span: TimeDelta) -> String {
    times::milliseconds(&span.num_milliseconds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn failed_run() -> RunDetailView {
        serde_json::from_value(json!({
            "id": "0198f000-0000-7000-8000-000000000001", "workflow_id": 7, "workflow_name": "payroll",
            "trigger": "schedule", "state": "failed", "scheduled_time": "2026-03-29T07:00:00Z", "attempt": 2,
            "created_on": "2026-03-29T07:00:01Z", "started_on": "2026-03-29T07:00:40Z",
            "finished_on": "2026-03-29T07:00:45Z", "duration_ms": 5000, "result": null, "result_bytes": null,
            "error": "500", "error_code": null, "team_id": 1, "occurrence_id": null, "retry_of": null,
            "backfill_id": null, "inputs": null, "tries": 2, "recoveries": 0, "handed_over": 0,
            "run_after": "2026-03-29T07:00:40Z", "cancel_requested_on": null, "cancel_reason": null,
            "locked_by": null, "late_result": null,
            "attempts": [
                {"attempt": 1, "started_on": "2026-03-29T07:00:01.200Z", "ended_on": "2026-03-29T07:00:10Z",
                 "outcome": "failed", "error": "502", "error_code": null},
                {"attempt": 2, "started_on": "2026-03-29T07:00:40Z", "ended_on": "2026-03-29T07:00:45Z",
                 "outcome": "failed", "error": "500", "error_code": null},
            ],
        }))
        .unwrap()
    }

    #[test]
    fn waiting_times_lie_between_the_steps() {
        let run = failed_run();
        let steps = steps(&run, None, Some("Europe/Paris"), run.run.created_on);
        let said: Vec<_> = steps.iter().map(|step| (step.words.as_str(), step.waited.as_deref())).collect();
        assert_eq!(
            said,
            [
                ("Due", None),
                ("Accepted, on schedule", Some("1.0 s later")),
                ("Attempt 1: ✕ failed after 8.8 s", Some("200 ms later")),
                ("Attempt 2: ✕ failed after 5.0 s", Some("30.0 s later")),
                ("Ended: ✕ failed", None),
            ]
        );
        assert_eq!(steps[0].at_words, "Sun 2026-03-29 09:00:00 Europe/Paris");
        assert_eq!(steps[4].detail.as_deref(), Some("45.0 s after its due time."));
    }
}
