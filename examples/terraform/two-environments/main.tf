# The cron of two environments in one account and one VPC, with the same build: only the first one makes the endpoints, and both
# name the zips by their digests.

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
  source   = "../../../terraform/modules/cron"
  for_each = var.environments

  env                        = each.key
  vpc_id                     = var.vpc_id
  subnet_ids                 = var.subnet_ids
  database_security_group_id = each.value.database_security_group_id
  database_secret_arn        = each.value.database_secret_arn
  scheduler_key_secret_arn   = each.value.scheduler_key_secret_arn
  app_base_url               = each.value.app_base_url
  create_vpc_endpoints       = each.key == keys(var.environments)[0]

  zips = var.zips
}

output "schedule_groups" {
  description = "The schedule group of each environment."
  value       = { for env, cron in module.cron : env => cron.schedule_group_name }
}
