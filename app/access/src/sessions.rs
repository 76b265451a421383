//! Step 1 of 7: the sessions of the console.
//!
//! A session is a key or a person that a browser need not send again. The browser has 256 random bits in a cookie, of
//! which the database has the SHA-256. A session has no rights of its own: each request reads its key, or what the groups
//! of its person permit, again.

use std::collections::HashSet;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use db::PgConnection;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::keyset::KeysetPage;

use crate::people::person::Person;
use crate::people::token::Claims;

/// How long a session lasts.
pub const LASTS: TimeDelta = TimeDelta::hours(12);
/// How many sessions of a key or of a person are open at once. A team may share a key. The gate reads all open sessions into memory while
/// an address has no try left, and a key can begin any number.
pub const MOST_OF_A_HOLDER: i64 = 100;
/// How many of its older sessions a sign-in ends at most. Only one that began before this limit existed finds more.
const ENDED_AT_ONCE: i64 = 100;
/// How long a link works.
pub const LINK_LASTS: TimeDelta = TimeDelta::minutes(10);
/// How many links of a key exist at once: a key that only reads can make any number.
pub const MOST_LINKS_OF_A_KEY: i64 = 20;
/// How many of its older links a new one removes at most. Only a key that had more before this limit existed has more.
const LINKS_REMOVED_AT_ONCE: i64 = 100;

/// The text of a cookie or of a link, which is stored nowhere.
#[derive(Clone)]
pub struct SessionText(String);

/// Who signs in.
#[derive(Clone, Copy, Debug)]
pub enum SignIn<'a> {
    /// A key.
    Key {
        /// Its id.
        id: Uuid,
        /// Its team.
        team_id: Option<i64>,
    },
    /// A person, as the provider has named it.
    Person(&'a Claims),
}

/// Whose session it is.
#[derive(Clone, Debug)]
pub enum Holder {
    /// A key, which may be revoked by now.
    Key(Uuid),
    /// A person, with the groups at sign-in.
    Person(Claims),
}

/// How the session of a cookie has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, after its time.
    Expired,
    /// By its holder, who has signed out, or signed in too often.
    Left,
    /// By another person, or it never was a session.
    Refused,
}

/// A session without its text.
#[derive(Clone, Debug)]
pub struct Session {
    /// The id.
    pub id: Uuid,
    /// Its key; `None` for a person.
    pub key_id: Option<Uuid>,
    /// The name of the key, or of the person.
    pub name: String,
    /// The address of the client that signed in.
    pub source_address: Option<IpAddr>,
    /// When it began.
    pub created_on: DateTime<Utc>,
    /// When it ends by itself.
    pub expires_on: DateTime<Utc>,
}

