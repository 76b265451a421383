# All that cronbox needs on AWS in this environment: its network and its app, unless they exist elsewhere, and the cron.

locals {
  makes_network = var.vpc_id == null
  makes_app     = var.image != null
  has_notifier  = length(var.notifier.target_arns) > 0

  vpc_id              = local.makes_network ? module.network[0].vpc_id : var.vpc_id
  subnet_ids          = local.makes_network ? module.network[0].private_subnet_ids : var.subnet_ids
  balancer_subnet_ids = local.makes_network && !var.is_internal ? module.network[0].public_subnet_ids : coalescelist(var.balancer_subnet_ids, local.subnet_ids)

  # By which the Lambdas and the tasks reach the internet, and so a load balancer there.
  nat_addresses = local.makes_network ? module.network[0].nat_addresses : var.nat_addresses
  # No rule for a group matches the public addresses of a load balancer.
  balancer_group_ids = local.makes_app && var.is_internal ? module.service[*].balancer_security_group_id : []

  zips = merge(var.zips, var.zips.folder == null && var.zips.bucket == null ? {
    folder = "${path.root}/../../../target/lambdas/${var.architecture}"
  } : {})
}

module "network" {
  source = "../../modules/network"
  count  = local.makes_network ? 1 : 0

  name         = "${var.name_prefix}-${local.env}"
  cidr         = var.network_cidr
  nat_gateways = var.nat_gateways
}

module "service" {
  source = "../../modules/service"
  count  = local.makes_app ? 1 : 0

  env                      = local.env
  name_prefix              = var.name_prefix
  permissions_boundary_arn = var.permissions_boundary_arn
  iam_path                 = var.iam_path

  image           = var.image
  architecture    = var.architecture
  size            = var.app_size
  settings        = var.app_settings
  waits_for_tasks = var.endpoint_url == null

  vpc_id              = local.vpc_id
  subnet_ids          = local.subnet_ids
  balancer_subnet_ids = local.balancer_subnet_ids
  is_internal         = var.is_internal
  client_cidrs        = var.client_cidrs
  nat_addresses       = local.nat_addresses
  domain              = var.domain
  zone_id             = var.zone_id
  certificate_arn     = var.certificate_arn
  access_log_bucket   = var.access_log_bucket
  web_acl_arn         = var.web_acl_arn

  proxies_before_balancer     = var.proxies_before_balancer
  operator_security_group_ids = var.operator_security_group_ids

  mail                     = var.mail
  heartbeat_url_secret_arn = var.heartbeat_url_secret_arn
  oidc_client_secret_arn   = var.oidc_client_secret_arn
  public_url               = var.public_url

  database            = var.database
  existing_database   = var.existing_database
  scheduler_key       = var.scheduler_key
  admin_key           = var.admin_key
  secrets_version     = var.secrets_version
  has_notifier        = local.has_notifier
  secrets_kms_key_arn = var.secrets_kms_key_arn

  alarm_topic_arns   = var.alarm_topic_arns
  runbook_url        = var.runbook_url
  log_retention_days = local.log_retention_days
}

# Log groups of the database that RDS has made, before Terraform did: it takes them over. What it has already is not imported again.
data "aws_cloudwatch_log_groups" "database" {
  count = local.makes_app && var.existing_database == null ? 1 : 0

  log_group_name_prefix = "/aws/rds/instance/${var.name_prefix}-${local.env}/"
}

import {
  for_each = {
    for name in flatten(data.aws_cloudwatch_log_groups.database[*].log_group_names) : basename(name) => name
    if contains(["postgresql", "upgrade"], basename(name))
  }

  to = module.service[0].aws_cloudwatch_log_group.database[each.key]
  id = each.value
}

module "cron" {
  source = "../../modules/cron"

  env                      = local.env
  name_prefix              = var.name_prefix
  regional_names           = var.regional_names
  permissions_boundary_arn = var.permissions_boundary_arn
  iam_path                 = var.iam_path

  vpc_id                           = local.vpc_id
  subnet_ids                       = local.subnet_ids
  create_vpc_endpoints             = var.create_vpc_endpoints
  interface_endpoint_service_names = var.interface_endpoint_service_names
  endpoint_security_group_ids      = var.endpoint_security_group_ids
  app_security_group_ids           = local.makes_app ? local.balancer_group_ids : var.app_security_group_ids
  app_deployment                   = local.makes_app ? module.service[0].deployment : null
  dead_letter_operator_arns        = var.dead_letter_operator_arns

  database_security_group_id = local.makes_app ? module.service[0].database.security_group_id : var.database_security_group_id
  database_host              = local.makes_app ? module.service[0].database.host : var.database_host
  database_port              = local.makes_app ? module.service[0].database.port : var.database_port
  database_name              = local.makes_app ? module.service[0].database.name : var.database_name
  database_ca_file           = var.database_ca_file
  database_secret_arn        = local.makes_app ? module.service[0].publisher_secret_arn : var.database_secret_arn
  scheduler_key_secret_arn   = local.makes_app ? module.service[0].scheduler_key_secret_arn : var.scheduler_key_secret_arn
  secrets_kms_key_arn        = var.secrets_kms_key_arn
  app_base_url               = local.makes_app ? module.service[0].url : var.app_base_url
  app_base_url_allow_http    = var.app_base_url_allow_http

