//! Steps 3 and 4 of 7: the publisher, as a Lambda, as a daemon (`--listen`) or for one run (`--once`).

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use db::Pooler;
use lambda_database::Login;
use logging::Form;
use publisher::{Arguments, Publisher, Report, Stopped, Unsettled};
use schedule::Clock;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cronbox-publisher: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How long the last spans may take to reach the collector.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

async fn run() -> anyhow::Result<()> {
    let (arguments, old_variables) = Arguments::read_environment().map_err(|sentence| anyhow!(sentence))?;
    let Arguments { once, listen, metrics_addr, log_format, is_lambda, database, db_direct_dsn, config } = arguments;
    // Stdout is for the report. CloudWatch can query JSON.
    logging::start_log(if is_lambda { Form::Json } else { log_format }, "info");
    old_names::warn_of_variables(&old_variables);
    traces::start_export("cronbox-publisher", Some(&config.env.to_string()));
    if !(once || listen || is_lambda) {
        bail!("write --once or --listen; without either the publisher runs only as a Lambda");
    }
    if listen && database.pooler == Pooler::Transaction && db_direct_dsn.is_none() {
        bail!("CRONBOX_DB_DIRECT_DSN is missing: LISTEN needs a DSN that leads past the pooler");
    }
    let options = if listen { of_daemon } else { of_drain };
    let direct_dsn = db_direct_dsn.map(|direct| db::with_ca(&direct, database.db_ca_file.as_deref()));
    let login = Login::new(database, move |dsn| db::Options { direct_dsn: direct_dsn.clone(), ..options(dsn) });
    let options = login.load_options().await?;
    // A Lambda connects when it is invoked, so that its start does not wait for the database.
    let pool = if is_lambda { db::create_pool(&options)? } else { db::connect_pool(&options).await? };
    let publisher = Publisher::new(config, pool, publisher::scheduler_client(None).await, Clock::System);
    let done = if once {
        print(ending_at(stop()?, &publisher, publisher.publish_once()).await)
    } else if listen {
        let metrics = match metrics_addr {
            Some(address) => Some(TcpListener::bind(address).await.with_context(|| {
                format!("cannot listen on {address}: stop what uses it, or choose another CRONBOX_METRICS_ADDR")
            })?),
            None => None,
        };
        publisher.publish_on_notification(metrics, Some(&login), stop()?).await
    } else {
        let served = publisher::serve_lambda(publisher.clone(), login);
        ending_at(stop()?, &publisher, served).await.map_err(|error| anyhow!(error))
    };
    traces::flush(FLUSH_LIMIT).await;
    done
}

/// At a stop signal, makes the publisher return what it has claimed and not called, and then exits.
async fn ending_at<T>(stop: impl Future<Output = ()>, publisher: &Publisher, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        done = &mut work => return done,
        () = stop => publisher.shut_down(),
    }
    work.await
}

/// Connections that claims, reads, settles and the repeated settle of locked publications share.
fn of_drain(dsn: String) -> db::Options {
    // A Lambda has 50 s: if it cannot connect, it reports that and leaves the rest to the next tick.
    let acquire_timeout = Duration::from_secs(5);
    db::Options {
        dsn,
        pooler: Pooler::None,
        direct_dsn: None,
        max_connections: 3,
        acquire_timeout,
        application_name: "cronbox publisher",
    }
}

/// The connections of a drain, and further ones for a sweep and the renewal of leases. Notifications have a separate
/// connection.
fn of_daemon(dsn: String) -> db::Options {
    db::Options { max_connections: 5, ..of_drain(dsn) }
}

/// Prints the report as one JSON line, also when the time was up.
fn print(drained: anyhow::Result<Report>) -> anyhow::Result<()> {
    let report = match &drained {
        Ok(report) => Some(report),
        Err(error) => {
            let unsettled = error.downcast_ref::<Unsettled>().map(|unsettled| &unsettled.report);
            unsettled.or_else(|| error.downcast_ref::<Stopped>().map(|stopped| &stopped.report))
        }
    };
    if let Some(report) = report {
        println!("{}", serde_json::to_string(report)?);
    }
    drained.map(drop)
}

/// Resolves at Ctrl-C or SIGTERM. Signals count from the call on, not from the first await.
fn stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}
