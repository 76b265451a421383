//! The app's command line: `cronbox-app serve`, `cronbox-app migrate`, `cronbox-app teams create` and others.

mod command_line_user;
mod keys_command;
mod team_limits_command;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use access::key_text::make_key_text;
use access::keys::Kind;
use access::teams;
use anyhow::Context as _;
use app::config::{Config, SecretsKeys, database_options};
use app::schedules_file::load_schedules;
use app::{App, Listeners, Pools};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use db::{NewLogin, NewLogins, PgConnection, PgPool, Pooler, SchemaState, make_logins};
use executor::Shutdown;
use keys_command::{EndedKey, NamedKey, parse_word};
use ledger::acceptance::{self, Keep, Lost};
use mimalloc::MiMalloc;
use schedule::{Clock, Environment, ZoneSet};
use team_limits_command::NamedLimits;
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;
use workflows::audit::{self, Edit, Entry};
use workflows::database_time;
use workflows::definition::field;
use workflows::secrets::reencrypt::{DataKeys, reencrypt_secrets};
use workflows::zones::{self, MissingTimezones, Stored};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
#[command(name = "cronbox-app", bin_name = "cronbox-app", version)]
#[command(about = "cronbox's app: the source of truth for workflows on a cron")]
struct Cli {
    /// The form of the log: text, or one JSON object for each line.
    #[arg(long, global = true, env = "CRONBOX_LOG_FORMAT", default_value = "text", value_name = "text|json")]
    log_format: logging::Form,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the API and execute runs.
    Serve(Box<Config>),
    /// Apply the database migrations.
    Migrate {
        #[command(flatten)]
        database: Database,
        /// First make the groups `cronbox_owner`, `cronbox_app`, `cronbox_publisher` and `cronbox_notifier`; the first gets the schema.
        #[arg(long)]
        roles: bool,
        /// Succeed with a warning if the schema is newer than this program, and change only the logins, so that an older version starts after a rollback.
        #[arg(long)]
        accept_newer: bool,
        #[command(flatten)]
        logins: Logins,
    },
    /// Change the zone data that all instances of this environment use.
    #[command(subcommand)]
    Zones(Zones),
    /// Manage teams.
    #[command(subcommand)]
    Teams(Teams),
    /// Manage API keys.
    #[command(subcommand)]
    Keys(Keys),
    /// Manage the ledger.
    #[command(subcommand)]
    Ledger(Ledger),
    /// Manage the encryption of secrets.
    #[command(subcommand)]
    Secrets(SecretsCommand),
}

/// The logins that `migrate --roles` makes.
#[derive(Args)]
struct Logins {
    /// The name of the app's login. Each environment on a server needs its own.
    #[arg(long, env = "CRONBOX_SERVE_LOGIN", default_value = "cronbox_serve")]
    serve_login: String,
    /// Also make the login of the app, or give it this password; better in the environment.
    #[arg(long, env = "CRONBOX_SERVE_PASSWORD", hide_env_values = true, requires = "roles")]
    serve_password: Option<String>,
    /// The name of the publisher's login.
    #[arg(long, env = "CRONBOX_PUBLISH_LOGIN", default_value = "cronbox_publish")]
    publish_login: String,
    /// Also make the login of the publisher, or give it this password.
    #[arg(long, env = "CRONBOX_PUBLISH_PASSWORD", hide_env_values = true, requires = "roles")]
    publish_password: Option<String>,
    /// The name of the notifier's login.
    #[arg(long, env = "CRONBOX_NOTIFY_LOGIN", default_value = "cronbox_notify")]
    notify_login: String,
    /// Also make the login of the notifier, or give it this password.
    #[arg(long, env = "CRONBOX_NOTIFY_PASSWORD", hide_env_values = true, requires = "roles")]
    notify_password: Option<String>,
}

