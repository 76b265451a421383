//! B15: the memory of the app under 100 parallel requests for the largest lists, verifies and statistics.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{SecondsFormat, TimeDelta};
use futures::future::join_all;
use reqwest::{Method, StatusCode};
use schedule::Clock;
use serde_json::{Value, json};
use tests::Api;
use tests::measure::high_water_mb;

use crate::backlog::Backlog;
use crate::receiver::Receiver;
use crate::service::Service;
use crate::table::Row;

const WORKFLOWS: usize = 200;
const PARALLEL: usize = 100;
/// How often each of them repeats its request.
const ROUNDS: usize = 3;
/// The most memory that the app may have used at any time.
const MEMORY_MB: f64 = 200.0;
/// The inputs of a workflow in bytes, the largest that the app accepts: many small values cost the most memory.
const INPUTS: [usize; 4] = [240 * 1024, 60 * 1024, 15 * 1024, 1024];
/// A receiver's answer of which the app keeps as much as it keeps of any. Each byte is invalid as text, and takes three.
const ANSWER: usize = 64 * 1024;

pub(crate) async fn all() -> Vec<Row> {
    let backlog = Backlog::new(0, None).await;
    let mut app = Service::app(&backlog, 64).await;
    let receiver = Receiver::answering(vec![0xFF; ANSWER]).await;
    let inputs = make_large_workflows(&app, &receiver).await;
    while backlog.scalar::<i64>(LIVE).await > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    // The peak of the runs is not what is measured.
    app.restart().await;
    let idle = high_water_mb(app.pid());
    let storm = storm(&app).await;
    let peak = high_water_mb(app.pid());
    drop(app);
    backlog.end().await;
    let figures = vec![
        ("peak RSS MB", peak),
        ("after the start MB", idle),
        ("KB of inputs", inputs),
        ("answered 200", storm.of(StatusCode::OK)),
        ("others", storm.others()),
        ("MB of answers", storm.megabytes),
    ];
    let row = Row::new("B15", "100 parallel lists of 200, verifies and statistics", figures);
    vec![row.against("200 MB against the peak", MEMORY_MB / peak, 1.0, 1.0)]
}

const LIVE: &str = "SELECT count(*) FROM runs WHERE finished_on IS NULL";

/// Creates the workflows with the largest inputs that the app accepts, and one run of each with the largest result.
/// Returns the kilobytes of the inputs.
#[expect(clippy::cast_precision_loss, reason = "a number of bytes")]
async fn make_large_workflows(app: &Service, receiver: &Receiver) -> f64 {
    let (admin, mut largest) = (app.as_admin(), 0);
    for nth in 0..WORKFLOWS {
        let name = format!("large {nth}");
        let id = loop {
            let made = admin.post("/api/v1/workflows", &workflow_body(app, receiver, &name, INPUTS[largest])).await;
            if made.status == 201 {
                break made.id();
            }
            assert!(largest + 1 < INPUTS.len(), "the app accepts no inputs: {made:?}");
            largest += 1;
        };
        admin.post(&format!("/api/v1/schedules/{id}:fire"), &json!({})).await.expect(202);
    }
    INPUTS[largest] as f64 / 1024.0
}

fn workflow_body(app: &Service, receiver: &Receiver, name: &str, bytes: usize) -> Value {
    let inputs = json!({"values": vec![1; bytes / 2]});
    json!({"team_id": app.team, "name": name, "cron_schedule": "0 9 * * *", "action": receiver.action(),
           "starting_inputs": inputs})
}

/// The answers of all requests.
#[derive(Debug, Default)]
struct Storm {
    by_status: BTreeMap<u16, usize>,
    /// The kinds of requests that were answered with 200.
    answered: BTreeSet<usize>,
    megabytes: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a number of answers")]
impl Storm {
    fn of(&self, status: StatusCode) -> f64 {
        self.by_status.get(&status.as_u16()).copied().unwrap_or_default() as f64
    }

    fn others(&self) -> f64 {
        self.by_status.values().sum::<usize>() as f64 - self.of(StatusCode::OK)
    }
}

async fn storm(app: &Service) -> Storm {
    let to = Clock::System.now() - TimeDelta::minutes(10);
    let [from, to] = [to - TimeDelta::days(1), to].map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true));
    let paths = [
        "/api/v1/workflows?limit=200".to_owned(),
        "/api/v1/runs?limit=200".to_owned(),
        format!("/api/v1/verify?from={from}&to={to}"),
        "/api/v1/stats?hours=168".to_owned(),
    ];
    let client = app.as_admin();
    let all = (0..PARALLEL).map(|nth| repeat_request(&client, &paths[nth % paths.len()]));
    let mut storm = Storm::default();
    for (nth, answers) in join_all(all).await.into_iter().enumerate() {
        for (status, bytes) in answers {
            *storm.by_status.entry(status).or_default() += 1;
            storm.megabytes += bytes / 1024.0 / 1024.0;
            if status == StatusCode::OK.as_u16() {
                storm.answered.insert(nth % paths.len());
            }
        }
    }
    // An app that refuses needs no memory.
    assert_eq!(storm.answered.len(), paths.len(), "a kind of request is never answered: {storm:?}");
    storm
}

/// The status and the size of each answer, which is read piece by piece and not kept. 0 is a connection that broke.
async fn repeat_request(client: &Api, path: &str) -> Vec<(u16, f64)> {
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        let Ok(mut answer) = client.request(Method::GET, path).send().await else {
            answers.push((0, 0.0));
            continue;
        };
        let mut bytes = 0_u32;
        while let Ok(Some(piece)) = answer.chunk().await {
            bytes += u32::try_from(piece.len()).unwrap();
        }
        answers.push((answer.status().as_u16(), f64::from(bytes)));
    }
    answers
}
