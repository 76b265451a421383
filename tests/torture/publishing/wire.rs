//! The wire between the SDK and Scheduler: the SDK's own HTTP client, connected to the stand-in's router in this
//! process. The wire loses and refuses requests, and delivers old ones late.

mod answers;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_sdk_scheduler::config::Credentials;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use axum::Router;
use axum::body::{Body, to_bytes};
use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;
use tower::ServiceExt;

use self::answers::{answer, error_body, refusal, silence};
use crate::leaked_secrets::watch_secret;
use crate::publishing::stale_reads::Lag;
use crate::random::Dice;
use crate::turnstile::Turnstile;

/// The key that signs requests; it must appear in no log.
const SIGNING_KEY: &str = "torture-signing-1b7d";

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Through,
    Throttled,
    ErrorBefore,
    ErrorAfter,
    /// Executed, and not answered.
    TimeoutAfter,
    /// Not answered, and executed before its signature expires, or never.
    Late,
    /// Neither answered nor executed.
    Lost,
    Conflict,
    AssumeRole,
    MissingGroup,
    /// For an update: the schedule that was created a moment ago is not visible yet.
    NotFound,
    /// For a read: it shows the state before the last write.
    Stale,
    /// Arrived after its signature had expired.
    Expired,
}

/// A signed request, which can be executed at any time while its signature is valid.
#[derive(Clone)]
struct Sent {
    actor: usize,
    signed_at: DateTime<Utc>,
    method: String,
    uri: String,
    body: Vec<u8>,
}

impl Sent {
    fn workflow(&self) -> i64 {
        let name = self.uri.split(['/', '?']).find_map(|part| part.strip_prefix("wf-")?.strip_suffix("-dev"));
        name.and_then(|id| id.parse().ok()).unwrap_or_default()
    }

    fn is_read(&self) -> bool {
        self.method == "GET"
    }
}

/// Clones are the same wire.
#[derive(Clone)]
pub(crate) struct Wire(Arc<Shared>);

struct Shared {
    router: Router,
    turnstile: Turnstile,
    dice: Dice,
    clock: Clock,
    /// How long a signature is valid.
    window: TimeDelta,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    fault_chance: f64,
    /// Requests whose sender waits for an answer.
    in_the_air: Vec<Sent>,
    /// Requests whose sender no longer waits, or has died.
    late: Vec<Sent>,
    met: BTreeMap<Fate, u32>,
    lag: Lag,
    /// Which actor has signed a write for which workflow since the last call of `take_signed`.
    signed: Vec<(usize, i64)>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let wire = self.clone();
        let sent = Sent {
            actor: wire.0.turnstile.moving(),
            signed_at: wire.0.clock.now(),
            method: request.method().to_owned(),
            uri: request.uri().to_owned(),
            body: request.body().bytes().unwrap_or_default().to_vec(),
        };
        if sent.is_read() {
            wire.state().lag.keep(&sent.uri);
        } else {
            let signed = (sent.actor, sent.workflow());
            wire.state().signed.push(signed);
        }
        wire.state().in_the_air.push(sent.clone());
        let waiting = wire.0.turnstile.wait("P7");
        HttpConnectorFuture::new(async move {
            waiting.await;
            wire.land(&sent);
            wire.meet(sent).await
        })
    }
}

impl Wire {
    pub(crate) fn new(router: Router, turnstile: Turnstile, dice: Dice, clock: Clock, window: TimeDelta) -> Wire {
        Wire(Arc::new(Shared { router, turnstile, dice, clock, window, state: Mutex::default() }))
    }

    /// A client like the publisher's own, which uses this wire and has no timeouts.
    pub(crate) async fn client(&self) -> aws_sdk_scheduler::Client {
        let wire = SharedHttpConnector::new(self.clone());
        let config = publisher::scheduler_client(Some("http://wire")).await.config().to_builder();
        let no_timeouts = aws_sdk_scheduler::config::timeout::TimeoutConfig::disabled();
        watch_secret(SIGNING_KEY);
        let config = config.credentials_provider(Credentials::new("AKIDTORTURE", SIGNING_KEY, None, None, "torture"));
        let config = config.http_client(http_client_fn(move |_, _| wire.clone())).timeout_config(no_timeouts);
        aws_sdk_scheduler::Client::from_conf(config.build())
    }

    pub(crate) fn fault_chance(&self, chance: f64) {
        self.state().fault_chance = chance;
    }

    /// Which actor has signed a write for which workflow since the last call.
    pub(crate) fn take_signed(&self) -> Vec<(usize, i64)> {
        std::mem::take(&mut self.state().signed)
    }

    /// How often each fate was drawn.
    pub(crate) fn met(&self) -> BTreeMap<Fate, u32> {
        self.state().met.clone()
    }

    /// The number of late requests that may still arrive.
    pub(crate) fn late(&self) -> usize {
        self.state().late.len()
    }

    /// When the last of them expires.
    pub(crate) fn last_death(&self) -> Option<DateTime<Utc>> {
        self.state().late.iter().map(|sent| sent.signed_at + self.0.window).max()
    }

    /// A dead actor's request arrives now, later or never.
    pub(crate) async fn orphan(&self, actor: usize) {
        let theirs: Vec<Sent> = self.state().in_the_air.extract_if(.., |sent| sent.actor == actor).collect();
        for sent in theirs {
            match self.0.dice.below(3) {
                0 => drop(self.carry(&sent).await),
                1 => self.state().late.push(sent),
                _ => {}
            }
        }
    }

