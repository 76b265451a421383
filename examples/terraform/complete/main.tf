# Everything in an account of its own: a network, Postgres, the app and the cron.
#
#     export TF_VAR_scheduler_key=$(cronbox-app keys generate --kind scheduler)
#     export TF_VAR_admin_key=$(cronbox-app keys generate --kind admin)
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

module "network" {
  source = "../../../terraform/modules/network"

  name         = "cronbox-prod"
  nat_gateways = "each"
}

module "service" {
  source = "../../../terraform/modules/service"

  env                 = "prod"
  image               = var.image
  vpc_id              = module.network.vpc_id
  subnet_ids          = module.network.private_subnet_ids
  balancer_subnet_ids = module.network.public_subnet_ids
  is_internal         = false
  client_cidrs        = ["0.0.0.0/0"]
  nat_addresses       = module.network.nat_addresses
  domain              = var.domain
  zone_id             = var.zone_id
  scheduler_key       = var.scheduler_key
  admin_key           = var.admin_key
  alarm_topic_arns    = var.alarm_topic_arns
}

module "cron" {
  source = "../../../terraform/modules/cron"

  env                        = "prod"
  vpc_id                     = module.network.vpc_id
  subnet_ids                 = module.network.private_subnet_ids
  app_base_url               = module.service.url
  app_deployment             = module.service.deployment
  database_security_group_id = module.service.database.security_group_id
  database_host              = module.service.database.host
  database_name              = module.service.database.name
  database_secret_arn        = module.service.publisher_secret_arn
  scheduler_key_secret_arn   = module.service.scheduler_key_secret_arn
  alarm_topic_arns           = var.alarm_topic_arns

  zips = { folder = var.zips }
}

output "url" {
  description = "The address of the app."
  value       = module.service.url
}
