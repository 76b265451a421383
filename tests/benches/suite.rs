//! `make bench`: what it costs, measured on the parts that ship. A table for people, JSON under `target/bench/`.
//!
//! Machines differ, so a case reports what it saw and judges nothing. The cases are numbered as in
//! the performance goals; more come with the issues that own them.

#![expect(clippy::unwrap_used, reason = "a case that cannot go on fails")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use local::config::target_folder;
use local::stack::{Publishing, StackOptions};
use serde_json::{Value, json};
use tests::Story;
use tokio::process::Command;

/// One line of the table.
struct Row {
    case: &'static str,
    what: String,
    taken_ms: Vec<f64>,
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let only = arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let wanted = |case: &str| only.is_none_or(|only| only.split(',').any(|name| name == case));
    let mut rows = Vec::new();
    if wanted("B5") {
        for latency_ms in [0, 15] {
            rows.push(edit_to_visible(latency_ms, 300).await);
        }
    }
    if wanted("B7") {
        rows.push(duplicate_invokes(5_000).await);
        rows.push(fresh_invokes(2_000).await);
    }
    if wanted("B8") {
        rows.push(up_to_ready(5).await);
    }
    print(&rows);
    write(&rows);
}

/// B5: from the sending of a PATCH to the schedule that stands in the stand-in, one edit after the other.
async fn edit_to_visible(latency_ms: u64, edits: u32) -> Row {
    let mut options = StackOptions { publishing: Publishing::Listening, ..StackOptions::default() };
    options.stand_in.scheduler.latency = Duration::from_millis(latency_ms);
    let s = Story::with(options).await;
    let wf = s.create("0 9 * * *", "UTC").await;
    s.until("SELECT count(*) FROM publications WHERE due_at IS NULL", 1).await;
    let mut taken_ms = Vec::new();
    for edit in 0..edits {
        let (minute, hour) = (edit % 60, edit / 60 + 1);
        let visible = format!("cron({minute} {hour} * * ? *) UTC ENABLED");
        let sent = Instant::now();
        s.edit(wf, json!({ "cron_schedule": format!("{minute} {hour} * * *") })).await;
        while s.schedule(wf) != visible {
            assert!(sent.elapsed() < Duration::from_secs(30), "an edit is never seen");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        taken_ms.push(millis(sent));
    }
    s.until("SELECT count(*) FROM publications WHERE due_at IS NULL", 1).await;
    s.end().await;
    Row { case: "B5", what: format!("edit sent to schedule visible, AWS at {latency_ms} ms"), taken_ms }
}

/// B7: the same fire again, from one connection.
async fn duplicate_invokes(calls: u32) -> Row {
    let s = Story::at("2026-03-02T08:30:00Z").await;
    let wf = s.create("0 * * * *", "UTC").await;
    s.now_is("2026-03-02T09:00:05Z").await;
    let (api, path) = (s.scheduler_key(), format!("/api/v1/cron/workflows/{wf}:invoke"));
    let fire = json!({"scheduled_time": "2026-03-02T09:00:00Z"});
    api.post(&path, &fire).await.expect(202);
    let mut taken_ms = Vec::new();
    for _ in 0..calls {
        let sent = Instant::now();
        api.post(&path, &fire).await.expect(200);
        taken_ms.push(millis(sent));
    }
    s.end().await;
    Row { case: "B7", what: "duplicate invoke, one connection".to_owned(), taken_ms }
}

/// B7: a new time with each call, from one connection.
async fn fresh_invokes(calls: u32) -> Row {
    let s = Story::at("2026-03-01T00:00:00Z").await;
    let wf = s.create("* * * * *", "UTC").await;
    s.now_is("2026-03-02T12:00:00Z").await;
    let (api, path) = (s.scheduler_key(), format!("/api/v1/cron/workflows/{wf}:invoke"));
    let mut taken_ms = Vec::new();
    for minute in 0..calls.min(1_400) {
        let time = s.clock.now() - chrono::TimeDelta::minutes(i64::from(minute) + 1);
        let sent = Instant::now();
        api.post(&path, &json!({ "scheduled_time": time })).await.expect(202);
        taken_ms.push(millis(sent));
    }
    s.end().await;
    Row { case: "B7", what: "fresh invoke, one connection".to_owned(), taken_ms }
}

/// B8: from the start of `local up` on an empty folder until `/readyz` answers.
async fn up_to_ready(times: u32) -> Row {
    let program = program("local");
    let mut taken_ms = Vec::new();
    for _ in 0..times {
        let data = std::env::temp_dir().join(format!("cronbox-bench-{}", uuid::Uuid::new_v4()));
        let (app, scheduler) = (free_port(), free_port());
        let mut command = Command::new(&program);
        command.args(["up", "--app-port", &app.to_string(), "--scheduler-port", &scheduler.to_string(), "--data"]);
        let started = Instant::now();
        let mut up = command.arg(&data).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let api = tests::Api::without_key(&format!("http://127.0.0.1:{app}"));
        while !api.try_get("/readyz").await.is_ok_and(|answer| answer.status == 200) {
            assert!(started.elapsed() < Duration::from_secs(60), "up is never ready");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        taken_ms.push(millis(started));
        Command::new("kill").args(["-INT", &up.id().unwrap().to_string()]).status().await.unwrap();
        up.wait().await.unwrap();
        std::fs::remove_dir_all(&data).unwrap();
    }
    Row { case: "B8", what: "cold `local up` to ready, new database".to_owned(), taken_ms }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

/// A program that `cargo build --bins` or `cargo bench` has left, the newest of them.
fn program(name: &str) -> PathBuf {
    let built = ["release", "debug"].map(|profile| target_folder().join(profile).join(name));
    let newest =
        built.into_iter().filter(|path| path.exists()).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.unwrap_or_else(|| panic!("{name} is missing: run `cargo build --workspace --bins`"))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn at(sorted: &[f64], share: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let index = ((sorted.len() - 1) as f64 * share).round() as usize;
    sorted[index]
}

fn print(rows: &[Row]) {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load average {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    println!("{:<4} {:<50} {:>6} {:>9} {:>9} {:>9}", "case", "what (ms)", "n", "p50", "p99", "max");
    for Row { case, what, taken_ms } in rows {
        let mut sorted = taken_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let (p50, p99, max) = (at(&sorted, 0.5), at(&sorted, 0.99), at(&sorted, 1.0));
        println!("{case:<4} {what:<50} {:>6} {p50:>9.2} {p99:>9.2} {max:>9.2}", sorted.len());
    }
}

fn write(rows: &[Row]) {
    let folder = target_folder().join("bench");
    std::fs::create_dir_all(&folder).unwrap();
    let rows: Vec<Value> =
        rows.iter().map(|row| json!({"case": row.case, "what": row.what, "ms": row.taken_ms})).collect();
    std::fs::write(folder.join("suite.json"), serde_json::to_string_pretty(&rows).unwrap()).unwrap();
}
