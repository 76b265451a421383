//! A proxy in front of EventBridge: it counts the calls, delays them, or answers them as the test says.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tests::PATIENCE;
use tokio::sync::{Semaphore, watch};

/// One answered call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) name: String,
    pub(crate) status: u16,
}

/// An answer that the proxy gives instead of EventBridge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// A typed refusal; the request is not forwarded.
    Refuse(u16, &'static str, &'static str),
    /// The page of another proxy that does not use Scheduler's protocol; the request is not forwarded.
    Page(u16),
    /// The request is forwarded, and the answer is replaced with a 500.
    DoneButBroken,
    /// The request is forwarded, and no answer is returned.
    DoneButSilent,
}

pub(crate) const THROTTLED: Answer = Answer::Refuse(429, "ThrottlingException", "Rate exceeded");
pub(crate) const INVALID: Answer = Answer::Refuse(400, "ValidationException", "Invalid Schedule Expression cron(..).");
pub(crate) const DENIED: Answer =
    Answer::Refuse(403, "AccessDeniedException", "not authorized to perform scheduler:CreateSchedule");
/// The answer about a role that is missing, that does not trust Scheduler, or that is still being propagated.
pub(crate) const NO_ROLE: Answer = Answer::Refuse(
    400,
    "ValidationException",
    "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
);
pub(crate) const STRANGE: Answer = Answer::Refuse(418, "TeapotException", "short and stout");

#[derive(Clone)]
pub(crate) struct Front(Arc<Parts>);

struct Parts {
    beyond: String,
    http: reqwest::Client,
    calls: Mutex<Vec<Call>>,
    answers: Mutex<HashMap<String, VecDeque<Answer>>>,
    always: Mutex<HashMap<String, Answer>>,
    delayed: Mutex<HashSet<String>>,
    arrived: watch::Sender<HashSet<String>>,
    release: Semaphore,
    tide: Tide,
}

/// A barrier for calls of all publishers.
struct Tide {
    is_out: AtomicBool,
    waiting: watch::Sender<usize>,
    turns: Semaphore,
}

