//! `terraform apply` with all modules: network, database, app, cron and notifier. The emulator runs none of it; what is shown is that AWS's
//! API accepts the order and the arguments, that no secret is in plan or state, and that everything can be destroyed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::account::{Account, text};
use crate::policies;
use crate::terraform::Dev;

/// What the operator brings, as `cronbox-app keys generate` prints it.
const SCHEDULER_KEY: &str = "cbs_0000000000000000000000000000000000000000000000000000000000001";
const ADMIN_KEY: &str = "cba_0000000000000000000000000000000000000000000000000000000000002";
/// The keys that encrypt, after a rotation.
const ROTATED: &str = "k2:HxwdHhsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=,k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The operator's secret of the mail server.
const SMTP: &str = "arn:aws:secretsmanager:us-east-1:123456789012:secret:smtp-AbCdEf";
/// The targets of notifications.
const BUS: &str = "arn:aws:events:us-east-1:123456789012:event-bus/ops";
const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:finance";

/// Resources of which moto forgets attributes: descriptions of rules, parameters, Performance Insights, the grace and the zones
/// of the service, the log configuration of functions, and with it their versions.
const FORGOTTEN_BY_MOTO: [&str; 23] = [
    "module.cron.aws_lambda_alias.publisher",
    "module.cron.aws_lambda_alias.runner",
    "module.cron.aws_lambda_function.publisher",
    "module.cron.aws_lambda_function.runner",
    "module.cron.aws_vpc_security_group_egress_rule.publisher_to_app",
    "module.cron.aws_vpc_security_group_egress_rule.publisher_to_database",
    "module.cron.aws_vpc_security_group_egress_rule.runner_to_app",
    "module.cron.aws_vpc_security_group_ingress_rule.app_from_publisher[0]",
    "module.cron.aws_vpc_security_group_ingress_rule.app_from_runner[0]",
    "module.cron.aws_vpc_security_group_ingress_rule.database_from_publisher",
    "module.notifier[0].aws_lambda_alias.notifier",
    "module.notifier[0].aws_lambda_function.notifier",
    "module.notifier[0].aws_vpc_security_group_egress_rule.notifier_to_database",
    "module.notifier[0].aws_vpc_security_group_ingress_rule.database_from_notifier",
    "module.service[0].aws_db_instance.this[0]",
    "module.service[0].aws_db_parameter_group.this[0]",
    "module.service[0].aws_ecs_service.app",
    "module.service[0].aws_vpc_security_group_egress_rule.balancer_to_app[\"api\"]",
    "module.service[0].aws_vpc_security_group_egress_rule.balancer_to_app[\"probes\"]",
    "module.service[0].aws_vpc_security_group_ingress_rule.app_from_balancer[\"api\"]",
    "module.service[0].aws_vpc_security_group_ingress_rule.app_from_balancer[\"probes\"]",
    "module.service[0].aws_vpc_security_group_ingress_rule.database_from_app",
    "module.service[0].aws_vpc_security_group_ingress_rule.verification",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_modules_are_applied_and_destroyed() {
    let account = Account::empty().await;
    let dev = Dev::with_values("deploy-whole", account.endpoint(), &values(&account).await).await;
    dev.init().await;
    let said = dev.apply_with(&[("TF_VAR_scheduler_key", SCHEDULER_KEY), ("TF_VAR_admin_key", ADMIN_KEY)]).await;

    let secrets = stored_secrets(&account).await;
    assert!(secrets.iter().any(|secret| secret == SCHEDULER_KEY), "the runner finds its key");
    assert_eq!(secrets.len(), 7, "owner, app, publisher, notifier, two keys, and the key that encrypts");
    let state = dev.stored_state().await;
    logins_are_deleted_after_the_service(&state);
    for secret in secrets.iter().flat_map(|secret| words(secret)) {
        assert!(!state.contains(&secret) && !said.contains(&secret), "a secret is in the state, or was printed");
    }
    // The keys are needed only once.
    let again = dev.changes().await;
    let addresses: BTreeSet<&str> = again.iter().map(|(address, ..)| address.as_str()).collect();
    assert_eq!(addresses, FORGOTTEN_BY_MOTO.into(), "a second plan changes nothing: {again:?}");
    let keys = "module.service[0].aws_secretsmanager_secret_version.key";
    dev.apply_target(keys, &[("TF_VAR_secrets_version", "2")]).await;
    let kept = stored_secrets(&account).await;
    assert!(kept.iter().any(|secret| secret == SCHEDULER_KEY), "a new version without keys keeps them");
    assert!(kept.iter().any(|secret| secret == ADMIN_KEY), "a new version without keys keeps them");
    stored_secrets_keys_stay(&account, &dev).await;
    the_app_waits_for_its_schema(&account).await;
    logins_and_passwords_are_of_one_version(&account).await;
    policies::notifier_publishes_to(&account, BUS, TOPIC).await;

    dev.destroy().await;
    assert_eq!(dev.state().await, "");
    assert_eq!(account.inventory().await, "");
}

/// The app of a restored database starts only with the key that has encrypted it, so an operator stores that key before the tasks exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stored_before_the_apply_stay() {
    let account = Account::empty().await;
    let dev = Dev::with_values("deploy-drill", account.endpoint(), &values(&account).await).await;
    dev.init().await;
    let keys = [("TF_VAR_scheduler_key", SCHEDULER_KEY), ("TF_VAR_admin_key", ADMIN_KEY)];
    dev.apply_target("module.service[0].aws_secretsmanager_secret.secrets_key", &keys).await;
    assert!(!dev.state().await.contains("aws_ecs_service"), "no task starts before the key is stored");
    let name = "cronbox-dev-secrets-key";
    account.aws(["secretsmanager", "put-secret-value", "--secret-id", name, "--secret-string", ROTATED]).await;
    // Of a complete apply, only this resource writes the secret.
    dev.apply_target("module.service[0].aws_secretsmanager_secret_version.secrets_key", &keys).await;
    let read = account.aws(["secretsmanager", "get-secret-value", "--secret-id", name]).await;
    assert_eq!(text(&read["SecretString"]), ROTATED);
}

