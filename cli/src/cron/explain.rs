//! The explanation of one cron: a pure function of the request and the clock.

use chrono::{DateTime, Datelike, SecondsFormat, Utc};
use schedule::{Clock, Cron, CronError, Timezone, Upcoming, ZoneSet, compile_cron, parse_timezone};
use serde::{Deserialize, Serialize};

/// How many times are shown by default.
pub(crate) const DEFAULT_COUNT: u32 = 10;
/// The limit of one request.
const MAX_COUNT: u32 = 1000;

/// A request; one line of `--stdin`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    pub(crate) cron: String,
    /// UTC, if absent.
    pub(crate) timezone: Option<String>,
    /// RFC 3339; now, if absent.
    pub(crate) from: Option<String>,
    pub(crate) count: Option<u32>,
}

/// The answer to a request.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    pub(crate) normalized: String,
    pub(crate) eventbridge: String,
    pub(crate) eventbridge_timezone: String,
    pub(crate) coverage: &'static str,
    pub(crate) description: String,
    /// Version of the IANA database.
    pub(crate) zone_data: String,
    pub(crate) next: Vec<Next>,
    #[serde(skip)]
    pub(crate) timezone: Timezone,
}

/// One upcoming time.
#[derive(Debug, Serialize)]
pub(crate) struct Next {
    pub(crate) utc: String,
    /// RFC 3339 with the zone's offset.
    pub(crate) local: String,
    /// `gap`, `fold` or nothing.
    pub(crate) note: Option<&'static str>,
}

/// Why a request is refused.
#[derive(Debug, Serialize)]
pub(crate) struct Refusal {
    pub(crate) error: Fault,
}

/// A stable code, a sentence, and the field that is not valid.
#[derive(Debug, Serialize)]
pub(crate) struct Fault {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) field: Option<&'static str>,
}

impl Request {
    /// Parses one line of `--stdin`.
    pub(crate) fn from_json(line: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(line).map_err(|error| refusal("invalid_request", error.to_string(), None))
    }
}

/// Explains a cron.
pub(crate) fn explain_cron(request: &Request, clock: &Clock) -> Result<Explanation, Refusal> {
    let cron = Cron::parse(&request.cron).map_err(|error| of_cron(&request.cron, &error))?;
    let timezone = request.timezone.as_deref().map_or(Ok(Timezone::UTC), parse_timezone);
    let timezone = timezone.map_err(|error| refusal(error.code(), error.to_string(), Some("timezone")))?;
    let from = request.from.as_deref().map_or_else(|| Ok(clock.now()), instant)?;
    let count = request.count.unwrap_or(DEFAULT_COUNT);
    if count > MAX_COUNT {
        return Err(refusal("invalid_count", format!("count: {count} is above {MAX_COUNT}"), Some("count")));
    }
    cron.must_fire_after(from, timezone).map_err(|error| of_cron(&request.cron, &error))?;
    let compiled = compile_cron(&cron, timezone);
    Ok(Explanation {
        normalized: cron.to_string(),
        eventbridge: compiled.expression,
        eventbridge_timezone: compiled.timezone.name().to_owned(),
        coverage: compiled.coverage.as_str(),
        description: cron.describe_times(),
        zone_data: ZoneSet::installed().version().to_string(),
        next: cron.upcoming_times(from, timezone).take(count as usize).map(next).collect(),
        timezone,
    })
}

fn instant(text: &str) -> Result<DateTime<Utc>, Refusal> {
    let invalid = |reason: &str| refusal("invalid_from", format!("from: {reason}"), Some("from"));
    let parsed = DateTime::parse_from_rfc3339(text)
        .map_err(|_| invalid("not an RFC 3339 time: write it as 2026-03-29T07:00:00Z"))?
        .to_utc();
    if (1970..=2199).contains(&parsed.year()) { Ok(parsed) } else { Err(invalid("the year must be from 1970 to 2199")) }
}

