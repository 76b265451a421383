//! Steps 1 and 7 of 7: enumerates the due times of a schedule, by the versions in force over a span.
//!
//! The watchdog, backfills, `:invoke` (is a late fire the newest?) and verification share this enumeration. Each
//! version is evaluated over its own span, so an edit neither repeats nor loses a time. Each time follows the zone data
//! that were in force at it, so a change of the data changes no past time.

use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use schedule::{Cron, TimezoneHistory, WorkflowId, ZoneHistory};
use workflows::State;

use crate::versions::{self, EndedBy, Version};

/// A due time of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTime {
    /// The scheduled time.
    pub time: DateTime<Utc>,
    /// The revision of the version that made it due.
    pub revision: i64,
    /// What ended that version; `None` while it is in force.
    pub ended_by: Option<EndedBy>,
}

/// The due times of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueTimes {
    /// The earliest first, at most the requested number.
    pub times: Vec<DueTime>,
    /// The instant up to which they are complete: the end of the span, the last of the times if there may be more, or
    /// just before the instant from which the version in force cannot be evaluated.
    pub through: DateTime<Utc>,
    /// Revisions whose timezone or cron is not known any more, so that their due times cannot be computed.
    pub unjudged: Vec<i64>,
    /// Whether the version in force is one of them: its due times are decided when they can be computed.
    pub is_blocked: bool,
}

/// Returns the due times after `after`, up to and including `until`, at most `limit` of them.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn read_due_times(
    db: &mut PgConnection,
    workflow: WorkflowId,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
    limit: usize,
) -> sqlx::Result<DueTimes> {
    let versions = versions::read_over(db, workflow, after, until).await?;
    Ok(list_due_times(&versions, after, until, limit))
}

/// Returns the next due time after `after` by these consecutive versions, or the instant from which it is unknown.
#[must_use]
pub fn next_due_time(versions: &[Version], after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    next_by(&ZoneHistory::installed(), versions, after)
}

fn next_by(zones: &ZoneHistory, versions: &[Version], after: DateTime<Utc>) -> Option<DateTime<Utc>> {
    versions.iter().find_map(|version| {
        let mut times = Times::of(version, after, zones)?;
        let unknown_from = times.unknown_from().filter(|from| *from > after);
        times.next().or(unknown_from)
    })
}

/// Returns the due times of a span by these consecutive versions.
#[must_use]
pub fn list_due_times(versions: &[Version], after: DateTime<Utc>, until: DateTime<Utc>, limit: usize) -> DueTimes {
    list_due_times_by(&ZoneHistory::installed(), versions, after, until, limit)
}

fn list_due_times_by(
    zones: &ZoneHistory,
    versions: &[Version],
    after: DateTime<Utc>,
    until: DateTime<Utc>,
    limit: usize,
) -> DueTimes {
    let mut due_times = DueTimes { times: Vec::new(), through: until, unjudged: Vec::new(), is_blocked: false };
    for version in versions {
        let times = Times::of(version, after, zones);
        let unknown_from = match &times {
            None => Some(version.valid_from),
            Some(times) => times.unknown_from().filter(|from| *from <= until),
        };
        for time in times.into_iter().flatten().take_while(|time| *time <= until) {
            if due_times.times.len() == limit {
                due_times.through = due_times.times.last().map_or(after, |last| last.time);
                return due_times;
            }
            due_times.times.push(DueTime { time, revision: version.revision, ended_by: version.ended_by });
        }
        if let Some(from) = unknown_from {
            due_times.unjudged.push(version.revision);
            if version.ended_on.is_none() {
                // Times after this instant may be due, too; the times before it are complete.
                due_times.is_blocked = true;
                due_times.through = after.max(from - TimeDelta::microseconds(1)).min(until);
            }
        }
    }
    due_times
}

/// The due times of one version within its own span and window.
struct Times {
    timing: Option<(Cron, TimezoneHistory)>,
    after: DateTime<Utc>,
    before: Option<DateTime<Utc>>,
}

impl Times {
    /// Returns `None` if the times cannot be computed.
    fn of(version: &Version, after: DateTime<Utc>, zones: &ZoneHistory) -> Option<Self> {
        let just_before = |time: DateTime<Utc>| time - TimeDelta::microseconds(1);
        let after = after.max(just_before(version.valid_from));
        let after = version.timing.starts_at.map_or(after, |start| after.max(just_before(start)));
        let before = [version.ended_on, version.timing.ends_at].into_iter().flatten().min();
        let timing = if version.state == State::Active { version.timing.parsed_over(zones).ok()? } else { None };
        Some(Self { timing, after, before })
    }

