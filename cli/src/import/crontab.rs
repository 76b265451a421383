//! Crontabs: five fields and a command, as cronie and Vixie cron read them.
//!
//! | in a crontab | here |
//! |---|---|
//! | both day fields are restricted | the time is due if one of them matches, as in our dialect |
//! | `@reboot` | not taken over: it has no time |
//! | `NAME=value` | a note: a request has no environment; `CRON_TZ` is the timezone of the times, `TZ` only that of the commands |
//! | `%` in the command | a line break in cron, so the rest is its standard input |
//! | `5/15` | not taken over: crons differ in what they read |
//! | 7 for Sunday, names, `~` (random) | names and 7 as they are; `~` is not taken over: `spread_secs` spreads |
//! | six fields, as other schedulers have | not taken over: cron would read the first five, and run the sixth |

use schedule::Cron;
use serde_json::json;

use super::definition::{Definition, Imported};
use super::dialect::Dialect;

const MACROS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// What a line of a crontab is.
enum Line<'a> {
    Nothing,
    Variable(&'a str, &'a str),
    /// The times, and the rest of the line.
    Job(String, &'a str),
}

/// Reads a crontab.
pub(super) fn import_crontab(text: &str, system: bool, timezone: &str) -> Imported {
    let mut imported = Imported::default();
    let mut timezone = timezone.to_owned();
    for (nth, written) in text.lines().enumerate() {
        match read_line(written) {
            Line::Nothing => {}
            Line::Variable("CRON_TZ", value) => value.clone_into(&mut timezone),
            Line::Variable(name, value) => {
                let more = if name == "TZ" { ", which does not change their times" } else { "" };
                let note = format!("line {}: the jobs after it had the variable {name}={value}{more}", nth + 1);
                imported.notes.push(note);
            }
            Line::Job(times, rest) => {
                imported.add(definition(&times, rest, system, &timezone, nth + 1));
            }
        }
    }
    imported
}

fn read_line(written: &str) -> Line<'_> {
    let line = written.trim();
    if line.is_empty() || line.starts_with('#') {
        return Line::Nothing;
    }
    if let Some((name, value)) = line.split_once('=')
        && name.trim().chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
        && !name.trim().is_empty()
    {
        return Line::Variable(name.trim(), value.trim().trim_matches(['"', '\'']));
    }
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let (times, rest) = split_fields(line, fields);
    Line::Job(times, rest)
}

