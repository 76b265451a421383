//! Step 7 of 7: posts a message to the URL of its channel, within the rules for requests that leave the service.

use std::time::Duration;

use chrono::{DateTime, Utc};
use db::{PgConnection, PgPool};
use egress::allowed::Tenant;
use egress::{Answer, Client, Departing, Departure, Outgoing};
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use url::Url;
use uuid::Uuid;
use workflows::secrets::{SecretError, Secrets};
use workflows::signing::{SigningSecret, sign_by_all};

use super::acceptance::Acceptance;
use super::refusal::NotAccepted;
use crate::channel::Channel;

/// How long a request may take, from the lookup of the name to what is read of the answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How many bytes of a refusal are read; no known one is longer.
const REFUSAL_LIMIT: usize = 64;
/// The refusals of an incoming webhook of Slack. No other text of a receiver is stored or logged, because it may repeat the
/// URL, which is a secret, in any encoding.
const KNOWN_REFUSALS: [&str; 16] = [
    "action_prohibited",
    "channel_is_archived",
    "channel_not_found",
    "invalid_blocks",
    "invalid_payload",
    "invalid_token",
    "no_active_hooks",
    "no_service",
    "no_service_id",
    "no_team",
    "no_text",
    "posting_to_general_channel_denied",
    "rate_limited",
    "team_disabled",
    "too_many_attachments",
    "user_not_found",
];

/// Posts messages.
#[derive(Clone)]
pub(super) struct Poster {
    pub(super) pool: PgPool,
    pub(super) client: Client,
    pub(super) secrets: Secrets,
}

/// What the requests of a team need.
struct Team {
    signing_secret: SigningSecret,
    signs_by_receiver: bool,
    previous_signing_secret: Option<SigningSecret>,
    previous_signing_until: Option<DateTime<Utc>>,
    previous_signs_by_receiver: bool,
    allowed_hosts: Vec<String>,
}

impl Poster {
    /// Posts a document; with an id it is signed as Standard Webhooks defines.
    pub(super) async fn post(
        &self,
        channel: &Channel,
        document: &Value,
        id: Option<Uuid>,
        now: DateTime<Utc>,
    ) -> Result<Result<Acceptance, NotAccepted>, SecretError> {
        let team = find_team(&mut *self.pool.acquire().await?, channel.team_id).await?;
        let stored = channel.url.as_deref().unwrap_or_default();
        let url = self.secrets.open_channel_url(&self.pool, channel.team_id, stored).await?;
        let (Some(team), Ok(url)) = (team, url.parse::<Url>()) else {
            return Ok(Err(NotAccepted::permanent("the channel has no valid URL")));
        };
        let body = document.to_string();
        let headers = match id {
            Some(id) => self.sign(channel.team_id, &team, &url, id, now, &body).await?,
            None => Some(HeaderMap::new()),
        };
        let Some(mut headers) = headers else {
            return Ok(Err(NotAccepted::permanent("the team's signing secret must be whsec_ followed by base64")));
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let tenant = Tenant { team_id: Some(channel.team_id), hosts: &team.allowed_hosts };
        let body = Departing::new(body, &Departure::default());
        let (method, url) = (Method::POST, &url);
        let sending = self.client.send(Outgoing { tenant, method, url, may_use_http: false, headers, body });
        let deadline = Instant::now() + REQUEST_LIMIT;
        Ok(match timeout_at(deadline, sending).await {
            Err(_) => Err(NotAccepted::transient(format!("no answer within {} s", REQUEST_LIMIT.as_secs()))),
            Ok(Err(error)) => {
                Err(NotAccepted { is_final: error.is_final(), ..NotAccepted::transient(error.to_string()) })
            }
            Ok(Ok(answer)) => evaluate_answer(answer, deadline).await,
        })
    }

    /// `None`: a secret is not valid.
    async fn sign(
        &self,
        team_id: i64,
        team: &Team,
        url: &Url,
        id: Uuid,
        now: DateTime<Utc>,
        body: &str,
    ) -> Result<Option<HeaderMap>, SecretError> {
        let overlaps = team.previous_signing_until.is_some_and(|end| now < end);
        let previous = team.previous_signing_secret.as_ref().filter(|_| overlaps);
        let stored = [
            Some((&team.signing_secret, team.signs_by_receiver)),
            previous.map(|secret| (secret, team.previous_signs_by_receiver)),
        ];
        let mut secrets = Vec::new();
        for (stored, is_derived) in stored.into_iter().flatten() {
            let secret = self.secrets.open_signing_secret(&self.pool, team_id, stored).await?;
            let origin = url.origin().ascii_serialization();
            let derived = is_derived.then(|| secret.derive_for_receiver(&origin)).flatten();
            secrets.push(derived.unwrap_or(secret));
        }
        let (id, timestamp) = (id.to_string(), now.timestamp().to_string());
        let signature = sign_by_all(&secrets, &[id.as_bytes(), timestamp.as_bytes(), body.as_bytes()]);
        let values = signature
            .map(|signature| [("webhook-id", id), ("webhook-timestamp", timestamp), ("webhook-signature", signature)]);
        Ok(values.and_then(|values| {
            let header = |(name, value): (&'static str, String)| {
                Some((HeaderName::from_static(name), HeaderValue::try_from(value).ok()?))
            };
            values.into_iter().map(header).collect()
        }))
    }
}

async fn evaluate_answer(answer: Answer, deadline: Instant) -> Result<Acceptance, NotAccepted> {
    let status = answer.status();
    if status.is_success() {
        return Ok(Acceptance::Complete);
    }
    let retry_after_secs = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let reading = timeout_at(deadline, answer.read_beginning(REFUSAL_LIMIT));
    let body = reading.await.ok().and_then(Result::ok).unwrap_or_default();
    let known = KNOWN_REFUSALS.iter().find(|known| known.as_bytes() == body.trim_ascii());
    // Slack answers 404 and 410 for a webhook that was removed; others may be reachable again after a deployment.
    let is_final = matches!(status, StatusCode::GONE);
    let error = match known {
        Some(known) => format!("the receiver answered {status}: {known}"),
        None => format!("the receiver answered {status}"),
    };
    Err(NotAccepted { error, is_final, retry_after_secs })
}

async fn find_team(db: &mut PgConnection, team_id: i64) -> sqlx::Result<Option<Team>> {
    sqlx::query_as!(
        Team,
        r#"
        -- what the requests of a team need
        SELECT signing_secret AS "signing_secret: SigningSecret", signs_by_receiver,
               previous_signing_secret AS "previous_signing_secret: SigningSecret", previous_signing_until,
               previous_signs_by_receiver, allowed_hosts
          FROM teams
         WHERE id = $1
        "#,
        team_id,
    )
    .fetch_optional(db)
    .await
}
