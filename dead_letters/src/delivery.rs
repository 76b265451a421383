//! Step 6 of 7: posts the fire of a message to the app's `:invoke`, and reads whether the app itself has answered.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use schedule::{Delivered, Fire};
use serde_json::Value;

const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// In bytes. The app's answers have a few hundred.
const LONGEST_ANSWER: usize = 64 * 1024;

/// A client of one app's `:invoke`.
pub struct FireClient {
    base: String,
    http: Client,
}

/// A scheduler key as an HTTP header carries it.
pub struct FireKey(HeaderValue);

/// An answer to a fire, of the app or of another program.
pub struct FireAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl FireKey {
    /// Parses a scheduler key.
    ///
    /// # Errors
    /// Fails if the key has characters that an HTTP header cannot carry.
    pub fn parse_key(scheduler_key: &str) -> anyhow::Result<Self> {
        let mut key = HeaderValue::from_str(scheduler_key)
            .map_err(|_| anyhow!("the key has a character that is not printable ASCII: copy it again"))?;
        key.set_sensitive(true);
        Ok(FireKey(key))
    }
}

impl FireAnswer {
    /// Reads what the app has decided. Only an answer of the app itself counts, as in the runner.
    ///
    /// # Errors
    /// Fails if it is no decision of the app.
    pub fn into_delivered(self) -> anyhow::Result<Delivered> {
        let FireAnswer { status, body } = self;
        match Delivered::parse_answer(status, &body) {
            Some(delivered) => Ok(delivered),
            None => {
                let problem = serde_json::from_slice::<Value>(&body).unwrap_or_default();
                let detail = problem["detail"].as_str().unwrap_or("not an answer of the app");
                bail!("unexpected answer to a fire: {status}: {detail}")
            }
        }
    }
}

impl FireClient {
    /// Creates a client for the app at `base`; it sends nothing yet. `timeout` is that of one post.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub fn new(base: &str, timeout: Duration) -> anyhow::Result<Self> {
        let http = Client::builder()
            .timeout(timeout)
            // The key is only for the app, so the client must not send it to the target of a redirect.
            .redirect(Policy::none())
            // Nor to a proxy that a variable of the environment names.
            .no_proxy()
            .build()
            .context("cannot create the HTTP client")?;
        Ok(FireClient { base: base.trim_end_matches('/').to_owned(), http })
    }

    /// Posts a fire; a repeat does no harm.
    ///
    /// # Errors
    /// Fails if the app does not answer, or if another program answers.
    pub async fn post_fire(&self, fire: &Fire, key: &FireKey) -> anyhow::Result<Delivered> {
        self.send_fire(fire, key).await?.into_delivered()
    }

    /// Posts a fire, and returns the answer as it is.
    ///
    /// # Errors
    /// Fails if there is no answer.
    pub async fn send_fire(&self, fire: &Fire, key: &FireKey) -> anyhow::Result<FireAnswer> {
        let url = format!("{}/api/v1/cron/workflows/{}:invoke", self.base, fire.workflow_id);
        let unreached = || format!("{} does not answer: check its address, and whether an app runs there", self.base);
        let answer = self.http.post(url).header(KEY_HEADER, key.0.clone()).json(fire).send().await;
        let answer = answer.map_err(|error| anyhow!(error.without_url()).context(unreached()))?;
        let status = answer.status().as_u16();
        let body = read_body(answer).await.with_context(unreached)?;
        Ok(FireAnswer { status, body })
    }
}

/// Reads as much as an answer of the app can have; a longer one is not the app's.
async fn read_body(mut response: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while body.len() <= LONGEST_ANSWER
        && let Some(chunk) = response.chunk().await?
    {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
