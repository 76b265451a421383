# The tasks of the app: four containers of one image. The first three end: they bring the schema up to date, and make sure that
# both keys exist. The app waits for them.

locals {
  # Where a value of a secret in JSON is.
  owner     = { PGUSER = "${local.database.owner_secret_arn}:username::", PGPASSWORD = "${local.database.owner_secret_arn}:password::" }
  app_login = { PGUSER = "${aws_secretsmanager_secret.login["app"].arn}:username::", PGPASSWORD = "${aws_secretsmanager_secret.login["app"].arn}:password::" }

  # The programs whose logins a migration makes, as its variables name them.
  programs = merge({ SERVE = "app", PUBLISH = "publisher" }, var.has_notifier ? { NOTIFY = "notifier" } : {})

  # The login is in PGUSER and PGPASSWORD.
  connection = { DATABASE_URL = "postgres://${local.database.host}:${local.database.port}/${local.database.name}?sslmode=verify-full" }

  # Both URLs may contain a password, so they are secrets, too.
  operator_secrets = { for name, arn in {
    CRONBOX_SMTP_URL           = try(var.mail.smtp_url_secret_arn, null)
    CRONBOX_HEARTBEAT_URL      = var.heartbeat_url_secret_arn
    CRONBOX_OIDC_CLIENT_SECRET = var.oidc_client_secret_arn
  } : name => arn if arn != null }
  # A value of a secret in JSON follows its ARN.
  operator_secret_arns = [for arn in values(local.operator_secrets) : join(":", slice(split(":", arn), 0, 7))]

  notifications = merge(
    { CRONBOX_PUBLIC_URL = coalesce(var.public_url, local.url) },
    var.mail == null ? {} : { CRONBOX_MAIL_FROM = var.mail.from },
  )

  # A key that was rotated or revoked before the secret had its successor must not keep later tasks from their start. No option of the command:
  # the image before would refuse one that it does not know, and could not be rolled back to.
  ended_keys = { CRONBOX_ACCEPT_ENDED_KEYS = "true" }

  # What the module sets, so that var.settings may not: its validation reads these names. They must not depend on var.settings.
  own_settings = {
    CRONBOX_ENV             = var.env
    CRONBOX_BIND_ADDR       = "0.0.0.0:${local.api_port}"
    CRONBOX_ADMIN_ADDR      = "0.0.0.0:${local.admin_port}"
    CRONBOX_TRUSTED_PROXIES = join(",", distinct(data.aws_subnet.balancer[*].cidr_block))
    # Each request passes one load balancer. Its subnets may have other machines, too, whose own header is not believed.
    CRONBOX_TRUSTED_HOPS = tostring(var.proxies_before_balancer + 1)
    CRONBOX_METRICS_EMF  = "true"
    # The wait for the next request's headers is also the idle time of a connection: longer than that of the load balancer.
    # Slow clients hold connections of the load balancer, not of the app.
    CRONBOX_HEADER_TIMEOUT_MS   = "75000"
    CRONBOX_SHUTDOWN_DRAIN_SECS = "110"
  }

  traces = var.otlp_endpoint == null ? {} : { OTEL_EXPORTER_OTLP_ENDPOINT = var.otlp_endpoint }

  containers = {
    migrate = {
      # After a migration the version before must still start: a rollback, a scale-out and a crash all start its tasks.
      command     = ["migrate", "--roles", "--accept-newer"]
      waits_for   = []
      environment = local.connection
      # Also the names come from the secrets. After a rotation a task of an older revision may still start, for example after a rollback: it
      # then makes the login that it uses, and changes no password of the login that all other tasks use.
      secrets = merge(local.owner, [for program, login in local.programs : {
        "CRONBOX_${program}_LOGIN"    = "${aws_secretsmanager_secret.login[login].arn}:username::"
        "CRONBOX_${program}_PASSWORD" = "${aws_secretsmanager_secret.login[login].arn}:password::"
      }]...)
    }
    scheduler-key = {
      command     = ["keys", "ensure", "--kind", "scheduler", "--name", "runner"]
      waits_for   = ["migrate"]
      environment = merge(local.connection, local.ended_keys)
      secrets     = merge(local.app_login, { CRONBOX_KEY = aws_secretsmanager_secret.key["scheduler"].arn })
    }
    admin-key = {
      command     = ["keys", "ensure", "--kind", "admin", "--name", "operator"]
      waits_for   = ["migrate"]
      environment = merge(local.connection, local.ended_keys)
      secrets     = merge(local.app_login, { CRONBOX_KEY = aws_secretsmanager_secret.key["admin"].arn })
    }
    app = {
      command     = ["serve"]
      waits_for   = ["scheduler-key", "admin-key"]
      environment = merge(local.notifications, var.settings, local.connection, local.traces, local.own_settings)
      secrets     = merge(local.app_login, local.operator_secrets, { CRONBOX_SECRETS_KEY = aws_secretsmanager_secret.secrets_key.arn })
    }
  }

  definitions = [
    for name in ["migrate", "scheduler-key", "admin-key", "app"] : {
      name                   = name
      image                  = var.image
      command                = local.containers[name].command
      essential              = name == "app"
      readonlyRootFilesystem = true
      user                   = "65532:65532"
      dependsOn              = [for other in local.containers[name].waits_for : { containerName = other, condition = "SUCCESS" }]
      environment            = [for key in sort(keys(local.containers[name].environment)) : { name = key, value = local.containers[name].environment[key] }]
      secrets                = [for key in sort(keys(local.containers[name].secrets)) : { name = key, valueFrom = local.containers[name].secrets[key] }]
      portMappings           = name == "app" ? [for port in [local.api_port, local.admin_port] : { containerPort = port, hostPort = port, protocol = "tcp" }] : []
      mountPoints            = []
      volumesFrom            = []
      systemControls         = []
      # Raising it starts new tasks, which read the secrets anew.
      dockerLabels = { "cronbox.secrets-version" = tostring(var.secrets_version) }
      # The longest that Fargate permits, for runs that end. A migration may take long before the app starts.
      stopTimeout = 120
      logConfiguration = {
        logDriver = "awslogs"
        options = {
          awslogs-group         = aws_cloudwatch_log_group.app.name
          awslogs-region        = local.region
          awslogs-stream-prefix = name
        }
      }
    }
  ]
}

