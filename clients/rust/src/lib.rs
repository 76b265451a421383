//! A client of cronbox's API, generated from docs/openapi-3.0.json by progenitor: each operation is a method.

progenitor::generate_api!(spec = "../../docs/openapi-3.0.json", interface = Builder);

/// The problem with which cronbox refused a request: the generator leaves `application/problem+json` as bytes. `None` if the
/// request failed otherwise.
pub async fn problem_of(error: progenitor_client::Error<ByteStream>) -> Option<types::Problem> {
    let progenitor_client::Error::ErrorResponse(answer) = error else { return None };
    let parts: Vec<_> = futures::TryStreamExt::try_collect(answer.into_inner_stream()).await.ok()?;
    serde_json::from_slice(&parts.concat()).ok()
}
