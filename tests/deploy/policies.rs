//! What the policies of the created roles allow.

use serde_json::{Value, json};

use crate::account::{Account, REGION, text};

/// Actions for which IAM supports no resource.
const WITHOUT_RESOURCE: [&str; 8] = [
    "scheduler:ListSchedules",
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DetachNetworkInterface",
    "ec2:UnassignPrivateIpAddresses",
];

/// No role has all actions, or an action on all resources. Only one role may be passed, and only to one service.
pub(crate) async fn are_least(account: &Account, scheduler_role: &str) {
    let mut passed = Vec::new();
    for role in ["publisher", "runner", "scheduler"] {
        for (action, statement) in least_actions(account, role).await {
            if action == "iam:PassRole" {
                passed.push(statement);
            }
        }
    }
    assert_eq!(passed.len(), 1, "{passed:?}");
    assert_eq!(passed[0]["Resource"], scheduler_role);
    assert_eq!(passed[0]["Condition"], json!({"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}));
}

/// The notifier may publish to these targets, and to no other one.
pub(crate) async fn notifier_publishes_to(account: &Account, bus: &str, topic: &str) {
    let permitted = least_actions(account, "notifier").await;
    for (action, target) in [("events:PutEvents", bus), ("sns:Publish", topic)] {
        let of_action: Vec<_> = permitted.iter().filter(|(permitted, _)| permitted == action).collect();
        assert_eq!(of_action.len(), 1, "{permitted:?}");
        assert_eq!(list(&of_action[0].1["Resource"]), [target]);
    }
    let others = permitted.iter().filter(|(action, _)| action.starts_with("events:") || action.starts_with("sns:"));
    assert_eq!(others.count(), 2, "{permitted:?}");
}

/// Each action of a role with its statement; none is a pattern, and none is permitted on all resources if IAM can restrict
/// it.
async fn least_actions(account: &Account, role: &str) -> Vec<(String, Value)> {
    let mut actions = Vec::new();
    for statement in statements(account, role).await {
        // Only code of a function, which makes no interfaces, is denied something.
        let is_denial = statement["Sid"] == "NoNetworkInterfacesByCode";
        assert_eq!(statement["Effect"], if is_denial { "Deny" } else { "Allow" });
        for action in list(&statement["Action"]) {
            assert!(!action.contains('*'), "{role}: {action}");
            let is_everywhere = list(&statement["Resource"]).contains(&"*".to_owned());
            assert_eq!(is_everywhere, WITHOUT_RESOURCE.contains(&action.as_str()), "{role}: {statement}");
            actions.push((action, statement.clone()));
        }
    }
    actions
}

/// EventBridge can assume the role only for this account's schedule group.
pub(crate) async fn trust_one_group(account: &Account, group: &str) {
    let role = account.aws(["iam", "get-role", "--role-name", &role_name("scheduler")]).await;
    let statement = &role["Role"]["AssumeRolePolicyDocument"]["Statement"][0];
    assert_eq!(statement["Principal"], json!({"Service": "scheduler.amazonaws.com"}));
    let made = account.aws(["scheduler", "get-schedule-group", "--name", group]).await;
    let account_and_group = json!({"aws:SourceAccount": "123456789012", "aws:SourceArn": made["Arn"]});
    assert_eq!(statement["Condition"], json!({"StringEquals": account_and_group}));
}

/// The queues in the policies exist. The policies contain their ARNs as text, so Terraform cannot check that.
pub(crate) async fn name_what_is_there(account: &Account) {
    let queues = account.aws(["sqs", "list-queues", "--query", "QueueUrls"]).await;
    for role in ["publisher", "runner", "scheduler"] {
        let statements = statements(account, role).await;
        let messages = statements.iter().find(|statement| statement["Sid"] == "DeadLetters").unwrap();
        let (_, name) = messages["Resource"].as_str().unwrap().rsplit_once(':').unwrap();
        let is_there = queues.as_array().unwrap().iter().any(|url| text(url).ends_with(&format!("/{name}")));
        assert!(is_there, "{role} writes to {name}");
    }
}

/// Roles are of the account, so their names have the region.
fn role_name(role: &str) -> String {
    format!("cronbox-dev-{REGION}-{role}")
}

async fn statements(account: &Account, role: &str) -> Vec<Value> {
    let policy = account.aws(["iam", "get-role-policy", "--role-name", &role_name(role), "--policy-name", role]).await;
    policy["PolicyDocument"]["Statement"].as_array().unwrap().clone()
}

fn list(one_or_many: &Value) -> Vec<String> {
    match one_or_many {
        Value::Array(many) => many.iter().map(text).collect(),
        one => vec![text(one)],
    }
}
