# The module checks each value.

variable "region" {
  description = "The region of AWS."
  type        = string
}

variable "vpc_id" {
  description = "The VPC of both environments."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets without NAT."
  type        = list(string)
}

variable "environments" {
  description = "Each environment has a database, a key and an app of its own."
  type = map(object({
    database_security_group_id = string
    database_secret_arn        = string
    scheduler_key_secret_arn   = string
    app_base_url               = string
  }))
}

variable "zips" {
  description = "The bucket of the zips, and their digests."
  type = object({
    bucket           = string
    prefix           = optional(string, "")
    publisher_sha256 = string
    runner_sha256    = string
  })
}
