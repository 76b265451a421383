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
use super::extract::{must_be_json, parse_json, read_body};

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

/// A required JSON body, and whether the request may be repeated.
pub(crate) struct Creation<T>(pub(crate) T, pub(crate) Repeat);

/// An optional JSON body, and whether the request may be repeated.
pub(crate) struct OptionalCreation<T>(pub(crate) T, pub(crate) Repeat);

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
        match repeats::begin_request(tx, request, edit).await? {
            Known::New => Ok(None),
            Known::Created(answer) => Ok(Some(answer)),
            Known::OtherRequest => Err(Error::Refused(
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency_key_reused",
                "another request had this Idempotency-Key within 24 hours: use a new one for each request".to_owned(),
            )),
        }
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
        Ok(Self(parse_json(&body)?, Repeat::read(&headers, &path, &body)?))
    }
}

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalCreation<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let (headers, path) = (request.headers().clone(), request.uri().path().to_owned());
        let body = read_body(request).await?;
        let repeat = Repeat::read(&headers, &path, &body)?;
        if body.is_empty() {
            return Ok(Self(T::default(), repeat));
        }
        must_be_json(&headers)?;
        Ok(Self(parse_json(&body)?, repeat))
    }
}
