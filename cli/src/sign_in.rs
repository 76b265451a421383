//! How a person signs in, by the device flow of OIDC (RFC 8628): a person confirms a code in any browser, and this program gets a token.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use schedule::Clock;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::print::{one_line, print_error};
use crate::settings::{Access, ConfigFile, OidcProfile, check_scheme, config_path};

/// How long a provider may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds between two questions unless the provider says otherwise; also what `slow_down` adds.
const INTERVAL_SECS: u64 = 5;
/// What is asked for: who the person is, its groups, and a token to renew this one.
const SCOPE: &str = "openid profile email groups offline_access";
/// A token that ends so soon is renewed first.
const RENEWED_BEFORE_SECS: i64 = 30;
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// A provider and the client that this program is there.
#[derive(Clone, Debug)]
pub(crate) struct Provider {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
}

/// What a provider has granted.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    /// The token for the app.
    pub(crate) token: String,
    pub(crate) refresh_token: Option<String>,
    /// When the token ends.
    pub(crate) expires_on: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Discovered {
    device_authorization_endpoint: Option<String>,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct Authorization {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: String,
    id_token: Option<String>,
    refresh_token: Option<String>,
    expires_in: Option<i64>,
}

impl Provider {
    /// Asks a person to confirm a code, and waits for the token.
    ///
    /// # Errors
    /// Fails if the provider knows no device flow, or if the person refuses or takes too long.
    pub(crate) async fn sign_in(&self) -> anyhow::Result<Granted> {
        let http = http_client()?;
        let discovered = self.discover(&http).await?;
        let endpoint = discovered.device_authorization_endpoint.as_ref().with_context(|| {
            format!("{} knows no device flow: use a key, `cronbox login` without --issuer", self.issuer)
        })?;
        let form = [("client_id", self.client_id.as_str()), ("scope", SCOPE)];
        let answer = post_form(&http, endpoint, &form).await?.map_err(|error| refused(&error))?;
        let authorization: Authorization =
            serde_json::from_value(answer).context("the provider's answer has no code")?;
        let address = authorization.verification_uri_complete.as_ref().unwrap_or(&authorization.verification_uri);
        let (address, code) = (one_line(address), one_line(&authorization.user_code));
        print_error(&format!("open {address} and confirm the code {code}"));
        self.poll(&http, &discovered.token_endpoint, &authorization).await
    }

    async fn poll(&self, http: &reqwest::Client, endpoint: &str, asked: &Authorization) -> anyhow::Result<Granted> {
        let ends = Instant::now() + Duration::from_secs(asked.expires_in);
        let mut interval = asked.interval.unwrap_or(INTERVAL_SECS);
        let form = [("grant_type", DEVICE_GRANT), ("client_id", &self.client_id), ("device_code", &asked.device_code)];
        while Instant::now() < ends {
            tokio::time::sleep(Duration::from_secs(interval)).await;
            match post_form(http, endpoint, &form).await? {
                Ok(answer) => return granted(answer),
                Err(error) => match error["error"].as_str() {
                    Some("authorization_pending") => {}
                    Some("slow_down") => interval += INTERVAL_SECS,
                    Some("access_denied") => bail!("the person has refused"),
                    Some("expired_token") => break,
                    _ => return Err(refused(&error)),
                },
            }
        }
        bail!("the code has expired: run `cronbox login` again")
    }

    /// Renews a token.
    ///
    /// # Errors
    /// Fails if the provider does not answer, or does not accept the renewal any more.
    pub(crate) async fn renew(&self, refresh_token: &str) -> anyhow::Result<Granted> {
        let http = http_client()?;
        let discovered = self.discover(&http).await?;
        let form = [("grant_type", "refresh_token"), ("client_id", &self.client_id), ("refresh_token", refresh_token)];
        let answer = post_form(&http, &discovered.token_endpoint, &form).await?;
        let renewed = granted(answer.map_err(|error| refused(&error))?)?;
        Ok(Granted { refresh_token: renewed.refresh_token.or_else(|| Some(refresh_token.to_owned())), ..renewed })
    }

    async fn discover(&self, http: &reqwest::Client) -> anyhow::Result<Discovered> {
        check_scheme(&self.issuer, false).context("--issuer")?;
        let address = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let answer = http.get(&address).send().await.map_err(|error| anyhow!(error.without_url()))?;
        let found: Discovered = answer
            .error_for_status()
            .map_err(|error| anyhow!("{} does not describe itself: {}", self.issuer, error.without_url()))?
            .json()
            .await
            .map_err(|_| anyhow!("{} does not describe itself as OpenID Connect does", self.issuer))?;
        // A token must not be sent unencrypted over a network.
        check_scheme(&found.token_endpoint, false).context("the provider's token_endpoint")?;
        Ok(found)
    }
}

/// What a profile keeps of a grant.
pub(crate) fn keep_grant(provider: &Provider, granted: Granted) -> OidcProfile {
    OidcProfile {
        issuer: provider.issuer.clone(),
        client_id: provider.client_id.clone(),
        token: granted.token,
        expires_on: granted.expires_on,
        refresh_token: granted.refresh_token,
    }
}

/// Renews the token of a profile that ends soon, and writes it. Called before a command that needs it.
///
/// # Errors
/// Fails if the token has ended and the provider does not renew it.
pub(crate) async fn renew_token(access: &Access) -> anyhow::Result<()> {
    if !access.person()?.is_some_and(|(_, oidc)| ends_soon(&oidc)) {
        return Ok(());
    }
    let path = config_path()?;
    // A provider may accept a refresh token once, and end the sign-in if it comes again: so only one command sends it, and
    // those that waited for it read what it has written.
    let _lock = lock_renewal(&path)?;
    let Some((name, oidc)) = access.person()?.filter(|(_, oidc)| ends_soon(oidc)) else { return Ok(()) };
    let again = || format!("the sign-in of profile {name} has ended: run `cronbox login --profile {name}` again");
    let refresh_token = oidc.refresh_token.as_ref().with_context(again)?;
    let provider = Provider { issuer: oidc.issuer.clone(), client_id: oidc.client_id.clone() };
    let renewed = keep_grant(&provider, provider.renew(refresh_token).await.with_context(again)?);
    let mut file = ConfigFile::read(&path)?;
    if let Some(profile) = file.profiles.get_mut(&name) {
        profile.oidc = Some(renewed);
    }
    file.write(&path)
}

fn ends_soon(oidc: &OidcProfile) -> bool {
    oidc.expires_on <= Clock::System.now() + TimeDelta::seconds(RENEWED_BEFORE_SECS)
}

/// Waits for other commands that renew a token; the lock ends with the file.
fn lock_renewal(config: &Path) -> anyhow::Result<File> {
    let path = config.with_extension("lock");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = opened.with_context(|| format!("cannot create {}", path.display()))?;
    match file.lock() {
        // A file system without locks: another command may then have to sign in again.
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(file),
        locked => locked.map(|()| file).with_context(|| format!("cannot lock {}", path.display())),
    }
}

fn http_client() -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().timeout(PATIENCE).redirect(reqwest::redirect::Policy::none());
    client.no_proxy().build().context("cannot create the HTTP client")
}

