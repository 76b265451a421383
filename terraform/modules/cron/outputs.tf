output "runner_lambda_arn" {
  description = "The runner: the function that every schedule invokes."
  value       = aws_lambda_function.runner.arn
}

output "publisher_lambda_arn" {
  description = "The publisher; invoke it with {\"sweep\":true} to sweep at once."
  value       = aws_lambda_function.publisher.arn
}

output "scheduler_role_arn" {
  description = "The role with which EventBridge Scheduler invokes the runner."
  value       = aws_iam_role.scheduler.arn
}

output "schedule_group_name" {
  description = "The schedule group of the environment."
  value       = aws_scheduler_schedule_group.this.name
}

output "dead_letter_queue_urls" {
  description = "The dead-letter queues, for `cronbox dlq .. --queue URL`: schedules, runner, publisher."
  value       = { for name, queue in aws_sqs_queue.dead_letters : name => queue.id }
}

output "publisher_security_group_id" {
  description = "The publisher's security group."
  value       = aws_security_group.publisher.id
}

output "dashboard_name" {
  description = "The dashboard that shows the seven steps."
  value       = aws_cloudwatch_dashboard.this.dashboard_name
}
