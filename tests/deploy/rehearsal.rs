//! The rehearsal of a deployment: `terraform apply` to an emulator that checks signatures and permissions, the release zips, and the
//! app of the image. An edit becomes a schedule, fires and runs; then `terraform destroy`.

use std::time::Duration;

use chrono::{SecondsFormat, SubsecRound, TimeDelta, Timelike};
use local::config::target_folder;
use serde_json::json;
use tests::{Api, PATIENCE, Story};
use tokio::process::{Child, Command};

use crate::account::{REGION, credentials, text};
use crate::functions::fired;
use crate::image::Image;
use crate::ministack::{MiniStack, Options};
use crate::terraform::Dev;

/// Longer than two minutes, the most that an edit waits for its tick and a schedule for its minute.
const TWO_MINUTES: Duration = Duration::from_secs(240);
/// An outage after which Lambda's third try of the first fires has failed: 60 and 120 s after the tries before.
const OUTAGE: Duration = Duration::from_secs(250);

/// The emulator forgets the destination of failures when it invokes a version. On AWS the alias has the same destination.
const WITH_DEAD_LETTERS: &str = "$LATEST";

/// The environment that is rehearsed.
struct Rehearsal {
    s: Story,
    image: Image,
    ministack: MiniStack,
    dev: Dev,
    app: Child,
    url: String,
}

/// `make terraform` runs it: the emulator's pauses are short, because nothing fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_becomes_a_run_in_the_emulator() {
    let rehearsal = Rehearsal::applied("1").await;
    let workflow = rehearsal.a_workflow_is_synced().await;
    rehearsal.fire(workflow, "live").await;
    rehearsal.wait_for_runs(workflow, 1).await;
    rehearsal.destroyed().await;
}

/// `make rehearsal` runs it, in about 20 minutes: the app is killed for 250 s, Lambda tries three times with its real pauses, the
/// fires of the first minute are dead letters, a redrive delivers them, and `verify` finds that each time ran once.
#[ignore = "takes 20 minutes: `make rehearsal`"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_app_loses_no_time() {
    let mut rehearsal = Rehearsal::applied("60").await;
    let workflow = rehearsal.a_workflow_is_synced().await;
    rehearsal.fire(workflow, "live").await;
    rehearsal.wait_for_runs(workflow, 1).await;
    rehearsal.app.kill().await.unwrap();
    let back = tokio::time::Instant::now() + OUTAGE;
    while tokio::time::Instant::now() < back {
        tokio::time::sleep(Duration::from_secs(60)).await;
        rehearsal.fire(workflow, WITH_DEAD_LETTERS).await;
    }
    let address = rehearsal.url.strip_prefix("http://").unwrap().to_owned();
    (rehearsal.app, _) = rehearsal.image.serve(&rehearsal.s.dsn(), Some(&address)).await;

    let listed = rehearsal.cronbox(&["dlq", "ls", "--queue", &rehearsal.runner_queue().await]).await;
    assert!(listed.contains("the app did not answer"), "the fires of the first minute: {listed}");
    rehearsal.cronbox(&["dlq", "redrive", "--queue", &rehearsal.runner_queue().await]).await;
    rehearsal.wait_for_runs(workflow, 6).await;
    rehearsal.verify_finds_nothing(workflow).await;
    rehearsal.destroyed().await;
}

impl Rehearsal {
    async fn applied(retry_base_secs: &'static str) -> Rehearsal {
        let s = Story::today().await;
        let image = Image::unpacked("deploy-image-rehearsal").await;
        let (app, url) = image.serve(&s.dsn(), None).await;
        let options = Options { name: "deploy-rehearsal-emulator", retry_base_secs, checks_permissions: true };
        let ministack = MiniStack::start(options).await;
        ministack.aws(["s3api", "create-bucket", "--bucket", "states"]).await;
        let values = values(&ministack, &s, &url).await;
        let dev = Dev::with_values("deploy-rehearsal", &ministack.endpoint, &values).await;
        dev.init().await;
        dev.apply().await;
        permit_what_the_emulator_mistakes(&ministack, PUBLISHER).await;
        Rehearsal { s, image, ministack, dev, app, url }
    }

