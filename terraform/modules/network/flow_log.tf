# The log of rejected connections, if it is wanted.

resource "aws_cloudwatch_log_group" "flow" {
  # checkov:skip=CKV_AWS_158: rejected connections are no secret
  # checkov:skip=CKV_AWS_338: a variable
  count = var.flow_log_days > 0 ? 1 : 0

  name              = "/aws/vpc/${var.name}"
  retention_in_days = var.flow_log_days
  tags              = var.tags
}

resource "aws_flow_log" "this" {
  count = var.flow_log_days > 0 ? 1 : 0

  vpc_id          = aws_vpc.this.id
  traffic_type    = "REJECT"
  log_destination = aws_cloudwatch_log_group.flow[0].arn
  iam_role_arn    = aws_iam_role.flow[0].arn
  tags            = var.tags
}

resource "aws_iam_role" "flow" {
  count = var.flow_log_days > 0 ? 1 : 0

  name               = "${var.name}-${data.aws_region.current.id}-flow"
  description        = "The role with which the VPC writes its log."
  assume_role_policy = data.aws_iam_policy_document.flow_trust.json
  tags               = var.tags
}

data "aws_iam_policy_document" "flow_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["vpc-flow-logs.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "flow" {
  count = var.flow_log_days > 0 ? 1 : 0

  name   = "flow"
  role   = aws_iam_role.flow[0].id
  policy = data.aws_iam_policy_document.flow[0].json
}

data "aws_iam_policy_document" "flow" {
  count = var.flow_log_days > 0 ? 1 : 0

  statement {
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"]
    resources = ["${aws_cloudwatch_log_group.flow[0].arn}:*"]
  }
}
