//! The client of the app's API, for every noun of the tool.
//!
//! A refusal prints the sentence of the app. Exit codes: 1 = failed, 2 = the request is not valid.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::Value;

/// Longer than the 30 s after which the app itself answers with a timeout.
const PATIENCE: Duration = Duration::from_secs(35);
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// Exit code of bad input, the same as clap's.
const BAD_USE: u8 = 2;

/// The address of the app, and the key for it.
#[derive(Args)]
pub(crate) struct Access {
    /// Address of the app.
    #[arg(long, env = "CRONBOX_URL", value_name = "URL", default_value = "http://127.0.0.1:8080",
        value_parser = NonEmptyStringValueParser::new())]
    url: String,
    /// An admin key; better in the environment, because other users can read a command line.
    #[arg(long, env = "CRONBOX_KEY", value_name = "KEY", hide_env_values = true,
        value_parser = NonEmptyStringValueParser::new())]
    key: String,
}

/// The address of the app, and the key for its `:invoke`.
#[derive(Args)]
pub(crate) struct Opener {
    /// Address of the app.
    #[arg(long, env = "CRONBOX_URL", value_name = "URL", default_value = "http://127.0.0.1:8080",
        value_parser = NonEmptyStringValueParser::new())]
    url: String,
    /// A scheduler key; better in the environment, because other users can read a command line.
    #[arg(long, env = "CRONBOX_SCHEDULER_KEY", value_name = "KEY", hide_env_values = true,
        required_unless_present = "dry_run", value_parser = NonEmptyStringValueParser::new())]
    scheduler_key: Option<String>,
}

/// A client of one app.
pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
}

/// The app's refusal, with its own sentence.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: String,
    detail: String,
    request_id: String,
}

impl Client {
    /// Creates a client; it sends nothing yet.
    ///
    /// # Errors
    /// Fails if the key has characters that an HTTP header cannot carry.
    pub(crate) fn new(access: &Access) -> anyhow::Result<Self> {
        Self::with_key(&access.url, &access.key).context("CRONBOX_KEY")
    }

    /// Creates a client that delivers fires; it sends nothing yet.
    ///
    /// # Errors
    /// Fails if there is no key, or if the key has characters that an HTTP header cannot carry.
    pub(crate) fn with_scheduler_key(opener: &Opener) -> anyhow::Result<Self> {
        let key = opener.scheduler_key.as_ref().context("set CRONBOX_SCHEDULER_KEY in the environment")?;
        Self::with_key(&opener.url, key).context("CRONBOX_SCHEDULER_KEY")
    }

    fn with_key(url: &str, key: &str) -> anyhow::Result<Self> {
        let mut key = HeaderValue::from_str(key)
            .map_err(|_| anyhow!("the key has a character that is not printable ASCII: copy it again"))?;
        key.set_sensitive(true);
        let http = reqwest::Client::builder()
            .default_headers(HeaderMap::from_iter([(KEY_HEADER, key)]))
            .timeout(PATIENCE)
            // The key is only for the app, so the client must not send it to the target of a redirect.
            .redirect(reqwest::redirect::Policy::none())
            // Nor to a proxy that a variable of the environment names.
            .no_proxy()
            .build()
            .context("cannot create the HTTP client")?;
        Ok(Client { base: url.trim_end_matches('/').to_owned(), http })
    }

    /// Sends a GET of a path below `/api/v1`.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, path, query)?).await
    }

    /// Sends a POST of a JSON body to a path below `/api/v1`.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.send(self.request(Method::POST, path, &[])?.json(body)).await
    }

    /// Sends a POST, and returns the status and body of any answer for the caller to evaluate.
    ///
    /// # Errors
    /// Fails if the server does not answer.
    pub(crate) async fn post_for_answer(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Vec<u8>)> {
        let request = self.request(Method::POST, path, &[])?.json(body);
        let answer = request.send().await.map_err(|error| anyhow!(error.without_url()).context(self.unreached()))?;
        let status = answer.status().as_u16();
        Ok((status, answer.bytes().await.with_context(|| self.unreached())?.to_vec()))
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, String)]) -> anyhow::Result<RequestBuilder> {
        let mut url = reqwest::Url::parse(&format!("{}/api/v1{path}", self.base))
            .with_context(|| format!("CRONBOX_URL is no URL: {}", self.base))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(self.http.request(method, url))
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Value> {
        let answer = request.send().await.map_err(|error| anyhow!(error.without_url()).context(self.unreached()))?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| self.unreached())?;
        let body = serde_json::from_str(&text);
        if !status.is_success() {
            return Err(Refusal::read(status, &body.unwrap_or(Value::Null)).into());
        }
        body.with_context(|| format!("{} answered {status}, but not as cronbox does", self.base))
    }

    fn unreached(&self) -> String {
        format!("{} does not answer", self.base)
    }
}

impl Refusal {
    fn read(status: StatusCode, problem: &Value) -> Self {
        let text = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
        Refusal { status, code: text("code"), detail: text("detail"), request_id: text("request_id") }
    }

    /// Whether the app itself says that the object does not exist; a proxy's 404 has no code.
    pub(crate) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND && self.code == "not_found"
    }

    /// 2 if the request is not valid, else 1.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.status {
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => BAD_USE.into(),
            _ => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status.as_u16();
        match (self.detail.as_str(), self.code.as_str()) {
            ("", _) => write!(f, "the app answered {status}"),
            // The id leads to the cause in the app's log.
            (detail, code) if self.status.is_server_error() && !self.request_id.is_empty() => {
                write!(f, "{detail} ({status} {code}, request {})", self.request_id)
            }
            (detail, code) => write!(f, "{detail} ({status} {code})"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Runs a future to its end on a new runtime.
///
/// # Errors
/// Fails if the future or the runtime fails.
pub(crate) fn wait_for<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(work)
}
