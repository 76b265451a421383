output "runner_lambda_arn" {
  description = "The runner: the function that every schedule invokes."
  value       = module.cron.runner_lambda_arn
}

output "publisher_lambda_arn" {
  description = "The publisher."
  value       = module.cron.publisher_lambda_arn
}

output "scheduler_role_arn" {
  description = "The role with which EventBridge Scheduler invokes the runner."
  value       = module.cron.scheduler_role_arn
}

output "schedule_group_name" {
  description = "The schedule group of the environment."
  value       = module.cron.schedule_group_name
}

output "dead_letter_queue_urls" {
  description = "The dead-letter queues, for `cronbox dlq .. --queue URL`: schedules, runner, publisher."
  value       = module.cron.dead_letter_queue_urls
}

output "dashboard_name" {
  description = "The dashboard that shows the seven steps."
  value       = module.cron.dashboard_name
}