#[derive(Args)]
struct Database {
    /// Postgres DSN: `postgres://user:password@host:5432/database`
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// A PEM file of certificate authorities for the database's certificate, in addition to the public ones.
    #[arg(long, env = "CRONBOX_DB_CA_FILE", value_parser = db::ca_file)]
    db_ca_file: Option<PathBuf>,
    /// What `DATABASE_URL` leads to: Postgres itself (none), or a pooler that works by sessions or by transactions.
    #[arg(long, env = "CRONBOX_POOLER", default_value = "none", value_name = "none|session|transaction")]
    pooler: Pooler,
    /// A DSN that leads past the pooler, for migrations; without a user it has the login of `DATABASE_URL`.
    #[arg(long, env = "CRONBOX_DB_DIRECT_DSN", hide_env_values = true)]
    db_direct_dsn: Option<String>,
}

impl Database {
    /// One command needs one connection.
    async fn connect(&self) -> anyhow::Result<PgPool> {
        db::connect_pool(&self.options()).await
    }

    fn options(&self) -> db::Options {
        let with_ca = |dsn: &str| db::with_ca(dsn, self.db_ca_file.as_deref());
        db::Options {
            pooler: self.pooler,
            direct_dsn: self.db_direct_dsn.as_deref().map(with_ca),
            ..database_options(&with_ca(&self.database_url), 1)
        }
    }
}

#[derive(Subcommand)]
enum Teams {
    /// Create a team and print its id.
    Create {
        #[command(flatten)]
        database: Database,
        /// Unique name.
        #[arg(long)]
        name: String,
        #[command(flatten)]
        secrets: SecretsKeys,
    },
    /// List teams, with their ids.
    Ls {
        #[command(flatten)]
        database: Database,
    },
    /// Change the limits of a team that are named, and print all of them; null = the default of the operator.
    Limits {
        #[command(flatten)]
        database: Database,
        /// The team.
        #[arg(long)]
        team: i64,
        #[command(flatten)]
        limits: NamedLimits,
    },
}

#[derive(Subcommand)]
enum Zones {
    /// Activate the zone data of a file that `make tzdata` wrote.
    Update {
        #[command(flatten)]
        database: Database,
        /// Path of the file.
        file: PathBuf,
        /// Also activate data that lack timezones of workflows, whose due times then become unknown.
        #[arg(long)]
        drop_timezones: bool,
    },
}

#[derive(Subcommand)]
enum Ledger {
    /// Accept the ledger of a restored or cloned database: due times before `--until` without a decision become missed.
    Accept {
        #[command(flatten)]
        database: Database,
        /// The environment, as in the schedule names: `wf-<id>-<env>`; needed unless it is dev
        #[arg(long, env = "CRONBOX_ENV")]
        env: Option<Environment>,
        /// The end of the gap, RFC 3339: the moment at which the database was lost.
        #[arg(long, required_unless_present = "nothing_lost")]
        until: Option<DateTime<Utc>>,
        /// The database is complete, because its server was upgraded or its environment has another name: no time becomes missed, no run abandoned.
        #[arg(long, conflicts_with_all = ["until", "clone"])]
        nothing_lost: bool,
        /// The original still exists: this database gets its own identity and never deletes the original's schedules.
        #[arg(long)]
        clone: bool,
    },
}

#[derive(Subcommand)]
enum SecretsCommand {
    /// Encrypt with the current key what is stored as text or with an earlier key; instances may run meanwhile.
    ReEncrypt {
        /// Give each team a new data key, too, because a key was stolen
        #[arg(long)]
        new_data_keys: bool,
        #[command(flatten)]
        database: Database,
        #[command(flatten)]
        secrets: SecretsKeys,
    },
}

