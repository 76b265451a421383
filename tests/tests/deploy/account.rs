//! An AWS account, which is moto's, seen through the AWS command line.

use std::ffi::OsStr;

use local::config::target_folder;
use serde_json::Value;
use tests::Moto;
use tokio::process::Command;

pub(crate) const REGION: &str = "us-east-1";

/// The account, and what is there before cronbox: a network, and two secrets.
pub(crate) struct Account {
    moto: Moto,
    /// The VPC that moto makes by itself.
    pub(crate) vpc: String,
    /// Two of its subnets.
    pub(crate) subnets: [String; 2],
    /// The database's security group.
    pub(crate) database_group: String,
    /// The database secret's ARN.
    pub(crate) database_secret: String,
    /// The scheduler key secret's ARN.
    pub(crate) key_secret: String,
}

impl Account {
    pub(crate) async fn with_secrets(dsn: &str, key: &str) -> Account {
        let moto = Moto::start().await;
        let subnets = aws(&moto.endpoint, ["ec2", "describe-subnets"]).await;
        let subnet = |at: usize| text(&subnets["Subnets"][at]["SubnetId"]);
        let vpc = text(&subnets["Subnets"][0]["VpcId"]);
        let group = ["ec2", "create-security-group", "--group-name", "database", "--description", "db", "--vpc-id", &vpc];
        let database_group = text(&aws(&moto.endpoint, group).await["GroupId"]);
        let database_secret = secret(&moto.endpoint, "cronbox-dev-database", dsn).await;
        let key_secret = secret(&moto.endpoint, "cronbox-dev-scheduler-key", key).await;
        aws(&moto.endpoint, ["s3api", "create-bucket", "--bucket", "states"]).await;
        Account { subnets: [subnet(0), subnet(1)], vpc, database_group, database_secret, key_secret, moto }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.moto.endpoint
    }

    /// One call, as `aws` on the command line makes it.
    pub(crate) async fn aws<const N: usize>(&self, arguments: [&str; N]) -> Value {
        aws(self.endpoint(), arguments).await
    }

    /// What of cronbox is in the account: names of functions, queues, roles, alarms, log groups, rules and groups.
    pub(crate) async fn inventory(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (arguments, query) in [
            (["lambda", "list-functions"], "Functions[].FunctionName"),
            (["sqs", "list-queues"], "QueueUrls"),
            (["iam", "list-roles"], "Roles[].RoleName"),
            (["cloudwatch", "describe-alarms"], "MetricAlarms[].AlarmName"),
            (["cloudwatch", "list-dashboards"], "DashboardEntries[].DashboardName"),
            (["logs", "describe-log-groups"], "logGroups[].logGroupName"),
            (["events", "list-rules"], "Rules[].Name"),
            (["scheduler", "list-schedule-groups"], "ScheduleGroups[].Name"),
            (["ec2", "describe-security-groups"], "SecurityGroups[].GroupName"),
            (["ec2", "describe-vpc-endpoints"], "VpcEndpoints[?State=='available'].ServiceName"),
        ] {
            let names = self.aws([arguments[0], arguments[1], "--query", query]).await;
            found.extend(names.as_array().into_iter().flatten().map(text));
        }
        found.retain(|name| name.contains("cronbox") || name.contains("com.amazonaws"));
        found
    }
}

async fn secret(endpoint: &str, name: &str, value: &str) -> String {
    let create = ["secretsmanager", "create-secret", "--name", name, "--secret-string", value];
    text(&aws(endpoint, create).await["ARN"])
}

async fn aws<const N: usize>(endpoint: &str, arguments: [&str; N]) -> Value {
    let mut command = Command::new(target_folder().join("venv/bin/aws"));
    command.env_clear().envs(credentials()).env("AWS_ENDPOINT_URL", endpoint).env("AWS_DEFAULT_REGION", REGION);
    let done = command.args(["--output", "json"]).args(arguments).output().await.unwrap();
    assert!(done.status.success(), "aws {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap_or(Value::Null)
}

/// What everybody needs to make a call; moto believes all.
pub(crate) fn credentials() -> [(&'static str, &'static OsStr); 4] {
    [
        ("AWS_REGION", OsStr::new(REGION)),
        ("AWS_ACCESS_KEY_ID", OsStr::new("emulator")),
        ("AWS_SECRET_ACCESS_KEY", OsStr::new("emulator")),
        ("PATH", OsStr::new("/usr/local/bin:/usr/bin:/bin")),
    ]
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
