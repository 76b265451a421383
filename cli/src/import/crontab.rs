//! Crontabs: five fields and a command, as cronie and Vixie cron read them.
//!
//! | in a crontab | here |
//! |---|---|
//! | both day fields are restricted | the time is due if one of them matches, as in our dialect |
//! | `@reboot` | not taken over: it has no time |
//! | `NAME=value` | a note: a request has no environment; `CRON_TZ` is the timezone of the times, `TZ` only that of the commands |
//! | `%` in the command | the first one ends the command, and what follows is its standard input; `\%` is a `%` |
//! | a user after the times, as in /etc/crontab | only with `--system`; without it such a file is refused |
//! | `5/15` | not taken over: crons differ in what they read |
//! | a time that the clocks skip | a note: cron runs such a job right after the jump, and here the time does not exist |
//! | 7 for Sunday, names, `~` (random) | names and 7 as they are; `~` is not taken over: `spread_secs` spreads |
//! | six fields, as other schedulers have | not taken over: cron would read the first five, and run the sixth |

use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use schedule::{Cron, Timezone, parse_timezone};
use serde_json::json;

use super::definition::{Definition, Imported};
use super::dialect::Dialect;

const MACROS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// How far ahead skipped times are noted: the clocks go forward once in each 53 weeks, if they do so by a yearly rule.
const NOTED_AHEAD: TimeDelta = TimeDelta::weeks(53);
/// cron takes a longer jump for a correction of the clock, and runs no job that it skipped.
const LONGEST_JUMP: TimeDelta = TimeDelta::hours(3);

/// What a line of a crontab is.
enum Line<'a> {
    Nothing,
    Variable(&'a str, &'a str),
    /// The times, and the rest of the line.
    Job(String, &'a str),
}

/// Whether each line has a user after its times, by the file's place or by a command that would be `root`: the user would become
/// the program.
pub(super) fn has_users(file: &str, text: &str) -> bool {
    let file = Path::new(file);
    let is_root =
        |line: &str| matches!(read_line(line), Line::Job(_, rest) if rest.split_whitespace().next() == Some("root"));
    file == Path::new("/etc/crontab") || file.starts_with("/etc/cron.d") || text.lines().any(is_root)
}

