//! The address of the app and the key for it: from the command line, the environment, or a profile of the user's file.
//!
//! `~/.config/cronbox/config.toml` (or `$XDG_CONFIG_HOME/cronbox/config.toml`, or `CRONBOX_CONFIG`) has the profiles. Only the user
//! may read it, because it has keys.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::{Deserialize, Serialize};

use url::Host;

use crate::config::{text_variable, variable};

/// The app of `make up`.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The profile that is used unless another one is named.
const DEFAULT_PROFILE: &str = "default";

/// The address of the app, and the key for it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Access {
    /// Address of the app; port 8080 of this machine unless a profile has another one.
    #[arg(help_heading = "Connection", long, env = "CRONBOX_URL", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Send the key to an address that begins with http:// and is another machine's, so that the network can read it.
    #[arg(help_heading = "Connection", long, env = "CRONBOX_ALLOW_HTTP")]
    pub(crate) allow_http: bool,
    /// A key; better in the environment or in a profile, because other users can read a command line.
    #[arg(help_heading = "Connection", long, env = "CRONBOX_KEY", value_name = "KEY", hide_env_values = true,
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Option<String>,
    /// The profile of `cronbox login`.
    #[arg(help_heading = "Connection", long, env = "CRONBOX_PROFILE", value_name = "NAME")]
    pub(crate) profile: Option<String>,
}

/// What a request needs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) url: String,
    pub(crate) allow_http: bool,
    /// `None`: neither the command line, nor the environment, nor a profile has a credential.
    pub(crate) credential: Option<Credential>,
}

/// What says who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A key of cronbox.
    Key(String),
    /// A token of the identity provider.
    Token(String),
}

/// The user's file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The profile that is used unless another one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default_profile: Option<String>,
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// A profile.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Profile {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// How a person signed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oidc: Option<OidcProfile>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) allow_http: bool,
}

/// A person's sign-in at an identity provider.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcProfile {
    pub(crate) issuer: String,
    pub(crate) client_id: String,
    pub(crate) token: String,
    /// When the token ends.
    pub(crate) expires_on: DateTime<Utc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refresh_token: Option<String>,
}

impl Access {
    /// The settings of a request. The command line is above the environment, and both are above the profile.
    ///
    /// A profile's key is sent only to the profile's address, and the environment's key only to the environment's address, if that
    /// has one: another address gets no key that was not named for it.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not valid, if the profile that is named does not exist, or if the key belongs to
    /// another address.
    pub(crate) fn resolve(&self) -> anyhow::Result<Settings> {
        let url = self.url.clone().filter(|url| !url.is_empty());
        let key = self.key.clone().map(Credential::Key);
        if let (Some(url), Some(_)) = (&url, &key) {
            if let Some(own) = self.other_address_of_key(url) {
                bail!(
                    "CRONBOX_KEY belongs to CRONBOX_URL, {own}, and is not sent to {url}: set CRONBOX_URL to this address, or name its key by --key"
                );
            }
            return Ok(Settings { url: url.clone(), allow_http: self.allow_http, credential: key });
        }
        let file = ConfigFile::read(&config_path()?)?;
        let profile = file.find(self.profile.as_deref())?;
        let is_its_address = url.as_ref().is_none_or(|url| profile.is_some_and(|profile| profile.url == *url));
        let of_profile = profile.filter(|_| is_its_address).and_then(Profile::credential);
        let profile_url = profile.map(|profile| profile.url.clone());
        Ok(Settings {
            url: url.or(profile_url).unwrap_or_else(|| DEFAULT_URL.to_owned()),
            allow_http: self.allow_http || is_its_address && profile.is_some_and(|profile| profile.allow_http),
            credential: key.or(of_profile),
        })
    }

    /// The key that `login` keeps for an address; `None`: there is none that belongs to it.
    pub(crate) fn key_for(&self, url: &str) -> Option<String> {
        self.key.clone().filter(|_| self.other_address_of_key(url).is_none())
    }

    /// Whether the command line has a key, which is not that of the environment.
    pub(crate) fn has_typed_key(&self) -> bool {
        self.key.is_some() && self.key != text_variable("CRONBOX_KEY")
    }

    /// The address of the environment, if it is not `url` and the key is that of the environment.
    fn other_address_of_key(&self, url: &str) -> Option<String> {
        let own = text_variable("CRONBOX_URL").filter(|own| !own.is_empty() && !self.has_typed_key());
        own.filter(|own| own.trim_end_matches('/') != url.trim_end_matches('/'))
    }