impl SessionText {
    fn random() -> Self {
        Self(URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
    }

    /// The text, for the cookie or the link.
    #[must_use]
    pub fn reveal_text(&self) -> &str {
        &self.0
    }
}

/// SHA-256 of a text, by which it is stored. The text has 256 random bits, so a fast hash suffices.
#[must_use]
pub fn digest_of(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Begins a session, with its entry in the audit log, and ends the oldest ones of a holder that has too many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn begin_session(tx: &mut PgConnection, who: SignIn<'_>, edit: &Edit) -> sqlx::Result<(Uuid, SessionText)> {
    let text = SessionText::random();
    let (id, digest) = (workflows::id::make_id(edit.now), digest_of(&text.0));
    let (key_id, team_id, claims) = match who {
        SignIn::Key { id, team_id } => (Some(id), team_id, None),
        SignIn::Person(claims) => (None, None, Some(claims)),
    };
    sqlx::query!(
        r#"
        -- begin a session of the console
        INSERT INTO console_sessions (id, digest, key_id, issuer, subject, email, username, groups, source_address,
                                      created_on, expires_on)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::inet, $10, $11)
        "#,
        id,
        digest.as_slice(),
        key_id,
        claims.map(|claims| claims.issuer.as_str()),
        claims.map(|claims| claims.subject.as_str()),
        claims.and_then(|claims| claims.email.as_deref()),
        claims.and_then(|claims| claims.username.as_deref()),
        claims.map_or(&[][..], |claims| claims.groups.as_slice()),
        edit.source_address.map(|address| address.to_string()),
        edit.now,
        edit.now + LASTS,
    )
    .execute(&mut *tx)
    .await?;
    let after = Some(json!({ "expires_on": edit.now + LASTS }));
    let entry = Entry { verb: "sign-in", subject: format!("session:{id}"), team_id, before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    for surplus in end_surplus(tx, id, who, edit).await? {
        record_end(tx, surplus, "sign-out", team_id, edit).await?;
    }
    Ok((id, text))
}

/// Ends the oldest sessions of a holder that has too many with the one that has begun; returns their ids.
async fn end_surplus(tx: &mut PgConnection, begun: Uuid, who: SignIn<'_>, edit: &Edit) -> sqlx::Result<Vec<Uuid>> {
    let (key_id, claims) = match who {
        SignIn::Key { id, .. } => (Some(id), None),
        SignIn::Person(claims) => (None, Some(claims)),
    };
    sqlx::query_scalar!(
        r#"
        -- end the oldest sessions of a holder: those that another sign-in ends now are left to it
        WITH surplus AS MATERIALIZED (
            SELECT id
              FROM console_sessions
             WHERE (key_id = $1 OR (issuer = $2 AND subject = $3)) AND id <> $4 AND ended_on IS NULL AND expires_on > $5
             ORDER BY created_on DESC, id DESC
            OFFSET $6 LIMIT $7
        ), locked AS MATERIALIZED (
            SELECT s.id
              FROM console_sessions s
             WHERE s.id IN (SELECT id FROM surplus) AND s.ended_on IS NULL
               FOR UPDATE SKIP LOCKED
        )
        UPDATE console_sessions s SET ended_on = $5, ended_by = $8
          FROM locked l
         WHERE s.id = l.id
        RETURNING s.id
        "#,
        key_id,
        claims.map(|claims| claims.issuer.as_str()),
        claims.map(|claims| claims.subject.as_str()),
        begun,
        edit.now,
        MOST_OF_A_HOLDER - 1,
        ENDED_AT_ONCE,
        edit.actor,
    )
    .fetch_all(tx)
    .await
}

/// Writes the end of a session to the audit log.
async fn record_end(
    tx: &mut PgConnection,
    id: Uuid,
    verb: &'static str,
    team_id: Option<i64>,
    edit: &Edit,
) -> sqlx::Result<()> {
    let after = Some(json!({ "ended_on": edit.now }));
    audit::record_entry(tx, edit, Entry { verb, subject: format!("session:{id}"), team_id, before: None, after }).await
}

/// Returns whose session a cookie names, and until when, if it has not ended.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_session(
    db: &mut PgConnection,
    digest: [u8; 32],
    now: DateTime<Utc>,
) -> sqlx::Result<Option<(Uuid, Holder, DateTime<Utc>)>> {
    let row = sqlx::query!(
        r#"
        -- find a session by its cookie
        SELECT id, key_id, issuer, subject, email, username, groups, expires_on
          FROM console_sessions
         WHERE digest = $1 AND ended_on IS NULL AND expires_on > $2
        "#,
        digest.as_slice(),
        now,
    )
    .fetch_optional(db)
    .await?;
    Ok(row.map(|row| {
        let person = |expires_on| Claims {
            issuer: row.issuer.unwrap_or_default(),
            subject: row.subject.unwrap_or_default(),
            email: row.email,
            username: row.username,
            groups: row.groups,
            expires_on,
        };
        let holder = row.key_id.map_or_else(|| Holder::Person(person(row.expires_on)), Holder::Key);
        (row.id, holder, row.expires_on)
    }))
}

/// Returns how the session has ended that a cookie names.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_end(db: &mut PgConnection, digest: [u8; 32]) -> sqlx::Result<End> {
    let row = sqlx::query!(
        r#"
        -- find who ended a session, by its cookie
        SELECT s.ended_by, s.issuer, s.subject, s.email, s.username, s.groups, s.expires_on, k.prefix AS "prefix?"
          FROM console_sessions s LEFT JOIN api_keys k ON k.id = s.key_id
         WHERE s.digest = $1
        "#,
        digest.as_slice(),
    )
    .fetch_optional(db)
    .await?;
    let Some(row) = row else { return Ok(End::Refused) };
    let Some(ended_by) = row.ended_by else { return Ok(End::Expired) };
    let holder = match row.prefix {
        Some(prefix) => format!("key:{prefix}"),
        None => {
            let claims = Claims {
                issuer: row.issuer.unwrap_or_default(),
                subject: row.subject.unwrap_or_default(),
                email: row.email,
                username: row.username,
                groups: row.groups,
                expires_on: row.expires_on,
            };
            Person::of_claims(&claims).actor
        }
    };
    Ok(if ended_by == holder { End::Left } else { End::Refused })
}

