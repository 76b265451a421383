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
      job-failing = {
        says      = "A background job of the app fails."
        namespace = "cronbox/app"
        metric    = "job_failing"
        where     = { Env = var.env }
        statistic = "Maximum"
        value     = 1
        of        = 10
        missing   = "notBreaching"
      }
      job-overdue = {
        says      = "A background job of the app does not run."
        namespace = "cronbox/app"
        metric    = "job_overdue_seconds"
        where     = { Env = var.env }
        statistic = "Maximum"
        value     = 900
        of        = 5
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
        # RDS grows the storage when a tenth is free. Half of that says that it did not. The instance, not the variable, has the
        # size to which RDS has grown it; each apply follows. Between two of them the event below says that the storage is low.
        says      = "The database has almost no free storage, and does not grow."
        namespace = "AWS/RDS"
        metric    = "FreeStorageSpace"
        where     = local.database_metric
        statistic = "Minimum"
        is        = "LessThanThreshold"
        value     = try(aws_db_instance.this[0].allocated_storage, 0) * 1024 * 1024 * 1024 / 20
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

# What RDS itself says of the instance: it has almost no storage left, also at the size to which it may grow, or it has failed.
resource "aws_db_event_subscription" "this" {
  for_each = toset(local.makes_database ? var.alarm_topic_arns : [])

  name             = "${local.name}-${substr(sha256(each.value), 0, 8)}"
  sns_topic        = each.value
  source_type      = "db-instance"
  source_ids       = aws_db_instance.this[*].identifier
  event_categories = ["failure", "low storage"]
  tags             = var.tags
}
