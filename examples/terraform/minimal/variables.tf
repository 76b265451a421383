# The module checks each value.

variable "region" {
  description = "The region of AWS."
  type        = string
}

variable "vpc_id" {
  description = "The VPC from which the database and the app can be reached."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of that VPC, with a route to AWS's APIs, for both Lambdas."
  type        = list(string)
}

variable "database_security_group_id" {
  description = "The database's security group; the publisher is let in there."
  type        = string
}

variable "database_secret_arn" {
  description = "The ARN of the secret that has the DSN of the database."
  type        = string
}

variable "scheduler_key_secret_arn" {
  description = "The ARN of the secret that has the key of `cronbox-app keys create --kind scheduler`."
  type        = string
}

variable "app_base_url" {
  description = "The app's address, without /api/v1."
  type        = string
}

variable "zips" {
  description = "The folder that has publisher.zip and runner.zip."
  type        = string
  default     = "../../../target/lambdas/x86_64"
}
