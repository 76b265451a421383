# What the notifier may do: publish to the targets that the operator permits, read its login, write its log and its dead
# letters.

locals {
  # A Lambda in a VPC creates its own network interfaces; IAM cannot restrict most of these to a resource.
  network_interface_actions = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
  ]
}

resource "aws_iam_role" "notifier" {
  name                 = local.role_name
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "Permissions of cronbox's notifier."
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  tags                 = var.tags
}

# Lambda accepts only a role of its own account, from a caller that may pass it. AWS documents no condition for this trust.
data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "notifier" {
  name   = "notifier"
  role   = aws_iam_role.notifier.id
  policy = data.aws_iam_policy_document.notifier.json
}

data "aws_iam_policy_document" "notifier" {
  # checkov:skip=CKV_AWS_111: only for network interfaces, which IAM cannot restrict to a resource, and which code is denied
  dynamic "statement" {
    for_each = length(local.buses) > 0 ? ["Buses"] : []

    content {
      sid       = statement.value
      actions   = ["events:PutEvents"]
      resources = local.buses
    }
  }

  dynamic "statement" {
    for_each = length(local.topics) > 0 ? ["Topics"] : []

    content {
      sid       = statement.value
      actions   = ["sns:Publish"]
      resources = local.topics
    }
  }

  # SNS encrypts with the permissions of the caller.
  dynamic "statement" {
    for_each = length(var.target_kms_key_arns) > 0 ? ["EncryptForTopics"] : []

    content {
      sid       = statement.value
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = var.target_kms_key_arns

      condition {
        test     = "StringLike"
        variable = "kms:ViaService"
        values   = ["sns.*.${data.aws_partition.current.dns_suffix}"]
      }
    }
  }

  statement {
    sid       = "DatabaseSecret"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [var.database_secret_arn]
  }

  dynamic "statement" {
    for_each = var.secrets_kms_key_arn[*]

    content {
      sid       = "DecryptSecret"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["secretsmanager.${local.region}.${data.aws_partition.current.dns_suffix}"]
      }
    }
  }

  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${local.log_group_arn}:*"]
  }

  statement {
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arn]
  }

  # Lambda itself makes the interfaces. A call by the function's code has this key, and is refused.
  statement {
    sid       = "NoNetworkInterfacesByCode"
    effect    = "Deny"
    actions   = concat(local.network_interface_actions, ["ec2:DetachNetworkInterface"])
    resources = ["*"]

    condition {
      test     = "ArnLike"
      variable = "lambda:SourceFunctionArn"
      values   = [local.function_arn, "${local.function_arn}:*"]
    }
  }

  statement {
    sid       = "NetworkInterfaces"
    actions   = local.network_interface_actions
    resources = ["*"]
  }
}
