# Three queues, because three services can drop a fire or a tick:
#   schedules   EventBridge Scheduler could not invoke the runner
#   runner      the runner was invoked, and no try delivered the fire
#   publisher   a tick failed
# `cronbox dlq` reads all three. AWS's own redrive cannot read them: their source is no queue.

locals {
  dead_letters = toset(["schedules", "runner", "publisher"])
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
}
