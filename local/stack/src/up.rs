//! `cronbox-local up`: all parts on this machine, until Ctrl-C; a restart continues with the same data.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use logging::{Form, LogFile};
use stand_in::process::cannot_listen;
use stand_in::steps::{Steps, print_line};
use tokio::net::TcpListener;

use crate::config::{UpArgs, target_folder};
use crate::demo;
use crate::postgres::{Folder, state_folder};
use crate::stack::{
    Database, Ground, KeysFrom, Publishing, RUNNER_DLQ, SCHEDULE_DLQ, Stack, StackOptions, write_secret,
};

/// What is logged: everything of cronbox, and warnings of the database driver.
pub const LOG_FILTER: &str = "info,sqlx=warn";

/// The files of one stack that the shell must know.
struct Files {
    secrets_key: PathBuf,
    log: PathBuf,
}

/// Starts all parts, prints their addresses, and runs until `shutdown`.
///
/// # Errors
/// Returns one sentence that says what to do.
pub async fn run_all_parts(args: UpArgs, log_form: Form, shutdown: impl Future<Output = ()>) -> Result<()> {
    let target = target_folder();
    let app = listen(local(args.app_port), "--app-port")?;
    let scheduler = listen(local(args.scheduler_port), "--scheduler-port")?;
    let folder = match args.data {
        Some(data) => Folder::create_at(data)?,
        None => state_folder(&target)?,
    };
    let keys = folder.root().join("keys.json");
    let files = Files { secrets_key: folder.root().join("secrets.key"), log: folder.root().join("cronbox.log") };
    start_log(log_form, &files.log)?;
    let database = Database::open_kept(folder).await?;
    let ground = Ground { database, app, scheduler, keys: KeysFrom::File(keys) };
    let options = StackOptions {
        publishing: Publishing::Listening,
        mirrors_dead_letters: true,
        app: |config| config.jobs_enabled = true,
        ..StackOptions::default()
    };
    let mut stack = Stack::start_on(ground, options).await?;
    let env = write_env(&target, &stack, &files)?;
    print(&stack, &env).await?;
    // The printing starts after the addresses, so that a person reads these before the first steps.
    refill(&stack).await?;
    if args.demo {
        if let Err(error) = demo::fill_stack(&stack).await {
            stack.stop_parts().await?;
            return Err(error);
        }
        print_line("demo        three teams with 40 workflows and 90 days of history");
    }
    shutdown.await;
    print_line("stopping");
    stack.stop_parts().await
}

/// Starts the log: what is printed, and the file that `cronbox logs` reads.
fn start_log(form: Form, file: &Path) -> Result<()> {
    let log = LogFile::open(file).with_context(|| format!("cannot write {}", file.display()))?;
    match form {
        Form::Text => logging::start_log_beside(Steps, LOG_FILTER, log),
        Form::Json => logging::start_log_in_file(LOG_FILTER, log),
    }
    Ok(())
}

/// Binds an address; the error says what to do if that fails.
fn listen(address: SocketAddr, option: &str) -> Result<TcpListener> {
    app::bind_listener(address).with_context(|| cannot_listen(address, option))
}

/// The stand-in starts empty, so forget the last known schedules: the publisher then checks every workflow.
async fn refill(stack: &Stack) -> Result<()> {
    sqlx::query(
        "
        -- repair at start: the publisher always calls for a schedule with an unknown hash
        UPDATE publications SET spec_hash = NULL, due_at = cronbox_now(), lease_owner = NULL, lease_until = NULL
        ",
    )
    .execute(&stack.pool)
    .await
    .context("cannot request that all schedules are published again")?;
    sqlx::query("SELECT pg_notify('cronbox_outbox', '')").execute(&stack.pool).await?;
    Ok(())
}

/// Writes the file that a shell reads to use the stack; 0600, because it contains keys.
fn write_env(target: &Path, stack: &Stack, files: &Files) -> Result<PathBuf> {
    let folder = target.join("local");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let path = folder.join("env");
    let team = stack.keys.team_id.to_string();
    let lines = [
        ("CRONBOX_URL", stack.url()),
        ("CRONBOX_KEY", &stack.keys.admin),
        ("CRONBOX_SCHEDULER_KEY", &stack.keys.scheduler),
        ("AWS_ENDPOINT_URL_SCHEDULER", stack.scheduler_url()),
        // For `cronbox dlq --queue`.
        ("CRONBOX_RUNNER_DLQ", &stack.queue_url(RUNNER_DLQ)),
        ("CRONBOX_SCHEDULE_DLQ", &stack.queue_url(SCHEDULE_DLQ)),
        ("DATABASE_URL", &stack.dsn()),
        ("CRONBOX_OWNER_DSN", &stack.owner_dsn()),
        // For the commands of the app, which encrypt what they write.
        ("CRONBOX_SECRETS_KEY_FILE", &files.secrets_key.to_string_lossy()),
        // For `cronbox logs`.
        ("CRONBOX_LOG_FILE", &files.log.to_string_lossy()),
        ("CRONBOX_TEAM_ID", &team),
        // The old name, for one version.
        ("TEAM_ID", &team),
    ];
    let mut text: String = lines.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    text.push_str(&format!("export {}\n", names.join(" ")));
    // `cronbox` is built beside this program.
    if let Some(programs) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        text.push_str(&format!("export PATH=\"{}:$PATH\"\n", programs.display()));
    }
    write_secret(&path, &text)?;
    Ok(path)
}

/// Prints the addresses, the console first: its link signs in once.
async fn print(stack: &Stack, env: &Path) -> Result<()> {
    let link = stack.sign_in_link().await.context("cannot make a link to the console")?;
    print_line(&format!("console     {}{link}", stack.url()));
    print_line(&format!("app         {}/docs/", stack.url()));
    print_line(&format!("scheduler   {}", stack.scheduler_url()));
    print_line(&format!("admin key   {}", stack.keys.admin));
    print_line(&format!("editor key  {}   (team {}, demo)", stack.keys.editor, stack.keys.team_id));
    print_line(&format!("runner key  {}", stack.keys.scheduler));
    print_line(&format!("shell       . {}", env.display()));
    print_line("ready; Ctrl-C stops everything, and starting it again finds all of it");
    print_line("");
    Ok(())
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