/// Returns the digests of all sessions that have not ended.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_open_digests(db: &mut PgConnection, now: DateTime<Utc>) -> sqlx::Result<HashSet<[u8; 32]>> {
    let digests = sqlx::query_scalar!(
        r#"
        -- list the digests of open sessions
        SELECT digest FROM console_sessions WHERE ended_on IS NULL AND expires_on > $1
        "#,
        now,
    )
    .fetch_all(db)
    .await?;
    Ok(digests.into_iter().filter_map(|digest| digest.try_into().ok()).collect())
}

/// Ends a session, with its entry in the audit log; `false` if it had ended.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn end_session(tx: &mut PgConnection, id: Uuid, verb: &'static str, edit: &Edit) -> sqlx::Result<bool> {
    let ended = sqlx::query_scalar!(
        r#"
        -- end a session of the console: a row comes back only if this statement ended it
        UPDATE console_sessions s SET ended_on = $2, ended_by = $3
         WHERE id = $1 AND ended_on IS NULL
        RETURNING (SELECT k.team_id FROM api_keys k WHERE k.id = s.key_id) AS "team_id"
        "#,
        id,
        edit.now,
        edit.actor,
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(team_id) = ended else { return Ok(false) };
    record_end(tx, id, verb, team_id, edit).await?;
    Ok(true)
}

/// Lists the sessions that have not ended, in the order of their ids.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn list_sessions(
    db: &mut PgConnection,
    now: DateTime<Utc>,
    after: Option<Uuid>,
    limit: i64,
) -> sqlx::Result<KeysetPage<Session, Uuid>> {
    let rows = sqlx::query!(
        r#"
        -- list the sessions of the console by key
        SELECT s.id, s.key_id, COALESCE(k.name, s.email, s.username, s.subject, '') AS "name!",
               host(s.source_address) AS "source_address", s.created_on, s.expires_on
          FROM console_sessions s LEFT JOIN api_keys k ON k.id = s.key_id
         WHERE s.id > $1 AND s.ended_on IS NULL AND s.expires_on > $2 AND k.revoked_on IS NULL
         ORDER BY s.id
         LIMIT $3
        "#,
        after.unwrap_or(Uuid::nil()),
        now,
        limit + 1,
    )
    .fetch_all(db)
    .await?;
    let sessions = rows.into_iter().map(|row| Session {
        id: row.id,
        key_id: row.key_id,
        name: row.name,
        source_address: row.source_address.and_then(|address| address.parse().ok()),
        created_on: row.created_on,
        expires_on: row.expires_on,
    });
    Ok(KeysetPage::of_rows(sessions.collect(), limit, |session: &Session| session.id))
}

