//! The logins of app, publisher and notifier, for a deployment whose secret store has their passwords.

use anyhow::{Context, bail, ensure};
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use super::{APP_GROUP, Groups, NOTIFIER_GROUP, OWNER_GROUP, PUBLISHER_GROUP, is_made_meanwhile, limit_logins};
use crate::options::{Options, migration_options};

/// Less can be guessed from a verifier that was stolen.
const LEAST_LENGTH: usize = 16;
/// As many as Postgres itself makes.
const ITERATIONS: u32 = 4_096;
/// Tasks that start at the same time change the same logins.
const MOST_TRIES: u32 = 20;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(500);

/// A login to make: its name, and its password if it has to be made. No `Debug`, because that is a secret.
#[derive(Clone)]
pub struct NewLogin {
    /// The name in Postgres; logins belong to the server, not to a database
    pub name: String,
    /// The password
    pub password: Option<String>,
}

/// The logins of a deployment.
#[derive(Clone)]
pub struct NewLogins {
    /// Of the app
    pub app: NewLogin,
    /// Of the publisher
    pub publisher: NewLogin,
    /// Of the notifier
    pub notifier: NewLogin,
}

/// Makes the logins whose passwords are given, or gives them these passwords, and sets their timeouts. The groups exist.
///
/// # Errors
/// Fails if a name is not valid, if a password is too short or not ASCII, or if this login may not make roles.
pub async fn make_logins(options: &Options, logins: &NewLogins) -> anyhow::Result<()> {
    let NewLogins { app, publisher, notifier } = logins;
    let of_groups = [(app, APP_GROUP), (publisher, PUBLISHER_GROUP), (notifier, NOTIFIER_GROUP)];
    for (NewLogin { name, password }, group) in of_groups {
        let Some(password) = password else { continue };
        check_name(name).with_context(|| format!("the login {name:?} cannot be made"))?;
        check_password(password).with_context(|| format!("the password of {name} cannot be used"))?;
        make_login(options, name, group, password).await?;
    }
    Ok(())
}

/// A name that needs no quotes. Postgres cuts longer ones, reserves `pg_`, and a group is no login.
fn check_name(name: &str) -> anyhow::Result<()> {
    let is_word = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    ensure!(is_word && (1..=63).contains(&name.len()), "write 1 to 63 of a-z, 0-9 and _");
    let is_taken = name.starts_with("pg_") || [OWNER_GROUP, APP_GROUP, PUBLISHER_GROUP, NOTIFIER_GROUP].contains(&name);
    ensure!(!is_taken, "Postgres or cronbox uses this name");
    Ok(())
}

fn check_password(password: &str) -> anyhow::Result<()> {
    ensure!(password.len() >= LEAST_LENGTH, "it has fewer than {LEAST_LENGTH} characters");
    // Postgres would normalise others before it hashes them.
    ensure!(password.bytes().all(|byte| byte.is_ascii_graphic()), "it has other characters than printable ASCII");
    Ok(())
}

async fn make_login(options: &Options, login: &str, group: &str, password: &str) -> anyhow::Result<()> {
    let mut connection = migration_options(options)?.connect().await.context("cannot reach the database")?;
    for _ in 0..MOST_TRIES {
        match try_make_login(&mut connection, login, group, password).await? {
            Groups::Exist => return Ok(connection.close().await?),
            Groups::ChangeNow => tokio::time::sleep(PAUSE).await,
        }
    }
    bail!("the login {login} is changed by others all the time")
}

async fn try_make_login(
    connection: &mut PgConnection,
    login: &str,
    group: &str,
    password: &str,
) -> anyhow::Result<Groups> {
    let statement: String = sqlx::query_scalar(
        "-- make_login: the text of the statements
         SELECT format(CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = $1) THEN 'ALTER' ELSE 'CREATE' END
                       || ' ROLE %1$I LOGIN PASSWORD %2$L; GRANT %3$I TO %1$I', $1, $2, $3)",
    )
    .bind(login)
    .bind(scram_verifier(password)?)
    .bind(group)
    .fetch_one(&mut *connection)
    .await?;
    // The server has quoted names and verifier.
    match sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await {
        Ok(_) => limit_logins(connection).await,
        Err(error) if is_made_meanwhile(&error) => Ok(Groups::ChangeNow),
        Err(error) => Err(error).with_context(|| format!("cannot make the login {login}")),
    }
}

/// What Postgres stores for this password, so that the password itself is in no statement, and so in no log of the server:
/// RFC 5803, `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
fn scram_verifier(password: &str) -> anyhow::Result<String> {
    let mut salt = [0; 16];
    SystemRandom::new().fill(&mut salt).context("no random bytes")?;
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    let iterations = ITERATIONS.try_into()?;
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let stored = digest::digest(&digest::SHA256, hmac::sign(&key, b"Client Key").as_ref());
    let server = hmac::sign(&key, b"Server Key");
    let [salt, stored, server] = [&salt[..], stored.as_ref(), server.as_ref()].map(|bytes| STANDARD.encode(bytes));
    Ok(format!("SCRAM-SHA-256${ITERATIONS}:{salt}${stored}:{server}"))
}
