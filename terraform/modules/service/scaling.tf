# More tasks if runs wait, or if CPU or slots are busy; fewer when both are idle. The target exists also for a fixed size: the service
# ignores changes of its count, and Application Auto Scaling moves it into the new limits.

locals {
  scales         = var.size.max > var.size.min ? 1 : 0
  executor_slots = tonumber(lookup(var.settings, "CRONBOX_EXECUTOR_SLOTS", "1000"))
}

resource "aws_appautoscaling_target" "app" {
  service_namespace  = "ecs"
  scalable_dimension = "ecs:service:DesiredCount"
  resource_id        = "service/${aws_ecs_cluster.this.name}/${aws_ecs_service.app.name}"
  min_capacity       = var.size.min
  max_capacity       = var.size.max
  tags               = var.tags
}

resource "aws_appautoscaling_policy" "cpu" {
  count = local.scales

  name               = "${local.name}-cpu"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.app.service_namespace
  scalable_dimension = aws_appautoscaling_target.app.scalable_dimension
  resource_id        = aws_appautoscaling_target.app.resource_id

  target_tracking_scaling_policy_configuration {
    target_value       = 60
    scale_in_cooldown  = 600
    scale_out_cooldown = 60

    predefined_metric_specification {
      predefined_metric_type = "ECSServiceAverageCPUUtilization"
    }
  }
}

# Runs that only wait for their receiver need slots, and almost no CPU. Only policies of this type decide about fewer tasks, and all of
# them must agree: by the CPU, tasks that are full of waiting runs would end, and cut these runs off.
resource "aws_appautoscaling_policy" "slots" {
  count = local.scales

  name               = "${local.name}-slots"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.app.service_namespace
  scalable_dimension = aws_appautoscaling_target.app.scalable_dimension
  resource_id        = aws_appautoscaling_target.app.resource_id

  target_tracking_scaling_policy_configuration {
    # AWS refuses 0, in the middle of an apply.
    target_value       = max(1, 0.6 * local.executor_slots)
    scale_in_cooldown  = 600
    scale_out_cooldown = 60

    # Each task writes its own value once a minute, so the average is that of one task.
    customized_metric_specification {
      namespace   = "cronbox/app"
      metric_name = "executor_slots_used"
      statistic   = "Average"

      dimensions {
        name  = "Env"
        value = var.env
      }
    }
  }
}

resource "aws_appautoscaling_policy" "queue" {
  count = local.scales

  name               = "${local.name}-queue"
  policy_type        = "StepScaling"
  service_namespace  = aws_appautoscaling_target.app.service_namespace
  scalable_dimension = aws_appautoscaling_target.app.scalable_dimension
  resource_id        = aws_appautoscaling_target.app.resource_id

  step_scaling_policy_configuration {
    adjustment_type         = "ChangeInCapacity"
    cooldown                = 120
    metric_aggregation_type = "Maximum"

    # One more from 30 s on, two more from 120 s on.
    step_adjustment {
      metric_interval_lower_bound = 0
      metric_interval_upper_bound = 90
      scaling_adjustment          = 1
    }

    step_adjustment {
      metric_interval_lower_bound = 90
      scaling_adjustment          = 2
    }
  }
}

# The publisher sends the metric, so that it exists without an app.
resource "aws_cloudwatch_metric_alarm" "queue" {
  count = local.scales

  alarm_name          = "${local.name}-app-runs-wait"
  alarm_description   = "Runs wait for an executor: the service gets more tasks. No one has to act. ${var.runbook_url}#runs-waiting"
  namespace           = "cronbox"
  metric_name         = "RunsWaitingSeconds"
  dimensions          = { Env = var.env }
  statistic           = "Maximum"
  comparison_operator = "GreaterThanOrEqualToThreshold"
  threshold           = 30
  period              = 60
  evaluation_periods  = 2
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_appautoscaling_policy.queue[0].arn]
  tags                = var.tags
}
