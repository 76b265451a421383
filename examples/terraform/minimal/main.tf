# The least that cronbox needs on AWS: one call of the module. terraform/envs is the form for several environments.
#
#     make lambdas
#     cd examples/terraform/minimal
#     cp terraform.tfvars.example terraform.tfvars    # fill it in
#     terraform init && terraform apply

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.100, < 7.0"
    }
  }
}

provider "aws" {
  region = var.region
}

module "cron" {
  source = "../../../terraform/modules/cron"

  env = "dev"

  vpc_id                     = var.vpc_id
  subnet_ids                 = var.subnet_ids
  database_security_group_id = var.database_security_group_id

  database_secret_arn      = var.database_secret_arn
  scheduler_key_secret_arn = var.scheduler_key_secret_arn
  app_base_url             = var.app_base_url

  zips = { folder = var.zips }
}

output "schedule_group_name" {
  description = "The group in which the publisher keeps one schedule for each workflow."
  value       = module.cron.schedule_group_name
}

output "dead_letter_queue_urls" {
  description = "For `cronbox dlq --queue URL`: schedules, runner, publisher."
  value       = module.cron.dead_letter_queue_urls
}
