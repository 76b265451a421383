# Names and ARNs that several files need.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  name       = "cronbox-${var.env}"
  account_id = data.aws_caller_identity.current.account_id
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.name

  # What the publisher may touch: our names in our group.
  schedule_arns = "arn:${local.partition}:scheduler:${local.region}:${local.account_id}:schedule/${local.name}/wf-*-${var.env}"

  # Only an emulator needs to be told where it is.
  emulator = var.aws_endpoint_url == null ? {} : { AWS_ENDPOINT_URL = var.aws_endpoint_url }
}

# Both Lambdas are assumed by Lambda, on behalf of this account alone.
data "aws_iam_policy_document" "lambda_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}
