# Steps 3 and 4: the publisher, a Lambda that a rule invokes every minute. It also mirrors the dead letters, and redrives those
# that operators request.

locals {
  # What a secret may leave out; a value of the secret has priority.
  database = { for name, value in {
    CRONBOX_DB_HOST = var.database_host
    CRONBOX_DB_PORT = var.database_host == null ? null : tostring(var.database_port)
    CRONBOX_DB_NAME = var.database_name
  } : name => value if value != null }
}

resource "aws_cloudwatch_log_group" "publisher" {
  # checkov:skip=CKV_AWS_338: a variable; the database, not the log, keeps the decisions and their reasons
  name              = "/aws/lambda/${local.name}-publisher"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.logs_kms_key_arn
  tags              = var.tags
}

# The time of the last change of what is published. It only rises, also when an older configuration is
# applied again. A publisher with a lower generation, for example one that still runs elsewhere, publishes
# nothing.
resource "terraform_data" "generation" {
  input = plantimestamp()

  triggers_replace = [
    aws_lambda_alias.runner.arn,
    aws_iam_role.scheduler.arn,
    aws_scheduler_schedule_group.this.name,
    aws_sqs_queue.dead_letters["schedules"].arn,
    # The code decides the shape of a schedule.
    coalesce(var.zips.publisher_sha256, local.zips["publisher"].hash, "missing"),
  ]

  lifecycle {
    # Each plan has another time; only a replacement of this resource stores it.
    ignore_changes = [input]
  }
}

resource "aws_lambda_function" "publisher" {
  # checkov:skip=CKV_AWS_116: the event invoke config below sends failures to a queue, with their error
  # checkov:skip=CKV_AWS_173: no variable contains a secret, and Lambda encrypts them with AWS's own key
  # checkov:skip=CKV_AWS_272: the operator who applies builds and uploads the zip; there is no third party whose signature could be checked
  function_name    = "${local.name}-publisher"
  description      = "Drains cronbox's outbox into EventBridge Scheduler."
  role             = aws_iam_role.publisher.arn
  filename         = local.zips["publisher"].file
  s3_bucket        = var.zips.bucket
  s3_key           = local.zips["publisher"].key
  source_code_hash = local.zips["publisher"].hash
  # Each change is a version: no invocation has old code with new variables.
  publish       = true
  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  # It uses 20 MB; Lambda gives CPU by memory, and TLS needs some.
  memory_size = 256
  # Under the tick's minute, so that two ticks overlap only when one is late.
  timeout                        = 50
  reserved_concurrent_executions = var.publisher.reserved_concurrency

  environment {
    variables = merge(local.emulator, local.traces, local.database, {
      CRONBOX_ENV                = var.env
      CRONBOX_DB_SECRET_ARN      = var.database_secret_arn
      CRONBOX_DB_CA_FILE         = coalesce(var.database_ca_file, "/var/task/rds-ca.pem")
      CRONBOX_POOLER             = var.database_pooler
      CRONBOX_RUNNER_LAMBDA_ARN  = aws_lambda_alias.runner.arn
      CRONBOX_SCHEDULER_ROLE_ARN = aws_iam_role.scheduler.arn
      CRONBOX_SCHEDULE_GROUP     = aws_scheduler_schedule_group.this.name
      CRONBOX_SCHEDULE_DLQ_ARN   = aws_sqs_queue.dead_letters["schedules"].arn
      # The mirror of the dead letters, and the app to which the requested ones are redriven.
      CRONBOX_SCHEDULE_DLQ_URL             = aws_sqs_queue.dead_letters["schedules"].id
      CRONBOX_RUNNER_DLQ_URL               = aws_sqs_queue.dead_letters["runner"].id
      CRONBOX_PUBLISHER_DLQ_URL            = aws_sqs_queue.dead_letters["publisher"].id
      CRONBOX_APP_BASE_URL                 = var.app_base_url
      CRONBOX_SCHEDULER_API_KEY_SECRET_ARN = var.scheduler_key_secret_arn

      CRONBOX_BATCH_SIZE        = tostring(var.publisher.batch_size)
      CRONBOX_MAX_ATTEMPTS      = tostring(var.publisher.max_attempts)
      CRONBOX_API_CONCURRENCY   = tostring(var.publisher.api_concurrency)
      CRONBOX_API_TPS           = tostring(var.publisher.api_tps)
      CRONBOX_CONFIG_GENERATION = formatdate("YYYYMMDDhhmmss", terraform_data.generation.input)
    })
  }

  vpc_config {
    subnet_ids         = var.subnet_ids
    security_group_ids = [aws_security_group.publisher.id]
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.publisher.name
  }

  tracing_config {
    mode = "PassThrough"
  }

  tags = var.tags

  # A permission that is not in effect yet is an error in the first minute.
  depends_on = [aws_iam_role_policy.publisher, terraform_data.app_deployment]

  lifecycle {
    precondition {
      condition     = local.zips["publisher"].is_there
      error_message = "${coalesce(local.zips["publisher"].file, "-")} does not exist: run `make lambdas` first, or name a bucket in zips."
    }

    precondition {
      condition     = split(":", var.database_secret_arn)[3] == local.region
      error_message = "database_secret_arn names a secret of another region; the publisher reads secrets of ${local.region} only."
    }

    precondition {
      condition     = var.database_ca_file != null || contains(local.rds_ca_regions, local.region)
      error_message = "publisher.zip has no certificate authorities of RDS in ${local.region}: build it with `make lambdas RDS_CA=file.pem`, and set database_ca_file = \"/var/task/rds-ca.pem\"."
    }
  }
}

