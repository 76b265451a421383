//! A stack for each story, with the steps that stories use.

use std::net::SocketAddr;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use aws_sdk_scheduler::types::{FlexibleTimeWindow, FlexibleTimeWindowMode, Target};
use chrono::{DateTime, Utc};
use local::stack::{GROUP, Ground, Publishing, ROLE, RUNNER, Stack, StackOptions};
use schedule::WorkflowId;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, Row as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::{Api, find_kept_port};

/// A stack. [`Story::end`] asserts that nothing is left open.
pub struct Story(Stack);

impl Deref for Story {
    type Target = Stack;

    fn deref(&self) -> &Stack {
        &self.0
    }
}

/// One row of the outbox.
#[derive(Clone, Debug)]
pub struct OutboxRow {
    /// `upsert` or `delete`
    pub op: String,
    /// What the edit recorded for audit
    pub payload: Value,
}

/// Start and end.
impl Story {
    /// A story on the machine's clock.
    pub async fn today() -> Self {
        Self::with(StackOptions::default()).await
    }

    /// A story on a clock that changes only when the story sets it.
    pub async fn at(now: &str) -> Self {
        Self::with(StackOptions { now: Some(time(now)), ..StackOptions::default() }).await
    }

    /// A story on the machine's clock; `app` changes the app's configuration.
    pub async fn with_app(app: fn(&mut app::Config)) -> Self {
        Self::with(StackOptions { app, ..StackOptions::default() }).await
    }

    /// A story on the machine's clock, with a publisher that listens and publishes each edit without further calls.
    pub async fn with_daemon() -> Self {
        Self::with(StackOptions { publishing: Publishing::Listening, ..StackOptions::default() }).await
    }

    /// A story with these options.
    pub async fn with(options: StackOptions) -> Self {
        Self(Stack::start(options).await.unwrap_or_else(|error| panic!("the stack does not start: {error:#}")))
    }

    /// A story on a given ground, with these options.
    pub async fn on(ground: Ground, options: StackOptions) -> Self {
        Self(
            Stack::start_on(ground, options)
                .await
                .unwrap_or_else(|error| panic!("the stack does not start: {error:#}")),
        )
    }

    /// Sets both clocks. No schedule fires because of it.
    pub async fn now_is(&self, now: &str) {
        self.set_clock(time(now)).await;
    }

    /// Publishes and runs what the story has left open, and asserts that nothing else is left.
    pub async fn end(self) {
        self.publish().await;
        self.end_published().await;
    }

    /// Runs what the story has left open, and asserts that nothing else is left. Another publisher has published.
    pub async fn end_published(self) {
        self.runs_end().await;
        self.0.finish_story().await.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Ends although rows, leases or runs are open, because that is the point of the story.
    pub async fn end_early(mut self) {
        self.0.accept_leftovers();
        self.0.finish_story().await.unwrap_or_else(|error| panic!("{error:#}"));
    }
}

/// Clients of the app, by role.
impl Story {
    /// The team's editor.
    pub fn editor(&self) -> Api {
        Api::new(self.url(), &self.keys.editor)
    }

    /// An operator.
    pub fn admin(&self) -> Api {
        Api::new(self.url(), &self.keys.admin)
    }

    /// The runner's key.
    pub fn scheduler_key(&self) -> Api {
        Api::new(self.url(), &self.keys.scheduler)
    }

    /// A client with the runner's key, at another instance of the app.
    pub async fn runner_at_another_app(&mut self) -> Api {
        let url = self.another_url().await;
        Api::new(&url, &self.keys.scheduler)
    }

    /// The address of another instance of the app on the same database.
    pub async fn another_url(&mut self) -> String {
        self.another_url_at(self.dsn()).await
    }

    /// The same, of one that reaches the database by this DSN.
    pub async fn another_url_at(&mut self, dsn: String) -> String {
        self.0.another_app_at(dsn).await.unwrap_or_else(|error| panic!("no second app: {error:#}"))
    }

