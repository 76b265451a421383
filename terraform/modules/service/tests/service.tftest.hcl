# Plans the module against an emulator, at the address in AWS_ENDPOINT_URL: a plan opens ephemeral values, and so calls Secrets
# Manager. `make terraform` starts it (tests/deploy/whole.rs).

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "emulator"
  secret_key                  = "emulator"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
}

override_data {
  target          = data.aws_subnet.balancer
  override_during = plan
  values          = { cidr_block = "10.0.1.0/24" }
}

variables {
  env                 = "test"
  image               = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/cronbox@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  vpc_id              = "vpc-0123456789abcdef0"
  subnet_ids          = ["subnet-0000000000000000a", "subnet-0000000000000000b"]
  balancer_subnet_ids = ["subnet-0000000000000000c", "subnet-0000000000000000d"]
  domain              = "cron.example.com"
  certificate_arn     = "arn:aws:acm:eu-west-1:123456789012:certificate/0"
  alarm_topic_arns    = ["arn:aws:sns:eu-west-1:123456789012:oncall"]
  existing_database = {
    host              = "db.example.com"
    name              = "cronbox"
    security_group_id = "sg-0000000000000000d"
    owner_secret_arn  = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:owner-AbCdEf"
  }
}

run "a_database_that_exists_is_used" {
  command = plan

  assert {
    condition     = length(aws_db_instance.this) == 0 && length(aws_secretsmanager_secret.owner) == 0
    error_message = "No database is made."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.database_from_app.security_group_id == "sg-0000000000000000d"
    error_message = "It admits the app."
  }
}

run "the_balancer" {
  command = plan

  assert {
    condition     = aws_lb.this.internal && aws_lb.this.drop_invalid_header_fields && aws_lb.this.enable_deletion_protection
    error_message = "Internal and protected, unless the values say otherwise."
  }

  assert {
    condition     = aws_lb_listener.https.ssl_policy == "ELBSecurityPolicy-TLS13-1-2-2021-06" && aws_lb_listener.https.protocol == "HTTPS"
    error_message = "TLS 1.2 or 1.3, and no http."
  }

  assert {
    condition     = aws_lb_target_group.app.health_check[0].path == "/healthz" && aws_lb_target_group.app.health_check[0].port == "8081"
    error_message = "A probe that does not ask the database, at the port that no client reaches."
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.clients) == 0
    error_message = "Only the runner, whose rule the cron module makes, and the verification reach it."
  }
}

run "a_balancer_on_the_internet_admits_the_fires" {
  command = plan

  variables {
    is_internal   = false
    client_cidrs  = ["198.51.100.0/24"]
    nat_addresses = ["203.0.113.7", "203.0.113.8"]
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.nat[*].cidr_ipv4 == ["203.0.113.7/32", "203.0.113.8/32"]
    error_message = "The runner, the publisher and the verification arrive from the NAT gateways."
  }
}

run "an_internal_balancer_admits_no_public_address" {
  command = plan

  variables {
    nat_addresses = ["203.0.113.7"]
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.nat) == 0
    error_message = "The runner reaches it by its security group."
  }
}

run "refuses_a_balancer_on_the_internet_without_the_fires" {
  command = plan

  variables {
    is_internal  = false
    client_cidrs = ["198.51.100.0/24"]
  }

  expect_failures = [var.nat_addresses]
}

run "refuses_the_address_of_a_gateway_twice" {
  command = plan

  variables {
    is_internal   = false
    client_cidrs  = ["203.0.113.7/32"]
    nat_addresses = ["203.0.113.7"]
  }

  expect_failures = [var.nat_addresses]
}

