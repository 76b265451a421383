//! Steps 1 and 7 of 7: what a ciphertext is for. It is authenticated with the ciphertext, so it can be used for nothing else.

use std::collections::BTreeSet;

use serde_json::json;

/// What a ciphertext is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// A data key, encrypted with the key of this id.
    DataKey {
        /// The id of the key.
        wrapping_key: &'a str,
    },
    /// The secret that signs the actions of the team, now or until the end of an overlap.
    SigningSecret,
    /// The value of a secret that the team names.
    TeamSecret {
        /// The name of the secret.
        name: &'a str,
        /// The only origins that it is sent to; `None` = every one. Authenticated, so that a login of the database cannot
        /// send the secret elsewhere.
        origins: Option<&'a [String]>,
    },
    /// The URL of a channel for notifications.
    ChannelUrl,
    /// The value of a header.
    Header {
        /// The origin of the action's URL.
        origin: &'a str,
        /// The name of the header.
        name: &'a str,
    },
}

impl Purpose<'_> {
    /// Returns the associated data of the ciphertext. JSON, so that two different purposes have different texts.
    pub(super) fn associated_data(self, team: i64, version: i32) -> String {
        let purpose = match self {
            Self::DataKey { wrapping_key } => json!(["data_key", wrapping_key]),
            Self::SigningSecret => json!(["signing_secret"]),
            Self::TeamSecret { name, origins } => {
                let sorted = origins.map(|origins| origins.iter().collect::<BTreeSet<_>>());
                json!(["team_secret", name, sorted])
            }
            Self::ChannelUrl => json!(["channel_url"]),
            Self::Header { origin, name } => json!(["header", origin, name.to_ascii_lowercase()]),
        };
        json!(["cronbox", 1, team, version, purpose]).to_string()
    }
}
