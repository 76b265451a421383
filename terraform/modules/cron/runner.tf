# Step 6: the runner, a Lambda that every schedule invokes.

resource "aws_cloudwatch_log_group" "runner" {
  # checkov:skip=CKV_AWS_338: a variable; the database, not the log, keeps the decisions and their reasons
  name              = "/aws/lambda/${local.name}-runner"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.logs_kms_key_arn
  tags              = var.tags
}

resource "aws_lambda_function" "runner" {
  # checkov:skip=CKV_AWS_116: the event invoke config below sends failures to a queue, with their error
  # checkov:skip=CKV_AWS_173: no variable contains a secret, and Lambda encrypts them with AWS's own key
  # checkov:skip=CKV_AWS_272: the operator who applies builds and uploads the zip; there is no third party whose signature could be checked
  function_name    = "${local.name}-runner"
  description      = "Delivers a fire of EventBridge Scheduler to cronbox's app."
  role             = aws_iam_role.runner.arn
  filename         = local.zips["runner"].file
  s3_bucket        = var.zips.bucket
  s3_key           = local.zips["runner"].key
  source_code_hash = local.zips["runner"].hash
  # Each change is a version: no invocation has old code with new variables, and a rollback is one call.
  publish       = true
  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  # The minimum; it waits for one HTTP answer.
  memory_size = 128
  # The runner itself ends after 12 s.
  timeout                        = 15
  reserved_concurrent_executions = var.runner_reserved_concurrency

  environment {
    variables = merge(local.emulator, local.traces, {
      CRONBOX_APP_BASE_URL                 = var.app_base_url
      CRONBOX_SCHEDULER_API_KEY_SECRET_ARN = var.scheduler_key_secret_arn
    })
  }

  vpc_config {
    subnet_ids         = var.subnet_ids
    security_group_ids = [aws_security_group.runner.id]
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.runner.name
  }

  tracing_config {
    mode = "PassThrough"
  }

  tags = var.tags

  depends_on = [aws_iam_role_policy.runner, terraform_data.app_deployment]

  lifecycle {
    precondition {
      condition     = local.zips["runner"].is_there
      error_message = "${coalesce(local.zips["runner"].file, "-")} does not exist: run `make lambdas` first, or name a bucket in zips."
    }

    precondition {
      condition     = split(":", var.scheduler_key_secret_arn)[3] == local.region
      error_message = "scheduler_key_secret_arn names a secret of another region; the runner reads secrets of ${local.region} only."
    }
  }
}

# Every schedule invokes this version.
resource "aws_lambda_alias" "runner" {
  name             = "live"
  description      = "The version that every schedule invokes."
  function_name    = aws_lambda_function.runner.function_name
  function_version = aws_lambda_function.runner.version
}

# Lambda tries three times within four minutes, and up to an hour while it is throttled; then the
# fire is a dead letter that `cronbox dlq redrive` delivers. The app recognises late fires by their time. Also without
# the alias, because a schedule that cronbox 0.1 made has none until the publisher has updated it.
resource "aws_lambda_function_event_invoke_config" "runner" {
  for_each = { live = aws_lambda_alias.runner.name, latest = "$LATEST" }

  function_name                = aws_lambda_function.runner.function_name
  qualifier                    = each.value
  maximum_event_age_in_seconds = 3600
  maximum_retry_attempts       = 2

  destination_config {
    on_failure {
      destination = aws_sqs_queue.dead_letters["runner"].arn
    }
  }
}

resource "aws_iam_role" "runner" {
  name                 = "${local.global_name}-runner"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "Permissions of cronbox's runner; none on EventBridge Scheduler."
  assume_role_policy   = data.aws_iam_policy_document.lambda_trust.json
  tags                 = var.tags
}

resource "aws_iam_role_policy" "runner" {
  name   = "runner"
  role   = aws_iam_role.runner.id
  policy = data.aws_iam_policy_document.runner.json
}

data "aws_iam_policy_document" "runner" {
  source_policy_documents = [
    data.aws_iam_policy_document.runner_own.json,
    data.aws_iam_policy_document.lambda["runner"].json,
  ]
}

# What only the runner may do.
data "aws_iam_policy_document" "runner_own" {
  statement {
    sid       = "SchedulerKey"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.scheduler_key_secret_arn]
  }
}

# The runner writes one line for each delivery; status 0 means that no server answered.
resource "aws_cloudwatch_log_metric_filter" "runner_not_accepted" {
  name           = "${local.name}-runner-not-accepted"
  log_group_name = aws_cloudwatch_log_group.runner.name
  # By the field `accepted`, not by the status, because a page of a proxy may have status 200, too.
  pattern = "{ ($.fields.step = 6) && ($.fields.accepted IS FALSE) }"

  metric_transformation {
    name          = "RunnerNotAccepted"
    namespace     = "cronbox/${var.env}"
    value         = "1"
    default_value = "0"
  }
}

resource "aws_cloudwatch_log_metric_filter" "runner_accepted" {
  name           = "${local.name}-runner-accepted"
  log_group_name = aws_cloudwatch_log_group.runner.name
  pattern        = "{ ($.fields.step = 6) && ($.fields.status = 202) && ($.fields.accepted IS TRUE) }"

  metric_transformation {
    name          = "RunnerAccepted"
    namespace     = "cronbox/${var.env}"
    value         = "1"
    default_value = "0"
  }
}