run "the_service" {
  command = plan

  assert {
    condition = (
      aws_ecs_service.app.desired_count == 2 && aws_ecs_service.app.deployment_minimum_healthy_percent == 100 &&
      aws_ecs_service.app.deployment_circuit_breaker[0].rollback && !aws_ecs_service.app.network_configuration[0].assign_public_ip
    )
    error_message = "Two tasks, a rolling update that ends a bad version, no public address."
  }

  assert {
    condition     = aws_ecs_service.app.wait_for_steady_state
    error_message = "The functions, which expect the schema of the new tasks, change after these."
  }

  assert {
    condition     = aws_appautoscaling_target.app.max_capacity == 6 && aws_cloudwatch_metric_alarm.queue[0].metric_name == "RunsWaitingSeconds"
    error_message = "More tasks when runs wait."
  }

  assert {
    condition = (
      aws_appautoscaling_policy.slots[0].policy_type == "TargetTrackingScaling" &&
      aws_appautoscaling_policy.slots[0].target_tracking_scaling_policy_configuration[0].target_value == 600 &&
      aws_appautoscaling_policy.slots[0].target_tracking_scaling_policy_configuration[0].customized_metric_specification[0].metric_name == "executor_slots_used" &&
      one(aws_appautoscaling_policy.slots[0].target_tracking_scaling_policy_configuration[0].customized_metric_specification[0].dimensions).value == "test"
    )
    error_message = "Tasks that are full of waiting runs do not end, although their CPU is idle."
  }

  assert {
    condition     = aws_ecs_task_definition.app.skip_destroy
    error_message = "The revision to which ECS rolls a deployment back stays active."
  }

  assert {
    condition     = toset(keys(aws_cloudwatch_metric_alarm.this)) == toset(["app-unhealthy", "app-errors", "refusals", "job-failing", "job-overdue", "verify-not-started"])
    error_message = "The alarms of an app without a database of its own."
  }

  assert {
    condition = { for name in ["job-failing", "job-overdue"] : name => [
      aws_cloudwatch_metric_alarm.this[name].namespace, aws_cloudwatch_metric_alarm.this[name].metric_name,
      aws_cloudwatch_metric_alarm.this[name].dimensions.Env, aws_cloudwatch_metric_alarm.this[name].statistic
      ] } == {
      job-failing = ["cronbox/app", "job_failing", "test", "Maximum"]
      job-overdue = ["cronbox/app", "job_overdue_seconds", "test", "Maximum"]
    }
    error_message = "A job that fails or does not run rings: each task writes the same value, of the worst job."
  }

  assert {
    condition     = length(aws_db_event_subscription.this) == 0
    error_message = "A database that exists already has events of its own."
  }

  assert {
    condition     = length(setsubtract(keys(aws_cloudwatch_metric_alarm.this), flatten(regexall("<a id=\"([a-z-]+)\"></a>", file("../../../docs/runbook.md"))))) == 0
    error_message = "Each alarm has its paragraph in the runbook."
  }

  assert {
    condition     = aws_scheduler_schedule.verify.schedule_expression == "cron(30 0 * * ? *)" && length(aws_cloudwatch_event_target.verify_failed) == 1
    error_message = "Yesterday is verified every night, and a failure is told."
  }

  assert {
    condition     = aws_sqs_queue.verify.name == "cronbox-test-verify-dlq" && length(aws_scheduler_schedule.verify.target[0].dead_letter_config) == 1
    error_message = "A verification that ECS does not start is told, too."
  }
}

run "a_fixed_size_is_applied" {
  command = plan

  variables {
    size = { min = 3, max = 3 }
  }

  assert {
    condition     = aws_appautoscaling_target.app.min_capacity == 3 && aws_appautoscaling_target.app.max_capacity == 3
    error_message = "The service ignores changes of its count; the target applies them."
  }

  assert {
    condition     = length(aws_appautoscaling_policy.cpu) == 0 && length(aws_appautoscaling_policy.slots) == 0 && length(aws_cloudwatch_metric_alarm.queue) == 0
    error_message = "Nothing scales a fixed size."
  }
}

run "the_scaling_follows_the_slots" {
  command = plan

  variables {
    settings = { CRONBOX_EXECUTOR_SLOTS = "200" }
  }

  assert {
    condition     = aws_appautoscaling_policy.slots[0].target_tracking_scaling_policy_configuration[0].target_value == 120
    error_message = "Six tenths of the slots of a task."
  }
}

