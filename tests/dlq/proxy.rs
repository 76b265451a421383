//! A proxy in front of the app: it forwards fires, answers in place of the app, or delays the app's answer.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::{Semaphore, watch};

/// How the proxy treats a fire.
#[derive(Clone, Copy)]
pub(crate) enum Manner {
    /// The app answers.
    Pass,
    /// The proxy answers, and the app gets no request.
    Instead(u16, &'static str),
    /// The app gets the request, and the proxy delays its answer until [`Front::release`].
    Delayed,
}

#[derive(Clone)]
pub(crate) struct Front(Arc<Parts>);

struct Parts {
    beyond: String,
    http: reqwest::Client,
    manner: Mutex<Manner>,
    delayed: watch::Sender<usize>,
    release: Semaphore,
}

impl Front {
    /// Serves in front of the app at `beyond`; returns the proxy and its URL.
    pub(crate) async fn before(beyond: &str) -> (Front, String) {
        let front = Front(Arc::new(Parts {
            beyond: beyond.to_owned(),
            // The app ends a connection that is idle for 10 s: none is used again when that may happen at the same moment.
            http: reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap(),
            manner: Mutex::new(Manner::Pass),
            delayed: watch::channel(0).0,
            release: Semaphore::new(0),
        }));
        let listener = app::bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(pass).with_state(front.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (front, url)
    }

    pub(crate) fn be(&self, manner: Manner) {
        *self.0.manner.lock().unwrap() = manner;
    }

    /// Returns when this many answers are delayed.
    pub(crate) async fn delays(&self, count: usize) {
        self.0.delayed.subscribe().wait_for(|delayed| *delayed >= count).await.unwrap();
    }

    /// Releases all answers, now and later.
    pub(crate) fn release(&self) {
        self.0.release.add_permits(1_000);
    }
}

async fn pass(State(front): State<Front>, request: Request) -> Response {
    let parts = &front.0;
    let manner = *parts.manner.lock().unwrap();
    if let Manner::Instead(status, body) = manner {
        return (StatusCode::from_u16(status).unwrap(), body).into_response();
    }
    let (head, body) = request.into_parts();
    let onward = parts.http.request(head.method, format!("{}{}", parts.beyond, head.uri)).headers(head.headers);
    let answer = onward.body(to_bytes(body, usize::MAX).await.unwrap()).send().await.unwrap();
    let status = answer.status();
    let body = answer.bytes().await.unwrap();
    if matches!(manner, Manner::Delayed) {
        parts.delayed.send_modify(|delayed| *delayed += 1);
        parts.release.acquire().await.unwrap().forget();
    }
    (status, Body::from(body)).into_response()
}
