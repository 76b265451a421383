# Everything that cron needs in this environment. dev, stage and prod differ in values alone.

module "cron" {
  source = "../../modules/cron"

  env                        = var.env
  vpc_id                     = var.vpc_id
  subnet_ids                 = var.subnet_ids
  database_security_group_id = var.database_security_group_id
  create_vpc_endpoints       = var.create_vpc_endpoints

  database_secret_arn      = var.database_secret_arn
  scheduler_key_secret_arn = var.scheduler_key_secret_arn
  secrets_kms_key_arn      = var.secrets_kms_key_arn
  app_base_url             = var.app_base_url

  publisher_zip = coalesce(var.publisher_zip, "${path.root}/../../../target/lambda/publisher/publisher.zip")
  runner_zip    = coalesce(var.runner_zip, "${path.root}/../../../target/lambda/runner/runner.zip")
  architecture  = var.architecture

  publisher                   = var.publisher
  runner_reserved_concurrency = var.runner_reserved_concurrency
  alarm_topic_arns            = var.alarm_topic_arns
  runbook_url                 = var.runbook_url
  aws_endpoint_url            = var.endpoint_url
}
