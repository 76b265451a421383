//! Step 6 of 7: one delivery: tries it until the app answers or the time is over.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use schedule::{Delivered, Fire, FireError};
use scheduler_key::{SchedulerKey, is_rate_limited, refuses_key};
use serde_json::Value;
use tokio::time::Instant;
use traces::{Kind, Parent, Span};
use url::Url;

use crate::config::{Config, Limits};

/// The pause before the second try of a delivery; it doubles before each later one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);
/// In bytes. The app's answers have a few hundred.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Delivers fires; clones share the connections and the key.
#[derive(Clone)]
pub struct Runner(Arc<Parts>);

struct Parts {
    base: String,
    app: Url,
    key: SchedulerKey,
    limits: Limits,
    http: Client,
}

/// Why a fire was not delivered; Lambda tries again.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The event is not a fire of cronbox.
    #[error("this event cannot be delivered: {0}")]
    Event(#[from] FireError),
    /// The scheduler key cannot be fetched.
    #[error("the scheduler key cannot be fetched: {0:#}")]
    Key(anyhow::Error),
    /// The app did not answer in time.
    #[error("the app did not answer: {0}")]
    NoAnswer(String),
    /// There is no connection to the app.
    #[error("the app did not answer: {0}")]
    NoConnection(&'static str),
    /// Another program answered, not the app.
    #[error("status {status} is not an answer of the app")]
    NotTheApp {
        /// The HTTP status of the answer.
        status: u16,
    },
}

impl DeliverError {
    /// The name of its kind, for dead-letter messages and Lambda's console.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self {
            DeliverError::Event(_) => "NotAFire",
            DeliverError::Key(_) => "NoKey",
            DeliverError::NoAnswer(_) | DeliverError::NoConnection(_) => "NoAnswer",
            DeliverError::NotTheApp { .. } => "NotTheApp",
        }
    }
}

/// A received answer.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Runner {
    /// Creates a runner; it fetches nothing and connects to nothing before the first delivery.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub fn new(config: Config) -> anyhow::Result<Self> {
        let http = Client::builder()
            // A redirect is not the app's answer, and a key must not follow one.
            .redirect(Policy::none())
            .no_proxy()
            .timeout(config.limits.one_try)
            .build()
            .context("the HTTP client cannot be set up")?;
        let base = config.app_base_url.as_str().trim_end_matches('/').to_owned();
        Ok(Runner(Arc::new(Parts {
            base,
            app: config.app_base_url,
            key: SchedulerKey::new(config.key),
            limits: config.limits,
            http,
        })))
    }

    /// Delivers one fire.
    ///
    /// # Errors
    /// Fails if the app gave no answer; Lambda then tries again.
    pub async fn deliver_fire(&self, event: Value) -> Result<Delivered, DeliverError> {
        let fire = Fire::from_event(&event).inspect_err(|error| {
            tracing::error!(step = 6, status = 0, accepted = false, "event refused: it is not a fire: {error}");
        })?;
        let span = begin_span(&fire);
        let delivered = self.try_often(&fire, &span).await.and_then(|Answer { status, body }| {
            let read = Delivered::parse_answer(status, &body).ok_or(DeliverError::NotTheApp { status })?;
            Ok((status, read))
        });
        log(&fire, &delivered);
        end_span(span, &delivered);
        delivered.map(|(_, read)| read)
    }

    /// Tries again while the app restarts, because Lambda's next retry would make the fire a minute late.
    async fn try_often(&self, fire: &Fire, span: &Span) -> Result<Answer, DeliverError> {
        let Limits { all_tries: patience, most_tries, .. } = self.0.limits;
        let deadline = Instant::now() + patience;
        let (mut pause, mut tries) = (FIRST_PAUSE, 0);
        loop {
            tries += 1;
            let answer = match tokio::time::timeout_at(deadline, self.try_with_key(fire, span)).await {
                Ok(answer) => answer,
                Err(_) => Err(DeliverError::NoAnswer(format!("timeout after {} s", patience.as_secs()))),
            };
            if !may_pass(&answer) || tries >= most_tries || Instant::now() + pause >= deadline {
                return answer;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends the fire with each key that may be right, until the app refuses none.
    async fn try_with_key(&self, fire: &Fire, span: &Span) -> Result<Answer, DeliverError> {
        let mut keys = self.0.key.begin_request();
        let mut refused = None;
        while let Some(key) = keys.next_key().await.map_err(DeliverError::Key)? {
            let answer = self.post(fire, key, span).await?;
            if !refuses_key(answer.status, &answer.body) {
                keys.keep_last().await;
                return Ok(answer);
            }
            refused = Some(answer);
        }
        refused.ok_or_else(|| DeliverError::Key(anyhow!("there is no key")))
    }

    async fn post(&self, fire: &Fire, key: String, delivery: &Span) -> Result<Answer, DeliverError> {
        let span = self.begin_request_span(delivery);
        let answer = self.send(fire, key, span.traceparent()).await;
        match &answer {
            Ok(answer) => {
                span.set("http.response.status_code", i64::from(answer.status));
                if answer.status >= 400 {
                    span.fail_with_status(answer.status);
                }
            }
            Err(error) => span.fail(error.kind_name()),
        }
        answer
    }

    fn begin_request_span(&self, delivery: &Span) -> Span {
        let app = &self.0.app;
        let span = Span::begin(Kind::Client, Parent::Span(delivery), || "POST".into());
        span.set("http.request.method", "POST");
        span.set("url.template", "/api/v1/cron/workflows/{id}:invoke");
        span.set_text("server.address", app.host_str().unwrap_or_default());
        span.set("server.port", app.port_or_known_default().map_or(0, i64::from));
        span
    }

    /// Sends the fire. Without traces its own `traceparent`, that of the edit, goes along.
    async fn send(&self, fire: &Fire, key: String, traceparent: Option<String>) -> Result<Answer, DeliverError> {
        let Parts { base, http, .. } = &*self.0;
        let url = format!("{base}/api/v1/cron/workflows/{}:invoke", fire.workflow_id);
        let mut request = http.post(url).header("X-API-Key", key).json(fire);
        if let Some(traceparent) = traceparent.as_ref().or(fire.traceparent.as_ref()) {
            request = request.header("traceparent", traceparent);
        }
        let response = request.send().await.map_err(|error| no_answer(&error))?;
        let status = response.status().as_u16();
        Ok(Answer { status, body: read_body(response).await? })
    }
}

/// Whether the app, or a proxy before it, may be restarting, or refuses the key for some seconds. `:invoke` is idempotent,
/// so a try that arrived does no harm.
fn may_pass(answer: &Result<Answer, DeliverError>) -> bool {
    match answer {
        Ok(answer) => matches!(answer.status, 502..=504) || is_rate_limited(answer.status, &answer.body),
        Err(error) => matches!(error, DeliverError::NoConnection(_)),
    }
}

/// Reads as much as an answer of the app can have; a longer one is not the app's.
async fn read_body(mut response: Response) -> Result<Vec<u8>, DeliverError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_ANSWER {
            break;
        }
    }
    Ok(body)
}