  zips         = local.zips
  architecture = var.architecture

  publisher                   = var.publisher
  runner_reserved_concurrency = var.runner_reserved_concurrency
  log_retention_days          = local.log_retention_days
  alarm_topic_arns            = var.alarm_topic_arns
  ticket_topic_arns           = var.ticket_topic_arns
  runbook_url                 = var.runbook_url
  aws_endpoint_url            = var.endpoint_url
}

module "notifier" {
  source = "../../modules/notifier"
  count  = local.has_notifier ? 1 : 0

  env                      = local.env
  name_prefix              = var.name_prefix
  permissions_boundary_arn = var.permissions_boundary_arn
  iam_path                 = var.iam_path

  target_arns         = var.notifier.target_arns
  target_kms_key_arns = var.notifier.target_kms_key_arns
  public_url          = coalesce(var.public_url, local.makes_app ? module.service[0].url : var.app_base_url)
  app_deployment      = local.makes_app ? module.service[0].deployment : null

  vpc_id                      = local.vpc_id
  subnet_ids                  = local.subnet_ids
  endpoint_security_group_ids = var.notifier.endpoint_security_group_ids

  database_security_group_id = local.makes_app ? module.service[0].database.security_group_id : var.database_security_group_id
  database_host              = local.makes_app ? module.service[0].database.host : var.database_host
  database_port              = local.makes_app ? module.service[0].database.port : var.database_port
  database_name              = local.makes_app ? module.service[0].database.name : var.database_name
  database_ca_file           = var.database_ca_file
  database_secret_arn        = local.makes_app ? module.service[0].notifier_secret_arn : var.notifier.database_secret_arn
  secrets_kms_key_arn        = var.secrets_kms_key_arn

  zip = {
    folder = local.zips.folder
    bucket = local.zips.bucket
    prefix = local.zips.prefix
    sha256 = local.zips.notifier_sha256
  }
  architecture         = var.architecture
  reserved_concurrency = var.notifier.reserved_concurrency

  log_retention_days = local.log_retention_days
  alarm_topic_arns   = var.alarm_topic_arns
  runbook_url        = var.runbook_url
  aws_endpoint_url   = var.endpoint_url
}

# A destroy would delete schedules, functions and tasks before RDS and the load balancer refuse. This resource is destroyed before all others,
# and refuses while they would.
resource "terraform_data" "protection" {
  count = local.makes_app ? 1 : 0

  input = coalesce(var.database.is_protected, true)

  provisioner "local-exec" {
    when    = destroy
    command = self.input ? "echo 'This environment is protected: set database = { is_protected = false }, apply, then destroy (docs/deploy.md#destroy)' >&2; exit 1" : "true"
  }

  depends_on = [module.network, module.service, module.cron, module.notifier]
}

# A replacement deletes, too: what needs the load balancer, the network or the database is gone when AWS refuses to delete it. This resource is
# destroyed before what is replaced. It is not the one above, because the first apply that knows the triggers would replace that one, and refuse.
resource "terraform_data" "replacement" {
  count = local.makes_app ? 1 : 0

  input = coalesce(var.database.is_protected, true)
  triggers_replace = {
    name_prefix    = var.name_prefix
    vpc_id         = var.vpc_id
    network_cidr   = var.network_cidr
    is_internal    = var.is_internal
    makes_database = var.existing_database == null
    kms_key_arn    = var.database.kms_key_arn
  }

  provisioner "local-exec" {
    when    = destroy
    command = self.input ? "echo 'This environment is protected, and this change replaces its network, load balancer or database: follow docs/deploy.md#replaced' >&2; exit 1" : "true"
  }

  depends_on = [module.network, module.service, module.cron, module.notifier]
}

# These replace the roles, and name_prefix the schedule group with all schedules, too. EventBridge fires with the role that a schedule names, and writes
# dead letters with it, so fires are lost from the deletion of the old role until the publisher has updated the schedule. It is a resource of its own
# for the same reason as the one above, and an environment whose app runs elsewhere has only this one.
resource "terraform_data" "roles" {
  input = coalesce(var.database.is_protected, true)
  triggers_replace = {
    name_prefix    = var.name_prefix
    regional_names = var.regional_names
    iam_path       = var.iam_path
  }

  provisioner "local-exec" {
    when    = destroy
    command = self.input ? "echo 'This environment is protected, and this change deletes the roles with which its schedules fire: follow docs/deploy.md#replaced, or docs/deploy.md#destroy' >&2; exit 1" : "true"
  }

  depends_on = [module.network, module.service, module.cron, module.notifier]
}
