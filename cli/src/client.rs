//! The client of the app's API, for every noun of the tool.
//!
//! A refusal prints the sentence of the app. Exit codes: 1 = failed, 2 = the request is not valid.

use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use api_types::nesting::read_answer;
use api_types::page::Page;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use dead_letters::{FireClient, FireKey};
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) use crate::settings::Access;
use crate::settings::{Credential, Settings, check_scheme};
use crate::sign_in::renew_token;

/// Longer than the 30 s after which the app itself answers with a timeout.
const PATIENCE: Duration = Duration::from_secs(35);
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// How long a request is repeated that had no answer, or one that asks for a repeat.
const REPEATED_FOR: Duration = Duration::from_secs(120);
/// Items of a page at most.
const MOST_OF_A_PAGE: usize = 200;
/// Where the next page of JSON lines begins.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("next-cursor");
/// How long a stream lasts at most; then the caller opens the next one.
const LONGEST_STREAM: Duration = Duration::from_secs(24 * 60 * 60);
/// The media type of a stream.
const EVENT_STREAM: &str = "text/event-stream";
/// After which place a stream begins.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Exit code of bad input, the same as clap's.
const BAD_USE: u8 = 2;

/// The address of the app, and the key for its `:invoke`.
#[derive(Args)]
pub(crate) struct Opener {
    /// Address of the app.
    #[arg(long, env = "CRONBOX_URL", value_name = "URL", default_value = "http://127.0.0.1:8080",
        value_parser = NonEmptyStringValueParser::new())]
    url: String,
    /// Send the key to an address that begins with http:// and is another machine's, so that the network can read it.
    #[arg(long, env = "CRONBOX_ALLOW_HTTP")]
    allow_http: bool,
    /// A scheduler key; better in the environment, because other users can read a command line.
    #[arg(long, env = "CRONBOX_SCHEDULER_KEY", value_name = "KEY", hide_env_values = true,
        required_unless_present = "dry_run", value_parser = NonEmptyStringValueParser::new())]
    scheduler_key: Option<String>,
}

/// A client of one app.
pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
    /// Whether the app has answered a request of this command.
    has_answered: AtomicBool,
}

/// What came back for a request.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
}

/// How many pauses were made before repeats.
#[derive(Default)]
struct Pauses(u32);

/// The app's refusal, with its own sentence.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: String,
    detail: String,
    request_id: String,
    /// The complaint about each field, if there are several.
    fields: Vec<String>,
}

impl Opener {
    /// Creates a client that delivers fires, and its key; it sends nothing yet.
    ///
    /// # Errors
    /// Fails if there is no key, or if the key has characters that an HTTP header cannot carry.
    pub(crate) fn connect(&self) -> anyhow::Result<(FireClient, FireKey)> {
        let key = self.scheduler_key.as_ref().context("set CRONBOX_SCHEDULER_KEY in the environment")?;
        check_scheme(&self.url, self.allow_http)?;
        let key = FireKey::parse_key(key).context("CRONBOX_SCHEDULER_KEY")?;
        Ok((FireClient::new(&self.url, PATIENCE)?, key))
    }
}

impl Client {
    /// Creates a client. It renews the token of a person that ends soon, and sends nothing else yet.
    ///
    /// # Errors
    /// Fails if there is no key, if the key has characters that an HTTP header cannot carry, or if a sign-in has ended.
    pub(crate) async fn connect(access: &Access) -> anyhow::Result<Self> {
        // A sign-in that is not sent, because a key or another address stands above it, may have ended.
        if let Some(Credential::Token(_)) = access.resolve()?.credential {
            renew_token(access).await?;
        }
        Self::with_settings(&access.resolve()?)
    }

    /// Creates a client with these settings; it sends nothing yet.
    ///
    /// # Errors
    /// Fails if there is no credential, or if it has characters that an HTTP header cannot carry.
    pub(crate) fn with_settings(settings: &Settings) -> anyhow::Result<Self> {
        check_scheme(&settings.url, settings.allow_http)?;
        match &settings.credential {
            Some(Credential::Key(key)) => Self::with_header(&settings.url, KEY_HEADER, key).context("CRONBOX_KEY"),
            Some(Credential::Token(token)) => {
                Self::with_header(&settings.url, header::AUTHORIZATION, &format!("Bearer {token}"))
            }
            None => Err(anyhow!("there is no key: set CRONBOX_KEY, or run `cronbox login`")),
        }
    }