fn no_answer(error: &reqwest::Error) -> DeliverError {
    if error.is_timeout() {
        DeliverError::NoAnswer("timeout".to_owned())
    } else if error.is_connect() {
        DeliverError::NoConnection("cannot connect")
    } else {
        DeliverError::NoConnection("the connection was closed")
    }
}

/// Begins the span of a delivery. Its parent is the edit, so all fires of a schedule are in the trace of its edit.
fn begin_span(fire: &Fire) -> Span {
    let span = Span::begin(Kind::Consumer, Parent::Header(fire.traceparent.as_deref()), || "deliver fire".into());
    span.set("faas.trigger", "timer");
    span.set("cronbox.workflow.id", fire.workflow_id.0);
    span.set_text("cronbox.scheduled_time", &fire.raw_time);
    span.set("cronbox.fire.attempt", fire.attempt.map_or(0, i64::from));
    span
}

/// Ends the span of a delivery.
fn end_span(span: Span, delivered: &Result<(u16, Delivered), DeliverError>) {
    match delivered {
        Ok((_, Delivered::Accepted { .. })) => span.set("cronbox.result", "accepted"),
        Ok((_, Delivered::Declined { .. })) => span.set("cronbox.result", "declined"),
        Ok((_, Delivered::Gone)) => span.set("cronbox.result", "gone"),
        Err(error) => {
            span.set("cronbox.result", "not_delivered");
            span.fail(error.kind_name());
        }
    }
}

/// The one line of a delivery. Metric filters read `accepted` (whether the app itself answered) and `status` (0 =
/// none).
fn log(fire: &Fire, delivered: &Result<(u16, Delivered), DeliverError>) {
    let workflow_id = fire.workflow_id.0;
    let time = &fire.raw_time;
    match delivered {
        Ok((status, Delivered::Accepted { .. })) => {
            tracing::info!(
                step = 6,
                workflow_id,
                status,
                accepted = true,
                "runner: fire of workflow {workflow_id} for {time} accepted"
            );
        }
        Ok((status, Delivered::Declined { reason })) => {
            tracing::info!(
                step = 6,
                workflow_id,
                status,
                accepted = true,
                reason,
                "runner: fire of workflow {workflow_id} for {time} declined: {reason}"
            );
        }
        Ok((status, Delivered::Gone)) => {
            tracing::info!(
                step = 6,
                workflow_id,
                status,
                accepted = true,
                "runner: fire declined: workflow {workflow_id} does not exist any more"
            );
        }
        Err(error) => {
            let status = if let DeliverError::NotTheApp { status } = error { *status } else { 0 };
            tracing::error!(
                step = 6,
                workflow_id,
                status,
                accepted = false,
                error = error.kind_name(),
                "runner: fire of workflow {workflow_id} for {time} not delivered: {error}"
            );
        }
    }
}
