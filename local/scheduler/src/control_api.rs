//! Steps 4 and 5 of 7: how a test controls the stand-in, in addition to AWS's operations.
//!
//! | call | does |
//! |---|---|
//! | POST /_faults | replaces the plan of faults; `{}` ends them |
//! | GET /_faults | the plan, how often each fault was applied, how many requests have not arrived yet |
//! | POST /_clock | moves a clock that was set; what becomes due on the way arrives and fires, in order |
//! | GET /_clock | the current time |

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::clock::{Clock, FixedClock};
use crate::scheduler::faults::{Plan, Progress, Wrong};
use crate::stand_in::StandIn;

/// The routes of the control API.
pub fn control_router() -> Router<StandIn> {
    Router::new().route("/_faults", get(faults).post(plan_faults)).route("/_clock", get(clock).post(set_clock))
}

async fn faults(State(stand_in): State<StandIn>) -> Json<Progress> {
    Json(stand_in.scheduler.faults_injected())
}

async fn plan_faults(State(stand_in): State<StandIn>, bytes: Bytes) -> Result<Json<Progress>, Refusal> {
    let plan: Plan = body(&bytes)?;
    plan.check_fields()?;
    stand_in.scheduler.plan_faults(plan);
    Ok(Json(stand_in.scheduler.faults_injected()))
}

async fn clock(State(stand_in): State<StandIn>) -> Json<Value> {
    Json(json!({ "now": stand_in.scheduler.clock().now() }))
}

async fn set_clock(State(stand_in): State<StandIn>, bytes: Bytes) -> Result<Json<Value>, Refusal> {
    let to: ClockBody = body(&bytes)?;
    let Clock::Fixed(clock) = stand_in.scheduler.clock() else { return Err(Refusal::MachineClock) };
    let until = to.after(clock.now())?;
    stand_in.step(clock, until).await;
    Ok(Json(json!({ "now": clock.now() })))
}

/// The body of `POST /_clock`: exactly one of the two fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    now: Option<DateTime<Utc>>,
    advance_secs: Option<u32>,
}

impl ClockBody {
    fn after(self, now: DateTime<Utc>) -> Result<DateTime<Utc>, Wrong> {
        let wrong = |field: &str, message: String| Err(Wrong { field: field.to_owned(), message });
        match (self.now, self.advance_secs) {
            (Some(to), None) if to < now => wrong("now", format!("{to} has passed: it is {now}")),
            (Some(to), None) => Ok(to),
            (None, Some(secs)) => Ok(now + TimeDelta::seconds(secs.into())),
            _ => wrong("", "write either `now` or `advance_secs`".to_owned()),
        }
    }
}

impl StandIn {
    /// Advances the clock from one due time to the next, up to `until`.
    async fn step(&self, clock: &FixedClock, until: DateTime<Utc>) {
        loop {
            let arrival = self.scheduler.next_arrival(until);
            let Some(due) = self.fires.next_due(until).into_iter().chain(arrival).min() else { break };
            clock.set(due.max(clock.now()));
            self.scheduler.receive_late_requests(due).await;
            self.fires.fire_and_deliver(due).await;
        }
        clock.set(until);
    }
}

/// Why the control API refuses a request.
enum Refusal {
    Wrong(Wrong),
    MachineClock,
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        Refusal::Wrong(wrong)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Refusal::Wrong(wrong) => (StatusCode::BAD_REQUEST, Json(wrong)).into_response(),
            Refusal::MachineClock => {
                let message =
                    "the stand-in follows the machine's clock: start it with --clock to set the clock".to_owned();
                (StatusCode::CONFLICT, Json(Wrong { field: String::new(), message })).into_response()
            }
        }
    }
}

fn body<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Wrong> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let field = error.path().to_string();
        Wrong { field: if field == "." { String::new() } else { field }, message: error.into_inner().to_string() }
    })
}
