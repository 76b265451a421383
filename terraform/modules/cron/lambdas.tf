# What the publisher and the runner have in common: after what they change, which service may use their roles, and what both may do.

# A function that changed before the app's deployment would read a schema that is not there yet, and would stay new if ECS rolled the app back.
resource "terraform_data" "app_deployment" {
  input = var.app_deployment
}

# Lambda accepts only a role of its own account, from a caller that may pass it. AWS documents no
# condition for this trust, and a false one would stop every invocation.
data "aws_iam_policy_document" "lambda_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

# What both may do. The document of each Lambda contains it after its own statements.
data "aws_iam_policy_document" "lambda" {
  for_each = toset(["publisher", "runner"])

  dynamic "statement" {
    for_each = var.secrets_kms_key_arn[*]

    content {
      sid       = "DecryptSecret"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = [local.secrets_manager]
      }
    }
  }

  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${local.log_group_arns[each.key]}:*"]
  }

  statement {
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arns[each.key]]
  }

  # Lambda itself makes the interfaces. A call by the function's code has this key, and is refused.
  statement {
    sid       = "NoNetworkInterfacesByCode"
    effect    = "Deny"
    actions   = concat(flatten(values(local.network_interface_statements)), ["ec2:DetachNetworkInterface"])
    resources = ["*"]

    condition {
      test     = "ArnLike"
      variable = "lambda:SourceFunctionArn"
      values   = [local.function_arns[each.key], "${local.function_arns[each.key]}:*"]
    }
  }

  dynamic "statement" {
    for_each = local.network_interface_statements

    content {
      sid       = statement.key
      actions   = statement.value
      resources = ["*"]
    }
  }
}
