//! `cronbox-app keys create` and `keys ensure`: create a key with what is named.

use access::ensured_keys::{self, EnsureOutcome};
use access::keys::{self, Holder, Key, Kind, Role, Secret};
use access::restrictions::{Restrictions, parse_cidr};
use access::rights::Scope;
use anyhow::{Context as _, anyhow, bail};
use app::api::operations::keys::parse_holder;
use chrono::{DateTime, SecondsFormat, Utc};
use clap::Args;
use db::PgConnection;
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use uuid::Uuid;
use workflows::audit::Edit;
use workflows::definition::field;

/// The rights of a key, and what it is for.
#[derive(Args)]
pub(crate) struct NamedKey {
    /// What it gives access to.
    #[arg(long, value_name = "admin|team|scheduler", value_parser = parse_word::<Kind>)]
    kind: Kind,
    /// The team, for a team key.
    #[arg(long)]
    team: Option<i64>,
    /// The role, for a team key.
    #[arg(long, value_name = "viewer|editor", value_parser = parse_word::<Role>)]
    role: Option<Role>,
    /// What it is for.
    #[arg(long)]
    name: String,
    /// What it permits of what its kind and role permit, separated by commas: read, edit, auditor, operate, admin
    #[arg(long, value_delimiter = ',', value_parser = parse_word::<Scope>)]
    scopes: Option<Vec<Scope>>,
    /// When it expires, RFC 3339
    #[arg(long)]
    expires_on: Option<DateTime<Utc>>,
    /// The networks from which it is accepted, separated by commas, for example 10.1.0.0/16
    #[arg(long, value_delimiter = ',', value_parser = parse_network)]
    allowed_cidrs: Option<Vec<IpNet>>,
}

/// What `keys ensure` does with a key that was revoked or has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedKey {
    /// It fails.
    Refused,
    /// It warns, and creates nothing.
    Accepted,
}

impl NamedKey {
    fn parse(&self, now: DateTime<Utc>) -> anyhow::Result<(Holder, Restrictions)> {
        field::check_name("name", &self.name).map_err(|error| anyhow!("--{}", error.detail))?;
        let holder = parse_holder(self.kind, self.team, self.role).map_err(|error| anyhow!(error.detail))?;
        let restrictions = Restrictions {
            scopes: self.scopes.clone(),
            expires_on: self.expires_on,
            allowed_cidrs: self.allowed_cidrs.clone(),
        };
        restrictions.check(holder, now).map_err(|error| anyhow!(error.detail))?;
        Ok((holder, restrictions))
    }
}

/// Creates a key.
///
/// # Errors
/// Fails if an option is not valid, or if the database refuses the statement.
pub(crate) async fn create_key(tx: &mut PgConnection, named: &NamedKey, edit: &Edit) -> anyhow::Result<Secret> {
    let (holder, restrictions) = named.parse(edit.now)?;
    let created = keys::create_restricted_key(tx, holder, &named.name, &restrictions, edit).await;
    Ok(created.context("cannot create the key")?.1)
}

/// Creates the given key unless it exists, and returns a sentence about it without its secret.
///
/// # Errors
/// Fails if an option or the key is not valid, or if the database refuses the statement.
pub(crate) async fn ensure_key(
    tx: &mut PgConnection,
    key: &str,
    named: &NamedKey,
    ended: EndedKey,
    edit: &Edit,
) -> anyhow::Result<String> {
    let (holder, restrictions) = named.parse(edit.now)?;
    let ensured = ensured_keys::ensure_key(tx, key.trim(), holder, &named.name, &restrictions, edit).await;
    match ensured.context("cannot create the key")? {
        EnsureOutcome::Created(key) => Ok(format!("key {} created", key.prefix)),
        EnsureOutcome::Existed(key) => Ok(format!("key {} exists", key.prefix)),
        EnsureOutcome::Ended(key, why) if ended == EndedKey::Accepted => {
            tracing::warn!(key = %key.prefix, "ended key accepted: {why}");
            Ok(format!("key {} has ended", key.prefix))
        }
        EnsureOutcome::Ended(_, refusal) | EnsureOutcome::Refused(refusal) => {
            bail!("the key in CRONBOX_KEY cannot be used: {refusal}")
        }
    }
}

/// The keys, a line each: id, prefix, kind, team, name; a key that is revoked says so.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn list_lines(db: &mut PgConnection, with_revoked: bool) -> anyhow::Result<Vec<String>> {
    let found = keys::list_keys(db, None, i64::MAX - 1).await?.rows;
    let lines = found.iter().filter(|key| with_revoked || key.revoked_on.is_none()).map(|key| {
        let mark = if key.revoked_on.is_some() { "\trevoked" } else { "" };
        line_of(key) + mark
    });
    Ok(lines.collect())
}

/// The keys that were created before `until` and are accepted at `now`, a line each, with the last use. In a restored
/// database, these are the keys of the backup, also those that were revoked or rotated after it.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub(crate) async fn list_lines_before(
    db: &mut PgConnection,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> anyhow::Result<Vec<String>> {
    let found = keys::list_keys(db, None, i64::MAX - 1).await?.rows;
    let is_accepted = |key: &&Key| key.revoked_on.is_none() && !key.has_expired(now) && key.created_on <= until;
    let lines = found.iter().filter(is_accepted).map(|key| match key.last_used_on {
        Some(used) => format!("{}\tused {}", line_of(key), used.to_rfc3339_opts(SecondsFormat::Secs, true)),
        None => line_of(key) + "\tnever used",
    });
    Ok(lines.collect())
}

fn line_of(key: &Key) -> String {
    let kind = serde_json::to_value(key.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    let team = key.team_id.map(|team| format!("team {team}")).unwrap_or_default();
    format!("{}\t{}\t{}\t{team}\t{}", key.id, key.prefix, kind.unwrap_or_default(), key.name)
}

/// Revokes a key, and returns a sentence about it.
///
/// # Errors
/// Fails if there is no such key, or if the database refuses the statement.
pub(crate) async fn revoke_key(tx: &mut PgConnection, id: Uuid, edit: &Edit) -> anyhow::Result<String> {
    let key = keys::revoke_key(tx, id, edit).await?;
    let key = key.with_context(|| format!("there is no key {id}: `cronbox-app keys ls` lists them"))?;
    Ok(format!("key {} is revoked", key.prefix))
}

/// Parses an enum value of the API from the command line.
pub(crate) fn parse_word<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).map_err(|error| error.to_string())
}

fn parse_network(text: &str) -> Result<IpNet, String> {
    parse_cidr(text).map_err(|error| error.detail)
}