run "the_app" {
  command = plan

  assert {
    condition = local.containers.app.environment == {
      CRONBOX_ADMIN_ADDR          = "0.0.0.0:8081"
      CRONBOX_BIND_ADDR           = "0.0.0.0:8080"
      CRONBOX_ENV                 = "test"
      CRONBOX_HEADER_TIMEOUT_MS   = "75000"
      CRONBOX_METRICS_EMF         = "true"
      CRONBOX_PUBLIC_URL          = "https://cron.example.com"
      CRONBOX_SHUTDOWN_DRAIN_SECS = "110"
      CRONBOX_TRUSTED_HOPS        = "1"
      CRONBOX_TRUSTED_PROXIES     = "10.0.1.0/24"
      DATABASE_URL                = "postgres://db.example.com:5432/cronbox?sslmode=verify-full"
    }
    error_message = "The app gets its settings, and no secret by value; only the balancer's subnets are proxies, and only the entry that the balancer appends is believed."
  }

  assert {
    condition     = tonumber(local.containers.app.environment.CRONBOX_HEADER_TIMEOUT_MS) > aws_lb.this.idle_timeout * 1000
    error_message = "The app keeps an idle connection for longer than the load balancer."
  }

  assert {
    condition     = local.logins == { app = "cronbox_serve_test_1", publisher = "cronbox_publish_test_1" }
    error_message = "Environments that share a server have logins of their own."
  }

  assert {
    condition = (
      local.containers.migrate.environment == local.connection &&
      alltrue([for name in ["CRONBOX_SERVE_LOGIN", "CRONBOX_SERVE_PASSWORD", "CRONBOX_PUBLISH_LOGIN", "CRONBOX_PUBLISH_PASSWORD"] : contains(keys(local.containers.migrate.secrets), name)])
    )
    error_message = "The migration makes the login that the secret names: with a name of the task definition it would give the login of the tasks that run another password."
  }

  assert {
    condition     = alltrue([for name in ["scheduler-key", "admin-key"] : local.containers[name].environment.CRONBOX_ACCEPT_ENDED_KEYS == "true"])
    error_message = "A key that was rotated or revoked stops no task."
  }

  assert {
    condition     = alltrue([for name in ["scheduler-key", "admin-key"] : !contains(local.containers[name].command, "--accept-ended")])
    error_message = "An image that does not know the option refuses it, and then no task starts after a rollback."
  }
}

run "notifications_get_their_urls_from_secrets" {
  command = plan

  variables {
    mail = {
      smtp_url_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:smtp-AbCdEf:url::"
      from                = "cronbox <cronbox@example.com>"
    }
    heartbeat_url_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:heartbeat-AbCdEf"
    public_url               = "https://cronbox.example.com"
  }

  assert {
    condition = { for name, value in local.containers.app.environment : name => value if contains(["CRONBOX_MAIL_FROM", "CRONBOX_PUBLIC_URL"], name) } == {
      CRONBOX_MAIL_FROM  = "cronbox <cronbox@example.com>"
      CRONBOX_PUBLIC_URL = "https://cronbox.example.com"
    }
    error_message = "The app knows the sender, and where people reach it."
  }

  assert {
    condition = local.operator_secrets == {
      CRONBOX_HEARTBEAT_URL = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:heartbeat-AbCdEf"
      CRONBOX_SMTP_URL      = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:smtp-AbCdEf:url::"
    }
    error_message = "Both URLs are read from the secrets of the operator, at the start of a task."
  }

  assert {
    condition = local.operator_secret_arns == [
      "arn:aws:secretsmanager:eu-west-1:123456789012:secret:heartbeat-AbCdEf",
      "arn:aws:secretsmanager:eu-west-1:123456789012:secret:smtp-AbCdEf",
    ]
    error_message = "ECS may read both secrets."
  }
}

run "without_urls_no_secret_of_the_operator_is_read" {
  command = plan

  assert {
    condition     = length(local.operator_secrets) == 0 && local.notifications == { CRONBOX_PUBLIC_URL = "https://cron.example.com" }
    error_message = "No mail server and no heartbeat, unless the values name them; messages link to the domain."
  }

  assert {
    condition     = !contains(keys(local.logins), "notifier")
    error_message = "No login for a notifier that is not there."
  }
}

run "the_notifier_has_a_login_of_its_own" {
  command = plan

  variables {
    has_notifier = true
  }

  assert {
    condition     = local.logins.notifier == "cronbox_notify_test_1" && contains(keys(local.containers.migrate.secrets), "CRONBOX_NOTIFY_LOGIN")
    error_message = "The migration makes the login that the secret names."
  }
}

run "refuses_a_mail_server_in_clear_text" {
  command = plan

  variables {
    mail = { smtp_url_secret_arn = "smtps://user:hunter2@mail.example.com:465", from = "cronbox@example.com" }
  }

  expect_failures = [var.mail]
}

run "refuses_a_heartbeat_in_clear_text" {
  command = plan

  variables {
    heartbeat_url_secret_arn = "https://hc-ping.com/0195"
  }

  expect_failures = [var.heartbeat_url_secret_arn]
}

