# Every alarm, by its step. Its description links to the paragraph of docs/runbook.md with the same
# name: cause, check, fix.

locals {
  publisher_function = { FunctionName = aws_lambda_function.publisher.function_name }
  runner_function    = { FunctionName = aws_lambda_function.runner.function_name }
  fire_queues        = { for name in ["runner", "schedules"] : name => aws_sqs_queue.dead_letters[name] }
  schedule_group     = { ScheduleGroup = aws_scheduler_schedule_group.this.name }
  publisher_metrics  = { Env = var.env }

  # Each alarm has its meaning, its metric and its threshold. `over` is in minutes; `at_least` so many of `of` periods, all
  # unless the alarm says otherwise, because a minute without a value counts as good. A missing metric is normal unless
  # the alarm says otherwise.
  alarms = merge(
    {
      # Step 3: the heartbeat. Not the publisher's throttles: a long drain causes those normally.
      publisher-heartbeat = {
        says      = "The publisher has not run for five minutes: edits do not reach EventBridge."
        namespace = "AWS/Lambda"
        metric    = "Invocations"
        where     = local.publisher_function
        statistic = "Sum"
        is        = "LessThanThreshold"
        value     = 1
        over      = 5
        of        = 1
        missing   = "breaching"
      }
      publisher-errors = {
        says      = "Ticks of the publisher fail."
        namespace = "AWS/Lambda"
        metric    = "Errors"
        where     = local.publisher_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 5
        at_least  = 3
      }
      publisher-duration = {
        says      = "Ticks of the publisher use almost all of their 50 s: the backlog grows faster than it drains."
        namespace = "AWS/Lambda"
        metric    = "Duration"
        where     = local.publisher_function
        statistic = "p99"
        value     = 45000
        over      = 1
        of        = 10
      }
      publisher-events-dropped = {
        says      = "Lambda discarded ticks before the publisher got them."
        namespace = "AWS/Lambda"
        metric    = "AsyncEventsDropped"
        # Ticks that wait behind a long drain are dropped normally; five in a row are not.
        where     = local.publisher_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 5
      }
      publisher-dead-letters-undelivered = {
        says      = "Lambda could not write to the publisher's dead-letter queue."
        namespace = "AWS/Lambda"
        metric    = "DestinationDeliveryFailures"
        where     = local.publisher_function
        statistic = "Sum"
        value     = 1
        over      = 5
        of        = 1
      }
      outbox-lag = {
        says      = "The oldest unpublished edit is too old."
        namespace = "cronbox"
        metric    = "OutboxLagSeconds"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = var.outbox_lag_alarm_secs
        over      = 1
        of        = 5
        at_least  = 3
        # A publisher that cannot read the outbox leaves the metric out.
        missing = "breaching"
      }
      figures-unread = {
        says      = "The publisher cannot read some of its metrics: the alarms on them are silent."
        namespace = "cronbox"
        metric    = "FiguresUnread"
        where     = local.publisher_metrics
        statistic = "Maximum"
        # One unread metric may be a slow minute of the database.
        value = 1
        over  = 1
        of    = 5
      }
      outbox-failed = {
        says      = "EventBridge refuses a workflow's schedule; it waits for an edit or a retry."
        namespace = "cronbox"
        metric    = "OutboxFailedRows"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      drains-stopped = {
        says      = "EventBridge refuses all workflows for a reason that is in no workflow: denied, no schedule group, or a quota."
        namespace = "cronbox"
        metric    = "DrainsStopped"
        where     = local.publisher_metrics
        statistic = "Sum"
        # One stopped drain may be a policy that is not in effect yet; the next tick retries.
        value = 1
        over  = 1
        of    = 2
      }
      database-held = {
        says      = "The database was restored or cloned: nothing runs and nothing is published until its ledger is accepted."
        namespace = "cronbox"
        metric    = "Held"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      xmin-age = {
        says      = "A transaction, a replication slot or a prepared transaction stays open: vacuum removes no dead rows, and the database slows down."
        namespace = "cronbox"
        metric    = "XminAge"
        where     = local.publisher_metrics
        statistic = "Maximum"
        # In transactions: more dead rows than the tables of a million workflows have rows. A dump of a quiet database does
        # not reach it.
        value = 2000000
        over  = 1
        of    = 5
      }
      drift = {
        says      = "Schedules in EventBridge differ from the database, and are not repaired."
        namespace = "cronbox"
        metric    = "DriftCount"
        # A sweep repairs what it finds. What the next sweep finds again, 15 minutes later, was not repaired.
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 15
        of        = 2
      }
      sweep-age = {
        says      = "No sweep has ended for an hour: changes in EventBridge are not detected."
        namespace = "cronbox"
        metric    = "SweepAgeSeconds"
        where     = local.publisher_metrics
        statistic = "Maximum"
        # Four sweeps; one of a million schedules takes up to 40 minutes.
        value = 3600
        over  = 1
        of    = 5
      }
      orphans-refused = {
        says      = "The sweep found too many schedules that belong to no workflow: it may be the wrong database."
        namespace = "cronbox"
        metric    = "OrphansRefused"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      changes-refused = {
        says      = "The brake of the sweep is engaged: it would delete, disable or change many schedules, and nothing explains it."
        namespace = "cronbox"
        metric    = "ChangesRefused"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }

      # Step 7: the ledger, read by the publisher, so that a dead app raises the alarms, too.
      ledger-lag = {
        says      = "Due times have no decision: the app's watchdog does not run."
        namespace = "cronbox"
        metric    = "LedgerLagSeconds"
        where     = local.publisher_metrics
        statistic = "Maximum"
        # Five of the watchdog's passes; its grace of 300 s is not part of the number.
        value    = 300
        over     = 1
        of       = 5
        at_least = 3
      }
      runs-waiting = {
        says      = "Accepted runs wait for an executor: no app runs, or all slots are in use."
        namespace = "cronbox"
        metric    = "RunsWaitingSeconds"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 300
        over      = 1
        of        = 3
      }
      occurrences-missed = {
        says      = "Due times were missed, and have not run since."
        namespace = "cronbox"
        metric    = "Missed"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      occurrences-abandoned = {
        says      = "Runs were abandoned: it is unknown whether their actions were done."
        namespace = "cronbox"
        metric    = "Abandoned"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      runs-failed = {
        says      = "Many runs of the last hour failed or timed out."
        namespace = "cronbox"
        metric    = "RunsFailed"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = var.runs_failed_alarm_count
        over      = 1
        of        = 3
      }
      auto-paused = {
        says      = "cronbox has paused a workflow because its runs failed: it does not run until a person resumes it."
        namespace = "cronbox"
        metric    = "AutoPaused"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      skipped-overlap = {
        says      = "Many due times of the last hour did not run, because the run before them had not ended."
        namespace = "cronbox"
        metric    = "SkippedOverlap"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = var.skipped_overlap_alarm_count
        over      = 1
        of        = 3
      }
      messages-failed = {
        says      = "Messages about failures do not arrive: a channel of a team refuses them."
        namespace = "cronbox"
        metric    = "MessagesFailed"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
      fires-disagree = {
        says      = "EventBridge fires at times that the schedule does not name by the zone data of cronbox."
        namespace = "cronbox"
        metric    = "FiresDisagree"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }

      # Step 5: EventBridge Scheduler fires.
      target-errors = {
        says      = "EventBridge cannot invoke the runner."
        namespace = "AWS/Scheduler"
        metric    = "TargetErrorCount"
        where     = local.schedule_group
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }
      invocations-dropped = {
        says      = "EventBridge dropped fires after its last try."
        namespace = "AWS/Scheduler"
        metric    = "InvocationDroppedCount"
        where     = local.schedule_group
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }
      invocations-throttled = {
        says      = "More fires in a second than the account's quota allows: they arrive late."
        namespace = "AWS/Scheduler"
        metric    = "InvocationThrottleCount"
        where     = local.schedule_group
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }
      dead-letters-undelivered = {
        says      = "EventBridge could not write to the schedules' dead-letter queue: fires are lost there."
        namespace = "AWS/Scheduler"
        metric    = "InvocationsFailedToBeSentToDeadLetterCount"
        where     = local.schedule_group
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }

      # Step 6: the runner delivers.
      runner-errors = {
        says      = "Deliveries fail; Lambda retries twice, then they are dead letters."
        namespace = "AWS/Lambda"
        metric    = "Errors"
        where     = local.runner_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 3
      }
      runner-not-accepted = {
        says      = "Fires get no answer of the app itself."
        namespace = aws_cloudwatch_log_metric_filter.runner_not_accepted.metric_transformation[0].namespace
        metric    = aws_cloudwatch_log_metric_filter.runner_not_accepted.metric_transformation[0].name
        where     = {}
        statistic = "Sum"
        value     = 1
        over      = 5
        of        = 1
      }
      runner-throttles = {
        says      = "More fires than runners: fires wait in Lambda's queue."
        namespace = "AWS/Lambda"
        metric    = "Throttles"
        where     = local.runner_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 5
      }
      runner-event-age = {
        says      = "Fires wait in Lambda's queue for almost as long as the ledger's grace."
        namespace = "AWS/Lambda"
        metric    = "AsyncEventAge"
        where     = local.runner_function
        statistic = "Maximum"
        # A minute before the grace of 300 s, in which a fire is on time.
        value = 240000
        over  = 1
        of    = 1
      }
      runner-events-dropped = {
        says      = "Lambda discarded fires; they are in the runner's dead-letter queue."
        namespace = "AWS/Lambda"
        metric    = "AsyncEventsDropped"
        where     = local.runner_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }
      runner-dead-letters-undelivered = {
        says      = "Lambda could not write to the runner's dead-letter queue: fires are lost there."
        namespace = "AWS/Lambda"
        metric    = "DestinationDeliveryFailures"
        where     = local.runner_function
        statistic = "Sum"
        value     = 1
        over      = 1
        of        = 1
      }
      runner-duration = {
        says      = "Deliveries take almost all of their 12 s."
        namespace = "AWS/Lambda"
        metric    = "Duration"
        where     = local.runner_function
        statistic = "p99"
        value     = 10000
        over      = 5
        of        = 3
      }
    },
    {
      # Not of the publisher's queue: the next tick does what a failed one did not, and its alarms watch errors, heartbeat and lag.
      for name, queue in local.fire_queues : "${name}-dead-letters" => {
        says      = "The dead-letter queue of ${name} is not empty: see `cronbox dlq ls`."
        namespace = "AWS/SQS"
        metric    = "ApproximateNumberOfMessagesVisible"
        where     = { QueueName = queue.name }
        statistic = "Maximum"
        value     = 1
        over      = 1
        of        = 1
      }
    },
    {
      for name, queue in local.fire_queues : "${name}-dead-letters-age" => {
        # The app answers `too_old` to a fire older than 24 hours, so 12 hours remain for a redrive. Not SQS's own age, which leaves
        # out messages that were received more than three times: the publisher receives each of them every minute.
        says      = "A dead letter of ${name} has waited for 12 hours; after 24 hours the app refuses its fire."
        namespace = "cronbox"
        metric    = "DeadLetterAgeSeconds_${name}"
        where     = local.publisher_metrics
        statistic = "Maximum"
        value     = 43200
        over      = 5
        of        = 1
      }
    },
  )
}

# No fire is lost or late yet if one of these rings, and none will be within a day, or its loss is the decision of a
# workflow: all others are pages.
locals {
  tickets = toset([
    "auto-paused", "figures-unread", "fires-disagree", "messages-failed", "orphans-refused", "publisher-dead-letters-undelivered",
    "publisher-duration", "publisher-events-dropped", "runner-duration", "runs-failed", "skipped-overlap", "sweep-age", "xmin-age",
  ])
  topics = {
    for name in keys(local.alarms) : name => contains(local.tickets, name) && var.ticket_topic_arns != null ? var.ticket_topic_arns : var.alarm_topic_arns
  }
}

resource "aws_cloudwatch_metric_alarm" "this" {
  for_each = local.alarms

  alarm_name        = "${local.name}-${each.key}"
  alarm_description = "${each.value.says} ${var.runbook_url}#${each.key}"

  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.where
  statistic           = startswith(each.value.statistic, "p") ? null : each.value.statistic
  extended_statistic  = startswith(each.value.statistic, "p") ? each.value.statistic : null
  comparison_operator = try(each.value.is, "GreaterThanOrEqualToThreshold")
  threshold           = each.value.value
  period              = each.value.over * 60
  evaluation_periods  = each.value.of
  datapoints_to_alarm = try(each.value.at_least, each.value.of)
  treat_missing_data  = try(each.value.missing, "notBreaching")

  alarm_actions = local.topics[each.key]
  ok_actions    = local.topics[each.key]
  tags          = var.tags
}
