//! Tests of one delivery, against the app and other programs that may answer in its place.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{any, post};
use runner::{Config, DeliverError, Delivered, KeySource, Limits, Runner};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};

const INVOKE: &str = "/api/v1/cron/workflows/{target}";

fn event() -> Value {
    json!({
        "workflow_id": 12, "scheduled_time": "2026-03-29T07:00:41Z", "execution_id": "e-1", "attempt": "1",
        "schedule_arn": "arn:aws:scheduler:us-east-1:1:schedule/g/wf-12-dev", "revision": 3, "template": 1,
    })
}

async fn served(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// A liveness limit, not a measurement.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runner with a long time limit, and this many tries.
fn runner_trying(base: &str, most_tries: u32) -> Runner {
    runner_with(base, Limits { one_try: PATIENCE, all_tries: PATIENCE, most_tries })
}

fn runner_with(base: &str, limits: Limits) -> Runner {
    let key = KeySource::Value("the key".to_owned());
    Runner::new(Config { app_base_url: base.parse().unwrap(), key, limits }).unwrap()
}

async fn deliver_to(app: Router) -> Result<Delivered, DeliverError> {
    runner_trying(&served(app).await, 2).deliver_fire(event()).await
}

/// The app gets the scheduled time as EventBridge sent it, with its seconds.
#[tokio::test]
async fn deliveries_carry_key_and_unchanged_time() {
    let app = Router::new().route(
        INVOKE,
        post(|Path(target): Path<String>, headers: HeaderMap, Json(body): Json<Value>| async move {
            assert_eq!(target, "12:invoke");
            assert_eq!(headers["x-api-key"], "the key");
            assert_eq!(
                body,
                json!({
                    "scheduled_time": "2026-03-29T07:00:41Z", "revision": 3, "execution_id": "e-1", "attempt": 1,
                    "schedule_arn": "arn:aws:scheduler:us-east-1:1:schedule/g/wf-12-dev",
                })
            );
            (StatusCode::ACCEPTED, Json(json!({"accepted": true, "run_id": "r-1"})))
        }),
    );
    assert_eq!(deliver_to(app).await.unwrap(), Delivered::Accepted { run_id: Some("r-1".to_owned()) });
}

#[tokio::test]
async fn decisions_not_to_run_are_delivered() {
    let app = Router::new().route(INVOKE, post(|| async { Json(json!({"accepted": false, "reason": "paused"})) }));
    assert_eq!(deliver_to(app).await.unwrap(), Delivered::Declined { reason: "paused".to_owned() });

    let gone = || async { (StatusCode::GONE, Json(json!({"code": "workflow_gone"}))) };
    assert_eq!(deliver_to(Router::new().route(INVOKE, post(gone))).await.unwrap(), Delivered::Gone);
}

/// The answer of another program is an error, also if its status is one that the app uses.
#[tokio::test]
async fn only_answers_of_the_app_are_accepted() {
    let welcome = || async { "<html>Welcome</html>" };
    let not_found = || async { StatusCode::NOT_FOUND };
    let unavailable = || async { (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"accepted": true}))) };
    let gone = || async { (StatusCode::GONE, "gone") };
    for (app, status) in [
        (Router::new().fallback(any(welcome)), 200),
        (Router::new().fallback(any(not_found)), 404),
        (Router::new().fallback(any(unavailable)), 503),
        (Router::new().fallback(any(gone)), 410),
    ] {
        match deliver_to(app).await {
            Err(DeliverError::NotTheApp { status: seen }) => assert_eq!(seen, status),
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let visits = Arc::new(AtomicU32::new(0));
    let counted = visits.clone();
    let elsewhere = served(Router::new().fallback(any(move || async move {
        counted.fetch_add(1, Ordering::Relaxed);
        Json(json!({"accepted": true}))
    })))
    .await;
    let app =
        Router::new().fallback(any(move || async move { Redirect::temporary(&elsewhere).into_response() as Response }));
    assert!(matches!(deliver_to(app).await, Err(DeliverError::NotTheApp { status: 307 })));
    assert_eq!(visits.load(Ordering::Relaxed), 0);
}

/// Only a key from Secrets Manager can be fetched again.
#[tokio::test]
async fn refused_configured_keys_are_not_tried_again() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let app = Router::new().fallback(any(move || async move {
        counted.fetch_add(1, Ordering::Relaxed);
        StatusCode::UNAUTHORIZED
    }));
    assert!(matches!(deliver_to(app).await, Err(DeliverError::NotTheApp { status: 401 })));
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn calls_time_out_after_eight_seconds() {
    // After the request has arrived, nothing else happens, so the paused clock advances to the timeout.
    let arrived = Arc::new(OnceLock::new());
    let noted = arrived.clone();
    let app = Router::new().fallback(any(move || async move {
        tokio::time::pause();
        noted.get_or_init(tokio::time::Instant::now);
        std::future::pending::<StatusCode>().await
    }));
    let base = served(app).await;
    let error = runner_with(&base, Limits::LAMBDA).deliver_fire(event()).await.unwrap_err();
    assert_eq!(error.to_string(), "the app did not answer: timeout");
    let waited = arrived.get().unwrap().elapsed();
    // The clock runs in full milliseconds, and may end one later.
    assert!(waited.as_secs() <= runner::TRY.as_secs(), "by the clock that ran ahead: {waited:?}");
}

#[tokio::test]
async fn an_unreachable_app_is_an_error() {
    // The system refuses connections to a socket that is bound and does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base = format!("http://{}", socket.local_addr().unwrap());
    let error = runner_trying(&base, 2).deliver_fire(event()).await.unwrap_err();
    assert_eq!(error.to_string(), "the app did not answer: cannot connect");
}

/// A load balancer answers like this while the app behind it restarts.
#[tokio::test]
async fn restarts_are_bridged_within_a_delivery() {
    let statuses = Arc::new(Mutex::new(VecDeque::from([503, 502, 504])));
    let app = Router::new().fallback(any(move || {
        let next = statuses.lock().unwrap().pop_front();
        async move {
            match next {
                Some(status) => StatusCode::from_u16(status).unwrap().into_response(),
                None => (StatusCode::ACCEPTED, Json(json!({"accepted": true, "run_id": "r-1"}))).into_response(),
            }
        }
    }));
    let delivered = runner_trying(&served(app).await, 4).deliver_fire(event()).await.unwrap();
    assert_eq!(delivered, Delivered::Accepted { run_id: Some("r-1".to_owned()) });
}

/// Of the app only: a proxy's 429 is not its answer.
#[tokio::test]
async fn rate_limited_fires_are_tried_again() {
    for (code, tries_made) in [("rate_limited", 2), ("slow down", 1)] {
        let tries = Arc::new(AtomicU32::new(0));
        let counted = tries.clone();
        let app = Router::new().fallback(any(move || async move {
            counted.fetch_add(1, Ordering::Relaxed);
            (StatusCode::TOO_MANY_REQUESTS, Json(json!({"code": code})))
        }));
        assert!(matches!(deliver_to(app).await, Err(DeliverError::NotTheApp { status: 429 })));
        assert_eq!(tries.load(Ordering::Relaxed), tries_made, "{code}");
    }
}

/// With a paused clock: as long as a try may still end within the twelve seconds.
#[tokio::test]
async fn pauses_double_up_to_four_seconds() {
    let tries = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&tries);
    let app = Router::new().fallback(any(move || {
        let now = tokio::time::Instant::now();
        let mut tries = noted.lock().unwrap();
        if tries.is_empty() {
            tokio::time::pause();
        }
        tries.push(now);
        async { StatusCode::SERVICE_UNAVAILABLE }
    }));
    let error = runner_with(&served(app).await, Limits::LAMBDA).deliver_fire(event()).await.unwrap_err();
    assert_eq!(error.to_string(), "status 503 is not an answer of the app");
    let tries = tries.lock().unwrap();
    let half_seconds: Vec<u128> = tries.iter().map(|on| ((*on - tries[0]).as_millis() + 250) / 500).collect();
    assert_eq!(half_seconds, [0, 1, 3, 7, 15, 23]);
}

