//! The rehearsal of an upgrade: what the commit before `modules/service` deployed becomes what this commit deploys, while schedules
//! fire twice each minute and workflows are edited. No time is lost, none runs twice, and no edit is forgotten.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use local::config::target_folder;
use local::stack::StackOptions;
use reqwest::Method;
use schedule::WorkflowId;
use serde_json::{Value, json};
use tests::{Api, Story, find_kept_port};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::account::{credentials, text};
use crate::image::{Image, wait_until_ready};
use crate::ministack::{MiniStack, Options};
use crate::rehearsal::{permit_what_the_emulator_mistakes, values, wait_for, withdraw_what_the_emulator_mistakes};
use crate::terraform::Dev;

/// The role of the publisher, as an older environment named it.
const PUBLISHER: &str = "cronbox-dev-publisher";
/// How many workflows run every minute.
const FIRED: usize = 8;
/// How many workflows are edited again and again.
const EDITED: usize = 4;
/// For how long the load goes on before and after the upgrade.
const STEADY: Duration = Duration::from_secs(180);

/// EventBridge's fires, which the emulator makes without the times: each schedule whose name is given invokes its target twice each
/// minute, because EventBridge delivers at least once.
const FIRE: &str = "
import boto3, datetime, json, sys, time
endpoint, names = sys.argv[1], sys.argv[2:]
scheduler, functions = (boto3.client(service, endpoint_url=endpoint, region_name='us-east-1') for service in ('scheduler', 'lambda'))
while True:
    now = datetime.datetime.now(datetime.timezone.utc)
    minute = now.replace(second=0, microsecond=0) + datetime.timedelta(minutes=1)
    time.sleep((minute - now).total_seconds())
    for name in names:
        target = scheduler.get_schedule(GroupName='cronbox-dev', Name=name)['Target']
        function, *alias = target['Arn'].split(':function:')[1].split(':')
        text = target['Input'].replace('<aws.scheduler.scheduled-time>', minute.strftime('%Y-%m-%dT%H:%M:%SZ'))
        text = text.replace('<aws.scheduler.execution-id>', 'd32c5kddcf5bb8c3').replace('<aws.scheduler.attempt-number>', '1')
        more = {'Qualifier': alias[0]} if alias else {}
        for _ in range(2):
            functions.invoke(FunctionName=function, InvocationType='Event', Payload=text.encode(), **more)
    print(minute.isoformat(), function, alias, flush=True)
";

/// `make rehearsal` runs it, in 9 minutes. `scripts/upgrade.sh` has built what it begins with.
#[ignore = "takes 9 minutes, and needs the programs of another commit: `make rehearsal`"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_under_load_loses_and_doubles_nothing() {
    let s = Story::with(StackOptions { app: be_idle, ..StackOptions::default() }).await;
    let old = Old::built();
    let (mut app, url) = old.serve(&s.dsn()).await;
    let options = Options { name: "deploy-upgrade-emulator", retry_base_secs: "10", checks_permissions: true };
    let ministack = MiniStack::start(options).await;
    ministack.aws(["s3api", "create-bucket", "--bucket", "states"]).await;
    let values = values(&ministack, &s, &url).await + "regional_names = false\n";
    let before = old.terraform(&ministack.endpoint, &values).await;
    before.init().await;
    before.apply().await;
    permit_what_the_emulator_mistakes(&ministack, PUBLISHER).await;

    let api = Api::new(&url, &s.keys.editor);
    let fired = create(&api, FIRED, "* * * * *").await;
    let edited = create(&api, EDITED, "0 9 * * *").await;
    for workflow in fired.iter().chain(&edited) {
        wait_until_synced(&api, *workflow).await;
    }
    let began = s.clock.now();
    let fires = start_fires(&ministack, &fired);
    let (end, ended) = watch::channel(());
    let editing = tokio::spawn(edit_until(api.clone(), edited.clone(), ended));
    tokio::time::sleep(STEADY).await;

    // As docs/deploy.md says: the database, the app, the Lambdas.
    let image = Image::unpacked("deploy-image-upgrade").await;
    image.run(&["migrate"], &[("DATABASE_URL", &s.owner_dsn())]).await;
    stop(&mut app).await;
    let (mut app, _) = image.serve(&s.dsn(), Some(url.strip_prefix("http://").unwrap())).await;
    let after = Dev::with_values("deploy-upgrade", &ministack.endpoint, &values).await;
    after.init().await;
    after.apply().await;

    // The first apply gives all schedules the alias of the runner.
    for workflow in fired.iter().chain(&edited) {
        wait_for("the schedule invokes the alias", async || {
            text(&schedule_of(&ministack, *workflow).await["Target"]["Arn"])
                .ends_with(":function:cronbox-dev-runner:live")
        })
        .await;
    }
    tokio::time::sleep(STEADY).await;
    drop(end);
    let edits = editing.await.unwrap();
    stop_fires(fires).await;

    let until = s.clock.now();
    each_time_ran_once(&s, &fired, began, until).await;
    assert!(edits.iter().all(|(_, count)| *count > 20), "the edits of each workflow: {edits:?}");
    for (workflow, _) in &edits {
        wait_until_synced(&api, *workflow).await;
        let saved = api.get(&format!("/api/v1/workflows/{workflow}")).await.json["cron_schedule"].clone();
        let published = schedule_of(&ministack, *workflow).await["ScheduleExpression"].clone();
        let minute = text(&saved).split(' ').next().unwrap().to_owned();
        assert!(text(&published).starts_with(&format!("cron({minute} ")), "{saved} is not {published}");
    }
    withdraw_what_the_emulator_mistakes(&ministack, PUBLISHER).await;
    after.destroy().await;
    assert_eq!(after.state().await, "");
    stop(&mut app).await;
    s.end_early().await;
}

