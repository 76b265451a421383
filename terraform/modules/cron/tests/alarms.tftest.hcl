# The alarms and the dashboard.

provider "aws" {
  region                      = "eu-west-1"
  access_key                  = "fake"
  secret_key                  = "fake"
  skip_credentials_validation = true
  skip_requesting_account_id  = true
  skip_metadata_api_check     = true
}

override_data {
  target          = data.aws_caller_identity.current
  override_during = plan
  values          = { account_id = "123456789012" }
}

variables {
  env                        = "test"
  vpc_id                     = "vpc-0123456789abcdef0"
  subnet_ids                 = ["subnet-0123456789abcdef0"]
  database_security_group_id = "sg-0123456789abcdef0"
  database_secret_arn        = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"
  scheduler_key_secret_arn   = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf"
  app_base_url               = "https://cron.example.com"
  alarm_topic_arns           = ["arn:aws:sns:eu-west-1:123456789012:oncall"]
  zips = {
    bucket           = "artefacts"
    publisher_sha256 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    runner_sha256    = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
  }
}

run "alarms" {
  command = plan

  assert {
    condition = toset(keys(aws_cloudwatch_metric_alarm.this)) == toset([
      "publisher-heartbeat", "publisher-errors", "publisher-duration", "publisher-events-dropped", "publisher-dead-letters-undelivered",
      "outbox-lag", "figures-unread", "outbox-failed", "drains-stopped", "database-held", "xmin-age", "drift", "sweep-age", "orphans-refused", "changes-refused",
      "ledger-lag", "runs-waiting", "occurrences-missed", "occurrences-abandoned", "runs-failed", "auto-paused", "skipped-overlap", "messages-failed", "fires-disagree",
      "target-errors", "invocations-dropped", "invocations-throttled", "dead-letters-undelivered",
      "runner-errors", "runner-not-accepted", "runner-throttles", "runner-event-age", "runner-events-dropped",
      "runner-dead-letters-undelivered", "runner-duration",
      "schedules-dead-letters", "runner-dead-letters",
      "schedules-dead-letters-age", "runner-dead-letters-age",
    ])
    error_message = "These alarms and no more."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["publisher-heartbeat"].treat_missing_data == "breaching"
    error_message = "A publisher that does not run sends no metric."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["outbox-lag"].treat_missing_data == "breaching"
    error_message = "A publisher that cannot read the outbox sends no lag."
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : alarm.treat_missing_data == "notBreaching" if !contains(["publisher-heartbeat", "outbox-lag"], name)])
    error_message = "For all other alarms a missing metric is normal."
  }

  assert {
    condition = alltrue([for name, threshold in { sweep-age = 3600, orphans-refused = 1, changes-refused = 1, runs-waiting = 300 } :
      aws_cloudwatch_metric_alarm.this[name].threshold == threshold && aws_cloudwatch_metric_alarm.this[name].comparison_operator == "GreaterThanOrEqualToThreshold"
    ])
    error_message = "The alarms of the sweep and of waiting runs ring at these figures."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["figures-unread"].threshold == 1 && aws_cloudwatch_metric_alarm.this["figures-unread"].evaluation_periods == 5
    error_message = "Metrics that stay unread ring, because the alarms on them treat a missing metric as normal."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["xmin-age"].metric_name == "XminAge" && aws_cloudwatch_metric_alarm.this["xmin-age"].threshold == 2000000
    error_message = "Two million transactions without vacuum ring."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["database-held"].threshold == 1 && aws_cloudwatch_metric_alarm.this["database-held"].evaluation_periods == 1
    error_message = "A database that waits for an acceptance rings at once: ticks succeed meanwhile, so no other alarm does."
  }

  assert {
    condition = alltrue([for name, metric in { fires-disagree = "FiresDisagree", occurrences-missed = "Missed", occurrences-abandoned = "Abandoned" } :
      aws_cloudwatch_metric_alarm.this[name].metric_name == metric && aws_cloudwatch_metric_alarm.this[name].statistic == "Maximum" &&
      aws_cloudwatch_metric_alarm.this[name].threshold == 1 && aws_cloudwatch_metric_alarm.this[name].comparison_operator == "GreaterThanOrEqualToThreshold"
    ])
    error_message = "One fire that disagrees, one missed time or one abandoned run raises its alarm."
  }

  assert {
    condition = alltrue([for name, alarm in { runs-failed = ["RunsFailed", 10, 3], auto-paused = ["AutoPaused", 1, 1], skipped-overlap = ["SkippedOverlap", 10, 3], messages-failed = ["MessagesFailed", 1, 1] } :
      aws_cloudwatch_metric_alarm.this[name].metric_name == alarm[0] && aws_cloudwatch_metric_alarm.this[name].statistic == "Maximum" &&
      aws_cloudwatch_metric_alarm.this[name].threshold == alarm[1] && aws_cloudwatch_metric_alarm.this[name].evaluation_periods == alarm[2]
    ])
    error_message = "Workflows that fail, that cronbox has paused, or whose runs take too long raise their alarms, and so do messages that fail."
  }

  assert {
    condition     = strcontains(aws_cloudwatch_log_metric_filter.runner_not_accepted.pattern, "$.fields.accepted IS FALSE")
    error_message = "An answer that is not the app's is counted, whatever its status."
  }

  assert {
    condition     = alltrue([for name, alarm in aws_cloudwatch_metric_alarm.this : endswith(alarm.alarm_description, "docs/runbook.md#${name}")])
    error_message = "An alarm links to its paragraph."
  }

  assert {
    condition     = length(setsubtract(keys(aws_cloudwatch_metric_alarm.this), flatten(regexall("<a id=\"([a-z-]+)\"></a>", file("../../../docs/runbook.md"))))) == 0
    error_message = "The paragraph exists."
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : toset(alarm.alarm_actions) == toset(var.alarm_topic_arns) && toset(alarm.ok_actions) == toset(var.alarm_topic_arns)])
    error_message = "The topics of an alarm get its end, too."
  }

  assert {
    condition     = !anytrue([for alarm in aws_cloudwatch_metric_alarm.this : try(alarm.dimensions["QueueName"], "") == "cronbox-test-publisher-dlq"])
    error_message = "A failed tick needs no one: the next one does its work."
  }

  assert {
    condition = alltrue([
      for name, alarm in aws_cloudwatch_metric_alarm.this : (
        contains(["publisher-errors", "outbox-lag", "ledger-lag"], name) ?
        alarm.datapoints_to_alarm == 3 && alarm.evaluation_periods == 5 : alarm.datapoints_to_alarm == alarm.evaluation_periods
      )
    ])
    error_message = "One late tick leaves a minute without a value, which must not reset these alarms."
  }

  assert {
    condition     = !anytrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.metric_name == "Throttles" && try(alarm.dimensions["FunctionName"], "") == "cronbox-test-publisher"])
    error_message = "A long drain throttles the publisher normally."
  }

  assert {
    condition     = alltrue([for alarm in aws_cloudwatch_metric_alarm.this : alarm.dimensions == tomap({ Env = "test" }) if alarm.namespace == "cronbox"])
    error_message = "The publisher sends its metrics by environment."
  }

  assert {
    condition = alltrue([for name in ["schedules", "runner"] :
      aws_cloudwatch_metric_alarm.this["${name}-dead-letters-age"].metric_name == "DeadLetterAgeSeconds_${name}" && aws_cloudwatch_metric_alarm.this["${name}-dead-letters-age"].threshold == 43200
    ])
    error_message = "The publisher measures how long a dead letter has waited: SQS leaves out those that the publisher receives."
  }

  assert {
    # Milliseconds; the grace is schedule::delivery::GRACE.
    condition     = aws_cloudwatch_metric_alarm.this["runner-event-age"].threshold == 240000
    error_message = "The alarm rings a minute before fires are later than the grace of 300 s."
  }
}