#[tokio::test]
async fn refused_connections_are_tried_again() {
    // No other test can get the port of a bound socket, and the system refuses connections until it listens.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let runner = runner_trying(&format!("http://{address}"), 8);
    let delivering = tokio::spawn(async move { runner.deliver_fire(event()).await });
    // A current-thread runtime: the first try is refused before this task continues.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let listener = socket.listen(16).unwrap();
    let app = Router::new().route(INVOKE, post(|| async { Json(json!({"accepted": true})) }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    assert_eq!(delivering.await.unwrap().unwrap(), Delivered::Accepted { run_id: None });
}

#[tokio::test]
async fn other_statuses_are_not_tried_again() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = tries.clone();
    let app = Router::new().fallback(any(move || async move {
        counted.fetch_add(1, Ordering::Relaxed);
        StatusCode::INTERNAL_SERVER_ERROR
    }));
    assert!(matches!(deliver_to(app).await, Err(DeliverError::NotTheApp { status: 500 })));
    assert_eq!(tries.load(Ordering::Relaxed), 1);
}

/// The runner must not deliver the present time instead.
#[tokio::test]
async fn unreplaced_scheduled_times_are_refused() {
    let mut event = event();
    event["scheduled_time"] = json!("<aws.scheduler.scheduled-time>");
    let error = runner_trying("http://127.0.0.1:9", 1).deliver_fire(event).await.unwrap_err();
    assert!(matches!(error, DeliverError::Event(_)), "{error}");
    assert!(error.to_string().contains("a placeholder that EventBridge did not replace"), "{error}");
}

#[tokio::test]
async fn the_base_address_may_have_a_path() {
    let app = Router::new()
        .route("/cron-app/api/v1/cron/workflows/{target}", post(|| async { Json(json!({"accepted": true})) }));
    let base = format!("{}/cron-app/", served(app).await);
    assert!(matches!(runner_trying(&base, 1).deliver_fire(event()).await, Ok(Delivered::Accepted { run_id: None })));
}
