//! The last days, each with what its verification has found.

use api_types::verify::{VerifiedDayView, VerifiedDaysView};
use chrono::{Days, NaiveDate};

use crate::api::Api;
use crate::drawing::days::{Day, Finding};
use crate::failure::Failure;

/// How many days before today are shown: five weeks.
const SHOWN: u64 = 35;

/// The words of a day of which no verification has begun.
pub(super) const NOT_VERIFIED: &str = "not verified";

/// How many of the days are proven, differ, or are unknown; today is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub proven: usize,
    pub differ: usize,
    pub unknown: usize,
}

/// Reads the last days, the oldest first, and today.
///
/// # Errors
/// Returns the failure of the API.
pub(super) async fn read(api: &Api) -> Result<Vec<Day>, Failure> {
    let found: VerifiedDaysView = api.get(&format!("/verify/days?days={SHOWN}")).await?;
    Ok(list(&found.items, api.now().date_naive()))
}

fn list(found: &[VerifiedDayView], today: NaiveDate) -> Vec<Day> {
    let past = (1..=SHOWN).rev().filter_map(|back| today.checked_sub_days(Days::new(back)));
    let of_day = |day: NaiveDate| {
        let (finding, words) = evaluate(found.iter().find(|found| found.day == day));
        Day { day, finding, words, href: Some(path_of(day)) }
    };
    let open = Day { day: today, finding: Finding::Unknown, words: "today has not ended".to_owned(), href: None };
    past.map(of_day).chain([open]).collect()
}

/// What is known of a day. Only a complete verification without differences, which has left out no workflow, is a proof.
fn evaluate(found: Option<&VerifiedDayView>) -> (Finding, String) {
    let Some(found) = found else { return (Finding::Unknown, NOT_VERIFIED.to_owned()) };
    let compared = format!("{} due times compared", found.due);
    let unproven = found.unproven;
    if found.differences > 0 {
        let count = usize::try_from(found.differences).unwrap_or(usize::MAX);
        let words = format!("{}, {compared}", count_differences(count));
        return (Finding::Differs(found.differences), words);
    }
    if found.finished_on.is_none() {
        return (Finding::Unknown, format!("the verification has not ended, {compared} so far"));
    }
    if unproven > 0 {
        let noun = if unproven == 1 { "workflow" } else { "workflows" };
        return (Finding::Unknown, format!("{unproven} {noun} could not be verified, {compared}"));
    }
    (Finding::Proven, format!("no difference, {compared}"))
}

/// So many differences, in words.
pub(super) fn count_differences(count: usize) -> String {
    format!("{count} {}", if count == 1 { "difference" } else { "differences" })
}

/// The page that verifies a day now.
fn path_of(day: NaiveDate) -> String {
    let next = day.checked_add_days(Days::new(1)).unwrap_or(day);
    format!("/proof?from={day}T00:00&to={next}T00:00#now")
}

/// Counts the days before today.
pub(super) fn tally(days: &[Day]) -> Tally {
    let past = days.split_last().map(|(_today, past)| past).unwrap_or_default();
    let count = |is: fn(&Finding) -> bool| past.iter().filter(|day| is(&day.finding)).count();
    Tally {
        proven: count(|finding| *finding == Finding::Proven),
        differ: count(|finding| matches!(finding, Finding::Differs(_))),
        unknown: count(|finding| *finding == Finding::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn verified(day: &str, differences: i64, unproven: i64, has_ended: bool) -> VerifiedDayView {
        let ended = has_ended.then_some("2026-03-30T00:10:00Z");
        serde_json::from_value(json!({
            "day": day, "due": 10, "decided": 10, "differences": differences, "unproven": unproven,
            "started_on": "2026-03-30T00:00:00Z", "finished_on": ended,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_unknown_is_not_proven() {
        let found = [
            verified("2026-03-29", 0, 0, true),
            verified("2026-03-28", 0, 0, false),
            verified("2026-03-27", 0, 2, true),
            verified("2026-03-26", 3, 0, false),
            verified("2026-03-25", 1, 0, true),
        ];
        let days = list(&found, "2026-03-30".parse().unwrap());
        assert_eq!(days.len(), 36);
        let newest: Vec<_> = days.iter().rev().take(7).map(|day| day.finding.clone()).collect();
        let (proven, unknown) = (Finding::Proven, Finding::Unknown);
        assert_eq!(
            newest,
            [
                unknown.clone(),
                proven,
                unknown.clone(),
                unknown.clone(),
                Finding::Differs(3),
                Finding::Differs(1),
                unknown.clone()
            ]
        );
        assert_eq!(days[30].words, "1 difference, 10 due times compared");
        assert_eq!(tally(&days), Tally { proven: 1, differ: 2, unknown: 32 });
        assert_eq!(days[34].href.as_deref(), Some("/proof?from=2026-03-29T00:00&to=2026-03-30T00:00#now"));
    }
}
