# Names and ARNs that several files need.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  name       = "cronbox-${var.env}"
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.name

  # The schedules that the publisher may change: our names in our schedule group.
  schedule_arns = "arn:${local.partition}:scheduler:${local.in_region}:schedule/${local.name}/wf-*-${var.env}"

  # Policies name what they permit by ARNs that are written in full here. A reference to the resource's
  # ARN would be `known after apply` in the first plan and in that of every new zip, so the plan would not
  # show what it permits.
  in_region          = "${local.region}:${local.account_id}"
  runner_arn         = "arn:${local.partition}:lambda:${local.in_region}:function:${local.name}-runner"
  scheduler_role_arn = "arn:${local.partition}:iam::${local.account_id}:role/${local.name}-scheduler"
  schedule_group_arn = "arn:${local.partition}:scheduler:${local.in_region}:schedule-group/${local.name}"
  log_group_arns     = { for name in ["publisher", "runner"] : name => "arn:${local.partition}:logs:${local.in_region}:log-group:/aws/lambda/${local.name}-${name}" }
  dead_letter_arns   = { for name in local.dead_letters : name => "arn:${local.partition}:sqs:${local.in_region}:${local.name}-${name}-dlq" }

  # The service that reads a secret under a customer-managed key.
  secrets_manager = "secretsmanager.${local.region}.${data.aws_partition.current.dns_suffix}"

  # Only an emulator needs the address of its endpoint.
  emulator = var.aws_endpoint_url == null ? {} : { AWS_ENDPOINT_URL = var.aws_endpoint_url }
}
