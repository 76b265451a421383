# Plans the example with the real provider and no account. `make terraform` runs it, with -var=zips=FOLDER.

provider "aws" {
  region                      = "us-east-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

override_data {
  target          = module.cron.data.aws_caller_identity.current
  override_during = plan
  values          = { account_id = "123456789012" }
}

variables {
  region                     = "us-east-1"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:us-east-1:123456789012:secret:cronbox-dev-database-AbCdEf"
  scheduler_key_secret_arn   = "arn:aws:secretsmanager:us-east-1:123456789012:secret:cronbox-dev-scheduler-key-AbCdEf"
  app_base_url               = "https://cron.dev.example.com"
}

run "the_example_is_planned" {
  command = plan

  assert {
    condition     = output.schedule_group_name == "cronbox-dev"
    error_message = "The example makes the schedule group of dev."
  }
}