run "an_operators_command_has_what_a_migration_has" {
  command = plan

  assert {
    condition     = aws_ecs_task_definition.operator.family == "cronbox-test-operator" && local.operator.environment == merge(local.containers.migrate.environment, { CRONBOX_ENV = "test" })
    error_message = "Each command of cronbox-app works there: it has the address and the environment."
  }

  assert {
    condition     = toset(keys(local.operator.secrets)) == toset(["CRONBOX_PUBLISH_LOGIN", "CRONBOX_PUBLISH_PASSWORD", "CRONBOX_SECRETS_KEY", "CRONBOX_SERVE_LOGIN", "CRONBOX_SERVE_PASSWORD", "PGPASSWORD", "PGUSER"])
    error_message = "The owner's login, the names and passwords of the others, the key that encrypts, and no key of the API."
  }

  assert {
    condition     = local.operator.secrets.PGUSER == "arn:aws:secretsmanager:eu-west-1:123456789012:secret:owner-AbCdEf:username::"
    error_message = "The owner's login."
  }

  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.database_from_operator) == 0
    error_message = "No machine reaches the database, unless the values name its group."
  }
}

run "machines_of_operators_reach_the_database" {
  command = plan

  variables {
    operator_security_group_ids = ["sg-0000000000000000e"]
  }

  assert {
    condition = (
      aws_vpc_security_group_ingress_rule.database_from_operator[0].security_group_id == "sg-0000000000000000d" &&
      aws_vpc_security_group_ingress_rule.database_from_operator[0].referenced_security_group_id == "sg-0000000000000000e" &&
      aws_vpc_security_group_ingress_rule.database_from_operator[0].from_port == 5432
    )
    error_message = "For psql."
  }

  assert {
    condition     = aws_vpc_security_group_ingress_rule.app_from_operator[0].from_port == 8081 && aws_vpc_security_group_ingress_rule.balancer_from_operator[0].from_port == 443
    error_message = "For the metrics of a task, and for the API."
  }
}

run "a_rotation_makes_new_tasks_with_another_login" {
  command = plan

  variables {
    secrets_version = 2
  }

  assert {
    condition     = local.definitions[0].dockerLabels["cronbox.secrets-version"] == "2" && local.logins.app == "cronbox_serve_test_2" && local.logins.publisher == "cronbox_publish_test_2"
    error_message = "The task definition changes, so that ECS starts new tasks; those that run keep a login that is valid."
  }
}

run "a_database_is_made" {
  command = plan

  variables {
    existing_database = null
  }

  assert {
    condition = (
      aws_db_instance.this[0].multi_az && aws_db_instance.this[0].storage_encrypted && aws_db_instance.this[0].deletion_protection &&
      aws_db_instance.this[0].backup_retention_period == 14 && !aws_db_instance.this[0].publicly_accessible && !aws_db_instance.this[0].skip_final_snapshot
    )
    error_message = "Two zones, encrypted, backed up, protected, private."
  }

  assert {
    condition     = !aws_db_instance.this[0].allow_major_version_upgrade
    error_message = "No major upgrade by mistake."
  }

  assert {
    condition = { for parameter in aws_db_parameter_group.this[0].parameter : parameter.name => parameter.value if contains(["rds.force_ssl", "max_connections", "max_locks_per_transaction"], parameter.name) } == {
      "rds.force_ssl"           = "1"
      max_connections           = "496"
      max_locks_per_transaction = "200"
    }
    error_message = "What cronbox relies on."
  }

  assert {
    condition     = { for parameter in aws_db_parameter_group.this[0].parameter : parameter.name => parameter.value if startswith(parameter.name, "log_parameter_") } == { log_parameter_max_length = "0", log_parameter_max_length_on_error = "0" }
    error_message = "The log of a slow statement has no input, no URL and no result of a tenant."
  }

  assert {
    condition     = { for log, group in aws_cloudwatch_log_group.database : group.name => group.retention_in_days } == { "/aws/rds/instance/cronbox-test/postgresql" = 30, "/aws/rds/instance/cronbox-test/upgrade" = 30 }
    error_message = "A log group that RDS makes never expires."
  }

  assert {
    condition     = aws_db_instance.this[0].enabled_cloudwatch_logs_exports == toset(["postgresql", "upgrade"])
    error_message = "Each exported log has its group, which is there before the instance."
  }

  assert {
    condition     = alltrue([for parameter in aws_db_parameter_group.this[0].parameter : parameter.apply_method == "pending-reboot" if contains(["rds.force_ssl", "autovacuum_naptime", "log_parameter_max_length_on_error"], parameter.name)])
    error_message = "RDS keeps this method for values that equal its defaults, so each plan would change another one."
  }

  assert {
    condition     = contains(keys(aws_cloudwatch_metric_alarm.this), "database-storage") && contains(keys(aws_cloudwatch_metric_alarm.this), "database-cpu")
    error_message = "Its alarms."
  }

  assert {
    # RDS grows 20 GiB when 2 GiB are free.
    condition     = aws_cloudwatch_metric_alarm.this["database-storage"].threshold == 1073741824
    error_message = "The alarm rings when RDS should have grown the storage, and has not."
  }

  assert {
    condition = { for topic, subscription in aws_db_event_subscription.this : topic => [subscription.source_type, one(subscription.source_ids), join(", ", sort(subscription.event_categories))] } == {
      "arn:aws:sns:eu-west-1:123456789012:oncall" = ["db-instance", "cronbox-test", "failure, low storage"]
    }
    error_message = "RDS itself says that the storage is low, at any size."
  }

  assert {
    condition     = alltrue([for secret in aws_secretsmanager_secret.login : secret.recovery_window_in_days == 0])
    error_message = "A notifier that is switched on again finds its name free."
  }

  assert {
    condition     = aws_secretsmanager_secret.owner[0].recovery_window_in_days == 30 && aws_secretsmanager_secret.secrets_key.recovery_window_in_days == 30 && alltrue([for key in aws_secretsmanager_secret.key : key.recovery_window_in_days == 30])
    error_message = "What a backup needs can be restored."
  }
}

