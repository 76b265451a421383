# Every night `cronbox verify --yesterday` proves the ledger of the day before. A difference, or a task that stops before it has an
# answer, goes to the topics. A task that ECS refuses has no such event: its request goes to a queue with an alarm.

resource "aws_sqs_queue" "verify" {
  name = "${local.name}-verify-dlq"
  # The most that SQS keeps: 14 days.
  message_retention_seconds = 1209600
  # Managed encryption: a customer's key would need a key policy for scheduler.amazonaws.com.
  sqs_managed_sse_enabled = true
  tags                    = var.tags
}

resource "aws_sqs_queue_policy" "verify" {
  queue_url = aws_sqs_queue.verify.id
  policy    = data.aws_iam_policy_document.verify_queue.json
}

data "aws_iam_policy_document" "verify_queue" {
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.verify.arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_ecs_task_definition" "verify" {
  family                   = "${local.name}-verify"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 256
  memory                   = 512
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task.arn
  tags                     = var.tags

  container_definitions = jsonencode([{
    name                   = "verify"
    image                  = var.image
    entryPoint             = ["/usr/bin/cronbox"]
    command                = ["verify", "--yesterday"]
    essential              = true
    readonlyRootFilesystem = true
    user                   = "65532:65532"
    environment            = [{ name = "CRONBOX_URL", value = local.url }]
    secrets                = [{ name = "CRONBOX_KEY", valueFrom = aws_secretsmanager_secret.key["admin"].arn }]
    portMappings           = []
    mountPoints            = []
    volumesFrom            = []
    systemControls         = []
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.app.name
        awslogs-region        = local.region
        awslogs-stream-prefix = "verify"
      }
    }
  }])

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.architecture == "arm64" ? "ARM64" : "X86_64"
  }
}

resource "aws_scheduler_schedule" "verify" {
  # checkov:skip=CKV_AWS_297: the schedule has no secret
  name        = "${local.name}-verify"
  description = "Proves the ledger of the day before."
  # After the grace, and after the watchdog has decided the last times of the day.
  schedule_expression          = "cron(30 0 * * ? *)"
  schedule_expression_timezone = "UTC"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = aws_ecs_cluster.this.arn
    role_arn = aws_iam_role.verify.arn

    ecs_parameters {
      task_definition_arn = aws_ecs_task_definition.verify.arn
      launch_type         = "FARGATE"

      network_configuration {
        subnets          = var.subnet_ids
        security_groups  = [aws_security_group.app.id]
        assign_public_ip = false
      }
    }

    retry_policy {
      maximum_event_age_in_seconds = 3600
      maximum_retry_attempts       = 5
    }

    dead_letter_config {
      arn = aws_sqs_queue.verify.arn
    }
  }
}

resource "aws_iam_role" "verify" {
  name                 = "${local.global_name}-verify"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "With it, EventBridge Scheduler starts the verification."
  assume_role_policy   = data.aws_iam_policy_document.verify_trust.json
  tags                 = var.tags
}

data "aws_iam_policy_document" "verify_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account_id]
    }
  }
}

resource "aws_iam_role_policy" "verify" {
  name   = "verify"
  role   = aws_iam_role.verify.id
  policy = data.aws_iam_policy_document.verify.json
}

data "aws_iam_policy_document" "verify" {
  statement {
    sid       = "Start"
    actions   = ["ecs:RunTask"]
    resources = ["${aws_ecs_task_definition.verify.arn_without_revision}:*"]

    condition {
      test     = "ArnEquals"
      variable = "ecs:cluster"
      values   = [aws_ecs_cluster.this.arn]
    }
  }

  statement {
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.verify.arn]
  }

  statement {
    sid       = "PassItsRoles"
    actions   = ["iam:PassRole"]
    resources = [aws_iam_role.execution.arn, aws_iam_role.task.arn]

    condition {
      test     = "StringEquals"
      variable = "iam:PassedToService"
      values   = ["ecs-tasks.amazonaws.com"]
    }
  }
}

resource "aws_cloudwatch_event_rule" "verify_failed" {
  name        = "${local.name}-verify-failed"
  description = "The verification of cronbox's ledger has found a difference, or did not run."
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.ecs"]
    detail-type = ["ECS Task State Change"]
    detail = {
      clusterArn = [aws_ecs_cluster.this.arn]
      group      = ["family:${local.name}-verify"]
      lastStatus = ["STOPPED"]
      # A task that did not start has a container without an exit code.
      containers = { exitCode = [{ anything-but = [0] }, { exists = false }] }
    }
  })
}

resource "aws_cloudwatch_event_target" "verify_failed" {
  for_each = toset(var.alarm_topic_arns)

  rule = aws_cloudwatch_event_rule.verify_failed.name
  arn  = each.value
}