/// The first fields with one blank between them, and the rest of the line.
fn split_fields(line: &str, count: usize) -> (String, &str) {
    let (mut fields, mut rest) = (Vec::new(), line);
    for _ in 0..count {
        let (field, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        if !field.is_empty() {
            fields.push(field);
        }
        rest = after.trim_start();
    }
    (fields.join(" "), rest)
}

fn definition(times: &str, rest: &str, system: bool, timezone: &str, nth: usize) -> Definition {
    let (user, command) = if system { rest.split_once([' ', '\t']).unwrap_or((rest, "")) } else { ("", rest) };
    let command = command.trim();
    let mut definition = Definition { name: name_of(command, nth), what: command.to_owned(), ..Definition::default() };
    // The first - of cronie: no mail and no log line.
    let times = times.strip_prefix('-').unwrap_or(times);
    match times {
        "@reboot" => definition.refuse("@reboot: it has no time; run it when the machine starts"),
        _ if times.starts_with('@') && !MACROS.contains(&times) => {
            definition.refuse(format_args!("{times}: it is no macro that names a time"));
        }
        _ if times.contains('~') => {
            definition.refuse(format_args!("{times}: ~ is a random minute; choose one, and see spread_secs"));
        }
        _ if !times.starts_with('@') && rest.split_whitespace().next().is_some_and(is_field) => {
            definition.refuse(format_args!(
                "{times} {rest}: it has more than five fields; write the five that a crontab has, without seconds or years"
            ));
        }
        _ => definition.take_cron(times, Dialect::Crontab),
    }
    definition.take_timezone(timezone);
    if !user.is_empty() {
        definition.note(format!("it ran as the user {user}"));
    }
    if let [_, _, day, _, weekday] = times.split(' ').collect::<Vec<_>>()[..]
        && day != "*"
        && weekday != "*"
    {
        definition.note("both day fields are restricted; they combine as in cron: docs/cron.md says how");
    }
    if let Some((command, _input)) = split_at_percent(command) {
        definition.note(format!("% ends the command {command}; what follows was its standard input"));
    }
    if !command.is_empty() {
        definition.note(format!("it ran the command: {command}"));
        definition.set("starting_inputs", json!({ "command": command }));
    }
    definition
}

/// Whether a word is a field of a cron, and not a command.
fn is_field(word: &str) -> bool {
    let is_numeric = word.chars().all(|one| one.is_ascii_digit() || "*?,-/".contains(one));
    let has_value = word.contains(|one: char| one.is_ascii_digit() || "*?".contains(one));
    // Weekdays by name, or with the signs of this field.
    (is_numeric && has_value) || Cron::parse(&format!("* * * * {word}")).is_ok()
}

/// The first % that is not `\%`.
fn split_at_percent(command: &str) -> Option<(&str, &str)> {
    let at = command.char_indices().find(|(at, one)| *one == '%' && !command[..*at].ends_with('\\'))?.0;
    Some((&command[..at], &command[at + 1..]))
}

/// A name from the command: its program, without folders and arguments.
fn name_of(command: &str, nth: usize) -> String {
    let words = command.split_whitespace().filter(|word| {
        !word.contains('=') && !["cd", "&&", "nice", "sudo"].contains(word) && word.parse::<i64>().is_err()
    });
    let program = words
        .map(|word| word.rsplit('/').next().unwrap_or(word))
        .find(|word| !word.is_empty() && !word.starts_with('-'));
    program.map_or_else(|| format!("line {nth}"), |program| program.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Definition {
        let imported = import_crontab(text, false, "UTC");
        assert_eq!(imported.definitions.len(), 1, "{imported:?}");
        imported.definitions[0].clone()
    }

    #[test]
    fn lines_become_workflows() {
        let job = one("*/5  9-17 * * 1-5\t/usr/local/bin/report.sh --all > /dev/null 2>&1");
        assert_eq!((job.name.as_str(), job.cron.as_deref()), ("report.sh", Some("*/5 9-17 * * 1-5")));
        assert_eq!(job.fields["starting_inputs"]["command"], "/usr/local/bin/report.sh --all > /dev/null 2>&1");
        assert_eq!(one("@daily backup").cron.as_deref(), Some("@daily"));
        assert_eq!(one("0 0 * * 7 x").cron.as_deref(), Some("0 0 * * 7"));
    }

    #[test]
    fn what_is_not_taken_over_is_said() {
        for text in ["@reboot start", "0~59 * * * * x", "61 * * * * x", "5/15 * * * * x", "0 9 * *", "@fortnightly x"] {
            let job = one(text);
            assert!(!job.is_taken() && job.notes[0].starts_with("NOT TAKEN OVER"), "{text}: {job:?}");
        }
        let job = one("0 9 * * * 7z a b");
        assert!(job.is_taken() && job.name == "7z", "a digit begins this command: {job:?}");
        let percent = one("0 0 * * * mail -s hi me%body\\% of it");
        assert!(percent.notes.iter().any(|note| note.contains("standard input")), "{percent:?}");
    }

    #[test]
    fn variables_are_noted_and_zones_are_taken() {
        let text = "# nightly\nMAILTO=ops@example.com\nCRON_TZ=Europe/Paris\n\n0 3 * * * root /opt/job\n";
        let imported = import_crontab(text, true, "UTC");
        let job = &imported.definitions[0];
        assert_eq!((job.name.as_str(), job.timezone.as_deref()), ("job", Some("Europe/Paris")));
        assert!(job.notes.iter().any(|note| note == "it ran as the user root"), "{job:?}");
        assert_eq!(imported.notes, ["line 2: the jobs after it had the variable MAILTO=ops@example.com"]);
    }

    /// The first five of them are a cron of another meaning: the third of each month at midnight in the place of each day at three.
    #[test]
    fn more_than_five_fields_are_refused() {
        for text in [
            "0 0 3 * * * payroll",
            "0 0 9 * * 1-5 payroll",
            "0 0 9 * * MON-FRI payroll",
            "0 0 9 ? * fri payroll",
            "0 0 9 ? * 5#2 payroll",
            "0 */5 * * * ? payroll",
            "0 9 * * ? 2030 payroll",
        ] {
            let job = one(text);
            assert!(!job.is_taken() && job.notes[0].contains("more than five fields"), "{text}: {job:?}");
        }
        let system = import_crontab("0 0 3 * * * root payroll", true, "UTC");
        assert_eq!(system.refused(), 1, "{system:?}");
    }

    /// crontab(5): TZ is only in the environment of the commands.
    #[test]
    fn tz_does_not_move_times() {
        for (before, expected) in [("", Some("Europe/Paris")), ("CRON_TZ=Asia/Tokyo\n", Some("Asia/Tokyo"))] {
            let imported = import_crontab(&format!("{before}TZ=UTC\n0 9 * * 1-5 payroll\n"), false, "Europe/Paris");
            assert_eq!(imported.definitions[0].timezone.as_deref(), expected);
            let [note] = &imported.notes[..] else { panic!("{imported:?}") };
            assert!(note.ends_with("TZ=UTC, which does not change their times"), "{note}");
        }
    }

    /// UTC in its place would shift every time.
    #[test]
    fn jobs_of_an_unknown_zone_are_refused() {
        let text = "0 8 * * * a\nCRON_TZ=Europe/Pari\n0 9 * * * b\nCRON_TZ=Europe/Paris\n0 10 * * * c\n";
        let imported = import_crontab(text, false, "UTC");
        assert_eq!((imported.taken(), imported.refused()), (2, 1));
        let refused = &imported.definitions[1];
        assert!(
            !refused.is_taken() && refused.notes[0].starts_with("NOT TAKEN OVER, the timezone Europe/Pari"),
            "{refused:?}"
        );
    }

    #[test]
    fn the_same_program_twice_has_two_names() {
        let imported = import_crontab("0 1 * * * a\n0 2 * * * a\n", false, "UTC");
        let names: Vec<_> = imported.definitions.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a", "a 2"]);
    }
}
