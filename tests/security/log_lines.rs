//! Texts of tenants in the log: none may begin a line, or carry an escape code to a terminal.

use reqwest::Method;
use serde_json::json;

use crate::ground::{ended_run, fire, force_action, idle_story};
use crate::process::App;
use crate::report::Tally;

/// What a forged line begins with.
const FORGED: &str = "2001-01-01T00:00:00.000001Z ERROR app::api: FORGED";
/// What may end a line for a terminal, an editor or a collector.
const BREAKS: [&str; 10] =
    ["\n", "\r", "\r\n", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}", "\u{1b}[2K\u{1b}[1G", "\u{9b}2K"];

/// Sends each break in each text that may be logged.
pub(crate) async fn attack_log() -> Tally {
    let s = idle_story().await;
    let settings = [("RUST_LOG", "debug,sqlx=debug,hyper=info"), ("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8")];
    let app = App::start(&s.dsn(), &settings).await;
    let (editor, admin, runner) = (app.api(&s.keys.editor), app.api(&s.keys.admin), app.api(&s.keys.scheduler));
    let workflow = s.create("0 9 * * *", "UTC").await;
    let mut tries = 0;
    for text in BREAKS.map(|text| format!("hi{text}{FORGED}")) {
        let action = json!({"type": "log", "message": text});
        let logging = s.create_with(json!({"max_attempts": 1, "starting_inputs": {&text: text}})).await;
        // The API refuses most of these messages; an older version may have saved them.
        editor.patch(&format!("/api/v1/workflows/{logging}"), &json!({"action": action})).await;
        force_action(&s, logging, &action).await;
        let _ended = ended_run(&s, fire(&s, logging).await).await;
        let refused = json!({"type": "http", "method": "POST", "url": format!("http://127.0.0.1:9/?{text}")});
        let failing =
            editor.post("/api/v1/workflows", &json!({"name": text, "max_attempts": 1, "action": refused})).await;
        if failing.status == 201 {
            let fired =
                editor.post(&format!("/api/v1/schedules/{}:fire", failing.id()), &json!({"inputs": {"a": text}})).await;
            drop(fired);
        }
        editor.patch(&format!("/api/v1/workflows/{workflow}"), &json!({"description": text, "timezone": text})).await;
        editor.post(&format!("/api/v1/workflows/{workflow}:pause"), &json!({"reason": text})).await;
        editor.post("/api/v1/cron:explain", &json!({"cron_schedule": text, "timezone": text})).await;
        admin.post("/api/v1/teams", &json!({"name": text})).await;
        admin.post("/api/v1/keys", &json!({"name": text, "kind": "admin"})).await;
        let invoked = json!({"scheduled_time": "2026-01-01T00:00:00Z", "execution_id": text, "schedule_arn": text});
        runner.post(&format!("/api/v1/cron/workflows/{workflow}:invoke"), &invoked).await;
        let path: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for api in [&editor, &app.anonymous()] {
            api.get(&format!("/api/v1/runs/{path}?q={path}&{path}=1")).await;
        }
        for header in
            ["user-agent", "x-request-id", "traceparent", "x-api-key", "referer", "x-forwarded-for", "if-match"]
        {
            // Other breaks are no header values; those above U+007F are sent as bytes.
            let Ok(value) = reqwest::header::HeaderValue::from_bytes(text.as_bytes()) else { continue };
            let request = editor.request(Method::GET, "/api/v1/runs").header(header, value);
            tests::send_request(request).await;
            tries += 1;
        }
        tries += 12;
    }
    let log = app.stop().await;
    s.end_early().await;
    judge_log(&log, tries)
}

fn judge_log(log: &[u8], tries: usize) -> Tally {
    let mut tally = Tally { tries, ..Tally::default() };
    let text = String::from_utf8_lossy(log);
    if text.len() < 1_000 {
        tally.fail("the log is nearly empty, so nothing was judged");
    }
    let begins_line = |sign: char| matches!(sign, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    for line in text.split(begins_line).filter(|line| line.starts_with(FORGED)) {
        tally.fail(format!("a line of its own: {line}"));
    }
    for (at, sign) in text.char_indices().filter(|(_, sign)| matches!(sign, '\u{1b}' | '\u{9b}')) {
        let end = text.ceil_char_boundary((at + 60).min(text.len()));
        tally.fail(format!("U+{:04X} in the log: {:?}", u32::from(sign), &text[at..end]));
    }
    tally
}
