# The inputs of one environment. Only the network, the two secrets, the app's address and the zips have no
# default; each default has its reason.

variable "env" {
  description = "The environment; part of every name and of every schedule's name (wf-<id>-<env>)."
  type        = string

  validation {
    # A schedule's name has at most 64 characters: wf-, up to 19 digits, and this name.
    condition     = can(regex("^[a-z0-9-]{1,24}$", var.env))
    error_message = "env must be 1 to 24 lower-case letters, digits or hyphens."
  }
}

# Network

variable "vpc_id" {
  description = "The VPC from which the database and the app can be reached."
  type        = string

  validation {
    condition     = startswith(var.vpc_id, "vpc-")
    error_message = "vpc_id must be the id of a VPC (vpc-..)."
  }
}

variable "subnet_ids" {
  description = "Private subnets for both Lambdas, in at least two availability zones if there are two."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) > 0 && alltrue([for id in var.subnet_ids : startswith(id, "subnet-")])
    error_message = "subnet_ids must name at least one subnet (subnet-..)."
  }
}

variable "database_security_group_id" {
  description = "The database's security group; the module permits the publisher to connect."
  type        = string

  validation {
    condition     = startswith(var.database_security_group_id, "sg-")
    error_message = "database_security_group_id must be the id of a security group (sg-..)."
  }
}

variable "database_port" {
  description = "The database's TCP port."
  type        = number
  default     = 5432

  validation {
    condition     = var.database_port > 0 && var.database_port < 65536
    error_message = "database_port must be a port."
  }
}

variable "create_vpc_endpoints" {
  description = "Create interface endpoints for scheduler and secretsmanager; necessary in subnets without NAT."
  type        = bool
  default     = false
}

variable "interface_endpoint_service_names" {
  description = "The services that get an endpoint if create_vpc_endpoints is set; omit those that the VPC has already."
  type        = set(string)
  default     = ["scheduler", "secretsmanager"]

  validation {
    condition     = alltrue([for name in var.interface_endpoint_service_names : contains(["scheduler", "secretsmanager"], name)])
    error_message = "interface_endpoint_service_names: the Lambdas call scheduler and secretsmanager, and nothing else."
  }
}

variable "endpoint_security_group_ids" {
  description = "Security groups of interface endpoints that the VPC has already for scheduler and secretsmanager. If named, the Lambdas reach AWS only by them and by the created ones."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.endpoint_security_group_ids : startswith(id, "sg-")])
    error_message = "endpoint_security_group_ids must be ids of security groups (sg-..)."
  }
}

variable "app_security_group_id" {
  description = "The security group of the app or of its load balancer; the runner then reaches only it on the app's port. Null: the app's port at every address, because a DNS name is no address. Known at plan time."
  type        = string
  default     = null

  validation {
    condition     = var.app_security_group_id == null || startswith(coalesce(var.app_security_group_id, "sg-"), "sg-")
    error_message = "app_security_group_id must be the id of a security group (sg-..)."
  }
}

variable "dead_letter_operator_arns" {
  description = "Principals that may read, redrive and discard dead letters, as ARNs of IAM roles and users in which * is allowed. Empty: each principal of the account that IAM permits."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.dead_letter_operator_arns : can(regex("^arn:[^:*]+:iam::[0-9]{12}:(role|user)/", arn))])
    error_message = "dead_letter_operator_arns must be ARNs of roles or users of an account: arn:aws:iam::123456789012:role/oncall-*."
  }
}

# Secrets and the app

variable "database_secret_arn" {
  description = "Secrets Manager's ARN of the publisher's database secret: a DSN, or RDS's own JSON."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:", var.database_secret_arn))
    error_message = "database_secret_arn must be an ARN of Secrets Manager; the secret itself never goes through Terraform."
  }
}

variable "database_ca_file" {
  description = "Path of the certificate authorities of the database, in the publisher; publisher.zip contains RDS's."
  type        = string
  default     = "/var/task/rds-ca.pem"

  validation {
    condition     = startswith(var.database_ca_file, "/")
    error_message = "database_ca_file must be an absolute path; a zip is unpacked in /var/task."
  }
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

variable "scheduler_key_secret_arn" {
  description = "Secrets Manager's ARN of the scheduler key, as `cronbox-app keys create --kind scheduler` printed it."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:", var.scheduler_key_secret_arn))
    error_message = "scheduler_key_secret_arn must be an ARN of Secrets Manager; the key itself never goes through Terraform."
  }
}