# The tick invokes this version.
resource "aws_lambda_alias" "publisher" {
  name             = "live"
  description      = "The version that the tick invokes."
  function_name    = aws_lambda_function.publisher.function_name
  function_version = aws_lambda_function.publisher.version
}

# A failed tick is not repeated: the next one publishes what it did not. One that waits a minute is out of date.
resource "aws_lambda_function_event_invoke_config" "publisher" {
  function_name                = aws_lambda_function.publisher.function_name
  qualifier                    = aws_lambda_alias.publisher.name
  maximum_event_age_in_seconds = 60
  maximum_retry_attempts       = 0

  destination_config {
    on_failure {
      destination = aws_sqs_queue.dead_letters["publisher"].arn
    }
  }
}

resource "aws_iam_role" "publisher" {
  name                 = "${local.global_name}-publisher"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "Permissions of cronbox's publisher."
  assume_role_policy   = data.aws_iam_policy_document.lambda_trust.json
  tags                 = var.tags
}

resource "aws_iam_role_policy" "publisher" {
  name   = "publisher"
  role   = aws_iam_role.publisher.id
  policy = data.aws_iam_policy_document.publisher.json
}

data "aws_iam_policy_document" "publisher" {
  source_policy_documents = [
    data.aws_iam_policy_document.publisher_own.json,
    data.aws_iam_policy_document.lambda["publisher"].json,
  ]
}

# What only the publisher may do.
data "aws_iam_policy_document" "publisher_own" {
  statement {
    sid = "Schedules"
    actions = [
      "scheduler:CreateSchedule",
      "scheduler:DeleteSchedule",
      "scheduler:GetSchedule",
      "scheduler:UpdateSchedule",
    ]
    resources = [local.schedule_arns]
  }

  statement {
    # IAM cannot restrict it to a resource.
    sid       = "ListSchedules"
    actions   = ["scheduler:ListSchedules"]
    resources = ["*"]
  }

  statement {
    sid       = "PassTheSchedulesRole"
    actions   = ["iam:PassRole"]
    resources = [local.role_arns["scheduler"]]

    condition {
      test     = "StringEquals"
      variable = "iam:PassedToService"
      values   = ["scheduler.amazonaws.com"]
    }
  }

  statement {
    sid       = "DatabaseSecret"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.database_secret_arn]
  }

  # It receives each message to mirror it, returns it at once, and deletes it after a redrive.
  statement {
    sid = "MirrorDeadLetters"
    actions = [
      "sqs:ChangeMessageVisibility",
      "sqs:DeleteMessage",
      "sqs:GetQueueAttributes",
      "sqs:ReceiveMessage",
    ]
    resources = [for name in sort(local.dead_letters) : local.dead_letter_arns[name]]
  }

  # It posts the fire of a dead letter as the runner does.
  statement {
    sid       = "SchedulerKey"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.scheduler_key_secret_arn]
  }
}