#[derive(Subcommand)]
enum Keys {
    /// Create a key and print it; it cannot be read again.
    Create {
        #[command(flatten)]
        database: Database,
        #[command(flatten)]
        named: NamedKey,
    },
    /// List keys, without their texts.
    Ls {
        #[command(flatten)]
        database: Database,
        /// Also keys that are revoked.
        #[arg(long)]
        revoked: bool,
    },
    /// Revoke keys, also the last one of an admin: they open nothing after five seconds.
    Revoke {
        #[command(flatten)]
        database: Database,
        /// The ids of the keys, as `keys ls` prints them. If one is unknown, none is revoked.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<Uuid>,
    },
    /// Create the key that is given, unless it exists. It may be repeated, by several processes at once.
    Ensure {
        #[command(flatten)]
        database: Database,
        /// The key, as `cronbox-app keys generate` prints it; better in the environment, because other users can read a command line.
        #[arg(long, env = "CRONBOX_KEY", hide_env_values = true)]
        key: String,
        /// Succeed with a warning if the key was revoked or has expired, so that what waits for this command starts. Deployments set
        /// the variable to true, because an older version refuses an option that it does not know.
        #[arg(long, env = "CRONBOX_ACCEPT_ENDED_KEYS")]
        accept_ended: bool,
        #[command(flatten)]
        named: NamedKey,
    },
    /// Print a new key, for `keys ensure`. It needs no database, and nothing accepts the key before.
    Generate {
        /// What it gives access to.
        #[arg(long, value_name = "admin|team|scheduler", value_parser = parse_word::<Kind>)]
        kind: Kind,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let (cli, old_variables) = match old_names::parse_arguments::<Cli>() {
        Ok(parsed) => parsed,
        Err(usage) if !usage.use_stderr() => usage.exit(), // --help, --version
        Err(wrong) => {
            eprintln!("cronbox-app: {}", in_a_sentence(&wrong));
            return ExitCode::FAILURE;
        }
    };
    logging::start_log(cli.log_format, "info,sqlx=warn");
    old_names::warn_of_variables(&old_variables);
    let done = match cli.command {
        Command::Serve(config) => serve(*config).await,
        Command::Migrate { database, roles, accept_newer, logins } => {
            migrate(&database, roles, accept_newer, logins).await
        }
        Command::Zones(Zones::Update { database, file, drop_timezones }) => {
            let missing = if drop_timezones { MissingTimezones::Accept } else { MissingTimezones::Refuse };
            update_zones(&database, &file, missing).await
        }
        Command::Teams(Teams::Create { database, name, secrets }) => create_team(&database, &name, &secrets).await,
        Command::Teams(Teams::Ls { database }) => list_teams(&database).await,
        Command::Keys(Keys::Ls { database, revoked }) => list_keys(&database, revoked).await,
        Command::Keys(Keys::Revoke { database, ids }) => revoke_keys(&database, &ids).await,
        Command::Teams(Teams::Limits { database, team, limits }) => set_team_limits(&database, team, &limits).await,
        Command::Keys(Keys::Create { database, named }) => create_key(&database, &named).await,
        Command::Keys(Keys::Ensure { database, key, accept_ended, named }) => {
            let ended = if accept_ended { EndedKey::Accepted } else { EndedKey::Refused };
            ensure_key(&database, &key, &named, ended).await
        }
        Command::Keys(Keys::Generate { kind }) => {
            println!("{}", make_key_text(kind));
            Ok(())
        }
        Command::Secrets(SecretsCommand::ReEncrypt { database, secrets, new_data_keys }) => {
            let data_keys = if new_data_keys { DataKeys::Renewed } else { DataKeys::Kept };
            reencrypt(&database, &secrets, data_keys).await
        }
        Command::Ledger(Ledger::Accept { database, env, until, nothing_lost, clone }) => {
            let keep = if clone { Keep::Nothing } else { Keep::Identity };
            // clap demands exactly one of the two.
            let lost = until.filter(|_| !nothing_lost).map_or(Lost::Nothing, Lost::Until);
            accept_ledger(&database, env, lost, keep).await
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-app: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How long the last spans may take to reach the collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

async fn serve(config: Config) -> anyhow::Result<()> {
    #[cfg(debug_assertions)]
    {
        config.fault.iter().cloned().for_each(db::failpoint::arm_fault);
        schedule::offset_machine_clock(config.clock_offset_secs);
    }
    traces::start_export("cronbox-app", Some(&config.env.to_string()));
    let shutdown = shutdown()?;
    let pools = Pools::connect(&config).await?;
    db::check_migrated(&pools.work).await?;
    db::load_zones(&mut *pools.work.acquire().await?).await.context("cannot read the zone data in force")?;
    let secrets = config.secrets.read_keys()?;
    secrets.check_keys(&mut *pools.work.acquire().await?).await?;
    let listeners = Listeners::bind(&config)?;
    let app = App::with_secrets(config, pools, Clock::System, secrets);
    // Before the file is applied: a start that fails must change no workflow.
    app.prepare_identity_provider()?;
    app.prepare_heartbeat()?;
    if let Some(file) = &app.config.schedules {
        app.database_time().await?;
        load_schedules(&app, file).await?;
    }
    if let Some(admin) = &listeners.admin {
        tracing::info!("metrics and docs are on http://{}", admin.local_addr()?);
    }
    tracing::info!(env = %app.config.env, "app listens on http://{}", listeners.api.local_addr()?);
    let served = app::serve_app(listeners, app, shutdown).await;
    traces::flush(FLUSH_LIMIT).await;
    served
}

async fn migrate(database: &Database, makes_roles: bool, accepts_newer: bool, logins: Logins) -> anyhow::Result<()> {
    let options = database.options();
    let state = if accepts_newer {
        app::migrate_database_unless_newer(&options, makes_roles).await?
    } else {
        app::migrate_database(&options, makes_roles).await?;
        SchemaState::Current
    };
    let logins = NewLogins {
        app: NewLogin { name: logins.serve_login, password: logins.serve_password },
        publisher: NewLogin { name: logins.publish_login, password: logins.publish_password },
        notifier: NewLogin { name: logins.notify_login, password: logins.notify_password },
    };
    // Also beside a newer schema: the secret store may have given them other passwords since the rollback.
    make_logins(&options, &logins).await?;
    if state == SchemaState::Newer {
        return Ok(());
    }
    let pool = database.connect().await?;
    let edit = command_line_edit(&mut *pool.acquire().await?).await?;
    zones::store_bundled(&pool, &edit).await.map(drop)
}

async fn update_zones(database: &Database, file: &Path, missing: MissingTimezones) -> anyhow::Result<()> {
    let archive = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let set = ZoneSet::from_archive(archive).with_context(|| format!("cannot use {}", file.display()))?;
    let pool = database.connect().await?;
    db::check_migrated(&pool).await?;
    let edit = command_line_edit(&mut *pool.acquire().await?).await?;
    match zones::store_zones(&pool, &set, missing, &edit).await? {
        Stored::Unchanged => println!("zone data {} are already in force", set.version()),
        Stored::Changed { in_force_from, workflows } => {
            let (version, from) = (set.version(), in_force_from.to_rfc3339_opts(SecondsFormat::Secs, true));
            println!("zone data {version} are in force from {from} on; {workflows} workflows have other next times");
        }
    }
    Ok(())
}

async fn create_team(database: &Database, name: &str, secrets: &SecretsKeys) -> anyhow::Result<()> {
    field::check_name("name", name).map_err(|error| anyhow::anyhow!("--{}", error.detail))?;
    let secrets = secrets.read_keys()?;
    let pool = database.connect().await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let (team, secret) = teams::create_team(&mut tx, name, &secrets, &edit).await.context("cannot create the team")?;
    tx.commit().await?;
    println!("{}", team.id);
    eprintln!("signing secret, shown once: {}", secret.reveal_text());
    Ok(())
}

async fn list_teams(database: &Database) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let mut connection = pool.acquire().await?;
    for team in teams::list_teams(&mut connection, None, None, i64::MAX - 1).await?.rows {
        println!("{}\t{}", team.id, team.name);
    }
    Ok(())
}

async fn list_keys(database: &Database, with_revoked: bool) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let mut connection = pool.acquire().await?;
    for line in keys_command::list_lines(&mut connection, with_revoked).await? {
        println!("{line}");
    }
    Ok(())
}

async fn revoke_keys(database: &Database, ids: &[Uuid]) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let mut sentences = Vec::with_capacity(ids.len());
    for id in ids {
        sentences.push(keys_command::revoke_key(&mut tx, *id, &edit).await?);
    }
    tx.commit().await?;
    println!("{}", sentences.join("\n"));
    Ok(())
}

async fn set_team_limits(database: &Database, team: i64, named: &NamedLimits) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let limits = team_limits_command::change_limits(&mut tx, team, named, &edit).await?;
    tx.commit().await?;
    println!("{}", serde_json::to_string(&limits)?);
    Ok(())
}

