//! Step 1 of 7: the provider with which people sign in, and its keys.
//!
//! The keys are cached for ten minutes; then the next token waits for a fetch, so that a key which the provider has removed
//! opens nothing. One fetch is in flight at a time, and none begins within 30 s after the last one began, however many
//! tokens name unknown keys. Only if the provider does not answer, its keys stay valid for a day; without keys nothing is
//! decided, and no caller is admitted.

mod code;
mod discovery;
mod fetch;

use std::sync::{Arc, PoisonError, RwLock};

use access::people::groups::Groups;
use access::people::jwks::KeySet;
use access::people::token::{Claims, Refusal, TokenRules, UnverifiedToken};
use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use egress::Client;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use url::Url;

use code::TokenAnswer;
pub use code::{ConsoleClient, Flow};
use discovery::Endpoints;

/// After this time keys are fetched again.
const FRESH_FOR: TimeDelta = TimeDelta::minutes(10);
/// For this time keys are used if the provider does not answer.
const USABLE_FOR: TimeDelta = TimeDelta::hours(24);
/// The least time between two fetches.
const FETCH_INTERVAL: TimeDelta = TimeDelta::seconds(30);

/// How many tokens may wait for the provider.
const MOST_WAITING: usize = 64;
/// How many sign-ins to the console may wait for the provider. They take no place of a token.
const MOST_SIGNING_IN: usize = 16;

/// What the operator says about the provider.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which tokens are for this app.
    pub rules: TokenRules,
    /// What groups permit.
    pub groups: Groups,
    /// Certificate authorities of the provider in PEM, in addition to the public ones.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether a provider on another machine may speak http.
    pub is_http_permitted: bool,
    /// The client of the console, if people sign in to it.
    pub client: Option<ConsoleClient>,
}

/// The provider, as this instance knows it; clones share its keys.
#[derive(Clone)]
pub struct IdentityProvider(Arc<Parts>);

struct Parts {
    settings: Settings,
    client: Client,
    known: RwLock<Known>,
    /// Locked while a fetch is in flight.
    fetching: Mutex<()>,
    waiting: Semaphore,
    signing_in: Semaphore,
    endpoints: Mutex<KnownEndpoints>,
}

/// Where people sign in to the console.
#[derive(Default)]
struct KnownEndpoints {
    /// And when that was read.
    read: Option<(Endpoints, DateTime<Utc>)>,
    /// When the provider did not say it.
    failed_on: Option<DateTime<Utc>>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Option<(Arc<KeySet>, DateTime<Utc>)>,
    tried_on: Option<DateTime<Utc>>,
    has_failed: bool,
}

/// The decision about a token.
#[derive(Debug)]
pub enum Verified {
    /// The provider signed it for this app.
    Token(Claims),
    /// It is not valid; the reason is for the log.
    Refused(Refusal),
    /// The keys of the provider are not known, so nothing is decided.
    Unavailable,
}

