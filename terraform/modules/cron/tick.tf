# The publisher's tick, every minute. The sweep runs inside it, so there is no second rule.

resource "aws_cloudwatch_event_rule" "tick" {
  name                = "${local.name}-publisher-tick"
  description         = "Invokes cronbox's publisher."
  schedule_expression = "rate(1 minute)"
  state               = "ENABLED"
  tags                = var.tags
}

resource "aws_cloudwatch_event_target" "tick" {
  rule      = aws_cloudwatch_event_rule.tick.name
  target_id = "publisher"
  arn       = aws_lambda_alias.publisher.arn

  # As in the Lambda's own queue: a tick that waits is out of date. A minute is the minimum that AWS accepts.
  retry_policy {
    maximum_event_age_in_seconds = 60
    maximum_retry_attempts       = 0
  }
}

# A rule needs a permission; EventBridge Scheduler, which assumes a role, needs none.
resource "aws_lambda_permission" "tick" {
  statement_id   = "tick"
  action         = "lambda:InvokeFunction"
  function_name  = aws_lambda_function.publisher.function_name
  qualifier      = aws_lambda_alias.publisher.name
  principal      = "events.amazonaws.com"
  source_arn     = aws_cloudwatch_event_rule.tick.arn
  source_account = local.account_id
}
