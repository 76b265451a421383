# Three queues, because three services can drop a fire or a tick:
#   schedules   EventBridge Scheduler could not invoke the runner
#   runner      the runner was invoked, and no try delivered the fire
#   publisher   a tick failed
# `cronbox dlq` and the publisher read all three. AWS's own redrive cannot read them: their source is no queue.

locals {
  dead_letters = toset(["schedules", "runner", "publisher"])

  # EventBridge Scheduler and Lambda write with these roles.
  dead_letter_writers = values(local.role_arns)
  # The publisher mirrors the queues, and removes what an operator has requested.
  dead_letter_readers = concat([local.account_root, local.role_arns["publisher"]], var.dead_letter_operator_arns)
  # A root user can repair a policy that excludes all others.
  account_root = "arn:${local.partition}:iam::${local.account_id}:root"
}

resource "aws_sqs_queue" "dead_letters" {
  for_each = local.dead_letters

  name = "${local.name}-${each.key}-dlq"
  # The most that SQS keeps: 14 days. The ledger keeps its decisions for longer.
  message_retention_seconds = 1209600
  # Managed encryption: a customer's key would need a key policy for scheduler.amazonaws.com.
  sqs_managed_sse_enabled = true
  # Longer than a redrive of one page takes.
  visibility_timeout_seconds = 60
  tags                       = var.tags
}

resource "aws_sqs_queue_policy" "dead_letters" {
  for_each = local.dead_letters

  queue_url = aws_sqs_queue.dead_letters[each.key].id
  policy    = data.aws_iam_policy_document.dead_letters[each.key].json
}

data "aws_iam_policy_document" "dead_letters" {
  for_each = local.dead_letters

  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [local.dead_letter_arns[each.key]]

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

  # A message of another principal would be redriven as a fire. The app decides each fire by its due time, but a forged one
  # costs a check. An operator of the list may write, too, for example to move messages between queues.
  statement {
    sid       = "OnlyOurRolesWrite"
    effect    = "Deny"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arns[each.key]]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "ArnNotLike"
      variable = "aws:PrincipalArn"
      values   = concat(local.dead_letter_writers, [local.account_root], var.dead_letter_operator_arns)
    }
  }

  # Only with a list, because the module cannot know who is on call. No statement denies sqs:SetQueueAttributes or
  # sqs:DeleteQueue, so that Terraform can always change this policy.
  dynamic "statement" {
    for_each = length(var.dead_letter_operator_arns) > 0 ? ["OnlyOperatorsRead"] : []

    content {
      sid       = statement.value
      effect    = "Deny"
      actions   = ["sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:PurgeQueue", "sqs:ReceiveMessage"]
      resources = [local.dead_letter_arns[each.key]]

      principals {
        type        = "*"
        identifiers = ["*"]
      }

      condition {
        test     = "ArnNotLike"
        variable = "aws:PrincipalArn"
        values   = local.dead_letter_readers
      }
    }
  }
}