    fn api(&self) -> Api {
        Api::new(&self.url, &self.s.keys.editor)
    }

    /// Steps 1 to 4: the edit, and the deployed publisher, which the rule invokes every minute.
    async fn a_workflow_is_synced(&self) -> i64 {
        let edit = json!({
            "name": "rehearsal", "cron_schedule": "* * * * *", "timezone": "UTC", "catch_up_policy": "run_all",
            "overlap_policy": "queue", "action": {"type": "log", "message": "the rehearsal"},
        });
        let workflow = self.api().post("/api/v1/workflows", &edit).await.expect(201).id();
        wait_for("the schedule is published", async || {
            self.api().get(&format!("/api/v1/workflows/{workflow}")).await.json["sync"]["status"] == "synced"
        })
        .await;
        let name = format!("wf-{workflow}-dev");
        let schedule =
            self.ministack.aws(["scheduler", "get-schedule", "--group-name", "cronbox-dev", "--name", &name]).await;
        assert!(text(&schedule["Target"]["Arn"]).ends_with(":function:cronbox-dev-runner:live"), "{schedule}");
        workflow
    }

    /// Steps 5 to 7: the schedule fires, the deployed runner delivers, the app runs.
    async fn wait_for_runs(&self, workflow: i64, least: usize) {
        wait_for("the runs have succeeded", async || {
            let runs = self.api().get(&format!("/api/v1/schedules/{workflow}/runs?limit=100")).await;
            let runs = runs.json["items"].as_array().cloned().unwrap_or_default();
            runs.iter().filter(|run| run["state"] == "succeeded").count() >= least
        })
        .await;
    }

    /// EventBridge's fire of the next minute. The emulator fires, too, but it does not replace the placeholders of the input, so the
    /// runner refuses its fires; they are dead letters that no redrive delivers.
    async fn fire(&self, workflow: i64, qualifier: &str) {
        let name = format!("wf-{workflow}-dev");
        let get = ["scheduler", "get-schedule", "--group-name", "cronbox-dev", "--name", &name];
        let input = text(&self.ministack.aws(get).await["Target"]["Input"]);
        // The app accepts fires that are a little early.
        let minute = (self.s.clock.now() + TimeDelta::minutes(1)).trunc_subsecs(0).with_second(0).unwrap();
        let fire = fired(&input, &minute.to_rfc3339_opts(SecondsFormat::Secs, true)).to_string();
        let answer = self.ministack.folder.join("answer.json");
        let invoke = ["lambda", "invoke", "--function-name", "cronbox-dev-runner", "--qualifier", qualifier];
        let event = ["--invocation-type", "Event", "--payload", &fire, answer.to_str().unwrap()];
        self.ministack.aws([&invoke[..], &event].concat()).await;
    }

    async fn runner_queue(&self) -> String {
        text(&self.dev.output("dead_letter_queue_urls").await["runner"])
    }

