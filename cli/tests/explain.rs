//! Tests of the real binary: the behaviour that scripts rely on.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

fn cronbox(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_cronbox"))
        .args(["cron", "explain"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn answer(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn json_has_every_field() {
    let arguments =
        ["0 9 13 * FRI", "--timezone", "Europe/Paris", "--from", "2026-03-10T00:00:00Z", "--count", "1", "--json"];
    let (code, stdout, _) = answer(&cronbox(&arguments, ""));
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        concat!(
            r#"{"normalized":"0 9 13 * 5","eventbridge":"cron(0 9 * * ? *)","eventbridge_timezone":"Europe/Paris","#,
            r#""coverage":"superset","description":"At 09:00, on day 13 of the month or on Friday","#,
            r#""zone_data":"VERSION","next":[{"utc":"2026-03-13T08:00:00Z","local":"2026-03-13T09:00:00+01:00","note":null}]}"#,
            "\n"
        )
        .replace("VERSION", &schedule::ZoneSet::bundled().version().to_string())
    );
}

/// The error says where the mistake is.
#[test]
fn bad_input_is_exit_code_2() {
    assert_eq!(
        answer(&cronbox(&["75 * * * *", "--json"], "")),
        (
            Some(2),
            "{\"error\":{\"code\":\"invalid_field\",\"message\":\"minute field: 75 is above 59 (character 1)\",\"field\":\"minute\"}}\n"
                .to_owned(),
            String::new()
        )
    );
    assert_eq!(
        answer(&cronbox(&["75 * * * *"], "")),
        (Some(2), String::new(), "cronbox: minute field: 75 is above 59 (character 1)\n".to_owned())
    );
    assert_eq!(cronbox(&["* * * * *", "--timezone", "Mars/Phobos"], "").status.code(), Some(2));
    assert_eq!(cronbox(&["* * * * *", "--from", "today"], "").status.code(), Some(2));
    assert_eq!(cronbox(&["* * * * *", "--count", "many"], "").status.code(), Some(2));
    assert_eq!(cronbox(&[], "").status.code(), Some(2));
}

#[test]
fn standard_input_is_answered_line_by_line() {
    let requests = concat!(
        r#"{"cron":"@daily","timezone":"UTC","from":"2026-03-10T12:00:00Z","count":1}"#,
        "\n\n",
        r#"{"cron":"75 * * * *"}"#,
        "\nnonsense\n",
        r#"{"cron":"@daily","from":"2026-03-11T12:00:00Z","count":1}"#
    );
    let (code, stdout, _) = answer(&cronbox(&["--stdin"], requests));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(code, Some(0));
    assert_eq!(lines.len(), 4, "{stdout}");
    assert!(lines[0].contains(r#""utc":"2026-03-11T00:00:00Z""#), "{}", lines[0]);
    assert!(lines[1].contains(r#""code":"invalid_field""#), "{}", lines[1]);
    assert!(lines[2].contains(r#""code":"invalid_request""#), "{}", lines[2]);
    assert!(lines[3].contains(r#""utc":"2026-03-12T00:00:00Z""#), "{}", lines[3]);
}