/// Only the apps of the rehearsal decide, run and catch up.
fn be_idle(config: &mut app::Config) {
    config.executor_slots = 0;
    config.jobs_enabled = false;
}

/// What `scripts/upgrade.sh` built of an older commit.
struct Old {
    folder: PathBuf,
}

impl Old {
    fn built() -> Old {
        let folder = target_folder().join("upgrade");
        assert!(folder.join("commit").exists(), "{} is missing: run `make rehearsal`", folder.display());
        Old { folder }
    }

    async fn serve(&self, dsn: &str) -> (Child, String) {
        let address = format!("127.0.0.1:{}", find_kept_port());
        let mut command = Command::new(self.folder.join("target/debug/cronbox-app"));
        command.arg("serve").env_clear().kill_on_drop(true).stdin(Stdio::null()).envs([
            ("DATABASE_URL", dsn),
            ("CRONBOX_BIND_ADDR", &address),
            ("CRONBOX_SHUTDOWN_DRAIN_SECS", "1"),
        ]);
        let mut app = command.spawn().unwrap();
        wait_until_ready(&address, &mut app).await;
        (app, format!("http://{address}"))
    }

    /// Its `terraform/envs/dev`. Its zips are unpacked where the emulator cannot write, as those of today.
    async fn terraform(&self, endpoint: &str, values: &str) -> Dev {
        let zips = self.folder.join("target/lambdas");
        let dev = Dev::of_sources(&self.folder.join("source"), &zips, "deploy-upgrade-before", endpoint).await;
        let file = format!("module \"cron\" {{\n  database_ca_file = \"{}/rds-ca.pem\"\n}}\n", zips.display());
        dev.write("main_override.tf", &file);
        dev.write("terraform.tfvars", values);
        dev
    }
}

async fn create(api: &Api, count: usize, cron: &str) -> Vec<WorkflowId> {
    let mut created = Vec::new();
    for nth in 0..count {
        let body = json!({
            "name": format!("{cron} {nth}"), "cron_schedule": cron, "timezone": "UTC", "catch_up_policy": "run_all",
            "overlap_policy": "queue", "action": {"type": "log", "message": "the upgrade"},
        });
        created.push(WorkflowId(api.post("/api/v1/workflows", &body).await.expect(201).id()));
    }
    created
}

async fn wait_until_synced(api: &Api, workflow: WorkflowId) {
    wait_for("the schedule is published", async || {
        api.get(&format!("/api/v1/workflows/{workflow}")).await.json["sync"]["status"] == "synced"
    })
    .await;
}