    /// The output of the command line as an operator runs it.
    async fn cronbox(&self, words: &[&str]) -> String {
        let mut command = Command::new(target_folder().join("debug/cronbox"));
        command.args(words).kill_on_drop(true).env_clear().envs(credentials()).envs([
            ("AWS_ENDPOINT_URL_SQS", self.ministack.endpoint.as_str()),
            ("CRONBOX_URL", &self.url),
            ("CRONBOX_KEY", &self.s.keys.admin),
        ]);
        let done = command.output().await.unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    /// Each due time since the workflow was created has one decision and one run. A span must have ended seven minutes ago.
    async fn verify_finds_nothing(&self, workflow: i64) {
        let created = self.api().get(&format!("/api/v1/workflows/{workflow}")).await.json["created_on"].clone();
        let from = text(&created);
        let to = self.s.clock.now().to_rfc3339_opts(SecondsFormat::Secs, true);
        tokio::time::sleep(Duration::from_secs(8 * 60)).await;
        let said = self.cronbox(&["verify", "--from", &from, "--to", &to]).await;
        assert!(said.contains("nothing differs"), "{said}");
        let missed = "SELECT count(*) FROM occurrences WHERE decision <> 'fired' AND decision <> 'caught_up'";
        assert_eq!(self.s.count(missed).await, 0, "with `run_all` each time runs");
    }

    async fn destroyed(mut self) {
        withdraw_what_the_emulator_mistakes(&self.ministack, PUBLISHER).await;
        self.dev.destroy().await;
        assert_eq!(self.dev.state().await, "");
        let groups =
            self.ministack.aws(["scheduler", "list-schedule-groups", "--query", "ScheduleGroups[].Name"]).await;
        assert!(!groups.as_array().unwrap().contains(&json!("cronbox-dev")), "{groups}");
        self.app.kill().await.unwrap();
        self.s.end_early().await;
    }
}

const PUBLISHER: &str = "cronbox-dev-us-east-1-publisher";
const POLICY: [&str; 2] = ["--policy-name", "emulator"];

/// The emulator takes each schedule for one of the group `default` when it evaluates a policy, so ours, which name the group,
/// permit nothing there. It asks for an action `sqs:ChangeMessageVisibilityBatch`; AWS has none, and `sqs:ChangeMessageVisibility`
/// permits the batch.
pub(crate) async fn permit_what_the_emulator_mistakes(ministack: &MiniStack, role: &str) {
    let schedules = json!({
        "Effect": "Allow",
        "Action": ["scheduler:CreateSchedule", "scheduler:DeleteSchedule", "scheduler:GetSchedule", "scheduler:UpdateSchedule"],
        "Resource": "arn:aws:scheduler:*:*:schedule/default/wf-*-dev",
    });
    let letters = json!({
        "Effect": "Allow",
        "Action": "sqs:ChangeMessageVisibilityBatch",
        "Resource": "arn:aws:sqs:*:*:cronbox-dev-*-dlq",
    });
    let policy = json!({"Version": "2012-10-17", "Statement": [schedules, letters]}).to_string();
    let put = ["iam", "put-role-policy", "--policy-document", &policy, "--role-name", role];
    ministack.aws([&put[..], &POLICY].concat()).await;
}

/// Terraform deletes no role that has another policy.
pub(crate) async fn withdraw_what_the_emulator_mistakes(ministack: &MiniStack, role: &str) {
    ministack.aws([&["iam", "delete-role-policy", "--role-name", role][..], &POLICY].concat()).await;
}

/// What the operator fills in, in an account that has a network.
pub(crate) async fn values(ministack: &MiniStack, s: &Story, url: &str) -> String {
    let vpc = text(&ministack.aws(["ec2", "describe-vpcs", "--query", "Vpcs[0].VpcId"]).await);
    let subnets = ministack.aws(["ec2", "describe-subnets", "--query", "Subnets[:2].SubnetId"]).await;
    let group = ["ec2", "create-security-group", "--group-name", "db", "--description", "db", "--vpc-id", &vpc];
    let group = text(&ministack.aws(group).await["GroupId"]);
    let database = secret(ministack, "database", &s.publisher_dsn()).await;
    let key = secret(ministack, "scheduler-key", &s.keys.scheduler).await;
    let account = text(&ministack.aws(["sts", "get-caller-identity"]).await["Account"]);
    // Lambda unpacks into /var/task, where the emulator cannot write.
    let bundle = target_folder().join("lambdas/x86_64/rds-ca.pem");
    format!(
        "region = \"{REGION}\"\naccount_id = \"{account}\"\nvpc_id = \"{vpc}\"\nsubnet_ids = {subnets}\n\
         database_security_group_id = \"{group}\"\ndatabase_secret_arn = \"{database}\"\n\
         scheduler_key_secret_arn = \"{key}\"\ndatabase_ca_file = \"{}\"\napp_base_url = \"{url}\"\n\
         endpoint_url = \"{}\"\ndatabase = {{ is_protected = false }}\n",
        bundle.display(),
        ministack.endpoint
    )
}

async fn secret(ministack: &MiniStack, name: &str, value: &str) -> String {
    let create = ["secretsmanager", "create-secret", "--name", name, "--secret-string", value];
    text(&ministack.aws(create).await["ARN"])
}

/// Waits until this is so; an emulator has no notification.
pub(crate) async fn wait_for(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(TWO_MINUTES.max(PATIENCE), waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}