async fn create_key(database: &Database, named: &NamedKey) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let secret = keys_command::create_key(&mut tx, named, &edit).await?;
    tx.commit().await?;
    println!("{}", secret.reveal_text());
    Ok(())
}

async fn reencrypt(database: &Database, secrets: &SecretsKeys, data_keys: DataKeys) -> anyhow::Result<()> {
    let secrets = secrets.read_keys()?;
    anyhow::ensure!(secrets.encrypts(), "set CRONBOX_SECRETS_KEY or CRONBOX_SECRETS_KEY_FILE");
    let pool = database.connect().await?;
    db::check_migrated(&pool).await?;
    secrets.check_keys(&mut *pool.acquire().await?).await?;
    let now = database_time::cronbox_now(&mut *pool.acquire().await?).await?;
    let done = reencrypt_secrets(&pool, &secrets, data_keys, now).await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let after = Some(serde_json::to_value(done)?);
    let entry = Entry { verb: "re-encrypt", subject: "secrets".to_owned(), team_id: None, before: None, after };
    audit::record_entry(&mut tx, &edit, entry).await?;
    tx.commit().await?;
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

async fn ensure_key(database: &Database, key: &str, named: &NamedKey, ended: EndedKey) -> anyhow::Result<()> {
    let pool = database.connect().await?;
    db::check_migrated(&pool).await?;
    let mut tx = db::begin_transaction(&pool).await?;
    let edit = command_line_edit(&mut tx).await?;
    let sentence = keys_command::ensure_key(&mut tx, key, named, ended, &edit).await?;
    tx.commit().await?;
    println!("{sentence}");
    Ok(())
}

async fn accept_ledger(database: &Database, named: Option<Environment>, lost: Lost, keep: Keep) -> anyhow::Result<()> {
    let lost = match lost {
        Lost::Until(until) => {
            let checked = field::check_instant("until", until);
            Lost::Until(checked.map_err(|error| anyhow::anyhow!("--until: {}", error.detail))?)
        }
        Lost::Nothing => Lost::Nothing,
    };
    let pool = database.connect().await?;
    db::check_migrated(&pool).await?;
    let environment = acceptance::resolve_environment(&pool, named).await?;
    let edit = command_line_edit(&mut *pool.acquire().await?).await?;
    let keys = match lost {
        Lost::Until(until) => keys_command::list_lines_before(&mut *pool.acquire().await?, until, edit.now).await?,
        Lost::Nothing => Vec::new(),
    };
    let accepted = acceptance::accept_ledger(&pool, &environment, lost, keep, &edit).await?;
    println!("{}", serde_json::to_string(&accepted)?);
    if !keys.is_empty() {
        eprintln!(
            "keys of the backup that open this database; revoke those that were revoked or rotated after it, by \
             `cronbox-app keys revoke ID ..`:\n{}",
            keys.join("\n")
        );
    }
    eprintln!(
        "accepted: jobs and publisher continue; `cronbox drift check --wait` repairs the schedules in EventBridge"
    );
    Ok(())
}

/// Returns clap's message, which has several lines, as one sentence without the usage.
fn in_a_sentence(wrong: &clap::Error) -> String {
    let said = wrong.to_string();
    let lines: Vec<&str> = said.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let sentence = lines.join(" ");
    let sentence = sentence.trim_start_matches("error: ");
    match wrong.kind() {
        ErrorKind::MissingRequiredArgument => format!("{sentence}; each can be set in the environment too"),
        _ => sentence.to_owned(),
    }
}

async fn command_line_edit(tx: &mut PgConnection) -> sqlx::Result<Edit> {
    Ok(Edit::without_request(command_line_user::name_actor(), database_time::cronbox_now(tx).await?))
}

/// Resolves at Ctrl-C or SIGTERM. Signals count from the call on, not from the first await.
fn shutdown() -> std::io::Result<Shutdown> {
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut signalled = async move || {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    };
    let shutdown = Shutdown::default();
    let signal = shutdown.clone();
    tokio::spawn(async move {
        signalled().await;
        tracing::info!("shutdown started: the app waits for its runs to end; a second signal hands them over at once");
        signal.begin_drain();
        signalled().await;
        tracing::info!("second signal received: the app hands its runs over");
        signal.hand_over();
    });
    Ok(shutdown)
}
