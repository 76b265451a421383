//! Step 1 of 7: the rotation of a team's signing secret, and the secrets of its receivers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use db::{PgConnection, PgPool};
use serde_json::json;
use workflows::audit::{self, Edit, Entry};
use workflows::secrets::{SecretError, Secrets};
use workflows::signing::SigningSecret;

/// A request for a new signing secret.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// How long the previous secret signs, too; zero = it ceases at once.
    pub overlap: TimeDelta,
    /// Whether each receiver has a secret of its own from now on; `None` = as before.
    pub by_receiver: Option<bool>,
}

/// A rotated signing secret.
pub struct Rotated {
    /// The new secret of the team.
    pub secret: SigningSecret,
    /// Whether each receiver has a secret of its own, derived from it.
    pub by_receiver: bool,
    /// Until when the previous secret signs, too.
    pub previous_until: Option<DateTime<Utc>>,
}

/// The secrets of one receiver.
pub struct ReceiverSecrets {
    /// The current one.
    pub current: SigningSecret,
    /// The previous one, during an overlap in which the team had secrets by receiver, too.
    pub previous: Option<SigningSecret>,
}

/// What signs the actions of a team.
struct Stored {
    signing_secret: SigningSecret,
    signs_by_receiver: bool,
    previous_signing_secret: Option<SigningSecret>,
    previous_signing_until: Option<DateTime<Utc>>,
    previous_signs_by_receiver: bool,
}

/// Replaces the signing secret of a team. The one before it signs, too, until the overlap ends; one before that ceases at
/// once. Returns `None` if the team does not exist.
///
/// # Errors
/// Fails if the database fails, or if this instance does not have the key of the team.
pub async fn rotate_signing_secret(
    tx: &mut PgConnection,
    team: i64,
    secrets: &Secrets,
    rotation: Rotation,
    edit: &Edit,
) -> Result<Option<Rotated>, SecretError> {
    let Some(before) = lock_signing(tx, team).await? else { return Ok(None) };
    let secret = SigningSecret(format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>())));
    let stored = secrets.seal_signing_secret(tx, team, &secret.0, edit.now).await?;
    let by_receiver = rotation.by_receiver.unwrap_or(before.signs_by_receiver);
    let previous_until = (rotation.overlap > TimeDelta::zero()).then(|| edit.now + rotation.overlap);
    write_rotation(tx, team, &stored, by_receiver, previous_until).await?;
    let entry = Entry {
        verb: "rotate-signing-secret",
        subject: format!("team:{team}"),
        before: Some(json!({"by_receiver": before.signs_by_receiver})),
        after: Some(json!({"by_receiver": by_receiver, "previous_until": previous_until})),
    };
    audit::record_entry(tx, edit, entry).await?;
    Ok(Some(Rotated { secret, by_receiver, previous_until }))
}

/// Returns the secrets of one receiver, by the origin of its URL; `None` if the team does not exist or has no secrets by
/// receiver.
///
/// # Errors
/// Fails if the database fails, or if a secret cannot be decrypted.
pub async fn find_receiver_secrets(
    pool: &PgPool,
    team: i64,
    secrets: &Secrets,
    origin: &str,
    now: DateTime<Utc>,
) -> Result<Option<ReceiverSecrets>, SecretError> {
    let found = find_signing(&mut *pool.acquire().await?, team).await?;
    let Some(stored) = found.filter(|stored| stored.signs_by_receiver) else { return Ok(None) };
    let derive = async |secret: &SigningSecret| {
        let team_secret = secrets.open_signing_secret(pool, team, secret).await?;
        team_secret.derive_for_receiver(origin).ok_or(SecretError::Damaged(team))
    };
    let is_overlapping =
        stored.previous_signs_by_receiver && stored.previous_signing_until.is_some_and(|end| now < end);
    let previous = match stored.previous_signing_secret.filter(|_| is_overlapping) {
        Some(previous) => Some(derive(&previous).await?),
        None => None,
    };
    Ok(Some(ReceiverSecrets { current: derive(&stored.signing_secret).await?, previous }))
}

async fn lock_signing(tx: &mut PgConnection, team: i64) -> sqlx::Result<Option<Stored>> {
    sqlx::query_as!(
        Stored,
        r#"
        -- lock what signs the actions of a team
        SELECT signing_secret AS "signing_secret: SigningSecret", signs_by_receiver,
               previous_signing_secret AS "previous_signing_secret: SigningSecret", previous_signing_until,
               previous_signs_by_receiver
          FROM teams WHERE id = $1 FOR NO KEY UPDATE
        "#,
        team,
    )
    .fetch_optional(tx)
    .await
}

async fn find_signing(db: &mut PgConnection, team: i64) -> sqlx::Result<Option<Stored>> {
    sqlx::query_as!(
        Stored,
        r#"
        -- find what signs the actions of a team
        SELECT signing_secret AS "signing_secret: SigningSecret", signs_by_receiver,
               previous_signing_secret AS "previous_signing_secret: SigningSecret", previous_signing_until,
               previous_signs_by_receiver
          FROM teams WHERE id = $1
        "#,
        team,
    )
    .fetch_optional(db)
    .await
}

async fn write_rotation(
    tx: &mut PgConnection,
    team: i64,
    stored: &str,
    by_receiver: bool,
    previous_until: Option<DateTime<Utc>>,
) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- replace the signing secret of a team that this transaction has locked; without an overlap the previous one is
        -- not kept
        UPDATE teams
           SET previous_signing_secret = CASE WHEN $4::timestamptz IS NOT NULL THEN signing_secret END,
               previous_signing_until = $4, previous_signs_by_receiver = signs_by_receiver,
               signing_secret = $2, signs_by_receiver = $3
         WHERE id = $1
        "#,
        team,
        stored,
        by_receiver,
        previous_until,
    )
    .execute(tx)
    .await
    .map(drop)
}
