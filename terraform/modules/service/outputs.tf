output "url" {
  description = "The address of the app, for the cron module's app_base_url."
  value       = local.url
}

output "balancer" {
  description = "The load balancer's name and hosted zone, for a record of the domain that is made elsewhere."
  value       = { dns_name = aws_lb.this.dns_name, zone_id = aws_lb.this.zone_id }
}

output "balancer_security_group_id" {
  description = "The load balancer's security group, for the cron module's app_security_group_ids if it is internal: no rule for a group matches what arrives from the internet."
  value       = aws_security_group.balancer.id
}

output "database" {
  description = "The database, for the cron module: host, port, name, security group."
  value = {
    host              = local.database.host
    port              = local.database.port
    name              = local.database.name
    security_group_id = local.database.security_group_id
  }
}

output "publisher_secret_arn" {
  description = "The secret of the publisher's login, for the cron module's database_secret_arn."
  value       = aws_secretsmanager_secret.login["publisher"].arn
}

output "notifier_secret_arn" {
  description = "The secret of the notifier's login, for the notifier module's database_secret_arn; null without has_notifier."
  value       = try(aws_secretsmanager_secret.login["notifier"].arn, null)
}

output "scheduler_key_secret_arn" {
  description = "The secret of the runner's key, for the cron module's scheduler_key_secret_arn."
  value       = aws_secretsmanager_secret.key["scheduler"].arn
}

output "admin_key_secret_arn" {
  description = "The secret of the first operator's key."
  value       = aws_secretsmanager_secret.key["admin"].arn
}

output "deployment" {
  description = "The service, when its new tasks answer: for app_deployment of the modules cron and notifier, whose functions expect the schema that these tasks have made."
  value       = aws_ecs_service.app.id
}

output "operator_network" {
  description = "The network of an operator's task, for `aws ecs run-task --network-configuration` (docs/runbook.md#operator-commands)."
  value       = "awsvpcConfiguration={subnets=[${join(",", var.subnet_ids)}],securityGroups=[${aws_security_group.app.id}],assignPublicIp=DISABLED}"
}
