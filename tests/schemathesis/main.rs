//! Schemathesis calls every route as every kind of caller: the answers must match the OpenAPI description.
//!
//! `make schemathesis` runs it, because it needs a venv of its own; `cargo test` skips it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::json;
use tests::Story;
use tokio::process::Command;

/// A server error, or an answer that the description does not allow, fails. The stories test whether input is correctly
/// refused, because no schema describes a cron.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance";
/// How much is sent to each route: the first for the caller with all permissions, the second for the others.
const THOROUGH: [&str; 4] = ["--phases", "coverage,fuzzing", "--max-examples", "50"];
const BRIEF: [&str; 4] = ["--phases", "fuzzing", "--max-examples", "10"];

#[tokio::test]
async fn every_route_answers_as_it_is_described() {
    let s = Story::today().await;
    let paused = s.create("0 9 * * *", "Europe/Paris").await;
    s.pause(paused).await;
    let fired = s.create("*/5 * * * *", "UTC").await;
    s.editor().post_empty(&format!("/api/v1/schedules/{fired}:fire")).await.expect(202);
    s.runs_end().await;
    let viewer = json!({"name": "v", "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
    let viewer = s.admin().post("/api/v1/keys", &viewer).await.expect(201).json["key"].as_str().unwrap().to_owned();
    let brief = [
        ("viewer", Some(&*viewer)),
        ("editor", Some(&*s.keys.editor)),
        ("scheduler", Some(&*s.keys.scheduler)),
        ("anonymous", None),
    ];
    let all = brief.map(|(caller, key)| schemathesis(&s, caller, key, BRIEF));
    let mut said = futures::future::join_all(all).await;
    // The admin runs last and without the others, because it can delete what they use.
    said.push(schemathesis(&s, "admin", Some(&*s.keys.admin), THOROUGH).await);
    let wrong: Vec<String> = said.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    s.end_early().await;
}

/// Runs Schemathesis; returns its output if it failed.
async fn schemathesis(s: &Story, caller: &str, key: Option<&str>, effort: [&str; 4]) -> Option<String> {
    let program = local::config::target_folder().join("venv-schemathesis/bin/schemathesis");
    assert!(program.exists(), "{} is missing: run `make schemathesis`", program.display());
    let mut command = Command::new(program);
    command.args(["run", &format!("{}/openapi.json", s.url()), "--checks", CHECKS]).args(effort);
    // One worker, because several sometimes crash in CPython's parser, which they share.
    command.args(["--seed", "1", "--workers", "1", "--continue-on-failure"]);
    // It would rotate the key of this caller.
    command.args(["--exclude-path", "/api/v1/keys/self:rotate"]);
    command.args(["--request-timeout", "35", "--suppress-health-check", "all", "--warnings", "off"]);
    command.args(key.map(|key| format!("--header=X-API-Key:{key}")));
    // Its example database must not be written into the repository.
    let output = command.current_dir(std::env::temp_dir()).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    println!("{caller}: {}", said.trim_end().lines().next_back().unwrap_or_default().trim_matches(['=', ' ']));
    (!output.status.success()).then(|| format!("as {caller}:\n{said}"))
}