variable "secrets_kms_key_arn" {
  description = "The customer-managed key of both secrets; null = AWS's own key, which needs no permission."
  type        = string
  default     = null

  validation {
    condition     = var.secrets_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:", var.secrets_kms_key_arn))
    error_message = "secrets_kms_key_arn must be an ARN of KMS."
  }
}

variable "app_base_url" {
  description = "The app's address, without /api/v1; the runner posts there."
  type        = string

  validation {
    condition     = can(regex("^https?://[^/]+", var.app_base_url))
    error_message = "app_base_url must be http(s)://host."
  }
}

# Lambdas

variable "publisher_zip" {
  description = "Path of publisher.zip, as `make lambdas` leaves it."
  type        = string

  validation {
    condition     = fileexists(var.publisher_zip)
    error_message = "publisher_zip does not exist: run `make lambdas` first."
  }
}

variable "runner_zip" {
  description = "Path of runner.zip, as `make lambdas` leaves it."
  type        = string

  validation {
    condition     = fileexists(var.runner_zip)
    error_message = "runner_zip does not exist: run `make lambdas` first."
  }
}

variable "architecture" {
  description = "The architecture for which the zips were built: x86_64 or arm64."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "architecture must be x86_64 or arm64."
  }
}

variable "publisher" {
  description = "Settings of the publisher: workflows per claim, attempts before a workflow fails permanently, calls in flight, calls a second for all publishers together."
  type = object({
    batch_size      = optional(number, 100)
    max_attempts    = optional(number, 10)
    api_concurrency = optional(number, 64)
    # The account's smallest quota of UpdateSchedule is 250 a second; this leaves some for operators.
    api_tps = optional(number, 200)
    # Two, so that the next tick does not wait for a long drain; more have no advantage, because they share the rate.
    reserved_concurrency = optional(number, 2)
  })
  default = {}

  validation {
    condition = (
      var.publisher.batch_size >= 1 && var.publisher.batch_size <= 1000 &&
      var.publisher.max_attempts >= 1 && var.publisher.max_attempts <= 1000 &&
      var.publisher.api_concurrency >= 1 && var.publisher.api_concurrency <= 1000 &&
      var.publisher.api_tps >= 1 && var.publisher.reserved_concurrency >= 1
    )
    error_message = "publisher: batch_size, max_attempts and api_concurrency are 1 to 1000, api_tps and reserved_concurrency at least 1."
  }
}

variable "runner_reserved_concurrency" {
  description = "Concurrent runners: the limit protects the app when many schedules share a minute. More fires wait in Lambda's queue."
  type        = number
  default     = 20

  validation {
    condition     = var.runner_reserved_concurrency >= 1
    error_message = "runner_reserved_concurrency must be at least 1."
  }
}

variable "log_retention_days" {
  description = "The number of days for which CloudWatch keeps the logs."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_retention_days)
    error_message = "log_retention_days must be a number of days that CloudWatch Logs knows."
  }
}

variable "logs_kms_key_arn" {
  description = "A customer-managed key for the log groups; null = AWS's own."
  type        = string
  default     = null

  validation {
    condition     = var.logs_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:", var.logs_kms_key_arn))
    error_message = "logs_kms_key_arn must be an ARN of KMS."
  }
}

# Scheduler

variable "trust_schedule_group" {
  description = "Trust EventBridge Scheduler only on behalf of our schedule group. Set it to false (trust on behalf of the account) only if creates still fail with `assume the role` after ten minutes."
  type        = bool
  default     = true
}

# Alarms

variable "alarm_topic_arns" {
  description = "SNS topics to which alarms and their ends are sent; empty = alarms without a notification."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:aws[a-z-]*:sns:", arn))])
    error_message = "alarm_topic_arns must be ARNs of SNS topics."
  }
}

variable "runbook_url" {
  description = "The address of docs/runbook.md; every alarm's description links to its paragraph."
  type        = string
  default     = "docs/runbook.md"
}

variable "outbox_lag_alarm_secs" {
  description = "The age in seconds of the oldest unpublished edit at which an alarm rings: five ticks."
  type        = number
  default     = 300

  validation {
    condition     = var.outbox_lag_alarm_secs >= 60
    error_message = "outbox_lag_alarm_secs must be at least 60: an edit waits up to a minute for its tick."
  }
}

# Emulators

variable "aws_endpoint_url" {
  description = "The address of an emulator for the Lambdas' AWS calls; null = AWS."
  type        = string
  default     = null

  validation {
    condition     = var.aws_endpoint_url == null || can(regex("^https?://[^/]+", var.aws_endpoint_url))
    error_message = "aws_endpoint_url must be http(s)://host."
  }
}
