# Names and ARNs that several files need.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  name = "${var.name_prefix}-${var.env}"
  # Roles are of the account, not of a region.
  role_name = "${local.name}-${local.region}-notifier"

  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.id

  # Policies name what they permit by ARNs that are written in full here, so that a plan shows it.
  in_region       = "${local.region}:${local.account_id}"
  function_arn    = "arn:${local.partition}:lambda:${local.in_region}:function:${local.name}-notifier"
  role_arn        = "arn:${local.partition}:iam::${local.account_id}:role${var.iam_path}${local.role_name}"
  log_group_arn   = "arn:${local.partition}:logs:${local.in_region}:log-group:/aws/lambda/${local.name}-notifier"
  dead_letter_arn = "arn:${local.partition}:sqs:${local.in_region}:${local.name}-notifier-dlq"

  buses  = [for arn in var.target_arns : arn if split(":", arn)[2] == "events"]
  topics = [for arn in var.target_arns : arn if split(":", arn)[2] == "sns"]
}