/// Sends a form; the inner error is the provider's refusal.
async fn post_form(
    http: &reqwest::Client,
    address: &str,
    fields: &[(&str, &str)],
) -> anyhow::Result<Result<Value, Value>> {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    let request = http.post(address).header(reqwest::header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let answer = request.body(form.finish()).send().await;
    let answer = answer.map_err(|error| anyhow!("the provider does not answer: {}", error.without_url()))?;
    let is_good = answer.status().is_success();
    let body = answer.json().await.unwrap_or(Value::Null);
    Ok(if is_good { Ok(body) } else { Err(body) })
}

fn refused(error: &Value) -> anyhow::Error {
    let text = error["error_description"].as_str().or_else(|| error["error"].as_str()).unwrap_or("no reason");
    anyhow!("the provider refuses: {}", one_line(text))
}

/// The app verifies a signature, so it takes a JWT: the access token if it is one, else the ID token.
fn granted(answer: Value) -> anyhow::Result<Granted> {
    let tokens: Tokens = serde_json::from_value(answer).map_err(|_| anyhow!("the provider's answer has no token"))?;
    let is_jwt = |token: &str| token.split('.').count() == 3;
    let token = if is_jwt(&tokens.access_token) { Some(tokens.access_token) } else { tokens.id_token };
    let token = token.context("the provider grants no token that is a JWT: add the scope openid to the client")?;
    // An ID token may end before the access token, which `expires_in` is about.
    let by_answer = || Clock::System.now() + TimeDelta::seconds(tokens.expires_in.unwrap_or(300));
    let expires_on = end_of_jwt(&token).unwrap_or_else(by_answer);
    Ok(Granted { token, refresh_token: tokens.refresh_token, expires_on })
}

/// The claim `exp` of a JWT, which is not verified here: the app does that.
fn end_of_jwt(token: &str) -> Option<DateTime<Utc>> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    DateTime::from_timestamp(claims["exp"].as_i64()?, 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_token_for_the_app_is_a_jwt() {
        let id_token = format!("a.{}.c", URL_SAFE_NO_PAD.encode(r#"{"exp":1795766918}"#));
        let answer = json!({"access_token": "opaque", "id_token": id_token, "refresh_token": "r", "expires_in": 3600});
        let granted_id = granted(answer).unwrap();
        assert_eq!((granted_id.token, granted_id.expires_on.timestamp()), (id_token, 1_795_766_918));
        assert_eq!(granted(json!({"access_token": "x.y.z", "id_token": "a.b.c"})).unwrap().token, "x.y.z");
        assert!(granted(json!({"access_token": "opaque"})).is_err());
        assert!(granted(json!({})).is_err());
    }
}
