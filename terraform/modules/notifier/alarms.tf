# Each alarm links to the paragraph of docs/runbook.md with the same name: cause, check, fix.

locals {
  function = { FunctionName = aws_lambda_function.notifier.function_name }
  metrics  = { Env = var.env }

  # `over` is in minutes; `at_least` so many of `of` periods, all unless the alarm says otherwise. A missing metric is normal
  # unless the alarm says otherwise.
  alarms = {
    notifier-heartbeat = {
      says      = "The notifier has not run for five minutes: no message reaches AWS."
      namespace = "AWS/Lambda"
      metric    = "Invocations"
      where     = local.function
      statistic = "Sum"
      is        = "LessThanThreshold"
      value     = 1
      over      = 5
      of        = 1
      missing   = "breaching"
    }
    notifier-errors = {
      says      = "Ticks of the notifier fail."
      namespace = "AWS/Lambda"
      metric    = "Errors"
      where     = local.function
      statistic = "Sum"
      value     = 1
      over      = 1
      of        = 5
      at_least  = 3
    }
    notifier-dead-letters-undelivered = {
      says      = "Lambda could not write to the notifier's dead-letter queue."
      namespace = "AWS/Lambda"
      metric    = "DestinationDeliveryFailures"
      where     = local.function
      statistic = "Sum"
      value     = 1
      over      = 5
      of        = 1
    }
    notifications-failed = {
      says      = "AWS refused the last attempt of a message: it is a dead letter until an editor retries it."
      namespace = "cronbox"
      metric    = "NotificationsFailed"
      where     = local.metrics
      statistic = "Sum"
      value     = 1
      over      = 1
      of        = 1
    }
    notifications-waiting = {
      says      = "A message to AWS has waited for 15 minutes."
      namespace = "cronbox"
      metric    = "NotificationsWaitingSeconds"
      where     = local.metrics
      statistic = "Maximum"
      # After six refused attempts, or as many as fifteen ticks that did not send it.
      value = 900
      over  = 1
      of    = 3
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name        = "${local.name}-${each.key}"
  alarm_description = "${each.value.says} ${var.runbook_url}#${each.key}"

  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.where
  statistic           = each.value.statistic
  comparison_operator = try(each.value.is, "GreaterThanOrEqualToThreshold")
  threshold           = each.value.value
  period              = each.value.over * 60
  evaluation_periods  = each.value.of
  datapoints_to_alarm = try(each.value.at_least, each.value.of)
  treat_missing_data  = try(each.value.missing, "notBreaching")

  alarm_actions = var.alarm_topic_arns
  ok_actions    = var.alarm_topic_arns
  tags          = var.tags
}