    /// A manual write without the publisher.
    pub(crate) async fn write_manually(&self, method: &str, uri: &str, body: &str) -> Option<u16> {
        self.keep_what_is_shown().await;
        self.ask(method, uri, body.as_bytes()).await.map(|(status, _)| status)
    }

    /// Delivers one late request; describes it.
    pub(crate) async fn arrive(&self) -> Option<String> {
        let sent = {
            let mut state = self.state();
            let nth = self.0.dice.below(state.late.len());
            if state.late.is_empty() { None } else { Some(state.late.swap_remove(nth)) }
        }?;
        let said = if self.is_dead(&sent) {
            "refused, its signature is dead".to_owned()
        } else {
            self.carry(&sent).await?.0.to_string()
        };
        Some(format!("{} {} of actor {}: {said}", sent.method, sent.uri, sent.actor))
    }

    fn land(&self, sent: &Sent) {
        let mut state = self.state();
        if let Some(place) =
            state.in_the_air.iter().position(|other| other.actor == sent.actor && other.uri == sent.uri)
        {
            state.in_the_air.swap_remove(place);
        }
    }

    fn is_dead(&self, sent: &Sent) -> bool {
        self.0.clock.now() - sent.signed_at > self.0.window
    }

    fn fate(&self, sent: &Sent) -> Fate {
        let drawn = if self.is_dead(sent) {
            Fate::Expired
        } else if self.0.dice.chance(self.state().fault_chance) {
            let any = [(2, Fate::Throttled), (2, Fate::ErrorBefore), (3, Fate::ErrorAfter), (3, Fate::TimeoutAfter)];
            let writes = [(4, Fate::Late), (3, Fate::Lost)];
            let of_method: &[(u32, Fate)] = match &*sent.method {
                "POST" => &[(3, Fate::AssumeRole), (3, Fate::MissingGroup)],
                "PUT" => &[(6, Fate::Conflict), (2, Fate::AssumeRole), (6, Fate::NotFound)],
                "DELETE" => &[(6, Fate::Conflict)],
                _ => &[(5, Fate::Stale)],
            };
            let writes: &[_] = if sent.is_read() { &[] } else { &writes };
            self.0.dice.weighted(&[&any, writes, of_method].concat()).unwrap_or(Fate::Through)
        } else {
            Fate::Through
        };
        *self.state().met.entry(drawn).or_default() += 1;
        drawn
    }

    async fn meet(&self, sent: Sent) -> Result<HttpResponse, ConnectorError> {
        let group = "Schedule group cronbox-test does not exist.";
        let role = "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.";
        match self.fate(&sent) {
            Fate::Through => self.carry(&sent).await.map(|(status, body)| answer(status, body)).ok_or_else(silence),
            Fate::Throttled => Ok(refusal(429, "ThrottlingException", "Rate exceeded")),
            Fate::ErrorBefore => Ok(refusal(500, "InternalServerException", "before")),
            Fate::ErrorAfter => {
                self.carry(&sent).await;
                Ok(refusal(500, "InternalServerException", "after"))
            }
            Fate::TimeoutAfter => {
                self.carry(&sent).await;
                Err(silence())
            }
            Fate::Late => {
                self.state().late.push(sent);
                Err(silence())
            }
            Fate::Lost => Err(silence()),
            Fate::Stale => {
                let shown = self.state().lag.shown(&sent.uri, self.0.clock.now());
                let shown = if shown.is_some() { shown } else { self.carry(&sent).await };
                shown.map(|(status, body)| answer(status, body)).ok_or_else(silence)
            }
            Fate::Conflict => Ok(refusal(409, "ConflictException", "The schedule is being changed.")),
            Fate::AssumeRole => Ok(refusal(400, "ValidationException", role)),
            Fate::MissingGroup => Ok(refusal(404, "ResourceNotFoundException", group)),
            Fate::NotFound => Ok(refusal(404, "ResourceNotFoundException", "Schedule does not exist.")),
            Fate::Expired => Ok(refusal(403, "InvalidSignatureException", "Signature expired")),
        }
    }

    /// Lets Scheduler execute the request.
    async fn carry(&self, sent: &Sent) -> Option<(u16, Vec<u8>)> {
        if !sent.is_read() {
            self.keep_what_is_shown().await;
        }
        self.ask(&sent.method, &sent.uri, &sent.body).await
    }

    async fn keep_what_is_shown(&self) {
        let kept = self.state().lag.kept();
        for uri in kept {
            if let Some(shown) = self.ask("GET", &uri, &[]).await {
                self.state().lag.note(uri, shown, self.0.clock.now());
            }
        }
    }

    async fn ask(&self, method: &str, uri: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let request = axum::http::Request::builder().method(method).uri(uri);
        let request = request.body(Body::from(body.to_vec())).ok()?;
        let response = self.0.router.clone().oneshot(request).await.ok()?;
        let status = response.status().as_u16();
        let typed = response.headers().get("x-amzn-errortype").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = to_bytes(response.into_body(), usize::MAX).await.ok()?;
        Some((status, typed.map_or_else(|| body.to_vec(), |typed| error_body(&typed, &body))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
