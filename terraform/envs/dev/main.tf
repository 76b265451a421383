# All that cronbox needs on AWS in this environment.

module "cron" {
  source = "../../modules/cron"

  env                        = local.env
  vpc_id                     = var.vpc_id
  subnet_ids                 = var.subnet_ids
  database_security_group_id = var.database_security_group_id

  create_vpc_endpoints        = var.create_vpc_endpoints
  endpoint_security_group_ids = var.endpoint_security_group_ids
  app_security_group_id       = var.app_security_group_id
  dead_letter_operator_arns   = var.dead_letter_operator_arns

  database_secret_arn      = var.database_secret_arn
  scheduler_key_secret_arn = var.scheduler_key_secret_arn
  secrets_kms_key_arn      = var.secrets_kms_key_arn
  app_base_url             = var.app_base_url

  publisher_zip = coalesce(var.publisher_zip, "${path.root}/../../../target/lambdas/publisher.zip")
  runner_zip    = coalesce(var.runner_zip, "${path.root}/../../../target/lambdas/runner.zip")
  architecture  = var.architecture

  publisher                   = var.publisher
  runner_reserved_concurrency = var.runner_reserved_concurrency
  log_retention_days          = local.log_retention_days
  alarm_topic_arns            = var.alarm_topic_arns
  runbook_url                 = var.runbook_url
  aws_endpoint_url            = var.endpoint_url
}
