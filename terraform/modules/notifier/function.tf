# The notifier: a Lambda that sends messages of channels of the kind aws to event buses and SNS topics.

locals {
  # `try`, because a destroy needs no zip. A plan that creates the function asks for the file by a precondition.
  zip_file = var.zip.folder == null ? null : "${var.zip.folder}/notifier.zip"
  zip_hash = local.zip_file == null ? null : try(filebase64sha256(local.zip_file), null)

  # What the secret may leave out; a value of the secret has priority.
  database = { for name, value in {
    CRONBOX_DB_HOST = var.database_host
    CRONBOX_DB_PORT = var.database_host == null ? null : tostring(var.database_port)
    CRONBOX_DB_NAME = var.database_name
  } : name => value if value != null }

  optional = { for name, value in {
    # Only an emulator needs the address of its endpoint.
    AWS_ENDPOINT_URL   = var.aws_endpoint_url
    CRONBOX_PUBLIC_URL = var.public_url
  } : name => value if value != null }
}

resource "aws_cloudwatch_log_group" "notifier" {
  # checkov:skip=CKV_AWS_338: a variable; the database, not the log, keeps what became of each message
  name              = "/aws/lambda/${local.name}-notifier"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.logs_kms_key_arn
  tags              = var.tags
}

# A function that changed before the app's deployment would read a schema that is not there yet, and would stay new if ECS rolled the app back.
resource "terraform_data" "app_deployment" {
  input = var.app_deployment
}

resource "aws_lambda_function" "notifier" {
  # checkov:skip=CKV_AWS_116: the event invoke config below sends failures to a queue, with their error
  # checkov:skip=CKV_AWS_173: no variable contains a secret, and Lambda encrypts them with AWS's own key
  # checkov:skip=CKV_AWS_272: the operator who applies builds and uploads the zip; there is no third party whose signature could be checked
  function_name    = "${local.name}-notifier"
  description      = "Sends cronbox's notifications to event buses and SNS topics."
  role             = aws_iam_role.notifier.arn
  filename         = local.zip_file
  s3_bucket        = var.zip.bucket
  s3_key           = var.zip.bucket == null ? null : "${var.zip.prefix}notifier-${var.zip.sha256}.zip"
  source_code_hash = local.zip_hash
  # Each change is a version: no invocation has old code with new variables.
  publish       = true
  runtime       = "provided.al2023"
  handler       = "bootstrap"
  architectures = [var.architecture]
  # Lambda gives CPU by memory, and TLS needs some.
  memory_size = 256
  # Under the tick's minute, so that two ticks overlap only when one is late.
  timeout                        = 50
  reserved_concurrent_executions = var.reserved_concurrency

  environment {
    variables = merge(local.optional, local.database, {
      CRONBOX_ENV           = var.env
      CRONBOX_DB_SECRET_ARN = var.database_secret_arn
      CRONBOX_DB_CA_FILE    = coalesce(var.database_ca_file, "/var/task/rds-ca.pem")
      CRONBOX_POOLER        = var.database_pooler
    })
  }

  vpc_config {
    subnet_ids         = var.subnet_ids
    security_group_ids = [aws_security_group.notifier.id]
  }

  logging_config {
    log_format = "JSON"
    log_group  = aws_cloudwatch_log_group.notifier.name
  }

  tracing_config {
    mode = "PassThrough"
  }

  tags = var.tags

  # A permission that is not in effect yet is an error in the first minute.
  depends_on = [aws_iam_role_policy.notifier, terraform_data.app_deployment]

  lifecycle {
    precondition {
      condition     = local.zip_file == null || fileexists(coalesce(local.zip_file, "-"))
      error_message = "${coalesce(local.zip_file, "-")} does not exist: run `make lambdas` first, or name a bucket in zip."
    }

    precondition {
      condition     = split(":", var.database_secret_arn)[3] == local.region
      error_message = "database_secret_arn names a secret of another region; the notifier reads secrets of ${local.region} only."
    }
  }
}

# The tick invokes this version.
resource "aws_lambda_alias" "notifier" {
  name             = "live"
  description      = "The version that the tick invokes."
  function_name    = aws_lambda_function.notifier.function_name
  function_version = aws_lambda_function.notifier.version
}

# A failed tick is not repeated: the next one sends what it did not. One that waits a minute is out of date.
resource "aws_lambda_function_event_invoke_config" "notifier" {
  function_name                = aws_lambda_function.notifier.function_name
  qualifier                    = aws_lambda_alias.notifier.name
  maximum_event_age_in_seconds = 60
  maximum_retry_attempts       = 0

  destination_config {
    on_failure {
      destination = aws_sqs_queue.dead_letters.arn
    }
  }
}

resource "aws_cloudwatch_event_rule" "tick" {
  name                = "${local.name}-notifier-tick"
  description         = "Invokes cronbox's notifier."
  schedule_expression = "rate(1 minute)"
  state               = "ENABLED"
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "tick" {
  rule      = aws_cloudwatch_event_rule.tick.name
  target_id = "notifier"
  arn       = aws_lambda_alias.notifier.arn

  # As in the Lambda's own queue: a tick that waits is out of date. A minute is the minimum that AWS accepts.
  retry_policy {
    maximum_event_age_in_seconds = 60
    maximum_retry_attempts       = 0
  }
}

# A rule needs a permission.
resource "aws_lambda_permission" "tick" {
  statement_id   = "tick"
  action         = "lambda:InvokeFunction"
  function_name  = aws_lambda_function.notifier.function_name
  qualifier      = aws_lambda_alias.notifier.name
  principal      = "events.amazonaws.com"
  source_arn     = aws_cloudwatch_event_rule.tick.arn
  source_account = local.account_id
}
