//! Step 1 of 7: a request that creates something, and that its client may repeat with the same `Idempotency-Key`.

use access::repeats::{self, IDEMPOTENCY_KEY, Known, Repeatable};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use db::PgConnection;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;
use workflows::audit::Edit;

use super::error::Error;
use super::extract::{must_be_json, read_body};
use super::json::parse_body;
use crate::App;

/// In an answer that an earlier request has got before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Describes the header.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct RepeatParams {
    /// For 24 hours, a request of the same caller with the same key creates nothing again, and is answered with what the
    /// first one has created, without its secrets. 1 to 255 printable ASCII characters, for example a UUID. Another request
    /// with the same key is 422.
    #[serde(rename = "Idempotency-Key")]
    #[expect(dead_code, reason = "only describes what `Repeat` reads")]
    idempotency_key: Option<String>,
}

/// The required JSON body of a request that creates something. Only [`Creation::look_up`] gives it out, so that no check of it
/// comes before the lookup.
pub(crate) struct Creation<T> {
    body: T,
    repeat: Repeat,
}

/// The same of a request that may have no body.
pub(crate) struct OptionalCreation<T>(pub(crate) Creation<T>);

/// A request that creates something, after the lookup of its key.
pub(crate) struct Requested<T> {
    pub(crate) body: T,
    pub(crate) repeat: Repeat,
    /// What it has created before; then it must be answered with this, whatever the time and the network are by now.
    pub(crate) created: Option<Value>,
}

impl<T> Creation<T> {
    /// Finds what the request has created before. One that is in progress is found later, by [`Repeat::begin`].
    ///
    /// # Errors
    /// Returns 422 if another request has the same key, or the failure of the database.
    pub(crate) async fn look_up(self, app: &App, edit: &Edit) -> Result<Requested<T>, Error> {
        let Self { body, repeat } = self;
        let created = match &repeat.0 {
            Some(request) => {
                let mut connection = app.pools.edits.acquire().await?;
                answer_of(repeats::find_request(&mut connection, request, edit).await?)?
            }
            None => None,
        };
        Ok(Requested { body, repeat, created })
    }
}

/// The request by which a client may repeat it; `None` = it may not.
#[derive(Default)]
pub(crate) struct Repeat(Option<Repeatable>);

impl Repeat {
    /// Begins the request in its transaction; returns what it has created before.
    ///
    /// # Errors
    /// Returns 422 if another request has the same key, or the failure of the database.
    pub(crate) async fn begin(&self, tx: &mut PgConnection, edit: &Edit) -> Result<Option<Value>, Error> {
        let Some(request) = &self.0 else { return Ok(None) };
        answer_of(repeats::begin_request(tx, request, edit).await?)
    }

    /// Stores what the request has created, in its transaction; without secrets.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub(crate) async fn store(
        &self,
        tx: &mut PgConnection,
        edit: &Edit,
        answer: &(impl Serialize + Sync),
    ) -> Result<(), Error> {
        let Some(request) = &self.0 else { return Ok(()) };
        let answer = serde_json::to_value(answer).map_err(anyhow::Error::from)?;
        Ok(repeats::store_answer(tx, request, edit, &answer).await?)
    }

    fn read(headers: &HeaderMap, path: &str, body: &[u8]) -> Result<Self, Error> {
        let key = headers.get(IDEMPOTENCY_KEY);
        Ok(Self(key.map(|key| Repeatable::parse(key.as_bytes(), path, body)).transpose()?))
    }
}

/// What the request has created before.
fn answer_of(known: Known) -> Result<Option<Value>, Error> {
    match known {
        Known::New => Ok(None),
        Known::Created(answer) => Ok(Some(answer)),
        Known::OtherRequest => Err(Error::Refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key_reused",
            "another request had this Idempotency-Key within 24 hours: use a new one for each request".to_owned(),
        )),
    }
}

/// Says in an answer that an earlier request has created this.
pub(crate) fn replayed() -> [(HeaderName, HeaderValue); 1] {
    [(REPLAYED, HeaderValue::from_static("true"))]
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Creation<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        must_be_json(request.headers())?;
        let (headers, path) = (request.headers().clone(), request.uri().path().to_owned());
        let body = read_body(request).await?;
        Ok(Self { body: parse_body(&body)?, repeat: Repeat::read(&headers, &path, &body)? })
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalCreation<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let (headers, path) = (request.headers().clone(), request.uri().path().to_owned());
        let body = read_body(request).await?;
        let repeat = Repeat::read(&headers, &path, &body)?;
        if body.is_empty() {
            return Ok(Self(Creation { body: T::default(), repeat }));
        }
        must_be_json(&headers)?;
        Ok(Self(Creation { body: parse_body(&body)?, repeat }))
    }
}
