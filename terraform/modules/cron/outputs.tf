output "runner_lambda_arn" {
  description = "The runner: the alias of the function that every schedule invokes."
  value       = aws_lambda_alias.runner.arn
}

output "publisher_lambda_arn" {
  description = "The publisher's alias; invoke it with {\"sweep\":true} to sweep at once."
  value       = aws_lambda_alias.publisher.arn
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
  description = "The publisher's security group; the database must admit it, which the module does."
  value       = aws_security_group.publisher.id
}

output "runner_security_group_id" {
  description = "The runner's security group; the app must admit it, which the module does if it knows app_security_group_ids."
  value       = aws_security_group.runner.id
}

output "versions" {
  description = "The versions that the aliases name."
  value       = { publisher = aws_lambda_function.publisher.version, runner = aws_lambda_function.runner.version }
}

output "dashboard_name" {
  description = "The dashboard that shows the seven steps."
  value       = aws_cloudwatch_dashboard.this.dashboard_name
}
