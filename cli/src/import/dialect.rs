//! Crons of other schedulers, written in our dialect so that they name the same days.
//!
//! In our dialect, as in cron, both day fields must match if one of them begins with `*`, so also with `*/2`; else one of them is
//! enough. The same text has other days elsewhere:
//!
//! | scheduler | both must match if | source |
//! |---|---|---|
//! | cron | a field begins with `*` | `entry.c` of Vixie cron and cronie |
//! | Kubernetes | a field has an item `*` or `?` without a step above 1 | `getRange` of robfig/cron 3 |
//! | pg-boss | a field is `*` or `?`; with cron-parser 4 also if it names every value | cron-parser 4 and 5 |
//! | GitHub Actions | a field is `*` | POSIX, which has no `*/2` |
//! | EventBridge | always, because one field is `?` | our dialect reads `cron(..)` by that rule |

use schedule::Cron;

/// The scheduler that a cron is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Crontab,
    EventBridge,
    GithubActions,
    Kubernetes,
    PgBoss,
}

/// Every day of the month, without a star.
const ALL_DAYS: &str = "1-31";
/// Every day of the week, without a star.
const ALL_WEEKDAYS: &str = "0-6";

impl Dialect {
    /// The cron with the same days in our dialect; the same text if possible. It may still be one that our parser refuses.
    ///
    /// # Errors
    /// Says why there is none, or why its days are not certain.
    pub(super) fn translate_cron(self, text: &str) -> Result<String, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        // cron-parser has the seconds first, as our dialect.
        let (seconds, five) = match &fields[..] {
            [seconds, five @ ..] if self == Self::PgBoss && five.len() == 5 => (Some(*seconds), five),
            five => (None, five),
        };
        let &[minute, hour, day, month, weekday] = five else {
            // A macro, or too few fields, which our parser explains.
            let is_of_another_form = self == Self::EventBridge || fields.len() < 5;
            return if is_of_another_form {
                Ok(text.to_owned())
            } else {
                Err(format!("it has {} fields, and a cron of its scheduler has five", fields.len()))
            };
        };
        if self == Self::Crontab
            && let Some(item) = five.iter().flat_map(|field| field.split(',')).find(|item| has_open_step(item))
        {
            return Err(format!("crons differ in what they read in {item}: write the range before the step"));
        }
        let [new_day, new_weekday] = self.translate_days(day, weekday)?;
        if (new_day.as_str(), new_weekday.as_str()) == (day, weekday) {
            return Ok(text.to_owned());
        }
        let seconds = seconds.map(|seconds| format!("{seconds} ")).unwrap_or_default();
        Ok(format!("{seconds}{minute} {hour} {new_day} {month} {new_weekday}"))
    }

    /// The day of the month and the day of the week in our dialect.
    fn translate_days(self, day: &str, weekday: &str) -> Result<[String; 2], String> {
        if matches!(self, Self::Crontab | Self::EventBridge) {
            return Ok([day.to_owned(), weekday.to_owned()]);
        }
        // The others that have ? read it as *.
        let [day, weekday] = [day, weekday].map(|field| field.replace('?', "*"));
        let is_one_enough = !self.is_open(&day) && !self.is_open(&weekday);
        if let Some(doubt) = self.find_doubt(&day, &weekday, is_one_enough) {
            return Err(doubt);
        }
        if is_one_enough {
            return Ok([spell_out(&day, ALL_DAYS), spell_out(&weekday, ALL_WEEKDAYS)]);
        }
        Ok([day, weekday].map(|field| if self.is_open(&field) { "*".to_owned() } else { field }))
    }

    /// Whether the scheduler ignores a day field, because it restricts nothing.
    fn is_open(self, field: &str) -> bool {
        let has_step_of_one = |item: &str| item.strip_prefix("*/").is_some_and(|step| step.parse::<u32>() == Ok(1));
        match self {
            Self::Kubernetes => field.split(',').any(|item| item == "*" || has_step_of_one(item)),
            _ => field == "*",
        }
    }

    /// Why the days are not certain, if they are not.
    fn find_doubt(self, day: &str, weekday: &str, is_one_enough: bool) -> Option<String> {
        match self {
            Self::GithubActions if is_one_enough && (day.contains('*') || weekday.contains('*')) => {
                Some(format!("GitHub does not say whether both day fields, {day} and {weekday}, must match"))
            }
            Self::PgBoss if weekday.split(',').any(ends_with_seven) => {
                Some(format!("cron-parser reads the steps in {weekday} differently in its versions: list the weekdays"))
            }
            Self::PgBoss if is_one_enough && (names_every_day(day, "*") || names_every_day("*", weekday)) => {
                let fields = format!("of the day fields {day} and {weekday}, one names every day");
                Some(format!("{fields}, and then both must match in cron-parser 4, and one in cron-parser 5"))
            }
            _ => None,
        }
    }
}

