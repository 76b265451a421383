# The values of terraform.tfvars; the module validates and describes them.

variable "region" {
  description = "The AWS region."
  type        = string
}

variable "vpc_id" {
  description = "The VPC from which the database and the app can be reached."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets for both Lambdas."
  type        = list(string)
}

variable "database_security_group_id" {
  description = "The database's security group."
  type        = string
}

variable "create_vpc_endpoints" {
  description = "Create interface endpoints; necessary in subnets without NAT."
  type        = bool
  default     = false
}

variable "endpoint_security_group_ids" {
  description = "Security groups of interface endpoints that the VPC has already."
  type        = set(string)
  default     = []
}

variable "app_security_group_id" {
  description = "The security group of the app or of its load balancer."
  type        = string
  default     = null
}

variable "dead_letter_operator_arns" {
  description = "Roles and users that may read, redrive and discard dead letters."
  type        = list(string)
  default     = []
}

variable "database_secret_arn" {
  description = "The database secret's ARN."
  type        = string
}

variable "scheduler_key_secret_arn" {
  description = "The scheduler key secret's ARN."
  type        = string
}

variable "secrets_kms_key_arn" {
  description = "The customer-managed key of both secrets, if there is one."
  type        = string
  default     = null
}

variable "app_base_url" {
  description = "The app's address, without /api/v1."
  type        = string
}

variable "publisher_zip" {
  description = "Path of publisher.zip; null = where `make lambdas` leaves it."
  type        = string
  default     = null
}

variable "runner_zip" {
  description = "Path of runner.zip; null = where `make lambdas` leaves it."
  type        = string
  default     = null
}

variable "architecture" {
  description = "The architecture for which the zips were built: x86_64 or arm64."
  type        = string
  default     = "x86_64"
}

variable "publisher" {
  description = "Settings of the publisher; an absent field takes the module's default."
  type = object({
    batch_size           = optional(number)
    max_attempts         = optional(number)
    api_concurrency      = optional(number)
    api_tps              = optional(number)
    reserved_concurrency = optional(number)
  })
  default = {}
}

variable "runner_reserved_concurrency" {
  description = "Concurrent runners."
  type        = number
  default     = 20
}

variable "alarm_topic_arns" {
  description = "SNS topics to which alarms and their ends are sent."
  type        = list(string)
  default     = []
}

variable "runbook_url" {
  description = "The address of docs/runbook.md."
  type        = string
  default     = "docs/runbook.md"
}

variable "endpoint_url" {
  description = "The address of an emulator; null = AWS."
  type        = string
  default     = null
}
