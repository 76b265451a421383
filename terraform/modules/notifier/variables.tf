# The inputs of the notifier of one environment.

variable "env" {
  description = "The environment; part of every name, and named in each message. Unique in an account and a region, because metrics and alarms know an environment only by it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9-]{1,24}$", var.env))
    error_message = "env must be 1 to 24 lower-case letters, digits or hyphens."
  }
}

variable "name_prefix" {
  description = "The beginning of every name. It does not tell two environments with the same env apart: their metrics are the same."
  type        = string
  default     = "cronbox"

  validation {
    # A role's name has at most 64 characters: prefix, env, region (at most 14) and -notifier.
    condition     = can(regex("^[a-z][a-z0-9-]{0,11}$", var.name_prefix))
    error_message = "name_prefix must be 1 to 12 lower-case letters, digits or hyphens, and begin with a letter."
  }
}

variable "tags" {
  description = "Tags of every resource that can have them, in addition to the provider's default_tags."
  type        = map(string)
  default     = {}
}

variable "permissions_boundary_arn" {
  description = "The permissions boundary of the role; null = none."
  type        = string
  default     = null
}

variable "iam_path" {
  description = "The path of the role. A change replaces it (docs/deploy.md#replaced)."
  type        = string
  default     = "/"

  validation {
    condition     = can(regex("^/([a-zA-Z0-9+=,.@_-]+/)*$", var.iam_path))
    error_message = "iam_path must begin and end with /."
  }
}

variable "app_deployment" {
  description = "What must be complete before the function changes: output deployment of modules/service. A new function expects the schema that the tasks of the new app make. Null = the app runs elsewhere, and the order is yours (docs/deploy.md#upgrade)."
  type        = string
  default     = null
}

# Targets

variable "target_arns" {
  description = "The event buses and SNS topics to which channels may lead, by ARN. Each team of the environment may name each of them; another target is refused by IAM. A target of another account or region needs a policy of its own that permits the notifier's role."
  type        = list(string)

  validation {
    condition = length(var.target_arns) > 0 && alltrue([
      for arn in var.target_arns :
      can(regex("^arn:aws[a-z-]*:(sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+([.]fifo)?|events:[a-z0-9-]+:[0-9]{12}:event-bus/[A-Za-z0-9/._-]+)$", arn))
    ])
    error_message = "target_arns must be ARNs of event buses (arn:aws:events:region:account:event-bus/name) and SNS topics (arn:aws:sns:region:account:name), and at least one."
  }
}

variable "target_kms_key_arns" {
  description = "The customer-managed keys of these topics, whose policies must permit the notifier's role, too."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.target_kms_key_arns : can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", arn))])
    error_message = "target_kms_key_arns must be ARNs of keys of KMS (arn:aws:kms:region:account:key/id)."
  }
}

variable "public_url" {
  description = "Where people reach the service, for the links in messages; null = messages have no links."
  type        = string
  default     = null

  validation {
    condition     = var.public_url == null || can(regex("^https?://[^/]+", var.public_url))
    error_message = "public_url must be http(s)://host."
  }
}

# Network

variable "vpc_id" {
  description = "The VPC from which the database can be reached."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets, in at least two availability zones if there are two. They reach EventBridge, SNS and Secrets Manager by NAT or by endpoints."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0
    error_message = "subnet_ids must name at least one subnet."
  }
}

variable "endpoint_security_group_ids" {
  description = "Security groups of interface endpoints for events, sns and secretsmanager. If named, the notifier reaches AWS only by them."
  type        = set(string)
  default     = []
}

# Database

variable "database_security_group_id" {
  description = "The database's security group; the module permits the notifier to connect."
  type        = string
}

variable "database_secret_arn" {
  description = "Secrets Manager's ARN of the notifier's database secret, a login in cronbox_notifier: a DSN, or JSON with username and password. It must be in the region of the function."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", var.database_secret_arn))
    error_message = "database_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the secret itself never goes through Terraform."
  }
}

variable "secrets_kms_key_arn" {
  description = "The customer-managed key of the secret; null = AWS's own key, which needs no permission."
  type        = string
  default     = null
}

variable "database_host" {
  description = "The database's host, for a secret that does not name it."
  type        = string
  default     = null
}

variable "database_port" {
  description = "The database's TCP port: the security groups permit it, and a secret that does not name a port has it."
  type        = number
  default     = 5432
}

variable "database_name" {
  description = "The name of the database, for a secret that does not name it."
  type        = string
  default     = null
}

variable "database_ca_file" {
  description = "Path of the certificate authorities of the database, in the notifier; null = /var/task/rds-ca.pem, which notifier.zip has."
  type        = string
  default     = null
}

variable "database_pooler" {
  description = "What the database secret leads to: none (Postgres itself), session or transaction (a pooler of that mode, RDS Proxy: transaction)."
  type        = string
  default     = "none"

  validation {
    condition     = contains(["none", "session", "transaction"], var.database_pooler)
    error_message = "database_pooler must be none, session or transaction."
  }
}

# Lambda

variable "zip" {
  description = "Where notifier.zip is: a folder, as `make lambdas` leaves it, or a bucket that has it as <prefix>notifier-<sha256>.zip. The digest is that of SHA256SUMS, in hexadecimal."
  type = object({
    folder = optional(string)
    bucket = optional(string)
    prefix = optional(string, "")
    sha256 = optional(string)
  })

  validation {
    condition     = (var.zip.folder == null) != (var.zip.bucket == null)
    error_message = "zip: name either a folder or a bucket."
  }

  validation {
    condition     = (var.zip.bucket != null) == can(regex("^[0-9a-f]{64}$", var.zip.sha256))
    error_message = "zip: sha256 is a digest of 64 hexadecimal digits; a bucket needs it, a folder does not."
  }
}

variable "architecture" {
  description = "The architecture for which the zip was built: x86_64 or arm64."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "architecture must be x86_64 or arm64."
  }
}

variable "reserved_concurrency" {
  description = "Concurrent notifiers: two, so that the next tick does not wait for a long one. -1: no reservation, for an account with a quota of less than 122 concurrent executions."
  type        = number
  default     = 2

  validation {
    condition     = var.reserved_concurrency >= 1 || var.reserved_concurrency == -1
    error_message = "reserved_concurrency must be at least 1, or -1 for none."
  }
}

variable "log_retention_days" {
  description = "The number of days for which CloudWatch keeps the log."
  type        = number
  default     = 30
}

variable "logs_kms_key_arn" {
  description = "A customer-managed key for the log group; null = AWS's own."
  type        = string
  default     = null
}

# Alarms

variable "alarm_topic_arns" {
  description = "SNS topics for alarms and their ends; empty = alarms without a notification. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = []
}

variable "runbook_url" {
  description = "The address of docs/runbook.md; every alarm's description links to its paragraph."
  type        = string
  default     = "docs/runbook.md"
}

# Emulators

variable "aws_endpoint_url" {
  description = "The address of an emulator for the notifier's AWS calls; null = AWS."
  type        = string
  default     = null
}
