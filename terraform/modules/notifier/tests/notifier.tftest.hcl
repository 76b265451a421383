# Plans by the real provider, without an account.

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

override_resource {
  target          = aws_sqs_queue.dead_letters
  override_during = plan
  values          = { arn = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-notifier-dlq" }
}

override_resource {
  target          = aws_lambda_alias.notifier
  override_during = plan
  values          = { arn = "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-notifier:live" }
}

override_resource {
  target          = aws_cloudwatch_event_rule.tick
  override_during = plan
  values          = { arn = "arn:aws:events:eu-west-1:123456789012:rule/cronbox-test-notifier-tick" }
}

variables {
  env                        = "test"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0123456789abcdef0"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
  public_url                 = "https://cron.example.com"
  alarm_topic_arns           = ["arn:aws:sns:eu-west-1:123456789012:oncall"]
  target_arns = [
    "arn:aws:events:eu-west-1:123456789012:event-bus/ops",
    "arn:aws:sns:eu-west-1:123456789012:finance.fifo",
  ]
  zip = {
    bucket = "artefacts"
    sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
  }
}

run "notifier_may" {
  command = plan

  assert {
    condition = jsondecode(data.aws_iam_policy_document.notifier.json).Statement == [
      {
        Sid      = "Buses"
        Effect   = "Allow"
        Action   = "events:PutEvents"
        Resource = "arn:aws:events:eu-west-1:123456789012:event-bus/ops"
      },
      {
        Sid      = "Topics"
        Effect   = "Allow"
        Action   = "sns:Publish"
        Resource = "arn:aws:sns:eu-west-1:123456789012:finance.fifo"
      },
      {
        Sid      = "DatabaseSecret"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:PutLogEvents", "logs:CreateLogStream"]
        Resource = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/cronbox-test-notifier:*"
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-notifier-dlq"
      },
      {
        Sid    = "NoNetworkInterfacesByCode"
        Effect = "Deny"
        Action = [
          "ec2:UnassignPrivateIpAddresses", "ec2:DetachNetworkInterface", "ec2:DescribeSubnets", "ec2:DescribeNetworkInterfaces",
          "ec2:DeleteNetworkInterface", "ec2:CreateNetworkInterface", "ec2:AssignPrivateIpAddresses",
        ]
        Resource = "*"
        Condition = { ArnLike = { "lambda:SourceFunctionArn" = [
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-notifier",
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-notifier:*",
        ] } }
      },
      {
        Sid    = "NetworkInterfaces"
        Effect = "Allow"
        Action = [
          "ec2:UnassignPrivateIpAddresses", "ec2:DescribeSubnets", "ec2:DescribeNetworkInterfaces",
          "ec2:DeleteNetworkInterface", "ec2:CreateNetworkInterface", "ec2:AssignPrivateIpAddresses",
        ]
        Resource = "*"
      },
    ]
    error_message = "The notifier may publish to the named targets, and nothing else."
  }

  assert {
    condition = (
      endswith(local.function_arn, ":${aws_lambda_function.notifier.function_name}") && endswith(local.role_arn, "/${aws_iam_role.notifier.name}") &&
      endswith(local.log_group_arn, ":${aws_cloudwatch_log_group.notifier.name}") && endswith(local.dead_letter_arn, ":${aws_sqs_queue.dead_letters.name}")
    )
    error_message = "Policies name things as they are called."
  }
}

run "without_topics_nothing_is_permitted_on_sns" {
  command = plan

  variables {
    target_arns = ["arn:aws:events:eu-west-1:123456789012:event-bus/ops"]
  }

  assert {
    condition     = !strcontains(data.aws_iam_policy_document.notifier.json, "sns")
    error_message = "A permission is there only for a target."
  }
}

run "keys_of_topics_are_used_only_by_sns" {
  command = plan

  variables {
    target_kms_key_arns = ["arn:aws:kms:eu-west-1:123456789012:key/0"]
  }

  assert {
    condition = contains(jsondecode(data.aws_iam_policy_document.notifier.json).Statement, {
      Sid       = "EncryptForTopics"
      Effect    = "Allow"
      Action    = ["kms:GenerateDataKey", "kms:Decrypt"]
      Resource  = "arn:aws:kms:eu-west-1:123456789012:key/0"
      Condition = { StringLike = { "kms:ViaService" = "sns.*.amazonaws.com" } }
    })
    error_message = "One key, one use."
  }
}

run "function" {
  command = plan

  assert {
    condition     = aws_lambda_function.notifier.timeout == 50 && aws_lambda_function.notifier.reserved_concurrent_executions == 2 && aws_lambda_function.notifier.publish
    error_message = "A tick must end within its minute, and two may overlap."
  }

  assert {
    condition = aws_lambda_function.notifier.environment[0].variables == tomap({
      CRONBOX_ENV           = "test"
      CRONBOX_DB_SECRET_ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
      CRONBOX_DB_CA_FILE    = "/var/task/rds-ca.pem"
      CRONBOX_POOLER        = "none"
      CRONBOX_PUBLIC_URL    = "https://cron.example.com"
    })
    error_message = "The notifier gets every setting, and no secret."
  }

  assert {
    condition     = aws_lambda_function.notifier.s3_key == "notifier-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.zip"
    error_message = "The code is an object that is named by its digest."
  }

  assert {
    condition = (
      aws_cloudwatch_event_rule.tick.schedule_expression == "rate(1 minute)" && aws_cloudwatch_event_target.tick.arn == aws_lambda_alias.notifier.arn &&
      aws_lambda_permission.tick.principal == "events.amazonaws.com" && aws_lambda_permission.tick.source_arn == aws_cloudwatch_event_rule.tick.arn
    )
    error_message = "That rule, and no other, invokes the alias every minute."
  }

  assert {
    condition = (
      aws_lambda_function_event_invoke_config.notifier.maximum_retry_attempts == 0 &&
      aws_lambda_function_event_invoke_config.notifier.destination_config[0].on_failure[0].destination == aws_sqs_queue.dead_letters.arn
    )
    error_message = "A failed tick is not repeated; its error is in the queue."
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.notifier_to_aws) == 1 && length(aws_vpc_security_group_egress_rule.notifier_to_endpoints) == 0
    error_message = "Without endpoints AWS is reached by NAT."
  }
}

