# The app and the cron beside a Postgres and a network that exist.
#
# The secret `owner_secret_arn` is JSON with username and password, of a login that has CREATEROLE and owns the database.

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

module "service" {
  source = "../../../terraform/modules/service"

  env                 = "prod"
  image               = var.image
  vpc_id              = var.vpc_id
  subnet_ids          = var.subnet_ids
  balancer_subnet_ids = var.subnet_ids
  client_cidrs        = ["10.0.0.0/8"]
  domain              = var.domain
  certificate_arn     = var.certificate_arn
  existing_database   = var.database
  scheduler_key       = var.scheduler_key
  admin_key           = var.admin_key
}

module "cron" {
  source = "../../../terraform/modules/cron"

  env                        = "prod"
  vpc_id                     = var.vpc_id
  subnet_ids                 = var.subnet_ids
  app_security_group_ids     = [module.service.balancer_security_group_id]
  app_base_url               = module.service.url
  app_deployment             = module.service.deployment
  database_security_group_id = module.service.database.security_group_id
  database_host              = module.service.database.host
  database_port              = module.service.database.port
  database_name              = module.service.database.name
  database_secret_arn        = module.service.publisher_secret_arn
  scheduler_key_secret_arn   = module.service.scheduler_key_secret_arn

  zips = { folder = var.zips }
}

output "balancer" {
  description = "Where the record of the domain must lead."
  value       = module.service.balancer
}