/// One apply upgrades the app and the functions. A function that changed first would read a schema that no task has made yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_change_after_the_app() {
    let account = Account::empty().await;
    let dev = Dev::with_values("deploy-order", account.endpoint(), &values(&account).await).await;
    dev.init().await;
    let service = "module.service.aws_ecs_service.app";
    for function in [
        "module.cron.aws_lambda_function.publisher",
        "module.cron.aws_lambda_function.runner",
        "module.notifier.aws_lambda_function.notifier",
    ] {
        let needed = dev.dependencies_of(function).await;
        assert!(needed.contains(service), "{function} needs {needed:?}");
    }
    let needed = dev.dependencies_of(service).await;
    assert!(needed.contains("module.service.aws_ecs_task_definition.app"), "the graph was not read: {needed:?}");
    assert!(!needed.iter().any(|one| one.starts_with("module.cron.")), "the first apply has a beginning: {needed:?}");

    // What the tasks before may read, they may read until the new ones run.
    let running = "module.service.aws_iam_role_policy.running";
    assert!(needed.contains("module.service.aws_iam_role_policy.execution"), "new tasks may read their secrets");
    assert!(!needed.contains(running), "the tasks before may no longer read theirs: {needed:?}");
    assert!(dev.dependencies_of(running).await.contains(service), "the tasks before may no longer read their secrets");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_refuses_what_cannot_work() {
    let account = Account::empty().await;
    let dev = Dev::with_values("deploy-service", account.endpoint(), "").await;
    dev.test_module("service", account.endpoint()).await;
}

async fn values(account: &Account) -> String {
    let requested = account.aws(["acm", "request-certificate", "--domain-name", "cron.example.com"]).await;
    let certificate = text(&requested["CertificateArn"]);
    format!(
        "region = \"us-east-1\"\naccount_id = \"123456789012\"\n\
         image = \"123456789012.dkr.ecr.us-east-1.amazonaws.com/cronbox@sha256:{}\"\n\
         domain = \"cron.example.com\"\ncertificate_arn = \"{certificate}\"\n\
         app_size = {{ min = 2, max = 2 }}\ndatabase = {{ is_protected = false, keeps_backups = false }}\nendpoint_url = \"{}\"\n\
         notifier = {{ target_arns = [\"{BUS}\", \"{TOPIC}\"] }}\n\
         mail = {{ smtp_url_secret_arn = \"{SMTP}\", from = \"cronbox@example.com\" }}\n",
        "a".repeat(64),
        account.endpoint()
    )
}

/// The contents of all secrets of the account.
async fn stored_secrets(account: &Account) -> Vec<String> {
    let listed = account.aws(["secretsmanager", "list-secrets", "--query", "SecretList[].ARN"]).await;
    let mut contents = Vec::new();
    for arn in listed.as_array().unwrap() {
        let arn = text(arn);
        let read = account.aws(["secretsmanager", "get-secret-value", "--secret-id", &arn]).await;
        contents.push(text(&read["SecretString"]));
    }
    contents
}

