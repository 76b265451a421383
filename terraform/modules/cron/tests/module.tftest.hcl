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
  values          = { account_id = "123456789012" }
}

# Known before an apply, so that a test can read the connections.
override_resource {
  target          = aws_iam_role.scheduler
  override_during = plan
  values          = { arn = "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-scheduler" }
}

override_resource {
  target          = aws_iam_role.publisher
  override_during = plan
  values          = { arn = "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-publisher" }
}

override_resource {
  target          = aws_iam_role.runner
  override_during = plan
  values          = { arn = "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-runner" }
}

override_resource {
  target          = aws_lambda_function.runner
  override_during = plan
  values          = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner" }
}

override_resource {
  target          = aws_lambda_function.publisher
  override_during = plan
  values          = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-publisher" }
}

override_resource {
  target          = aws_lambda_alias.runner
  override_during = plan
  values          = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner:live" }
}

override_resource {
  target          = aws_lambda_alias.publisher
  override_during = plan
  values          = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-publisher:live" }
}

override_resource {
  target          = aws_sqs_queue.dead_letters["schedules"]
  override_during = plan
  values = {
    arn = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-schedules-dlq"
    id  = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-schedules-dlq"
  }
}

override_resource {
  target          = aws_sqs_queue.dead_letters["runner"]
  override_during = plan
  values = {
    arn = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-runner-dlq"
    id  = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-runner-dlq"
  }
}

override_resource {
  target          = aws_sqs_queue.dead_letters["publisher"]
  override_during = plan
  values = {
    arn = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-publisher-dlq"
    id  = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-publisher-dlq"
  }
}

override_resource {
  target          = aws_scheduler_schedule_group.this
  override_during = plan
  values          = { arn = "arn:aws:scheduler:eu-west-1:123456789012:schedule-group/cronbox-test" }
}

override_resource {
  target          = aws_cloudwatch_event_rule.tick
  override_during = plan
  values          = { arn = "arn:aws:events:eu-west-1:123456789012:rule/cronbox-test-publisher-tick" }
}

override_resource {
  target          = aws_cloudwatch_log_group.publisher
  override_during = plan
  values          = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/cronbox-test-publisher" }
}

override_resource {
  target          = aws_cloudwatch_log_group.runner
  override_during = plan
  values          = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/cronbox-test-runner" }
}

variables {
  env                        = "test"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0123456789abcdef0"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
  scheduler_key_secret_arn   = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
  app_base_url               = "https://cron.example.com"
  alarm_topic_arns           = ["arn:aws:sns:eu-west-1:123456789012:oncall"]
  zips = {
    bucket           = "artefacts"
    publisher_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    runner_sha256    = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
  }
}

