//! A stack whose metrics are recorded minute by minute, on a clock that the story sets.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use local::stack::StackOptions;
use schedule::Clock;
use tests::{Api, Ended, PATIENCE, Story};
use tokio::process::Command;

use crate::alarms::{Alarm, all_alarms};
use crate::cloudwatch::{Metrics, State};
use crate::paragraphs::{commands_of, runbook};
use crate::prometheus::Recorded;
use tests::publisher_process::{Daemon, Lambda, PUBLISHER};

/// A stack, its publisher, and what CloudWatch and Prometheus have recorded of both.
pub(crate) struct Scene {
    pub(crate) story: Story,
    is_settable: bool,
    pub(crate) lambda: Option<Lambda>,
    pub(crate) daemon: Option<Daemon>,
    /// Where the app is scraped; `None` = it does not answer.
    pub(crate) scraped: Option<String>,
    /// A dead-letter queue, by its name and its URL.
    pub(crate) queue: Option<(&'static str, String)>,
    minute: usize,
    alarms: BTreeMap<String, Alarm>,
    metrics: Metrics,
    recorded: Recorded,
    home: PathBuf,
}

/// What a command of a paragraph did.
#[derive(Debug)]
#[expect(dead_code, reason = "a failed assertion shows all of it")]
struct Said {
    command: String,
    code: i32,
    out: String,
    err: String,
}

/// What a paragraph's commands did.
pub(crate) struct Walked(Vec<Said>);

impl Deref for Scene {
    type Target = Story;

    fn deref(&self) -> &Story {
        &self.story
    }
}

/// Setup and time.
impl Scene {
    /// A scene of which the Lambda publishes.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The same, with a daemon beside it, whose page Prometheus scrapes.
    pub(crate) async fn with_daemon() -> Self {
        let mut scene = Self::new().await;
        scene.daemon = Some(Daemon::start(&scene.story).await);
        scene
    }

    /// A scene whose app has another configuration.
    pub(crate) async fn with(app: fn(&mut app::Config)) -> Self {
        // Some hours ago, so that commands that mean the last hours by the machine's clock find what happens here.
        let now = Clock::System.now().duration_trunc(TimeDelta::hours(1)).unwrap() - TimeDelta::hours(8);
        Self::of(StackOptions { now: Some(now), app, ..StackOptions::default() }).await
    }

    /// A scene whose publisher mirrors the dead-letter queues.
    pub(crate) async fn with_mirrored_queues() -> Self {
        let now = Clock::System.now().duration_trunc(TimeDelta::hours(1)).unwrap() - TimeDelta::hours(8);
        let options = StackOptions { now: Some(now), mirrors_dead_letters: true, ..StackOptions::default() };
        let mut scene = Self::of(options).await;
        let settings = scene.story.dead_letter_environment();
        scene.lambda = Some(Lambda::start(&scene.story, &settings).await);
        scene
    }

    /// A scene on the machine's clock: its minutes are only those of the recorded metrics.
    pub(crate) async fn on_the_machines_clock() -> Self {
        Self::of(StackOptions::default()).await
    }

