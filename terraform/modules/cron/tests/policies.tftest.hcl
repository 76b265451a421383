# Which role may do what, in the JSON that AWS would get.

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

run "publisher_may" {
  command = plan

  assert {
    condition = jsondecode(data.aws_iam_policy_document.publisher.json).Statement == [
      {
        Sid      = "Schedules"
        Effect   = "Allow"
        Action   = ["scheduler:UpdateSchedule", "scheduler:GetSchedule", "scheduler:DeleteSchedule", "scheduler:CreateSchedule"]
        Resource = "arn:aws:scheduler:eu-west-1:123456789012:schedule/cronbox-test/wf-*-test"
      },
      {
        Sid      = "ListSchedules"
        Effect   = "Allow"
        Action   = "scheduler:ListSchedules"
        Resource = "*"
      },
      {
        Sid       = "PassTheSchedulesRole"
        Effect    = "Allow"
        Action    = "iam:PassRole"
        Resource  = "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-scheduler"
        Condition = { StringEquals = { "iam:PassedToService" = "scheduler.amazonaws.com" } }
      },
      {
        Sid      = "DatabaseSecret"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
      },
      {
        Sid    = "MirrorDeadLetters"
        Effect = "Allow"
        Action = ["sqs:ReceiveMessage", "sqs:GetQueueAttributes", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
        Resource = [
          "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-schedules-dlq",
          "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-runner-dlq",
          "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-publisher-dlq",
        ]
      },
      {
        Sid      = "SchedulerKey"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:PutLogEvents", "logs:CreateLogStream"]
        Resource = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/cronbox-test-publisher:*"
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-publisher-dlq"
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
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-publisher",
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-publisher:*",
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
    error_message = "The publisher may do this and nothing else."
  }
}

run "runner_may" {
  command = plan

  assert {
    condition = [for statement in jsondecode(data.aws_iam_policy_document.runner.json).Statement : statement if !strcontains(statement.Sid, "NetworkInterfaces")] == [
      {
        Sid      = "SchedulerKey"
        Effect   = "Allow"
        Action   = "secretsmanager:GetSecretValue"
        Resource = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
      },
      {
        Sid      = "Logs"
        Effect   = "Allow"
        Action   = ["logs:PutLogEvents", "logs:CreateLogStream"]
        Resource = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/cronbox-test-runner:*"
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-runner-dlq"
      },
    ]
    error_message = "The runner may read its key, and nothing on EventBridge Scheduler."
  }
}

run "code_of_neither_may_change_network_interfaces" {
  command = plan

  assert {
    condition = alltrue([
      for name, policy in { publisher = data.aws_iam_policy_document.publisher, runner = data.aws_iam_policy_document.runner } : anytrue([
        for statement in jsondecode(policy.json).Statement :
        statement.Effect == "Deny" && length(setsubtract(["ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"], flatten([statement.Action]))) == 0 &&
        try(contains(statement.Condition.ArnLike["lambda:SourceFunctionArn"], "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-${name}"), false)
      ])
    ])
    error_message = "Only Lambda itself makes interfaces; it has no lambda:SourceFunctionArn."
  }
}

run "scheduler_may" {
  command = plan

  assert {
    condition = jsondecode(data.aws_iam_policy_document.scheduler.json).Statement == [
      {
        Sid    = "InvokeTheRunner"
        Effect = "Allow"
        Action = "lambda:InvokeFunction"
        Resource = [
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner:live",
          "arn:aws:lambda:eu-west-1:123456789012:function:cronbox-test-runner",
        ]
      },
      {
        Sid      = "DeadLetters"
        Effect   = "Allow"
        Action   = "sqs:SendMessage"
        Resource = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-schedules-dlq"
      },
    ]
    error_message = "A schedule may invoke the runner, and write its dead letters."
  }

  assert {
    condition = jsondecode(data.aws_iam_policy_document.scheduler_trust.json).Statement == [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "scheduler.amazonaws.com" }
      Condition = { StringEquals = {
        "aws:SourceAccount" = "123456789012"
        "aws:SourceArn"     = "arn:aws:scheduler:eu-west-1:123456789012:schedule-group/cronbox-test"
      } }
    }]
    error_message = "EventBridge assumes the role only for our schedule group; with a schedule's ARN every create fails."
  }

  assert {
    condition = (
      endswith(local.function_arns["publisher"], ":${aws_lambda_function.publisher.function_name}") &&
      endswith(local.function_arns["runner"], ":${aws_lambda_function.runner.function_name}") &&
      endswith(local.role_arns["scheduler"], "/${aws_iam_role.scheduler.name}") &&
      endswith(local.schedule_group_arn, "/${aws_scheduler_schedule_group.this.name}") &&
      endswith(local.log_group_arns["publisher"], ":${aws_cloudwatch_log_group.publisher.name}") &&
      endswith(local.log_group_arns["runner"], ":${aws_cloudwatch_log_group.runner.name}") &&
      alltrue([for name, queue in aws_sqs_queue.dead_letters : endswith(local.dead_letter_arns[name], ":${queue.name}")])
    )
    error_message = "Policies name things as they are called."
  }
}

run "only_the_account_is_trusted_without_the_group" {
  command = plan

  variables {
    trust_schedule_group = false
  }

  assert {
    condition     = jsondecode(data.aws_iam_policy_document.scheduler_trust.json).Statement[0].Condition == { StringEquals = { "aws:SourceAccount" = "123456789012" } }
    error_message = "The account stays."
  }
}

run "a_customer_key_is_used_only_by_secrets_manager" {
  command = plan

  variables {
    secrets_kms_key_arn = "arn:aws:kms:eu-west-1:123456789012:key/0"
  }

  assert {
    condition = alltrue([
      for policy in [data.aws_iam_policy_document.publisher, data.aws_iam_policy_document.runner] : contains(
        jsondecode(policy.json).Statement,
        {
          Sid       = "DecryptSecret"
          Effect    = "Allow"
          Action    = "kms:Decrypt"
          Resource  = "arn:aws:kms:eu-west-1:123456789012:key/0"
          Condition = { StringEquals = { "kms:ViaService" = "secretsmanager.eu-west-1.amazonaws.com" } }
        }
      )
    ])
    error_message = "One key, one use."
  }
}

run "only_our_roles_write_dead_letters" {
  command = plan

  assert {
    condition = alltrue([
      for name, policy in data.aws_iam_policy_document.dead_letters : length(jsondecode(policy.json).Statement) == 2 && contains(
        jsondecode(policy.json).Statement,
        {
          Sid       = "OnlyOurRolesWrite"
          Effect    = "Deny"
          Principal = "*"
          Action    = "sqs:SendMessage"
          Resource  = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-${name}-dlq"
          Condition = { ArnNotLike = { "aws:PrincipalArn" = [
            "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-publisher",
            "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-runner",
            "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-scheduler",
            "arn:aws:iam::123456789012:root",
          ] } }
        }
      )
    ])
    error_message = "Only the three roles may write, and without a list of operators reading stays as IAM permits it."
  }

  assert {
    condition = (
      sort(local.dead_letter_writers) ==
      sort([for role in [aws_iam_role.publisher, aws_iam_role.runner, aws_iam_role.scheduler] : "arn:aws:iam::123456789012:role/${role.name}"])
    )
    error_message = "The policy names the roles as they are called."
  }
}

run "only_operators_read_dead_letters" {
  command = plan

  variables {
    dead_letter_operator_arns = ["arn:aws:iam::123456789012:role/oncall-*"]
  }

  assert {
    condition = alltrue([
      for name, policy in data.aws_iam_policy_document.dead_letters : contains(jsondecode(policy.json).Statement, {
        Sid       = "OnlyOperatorsRead"
        Effect    = "Deny"
        Principal = "*"
        Action    = ["sqs:ReceiveMessage", "sqs:PurgeQueue", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
        Resource  = "arn:aws:sqs:eu-west-1:123456789012:cronbox-test-${name}-dlq"
        Condition = { ArnNotLike = { "aws:PrincipalArn" = [
          "arn:aws:iam::123456789012:root",
          "arn:aws:iam::123456789012:role/cronbox-test-eu-west-1-publisher",
          "arn:aws:iam::123456789012:role/oncall-*",
        ] } }
      })
    ])
    error_message = "With a list, only its principals and the publisher read and remove."
  }

  assert {
    condition = alltrue([
      for policy in data.aws_iam_policy_document.dead_letters : alltrue([
        for statement in jsondecode(policy.json).Statement :
        statement.Sid == "TlsOnly" || !anytrue([for action in flatten([statement.Action]) : contains(["sqs:*", "sqs:SetQueueAttributes", "sqs:DeleteQueue"], action)])
      ])
    ])
    error_message = "Terraform can always change the policy."
  }
}
