//! Documents that grow when they are parsed: JSON in requests, YAML in the file of workflows.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use reqwest::Method;
use tests::PATIENCE;

use crate::ground::idle_story;
use crate::process::{App, DENIED, program};
use crate::report::Tally;

/// The most memory that a debug build may use for the documents of this file.
const MEBIBYTES: u64 = 512;

/// JSON documents, each sent to every route that reads one.
fn documents() -> Vec<String> {
    let field = |value: &str| {
        format!(r#"{{"name":"bomb","action":{{"type":"log","message":"x"}},"starting_inputs":{{"a":{value}}}}}"#)
    };
    let many = |item: &dyn Fn(usize) -> String| (0..15_000).map(item).collect::<Vec<_>>().join(",");
    let mut documents = Vec::new();
    for depth in [100, 127, 128, 129, 1_000, 10_000, 100_000] {
        documents.push("[".repeat(depth));
        documents.push(field(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))));
        documents.push(field(&format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth))));
    }
    for number in [
        "1e400",
        "-1e400",
        "1e-400",
        "123456789012345678901234567890",
        "-0",
        "1.0e308",
        "0.1e1000000000",
        "NaN",
        "Infinity",
        "0x10",
        "01",
    ] {
        documents.push(field(number));
        documents.push(format!(r#"{{"name":"bomb","timeout_secs":{number},"action":{{"type":"log","message":"x"}}}}"#));
    }
    documents.push(field(&"9".repeat(200_000)));
    documents.push(field(&format!("1e{}", "9".repeat(200_000))));
    documents.push(field(&format!("[{}]", many(&|_| "1".to_owned()))));
    documents.push(field(&format!("[{}]", (0..120_000).map(|_| "1").collect::<Vec<_>>().join(","))));
    documents.push(field(&format!("{{{}}}", many(&|nth| format!(r#""{nth}":1"#)))));
    documents.push(format!("{{{}}}", many(&|nth| format!(r#""{nth}":1"#))));
    documents.push(format!("{{{}}}", many(&|_| r#""name":"a""#.to_owned())));
    documents.push(field(&format!("\"{}\"", r"\u0041".repeat(40_000))));
    documents.push(field(&format!("\"{}\"", r"\ud83d".repeat(1_000))));
    documents.push(field(r#""\u0000""#));
    documents.push(field("\"\u{feff}\u{202e}\""));
    documents.push(format!("\u{feff}{}", field("1")));
    documents.push(" ".repeat(250_000));
    documents.push(format!("{}{}", "\n".repeat(200_000), field("1")));
    documents.push("\"".repeat(100_000));
    documents.push("{\"a\":".repeat(50_000));
    documents.push("nul".to_owned());
    documents
}

/// Sends each document to the routes that read one.
pub(crate) async fn attack_by_json() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let (editor, admin) = (app.api(&s.keys.editor), app.api(&s.keys.admin));
    let workflow = s.create("0 9 * * *", "UTC").await;
    let targets = [
        (&editor, Method::POST, "/api/v1/workflows".to_owned()),
        (&editor, Method::PATCH, format!("/api/v1/workflows/{workflow}")),
        (&editor, Method::POST, "/api/v1/cron:explain".to_owned()),
        (&editor, Method::POST, format!("/api/v1/schedules/{workflow}:backfill")),
        (&editor, Method::POST, format!("/api/v1/schedules/{workflow}:fire")),
        (&admin, Method::POST, "/api/v1/keys".to_owned()),
    ];
    let mut tally = Tally::default();
    for document in documents() {
        for (api, method, path) in &targets {
            for kind in ["application/json", "application/merge-patch+json"] {
                let is_used = kind == "application/json" || *method == Method::PATCH;
                if !is_used {
                    continue;
                }
                let request = api.request(method.clone(), path).header("content-type", kind);
                let answer = request.body(document.clone()).timeout(DENIED).send().await;
                let status = answer.as_ref().map(|answer| answer.status().as_u16()).ok();
                let start: String = document.chars().take(60).collect();
                tally.record(status.is_some_and(|status| status < 500), || {
                    format!("{method} {path} {start}: {answer:?}")
                });
            }
        }
    }
    tally.record(app.answers().await, || "an honest client has no answer".to_owned());
    let peak = app.peak_mebibytes();
    if peak > MEBIBYTES {
        tally.fail(format!("the app used {peak} MiB"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}

/// YAML files, all of which are wrong; `SECRET` must not be in a complaint.
fn files() -> Vec<String> {
    let laughs = (1..40).fold("a0: &a0 [SECRET, SECRET]\n".to_owned(), |text, nth| {
        let before = nth - 1;
        format!("{text}a{nth}: &a{nth} [{}]\n", format!("*a{before}, ").repeat(9))
    });
    let quadratic = format!("a: &a \"{}\"\nb: [{}]\n", "SECRET".repeat(10_000), "*a, ".repeat(20_000));
    vec![
        laughs,
        quadratic,
        "a: &a [*a, SECRET]\n".to_owned(),
        "a: &a {b: *a, c: SECRET}\n".to_owned(),
        "&a [*a, *a, *a]".to_owned(),
        "workflows: *missing\n".to_owned(),
        format!("{}SECRET{}", "[".repeat(100_000), "]".repeat(100_000)),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        (0..5_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        "!!python/object/apply:os.system [\"SECRET\"]\n".to_owned(),
        "workflows: !include /etc/passwd\n".to_owned(),
        "<<: &a {<<: *a, b: SECRET}\n".to_owned(),
        format!("workflows: [{}]\n", "{name: SECRET}, ".repeat(20_000)),
        format!("workflows: \"{}\"\n", "SECRET".repeat(1_000_000)),
        "workflows:\n- name: a\n  action: {type: http, method: POST, headers: {x: SECRET}, url: \"no url\"}\n"
            .to_owned(),
        "workflows:\n- name: a\n  team: a\n  nothing: SECRET\n  action: {type: log, message: SECRET}\n".to_owned(),
        "---\n".repeat(100_000),
        "%YAML 9.9\n---\nSECRET\n".to_owned(),
        "workflows: \"\\xSECRET\"\n".to_owned(),
        "\u{0}SECRET".to_owned(),
        "1e999999999999: SECRET\n".to_owned(),
        "workflows: [1e400, .inf, .nan, 0o777, 2001-01-01]\n".to_owned(),
    ]
}

/// Starts the app with each file: it must end with a complaint, in bounded time and memory, without the file's text.
pub(crate) async fn attack_by_yaml() -> Tally {
    let s = idle_story().await;
    let mut tally = Tally::default();
    let folder = Folder::create();
    for (nth, text) in files().into_iter().enumerate() {
        let file = folder.0.join(format!("{nth}.yaml"));
        std::fs::write(&file, &text).unwrap();
        let mut command = program();
        command.arg("serve").env("DATABASE_URL", s.dsn()).env("CRONBOX_BIND_ADDR", "127.0.0.1:0").env("NO_COLOR", "1");
        command.env("CRONBOX_SCHEDULES_FILE", &file).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let id = child.id();
        let watching = tokio::spawn(async move { peak_of(id).await });
        let stderr = child.stderr.take().unwrap();
        let said = tokio::time::timeout(PATIENCE, read_all(stderr)).await;
        let peak = watching.await.unwrap();
        let status = tokio::time::timeout(PATIENCE, child.wait()).await;
        let code = status.ok().and_then(Result::ok).and_then(|status| status.code());
        let said = said.unwrap_or_default();
        let start: String = text.chars().take(60).collect();
        let is_bounded = code == Some(1) && peak <= MEBIBYTES;
        tally.record(is_bounded && !said.contains("SECRET"), || {
            let said: String = said.chars().take(200).collect();
            format!("{start:?}: code {code:?}, {peak} MiB, {said}")
        });
    }
    s.end_early().await;
    tally
}

async fn read_all(mut stderr: tokio::process::ChildStderr) -> String {
    let mut said = Vec::new();
    let _read = tokio::io::AsyncReadExt::read_to_end(&mut stderr, &mut said).await;
    String::from_utf8_lossy(&said).into_owned()
}

/// The most memory of a process until it ends, in mebibytes.
async fn peak_of(id: Option<u32>) -> u64 {
    let Some(id) = id else { return 0 };
    let mut peak = 0;
    while let Ok(status) = std::fs::read_to_string(format!("/proc/{id}/status")) {
        let now = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let Some(now) = now.and_then(|now| now.trim().trim_end_matches(" kB").parse::<u64>().ok()) else { break };
        peak = peak.max(now / 1024);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    peak
}

/// A temporary folder that is removed with its owner.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Self {
        let folder = std::env::temp_dir().join(format!("cronbox-security-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}
