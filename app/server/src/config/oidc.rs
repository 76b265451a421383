//! The settings of the provider with which people sign in.

use std::path::{Path, PathBuf};

use access::people::groups::{GroupRule, Groups};
use access::people::token::TokenRules;
use anyhow::{Context as _, bail};
use clap::Args;
use serde::Deserialize;

use crate::identity_provider::{ConsoleClient, Settings};

/// The largest file of groups in bytes.
const LARGEST_FILE: u64 = 1024 * 1024;

/// The options of `cronbox-app serve` about people. Without an issuer, only keys open the API.
#[derive(Args, Clone, Debug, Default)]
pub struct Oidc {
    /// The provider with which people sign in, exactly as its tokens name it, for example `https://id.example.com`
    #[arg(long, env = "CRONBOX_OIDC_ISSUER", requires = "oidc_audience")]
    pub oidc_issuer: Option<String>,
    /// What tokens for this app name as `aud`.
    #[arg(long, env = "CRONBOX_OIDC_AUDIENCE", requires = "oidc_issuer")]
    pub oidc_audience: Option<String>,
    /// A YAML or JSON file that says which groups have which roles.
    #[arg(long, env = "CRONBOX_OIDC_GROUPS_FILE", value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_groups_file: Option<PathBuf>,
    /// The content of that file, instead of it: for a container without files of its own.
    #[arg(long, env = "CRONBOX_OIDC_GROUPS", value_name = "YAML", requires = "oidc_issuer")]
    pub oidc_groups: Option<String>,
    /// The claim with the groups: a name, or a JSON pointer, for example `/realm_access/roles`
    #[arg(long, env = "CRONBOX_OIDC_GROUPS_CLAIM", default_value = "groups")]
    pub oidc_groups_claim: String,
    /// A PEM file of certificate authorities for the provider's certificate, in addition to the public ones.
    #[arg(long, env = "CRONBOX_OIDC_CA_FILE", value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_ca_file: Option<PathBuf>,
    /// Whether a provider on another machine may be reached by http. Anyone who can change that traffic can then sign in.
    #[arg(long, env = "CRONBOX_OIDC_ALLOW_HTTP", default_value_t = false, action = clap::ArgAction::Set)]
    pub oidc_allow_http: bool,
    /// The client of the console at the provider: people sign in to the console with it. Needs `CRONBOX_PUBLIC_URL`
    #[arg(long, env = "CRONBOX_OIDC_CLIENT_ID", value_name = "ID", requires = "oidc_issuer")]
    pub oidc_client_id: Option<String>,
    /// The secret of this client, if the provider has given it one.
    #[arg(
        long,
        env = "CRONBOX_OIDC_CLIENT_SECRET",
        value_name = "SECRET",
        hide_env_values = true,
        requires = "oidc_client_id"
    )]
    pub oidc_client_secret: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsFile {
    groups: Vec<GroupRule>,
}

impl Oidc {
    /// Reads the files; `None` without an issuer.
    ///
    /// # Errors
    /// Fails if a setting is missing, or if a file cannot be read or is not valid.
    pub fn read_settings(&self) -> anyhow::Result<Option<Settings>> {
        let Some(issuer) = self.oidc_issuer.clone() else { return Ok(None) };
        let audience = self.oidc_audience.clone().filter(|audience| !audience.is_empty());
        let audience = audience.context("CRONBOX_OIDC_ISSUER requires CRONBOX_OIDC_AUDIENCE")?;
        let groups = self.groups()?;
        let ca_pem = self
            .oidc_ca_file
            .as_deref()
            .map(|file| std::fs::read(file).with_context(|| format!("CRONBOX_OIDC_CA_FILE {}", file.display())));
        Ok(Some(Settings {
            rules: TokenRules { issuer, audience, groups_claim: self.oidc_groups_claim.clone() },
            groups,
            ca_pem: ca_pem.transpose()?,
            is_http_permitted: self.oidc_allow_http,
            client: self.client(),
        }))
    }
}

impl Oidc {
    fn groups(&self) -> anyhow::Result<Groups> {
        let text = self.oidc_groups.as_deref().filter(|text| !text.is_empty());
        match (text, self.oidc_groups_file.as_deref()) {
            (Some(_), Some(_)) => bail!("set CRONBOX_OIDC_GROUPS or CRONBOX_OIDC_GROUPS_FILE, not both"),
            (Some(text), None) => parse_groups(text).context("CRONBOX_OIDC_GROUPS"),
            (None, Some(file)) => {
                read_groups(file).with_context(|| format!("CRONBOX_OIDC_GROUPS_FILE {}", file.display()))
            }
            (None, None) => bail!("CRONBOX_OIDC_ISSUER requires CRONBOX_OIDC_GROUPS or CRONBOX_OIDC_GROUPS_FILE"),
        }
    }

    fn client(&self) -> Option<ConsoleClient> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Some(ConsoleClient { id: set(&self.oidc_client_id)?, secret: set(&self.oidc_client_secret) })
    }
}

fn read_groups(file: &Path) -> anyhow::Result<Groups> {
    anyhow::ensure!(std::fs::metadata(file)?.len() <= LARGEST_FILE, "the file is larger than 1 MiB");
    parse_groups(&std::fs::read_to_string(file)?)
}

fn parse_groups(text: &str) -> anyhow::Result<Groups> {
    // Only `true` and `false` are booleans, because a group may be `no`.
    let options = serde_saphyr::options! { strict_booleans: true };
    let GroupsFile { groups } = serde_saphyr::from_str_with_options(text, options)?;
    Groups::of_rules(groups).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_groups_are_yaml_or_json() {
        let yaml = "groups:\n  - {group: no, team: pay, role: editor}\n  - group: ops\n    role: admin\n";
        let json = r#"{"groups": [{"group": "no", "team_id": 7, "role": "viewer"}]}"#;
        let of = |text: &str, group: &str| parse_groups(text).unwrap().grants_of(&[group.to_owned()]);
        assert_eq!(of(yaml, "no").teams.len(), 1);
        assert!(of(yaml, "ops").is_admin && !of(json, "ops").is_admin);
        for wrong in [
            "",
            "groups: 7",
            "groups: [{group: a, role: owner, team: b}]",
            "groups: [{group: a, role: viewer}]",
            "groups: [{group: a, role: admin, teams: b}]",
            "roles: []",
        ] {
            assert!(parse_groups(wrong).is_err(), "{wrong}");
        }
    }
}