/// Makes a link of a key, which signs in once, with its entry in the audit log, and removes the oldest ones of a key that has too
/// many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn make_link(
    tx: &mut PgConnection,
    key_id: Uuid,
    team_id: Option<i64>,
    edit: &Edit,
) -> sqlx::Result<SessionText> {
    let text = SessionText::random();
    let digest = digest_of(&text.0);
    remove_surplus_links(tx, key_id).await?;
    sqlx::query!(
        r#"
        -- make a link that signs in once
        INSERT INTO sign_in_links (digest, key_id, expires_on) VALUES ($1, $2, $3)
        "#,
        digest.as_slice(),
        key_id,
        edit.now + LINK_LASTS,
    )
    .execute(&mut *tx)
    .await?;
    let after = Some(json!({ "sign_in_link_until": edit.now + LINK_LASTS }));
    let entry = Entry { verb: "create", subject: format!("key:{key_id}"), team_id, before: None, after };
    audit::record_entry(tx, edit, entry).await?;
    Ok(text)
}

/// Removes the oldest links of a key that would have too many with the next one.
async fn remove_surplus_links(tx: &mut PgConnection, key_id: Uuid) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        -- remove the oldest links of a key: those that a browser takes now, or another new link removes, are left to it
        WITH surplus AS MATERIALIZED (
            SELECT digest
              FROM sign_in_links
             WHERE key_id = $1
             ORDER BY expires_on DESC
            OFFSET $2 LIMIT $3
        ), locked AS MATERIALIZED (
            SELECT l.digest
              FROM sign_in_links l
             WHERE l.digest IN (SELECT digest FROM surplus)
               FOR UPDATE SKIP LOCKED
        )
        DELETE FROM sign_in_links WHERE digest IN (SELECT digest FROM locked)
        "#,
        key_id,
        MOST_LINKS_OF_A_KEY - 1,
        LINKS_REMOVED_AT_ONCE,
    )
    .execute(tx)
    .await
    .map(drop)
}

/// Returns the team of the key of a link; `None` also for the link of an admin, and for one that does not exist.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn find_team_of_link(db: &mut PgConnection, text: &str) -> sqlx::Result<Option<i64>> {
    let digest = digest_of(text);
    let found = sqlx::query_scalar!(
        r#"
        -- find the team of a link
        SELECT k.team_id FROM sign_in_links l JOIN api_keys k ON k.id = l.key_id WHERE l.digest = $1
        "#,
        digest.as_slice(),
    )
    .fetch_optional(db)
    .await?;
    Ok(found.flatten())
}

/// Takes a link, which then works no more, and returns its key; `None` if it was used before, or is too old.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn take_link(tx: &mut PgConnection, text: &str, now: DateTime<Utc>) -> sqlx::Result<Option<Uuid>> {
    let digest = digest_of(text);
    let taken = sqlx::query!(
        r#"
        -- take a link: of two browsers at once, one deletes it
        DELETE FROM sign_in_links WHERE digest = $1 RETURNING key_id, expires_on
        "#,
        digest.as_slice(),
    )
    .fetch_optional(tx)
    .await?;
    Ok(taken.filter(|link| link.expires_on > now).map(|link| link.key_id))
}

/// Removes sessions and links that ended before a time, at most `limit` of each, and says how many.
///
/// # Errors
/// Fails if the database cannot be reached or refuses the statement.
pub async fn remove_ended(db: &mut PgConnection, before: DateTime<Utc>, limit: i64) -> sqlx::Result<u64> {
    let removed = sqlx::query_scalar!(
        r#"
        -- remove sessions and links that ended long ago
        WITH sessions AS (
            DELETE FROM console_sessions
             WHERE id IN (SELECT id FROM console_sessions WHERE expires_on < $1 ORDER BY expires_on LIMIT $2)
            RETURNING 1),
        links AS (
            DELETE FROM sign_in_links
             WHERE digest IN (SELECT digest FROM sign_in_links WHERE expires_on < $1 ORDER BY expires_on LIMIT $2)
            RETURNING 1)
        SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM links) AS "removed!"
        "#,
        before,
        limit,
    )
    .fetch_one(db)
    .await?;
    Ok(removed.unsigned_abs())
}