/// Reads a crontab of a machine in a timezone.
pub(super) fn import_crontab(text: &str, system: bool, timezone: &str, now: DateTime<Utc>) -> Imported {
    let mut imported = Imported::default();
    let mut cron_timezone = None;
    for (nth, written) in text.lines().enumerate() {
        match read_line(written) {
            Line::Nothing => {}
            Line::Variable("CRON_TZ", value) => cron_timezone = Some(value),
            Line::Variable(name, value) => {
                let more = if name == "TZ" { ", which does not change their times" } else { "" };
                let note = format!("line {}: the jobs after it had the variable {name}={value}{more}", nth + 1);
                imported.notes.push(note);
            }
            Line::Job(times, rest) => {
                let mut job = definition(&times, rest, system, cron_timezone.unwrap_or(timezone), nth + 1);
                // cronie itself skips the times that its clocks skip by CRON_TZ.
                if cron_timezone.is_none() {
                    note_skipped_time(&mut job, timezone, now);
                }
                imported.add(job);
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
    let (command, input) = split_command(command.trim());
    let mut definition = Definition { name: name_of(&command, nth), what: command.clone(), ..Definition::default() };
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
        _ if !times.starts_with('@')
            && let Some(word) = rest.split_whitespace().next().filter(|word| is_field(word)) =>
        {
            definition.refuse(format_args!(
                "{times} {rest}: {word} is read as a sixth field; write the five that a crontab has, without seconds or years"
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
    if !command.is_empty() {
        definition.note(format!("it ran the command: {command}"));
        let mut inputs = json!({ "command": command });
        if let Some(input) = input {
            definition
                .note("a % ended its command; what followed was its standard input, and is in stdin of its inputs");
            inputs["stdin"] = json!(input);
        }
        definition.set("starting_inputs", inputs);
    }
    definition
}

/// Notes the next time that cron runs and cronbox does not: cron runs a job of a skipped time right after the jump, if neither
/// its minute nor its hour begins with `*` (cron(8), `find_jobs` of cronie).
fn note_skipped_time(job: &mut Definition, timezone: &str, now: DateTime<Utc>) {
    let Some(text) = job.cron.as_deref().filter(|text| !is_wildcard_job(text)) else { return };
    let (Ok(cron), Ok(timezone)) = (Cron::parse(text), parse_timezone(timezone)) else { return };
    if let Some((skipped, after)) = find_skipped_time(&cron, timezone, now) {
        let (day, skipped, after) = (skipped.format("%F"), skipped.format("%H:%M"), after.format("%H:%M"));
        job.note(format!(
            "on {day} the clocks skip {skipped}: cron runs it at {after}, and cronbox does not; choose an hour that exists each day"
        ));
    }
}

fn is_wildcard_job(cron: &str) -> bool {
    cron == "@hourly" || cron.split(' ').take(2).any(|field| field.starts_with('*'))
}

/// The first time that a cron names and the clocks skip, and the time to which they go forward; both on the local clock.
fn find_skipped_time(cron: &Cron, timezone: Timezone, now: DateTime<Utc>) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let local = |instant: DateTime<Utc>, offset_secs: i32| instant + TimeDelta::seconds(offset_secs.into());
    let just_before = TimeDelta::seconds(1);
    let mut changes = timezone.offset_changes_after(now).take_while(|change| *change <= now + NOTED_AHEAD);
    changes.find_map(|change| {
        let before = local(change, timezone.offset_secs(change - just_before));
        let after = local(change, timezone.offset_secs(change));
        // The calendar of UTC skips no time.
        let named = cron.next_after(before - just_before, Timezone::UTC)?;
        (named < after && after - before <= LONGEST_JUMP).then_some((named, after))
    })
}

/// Whether a word is a field of a cron, and not a command.
fn is_field(word: &str) -> bool {
    let is_numeric = word.chars().all(|one| one.is_ascii_digit() || "*?,-/".contains(one));
    let has_value = word.contains(|one: char| one.is_ascii_digit() || "*?".contains(one));
    // Weekdays by name, or with the signs of this field.
    (is_numeric && has_value) || Cron::parse(&format!("* * * * {word}")).is_ok()
}

/// The command as cron runs it, and its standard input, which the first `%` begins; `\%` is a `%` of the command (crontab(5),
/// `child_process` of cronie).
fn split_command(written: &str) -> (String, Option<String>) {
    let (mut command, mut is_escaped) = (String::new(), false);
    for (at, one) in written.char_indices() {
        match one {
            '%' if is_escaped => {
                command.pop();
                command.push('%');
            }
            '%' => return (command, Some(read_input(&written[at + 1..]))),
            _ => command.push(one),
        }
        is_escaped = one == '\\' && !is_escaped;
    }
    (command, None)
}

/// The standard input of a command: each `%` is a line break, except `\%`. cron ends its last line.
fn read_input(written: &str) -> String {
    let mut input = String::new();
    for one in written.chars() {
        match one {
            '%' if input.ends_with('\\') => {
                input.pop();
                input.push('%');
            }
            '%' => input.push('\n'),
            _ => input.push(one),
        }
    }
    if !input.is_empty() && !input.ends_with('\n') {
        input.push('\n');
    }
    input
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

    fn import(text: &str, system: bool, timezone: &str) -> Imported {
        import_crontab(text, system, timezone, "2026-03-01T00:00:00Z".parse().unwrap())
    }

    fn one(text: &str) -> Definition {
        let imported = import(text, false, "UTC");
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

    /// cron removes the backslash before it runs the command: `date '+\%F'` prints no date.
    #[test]
    fn commands_are_those_that_cron_runs() {
        for (written, command, input) in [
            (r#"pg_dump db > "/b/$(date '+\%F').sql""#, r#"pg_dump db > "/b/$(date '+%F').sql""#, None),
            (r"mail me%Dear \%you,%good night", "mail me", Some("Dear %you,\ngood night\n")),
            (r"a \n \\%b%", r"a \n \\", Some("b\n")),
            ("a%", "a", Some("")),
            ("a", "a", None),
        ] {
            let job = one(&format!("0 3 * * * {written}"));
            let inputs = &job.fields["starting_inputs"];
            assert_eq!(
                (&inputs["command"], inputs.get("stdin")),
                (&json!(command), input.map(|text| json!(text)).as_ref())
            );
        }
    }

    /// Without `--system` each job would run the program `root`.
    #[test]
    fn system_crontabs_are_recognized() {
        let job = "17 * * * * cd / && run-parts /etc/cron.hourly\n";
        for (file, text, expected) in [
            ("/etc/crontab", job, true),
            ("/etc/cron.d/certbot", job, true),
            ("/etc/cron.daily", job, false),
            ("-", job, false),
            ("-", "SHELL=/bin/sh\n# root\n17 * * * *\troot    cd / && run-parts /etc/cron.hourly\n", true),
            ("a", "@daily root backup\n", true),
            ("a", "0 3 * * * rootcheck\n", false),
        ] {
            assert_eq!(has_users(file, text), expected, "{file}: {text}");
        }
    }

    #[test]
    fn variables_are_noted_and_zones_are_taken() {
        let text = "# nightly\nMAILTO=ops@example.com\nCRON_TZ=Europe/Paris\n\n0 3 * * * root /opt/job\n";
        let imported = import(text, true, "UTC");
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
            assert!(!job.is_taken() && job.notes[0].contains("is read as a sixth field"), "{text}: {job:?}");
        }
        let system = import("0 0 3 * * * root payroll", true, "UTC");
        assert_eq!(system.refused(), 1, "{system:?}");
    }

    /// cron(8): the jobs of a skipped time run right after the jump, except those of every minute or hour.
    #[test]
    fn jobs_in_a_gap_are_noted() {
        for (text, timezone, expected) in [
            ("30 2 * * * x", "Europe/Paris", Some("on 2026-03-29 the clocks skip 02:30: cron runs it at 03:00,")),
            ("0,45 2 * * 0 x", "Europe/Paris", Some("on 2026-03-29 the clocks skip 02:00: cron runs it at 03:00,")),
            ("@daily x", "America/Santiago", Some("on 2026-09-06 the clocks skip 00:00: cron runs it at 01:00,")),
            (
                "15 2 * * * x",
                "Australia/Lord_Howe",
                Some("on 2026-10-04 the clocks skip 02:15: cron runs it at 02:30,"),
            ),
            ("30 4 * * * x", "Europe/Paris", None),
            ("0 3 * * * x", "Europe/Paris", None),
            ("30 2 * * 1 x", "Europe/Paris", None),
            ("*/15 2 * * * x", "Europe/Paris", None),
            ("30 * * * * x", "Europe/Paris", None),
            ("@hourly x", "Europe/Paris", None),
            ("30 2 * * * x", "Asia/Tokyo", None),
            ("CRON_TZ=Europe/Paris\n30 2 * * * x", "Europe/Paris", None),
        ] {
            let job = import(text, false, timezone).definitions[0].clone();
            let note = job.notes.iter().find(|note| note.contains("the clocks skip"));
            assert!(job.is_taken() && note.is_some() == expected.is_some(), "{text}: {job:?}");
            assert!(note.zip(expected).is_none_or(|(note, expected)| note.starts_with(expected)), "{text}: {note:?}");
        }
    }

    /// Right after the clocks have gone forward, the note is about the next year.
    #[test]
    fn the_next_gap_is_noted_at_each_time() {
        for (now, expected) in [("2026-03-29T00:59:59Z", "on 2026-03-29 "), ("2026-03-29T01:00:00Z", "on 2027-03-28 ")]
        {
            let imported = import_crontab("30 2 * * * x", false, "Europe/Paris", now.parse().unwrap());
            assert!(imported.definitions[0].notes.iter().any(|note| note.starts_with(expected)), "{now}: {imported:?}");
        }
    }

    /// crontab(5): TZ is only in the environment of the commands.
    #[test]
    fn tz_does_not_move_times() {
        for (before, expected) in [("", Some("Europe/Paris")), ("CRON_TZ=Asia/Tokyo\n", Some("Asia/Tokyo"))] {
            let imported = import(&format!("{before}TZ=UTC\n0 9 * * 1-5 payroll\n"), false, "Europe/Paris");
            assert_eq!(imported.definitions[0].timezone.as_deref(), expected);
            let [note] = &imported.notes[..] else { panic!("{imported:?}") };
            assert!(note.ends_with("TZ=UTC, which does not change their times"), "{note}");
        }
    }

    /// UTC in its place would shift every time.
    #[test]
    fn jobs_of_an_unknown_zone_are_refused() {
        let text = "0 8 * * * a\nCRON_TZ=Europe/Pari\n0 9 * * * b\nCRON_TZ=Europe/Paris\n0 10 * * * c\n";
        let imported = import(text, false, "UTC");
        assert_eq!((imported.taken(), imported.refused()), (2, 1));
        let refused = &imported.definitions[1];
        assert!(
            !refused.is_taken() && refused.notes[0].starts_with("NOT TAKEN OVER, the timezone Europe/Pari"),
            "{refused:?}"
        );
    }

    #[test]
    fn the_same_program_twice_has_two_names() {
        let imported = import("0 1 * * * a\n0 2 * * * a\n", false, "UTC");
        let names: Vec<_> = imported.definitions.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a", "a 2"]);
    }
}