impl Front {
    /// Serves in front of the Scheduler at `beyond`; returns the proxy and its URL.
    pub(crate) async fn before(beyond: &str) -> (Front, String) {
        let front = Front(Arc::new(Parts {
            beyond: beyond.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            calls: Mutex::default(),
            answers: Mutex::default(),
            always: Mutex::default(),
            delayed: Mutex::default(),
            arrived: watch::channel(HashSet::new()).0,
            release: Semaphore::new(0),
            tide: Tide { is_out: AtomicBool::new(false), waiting: watch::channel(0).0, turns: Semaphore::new(0) },
        }));
        let listener = app::bind_listener("127.0.0.1:0".parse().unwrap()).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(pass).with_state(front.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (front, endpoint)
    }

    /// Sets the answers to the next calls about `name`.
    pub(crate) fn next(&self, name: &str, answers: impl IntoIterator<Item = Answer>) {
        self.0.answers.lock().unwrap().entry(name.to_owned()).or_default().extend(answers);
    }

    /// Sets the answer to all calls about `name`; `None` = EventBridge answers again.
    pub(crate) fn always(&self, name: &str, answer: Option<Answer>) {
        let mut always = self.0.always.lock().unwrap();
        match answer {
            Some(answer) => always.insert(name.to_owned(), answer),
            None => always.remove(name),
        };
    }

    /// Removes the answers to next calls, so that EventBridge answers.
    pub(crate) fn forget(&self) {
        self.0.answers.lock().unwrap().clear();
    }

    /// Delays the next call about `name` before EventBridge gets it.
    pub(crate) fn delay(&self, name: &str) {
        self.0.arrived.send_modify(|arrived| _ = arrived.remove(name));
        self.0.delayed.lock().unwrap().insert(name.to_owned());
    }

    /// Returns when the delayed call about `name` has arrived.
    pub(crate) async fn arrival(&self, name: &str) {
        let mut arrived = self.0.arrived.subscribe();
        let arrival = tokio::time::timeout(PATIENCE, arrived.wait_for(|arrived| arrived.contains(name)));
        assert!(arrival.await.is_ok(), "no call about {name}");
    }

    /// Forwards the delayed call.
    pub(crate) fn release(&self) {
        self.0.release.add_permits(1);
    }

    /// Delays every call from now on.
    pub(crate) fn delay_all(&self) {
        self.0.tide.is_out.store(true, Ordering::SeqCst);
    }

    /// Waits until exactly `calls` calls are delayed.
    pub(crate) async fn until_waiting(&self, calls: usize) {
        let mut waiting = self.0.tide.waiting.subscribe();
        let all = tokio::time::timeout(PATIENCE, waiting.wait_for(|waiting| *waiting == calls)).await.map(drop);
        assert!(all.is_ok(), "{} calls wait, not {calls}", *self.0.tide.waiting.borrow());
    }

    /// Waits until exactly `calls` calls are delayed, and forwards them.
    pub(crate) async fn release_when_waiting(&self, calls: usize) {
        self.until_waiting(calls).await;
        self.0.tide.waiting.send_modify(|waiting| *waiting -= calls);
        self.0.tide.turns.add_permits(calls);
    }

    /// Delays no more calls, and forwards all delayed ones.
    pub(crate) fn release_all(&self) {
        self.0.tide.is_out.store(false, Ordering::SeqCst);
        self.0.tide.turns.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// The calls that were answered since this was last called.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut *self.0.calls.lock().unwrap())
    }

    /// An answer for `DELETE wf-1-dev` has precedence over one for `wf-1-dev`.
    fn answer_for(&self, method: &str, name: &str) -> Option<Answer> {
        let mut answers = self.0.answers.lock().unwrap();
        let scripted = [format!("{method} {name}"), name.to_owned()]
            .iter()
            .find_map(|key| answers.get_mut(key).and_then(VecDeque::pop_front));
        scripted.or_else(|| self.0.always.lock().unwrap().get(name).copied())
    }
}

async fn pass(State(front): State<Front>, request: Request) -> Response {
    let method = request.method().clone();
    let name = request.uri().path().trim_start_matches("/schedules/").to_owned();
    let url = format!("{}{}", front.0.beyond, request.uri());
    let headers = ["authorization", "content-type"].map(|name| (name, request.headers().get(name).cloned()));
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let is_delayed = front.0.delayed.lock().unwrap().remove(&name);
    if is_delayed {
        front.0.arrived.send_if_modified(|arrived| arrived.insert(name.clone()));
        front.0.release.acquire().await.unwrap().forget();
    }
    if front.0.tide.is_out.load(Ordering::SeqCst) {
        front.0.tide.waiting.send_modify(|waiting| *waiting += 1);
        front.0.tide.turns.acquire().await.unwrap().forget();
    }
    let answer = front.answer_for(method.as_str(), &name);
    let refused = match answer {
        Some(Answer::Refuse(status, code, message)) => Some((status, refusal(status, code, message))),
        Some(Answer::Page(status)) => {
            Some((status, (StatusCode::from_u16(status).unwrap(), "<h1>Not here</h1>").into_response()))
        }
        _ => None,
    };
    if let Some((status, refused)) = refused {
        front.0.calls.lock().unwrap().push(Call { method: method.to_string(), name, status });
        return refused;
    }
    let mut beyond = front.0.http.request(method.clone(), url).body(body);
    for (name, value) in headers {
        beyond = value.into_iter().fold(beyond, |request, value| request.header(name, value));
    }
    let answered = beyond.send().await.unwrap();
    let status = answered.status().as_u16();
    front.0.calls.lock().unwrap().push(Call { method: method.to_string(), name, status });
    match answer {
        Some(Answer::DoneButBroken) => refusal(500, "InternalServerException", "oops"),
        Some(Answer::DoneButSilent) => std::future::pending().await,
        _ => relay(answered).await,
    }
}

async fn relay(answered: reqwest::Response) -> Response {
    let status = StatusCode::from_u16(answered.status().as_u16()).unwrap();
    let code = answered.headers().get("x-amzn-errortype").map(|code| code.as_bytes().to_vec());
    let body: Bytes = answered.bytes().await.unwrap();
    let mut response = (status, body).into_response();
    if let Some(code) = code {
        response.headers_mut().insert("x-amzn-errortype", HeaderValue::from_bytes(&code).unwrap());
    }
    response
}

fn refusal(status: u16, code: &'static str, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("x-amzn-errortype", code)], axum::Json(json!({"Message": message}))).into_response()
}