    async fn of(options: StackOptions) -> Self {
        let is_settable = options.now.is_some();
        let story = Story::with(options).await;
        let lambda = Some(Lambda::start(&story, &[]).await);
        let home = std::env::temp_dir().join(format!("cronbox-runbook-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&home).unwrap();
        let scraped = Some(story.url().to_owned());
        let (alarms, metrics, recorded) = (all_alarms(), Metrics::default(), Recorded::default());
        let (daemon, queue, minute) = (None, None, 0);
        Self { story, is_settable, lambda, daemon, scraped, queue, minute, alarms, metrics, recorded, home }
    }

    /// The present time of the stack.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.story.clock.now()
    }

    /// Lets minutes pass in which nothing is recorded.
    pub(crate) async fn skip(&self, minutes: i64) {
        if self.is_settable {
            self.story.set_clock(self.now() + TimeDelta::minutes(minutes)).await;
        }
    }

    /// Lets minutes pass: a tick and a scrape at their beginning, whose values last until the next ones.
    pub(crate) async fn observe(&mut self, minutes: usize) {
        let span = self.minute..self.minute + minutes;
        if let Some(lambda) = &mut self.lambda {
            let tick = lambda.tick().await;
            let function = BTreeMap::from([("FunctionName".to_owned(), PUBLISHER.to_owned())]);
            let errors = if matches!(tick.ended, Ended::Failed(_)) { 1.0 } else { 0.0 };
            for minute in span.clone() {
                self.metrics.add_line(&tick.line, minute);
                self.metrics.add("AWS/Lambda", "Invocations", &function, minute, 1.0);
                self.metrics.add("AWS/Lambda", "Errors", &function, minute, errors);
            }
        }
        if let Some((name, url)) = &self.queue {
            let dimensions = BTreeMap::from([("QueueName".to_owned(), (*name).to_owned())]);
            let visible = crate::dead_letters::visible(url).await;
            for minute in span.clone() {
                self.metrics.add("AWS/SQS", "ApproximateNumberOfMessagesVisible", &dimensions, minute, visible);
            }
        }
        let page = match &self.scraped {
            Some(url) => Some(Api::without_key(url).get("/metrics").await.expect(200).text),
            None => None,
        };
        self.recorded.add_page("cronbox-app", page.as_deref(), span.clone());
        if let Some(daemon) = &self.daemon {
            let page = daemon.page().await;
            self.recorded.add_page("cronbox-publisher", page.as_deref(), span.clone());
        }
        self.minute = span.end;
        self.skip(i64::try_from(minutes).unwrap()).await;
    }

    /// Waits until the page of the app has this line: an instance changes its own figures before or after Postgres has committed.
    pub(crate) async fn until_shown(&self, line: &str) {
        let began = std::time::Instant::now();
        loop {
            let page = Api::without_key(self.url()).get("/metrics").await.expect(200).text;
            if page.lines().any(|one| one == line) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{line} is not in\n{page}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the scene, and lets promtool evaluate the rules.
    pub(crate) async fn end(self) {
        let Self { story, lambda, daemon, recorded, home, .. } = self;
        drop((lambda, daemon));
        recorded.check(&home);
        std::fs::remove_dir_all(home).ok();
        story.end_early().await;
    }
}

/// Alarms and alerts.
impl Scene {
    /// Asserts that the alarm and the alert ring now.
    #[track_caller]
    pub(crate) fn rings(&mut self, alarm: &'static str, alert: &'static str) {
        self.expect(alarm, alert, State::Alarm);
    }

    /// Asserts that neither the alarm nor the alert rings now.
    #[track_caller]
    pub(crate) fn silent(&mut self, alarm: &'static str, alert: &'static str) {
        self.expect(alarm, alert, State::Ok);
    }

    #[track_caller]
    fn expect(&mut self, alarm: &'static str, alert: &'static str, state: State) {
        if !alarm.is_empty() {
            let found = self.metrics.state(&self.alarms[alarm], self.minute);
            assert_eq!(found, state, "{alarm} after {} minutes", self.minute);
        }
        if !alert.is_empty() {
            self.recorded.expect(self.minute, alert, state == State::Alarm);
        }
    }
}

/// The runbook.
impl Scene {
    /// Runs the commands of a paragraph, in their order. None may be refused: 0 is success, 1 a finding.
    pub(crate) async fn walk(&mut self, anchor: &str, variables: &[(&str, String)]) -> Walked {
        let commands = commands_of(&runbook(), anchor);
        assert!(!commands.is_empty(), "#{anchor} has no command");
        let mut all = Vec::new();
        for command in commands {
            let said = self.run(command, variables).await;
            assert!(said.code <= 1, "#{anchor}: {said:?}");
            all.push(said);
        }
        Walked(all)
    }

    /// Runs a command. While it waits for a sweep, the publisher has its ticks.
    async fn run(&mut self, command: String, variables: &[(&str, String)]) -> Said {
        let mut shell = self.shell(&command);
        shell.envs(variables.iter().map(|(name, value)| (name, value)));
        let running = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = std::pin::pin!(running.wait_with_output());
        let output = loop {
            tokio::select! {
                output = &mut output => break output.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(300)), if command.contains("drift check") => {
                    if let Some(lambda) = &mut self.lambda {
                        lambda.tick().await;
                    }
                }
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Said { command, code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// A shell of an operator: the settings that the runbook names, and the programs of this build.
    fn shell(&self, command: &str) -> Command {
        let programs = local::config::target_folder().join("debug");
        let mut shell = Command::new("/bin/sh");
        shell.args(["-uc", command]).env_clear().kill_on_drop(true).current_dir(&self.home);
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display())).env("HOME", &self.home);
        shell.env("CRONBOX_URL", self.url()).env("CRONBOX_KEY", &self.keys.admin);
        shell.env("CRONBOX_SCHEDULER_KEY", &self.keys.scheduler).env("DATABASE_URL", self.owner_dsn());
        shell.env("CRONBOX_ADMIN", self.scraped.as_deref().unwrap_or("http://127.0.0.1:9"));
        shell.env("CRONBOX_ENV", "dev").env("TEAM", self.keys.team_id.to_string()).env("AWS_REGION", "us-east-1");
        shell
    }
}

impl Walked {
    /// Asserts that one of the commands printed this.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> &Self {
        assert!(self.0.iter().any(|said| said.out.contains(text)), "no command printed {text:?}: {:#?}", self.0);
        self
    }
}
