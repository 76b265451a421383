# Plans the module with the real provider and no account: what is asserted is what AWS would get.

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

override_data {
  target          = data.aws_caller_identity.current
  override_during = plan
  values = {
    account_id = "123456789012"
  }
}

# Known before an apply, so that the policies can be read.
override_resource {
  target          = aws_iam_role.scheduler
  override_during = plan
  values = {
    arn = "arn:aws:iam::123456789012:role/cronbox-test-scheduler"
  }
}

override_resource {
  target          = aws_iam_role.publisher
  override_during = plan
  values = {
    arn = "arn:aws:iam::123456789012:role/cronbox-test-publisher"
  }
}

override_resource {
  target          = aws_iam_role.runner
  override_during = plan
  values = {
    arn = "arn:aws:iam::123456789012:role/cronbox-test-runner"
  }
}

override_resource {
  target          = aws_lambda_function.runner
  override_during = plan
  values = {
    arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner"
  }
}

override_resource {
  target          = aws_sqs_queue.dead_letters
  override_during = plan
  values = {
    arn = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-dlq"
  }
}

override_resource {
  target          = aws_scheduler_schedule_group.this
  override_during = plan
  values = {
    arn = "arn:aws:scheduler:eu-west-1:123456789012:schedule-group/cronbox-test"
  }
}

override_resource {
  target          = aws_cloudwatch_log_group.publisher
  override_during = plan
  values = {
    arn = "arn:aws:logs:eu-west-1:123456789012:log-group:publisher"
  }
}

override_resource {
  target          = aws_cloudwatch_log_group.runner
  override_during = plan
  values = {
    arn = "arn:aws:logs:eu-west-1:123456789012:log-group:runner"
  }
}

variables {
  env                        = "test"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0123456789abcdef0"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
  scheduler_key_secret_arn   = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
  app_base_url               = "https://cron.example.com"
  # Any file will do: what is in the zips is not this test's matter.
  publisher_zip = "versions.tf"
  runner_zip    = "versions.tf"
}

run "publisher" {
  command = plan

  assert {
    condition     = aws_lambda_function.publisher.timeout == 50 && aws_lambda_function.publisher.reserved_concurrent_executions == 2
    error_message = "A tick must end within its minute, and two may overlap."
  }

  assert {
    condition     = aws_lambda_function_event_invoke_config.publisher.maximum_event_age_in_seconds == 60 && aws_lambda_function_event_invoke_config.publisher.maximum_retry_attempts == 0
    error_message = "A tick that waits is out of date; the next one does its work."
  }

  assert {
    condition     = !anytrue([for name, value in aws_lambda_function.publisher.environment[0].variables : strcontains(value, "postgres://")])
    error_message = "A DSN holds a password and never stands in the environment."
  }

  assert {
    condition     = aws_cloudwatch_event_rule.tick.schedule_expression == "rate(1 minute)" && aws_lambda_permission.tick.principal == "events.amazonaws.com"
    error_message = "A rule invokes the publisher every minute."
  }
}

run "runner" {
  command = plan

  assert {
    condition     = aws_lambda_function.runner.timeout == 15 && aws_lambda_function_event_invoke_config.runner.maximum_retry_attempts == 2 && aws_lambda_function_event_invoke_config.runner.maximum_event_age_in_seconds == 3600
    error_message = "A delivery gives up after 12 s, is tried three times, and waits for an hour at most."
  }
}

run "dead_letters" {
  command = plan

  assert {
    condition     = toset(keys(aws_sqs_queue.dead_letters)) == toset(["schedules", "runner", "publisher"])
    error_message = "Three hands can drop a fire or a tick."
  }

  assert {
    condition     = alltrue([for queue in aws_sqs_queue.dead_letters : queue.message_retention_seconds == 1209600 && queue.sqs_managed_sse_enabled])
    error_message = "Dead letters are kept for 14 days, encrypted."
  }
}

run "alarms" {
  command = plan

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["publisher-heartbeat"].treat_missing_data == "breaching"
    error_message = "A publisher that does not run sends no number."
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : alarm.treat_missing_data == "notBreaching" if name != "publisher-heartbeat"])
    error_message = "Elsewhere a missing number is health."
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : endswith(alarm.alarm_description, "#${name}")])
    error_message = "An alarm links to its paragraph."
  }

  assert {
    condition     = !anytrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.metric_name == "Throttles" && try(alarm.dimensions["FunctionName"], "") == "cronbox-test-publisher"])
    error_message = "A long drain throttles the publisher in health."
  }
}

run "refuses_an_environment_that_no_name_can_hold" {
  command = plan

  variables {
    env = "An Environment"
  }

  expect_failures = [var.env]
}

run "refuses_a_secret_that_is_no_arn" {
  command = plan

  variables {
    database_secret_arn = "postgres://cron:hunter2@db/cronbox"
  }

  expect_failures = [var.database_secret_arn]
}