run "publisher" {
  command = plan

  assert {
    condition     = aws_lambda_function.publisher.timeout == 50 && aws_lambda_function.publisher.reserved_concurrent_executions == 2
    error_message = "A tick must end within its minute, and two may overlap."
  }

  assert {
    condition     = aws_lambda_function_event_invoke_config.publisher.maximum_event_age_in_seconds == 60 && aws_lambda_function_event_invoke_config.publisher.maximum_retry_attempts == 0
    error_message = "A tick that waits is out of date; the next one publishes what it did not."
  }

  assert {
    condition = { for name, value in aws_lambda_function.publisher.environment[0].variables : name => value if name != "CRONBOX_CONFIG_GENERATION" } == {
      CRONBOX_ENV                = "test"
      CRONBOX_DB_SECRET_ARN      = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
      CRONBOX_DB_CA_FILE         = "/var/task/rds-ca.pem"
      CRONBOX_POOLER             = "none"
      CRONBOX_RUNNER_LAMBDA_ARN  = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner:live"
      CRONBOX_SCHEDULER_ROLE_ARN = "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-scheduler"
      CRONBOX_SCHEDULE_GROUP     = "cronbox-test"
      CRONBOX_SCHEDULE_DLQ_ARN   = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-schedules-dlq"

      CRONBOX_SCHEDULE_DLQ_URL             = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-schedules-dlq"
      CRONBOX_RUNNER_DLQ_URL               = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-runner-dlq"
      CRONBOX_PUBLISHER_DLQ_URL            = "https://sqs.eu-west-1.amazonaws.com/123456789012/cronbox-test-publisher-dlq"
      CRONBOX_APP_BASE_URL                 = "https://cron.example.com"
      CRONBOX_SCHEDULER_API_KEY_SECRET_ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"

      CRONBOX_BATCH_SIZE      = "100"
      CRONBOX_MAX_ATTEMPTS    = "10"
      CRONBOX_API_CONCURRENCY = "64"
      CRONBOX_API_TPS         = "200"
    }
    error_message = "The publisher gets every setting, and no secret."
  }

  assert {
    condition     = can(regex("^20[0-9]{12}$", aws_lambda_function.publisher.environment[0].variables["CRONBOX_CONFIG_GENERATION"]))
    error_message = "The generation is a time, so that a later deployment has a higher one."
  }

  assert {
    condition = terraform_data.generation.triggers_replace == [
      "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner:live",
      "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-scheduler",
      "cronbox-test",
      "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-schedules-dlq",
      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ]
    error_message = "Each change of what is published raises the generation."
  }

  assert {
    condition     = aws_cloudwatch_event_rule.tick.schedule_expression == "rate(1 minute)" && aws_cloudwatch_event_rule.tick.state == "ENABLED"
    error_message = "A rule ticks every minute."
  }

  assert {
    condition     = aws_lambda_permission.tick.principal == "events.amazonaws.com" && aws_lambda_permission.tick.source_arn == aws_cloudwatch_event_rule.tick.arn
    error_message = "That rule, and no other, may invoke the publisher."
  }

  assert {
    condition     = aws_cloudwatch_event_target.tick.arn == aws_lambda_alias.publisher.arn && one(aws_cloudwatch_event_target.tick.retry_policy).maximum_event_age_in_seconds == 60
    error_message = "The rule invokes the publisher, and discards a tick within its minute."
  }
}

run "a_secret_of_two_fields_gets_the_rest_from_the_environment" {
  command = plan

  variables {
    database_host = "db.example.com"
    database_port = 5433
    database_name = "cronbox"
  }

  assert {
    condition = { for name, value in aws_lambda_function.publisher.environment[0].variables : name => value if can(regex("_DB_(HOST|PORT|NAME)$", name)) } == {
      CRONBOX_DB_HOST = "db.example.com"
      CRONBOX_DB_PORT = "5433"
      CRONBOX_DB_NAME = "cronbox"
    }
    error_message = "RDS's own secret has no host."
  }
}

run "code" {
  command = plan

  assert {
    condition = (
      aws_lambda_function.publisher.s3_bucket == "artefacts" && aws_lambda_function.publisher.s3_key == "publisher-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.zip" &&
      aws_lambda_function.runner.s3_bucket == "artefacts" && aws_lambda_function.runner.s3_key == "runner-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb.zip"
    )
    error_message = "The code is named by its digest, so every environment gets the same."
  }

  assert {
    condition     = aws_lambda_function.publisher.publish && aws_lambda_function.runner.publish
    error_message = "Each change is a version."
  }

  assert {
    condition     = { for qualifier, config in aws_lambda_function_event_invoke_config.runner : qualifier => config.qualifier } == { live = "live", latest = "$LATEST" }
    error_message = "Failures are kept for fires of schedules with and without the alias."
  }
}

run "runner" {
  command = plan

  assert {
    condition     = aws_lambda_function.runner.timeout == 15 && alltrue([for config in aws_lambda_function_event_invoke_config.runner : config.maximum_retry_attempts == 2 && config.maximum_event_age_in_seconds == 3600])
    error_message = "A delivery ends after 12 s, is tried three times, and waits for an hour at most."
  }

  assert {
    condition = aws_lambda_function.runner.environment[0].variables == tomap({
      CRONBOX_APP_BASE_URL                 = "https://cron.example.com"
      CRONBOX_SCHEDULER_API_KEY_SECRET_ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
    })
    error_message = "The runner gets the address of the app, and the ARN of its key."
  }

  assert {
    condition     = alltrue([for log in [aws_cloudwatch_log_group.runner, aws_cloudwatch_log_group.publisher] : log.retention_in_days == 30])
    error_message = "Logs are deleted after a time."
  }
}