run "a_database_without_protection_keeps_its_backups" {
  command = plan

  variables {
    existing_database = null
    database          = { is_protected = false }
  }

  assert {
    condition     = !aws_db_instance.this[0].deletion_protection && !aws_lb.this.enable_deletion_protection
    error_message = "It can be destroyed."
  }

  assert {
    condition     = !aws_db_instance.this[0].skip_final_snapshot && !aws_db_instance.this[0].delete_automated_backups
    error_message = "What is destroyed can be restored."
  }

  assert {
    condition     = startswith(aws_db_instance.this[0].final_snapshot_identifier, "cronbox-test-final-2")
    error_message = "No earlier final snapshot has its name."
  }

  assert {
    condition     = aws_secretsmanager_secret.secrets_key.recovery_window_in_days == 30 && aws_secretsmanager_secret.owner[0].recovery_window_in_days == 30
    error_message = "Without the key that encrypts a backup cannot be used."
  }
}

run "a_trial_leaves_nothing" {
  command = plan

  variables {
    existing_database = null
    database          = { is_protected = false, keeps_backups = false }
  }

  assert {
    condition     = aws_db_instance.this[0].skip_final_snapshot && aws_db_instance.this[0].delete_automated_backups && aws_secretsmanager_secret.secrets_key.recovery_window_in_days == 0
    error_message = "Its names are free at once."
  }
}

run "a_major_upgrade_is_possible" {
  command = plan

  variables {
    existing_database = null
    database          = { engine_version = "17", allows_major_upgrade = true, apply_now = true }
  }

  assert {
    condition     = aws_db_instance.this[0].allow_major_version_upgrade && aws_db_instance.this[0].apply_immediately && aws_db_parameter_group.this[0].family == "postgres17"
    error_message = "RDS upgrades at once, with the parameters of the new version."
  }
}

run "refuses_a_major_upgrade_at_night" {
  command = plan

  variables {
    existing_database = null
    database          = { engine_version = "17", allows_major_upgrade = true }
  }

  expect_failures = [var.database]
}

run "connections_follow_the_size" {
  command = plan

  variables {
    existing_database = null
    size              = { max = 4 }
    settings          = { CRONBOX_DB_MAX_CONNECTIONS = "20" }
  }

  assert {
    condition     = local.max_connections == 176
    error_message = "The old and the new tasks of a deployment, two publishers and operators."
  }
}

run "warns_of_too_few_connections" {
  command = plan

  variables {
    existing_database = null
    database          = { max_connections = 200 }
  }

  expect_failures = [check.connections]
}

run "refuses_an_image_by_tag" {
  command = plan

  variables {
    image = "example.com/cronbox:latest"
  }

  expect_failures = [var.image]
}

run "refuses_one_subnet" {
  command = plan

  variables {
    subnet_ids = ["subnet-0000000000000000a"]
  }

  expect_failures = [var.subnet_ids]
}

