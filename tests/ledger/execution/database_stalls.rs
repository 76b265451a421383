//! The database stalls and comes back: what stopped meanwhile is executed again, whatever else is executed.

use std::collections::BTreeSet;

use axum::Router;
use serde_json::{Value, json};
use tests::{PATIENCE, Story, Way};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::process::{App, idle};
use crate::receiver::{Receiver, accept, until_state};

/// Accepts a run of a workflow of its own.
async fn accept_with(s: &Story, action: Value) -> Uuid {
    accept(s, s.create_with(json!({ "action": action })).await).await
}

/// The runs of which a request came.
fn requested(receiver: &Receiver) -> BTreeSet<String> {
    let received = receiver.received();
    received.iter().map(|request| request.headers["x-cronbox-run-id"].to_str().unwrap().to_owned()).collect()
}

/// The database stalls for longer than two thirds of a lease, while an instance executes four runs, and comes back.
/// The instance then stays busy with another run, so that it always has something to renew.
#[tokio::test]
async fn a_stalled_database_strands_no_run() {
    let s = idle().await;
    let way = Way::to(&s.dsn()).await;
    let (receiver, load) = (Receiver::slow().await, Receiver::slow().await);
    // Its connection shows when the instance has stopped its work.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(accept_with(&s, receiver.action()).await);
    }
    let called: BTreeSet<String> = runs.iter().map(Uuid::to_string).collect();
    runs.push(accept_with(&s, json!({"type": "http", "method": "POST", "url": url})).await);
    let app = App::with(&way.dsn(&s.dsn()), &[("CRONBOX_LOST_AFTER_SECS", "6"), ("CRONBOX_HEARTBEAT_MS", "250")]).await;
    receiver.until(3).await;
    let (mut connection, _) = silent.accept().await.unwrap();

    way.stall();
    runs.push(accept_with(&s, load.action()).await);
    let hung_up = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut Vec::new())).await;
    hung_up.expect("the attempt has not stopped").ok();
    way.go_on();

    tokio::spawn(async move { axum::serve(silent, Router::new().fallback(|| async { "done" })).await });
    load.until(1).await;
    receiver.until(6).await;
    assert_eq!(requested(&receiver), called);
    for receiver in [&receiver, &load] {
        // For each request that comes, also if a lease lapses again.
        receiver.let_answer(100);
    }
    for run in runs {
        until_state(&s, run, "succeeded").await;
    }
    assert_eq!(s.count("SELECT count(*) FROM runs WHERE state <> 'succeeded'").await, 0);
    app.stop().await;
    s.end().await;
}