resource "aws_cloudwatch_log_group" "app" {
  # checkov:skip=CKV_AWS_158: a variable; a log of the app has no secret
  # checkov:skip=CKV_AWS_338: a variable; the database, not the log, keeps the decisions and their reasons
  name              = "/ecs/${local.name}-app"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.logs_kms_key_arn
  tags              = var.tags
}

resource "aws_ecs_cluster" "this" {
  # checkov:skip=CKV_AWS_65: the app sends its own metrics; container insights costs by metric
  name = local.name
  tags = var.tags
}

resource "aws_ecs_task_definition" "app" {
  family                   = "${local.name}-app"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = var.size.cpu
  memory                   = var.size.memory
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task.arn
  container_definitions    = jsonencode(local.definitions)
  # The revision before stays active: ECS rolls a deployment back to it. Revisions cost nothing.
  skip_destroy = true
  tags         = var.tags

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.architecture == "arm64" ? "ARM64" : "X86_64"
  }

  # A task that cannot read a secret does not start.
  depends_on = [
    aws_secretsmanager_secret_version.login,
    aws_secretsmanager_secret_version.key,
    aws_secretsmanager_secret_version.secrets_key,
    aws_iam_role_policy.execution,
  ]
}

resource "aws_ecs_service" "app" {
  name            = "${local.name}-app"
  cluster         = aws_ecs_cluster.this.id
  task_definition = aws_ecs_task_definition.app.arn
  desired_count   = var.size.min
  launch_type     = "FARGATE"
  propagate_tags  = "SERVICE"
  # The functions change after this service, so an apply that goes on has tasks that have migrated the database.
  wait_for_steady_state = var.waits_for_tasks
  # After the loss of a zone, the tasks return to both.
  availability_zone_rebalancing = "ENABLED"
  tags                          = var.tags

  # New tasks first; the old ones end when these answer.
  deployment_minimum_healthy_percent = 100
  deployment_maximum_percent         = 200
  # A migration of a large database takes minutes before the app answers.
  health_check_grace_period_seconds = 900

  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }

  network_configuration {
    subnets          = var.subnet_ids
    security_groups  = [aws_security_group.app.id]
    assign_public_ip = false
  }

  load_balancer {
    target_group_arn = aws_lb_target_group.app.arn
    container_name   = "app"
    container_port   = local.api_port
  }

  # A migration tries for ten minutes to get its locks, and takes as long as a large table needs.
  timeouts {
    create = "40m"
    update = "40m"
  }

  lifecycle {
    # The scaling decides, also about a fixed size.
    ignore_changes = [desired_count]

    # After a rollback the service is steady, too.
    postcondition {
      condition     = self.task_definition == aws_ecs_task_definition.app.arn
      error_message = "ECS has rolled the deployment back, because the new tasks did not start: the tasks before still run, and no function was changed. docs/runbook.md#app-unhealthy"
    }
  }

  depends_on = [aws_lb_listener.https, aws_vpc_security_group_ingress_rule.database_from_app, aws_vpc_security_group_egress_rule.app_to_all]
}
