//! Step 1 of 7: the API of the hosts that a team may call: its members read them, an admin sets them.

use access::hosts::{find_allowed_hosts, set_allowed_hosts};
use api_types::limits::AllowedHostsView;
use axum::extract::State;
use egress::hosts::{MOST_HOSTS, parse_host};
use serde::Deserialize;
use utoipa::ToSchema;
use workflows::definition::field::FieldError;

use crate::App;
use crate::api::request::auth::{Admin, Viewer};
use crate::api::request::error::{Error, Problem};
use crate::api::request::etag::{Versioned, digest_version};
use crate::api::request::extract::{Body, Id, IfMatch, Trace};

/// The hosts that the http actions of a team may call.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AllowedHosts {
    /// Names, `*.example.com` for all names below one, or addresses; at most 100. Empty = every public host.
    allowed_hosts: Vec<String>,
}

/// Read the hosts that a team may call.
#[utoipa::path(get, path = "/api/v1/teams/{id}/hosts", tag = "keys", params(("id" = i64, Path)),
    responses((status = 200, body = AllowedHostsView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn get_allowed_hosts(
    State(app): State<App>,
    Viewer(caller): Viewer,
    Id(id): Id<i64>,
) -> Result<Versioned<AllowedHostsView>, Error> {
    if caller.team_id.is_some_and(|own| own != id) {
        return Err(Error::not_found());
    }
    let mut connection = app.pools.reads.acquire().await?;
    let allowed_hosts = find_allowed_hosts(&mut connection, id).await?.ok_or_else(Error::not_found)?;
    with_etag(id, allowed_hosts)
}

/// Set the hosts that a team may call. Requests that are sent from now on have one of them; edits on every instance
/// within 5 seconds.
#[utoipa::path(put, path = "/api/v1/teams/{id}/hosts", tag = "keys",
    params(("id" = i64, Path), ("If-Match" = Option<String>, Header)),
    request_body = AllowedHosts,
    responses((status = 200, body = AllowedHostsView, headers(("ETag" = String))),
              (status = "4XX", body = Problem, content_type = "application/problem+json")))]
pub(crate) async fn put_allowed_hosts(
    State(app): State<App>,
    Admin(caller): Admin,
    Trace(trace): Trace,
    Id(id): Id<i64>,
    if_match: IfMatch,
    Body(hosts): Body<AllowedHosts>,
) -> Result<Versioned<AllowedHostsView>, Error> {
    let allowed_hosts = parse_hosts(&hosts.allowed_hosts)?;
    let edit = caller.edit_at(app.clock.now(), trace);
    let mut tx = db::begin_transaction(&app.pools.edits).await?;
    let replaced = set_allowed_hosts(&mut tx, id, &allowed_hosts, &edit).await?.ok_or_else(Error::not_found)?;
    // The edit has locked them. If it is refused, it is not committed.
    if_match.check_version("list of hosts", digest_version(&replaced)?)?;
    tx.commit().await?;
    app.host_lists.forget_team(id).await;
    with_etag(id, allowed_hosts)
}

fn with_etag(team_id: i64, allowed_hosts: Vec<String>) -> Result<Versioned<AllowedHostsView>, Error> {
    let version = digest_version(&allowed_hosts)?;
    Ok(Versioned { version, view: AllowedHostsView { team_id, allowed_hosts } })
}

fn parse_hosts(written: &[String]) -> Result<Vec<String>, FieldError> {
    let refuse = |detail: String| FieldError::invalid("allowed_hosts", detail);
    if written.len() > MOST_HOSTS {
        return Err(refuse(format!("allowed_hosts must have at most {MOST_HOSTS} hosts")));
    }
    let parsed = written.iter().enumerate().map(|(at, text)| {
        parse_host(text).ok_or_else(|| {
            let detail = "must be a name, *. and a name, or an address, without scheme and port";
            refuse(format!("allowed_hosts[{at}] {detail}"))
        })
    });
    let mut hosts = parsed.collect::<Result<Vec<_>, _>>()?;
    hosts.sort();
    hosts.dedup();
    Ok(hosts)
}
