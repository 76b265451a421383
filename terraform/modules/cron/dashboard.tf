# The seven steps in two rows of four, left to right: of each its flow, and below it its failures. The eighth is the dead
# letters. Below them, the decisions about due times.

locals {
  publisher_name = aws_lambda_function.publisher.function_name
  runner_name    = aws_lambda_function.runner.function_name
  group_name     = aws_scheduler_schedule_group.this.name
  deliveries     = aws_cloudwatch_log_metric_filter.runner_accepted.metric_transformation[0].namespace

  columns = [
    {
      title = "1 edit"
      flow  = [for outcome in ["processed", "coalesced"] : ["cronbox", outcome, "Env", var.env]]
      wrong = [["cronbox", "OutboxFailedRows", "Env", var.env, { stat = "Maximum" }]]
    },
    {
      title = "2 outbox"
      flow  = [["cronbox", "remaining", "Env", var.env, { stat = "Maximum" }]]
      wrong = [["cronbox", "OutboxLagSeconds", "Env", var.env, { stat = "Maximum" }]]
    },
    {
      title = "3 publisher"
      flow  = [["AWS/Lambda", "Invocations", "FunctionName", local.publisher_name], ["AWS/Lambda", "Duration", "FunctionName", local.publisher_name, { stat = "p99", yAxis = "right" }]]
      wrong = [["AWS/Lambda", "Errors", "FunctionName", local.publisher_name], ["cronbox", "retried", "Env", var.env], ["cronbox", "DrainsStopped", "Env", var.env]]
    },
    {
      title = "4 schedule"
      flow  = [for change in ["created", "updated", "deleted", "unchanged"] : ["cronbox", change, "Env", var.env]]
      wrong = [["cronbox", "DriftCount", "Env", var.env, { stat = "Maximum" }], ["cronbox", "failed", "Env", var.env]]
    },
    {
      title = "5 fire"
      flow  = [["AWS/Scheduler", "InvocationAttemptCount", "ScheduleGroup", local.group_name]]
      wrong = [for metric in ["TargetErrorCount", "InvocationDroppedCount", "InvocationThrottleCount"] : ["AWS/Scheduler", metric, "ScheduleGroup", local.group_name]]
    },
    {
      title = "6 runner"
      flow  = [["AWS/Lambda", "Invocations", "FunctionName", local.runner_name], ["AWS/Lambda", "Duration", "FunctionName", local.runner_name, { stat = "p99", yAxis = "right" }]]
      wrong = [for metric in ["Errors", "Throttles"] : ["AWS/Lambda", metric, "FunctionName", local.runner_name]]
    },
    {
      title = "7 run"
      flow  = [[local.deliveries, "RunnerAccepted"]]
      wrong = [[local.deliveries, "RunnerNotAccepted"]]
    },
    {
      title = "dead letters"
      flow  = [for queue in aws_sqs_queue.dead_letters : ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", queue.name, { stat = "Maximum" }]]
      wrong = [for name, queue in aws_sqs_queue.dead_letters : ["cronbox", "DeadLetterAgeSeconds_${name}", "Env", var.env, { stat = "Maximum" }]]
    },
  ]
  ledger = concat(
    [for metric in ["Missed", "Abandoned", "CaughtUp", "SkippedOverlap", "RunsFailed", "AutoPaused", "MessagesFailed"] : ["cronbox", metric, "Env", var.env]],
    [["cronbox", "LedgerLagSeconds", "Env", var.env, { yAxis = "right" }]],
  )

  # A dashboard is 24 wide; a narrower column has no room for its legend.
  column_width = 6
  in_a_row     = 4
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = local.global_name

  dashboard_body = jsonencode({
    widgets = concat(flatten([
      for at, column in local.columns : [
        for row, metrics in [column.flow, column.wrong] : {
          type   = "metric"
          x      = at % local.in_a_row * local.column_width
          y      = (floor(at / local.in_a_row) * 2 + row) * 6
          width  = local.column_width
          height = 6
          properties = {
            title   = row == 0 ? column.title : "${column.title}: wrong"
            region  = local.region
            stat    = "Sum"
            period  = 60
            view    = "timeSeries"
            metrics = metrics
          }
        }
      ]
      ]), [
      {
        type   = "metric"
        x      = 0
        y      = 24
        width  = 24
        height = 6
        properties = {
          title  = "ledger"
          region = local.region
          # Each number is already of the last hour: sums would count it again every minute.
          stat    = "Maximum"
          period  = 60
          view    = "timeSeries"
          metrics = local.ledger
        }
      }
    ])
  })
}
