# The module checks each value.

variable "region" {
  description = "The region of AWS."
  type        = string
}

variable "image" {
  description = "The image of `make image` in a registry, by its digest."
  type        = string
}

variable "zips" {
  description = "The folder that has publisher.zip and runner.zip."
  type        = string
  default     = "../../../target/lambdas/x86_64"
}

variable "domain" {
  description = "The name of the app, for example cron.example.com."
  type        = string
}

variable "zone_id" {
  description = "The hosted zone of that name in Route 53."
  type        = string
}

variable "alarm_topic_arns" {
  description = "SNS topics of the people on call."
  type        = list(string)
  default     = []
}

variable "scheduler_key" {
  description = "What `cronbox-app keys generate --kind scheduler` prints; only for the first apply."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

variable "admin_key" {
  description = "What `cronbox-app keys generate --kind admin` prints; only for the first apply."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