run "refuses_a_domain_without_a_certificate" {
  command = plan

  variables {
    certificate_arn = null
  }

  expect_failures = [var.certificate_arn]
}

run "refuses_secrets_in_settings" {
  command = plan

  variables {
    settings = { CRONBOX_SECRETS_KEY = "k1:MDEy" }
  }

  expect_failures = [var.settings]
}

run "refuses_the_secret_of_a_client_in_settings" {
  command = plan

  variables {
    settings = { CRONBOX_OIDC_CLIENT_SECRET = "hunter2" }
  }

  expect_failures = [var.settings]
}

run "people_sign_in_with_a_provider" {
  command = plan

  variables {
    settings = {
      CRONBOX_OIDC_ISSUER    = "https://login.example.com"
      CRONBOX_OIDC_AUDIENCE  = "cronbox"
      CRONBOX_OIDC_CLIENT_ID = "cronbox-console"
      CRONBOX_OIDC_GROUPS    = "{\"groups\": [{\"group\": \"ops\", \"role\": \"admin\"}]}"
    }
    oidc_client_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:oidc-AbCdEf"
  }

  assert {
    condition     = local.containers.app.environment.CRONBOX_OIDC_GROUPS == "{\"groups\": [{\"group\": \"ops\", \"role\": \"admin\"}]}"
    error_message = "The groups need no file: the container has none of its own."
  }

  assert {
    condition     = local.containers.app.secrets.CRONBOX_OIDC_CLIENT_SECRET == var.oidc_client_secret_arn && contains(local.operator_secret_arns, var.oidc_client_secret_arn)
    error_message = "ECS reads the client's secret, and may."
  }
}

run "refuses_the_secret_of_no_client" {
  command = plan

  variables {
    oidc_client_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:oidc-AbCdEf"
  }

  expect_failures = [var.oidc_client_secret_arn]
}

run "refuses_settings_that_the_module_sets" {
  command = plan

  variables {
    settings = { CRONBOX_TRUSTED_HOPS = "2" }
  }

  expect_failures = [var.settings]
}

run "refuses_a_timeout_that_the_module_sets" {
  command = plan

  variables {
    settings = { CRONBOX_HEADER_TIMEOUT_MS = "30000" }
  }

  expect_failures = [var.settings]
}

run "proxies_before_the_balancer_are_counted" {
  command = plan

  variables {
    proxies_before_balancer = 1
  }

  assert {
    condition     = local.containers.app.environment.CRONBOX_TRUSTED_HOPS == "2" && local.containers.app.environment.CRONBOX_TRUSTED_PROXIES == "10.0.1.0/24"
    error_message = "The client is the entry that the CDN appends; only the load balancer connects to the app."
  }
}

run "refuses_half_a_proxy" {
  command = plan

  variables {
    proxies_before_balancer = 0.5
  }

  expect_failures = [var.proxies_before_balancer]
}

run "refuses_settings_that_are_not_ours" {
  command = plan

  variables {
    settings = { DATABASE_URL = "postgres://cron:hunter2@db/cronbox" }
  }

  expect_failures = [var.settings]
}

run "refuses_a_size_without_a_task" {
  command = plan

  variables {
    size = { min = 0 }
  }

  expect_failures = [var.size]
}

run "refuses_a_size_that_fargate_does_not_have" {
  command = plan

  variables {
    size = { cpu = 512, memory = 8192 }
  }

  expect_failures = [var.size]
}

run "refuses_a_cpu_that_fargate_does_not_have" {
  command = plan

  variables {
    size = { cpu = 768, memory = 2048 }
  }

  expect_failures = [var.size]
}

run "larger_tasks_are_possible" {
  command = plan

  variables {
    size = { cpu = 2048, memory = 4096 }
  }

  assert {
    condition     = aws_ecs_task_definition.app.memory == "4096"
    error_message = "Each pair of Fargate."
  }
}

run "refuses_a_database_without_backups" {
  command = plan

  variables {
    database = { backup_days = 0 }
  }

  expect_failures = [var.database]
}

run "refuses_a_key_that_is_none" {
  command = plan

  variables {
    scheduler_key = "hunter2"
  }

  expect_failures = [var.scheduler_key]
}

run "refuses_a_key_of_another_kind" {
  command = plan

  variables {
    admin_key = "cbs_0000000000000000000000000000000000000000000000000000000000001"
  }

  expect_failures = [var.admin_key]
}