/// Whether an item is a step after one value, for example `5/15`: cron refuses it or reads only the value, and others read `5-59/15`.
fn has_open_step(item: &str) -> bool {
    item.split_once('/').is_some_and(|(range, _)| range != "*" && !range.contains('-'))
}

/// Whether an item is a step to the Sunday at the end of the week, which some versions of cron-parser always add.
fn ends_with_seven(item: &str) -> bool {
    has_open_step(item) || item.split_once('/').is_some_and(|(range, _)| range.ends_with("-7"))
}

fn names_every_day(day: &str, weekday: &str) -> bool {
    Cron::parse(&format!("0 0 {day} * {weekday}")) == Cron::parse("0 0 * * *")
}

/// The same values without a star, so that one of two day fields is enough.
fn spell_out(field: &str, all: &str) -> String {
    let spell_item = |item: &str| item.strip_prefix('*').map_or_else(|| item.to_owned(), |step| format!("{all}{step}"));
    field.split(',').map(spell_item).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
    use schedule::Timezone;

    use super::*;

    const DAYS: [&str; 11] = ["*", "?", "*/1", "*/2", "*/5", "1,*", "*,1", "2,*/5", "*/9,2", "1-31", "13"];
    const WEEKDAYS: [&str; 10] = ["*", "?", "*/1", "*/2", "1,*", "*/3,1", "1", "1-5", "0-6", "5/1"];

    /// Whether both day fields must match, by the rule of the scheduler itself.
    fn must_both_match(dialect: Dialect, day: &str, weekday: &str) -> bool {
        let is_star = |field: &str| match dialect {
            Dialect::Crontab | Dialect::EventBridge => field.starts_with('*'),
            Dialect::GithubActions => field == "*",
            Dialect::Kubernetes => field.split(',').any(|item| ["*", "?", "*/1", "?/1"].contains(&item)),
            Dialect::PgBoss => ["*", "?"].contains(&field),
        };
        is_star(day) || is_star(weekday)
    }

    /// Whether a field names a value, by the rule that all of them have.
    fn has_value(field: &str, value: u32, (first, last): (u32, u32)) -> bool {
        field.split(',').any(|item| {
            let (range, step) = item.split_once('/').unwrap_or((item, "1"));
            let (from, to) = match range.split_once('-') {
                Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                None if ["*", "?"].contains(&range) => (first, last),
                None if item.contains('/') => (range.parse().unwrap(), last),
                None => (range.parse().unwrap(), range.parse().unwrap()),
            };
            (from..=to).contains(&value) && (value - from).is_multiple_of(step.parse().unwrap())
        })
    }

    /// The next 40 days by the rule of the scheduler itself.
    fn literal_days(dialect: Dialect, day: &str, weekday: &str) -> Vec<NaiveDate> {
        let matches = |date: &NaiveDate| {
            let by_day = has_value(day, date.day(), (1, 31));
            let by_weekday = has_value(weekday, date.weekday().num_days_from_sunday(), (0, 6));
            if must_both_match(dialect, day, weekday) { by_day && by_weekday } else { by_day || by_weekday }
        };
        NaiveDate::from_ymd_opt(2026, 3, 1).unwrap().iter_days().filter(matches).take(40).collect()
    }

    /// Compares the next 40 times with those of the scheduler; returns whether the cron is taken over.
    fn keeps_its_times(dialect: Dialect, day: &str, weekday: &str) -> bool {
        let text = format!("0 9 {day} * {weekday}");
        let Ok(translated) = dialect.translate_cron(&text) else { return false };
        let cron = Cron::parse(&translated).unwrap_or_else(|error| panic!("{text}, {translated}: {error}"));
        let from: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().unwrap();
        let days: Vec<_> = cron.times_after(from, Timezone::UTC).take(40).map(|time| time.date_naive()).collect();
        assert_eq!(days, literal_days(dialect, day, weekday), "{dialect:?}: {text} became {translated}");
        true
    }

    /// `0 9 */2 * 1` is every odd day and every Monday in Kubernetes, and in cron only a Monday with an odd date.
    #[test]
    fn day_fields_keep_their_meaning() {
        for day in DAYS {
            for weekday in WEEKDAYS {
                assert!(keeps_its_times(Dialect::Kubernetes, day, weekday), "{day}, {weekday}");
                keeps_its_times(Dialect::PgBoss, day, weekday);
                // They have no ?.
                if day != "?" && weekday != "?" {
                    let is_taken = keeps_its_times(Dialect::Crontab, day, weekday);
                    assert_eq!(is_taken, weekday != "5/1", "{day}, {weekday}");
                    keeps_its_times(Dialect::GithubActions, day, weekday);
                }
            }
        }
    }

    #[test]
    fn other_fields_stay_as_they_are() {
        for (dialect, text, expected) in [
            (Dialect::Crontab, "0 9 */2 * 1", "0 9 */2 * 1"),
            (Dialect::Crontab, "@daily", "@daily"),
            (Dialect::EventBridge, "cron(0 9 ? * 2-6 *)", "cron(0 9 ? * 2-6 *)"),
            (Dialect::GithubActions, "30 5 13 * 1,3", "30 5 13 * 1,3"),
            (Dialect::Kubernetes, "*/15  8-18 */2 * *", "*/15  8-18 */2 * *"),
            (Dialect::Kubernetes, "*/15 8-18/2 */2 JAN 1", "*/15 8-18/2 1-31/2 JAN 1"),
            (Dialect::Kubernetes, "0 0 1,* * 1", "0 0 * * 1"),
            (Dialect::PgBoss, "0 30 9 */2 * MON", "0 30 9 1-31/2 * MON"),
            (Dialect::PgBoss, "0 30 9 ? * 1-5", "0 30 9 * * 1-5"),
            (Dialect::PgBoss, "0 9 L * 5L", "0 9 L * 5L"),
        ] {
            let translated = dialect.translate_cron(text);
            assert_eq!(translated.as_deref(), Ok(expected), "{dialect:?}");
            assert!(Cron::parse(expected).is_ok(), "{expected}");
        }
    }

    #[test]
    fn uncertain_crons_are_refused() {
        for (dialect, text) in [
            (Dialect::Crontab, "5/15 * * * *"),
            (Dialect::GithubActions, "0 9 */2 * 1"),
            (Dialect::GithubActions, "0 9 13 * */2"),
            (Dialect::GithubActions, "0 9 1,* * 1"),
            (Dialect::GithubActions, "0 0 9 * * 1"),
            (Dialect::Kubernetes, "0 0 9 * * 1"),
            (Dialect::PgBoss, "0 9 1-31 * 1"),
            (Dialect::PgBoss, "0 9 13 * 0-7"),
            (Dialect::PgBoss, "0 9 * * 2/2"),
            (Dialect::PgBoss, "0 9 * * 1-7/4"),
            (Dialect::PgBoss, "0 0 9 * * 1 2030"),
        ] {
            assert!(dialect.translate_cron(text).is_err(), "{dialect:?}: {text}");
        }
    }

    /// The examples of docs/migrate, whose times `schedule` checks.
    #[test]
    fn pages_show_what_is_imported() {
        for (page, dialect) in
            [("crontab", Dialect::Crontab), ("kubernetes", Dialect::Kubernetes), ("pg-boss", Dialect::PgBoss)]
        {
            let path = format!("{}/../docs/migrate/{page}.md", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            let rows = text.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
            let examples: Vec<_> = rows.filter(|cells| cells.len() == 3 && cells[0].starts_with('`')).collect();
            assert!(examples.len() >= 3, "{page}: {examples:?}");
            for cells in examples {
                let [other, ours] = [cells[0], cells[1]].map(|cell| cell.trim_matches('`'));
                assert_eq!(dialect.translate_cron(other).as_deref(), Ok(ours), "{page}");
            }
        }
    }
}
