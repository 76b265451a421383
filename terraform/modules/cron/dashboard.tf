# The seven steps from left to right, each a column: what flows, and below it what goes wrong.

locals {
  columns = [
    {
      title = "1-2 edit, outbox"
      flow  = [["cronbox", "processed", "Env", var.env], ["cronbox", "coalesced", "Env", var.env]]
      wrong = [["cronbox", "OutboxLagSeconds", "Env", var.env, { stat = "Maximum" }]]
    },
    {
      title = "3 publisher"
      flow  = [["AWS/Lambda", "Invocations", "FunctionName", aws_lambda_function.publisher.function_name], ["AWS/Lambda", "Duration", "FunctionName", aws_lambda_function.publisher.function_name, { stat = "p99", yAxis = "right" }]]
      wrong = [["AWS/Lambda", "Errors", "FunctionName", aws_lambda_function.publisher.function_name], ["cronbox", "retried", "Env", var.env], ["cronbox", "failed", "Env", var.env]]
    },
    {
      title = "4 schedules"
      flow  = [for deed in ["created", "updated", "deleted", "unchanged"] : ["cronbox", deed, "Env", var.env]]
      wrong = [["cronbox", "DriftCount", "Env", var.env, { stat = "Maximum" }], ["cronbox", "OutboxFailedRows", "Env", var.env, { stat = "Maximum" }]]
    },
    {
      title = "5 fire"
      flow  = [["AWS/Scheduler", "InvocationAttemptCount", "ScheduleGroup", aws_scheduler_schedule_group.this.name]]
      wrong = [for metric in ["TargetErrorCount", "InvocationDroppedCount", "InvocationThrottleCount"] : ["AWS/Scheduler", metric, "ScheduleGroup", aws_scheduler_schedule_group.this.name]]
    },
    {
      title = "6 runner"
      flow  = [["AWS/Lambda", "Invocations", "FunctionName", aws_lambda_function.runner.function_name], ["AWS/Lambda", "Duration", "FunctionName", aws_lambda_function.runner.function_name, { stat = "p99", yAxis = "right" }]]
      wrong = [["AWS/Lambda", "Errors", "FunctionName", aws_lambda_function.runner.function_name], ["AWS/Lambda", "Throttles", "FunctionName", aws_lambda_function.runner.function_name]]
    },
    {
      title = "7 run"
      flow  = [["AWS/Lambda", "AsyncEventsReceived", "FunctionName", aws_lambda_function.runner.function_name]]
      wrong = concat([["cronbox/${var.env}", "RunnerNotAccepted"]], [for queue in aws_sqs_queue.dead_letters : ["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", queue.name, { stat = "Maximum" }]])
    },
  ]
}

resource "aws_cloudwatch_dashboard" "this" {
  dashboard_name = local.name

  dashboard_body = jsonencode({
    widgets = flatten([
      for at, column in local.columns : [
        for row, metrics in [column.flow, column.wrong] : {
          type   = "metric"
          x      = at * 4
          y      = row * 6
          width  = 4
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
    ])
  })
}
