//! `cronbox login`: keeps the address of an app and a key for it in a profile.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use api_types::me::MeView;
use clap::Args;

use crate::client::{Access, Client};
use crate::common::Common;
use crate::output::{Cell, Output, word};
use crate::print::print_text;
use crate::settings::{ConfigFile, Profile, config_path};
use crate::sign_in::{Provider, keep_grant};

/// What a profile keeps.
#[derive(Args)]
pub(crate) struct Login {
    #[command(flatten)]
    access: Access,
    /// Sign in at this identity provider, by its device flow, instead of by a key.
    #[arg(long, value_name = "URL", requires = "client_id")]
    issuer: Option<String>,
    /// The client that cronbox is at the provider; its tokens must have the audience that the app expects.
    #[arg(long, value_name = "ID", requires = "issuer")]
    client_id: Option<String>,
    /// Make it the profile that is used unless another one is named.
    #[arg(long)]
    default: bool,
}

/// Which profile goes.
#[derive(Args)]
pub(crate) struct Logout {
    /// The profile; the default one unless it is named.
    #[arg(long, env = "CRONBOX_PROFILE", value_name = "NAME")]
    profile: Option<String>,
}

/// The caller.
#[derive(Args)]
pub(crate) struct Me {
    #[command(flatten)]
    common: Common,
}

/// Reads a key from standard input, tries it, and writes the profile.
pub(crate) async fn log_in(login: &Login) -> anyhow::Result<ExitCode> {
    let path = config_path()?;
    let mut file = ConfigFile::read(&path)?;
    let name = login.access.profile_to_write(&file);
    let before = file.profiles.get(&name).map(|profile| profile.url.clone());
    let url = login.access.url.clone().filter(|url| !url.is_empty()).or(before);
    let url = url.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let profile = obtain(login, &url).await?;
    let settings = profile.settings();
    let me: MeView = Client::with_settings(&settings)?.read("/me", &[]).await?;
    file.profiles.insert(name.clone(), profile);
    if login.default || file.default_profile.is_none() {
        file.default_profile = Some(name.clone());
    }
    file.write(&path)?;
    print_text(&format!("logged in at {url} as {} ({}); profile {name} is in {}\n", me.name, me.actor, path.display()))
}

/// Obtains what the profile keeps: a key, or the token of a person.
async fn obtain(login: &Login, url: &str) -> anyhow::Result<Profile> {
    let (mut key, mut oidc) = (None, None);
    match (&login.issuer, &login.client_id) {
        (Some(issuer), Some(client_id)) => {
            ensure!(
                !login.access.has_typed_key(),
                "--issuer and --key cannot be used together: a profile has one of them"
            );
            let provider = Provider { issuer: issuer.clone(), client_id: client_id.clone() };
            oidc = Some(keep_grant(&provider, provider.sign_in().await?));
        }
        _ => key = Some(login.access.key_for(url).map_or_else(|| read_key(url), Ok)?),
    }
    Ok(Profile { url: url.to_owned(), key, oidc, allow_http: login.access.allow_http })
}

/// Reads one line without showing it on a terminal.
fn read_key(url: &str) -> anyhow::Result<String> {
    if !io::stdin().is_terminal() {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).context("cannot read standard input")?;
        return not_empty(line);
    }
    eprint!("Key for {url}: ");
    io::stderr().flush().ok();
    not_empty(rpassword::read_password().context("cannot read the key")?)
}

fn not_empty(line: String) -> anyhow::Result<String> {
    match line.trim() {
        "" => bail!("no key was sent: an admin creates one with `cronbox key create`"),
        key => Ok(key.to_owned()),
    }
}

/// Removes a profile, and its key from this machine. The key itself stays active.
pub(crate) fn log_out(logout: &Logout) -> anyhow::Result<ExitCode> {
    let path = config_path()?;
    let mut file = ConfigFile::read(&path)?;
    let name = logout.profile.clone().or_else(|| file.default_profile.clone()).unwrap_or_else(|| "default".to_owned());
    if file.profiles.remove(&name).is_none() {
        bail!("there is no profile {name}");
    }
    if file.default_profile.as_ref() == Some(&name) {
        file.default_profile = file.profiles.keys().next().cloned();
    }
    file.write(&path)?;
    print_text(&format!("profile {name} is removed; its key is active until `cronbox key revoke`\n"))
}

/// Shows who sends the requests, and what is permitted.
pub(crate) async fn show_me(me: &Me) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&me.common.access).await?;
    print_me(me.common.output, &client.read("/me", &[]).await?)
}

fn print_me(output: Output, me: &MeView) -> anyhow::Result<ExitCode> {
    output.print_one(me, &me.actor, |view| {
        let teams: Vec<String> =
            me.teams.iter().map(|team| format!("{} ({})", team.team_id, word(&team.role))).collect();
        let scopes: Vec<String> = me.scopes.iter().map(word).collect();
        let kind = if me.is_person { "person".to_owned() } else { format!("{} key", word(&me.kind)) };
        vec![
            ("actor", Cell::from(&me.actor)),
            ("name", Cell::from(&me.name)),
            ("kind", Cell::from(kind)),
            ("teams", Cell::from(if teams.is_empty() { "all".to_owned() } else { teams.join(", ") })),
            ("may", Cell::from(scopes.join(", "))),
            ("until", view.time(me.expires_on)),
        ]
    })
}