    /// The address of another instance of the app on the same database, with another configuration.
    ///
    /// # Errors
    /// Fails if the instance does not start.
    pub async fn another_app_with(&mut self, change: impl FnOnce(&mut app::Config)) -> anyhow::Result<String> {
        self.0.another_app_with(change).await
    }

    /// A client with the runner's key, at an app that reaches the database through a proxy that the story can cut.
    pub async fn runner_behind(&mut self, way: &Way) -> Api {
        let url = self.another_url_at(way.dsn(&self.dsn())).await;
        Api::new(&url, &self.keys.scheduler)
    }
}

/// Access to what the API does not show.
impl Story {
    /// Creates a schedule of a workflow in the stand-in, without the publisher's knowledge.
    pub async fn create_orphan(&self, workflow: WorkflowId) {
        let input = format!(r#"{{"workflow_id":{workflow},"scheduled_time":"<aws.scheduler.scheduled-time>"}}"#);
        let target = Target::builder().arn(RUNNER).role_arn(ROLE).input(input).build();
        let window = FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build();
        let created = self.scheduler.create_schedule().group_name(GROUP).name(format!("wf-{workflow}-dev"));
        let created = created.schedule_expression("cron(0 * * * ? *)").flexible_time_window(window.expect("a window"));
        created.target(target.expect("a target")).send().await.unwrap_or_else(|error| panic!("no orphan: {error:?}"));
    }

    /// A workflow's runs, newest first, as the API lists them.
    pub async fn runs_of(&self, workflow: WorkflowId) -> Vec<Value> {
        let listed = self.editor().get(&format!("/api/v1/schedules/{workflow}/runs?limit=200")).await.expect(200);
        listed.json["items"].as_array().cloned().unwrap_or_default()
    }

    /// The value of a counting query.
    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(&self.pool).await.unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    /// Changes the database in a way that none of our programs does.
    pub async fn execute(&self, statement: &'static str) {
        let done = sqlx::raw_sql(statement).execute(&self.pool).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// The same with many rows. A statement of the pool may take 15 s, which is too short for them on a loaded machine; a session of its
    /// own has no limit.
    pub async fn execute_long(&self, statement: &'static str) {
        let done = async {
            let mut session = PgConnection::connect(&self.owner_dsn()).await?;
            sqlx::raw_sql(statement).execute(&mut session).await?;
            session.close().await
        };
        done.await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// Waits until a counting query returns `expected`.
    pub async fn until(&self, query: &'static str, expected: i64) {
        let began = Instant::now();
        while self.count(query).await != expected {
            assert!(began.elapsed() < crate::PATIENCE, "never {expected}: {query}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Waits until a counting query returns `expected`, as long as its value still changes.
    pub async fn until_grown(&self, query: &'static str, expected: i64) {
        let (mut last, mut changed_at) = (self.count(query).await, Instant::now());
        while last != expected {
            assert!(changed_at.elapsed() < crate::PATIENCE, "stays at {last}, not {expected}: {query}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let next = self.count(query).await;
            if next != last {
                (last, changed_at) = (next, Instant::now());
            }
        }
    }

    /// A workflow's outbox rows, oldest first.
    pub async fn outbox(&self, workflow: WorkflowId) -> Vec<OutboxRow> {
        let query = "SELECT op, payload FROM outbox_events WHERE aggregate_id = $1 ORDER BY id";
        let rows = sqlx::query(query).bind(workflow.0).fetch_all(&self.pool).await;
        let rows = rows.unwrap_or_else(|error| panic!("{query}: {error}"));
        rows.iter().map(|row| OutboxRow { op: row.get("op"), payload: row.get("payload") }).collect()
    }

    /// All rows of a table, one line of text each.
    pub async fn table(&self, query: &'static str) -> String {
        let rows: Vec<String> =
            sqlx::query_scalar(query).fetch_all(&self.pool).await.unwrap_or_else(|error| panic!("{query}: {error}"));
        rows.join("\n")
    }
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap_or_else(|error| panic!("{text} is no time: {error}"))
}

/// A proxy to the database, or to another server, that the story can cut.
pub struct Way {
    address: SocketAddr,
    target: String,
    passing: Option<JoinHandle<()>>,
    silence: Arc<Silence>,
}

/// Which connections of a way pass nothing on any more, or for now, without an end that either side could see.
#[derive(Default)]
struct Silence {
    silenced: AtomicUsize,
    fell: Notify,
    still: watch::Sender<bool>,
}

impl Silence {
    /// Waits until connections that were accepted after `accepted` silences are silenced, too.
    async fn falls_on(&self, accepted: usize) {
        loop {
            let next = self.fell.notified();
            if self.silenced.load(Ordering::SeqCst) > accepted {
                return;
            }
            next.await;
        }
    }
}

impl Way {
    /// Opens a proxy to the host of `dsn`.
    pub async fn to(dsn: &str) -> Self {
        let target = host_of(dsn).to_owned();
        let listener = app::bind_listener(([127, 0, 0, 1], find_kept_port()).into())
            .unwrap_or_else(|error| panic!("no port: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let silence = Arc::new(Silence::default());
        let passing = Some(tokio::spawn(pass(listener, target.clone(), silence.clone())));
        Self { address, target, passing, silence }
    }

    /// The same DSN, through this proxy.
    pub fn dsn(&self, dsn: &str) -> String {
        dsn.replace(&self.target, &self.address.to_string())
    }

    /// After the next [`Way::mend`], the proxy leads to the host of `dsn`.
    pub fn lead_to(&mut self, dsn: &str) {
        host_of(dsn).clone_into(&mut self.target);
    }

    /// Drops all bytes on existing connections from now on, as if the host had vanished; new connections are answered.
    pub fn silence(&self) {
        self.silence.silenced.fetch_add(1, Ordering::SeqCst);
        self.silence.fell.notify_waiters();
    }

    /// Keeps back what both sides send, on new connections, too, as a server does that stalls.
    pub fn stall(&self) {
        self.silence.still.send_replace(true);
    }

    /// Passes on what was kept back, and what comes.
    pub fn go_on(&self) {
        self.silence.still.send_replace(false);
    }

    /// Cuts it: connections break, new ones are refused.
    pub async fn cut(&mut self) {
        if let Some(passing) = self.passing.take() {
            passing.abort();
            passing.await.err();
        }
    }

    /// Accepts connections again.
    pub async fn mend(&mut self) {
        let listener = app::bind_listener(self.address).unwrap_or_else(|error| panic!("the port is gone: {error}"));
        self.passing = Some(tokio::spawn(pass(listener, self.target.clone(), self.silence.clone())));
    }
}

/// An action whose every run fails: nothing listens at its address.
#[must_use]
pub fn refused_action() -> Value {
    json!({"type": "http", "method": "GET", "url": format!("http://127.0.0.1:{}/", find_kept_port())})
}

/// If this task is aborted, the set of connections is dropped, and so all of them break.
async fn pass(listener: TcpListener, target: String, silence: Arc<Silence>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut here, _)) = listener.accept().await {
        let (target, silence) = (target.clone(), silence.clone());
        let accepted = silence.silenced.load(Ordering::SeqCst);
        connections.spawn(async move {
            let Ok(mut there) = TcpStream::connect(target).await else { return };
            let mut still = silence.still.subscribe();
            let mut falls = pin!(silence.falls_on(accepted));
            let mut passing = pin!(tokio::io::copy_bidirectional(&mut here, &mut there));
            loop {
                tokio::select! {
                    biased;
                    // Both sockets stay open, and nothing reads from them.
                    () = &mut falls => std::future::pending().await,
                    () = until_still(&mut still, true) => until_still(&mut still, false).await,
                    _ = &mut passing => return,
                }
            }
        });
    }
}

async fn until_still(still: &mut watch::Receiver<bool>, is_still: bool) {
    // Never an error: the connection's own task keeps the sender.
    still.wait_for(|still| *still == is_still).await.map(drop).ok();
}

/// `host:port` of a DSN.
pub(crate) fn host_of(dsn: &str) -> &str {
    let after_user = dsn.rsplit_once('@').map_or(dsn, |(_, rest)| rest);
    after_user.split('/').next().unwrap_or(after_user)
}
