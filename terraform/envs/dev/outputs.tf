output "runner_lambda_arn" {
  description = "The runner: the alias of the function that every schedule invokes."
  value       = module.cron.runner_lambda_arn
}

output "publisher_lambda_arn" {
  description = "The publisher's alias."
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
  description = "The dead-letter queues, for `cronbox dlq .. --queue URL`: schedules, runner, publisher, and notifier if it is made."
  value       = merge(module.cron.dead_letter_queue_urls, local.has_notifier ? { notifier = module.notifier[0].dead_letter_queue_url } : {})
}

output "dashboard_name" {
  description = "The dashboard that shows the seven steps."
  value       = module.cron.dashboard_name
}

output "publisher_security_group_id" {
  description = "The publisher's security group."
  value       = module.cron.publisher_security_group_id
}

output "runner_security_group_id" {
  description = "The runner's security group; the app must admit it."
  value       = module.cron.runner_security_group_id
}

output "versions" {
  description = "The versions of publisher and runner that are live."
  value       = module.cron.versions
}

output "notifier_lambda_arn" {
  description = "The notifier's alias; null without targets."
  value       = one(module.notifier[*].notifier_lambda_arn)
}

output "url" {
  description = "The address of the app."
  value       = local.makes_app ? module.service[0].url : var.app_base_url
}

output "balancer" {
  description = "The load balancer's name and hosted zone, for a record of the domain that is made elsewhere."
  value       = one(module.service[*].balancer)
}

output "admin_key_secret_arn" {
  description = "The secret of the first operator's key."
  value       = one(module.service[*].admin_key_secret_arn)
}

output "operator_network" {
  description = "The network of an operator's task, for `aws ecs run-task --network-configuration`; null if the app runs elsewhere."
  value       = one(module.service[*].operator_network)
}

output "database_host" {
  description = "The database's host, for psql; null if its secret names it."
  value       = local.makes_app ? module.service[0].database.host : var.database_host
}
