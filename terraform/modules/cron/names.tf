# Names and ARNs that several files need.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  name = "${var.name_prefix}-${var.env}"
  # IAM's roles and CloudWatch's dashboards are of the account, not of a region.
  global_name = var.regional_names ? "${local.name}-${local.region}" : local.name

  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.id

  # The schedules that the publisher may change: our names in our schedule group.
  schedule_arns = "arn:${local.partition}:scheduler:${local.in_region}:schedule/${local.name}/wf-*-${var.env}"

  # Policies name what they permit by ARNs that are written in full here. A reference to the resource's
  # ARN would be `known after apply` in the first plan and in that of every new zip, so the plan would not
  # show what it permits.
  in_region          = "${local.region}:${local.account_id}"
  function_arns      = { for name in ["publisher", "runner"] : name => "arn:${local.partition}:lambda:${local.in_region}:function:${local.name}-${name}" }
  role_arns          = { for name in ["publisher", "runner", "scheduler"] : name => "arn:${local.partition}:iam::${local.account_id}:role${var.iam_path}${local.global_name}-${name}" }
  schedule_group_arn = "arn:${local.partition}:scheduler:${local.in_region}:schedule-group/${local.name}"
  log_group_arns     = { for name in ["publisher", "runner"] : name => "arn:${local.partition}:logs:${local.in_region}:log-group:/aws/lambda/${local.name}-${name}" }
  dead_letter_arns   = { for name in local.dead_letters : name => "arn:${local.partition}:sqs:${local.in_region}:${local.name}-${name}-dlq" }

  # The regions of the authorities of RDS that publisher.zip has; scripts/rds-ca.sh makes the file.
  rds_ca_regions = [
    "af-south-1", "ap-east-1", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1",
    "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ca-central-1",
    "eu-central-1", "eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1",
    "eu-west-2", "eu-west-3", "me-central-1", "me-south-1", "sa-east-1", "us-east-1",
    "us-east-2", "us-west-1", "us-west-2",
  ]

  # The service that reads a secret under a customer-managed key.
  secrets_manager = "secretsmanager.${local.region}.${data.aws_partition.current.dns_suffix}"

  # The runner has no other variable that names the environment.
  traces = var.otlp_endpoint == null ? {} : {
    OTEL_EXPORTER_OTLP_ENDPOINT = var.otlp_endpoint
    OTEL_RESOURCE_ATTRIBUTES    = "deployment.environment.name=${var.env}"
  }

  # Only an emulator needs the address of its endpoint.
  emulator = var.aws_endpoint_url == null ? {} : { AWS_ENDPOINT_URL = var.aws_endpoint_url }
}
