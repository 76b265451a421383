# Steps 4 and 5: the schedule group, and the execution role of the schedules. The publisher creates the
# schedules (wf-<id>-<env>): Terraform does not know them, and destroying the schedule group deletes them
# all.

resource "aws_scheduler_schedule_group" "this" {
  name = local.name
  tags = var.tags

  # It deletes its schedules one after another, and is gone after them.
  timeouts {
    delete = "60m"
  }
}

resource "aws_iam_role" "scheduler" {
  name                 = "${local.global_name}-scheduler"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "The role with which EventBridge Scheduler invokes cronbox's runner."
  assume_role_policy   = data.aws_iam_policy_document.scheduler_trust.json
  tags                 = var.tags
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

    # The schedule group's ARN: with a schedule's ARN, or a prefix of one, every create fails, and the account
    # is limited to 50 calls a second.
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
    sid     = "InvokeTheRunner"
    actions = ["lambda:InvokeFunction"]
    # Also without the alias, for schedules that cronbox 0.1 made.
    resources = ["${local.function_arns["runner"]}:live", local.function_arns["runner"]]
  }

  statement {
    # EventBridge Scheduler writes dead letters with the schedule's role.
    sid       = "DeadLetters"
    actions   = ["sqs:SendMessage"]
    resources = [local.dead_letter_arns["schedules"]]
  }
}
