//! The types of `api_types`, which clients share, read every answer without a loss.

use api_types::audit::AuditView;
use api_types::backfills::BackfillView;
use api_types::bulk::{BulkItemView, BulkView};
use api_types::drift::DriftView;
use api_types::events::EventsView;
use api_types::freezes::FreezeView;
use api_types::health::{Health, Readiness};
use api_types::instances::InstancesView;
use api_types::jobs::JobsView;
use api_types::keys::KeyView;
use api_types::limits::{AllowedHostsView, TeamLimitsView};
use api_types::me::MeView;
use api_types::occurrences::{NamedOccurrenceView, OccurrenceView};
use api_types::outbox::OutboxView;
use api_types::page::Page;
use api_types::previews::{NextView, TimezonesView};
use api_types::problem::Problem;
use api_types::runs::{RunDetailView, RunView};
use api_types::schedules::ScheduleView;
use api_types::secrets::SecretsView;
use api_types::stats::StatsView;
use api_types::teams::ListedTeamView;
use api_types::upcoming::UpcomingView;
use api_types::versions::VersionView;
use api_types::workflows::WorkflowView;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tests::{Api, Story};

/// Reads an answer by its type, and compares what the type writes.
async fn assert_shared<T: DeserializeOwned + Serialize>(api: &Api, path: &str) {
    let answer = api.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    let answer = answer.json;
    let read: T = serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{path}: {error}\n{answer}"));
    assert_eq!(serde_json::to_value(read).unwrap(), answer, "{path}");
}

/// Like `assert_shared`, for a list that must not be empty.
async fn assert_shared_list<T: DeserializeOwned + Serialize>(api: &Api, path: &str) {
    let answer = api.get(path).await.expect(200).json;
    assert_ne!(answer["items"], json!([]), "{path}: an empty list shows nothing");
    assert_shared::<Page<T>>(api, path).await;
}

/// A workflow with a run of each kind, a backfill, a bulk operation, a freeze and an edit.
async fn story_with_history() -> (Story, i64) {
    let s = Story::at("2026-03-02T08:59:30Z").await;
    let wf = s.create("*/5 * * * *", "Europe/Paris").await;
    s.publish().await;
    let editor = s.editor();
    editor.post(&format!("/api/v1/schedules/{wf}:fire"), &json!({"inputs": {"month": "May"}})).await.expect(202);
    s.runs_end().await;
    s.clock_to("2026-03-02T09:00:30Z").await;
    s.runs_end().await;
    let span = json!({"start": "2026-03-01T00:00:00Z", "end": "2026-03-01T01:00:00Z", "timing": "now"});
    editor.post(&format!("/api/v1/schedules/{wf}:backfill"), &span).await.expect(202);
    editor.post("/api/v1/bulk", &json!({"verb": "fire"})).await.expect(202);
    editor.post("/api/v1/freezes", &json!({"reason": "holiday", "from": "2030-01-01T00:00:00Z"})).await.expect(201);
    (s, wf.0)
}

#[tokio::test]
async fn clients_read_all_of_every_answer() {
    let (s, wf) = story_with_history().await;
    let (editor, admin) = (s.editor(), s.admin());
    let id_of = |path: &'static str| {
        let editor = s.editor();
        async move { editor.get(path).await.expect(200).json["items"][0]["id"].as_str().unwrap().to_owned() }
    };
    let (run, bulk) = (id_of("/api/v1/runs").await, id_of("/api/v1/bulk").await);
    let team = editor.get("/api/v1/me").await.expect(200).json["teams"][0]["team_id"].clone();

    assert_shared::<WorkflowView>(&editor, &format!("/api/v1/workflows/{wf}?results=true")).await;
    assert_shared_list::<WorkflowView>(&editor, "/api/v1/workflows?results=true").await;
    assert_shared::<ScheduleView>(&editor, &format!("/api/v1/schedules/{wf}")).await;
    assert_shared_list::<ScheduleView>(&editor, "/api/v1/schedules?results=true").await;
    assert_shared_list::<VersionView>(&editor, &format!("/api/v1/workflows/{wf}/versions")).await;
    assert_shared::<NextView>(&editor, &format!("/api/v1/schedules/{wf}/next?n=3")).await;
    assert_shared_list::<OccurrenceView>(&editor, &format!("/api/v1/schedules/{wf}/occurrences")).await;
    assert_shared_list::<RunView>(&editor, "/api/v1/runs").await;
    assert_shared::<RunDetailView>(&editor, &format!("/api/v1/runs/{run}")).await;
    assert_shared_list::<BackfillView>(&editor, "/api/v1/backfills").await;
    assert_shared_list::<BulkView>(&editor, "/api/v1/bulk").await;
    assert_shared_list::<BulkItemView>(&editor, &format!("/api/v1/bulk/{bulk}/items")).await;
    assert_shared_list::<FreezeView>(&editor, "/api/v1/freezes").await;
    assert_shared::<Page<NamedOccurrenceView>>(&editor, "/api/v1/occurrences?decision=missed").await;
    assert_shared::<UpcomingView>(&editor, "/api/v1/upcoming").await;
    assert_shared::<StatsView>(&editor, "/api/v1/stats?bucket_secs=3600").await;
    assert_shared::<TimezonesView>(&editor, "/api/v1/timezones").await;
    assert_shared::<EventsView>(&editor, "/api/v1/events").await;
    assert_shared::<MeView>(&editor, "/api/v1/me").await;
    assert_shared_list::<ListedTeamView>(&editor, "/api/v1/teams").await;
    assert_shared::<SecretsView>(&editor, &format!("/api/v1/teams/{team}/secrets")).await;
    assert_shared::<TeamLimitsView>(&editor, &format!("/api/v1/teams/{team}/limits")).await;
    assert_shared::<AllowedHostsView>(&admin, &format!("/api/v1/teams/{team}/hosts")).await;

    assert_shared_list::<AuditView>(&admin, "/api/v1/audit").await;
    assert_shared_list::<KeyView>(&admin, "/api/v1/keys").await;
    assert_shared_list::<OutboxView>(&admin, "/api/v1/outbox").await;
    assert_shared::<DriftView>(&admin, "/api/v1/drift").await;
    assert_shared::<JobsView>(&admin, "/api/v1/jobs").await;
    assert_shared::<InstancesView>(&admin, "/api/v1/instances").await;
    assert_shared::<Health>(&admin, "/healthz").await;
    assert_shared::<Readiness>(&admin, "/readyz").await;
    s.end_early().await;
}

#[tokio::test]
async fn clients_read_all_of_a_refusal() {
    let s = Story::today().await;
    let body = json!({"name": " ", "cron_schedule": "61 * * * *", "action": {"type": "log", "message": "m"}});
    let refused = s.editor().post("/api/v1/workflows", &body).await.expect(400).json;
    let read: Problem = serde_json::from_value(refused.clone()).unwrap();
    assert_eq!(read.errors.len(), 2, "{refused}");
    assert_eq!(serde_json::to_value(read).unwrap(), refused);
    s.end().await;
}
