# Steps 4 and 5: where the schedules live, and in whose name they fire. The schedules themselves
# (wf-<id>-<env>) are the publisher's: Terraform neither makes nor knows them, and destroying the
# group deletes them all.

resource "aws_scheduler_schedule_group" "this" {
  name = local.name
}

resource "aws_iam_role" "scheduler" {
  name               = "${local.name}-scheduler"
  description        = "In which EventBridge Scheduler invokes cronbox's runner."
  assume_role_policy = data.aws_iam_policy_document.scheduler_trust.json
}

data "aws_iam_policy_document" "scheduler_trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account_id]
    }

    # The group's ARN: a schedule's, or a prefix of one, makes every create fail, and caps the account at 50 calls a second.
    dynamic "condition" {
      for_each = var.trust_schedule_group ? [local.schedule_group_arn] : []

      content {
        test     = "StringEquals"
        variable = "aws:SourceArn"
        values   = [condition.value]
      }
    }
  }
}

resource "aws_iam_role_policy" "scheduler" {
  name   = "scheduler"
  role   = aws_iam_role.scheduler.id
  policy = data.aws_iam_policy_document.scheduler.json
}

data "aws_iam_policy_document" "scheduler" {
  statement {
    sid       = "InvokeTheRunner"
    actions   = ["lambda:InvokeFunction"]
    resources = [local.runner_arn]
  }

  statement {
    # Dead letters are written in the schedule's role.
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arns["schedules"]]
  }
}
