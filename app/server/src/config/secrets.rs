//! The configuration of the app: the keys that encrypt secrets.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use workflows::secrets::{Keyring, Secrets};

/// The keys that encrypt secrets in the database.
#[derive(Args, Clone)]
pub struct SecretsKeys {
    /// The keys that encrypt header values and signing secrets, `id:base64` of 32 bytes: the current one, then earlier ones.
    #[arg(long, env = "CRONBOX_SECRETS_KEY", hide_env_values = true, value_name = "KEYS")]
    pub secrets_key: Option<String>,
    /// A file with these keys, instead of them.
    #[arg(long, env = "CRONBOX_SECRETS_KEY_FILE", value_name = "FILE")]
    pub secrets_key_file: Option<PathBuf>,
    /// Whether new secrets are encrypted. False while an instance without the keys runs.
    #[arg(long, env = "CRONBOX_SECRETS_ENCRYPT", default_value_t = true, action = clap::ArgAction::Set)]
    pub secrets_encrypt: bool,
}

impl Default for SecretsKeys {
    fn default() -> Self {
        Self { secrets_key: None, secrets_key_file: None, secrets_encrypt: true }
    }
}

impl SecretsKeys {
    /// Reads the keys. Not by clap, whose message would contain them.
    ///
    /// # Errors
    /// Fails if the keys are not valid, or if the file cannot be read.
    pub fn read_keys(&self) -> anyhow::Result<Secrets> {
        let text = match (&self.secrets_key, &self.secrets_key_file) {
            (Some(_), Some(_)) => bail!("set CRONBOX_SECRETS_KEY or CRONBOX_SECRETS_KEY_FILE, not both"),
            (Some(text), None) => text.clone(),
            (None, Some(file)) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read CRONBOX_SECRETS_KEY_FILE {}", file.display()))?,
            (None, None) => return Ok(Secrets::default()),
        };
        Ok(Secrets::new(Keyring::parse(&text)?, self.secrets_encrypt))
    }
}