    /// The instant from which the times are unknown, because the zone data in force lack the timezone; `None` if it
    /// is not within the span.
    fn unknown_from(&self) -> Option<DateTime<Utc>> {
        let from = self.timing.as_ref()?.1.unknown_from()?;
        self.before.is_none_or(|before| from < before).then_some(from)
    }
}

impl Iterator for Times {
    type Item = DateTime<Utc>;

    fn next(&mut self) -> Option<DateTime<Utc>> {
        let (cron, timezone) = self.timing.as_ref()?;
        let time = timezone.next_after(cron, self.after)?;
        self.after = time;
        self.before.is_none_or(|before| time < before).then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use schedule::ZoneSet;

    use super::*;
    use workflows::definition::spec::Timing;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn version(revision: i64, cron: &str, from: &str, ended: Option<(&str, EndedBy)>) -> Version {
        Version {
            revision,
            valid_from: at(from),
            ended_on: ended.map(|(on, _)| at(on)),
            ended_by: ended.map(|(_, by)| by),
            timing: Timing { cron: Some(cron.to_owned()), ..Timing::default() },
            state: State::Active,
        }
    }

    fn times(due_times: &DueTimes) -> Vec<String> {
        due_times.times.iter().map(|due| format!("{} r{}", due.time.format("%R"), due.revision)).collect()
    }

    #[test]
    fn each_version_has_its_own_due_times() {
        let versions = [
            version(1, "0 * * * *", "2026-03-02T08:00:00Z", Some(("2026-03-02T10:00:00Z", EndedBy::Edit))),
            version(2, "30 * * * *", "2026-03-02T10:00:00Z", None),
        ];
        let due_times = list_due_times(&versions, at("2026-03-02T07:59:59Z"), at("2026-03-02T11:30:00Z"), 100);
        // 08:00 at the very beginning is due; 10:00 belongs to the second version, which does not name it.
        assert_eq!(times(&due_times), ["08:00 r1", "09:00 r1", "10:30 r2", "11:30 r2"]);
        assert_eq!(due_times.through, at("2026-03-02T11:30:00Z"));
        let ends: Vec<_> = due_times.times.iter().map(|due| due.ended_by).collect();
        assert_eq!(ends, [Some(EndedBy::Edit), Some(EndedBy::Edit), None, None]);
    }

    /// A span with more times than the limit is complete up to the last of them.
    #[test]
    fn limited_spans_end_at_their_last_time() {
        let versions = [version(1, "* * * * *", "2026-03-02T08:00:00Z", None)];
        let first = list_due_times(&versions, at("2026-03-02T08:00:00Z"), at("2026-03-02T08:05:00Z"), 3);
        assert_eq!((times(&first).len(), first.through), (3, at("2026-03-02T08:03:00Z")));
        let rest = list_due_times(&versions, first.through, at("2026-03-02T08:05:00Z"), 3);
        assert_eq!(
            (times(&rest), rest.through),
            (vec!["08:04 r1".into(), "08:05 r1".into()], at("2026-03-02T08:05:00Z"))
        );
    }

    #[test]
    fn times_are_due_from_start_until_end() {
        let mut only = version(1, "0 * * * *", "2026-03-02T08:00:00Z", None);
        only.timing.starts_at = Some(at("2026-03-02T09:00:00Z"));
        only.timing.ends_at = Some(at("2026-03-02T11:00:00Z"));
        let due_times = list_due_times(&[only], at("2026-03-02T00:00:00Z"), at("2026-03-02T20:00:00Z"), 100);
        assert_eq!(times(&due_times), ["09:00 r1", "10:00 r1"]);
    }

    #[test]
    fn unknown_versions_in_force_stop_the_list() {
        let mut lost = version(2, "0 * * * *", "2026-03-02T10:00:00Z", None);
        lost.timing.timezone = Some("Mars/Olympus".to_owned());
        let known = version(1, "0 * * * *", "2026-03-02T08:00:00Z", Some(("2026-03-02T10:00:00Z", EndedBy::Edit)));
        let after = at("2026-03-02T08:30:00Z");
        let due_times = list_due_times(&[known, lost.clone()], after, at("2026-03-02T12:00:00Z"), 100);
        assert_eq!((times(&due_times), &due_times.unjudged), (vec!["09:00 r1".into()], &vec![2]));
        assert!(due_times.through < at("2026-03-02T10:00:00Z"), "a time at its beginning is still to be decided");
        // After an edit has corrected the timezone, the span that cannot be computed is skipped and reported.
        lost.ended_on = Some(at("2026-03-02T11:30:00Z"));
        let mended = version(3, "0 * * * *", "2026-03-02T11:30:00Z", None);
        let due_times = super::list_due_times(&[lost, mended], after, at("2026-03-02T12:00:00Z"), 100);
        assert_eq!((times(&due_times), &due_times.unjudged), (vec!["12:00 r3".into()], &vec![2]));
        assert_eq!(due_times.through, at("2026-03-02T12:00:00Z"));
    }

    const CHANGED: &str = "2026-03-02T11:00:00Z";

    /// One zone with the rules of Lagos (+01:00), and after a change with those of Kathmandu (+05:45), or without any.
    fn zones(later: Option<&str>) -> ZoneHistory {
        let bundled = ZoneSet::bundled();
        let set = |version: &str, like: Option<&str>| {
            let tzif = |name| bundled.tzif(name).unwrap().to_vec();
            let files = like.map(|like| ("Test/Zone".to_owned(), tzif(like)));
            let files = files.into_iter().chain([("Test/Other".to_owned(), tzif("Africa/Lagos"))]);
            Arc::new(ZoneSet::from_files(&version.parse().unwrap(), files).unwrap())
        };
        let changes = [(DateTime::UNIX_EPOCH, set("2026a", Some("Africa/Lagos"))), (at(CHANGED), set("2026b", later))];
        ZoneHistory::new(changes, 2)
    }

    fn hourly_in_the_zone() -> Version {
        let mut hourly = version(1, "0 * * * *", "2026-03-02T08:00:00Z", None);
        hourly.timing.timezone = Some("Test/Zone".to_owned());
        hourly
    }

    #[test]
    fn each_time_follows_its_own_zone_data() {
        let (zones, versions) = (zones(Some("Asia/Kathmandu")), [hourly_in_the_zone()]);
        let (after, until) = (at("2026-03-02T09:00:00Z"), at("2026-03-02T12:30:00Z"));
        let due_times = list_due_times_by(&zones, &versions, after, until, 100);
        assert_eq!(times(&due_times), ["10:00 r1", "11:15 r1", "12:15 r1"]);
        assert_eq!((due_times.through, due_times.is_blocked), (until, false));
        assert_eq!(next_by(&zones, &versions, at("2026-03-02T10:00:00Z")), Some(at("2026-03-02T11:15:00Z")));
    }

    #[test]
    fn a_dropped_timezone_blocks_from_its_end() {
        let (zones, mut versions) = (zones(None), [hourly_in_the_zone()]);
        let (after, until) = (at("2026-03-02T09:00:00Z"), at("2026-03-02T12:30:00Z"));
        let due_times = list_due_times_by(&zones, &versions, after, until, 100);
        assert_eq!((times(&due_times), &due_times.unjudged), (vec!["10:00 r1".into()], &vec![1]));
        assert_eq!((due_times.through, due_times.is_blocked), (at("2026-03-02T10:59:59.999999Z"), true));
        // Before the change nothing is unknown, and the watchdog checks again at the change.
        let before = list_due_times_by(&zones, &versions, after, at("2026-03-02T10:30:00Z"), 100);
        assert_eq!((before.unjudged, before.is_blocked), (vec![], false));
        assert_eq!(next_by(&zones, &versions, at("2026-03-02T10:00:00Z")), Some(at(CHANGED)));
        assert_eq!(next_by(&zones, &versions, at(CHANGED)), None, "nothing is known after it");
        // A version that ended before the change, or at it, is known completely; one that ended later is not.
        for (ended_on, unjudged) in
            [("2026-03-02T10:30:00Z", vec![]), (CHANGED, vec![]), ("2026-03-02T11:30:00Z", vec![1])]
        {
            versions[0].ended_on = Some(at(ended_on));
            let ended = list_due_times_by(&zones, &versions, after, until, 100);
            assert_eq!((ended.unjudged, ended.is_blocked), (unjudged, false), "{ended_on}");
        }
    }
}
