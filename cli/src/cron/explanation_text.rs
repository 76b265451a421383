//! The explanation as text for a terminal.

use std::fmt::Write as _;

use crate::cron::explain::Explanation;

/// The canonical text, a sentence, the expression for EventBridge, and a table of the next times.
pub(crate) fn format_explanation(explanation: &Explanation) -> String {
    let Explanation { normalized, description, eventbridge, eventbridge_timezone, coverage, zone_data, next, timezone } =
        explanation;
    let remark = if *coverage == "exact" { "" } else { ": fires at more times, the app refuses the surplus" };
    let mut text = format!(
        "cron         {normalized}\n\
         meaning      {description} ({timezone})\n\
         EventBridge  {eventbridge} in {eventbridge_timezone} ({coverage}{remark})\n\
         zone data    {zone_data}\n\n"
    );
    let local_width = next.iter().map(|time| time.local.len()).max().unwrap_or(0);
    let _ = writeln!(text, "{:local_width$}  UTC", "local");
    for time in next {
        let line = format!("{:local_width$}  {}  {}", time.local, time.utc, note(time.note));
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn note(note: Option<&str>) -> &str {
    match note {
        Some("gap") => "gap: a time before this one was skipped, the clocks went forward over it",
        Some("fold") => "fold: this local time comes twice, the clocks go back over it",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use schedule::Clock;

    use super::*;
    use crate::cron::explain::{Request, explain_cron};

    fn shown(request: &str) -> String {
        let clock = Clock::fixed("2026-10-24T12:00:00Z".parse().expect("a time"));
        let request = Request::from_json(request.as_bytes()).expect("a request");
        format_explanation(&explain_cron(&request, &clock).expect("an explanation"))
    }

    #[test]
    fn a_person_sees_sentence_expression_and_times() {
        let zone_data = schedule::ZoneSet::bundled().version().to_string();
        assert_eq!(
            shown(r#"{"cron":"30 2 * * *","timezone":"Europe/Paris","count":2}"#).replace(&zone_data, "VERSION"),
            "cron         30 2 * * *\n\
             meaning      At 02:30, every day (Europe/Paris)\n\
             EventBridge  cron(30 2 * * ? *) in Europe/Paris (exact)\n\
             zone data    VERSION\n\n\
             local                      UTC\n\
             2026-10-25T02:30:00+02:00  2026-10-25T00:30:00Z  fold: this local time comes twice, the clocks go back over it\n\
             2026-10-26T02:30:00+01:00  2026-10-26T01:30:00Z\n"
        );
    }

    #[test]
    fn supersets_say_that_the_app_refuses() {
        let shown = shown(r#"{"cron":"0 9 13 * 5","count":1}"#);
        assert!(shown.contains("(superset: fires at more times, the app refuses the surplus)"), "{shown}");
    }
}