    /// The profile whose token a request sends, if it is one of a person.
    ///
    /// # Errors
    /// Fails as [`Self::resolve`].
    pub(crate) fn person(&self) -> anyhow::Result<Option<(String, OidcProfile)>> {
        if self.key.is_some() {
            return Ok(None);
        }
        let file = ConfigFile::read(&config_path()?)?;
        let name = self.profile.clone().or_else(|| file.default_profile.clone());
        let name = name.unwrap_or_else(|| DEFAULT_PROFILE.to_owned());
        Ok(file.profiles.get(&name).and_then(|profile| profile.oidc.clone()).map(|oidc| (name, oidc)))
    }

    /// The name of the profile that `login` writes.
    pub(crate) fn profile_to_write(&self, file: &ConfigFile) -> String {
        let named = self.profile.clone().or_else(|| file.default_profile.clone());
        named.unwrap_or_else(|| DEFAULT_PROFILE.to_owned())
    }
}

impl Profile {
    /// The settings of a request by this profile.
    pub(crate) fn settings(&self) -> Settings {
        Settings { url: self.url.clone(), allow_http: self.allow_http, credential: self.credential() }
    }

    fn credential(&self) -> Option<Credential> {
        let key = self.key.clone().map(Credential::Key);
        key.or_else(|| self.oidc.as_ref().map(|oidc| Credential::Token(oidc.token.clone())))
    }
}

impl ConfigFile {
    /// Reads the file; an absent one has no profile.
    ///
    /// # Errors
    /// Fails if another user may read it, or if it is not valid.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let mode = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("other users may read {}, which has keys: run `chmod 600 {0}`", path.display());
        }
        // The error of the parser would show the line, which may have a key.
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            anyhow!("{} is not valid: {}; `cronbox login` writes it", path.display(), error.message())
        })
    }

    fn find(&self, named: Option<&str>) -> anyhow::Result<Option<&Profile>> {
        let name = named.or(self.default_profile.as_deref()).unwrap_or(DEFAULT_PROFILE);
        match self.profiles.get(name) {
            None if named.is_some() => {
                bail!("there is no profile {name}: run `cronbox login --profile {name}`")
            }
            found => Ok(found),
        }
    }

    /// Writes the file in one step, for its user only.
    ///
    /// # Errors
    /// Fails if the folder or the file cannot be written.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().context("the file has no folder")?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let next = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&next)
            .with_context(|| format!("cannot create {}", next.display()))?;
        file.write_all(toml::to_string(self)?.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where the user's file is.
///
/// # Errors
/// Fails if neither `CRONBOX_CONFIG` nor `XDG_CONFIG_HOME` nor `HOME` is set.
pub(crate) fn config_path() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| variable(name).map(PathBuf::from);
    if let Some(file) = variable("CRONBOX_CONFIG") {
        return Ok(file);
    }
    let folder = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    Ok(folder.context("set HOME or CRONBOX_CONFIG")?.join("cronbox/config.toml"))
}

/// Refuses an address to which the key would be sent unencrypted over a network.
pub(crate) fn check_scheme(address: &str, allow_http: bool) -> anyhow::Result<()> {
    let Ok(url) = url::Url::parse(address) else { return Ok(()) };
    let is_this_machine = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() == "http" && !is_this_machine && !allow_http {
        return Err(anyhow!(
            "{address} must begin with https://, because the key is sent there; if the network is trusted, use --allow-http"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sent_in_clear_text_to_this_machine_only() {
        for address in
            ["https://cron.example.com", "http://localhost:8080", "http://127.0.0.1:8080", "http://[::1]:8080"]
        {
            assert!(check_scheme(address, false).is_ok(), "{address}");
        }
        for address in
            ["http://cron.example.com", "HTTP://10.0.0.1:8080", "http://localhost.example.com", "http://[fd00::1]"]
        {
            assert!(check_scheme(address, false).is_err(), "{address}");
            assert!(check_scheme(address, true).is_ok(), "{address}");
        }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("cronbox-settings-{}/config.toml", std::process::id()));
        let profile =
            Profile { url: "https://cron.example".to_owned(), key: Some("k".to_owned()), ..Profile::default() };
        let file = ConfigFile { default_profile: Some("a".to_owned()), profiles: [("a".to_owned(), profile)].into() };
        file.write(&path).unwrap();
        file.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let read = ConfigFile::read(&path).unwrap();
        assert_eq!(read.find(None).unwrap().unwrap().credential(), Some(Credential::Key("k".to_owned())));
        assert!(read.find(Some("b")).unwrap_err().to_string().contains("cronbox login --profile b"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(ConfigFile::read(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
