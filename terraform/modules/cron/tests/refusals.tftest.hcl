# What is refused before anything is created.

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

provider "aws" {
  alias                       = "il_central_1"
  region                      = "il-central-1"
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

run "refuses_an_environment_too_long_for_names" {
  command = plan

  variables {
    env = "An Environment"
  }

  expect_failures = [var.env]
}

run "refuses_an_environment_of_25_letters" {
  command = plan

  variables {
    env = "abcdefghijklmnopqrstuvwxy"
  }

  expect_failures = [var.env]
}

run "refuses_a_database_secret_that_is_no_arn" {
  command = plan

  variables {
    database_secret_arn = "postgres://cron:hunter2@db/cronbox"
  }

  expect_failures = [var.database_secret_arn]
}

run "refuses_a_key_that_is_no_arn" {
  command = plan

  variables {
    scheduler_key_secret_arn = "cbk_0123456789"
  }

  expect_failures = [var.scheduler_key_secret_arn]
}

run "refuses_a_vpc_that_is_none" {
  command = plan

  variables {
    vpc_id = "subnet-0123456789abcdef0"
  }

  expect_failures = [var.vpc_id]
}

run "refuses_no_subnets" {
  command = plan

  variables {
    subnet_ids = []
  }

  expect_failures = [var.subnet_ids]
}

run "refuses_a_key_in_clear_text" {
  command = plan

  variables {
    app_base_url = "http://cron.example.com"
  }

  expect_failures = [var.app_base_url]
}

run "refuses_a_name_that_only_begins_like_this_machine" {
  command = plan

  variables {
    app_base_url = "http://localhost.example.com"
  }

  expect_failures = [var.app_base_url]
}

run "accepts_http_if_an_operator_says_so" {
  command = plan

  variables {
    app_base_url            = "http://cron.example.com"
    app_base_url_allow_http = true
  }
}

run "accepts_http_on_this_machine" {
  command = plan

  variables {
    app_base_url = "http://127.0.0.1:8080"
  }
}

run "refuses_an_address_without_a_scheme" {
  command = plan

  variables {
    app_base_url = "cron.example.com"
  }

  expect_failures = [var.app_base_url]
}

run "refuses_zips_that_were_not_built" {
  command = plan

  variables {
    zips = { folder = "nowhere" }
  }

  # The publisher, which needs the runner's ARN, is not planned then.
  expect_failures = [aws_lambda_function.runner]
}

run "refuses_zips_in_two_places" {
  command = plan

  variables {
    zips = { folder = ".", bucket = "artefacts", publisher_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", runner_sha256 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" }
  }

  expect_failures = [var.zips]
}

run "refuses_a_bucket_without_digests" {
  command = plan

  variables {
    zips = { bucket = "artefacts", publisher_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }
  }

  expect_failures = [var.zips]
}

run "refuses_a_secret_without_its_six_characters" {
  command = plan

  variables {
    database_secret_arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db"
  }

  expect_failures = [var.database_secret_arn]
}

run "refuses_a_database_secret_of_another_region" {
  command = plan

  variables {
    database_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf"
  }

  expect_failures = [aws_lambda_function.publisher]
}

run "refuses_a_key_of_another_region" {
  command = plan

  variables {
    scheduler_key_secret_arn = "arn:aws:secretsmanager:us-east-1:123456789012:secret:key-AbCdEf"
  }

  expect_failures = [aws_lambda_function.runner]
}

run "refuses_a_region_without_authorities" {
  command = plan

  variables {
    database_secret_arn      = "arn:aws:secretsmanager:il-central-1:123456789012:secret:db-AbCdEf"
    scheduler_key_secret_arn = "arn:aws:secretsmanager:il-central-1:123456789012:secret:key-AbCdEf"
  }

  providers = { aws = aws.il_central_1 }

  expect_failures = [aws_lambda_function.publisher]
}

run "accepts_authorities_of_an_operator_there" {
  command = plan

  variables {
    database_secret_arn      = "arn:aws:secretsmanager:il-central-1:123456789012:secret:db-AbCdEf"
    scheduler_key_secret_arn = "arn:aws:secretsmanager:il-central-1:123456789012:secret:key-AbCdEf"
    database_ca_file         = "/var/task/rds-ca.pem"
  }

  providers = { aws = aws.il_central_1 }
}

run "refuses_a_prefix_too_long_for_roles" {
  command = plan

  variables {
    name_prefix = "acme-cron-box"
  }

  expect_failures = [var.name_prefix]
}

run "refuses_a_path_that_is_none" {
  command = plan

  variables {
    iam_path = "cron"
  }

  expect_failures = [var.iam_path]
}

run "refuses_a_boundary_that_is_none" {
  command = plan

  variables {
    permissions_boundary_arn = "boundary"
  }

  expect_failures = [var.permissions_boundary_arn]
}

run "refuses_a_relative_bundle" {
  command = plan

  variables {
    database_ca_file = "rds-ca.pem"
  }

  expect_failures = [var.database_ca_file]
}

run "refuses_an_unknown_pooler" {
  command = plan

  variables {
    database_pooler = "statement"
  }

  expect_failures = [var.database_pooler]
}

run "refuses_a_publisher_that_never_runs" {
  command = plan

  variables {
    publisher = { reserved_concurrency = 0 }
  }

  expect_failures = [var.publisher]
}

run "refuses_a_runner_that_never_runs" {
  command = plan

  variables {
    runner_reserved_concurrency = 0
  }

  expect_failures = [var.runner_reserved_concurrency]
}

run "refuses_a_ticket_topic_that_is_none" {
  command = plan

  variables {
    ticket_topic_arns = ["arn:aws:sns:eu-west-1"]
  }

  expect_failures = [var.ticket_topic_arns]
}

run "refuses_a_retention_that_cloudwatch_does_not_know" {
  command = plan

  variables {
    log_retention_days = 10
  }

  expect_failures = [var.log_retention_days]
}

run "refuses_a_topic_that_is_none" {
  command = plan

  variables {
    alarm_topic_arns = ["oncall@example.com"]
  }

  expect_failures = [var.alarm_topic_arns]
}

run "refuses_an_architecture_that_lambda_does_not_have" {
  command = plan

  variables {
    architecture = "riscv64"
  }

  expect_failures = [var.architecture]
}

run "refuses_a_lag_that_a_tick_cannot_keep" {
  command = plan

  variables {
    outbox_lag_alarm_secs = 30
  }

  expect_failures = [var.outbox_lag_alarm_secs]
}

run "refuses_an_alarm_without_failed_runs" {
  command = plan

  variables {
    runs_failed_alarm_count = 0
  }

  expect_failures = [var.runs_failed_alarm_count]
}

run "refuses_an_alarm_without_skipped_times" {
  command = plan

  variables {
    skipped_overlap_alarm_count = 0
  }

  expect_failures = [var.skipped_overlap_alarm_count]
}