run "dead_letters" {
  command = plan

  assert {
    condition     = toset(keys(aws_sqs_queue.dead_letters)) == toset(["schedules", "runner", "publisher"])
    error_message = "Three services can drop a fire or a tick."
  }

  assert {
    condition     = alltrue([for queue in aws_sqs_queue.dead_letters : queue.message_retention_seconds == 1209600 && queue.sqs_managed_sse_enabled])
    error_message = "Dead letters are kept for 14 days, encrypted."
  }

  assert {
    condition = alltrue([for name, policy in aws_sqs_queue_policy.dead_letters : anytrue([
      for statement in jsondecode(policy.policy).Statement :
      statement.Effect == "Deny" && statement.Principal == "*" && statement.Resource == local.dead_letter_arns[name]
      && statement.Condition == { Bool = { "aws:SecureTransport" = "false" } }
    ])])
    error_message = "No caller reaches a queue without TLS."
  }

  assert {
    condition = (
      aws_lambda_function_event_invoke_config.publisher.destination_config[0].on_failure[0].destination == aws_sqs_queue.dead_letters["publisher"].arn &&
      alltrue([for config in aws_lambda_function_event_invoke_config.runner : config.destination_config[0].on_failure[0].destination == aws_sqs_queue.dead_letters["runner"].arn])
    )
    error_message = "The failures of a Lambda go to its own queue."
  }
}

run "names_of_two_regions_differ" {
  command = plan

  assert {
    condition = (
      [for role in [aws_iam_role.publisher, aws_iam_role.runner, aws_iam_role.scheduler] : role.name] ==
      ["cronbox-test-eu-west-1-publisher", "cronbox-test-eu-west-1-runner", "cronbox-test-eu-west-1-scheduler"] &&
      aws_cloudwatch_dashboard.this.dashboard_name == "cronbox-test-eu-west-1"
    )
    error_message = "Roles and dashboards are of the account, so their names have the region."
  }
}

run "names_and_tags_of_a_company" {
  command = plan

  variables {
    name_prefix              = "acme-cron"
    regional_names           = false
    iam_path                 = "/cron/"
    permissions_boundary_arn = "arn:aws:iam::123456789012:policy/boundary"
    tags                     = { cost-centre = "42" }
  }

  assert {
    condition = alltrue([
      for role in [aws_iam_role.publisher, aws_iam_role.runner, aws_iam_role.scheduler] :
      startswith(role.name, "acme-cron-test-") && role.path == "/cron/" && role.permissions_boundary == "arn:aws:iam::123456789012:policy/boundary"
    ])
    error_message = "Names, path and boundary are those that were asked for."
  }

  assert {
    condition = alltrue([
      for tags in concat(
        [for queue in aws_sqs_queue.dead_letters : queue.tags],
        [for role in [aws_iam_role.publisher, aws_iam_role.runner, aws_iam_role.scheduler] : role.tags],
        [for function in [aws_lambda_function.publisher, aws_lambda_function.runner] : function.tags],
        [for alarm in aws_cloudwatch_metric_alarm.this : alarm.tags],
        [for group in [aws_security_group.publisher, aws_security_group.runner] : group.tags],
        [for log in [aws_cloudwatch_log_group.publisher, aws_cloudwatch_log_group.runner] : log.tags],
        [aws_scheduler_schedule_group.this.tags, aws_cloudwatch_event_rule.tick.tags, aws_vpc_security_group_egress_rule.publisher_to_database.tags],
      ) : tags == tomap({ cost-centre = "42" })
    ])
    error_message = "Everything is tagged."
  }
}

run "an_account_with_the_first_quota" {
  command = plan

  variables {
    publisher                   = { reserved_concurrency = -1 }
    runner_reserved_concurrency = -1
  }

  assert {
    condition     = aws_lambda_function.publisher.reserved_concurrent_executions == -1 && aws_lambda_function.runner.reserved_concurrent_executions == -1
    error_message = "Nothing is reserved."
  }
}

run "destroying_is_given_time" {
  command = plan

  assert {
    condition = alltrue([
      for resource in [aws_scheduler_schedule_group.this, aws_security_group.publisher, aws_security_group.runner] : resource.timeouts.delete == "60m"
    ])
    error_message = "A group deletes its schedules one after another, and Lambda keeps its network interfaces for up to 45 minutes."
  }
}
