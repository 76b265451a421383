# The alarms of the app. Those of fires and edits are the cron module's.

locals {
  balancer        = { LoadBalancer = aws_lb.this.arn_suffix, TargetGroup = aws_lb_target_group.app.arn_suffix }
  database_metric = { DBInstanceIdentifier = local.name }

  # `over` is in minutes.
  alarms = merge(
    {
      app-unhealthy = {
        says      = "Fewer than two tasks of the app answer."
        namespace = "AWS/ApplicationELB"
        metric    = "HealthyHostCount"
        where     = local.balancer
        statistic = "Minimum"
        is        = "LessThanThreshold"
        value     = min(2, var.size.min)
        of        = 5
        missing   = "breaching"
      }
      app-errors = {
        says      = "The app answers with 5xx."
        namespace = "AWS/ApplicationELB"
        metric    = "HTTPCode_Target_5XX_Count"
        where     = local.balancer
        statistic = "Sum"
        value     = 10
        of        = 3
        missing   = "notBreaching"
      }
      refusals = {
        says      = "The app refuses many requests: an attack, or a limit that is too low."
        namespace = "cronbox/app"
        metric    = "refusals"
        where     = { Env = var.env }
        statistic = "Sum"
        value     = 1000
        of        = 3
        missing   = "notBreaching"
      }
      verify-not-started = {
        says      = "ECS has refused to start the verification of the ledger."
        namespace = "AWS/SQS"
        metric    = "ApproximateNumberOfMessagesVisible"
        where     = { QueueName = aws_sqs_queue.verify.name }
        statistic = "Maximum"
        value     = 1
        of        = 1
        missing   = "notBreaching"
      }
    },
    { for name, alarm in {
      database-storage = {
        # RDS grows the storage when a tenth is free. Half of that, of the storage at the beginning, says that it did not.
        says      = "The database has almost no free storage, and does not grow."
        namespace = "AWS/RDS"
        metric    = "FreeStorageSpace"
        where     = local.database_metric
        statistic = "Minimum"
        is        = "LessThanThreshold"
        value     = var.database.storage_gb * 1024 * 1024 * 1024 / 20
        of        = 5
        missing   = "notBreaching"
      }
      database-cpu = {
        says      = "The database's CPU is above 90 %."
        namespace = "AWS/RDS"
        metric    = "CPUUtilization"
        where     = local.database_metric
        statistic = "Average"
        value     = 90
        of        = 10
        missing   = "notBreaching"
      }
    } : name => alarm if local.makes_database },
  )
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name          = "${local.name}-${each.key}"
  alarm_description   = "${each.value.says} ${var.runbook_url}#${each.key}"
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.where
  statistic           = each.value.statistic
  comparison_operator = try(each.value.is, "GreaterThanOrEqualToThreshold")
  threshold           = each.value.value
  period              = 60
  evaluation_periods  = each.value.of
  datapoints_to_alarm = each.value.of
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = var.tags
}