fn next(time: Upcoming) -> Next {
    Next {
        utc: time.utc.to_rfc3339_opts(SecondsFormat::Secs, true),
        local: time.local.to_rfc3339_opts(SecondsFormat::Secs, false),
        note: time.note.map(schedule::Note::as_str),
    }
}

fn of_cron(text: &str, error: &CronError) -> Refusal {
    refusal(error.code(), error.sentence_about(text), Some(error.field().unwrap_or("cron")))
}

fn refusal(code: &'static str, message: String, field: Option<&'static str>) -> Refusal {
    Refusal { error: Fault { code, message, field } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(line: &str) -> Result<Explanation, Refusal> {
        let clock = Clock::fixed("2026-03-27T12:00:00Z".parse().expect("a time"));
        Request::from_json(line.as_bytes()).and_then(|request| explain_cron(&request, &clock))
    }

    fn json(answer: impl Serialize) -> String {
        serde_json::to_string(&answer).expect("JSON")
    }

    #[test]
    fn skipped_times_are_noted_at_the_next() {
        let answer = ask(r#"{"cron":"30 2 * * *","timezone":"Europe/Paris","count":3}"#).expect("an explanation");
        let zone_data = ZoneSet::bundled().version().to_string();
        assert_eq!(
            json(answer).replace(&zone_data, "VERSION"),
            concat!(
                r#"{"normalized":"30 2 * * *","eventbridge":"cron(30 2 * * ? *)","eventbridge_timezone":"Europe/Paris","#,
                r#""coverage":"exact","description":"At 02:30, every day","zone_data":"VERSION","next":["#,
                r#"{"utc":"2026-03-28T01:30:00Z","local":"2026-03-28T02:30:00+01:00","note":null},"#,
                r#"{"utc":"2026-03-30T00:30:00Z","local":"2026-03-30T02:30:00+02:00","note":"gap"},"#,
                r#"{"utc":"2026-03-31T00:30:00Z","local":"2026-03-31T02:30:00+02:00","note":null}]}"#
            )
        );
    }

    #[test]
    fn bad_input_has_code_sentence_and_field() {
        for (line, error) in [
            (
                r#"{"cron":"75 * * * *"}"#,
                r#"{"error":{"code":"invalid_field","message":"minute field: 75 is above 59 (character 1)","field":"minute"}}"#,
            ),
            (
                r#"{"cron":" 0 0 1,32 * *"}"#,
                r#"{"error":{"code":"invalid_field","message":"day-of-month field: 32 is above 31 (character 8)","field":"day-of-month"}}"#,
            ),
            (
                r#"{"cron":"0 0 30 2 *"}"#,
                r#"{"error":{"code":"never_fires","message":"February has no day 30","field":"cron"}}"#,
            ),
            (
                r#"{"cron":"0 0 9 1 1 ? 2020"}"#,
                r#"{"error":{"code":"never_fires","message":"the cron does not fire after 2026-03-27T12:00:00Z","field":"cron"}}"#,
            ),
            (
                r#"{"cron":"* * * * *","timezone":"Europe/Pari"}"#,
                r#"{"error":{"code":"invalid_timezone","message":"unknown timezone Europe/Pari; did you mean Europe/Paris?","field":"timezone"}}"#,
            ),
            (
                r#"{"cron":"* * * * *","from":"today"}"#,
                r#"{"error":{"code":"invalid_from","message":"from: not an RFC 3339 time: write it as 2026-03-29T07:00:00Z","field":"from"}}"#,
            ),
            (
                r#"{"cron":"* * * * *","count":1001}"#,
                r#"{"error":{"code":"invalid_count","message":"count: 1001 is above 1000","field":"count"}}"#,
            ),
            (
                r#"{"corn":"* * * * *"}"#,
                r#"{"error":{"code":"invalid_request","message":"unknown field `corn`, expected one of `cron`, `timezone`, `from`, `count` at line 1 column 7","field":null}}"#,
            ),
        ] {
            assert_eq!(ask(line).map_err(json).err().as_deref(), Some(error), "{line}");
        }
    }
}
