//! `cronbox key`: who may call the API.

use std::process::ExitCode;

use api_types::keys::{KeyView, NewKeyView};
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::client::Client;
use crate::common::Common;
use crate::named::value_name;
use crate::output::{Cell, Output, word};
use crate::print::print_error;
use crate::times::{Instant, Span, rfc3339};

/// What can be done with keys.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List keys, without their texts.
    Ls(List),
    /// Create a key; prints its text, once.
    Create(Create),
    /// Revoke a key: it opens nothing after five seconds.
    Revoke(Revoke),
    /// Replace the key that sends this request; prints the new one, once.
    Rotate(Rotate),
}

/// Which keys are listed.
#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    common: Common,
    /// Also keys that are revoked.
    #[arg(long)]
    revoked: bool,
}

/// A new key.
#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    common: Common,
    /// What it is for.
    #[arg(value_name = "NAME")]
    name: String,
    /// What it gives access to.
    #[arg(long)]
    kind: KindArgument,
    /// The team, by id, for a team key.
    #[arg(long, value_name = "ID", required_if_eq("kind", "team"))]
    team: Option<i64>,
    /// The role, for a team key.
    #[arg(long, required_if_eq("kind", "team"))]
    role: Option<RoleArgument>,
    /// What it permits of that, for example read; repeat it for further ones.
    #[arg(long, value_name = "SCOPE")]
    scope: Vec<String>,
    /// When it expires: RFC 3339, +90d.
    #[arg(long, value_name = "TIME")]
    expires: Option<Instant>,
    /// A network from which it is accepted, 10.1.0.0/16; repeat it for further ones.
    #[arg(long, value_name = "CIDR")]
    network: Vec<String>,
}

/// What a key gives access to.
#[derive(Clone, Copy, ValueEnum)]
enum KindArgument {
    /// All teams
    Admin,
    /// One team
    Team,
    /// Only `:invoke`, for runners
    Scheduler,
}

/// The role of a team key.
#[derive(Clone, Copy, ValueEnum)]
enum RoleArgument {
    /// Read
    Viewer,
    /// Read and write
    Editor,
}

/// A key that is revoked.
#[derive(Args)]
pub(crate) struct Revoke {
    #[command(flatten)]
    common: Common,
    /// Its id, as `cronbox key ls` shows it.
    #[arg(value_name = "KEY")]
    id: Uuid,
}

/// A replacement.
#[derive(Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    common: Common,
    /// For how long the old key is accepted, too: 24h.
    #[arg(long, value_name = "SPAN", default_value = "24h")]
    overlap: Span,
}

/// Runs the command.
pub(crate) async fn run_key(verb: &Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Ls(list) => {
            let client = Client::connect(&list.common.access).await?;
            let mut rows: Vec<KeyView> = client.read_list("/keys", &[], usize::MAX).await?;
            rows.retain(|key| list.revoked || key.revoked_on.is_none());
            list.common.output.print_rows(&rows)
        }
        Verb::Create(create) => create_key(create).await,
        Verb::Revoke(revoke) => {
            let client = Client::connect(&revoke.common.access).await?;
            let path = format!("/keys/{}:revoke", revoke.id);
            let key: KeyView = client.write(Method::POST, &path, &[], &Value::Null).await?;
            revoke.common.output.print_rows(&[key])
        }
        Verb::Rotate(rotate) => {
            let client = Client::connect(&rotate.common.access).await?;
            let body = json!({"overlap_secs": rotate.overlap.0.num_seconds()});
            print_new(rotate.common.output, &client.write(Method::POST, "/keys/self:rotate", &[], &body).await?)
        }
    }
}

async fn create_key(create: &Create) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&create.common.access).await?;
    let mut body = json!({"name": create.name, "kind": value_name(create.kind)});
    let named = [
        ("team_id", create.team.map(|team| json!(team))),
        ("role", create.role.map(|role| json!(value_name(role)))),
        ("scopes", (!create.scope.is_empty()).then(|| json!(create.scope))),
        ("expires_on", create.expires.map(|time| json!(rfc3339(time.0)))),
        ("allowed_cidrs", (!create.network.is_empty()).then(|| json!(create.network))),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    print_new(create.common.output, &client.write(Method::POST, "/keys", &[], &body).await?)
}

/// Prints a new key; exit 1 if its text was in an answer that was lost, and the repeat has answered without it.
fn print_new(output: Output, new: &NewKeyView) -> anyhow::Result<ExitCode> {
    let key = &new.shown;
    let printed = output.print_one(new, &key.id.to_string(), |view| {
        vec![
            ("key", Cell::from(new.key.as_deref().unwrap_or("(shown once, when it was created)"))),
            ("id", key.id.into()),
            ("name", Cell::from(&key.name)),
            ("kind", Cell::from(word(&key.kind))),
            ("team", Cell::optional(key.team_id)),
            ("role", Cell::from(word(&key.role))),
            ("expires", view.time(key.expires_on)),
        ]
    })?;
    if new.key.is_none() {
        print_error(&format!(
            "the key {} exists, but its text was in an answer that was lost: an admin revokes it, and creates another one",
            key.id
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(printed)
}
