//! What people type instead of a cron, and the sentence that each of them gets.

use schedule::Cron;

#[test]
fn well_known_mistakes_are_explained() {
    for (text, said) in [
        ("0/5 * * * ? *", "this looks like EventBridge's six fields: write cron(0/5 * * * ? *)"),
        ("0 9 * * ? *", "this looks like EventBridge's six fields: write cron(0 9 * * ? *)"),
        ("0 9 ? * MON-FRI *", "this looks like EventBridge's six fields: write cron(0 9 ? * MON-FRI *)"),
        ("cron (0 9 * * ? *)", "write no blank between cron and ("),
        ("schedule(0 9 * * ? *)", "EventBridge's form is cron(0 9 * * ? *), and ours 0 9 * * *"),
        ("cron(0 9 * * * *)", "in cron(...), exactly one of the two day fields must be ?: write cron(0 9 * * ? *)"),
        ("@every 5m", "@every counts from the start of a program: write */5 * * * *"),
        ("@every 7m", "@every 7m divides neither the hour nor the day, so no cron means it"),
        ("*/90 * * * *", "every 90 minutes has no cron: a step counts anew in each field, which ends at 59"),
        ("*/60 * * * *", "every 60 minutes is once an hour: 0 * * * *"),
        ("*/120 * * * *", "every 120 minutes is 0 */2 * * *"),
        ("0 */24 * * *", "every 24 hours is once a day: 0 0 * * *"),
        ("0 22-2 * * *", "the range from 22 to 2 runs backwards: write 22-23,0-2"),
        ("0 9 * * 5-1", "the range from 5 to 1 runs backwards: write 5-6,0-1"),
        ("0 0 * NOV-FEB *", "the range from NOV to FEB runs backwards: write 11-12,1-2"),
        ("0 9 * * monday", "names have three letters: write MON for monday"),
        ("0 9 * * Thurs", "names have three letters: write THU for Thurs"),
        ("0 9 * SEPT *", "names have three letters: write SEP for SEPT"),
        ("0 9 * * MON, WED", "a blank splits the field: write MON,WED without blanks"),
        ("0 9 * * MON - FRI", "a blank splits the field: write MON- without blanks"),
        ("* /5 * * * *", "a blank splits the field: write */5 without blanks"),
        (
            "0 9 * * * root /usr/bin/backup",
            "a line of a crontab has a command, or a user and a command: only 0 9 * * * belongs here",
        ),
        (
            "*/5 * * * * /bin/x",
            "a line of a crontab has a command, or a user and a command: only */5 * * * * belongs here",
        ),
        ("0 9 * * * Europe/Paris", "the timezone is a field of its own: remove Europe/Paris here"),
        ("CRON_TZ=Europe/Paris 0 9 * * *", "the timezone is a field of its own: write 0 9 * * * here"),
        ("0 9 * * * 2026", "a year needs seven fields, with the seconds first: 0 0 9 * * * 2026"),
        ("0 9 * * * # every day", "a cron has no comment: only 0 9 * * * belongs here"),
        ("\"0 9 * * *\"", "write it without the quotes: 0 9 * * *"),
        ("0 9 * * 1–5", "– is not the hyphen -: type it again"),
        ("０ 9 * * *", "０ is not one of the digits 0 to 9: type it again"),
        ("H H * * *", "Jenkins' H has no meaning here: choose a time"),
        ("0 0 L-1 * *", "days before the last one are not in the dialect: L is the last day of the month"),
        ("0 0 31 2 *", "February has no day 31"),
        ("0 0 31 4 *", "April has no day 31"),
        ("0 0 9 29 2 ? 2026", "2026 has no 29 February"),
        ("0 9am * * *", "hours count from 0 to 23: 9am is 9"),
        ("0 12am * * *", "hours count from 0 to 23: 12am is 0"),
        ("09:30", "a cron has no clock time: 09:30 is 30 9 * * *"),
        ("", "the cron is empty: write five fields, for example 0 9 * * *"),
    ] {
        let error = Cron::parse(text).expect_err(text).to_string();
        assert!(error.starts_with(said), "{text}: {error}");
    }
}

/// What the advice says can be written.
#[test]
fn every_advised_cron_is_accepted() {
    for text in [
        "@every 5m",
        "*/60 * * * *",
        "*/120 * * * *",
        "0 */24 * * *",
        "CRON_TZ=Europe/Paris 0 9 * * *",
        "0 9 * * * 2026",
        "0/5 * * * ? *",
        "cron(0 9 * * * *)",
        "0 9 * * ? *",
        "09:30",
    ] {
        let said = Cron::parse(text).expect_err(text).to_string();
        let advised = said.rsplit_once(": ").map_or(&*said, |(_, advised)| advised);
        let advised = advised.trim_start_matches("write ").trim_end_matches(" here");
        let advised = advised.rsplit_once(" is ").map_or(advised, |(_, cron)| cron);
        Cron::parse(advised).unwrap_or_else(|error| panic!("{text}: {said}: {advised}: {error}"));
    }
}

/// The advice is about mistakes that are well known; every other error names its field.
#[test]
fn other_errors_name_their_field() {
    for (text, said) in [
        ("75 * * * *", "minute field: 75 is above 59"),
        ("0 24 * * *", "hour field: 24 is above 23"),
        ("0 9 * * FOO", "day-of-week field: "),
    ] {
        assert!(Cron::parse(text).unwrap_err().to_string().starts_with(said), "{text}");
    }
}
