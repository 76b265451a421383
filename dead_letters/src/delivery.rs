//! Step 6 of 7: posts the fire of a message to the app's `:invoke`, and reads whether the app itself has answered.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
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

impl FireClient {
    /// Creates a client for the app at `base`; it sends nothing yet. `timeout` is that of one post.
    ///
    /// # Errors
    /// Fails if the key has characters that an HTTP header cannot carry.
    pub fn new(base: &str, scheduler_key: &str, timeout: Duration) -> anyhow::Result<Self> {
        let mut key = HeaderValue::from_str(scheduler_key)
            .map_err(|_| anyhow!("the key has a character that is not printable ASCII: copy it again"))?;
        key.set_sensitive(true);
        let http = Client::builder()
            .default_headers(HeaderMap::from_iter([(KEY_HEADER, key)]))
            .timeout(timeout)
            // The key is only for the app, so the client must not send it to the target of a redirect.
            .redirect(Policy::none())
            // Nor to a proxy that a variable of the environment names.
            .no_proxy()
            .build()
            .context("cannot create the HTTP client")?;
        Ok(FireClient { base: base.trim_end_matches('/').to_owned(), http })
    }

    /// Posts a fire. Only an answer of the app itself counts, as in the runner; a repeat does no harm.
    ///
    /// # Errors
    /// Fails if the app does not answer, or if another program answers.
    pub async fn post_fire(&self, fire: &Fire) -> anyhow::Result<Delivered> {
        let url = format!("{}/api/v1/cron/workflows/{}:invoke", self.base, fire.workflow_id);
        let unreached = || format!("{} does not answer: check its address, and whether an app runs there", self.base);
        let answer = self.http.post(url).json(fire).send().await;
        let answer = answer.map_err(|error| anyhow!(error.without_url()).context(unreached()))?;
        let status = answer.status().as_u16();
        let body = read_body(answer).await.with_context(unreached)?;
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
