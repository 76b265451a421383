//! An AWS account in moto, accessed through the AWS command line.

use std::ffi::OsStr;

use local::config::target_folder;
use serde_json::Value;
use tests::Moto;
use tokio::process::Command;

pub(crate) const REGION: &str = "us-east-1";

/// One process makes all calls, because each start of the AWS command line is slow.
const INVENTORY: &str = "
import boto3, sys
from jmespath import search
for service, call, query in [
    ('lambda', 'list_functions', 'Functions[].FunctionName'),
    ('sqs', 'list_queues', 'QueueUrls'),
    ('iam', 'list_roles', 'Roles[].RoleName'),
    ('cloudwatch', 'describe_alarms', 'MetricAlarms[].AlarmName'),
    ('cloudwatch', 'list_dashboards', 'DashboardEntries[].DashboardName'),
    ('logs', 'describe_log_groups', 'logGroups[].logGroupName'),
    ('events', 'list_rules', 'Rules[].Name'),
    ('scheduler', 'list_schedule_groups', 'ScheduleGroups[].Name'),
    ('ec2', 'describe_security_groups', 'SecurityGroups[].GroupName'),
    ('ec2', 'describe_vpc_endpoints', 'VpcEndpoints[?State==`available`].ServiceName'),
    ('elbv2', 'describe_load_balancers', 'LoadBalancers[].LoadBalancerName'),
    ('rds', 'describe_db_instances', 'DBInstances[].DBInstanceIdentifier'),
    ('secretsmanager', 'list_secrets', 'SecretList[?!starts_with(Name, `cronbox-dev-database`) && Name!=`cronbox-dev-scheduler-key`].Name'),
]:
    client = boto3.client(service, endpoint_url=sys.argv[1], region_name='us-east-1')
    for name in search(query, getattr(client, call)()) or []:
        if 'cronbox' in name or 'amazonaws' in name:
            print(service, name)
";

/// The account, with what exists before cronbox is applied: a network, and two secrets.
pub(crate) struct Account {
    moto: Moto,
    /// moto's default VPC.
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
    /// An account without anything in it.
    pub(crate) async fn empty() -> Account {
        let moto = Moto::start().await;
        aws(&moto.endpoint, ["s3api", "create-bucket", "--bucket", "states"]).await;
        let none = String::new;
        Account {
            moto,
            vpc: none(),
            subnets: [none(), none()],
            database_group: none(),
            database_secret: none(),
            key_secret: none(),
        }
    }

    pub(crate) async fn with_secrets(dsn: &str, key: &str) -> Account {
        let moto = Moto::start().await;
        let subnets = aws(&moto.endpoint, ["ec2", "describe-subnets"]).await;
        let subnet = |at: usize| text(&subnets["Subnets"][at]["SubnetId"]);
        let vpc = text(&subnets["Subnets"][0]["VpcId"]);
        let group =
            ["ec2", "create-security-group", "--group-name", "database", "--description", "db", "--vpc-id", &vpc];
        let database_group = text(&aws(&moto.endpoint, group).await["GroupId"]);
        let database_secret = secret(&moto.endpoint, "cronbox-dev-database", dsn).await;
        let key_secret = secret(&moto.endpoint, "cronbox-dev-scheduler-key", key).await;
        aws(&moto.endpoint, ["s3api", "create-bucket", "--bucket", "states"]).await;
        Account { subnets: [subnet(0), subnet(1)], vpc, database_group, database_secret, key_secret, moto }
    }

    pub(crate) fn endpoint(&self) -> &str {
        &self.moto.endpoint
    }

    /// One call with the AWS command line.
    pub(crate) async fn aws<const N: usize>(&self, arguments: [&str; N]) -> Value {
        aws(self.endpoint(), arguments).await
    }

    /// All resources of cronbox in the account: functions, queues, roles, alarms, dashboards, logs, rules, groups,
    /// endpoints.
    pub(crate) async fn inventory(&self) -> String {
        let mut command = Command::new(target_folder().join("venv/bin/python"));
        command.env_clear().envs(credentials()).args(["-c", INVENTORY, self.endpoint()]);
        let done = command.output().await.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }
}

async fn secret(endpoint: &str, name: &str, value: &str) -> String {
    let create = ["secretsmanager", "create-secret", "--name", name, "--secret-string", value];
    text(&aws(endpoint, create).await["ARN"])
}

/// One call to this endpoint with the AWS command line.
pub(crate) async fn aws<'a>(endpoint: &str, arguments: impl AsRef<[&'a str]>) -> Value {
    let arguments = arguments.as_ref();
    let mut command = Command::new(target_folder().join("venv/bin/aws"));
    command.env_clear().envs(credentials()).args(["--region", REGION, "--endpoint-url", endpoint, "--output", "json"]);
    let done = command.args(arguments).output().await.unwrap();
    assert!(done.status.success(), "aws {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap_or(Value::Null)
}

/// The environment of each call; moto accepts any credentials.
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
