output "notifier_lambda_arn" {
  description = "The notifier's alias, which the tick invokes."
  value       = aws_lambda_alias.notifier.arn
}

output "notifier_security_group_id" {
  description = "The notifier's security group; the database must admit it, which the module does."
  value       = aws_security_group.notifier.id
}

output "dead_letter_queue_url" {
  description = "The queue of ticks that failed."
  value       = aws_sqs_queue.dead_letters.id
}

output "version" {
  description = "The version that the alias names."
  value       = aws_lambda_function.notifier.version
}
