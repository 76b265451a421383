//! Step 6 of 7: the runner hands a fire to the app's idempotent `:invoke`.
//!
//! EventBridge invokes it asynchronously: an error means that Lambda tries again twice and then
//! keeps the event in the on-failure queue. So only an answer that the app itself gave counts as
//! delivered ([`Delivered`]); whatever else comes back, or nothing, is an error.

mod config;
mod key;
mod lambda;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use schedule::{Fire, FireError};
use serde_json::Value;

pub use config::{Config, KeySource};
pub use lambda::serve as serve_lambda;
pub use schedule::Delivered;

use crate::key::{Kept, Key};

/// One try.
const TRY: Duration = Duration::from_secs(8);
/// All tries of one delivery; Lambda ends the function after 15 s.
const ALL_TRIES: Duration = Duration::from_secs(12);
/// The app's answers have a few hundred bytes.
const LONGEST_ANSWER: usize = 64 * 1024;

/// Delivers fires; clones share the connections and the key.
#[derive(Clone)]
pub struct Runner(Arc<Parts>);

struct Parts {
    base: String,
    key: Key,
    http: Client,
}

/// Why a fire was not delivered; Lambda tries again.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The event is no fire of ours.
    #[error("this event cannot be delivered: {0}")]
    Event(#[from] FireError),
    /// The scheduler key cannot be had.
    #[error("there is no key for the app: {0:#}")]
    Key(anyhow::Error),
    /// The app did not answer.
    #[error("the app did not answer: {0}")]
    NoAnswer(String),
    /// Something answered that the app does not say.
    #[error("status {status} is not an answer of the app")]
    NotTheApp {
        /// What it was.
        status: u16,
    },
}

/// What came back over the wire.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Runner {
    /// Makes a runner; nothing is fetched or connected before the first delivery.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(config: Config) -> anyhow::Result<Self> {
        let http = Client::builder()
            // A redirect is not the app's answer, and a key must not follow one.
            .redirect(Policy::none())
            .no_proxy()
            .timeout(TRY)
            .build()
            .context("the HTTP client cannot be set up")?;
        let base = config.app_base_url.as_str().trim_end_matches('/').to_owned();
        Ok(Runner(Arc::new(Parts { base, key: Key::new(config.key), http })))
    }

    /// Delivers one fire.
    ///
    /// # Errors
    /// All but an answer of the app: Lambda is to try again.
    pub async fn deliver(&self, event: Value) -> Result<Delivered, DeliverError> {
        let fire = Fire::from_event(&event).inspect_err(|error| tracing::error!("not a fire: {error}"))?;
        let answer = match tokio::time::timeout(ALL_TRIES, self.try_with_key(&fire)).await {
            Ok(answer) => answer,
            Err(_) => Err(DeliverError::NoAnswer(format!("gave up after {} s", ALL_TRIES.as_secs()))),
        };
        let delivered = answer.and_then(|Answer { status, body }| {
            let read = Delivered::read(status, &body).ok_or(DeliverError::NotTheApp { status })?;
            Ok((status, read))
        });
        log(&fire, &delivered);
        delivered.map(|(_, read)| read)
    }

    /// Once, and once more if the key was rotated meanwhile.
    async fn try_with_key(&self, fire: &Fire) -> Result<Answer, DeliverError> {
        let Parts { key, .. } = &*self.0;
        let answer = self.post(fire, key.get(Kept::Good).await.map_err(DeliverError::Key)?).await?;
        if answer.status != 401 || !key.can_change() {
            return Ok(answer);
        }
        self.post(fire, key.get(Kept::Refused).await.map_err(DeliverError::Key)?).await
    }

    async fn post(&self, fire: &Fire, key: String) -> Result<Answer, DeliverError> {
        let Parts { base, http, .. } = &*self.0;
        let url = format!("{base}/api/v1/cron/workflows/{}:invoke", fire.workflow_id);
        let mut request = http.post(url).header("X-API-Key", key).json(fire);
        if let Some(traceparent) = &fire.traceparent {
            request = request.header("traceparent", traceparent);
        }
        let response = request.send().await.map_err(|error| no_answer(&error))?;
        let status = response.status().as_u16();
        Ok(Answer { status, body: read_body(response).await? })
    }
}

/// Reads as much as the app could have said; the rest would not be its answer.
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
    DeliverError::NoAnswer(
        if error.is_timeout() {
            "timeout"
        } else if error.is_connect() {
            "cannot connect"
        } else {
            "the connection broke"
        }
        .to_owned(),
    )
}

/// The one line of a delivery; the metric filter reads `status`, 0 = none.
fn log(fire: &Fire, delivered: &Result<(u16, Delivered), DeliverError>) {
    let workflow_id = fire.workflow_id.0;
    let time = &fire.raw_time;
    match delivered {
        Ok((status, Delivered::Accepted { .. })) => {
            tracing::info!(step = 6, workflow_id, status, "runner: {time} of workflow {workflow_id} accepted");
        }
        Ok((status, Delivered::Declined { reason })) => {
            tracing::info!(
                step = 6,
                workflow_id,
                status,
                reason,
                "runner: {time} of workflow {workflow_id} declined: {reason}"
            );
        }
        Ok((status, Delivered::Gone)) => {
            tracing::info!(step = 6, workflow_id, status, "runner: workflow {workflow_id} is gone");
        }
        Err(error) => {
            let status = if let DeliverError::NotTheApp { status } = error { *status } else { 0 };
            tracing::error!(
                step = 6,
                workflow_id,
                status,
                "runner: {time} of workflow {workflow_id} not delivered: {error}"
            );
        }
    }
}
