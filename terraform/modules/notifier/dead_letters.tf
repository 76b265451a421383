# Ticks that failed, with their error. The next tick sends what a failed one did not.

resource "aws_sqs_queue" "dead_letters" {
  name = "${local.name}-notifier-dlq"
  # The most that SQS keeps: 14 days.
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = var.tags
}

resource "aws_sqs_queue_policy" "dead_letters" {
  queue_url = aws_sqs_queue.dead_letters.id
  policy    = data.aws_iam_policy_document.dead_letters.json
}

data "aws_iam_policy_document" "dead_letters" {
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [local.dead_letter_arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }

  # A root user can repair a policy that excludes all others.
  statement {
    sid       = "OnlyTheNotifierWrites"
    effect    = "Deny"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "ArnNotLike"
      variable = "aws:PrincipalArn"
      values   = [local.role_arn, "arn:${local.partition}:iam::${local.account_id}:root"]
    }
  }
}