async fn schedule_of(ministack: &MiniStack, workflow: WorkflowId) -> Value {
    let name = format!("wf-{workflow}-dev");
    ministack.aws(["scheduler", "get-schedule", "--group-name", "cronbox-dev", "--name", &name]).await
}

fn start_fires(ministack: &MiniStack, workflows: &[WorkflowId]) -> Child {
    let log = std::fs::File::create(ministack.folder.join("fires.log")).unwrap();
    let mut command = Command::new(target_folder().join("venv/bin/python"));
    command.env_clear().envs(credentials()).args(["-c", FIRE, &ministack.endpoint]);
    command.args(workflows.iter().map(|workflow| format!("wf-{workflow}-dev"))).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

async fn stop_fires(mut fires: Child) {
    assert!(fires.try_wait().unwrap().is_none(), "the fires ended by themselves: see fires.log");
    fires.kill().await.unwrap();
}

async fn stop(app: &mut Child) {
    let pid = app.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    app.wait().await.unwrap();
}

/// Edits the workflows one after another until the sender of `ended` is dropped; an edit that meets no app is repeated. Returns how
/// many edits of each were saved.
async fn edit_until(api: Api, workflows: Vec<WorkflowId>, ended: watch::Receiver<()>) -> Vec<(WorkflowId, u32)> {
    let mut edits: Vec<(WorkflowId, u32)> = workflows.into_iter().map(|workflow| (workflow, 0)).collect();
    while ended.has_changed().is_ok() {
        for (workflow, count) in &mut edits {
            let body = json!({"cron_schedule": format!("{} 9 * * *", (*count + 1) % 60)});
            let saved = send(&api, *workflow, &body).await;
            *count += u32::from(saved.is_ok_and(|answer| answer.status() == 200));
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
    edits
}

async fn send(api: &Api, workflow: WorkflowId, body: &Value) -> reqwest::Result<reqwest::Response> {
    api.request(Method::PATCH, &format!("/api/v1/workflows/{workflow}")).json(body).send().await
}

/// Each minute of the load has one decision for each workflow, and one run that succeeded.
async fn each_time_ran_once(s: &Story, workflows: &[WorkflowId], began: DateTime<Utc>, until: DateTime<Utc>) {
    let minute = TimeDelta::minutes(1);
    let first = began.duration_trunc(minute).unwrap() + minute;
    // Fires of the last minutes may still be repeated, and a late one is caught up.
    let last = until.duration_trunc(minute).unwrap() - minute;
    let times = (last - first).num_minutes() + 1;
    let expected = times * i64::try_from(workflows.len()).unwrap();
    let ids: Vec<i64> = workflows.iter().map(|workflow| workflow.0).collect();
    let succeeded = "SELECT count(*) FROM occurrences o JOIN runs r ON r.id = o.run_id
                      WHERE o.workflow_id = ANY($1) AND o.scheduled_time BETWEEN $2 AND $3 AND r.state = 'succeeded'";
    let count = async |query: &'static str| -> i64 {
        sqlx::query_scalar(query).bind(&ids).bind(first).bind(last).fetch_one(&s.pool).await.unwrap()
    };
    wait_for("each time has run", async || count(succeeded).await >= expected).await;
    assert_eq!(count(succeeded).await, expected, "a time ran twice");
    let runs = "SELECT count(*) FROM runs WHERE workflow_id = ANY($1) AND scheduled_time BETWEEN $2 AND $3";
    assert_eq!(count(runs).await, expected, "a time has two runs");
    let decisions = "SELECT count(*) FROM occurrences WHERE workflow_id = ANY($1) AND scheduled_time BETWEEN $2 AND $3";
    assert_eq!(count(decisions).await, expected, "a time has two decisions");
    let late = "SELECT count(*) FROM occurrences
                 WHERE workflow_id = ANY($1) AND scheduled_time BETWEEN $2 AND $3 AND decision = 'caught_up'";
    println!("{expected} times of {} workflows: 0 lost, 0 doubled, {} caught up", workflows.len(), count(late).await);
    assert!(times >= 5, "the load was too short: {times} minutes");
}