impl IdentityProvider {
    /// A provider whose keys are not known yet.
    ///
    /// # Errors
    /// Fails if a setting is not valid.
    pub fn new(settings: Settings) -> anyhow::Result<Self> {
        let Settings { rules, ca_pem, is_http_permitted, .. } = &settings;
        let client = fetch::new_client(ca_pem.as_deref()).context("CRONBOX_OIDC_CA_FILE")?;
        discovery::document_url(&rules.issuer, *is_http_permitted)
            .and_then(|url| fetch::check_address(&client, &url))
            .with_context(|| format!("CRONBOX_OIDC_ISSUER is {:?}", rules.issuer))?;
        let (waiting, signing_in) = (Semaphore::new(MOST_WAITING), Semaphore::new(MOST_SIGNING_IN));
        let (known, fetching, endpoints) = (RwLock::default(), Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Parts { settings, client, known, fetching, waiting, signing_in, endpoints })))
    }

    /// What groups permit.
    #[must_use]
    pub fn groups(&self) -> &Groups {
        &self.0.settings.groups
    }

    /// Verifies a token. If its key is not known, the keys of the provider are fetched.
    pub async fn verify_token(&self, token: &str, now: DateTime<Utc>) -> Verified {
        match UnverifiedToken::parse(token, &self.0.settings.rules, now) {
            Ok(token) => self.verify_signature(token, now).await,
            Err(refusal) => Verified::Refused(refusal),
        }
    }

    async fn verify_signature(&self, token: UnverifiedToken<'_>, now: DateTime<Utc>) -> Verified {
        let Some(keys) = self.find_keys(&token, now).await else { return Verified::Unavailable };
        match token.verify(&keys) {
            Ok(claims) => Verified::Token(claims),
            Err(refusal) => Verified::Refused(refusal),
        }
    }

    /// Returns the keys by which this token is decided; `None` if the provider did not say them.
    async fn find_keys(&self, token: &UnverifiedToken<'_>, now: DateTime<Utc>) -> Option<Arc<KeySet>> {
        let has_key = |keys: &KeySet| !token.may_need_other_keys(keys);
        if let Some((keys, fetched_on)) = self.known().usable_keys(now)
            && now - fetched_on < FRESH_FOR
            && has_key(&keys)
        {
            return Some(keys);
        }
        // A client may invent names of keys: those that wait for the provider are few, and take few places of the instance.
        // The others are decided as those that have waited in vain, if the provider did not answer the last time.
        let Ok(_waiting) = self.0.waiting.try_acquire() else {
            let known = self.known();
            return known.usable_keys(now).map(|(keys, _)| keys).filter(|keys| known.has_failed && has_key(keys));
        };
        // In a task of its own, so that a client that disconnects does not end the fetch for which others wait.
        tokio::spawn(self.clone().fetch_again(now)).await.ok();
        let known = self.known();
        let (keys, _) = known.usable_keys(now)?;
        // Without an answer, nothing distinguishes a new key of the provider from a forged one.
        (has_key(&keys) || !known.has_failed).then_some(keys)
    }

    async fn fetch_again(self, now: DateTime<Utc>) {
        let Parts { settings, client, fetching, .. } = &*self.0;
        let _one_at_a_time = fetching.lock().await;
        if !self.known().may_fetch(now) {
            return;
        }
        self.change_known(|known| known.tried_on = Some(now));
        let fetched = discovery::fetch_keys(client, &settings.rules.issuer, settings.is_http_permitted).await;
        if let Err(error) = &fetched {
            tracing::warn!(error = format!("{error:#}"), "keys of the identity provider not fetched");
        }
        self.change_known(|known| {
            known.has_failed = fetched.is_err();
            if let Ok(keys) = fetched {
                known.keys = Some((Arc::new(keys), now));
            }
        });
    }

    fn known(&self) -> Known {
        self.0.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_known(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.known.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl IdentityProvider {
    /// Whether people sign in to the console with it.
    #[must_use]
    pub fn has_client(&self) -> bool {
        self.0.settings.client.is_some()
    }

    /// Where the browser of a person is sent.
    ///
    /// # Errors
    /// Fails if the console has no client, or if the provider does not say where people sign in.
    pub async fn authorization_url(&self, redirect: &Url, flow: &Flow, now: DateTime<Utc>) -> anyhow::Result<Url> {
        let client = self.client()?;
        let _place = self.take_sign_in_place()?;
        Ok(client.authorization_url(self.endpoints(now).await?.authorization, redirect, flow))
    }

    /// Redeems the code of a flow, and verifies the id token.
    ///
    /// # Errors
    /// Fails if the provider refuses the code, or if the token is not one of this flow.
    pub async fn redeem_code(
        &self,
        redirect: &Url,
        code: &str,
        flow: &Flow,
        now: DateTime<Utc>,
    ) -> anyhow::Result<Claims> {
        let client = self.client()?;
        let _place = self.take_sign_in_place()?;
        let (form, endpoint) = (client.form(redirect, code, flow), self.endpoints(now).await?.token);
        let answer = fetch::post_form(&self.0.client, &endpoint, form, client.authorization()?).await;
        let answer: TokenAnswer =
            serde_json::from_slice(&answer.context("token_endpoint")?).context("token_endpoint")?;
        let id_token = answer.id_token.context("token_endpoint: the answer has no id_token")?;
        self.verify_id_token(client, &id_token, flow.nonce(), now).await
    }

    async fn verify_id_token(
        &self,
        client: &ConsoleClient,
        text: &str,
        nonce: &str,
        now: DateTime<Utc>,
    ) -> anyhow::Result<Claims> {
        let rules = TokenRules { audience: client.id.clone(), ..self.0.settings.rules.clone() };
        let refused =
            |refusal: access::people::token::Refusal| anyhow::anyhow!("id token refused: {}", refusal.as_str());
        let token = UnverifiedToken::parse(text, &rules, now).map_err(refused)?;
        ensure!(token.nonce() == Some(nonce), "id token refused: it is of another sign-in");
        match self.verify_signature(token, now).await {
            Verified::Token(claims) => Ok(claims),
            Verified::Refused(refusal) => Err(refused(refusal)),
            Verified::Unavailable => bail!("the keys of the provider are not known"),
        }
    }

    fn client(&self) -> anyhow::Result<&ConsoleClient> {
        self.0.settings.client.as_ref().context("CRONBOX_OIDC_CLIENT_ID is not set")
    }

    fn take_sign_in_place(&self) -> anyhow::Result<SemaphorePermit<'_>> {
        self.0.signing_in.try_acquire().context("too many sign-ins wait for the provider")
    }

    /// Where people sign in; the provider is asked every ten minutes at most while it answers, else every 30 s.
    async fn endpoints(&self, now: DateTime<Utc>) -> anyhow::Result<Endpoints> {
        let mut known = self.0.endpoints.lock().await;
        if let Some((endpoints, read_on)) = &known.read
            && now - *read_on < FRESH_FOR
        {
            return Ok(endpoints.clone());
        }
        ensure!(
            known.failed_on.is_none_or(|failed_on| now - failed_on >= FETCH_INTERVAL),
            "the provider did not say some seconds ago where people sign in"
        );
        let settings = &self.0.settings;
        match discovery::fetch_endpoints(&self.0.client, &settings.rules.issuer, settings.is_http_permitted).await {
            Ok(fetched) => {
                *known = KnownEndpoints { read: Some((fetched.clone(), now)), failed_on: None };
                Ok(fetched)
            }
            Err(error) => {
                known.failed_on = Some(now);
                Err(error)
            }
        }
    }
}

impl Known {
    fn may_fetch(&self, now: DateTime<Utc>) -> bool {
        self.tried_on.is_none_or(|tried_on| now - tried_on >= FETCH_INTERVAL)
    }

    fn usable_keys(&self, now: DateTime<Utc>) -> Option<(Arc<KeySet>, DateTime<Utc>)> {
        self.keys.clone().filter(|(_, fetched_on)| now - *fetched_on < USABLE_FOR)
    }
}
