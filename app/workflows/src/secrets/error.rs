//! Steps 1 and 7 of 7: why a secret cannot be encrypted or decrypted.

/// Why a secret cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The data key of the team is encrypted with a key that this instance does not have.
    #[error(
        "the secrets of team {team} are encrypted with the key `{id}`, which this instance does not have: add it to CRONBOX_SECRETS_KEY, \
         after the current one; a restored database needs the key of its time"
    )]
    MissingKey {
        /// The team.
        team: i64,
        /// The id of the key.
        id: String,
    },
    /// The ciphertext does not belong to this place, or a key is another one than its id says.
    #[error(
        "a secret of team {0} cannot be decrypted: it was moved or changed, or a key of CRONBOX_SECRETS_KEY is wrong"
    )]
    Damaged(i64),
    /// An action refers to a secret that the team does not have.
    #[error("the secret `{0}` does not exist: create it with PUT /teams/{{id}}/secrets/{0}")]
    Unknown(String),
    /// An action refers to a secret that may not be sent to the origin of its URL.
    #[error("the secret `{name}` may not be sent to {origin}: an admin can allow the origin")]
    OtherOrigin {
        /// The name of the secret.
        name: String,
        /// The origin of the action's URL.
        origin: String,
    },
    /// The database cannot be reached or refuses a statement.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