run "with_endpoints_aws_is_reached_only_by_them" {
  command = plan

  variables {
    endpoint_security_group_ids = ["sg-0000000000000000e"]
  }

  assert {
    condition     = length(aws_vpc_security_group_egress_rule.notifier_to_aws) == 0 && length(aws_vpc_security_group_egress_rule.notifier_to_endpoints) == 1
    error_message = "No other address is reached."
  }
}

run "alarms" {
  command = plan

  assert {
    condition = toset(keys(aws_cloudwatch_metric_alarm.this)) == toset([
      "notifier-heartbeat", "notifier-errors", "notifier-dead-letters-undelivered", "notifications-failed", "notifications-waiting",
    ])
    error_message = "These alarms and no more."
  }

  assert {
    condition = alltrue([
      for name, alarm in aws_cloudwatch_metric_alarm.this : alarm.treat_missing_data == (name == "notifier-heartbeat" ? "breaching" : "notBreaching")
    ])
    error_message = "A notifier that does not run sends no metric; for all other alarms a missing metric is normal."
  }

  assert {
    condition = (
      aws_cloudwatch_metric_alarm.this["notifications-failed"].metric_name == "NotificationsFailed" && aws_cloudwatch_metric_alarm.this["notifications-failed"].threshold == 1 &&
      aws_cloudwatch_metric_alarm.this["notifications-waiting"].metric_name == "NotificationsWaitingSeconds" && aws_cloudwatch_metric_alarm.this["notifications-waiting"].threshold == 900
    )
    error_message = "One dead letter rings, and a message that waits for 15 minutes."
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : endswith(alarm.alarm_description, "docs/runbook.md#${name}")])
    error_message = "An alarm links to its paragraph."
  }

  assert {
    condition     = length(setsubtract(keys(aws_cloudwatch_metric_alarm.this), flatten(regexall("<a id=\"([a-z-]+)\"></a>", file("../../../docs/runbook.md"))))) == 0
    error_message = "The paragraph exists."
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : toset(alarm.alarm_actions) == toset(var.alarm_topic_arns) && toset(alarm.ok_actions) == toset(var.alarm_topic_arns)])
    error_message = "The topics of an alarm get its end, too."
  }
}

run "dead_letters" {
  command = plan

  assert {
    condition = contains(jsondecode(data.aws_iam_policy_document.dead_letters.json).Statement, {
      Sid       = "OnlyTheNotifierWrites"
      Effect    = "Deny"
      Principal = "*"
      Action    = "sqs:SendMessage"
      Resource  = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-notifier-dlq"
      Condition = { ArnNotLike = { "aws:PrincipalArn" = [
        "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-notifier",
        "arn:aws:iam::123456789012:root",
      ] } }
    })
    error_message = "Only its role writes."
  }
}

run "refuses_no_target" {
  command = plan

  variables {
    target_arns = []
  }

  expect_failures = [var.target_arns]
}

run "refuses_all_targets" {
  command = plan

  variables {
    target_arns = ["arn:aws:sns:eu-west-1:123456789012:*"]
  }

  expect_failures = [var.target_arns]
}

run "refuses_a_target_that_is_none" {
  command = plan

  variables {
    target_arns = ["arn:aws:sqs:eu-west-1:123456789012:queue"]
  }

  expect_failures = [var.target_arns]
}

run "refuses_a_secret_that_is_no_arn" {
  command = plan

  variables {
    database_secret_arn = "postgres://cron:hunter2@db/cronbox"
  }

  expect_failures = [var.database_secret_arn]
}

run "refuses_a_secret_of_another_region" {
  command = plan

  variables {
    database_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"
  }

  expect_failures = [aws_lambda_function.notifier]
}

run "refuses_a_bucket_without_a_digest" {
  command = plan

  variables {
    zip = { bucket = "artefacts" }
  }

  expect_failures = [var.zip]
}

run "refuses_a_zip_that_was_not_built" {
  command = plan

  variables {
    zip = { folder = "/nowhere" }
  }

  expect_failures = [aws_lambda_function.notifier]
}