/// After rotations Secrets Manager may delete the version that Terraform knows. Another random key would open no secret of the database.
async fn stored_secrets_keys_stay(account: &Account, dev: &Dev) {
    let name = "cronbox-dev-secrets-key";
    account.aws(["secretsmanager", "put-secret-value", "--secret-id", name, "--secret-string", ROTATED]).await;
    let version = "module.service[0].aws_secretsmanager_secret_version.secrets_key";
    dev.forget(version).await;
    dev.apply_target(version, &[]).await;
    let read = account.aws(["secretsmanager", "get-secret-value", "--secret-id", name]).await;
    assert_eq!(text(&read["SecretString"]), ROTATED);
}

/// A secret that no configuration names any more is deleted for good. By this entry of the state Terraform does so only after it has updated what
/// named the secret, and not if that fails.
fn logins_are_deleted_after_the_service(state: &str) {
    let state: Value = serde_json::from_str(state).unwrap();
    let resources = state["resources"].as_array().unwrap();
    let is_login = |one: &&Value| one["type"] == "aws_secretsmanager_secret" && one["name"] == "login";
    let logins = resources.iter().find(is_login).unwrap()["instances"].as_array().unwrap();
    assert_eq!(logins.len(), 3, "app, publisher and notifier");
    for login in logins {
        assert_eq!(login["create_before_destroy"], true, "{}", login["index_key"]);
    }
}

/// What of a secret must be nowhere else: its text, or the password of a login.
fn words(secret: &str) -> Vec<String> {
    match serde_json::from_str::<Value>(secret) {
        Ok(login) => vec![text(&login["password"])],
        Err(_) => vec![secret.to_owned()],
    }
}

/// The containers of the task: the app starts when the schema is there, and both keys.
async fn the_app_waits_for_its_schema(account: &Account) {
    let described = account.aws(["ecs", "describe-task-definition", "--task-definition", "cronbox-dev-app"]).await;
    let containers = described["taskDefinition"]["containerDefinitions"].as_array().unwrap();
    let container = |name: &str| containers.iter().find(|container| container["name"] == name).unwrap();
    let waits = |name: &str| -> Vec<String> {
        let waits = container(name)["dependsOn"].as_array().unwrap();
        waits.iter().map(|other| format!("{} {}", text(&other["containerName"]), text(&other["condition"]))).collect()
    };
    assert_eq!(waits("app"), ["scheduler-key SUCCESS", "admin-key SUCCESS"]);
    assert_eq!(waits("scheduler-key"), ["migrate SUCCESS"]);
    for name in ["scheduler-key", "admin-key"] {
        let environment = container(name)["environment"].as_array().unwrap();
        let accepted = environment.iter().find(|one| one["name"] == "CRONBOX_ACCEPT_ENDED_KEYS");
        assert_eq!(accepted.unwrap()["value"], "true", "a key that was rotated or revoked stops no task");
        let words = container(name)["command"].as_array().unwrap();
        assert!(!words.contains(&Value::from("--accept-ended")), "an older image would refuse it");
    }
    let app = container("app");
    assert_eq!((&app["essential"], &app["readonlyRootFilesystem"]), (&Value::Bool(true), &Value::Bool(true)));
    assert_eq!((&app["user"], &app["stopTimeout"]), (&Value::from("65532:65532"), &Value::from(120)));
    let secrets: Vec<&str> =
        app["secrets"].as_array().unwrap().iter().map(|secret| secret["name"].as_str().unwrap()).collect();
    assert_eq!(
        secrets,
        ["CRONBOX_SECRETS_KEY", "CRONBOX_SMTP_URL", "PGPASSWORD", "PGUSER"],
        "the login of least privilege"
    );
}

/// A task of an older revision that starts after a rotation must not give its old login the new password.
async fn logins_and_passwords_are_of_one_version(account: &Account) {
    for definition in ["cronbox-dev-app", "cronbox-dev-operator"] {
        let described = account.aws(["ecs", "describe-task-definition", "--task-definition", definition]).await;
        let container = described["taskDefinition"]["containerDefinitions"][0].clone();
        let of = |list: &str, value: &str| -> Vec<(String, String)> {
            let named = container[list].as_array().unwrap().iter();
            named.map(|one| (text(&one["name"]), text(&one[value]))).collect()
        };
        let fixed = of("environment", "value");
        assert!(fixed.iter().all(|(name, _)| !name.ends_with("_LOGIN")), "{definition}: {fixed:?}");
        let secrets = of("secrets", "valueFrom");
        for program in ["SERVE", "PUBLISH", "NOTIFY"] {
            let found = |end: &str| {
                let name = format!("CRONBOX_{program}_{end}");
                secrets.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{definition} lacks {name}"))
            };
            let ((_, login), (_, password)) = (found("LOGIN"), found("PASSWORD"));
            assert_eq!(login.strip_suffix(":username::"), password.strip_suffix(":password::"), "{definition}");
        }
    }
}