run "tickets_have_their_own_topics" {
  command = plan

  variables {
    ticket_topic_arns = ["arn:aws:sns:eu-west-1:123456789012:tickets"]
  }

  assert {
    condition = toset([for name, alarm in aws_cloudwatch_metric_alarm.this : name if alarm.alarm_actions == toset(var.ticket_topic_arns) && alarm.ok_actions == toset(var.ticket_topic_arns)]) == toset([
      "auto-paused", "figures-unread", "fires-disagree", "messages-failed", "orphans-refused", "publisher-dead-letters-undelivered",
      "publisher-duration", "publisher-events-dropped", "runner-duration", "runs-failed", "skipped-overlap", "sweep-age", "xmin-age",
    ])
    error_message = "What loses or delays no fire can wait."
  }

  assert {
    condition     = aws_cloudwatch_metric_alarm.this["outbox-lag"].alarm_actions == toset(var.alarm_topic_arns)
    error_message = "All others are pages."
  }
}

run "dashboard" {
  command = plan

  assert {
    condition = [for widget in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : widget.properties.title if !endswith(widget.properties.title, ": wrong") && widget.properties.title != "ledger"] == [
      "1 edit", "2 outbox", "3 publisher", "4 schedule", "5 fire", "6 runner", "7 run", "dead letters",
    ]
    error_message = "The seven steps, left to right."
  }

  assert {
    condition = [for widget in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : [for metric in widget.properties.metrics : metric[1]] if widget.properties.title == "ledger"] == [
      ["Missed", "Abandoned", "CaughtUp", "SkippedOverlap", "RunsFailed", "AutoPaused", "MessagesFailed", "LedgerLagSeconds"],
    ]
    error_message = "The decisions about due times, below the steps."
  }

  assert {
    condition     = alltrue([for widget in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : widget.x + widget.width <= 24 && widget.width >= 6])
    error_message = "A dashboard is 24 wide, and a legend needs 6."
  }

  assert {
    condition     = length(distinct([for widget in jsondecode(aws_cloudwatch_dashboard.this.dashboard_body).widgets : "${widget.x} ${widget.y}"])) == 17
    error_message = "No widget covers another one."
  }
}