    fn with_header(url: &str, name: HeaderName, key: &str) -> anyhow::Result<Self> {
        let mut key = HeaderValue::from_str(key)
            .map_err(|_| anyhow!("the key has a character that is not printable ASCII: copy it again"))?;
        key.set_sensitive(true);
        let http = reqwest::Client::builder()
            .default_headers(HeaderMap::from_iter([(name, key)]))
            .timeout(PATIENCE)
            // The key is only for the app, so the client must not send it to the target of a redirect.
            .redirect(reqwest::redirect::Policy::none())
            // Nor to a proxy that a variable of the environment names.
            .no_proxy()
            .build()
            .context("cannot create the HTTP client")?;
        Ok(Client { base: url.trim_end_matches('/').to_owned(), http, has_answered: AtomicBool::new(false) })
    }

    /// Sends a GET of a path below `/api/v1`.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn get(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<Value> {
        self.send(self.request(Method::GET, path, query)?).await
    }

    /// Sends a GET, and reads the answer.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        self.understand(self.get(path, query).await?)
    }

    /// Reads the pages of a list until it has so many items, or all.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn read_list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        limit: usize,
    ) -> anyhow::Result<Vec<T>> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        while items.len() < limit {
            let mut page_query = query.to_vec();
            page_query.push(("limit", MOST_OF_A_PAGE.min(limit - items.len()).to_string()));
            page_query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let page: Page<T> = self.read(path, &page_query).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(items)
    }

    /// Sends a write, and reads the answer.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: &Value,
    ) -> anyhow::Result<T> {
        let answer = self.send(self.write_request(method, path, query, body)?).await?;
        self.understand(answer)
    }

    /// Sends a write whose answer has no body.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn delete(&self, path: &str) -> anyhow::Result<()> {
        self.send_for_text(self.write_request(Method::DELETE, path, &[], &Value::Null)?).await.map(drop)
    }

    /// Sends a write only if the object still has this version.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn write_version<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: &Value,
        version: i64,
    ) -> anyhow::Result<T> {
        let request = self.write_request(method, path, query, body)?;
        self.understand(self.send(request.header(header::IF_MATCH, format!("\"{version}\""))).await?)
    }

    /// Sends a merge patch (RFC 7396), in which null stands for the default, only if the object still has this version.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn merge<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        patch: &Value,
        version: i64,
    ) -> anyhow::Result<T> {
        let request = self.request(Method::PATCH, path, query)?.body(serde_json::to_vec(patch)?);
        let request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        self.understand(self.send(request.header(header::IF_MATCH, format!("\"{version}\""))).await?)
    }

    /// A request whose repeat after a lost answer creates nothing twice, if it creates something. An edit has no key.
    fn write_request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: &Value,
    ) -> anyhow::Result<RequestBuilder> {
        let has_key = method == Method::POST && creates(path);
        let request = self.request(method, path, query)?;
        let request = if body.is_null() { request } else { request.json(body) };
        Ok(if has_key { request.header(IDEMPOTENCY_KEY, uuid::Uuid::new_v4().to_string()) } else { request })
    }

    /// Reads an object that the app has sent.
    ///
    /// # Errors
    /// Fails if it has another form than this version knows.
    pub(crate) fn understand<T: DeserializeOwned>(&self, answer: Value) -> anyhow::Result<T> {
        serde_json::from_value(answer).with_context(|| {
            format!("{} answers in a form that this version does not know: install the version of the app", self.base)
        })
    }

    /// Opens a stream of server-sent events that begins after a place; `None`: there is none. A read of the same path says why.
    pub(crate) async fn open_stream(&self, path: &str, after: &str) -> Option<Response> {
        let request = self.request(Method::GET, path, &[]).ok()?.timeout(LONGEST_STREAM);
        let request = request.header(header::ACCEPT, EVENT_STREAM).header(LAST_EVENT_ID, after);
        let response = request.send().await.ok()?;
        let kind = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
        (response.status().is_success() && kind.starts_with(EVENT_STREAM)).then_some(response)
    }

    /// Sends a GET of JSON lines, and returns them with the header `Next-Cursor`.
    ///
    /// # Errors
    /// Returns a [`Refusal`], or fails if the app cannot be reached.
    pub(crate) async fn get_lines(
        &self,
        path: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<(String, Option<String>)> {
        let answer = self.exchange(self.request(Method::GET, path, query)?).await?;
        let next = answer.headers.get(NEXT_CURSOR).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok((answer.text, next))
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
        let text = self.send_for_text(request).await?;
        read_answer(text.as_bytes()).with_context(|| format!("{} answered, but not as cronbox does", self.base))
    }

    async fn send_for_text(&self, request: RequestBuilder) -> anyhow::Result<String> {
        Ok(self.exchange(request).await?.text)
    }

    /// Sends a request until it has an answer that a repeat would not change, for two minutes at most.
    async fn exchange(&self, request: RequestBuilder) -> anyhow::Result<Answer> {
        let request = request.build().context("cannot build the request")?;
        let began = Instant::now();
        let mut pauses = Pauses::default();
        loop {
            // No request is a stream, so each has a copy.
            let copy = request.try_clone().context("cannot repeat the request")?;
            let tried = self.try_once(copy).await;
            self.has_answered.fetch_or(tried.is_ok(), Ordering::Relaxed);
            let pause = self.pause_before_repeat(&request, &tried, &mut pauses);
            let left = REPEATED_FOR.saturating_sub(began.elapsed());
            let Some(pause) = pause.filter(|pause| *pause < left) else {
                return self.conclude(&request, tried);
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn try_once(&self, request: Request) -> reqwest::Result<Answer> {
        let answer = self.http.execute(request).await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        Ok(Answer { status, headers, text: answer.text().await? })
    }

    /// How long to wait before the request is repeated; `None` if it is not.
    ///
    /// A read, and a write with an idempotency key, are executed once however often they arrive. An edit without one is
    /// repeated only if it was not begun: no connection was opened, or a limit refused it. During a deployment an instance
    /// goes away under a command that waits; a wrong address gives its error at once.
    fn pause_before_repeat(
        &self,
        request: &Request,
        tried: &reqwest::Result<Answer>,
        pauses: &mut Pauses,
    ) -> Option<Duration> {
        let is_harmless = request.method() == Method::GET || request.headers().contains_key(IDEMPOTENCY_KEY);
        match tried {
            Err(error) if error.is_connect() => self.has_answered.load(Ordering::Relaxed).then(|| pauses.next()),
            Err(_) => is_harmless.then(|| pauses.next()),
            Ok(answer) if !is_harmless && answer.status != StatusCode::TOO_MANY_REQUESTS => None,
            // A `Retry-After` of 0 must not become a loop without a pause.
            Ok(answer) => answer.asks_for_repeat().then(|| pauses.next().max(answer.retry_after().unwrap_or_default())),
        }
    }

    fn conclude(&self, request: &Request, tried: reqwest::Result<Answer>) -> anyhow::Result<Answer> {
        let base = &self.base;
        match tried {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) if request.method() != Method::GET && answer.is_of_a_proxy() => {
                let status = answer.status.as_u16();
                Err(anyhow!("{base} answered {status}, and may have done it: look before you repeat the command"))
            }
            Ok(answer) => {
                Err(Refusal::read(answer.status, &serde_json::from_str(&answer.text).unwrap_or(Value::Null)).into())
            }
            Err(error) if error.is_connect() || request.method() == Method::GET => {
                Err(anyhow!(error.without_url()).context(self.unreached()))
            }
            Err(error) => {
                let sentence =
                    format!("{base} gave no answer, and may have done it: look before you repeat the command");
                Err(anyhow!(error.without_url()).context(sentence))
            }
        }
    }

    fn unreached(&self) -> String {
        format!("{} does not answer: check CRONBOX_URL; `make up` starts an app on this machine", self.base)
    }
}

impl Answer {
    /// Whether it says that the same request may be accepted soon. The app names the time then; an answer without a code
    /// is a proxy's.
    fn asks_for_repeat(&self) -> bool {
        let problem: Value = serde_json::from_str(&self.text).unwrap_or_default();
        match (self.status, problem["code"].as_str()) {
            // It would be as slow again.
            (_, Some("read_too_slow")) => false,
            // The app goes on with a write after this answer, so a repeat finds what it has created.
            (StatusCode::REQUEST_TIMEOUT, Some("request_timeout")) => true,
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(_)) => self.retry_after().is_some(),
            _ => self.is_of_a_proxy(),
        }
    }

    /// Whether a proxy has sent it, because it lost the answer of the app, or did not reach it.
    fn is_of_a_proxy(&self) -> bool {
        let problem: Value = serde_json::from_str(&self.text).unwrap_or_default();
        let is_gateway = matches!(
            self.status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        is_gateway && problem["code"].is_null()
    }

    fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

impl Pauses {
    /// Twice as long as the last one, 8 s at most.
    fn next(&mut self) -> Duration {
        self.0 += 1;
        Duration::from_millis(250) * 2u32.pow(self.0.min(5))
    }
}

/// Whether a POST to this path creates something: the API remembers only those by their `Idempotency-Key` (docs/api.md#repeat).
/// A second resume would undo the pause of another person meanwhile.
fn creates(path: &str) -> bool {
    match path.rsplit_once(':') {
        None => true,
        Some((noun, verb)) => {
            matches!(verb, "fire" | "backfill" | "rotate" | "rotate-signing-secret")
                || (verb == "retry" && noun.starts_with("/runs/"))
        }
    }
}

impl Refusal {
    fn read(status: StatusCode, problem: &Value) -> Self {
        let text = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
        let fields = problem["errors"].as_array().into_iter().flatten();
        let fields = fields.filter_map(|field| field["detail"].as_str().map(str::to_owned)).collect();
        Refusal { status, code: text("code"), detail: text("detail"), request_id: text("request_id"), fields }
    }

    /// Whether an error is the app's own answer that the object does not exist; a proxy's 404 has no code.
    pub(crate) fn says_not_found(error: &anyhow::Error) -> bool {
        error.downcast_ref::<Self>().is_some_and(Self::is_not_found)
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
            (_, code) if self.fields.len() > 1 => write!(f, "{} ({status} {code})", self.fields.join("; ")),
            (detail, code) => write!(f, "{detail} ({status} {code})"),
        }?;
        self.next_command().map_or(Ok(()), |command| write!(f, ": {command}"))
    }
}

impl Refusal {
    /// What the user may do next, if it is a command.
    fn next_command(&self) -> Option<&'static str> {
        Some(match self.code.as_str() {
            "unauthorized" | "key_expired" => "run `cronbox login`, or set CRONBOX_KEY",
            "forbidden" => "`cronbox me` shows what the key permits",
            "not_found" => "the command `ls` shows the ids",
            "no_schedule" => "add one with `cronbox workflow edit --cron`",
            "version_mismatch" => "read it again and repeat: another edit changed it meanwhile",
            "managed" => "edit the file, then apply it",
            "name_taken" => "`cronbox workflow ls --q NAME` shows it",
            "unknown_timezone" | "invalid_timezone" => "`cronbox timezones` lists them",
            "overlap" | "run_live" => "`cronbox run ls --state running` shows it",
            "selection_changed" => "`--dry-run` shows it",
            "run_ended" => "`cronbox run get ID` shows how it ended",
            "span_not_settled" => "`--last 24h` ends 8 minutes ago",
            "team_not_empty" => "`cronbox bulk archive --team ID --all --yes` and then the same with `delete` empty it",
            "missing_field" if self.detail.contains("team_id") => "send --team; `cronbox team ls` lists them",
            _ => return None,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_creations_have_a_key() {
        for path in
            ["/workflows", "/bulk", "/schedules/7:fire", "/schedules/7:backfill", "/runs/a:retry", "/keys/self:rotate"]
        {
            assert!(creates(path), "{path}");
        }
        for path in [
            "/workflows/7:resume",
            "/runs/a:cancel",
            "/outbox/7:retry",
            "/notification-messages/a:retry",
            "/bulk/a:cancel",
        ] {
            assert!(!creates(path), "{path}");
        }
    }

    fn answer(status: StatusCode, code: Option<&str>, retry_after: Option<&'static str>) -> Answer {
        Answer {
            status,
            headers: retry_after
                .map(|secs| (header::RETRY_AFTER, HeaderValue::from_static(secs)))
                .into_iter()
                .collect(),
            text: code.map(|code| serde_json::json!({ "code": code }).to_string()).unwrap_or_default(),
        }
    }

    /// A limit has refused it before anything changed; of any other answer this is not known.
    #[test]
    fn an_edit_is_repeated_only_if_it_was_not_begun() {
        let client = Client::with_header("http://127.0.0.1:9", KEY_HEADER, "key").unwrap();
        let edit = client.write_request(Method::POST, "/workflows/7:pause", &[], &Value::Null).unwrap();
        let edit = edit.build().unwrap();
        let is_repeated = |answer| client.pause_before_repeat(&edit, &Ok(answer), &mut Pauses::default()).is_some();
        assert!(is_repeated(answer(StatusCode::TOO_MANY_REQUESTS, Some("rate_limited"), Some("1"))));
        for (status, code) in [
            (StatusCode::SERVICE_UNAVAILABLE, Some("database_unavailable")),
            (StatusCode::REQUEST_TIMEOUT, Some("request_timeout")),
            (StatusCode::BAD_GATEWAY, None),
        ] {
            assert!(!is_repeated(answer(status, code, Some("1"))), "{status}");
        }
    }

    #[test]
    fn answers_ask_for_a_repeat() {
        let timeout = answer(StatusCode::REQUEST_TIMEOUT, Some("request_timeout"), None);
        assert!(timeout.asks_for_repeat(), "the app goes on with the write");
        assert!(answer(StatusCode::BAD_GATEWAY, None, None).asks_for_repeat());
        assert!(answer(StatusCode::SERVICE_UNAVAILABLE, Some("database_busy"), Some("1")).asks_for_repeat());
        assert!(!answer(StatusCode::SERVICE_UNAVAILABLE, Some("read_too_slow"), Some("1")).asks_for_repeat());
        assert!(!answer(StatusCode::CONFLICT, Some("overlap"), None).asks_for_repeat());
    }
}
