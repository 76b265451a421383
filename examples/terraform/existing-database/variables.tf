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

variable "vpc_id" {
  description = "The VPC of the database."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of two zones, which reach the internet by NAT."
  type        = list(string)
}

variable "domain" {
  description = "The name of the app."
  type        = string
}

variable "certificate_arn" {
  description = "A certificate of ACM for that name."
  type        = string
}

variable "database" {
  description = "The database."
  type = object({
    host              = string
    port              = optional(number, 5432)
    name              = string
    security_group_id = string
    owner_secret_arn  = string
  })
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

