# The inputs of one environment. Only the network, the two secrets, the app's address and the zips have no
# default; each default has its reason.

variable "env" {
  description = "The environment; part of every name and of every schedule's name (wf-<id>-<env>). Unique in an account and a region, because metrics and alarms know an environment only by it."
  type        = string

  validation {
    # A schedule's name has at most 64 characters: wf-, up to 19 digits, and this name.
    condition     = can(regex("^[a-z0-9-]{1,24}$", var.env))
    error_message = "env must be 1 to 24 lower-case letters, digits or hyphens."
  }
}

variable "name_prefix" {
  description = "The beginning of every name. It does not tell two environments with the same env apart: their metrics are the same."
  type        = string
  default     = "cronbox"

  validation {
    # A role's name has at most 64 characters: prefix, env, region (at most 14) and -publisher.
    condition     = can(regex("^[a-z][a-z0-9-]{0,11}$", var.name_prefix))
    error_message = "name_prefix must be 1 to 12 lower-case letters, digits or hyphens, and begin with a letter."
  }
}

variable "regional_names" {
  description = "Whether the names of roles and dashboard contain the region, so that an account can have the environment in two regions. False keeps the names that cronbox 0.1 gave: a new name is a new role, which schedules use only after the publisher has updated them, and until then fires are lost (docs/deploy.md#replaced)."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of every resource that can have them, in addition to the provider's default_tags."
  type        = map(string)
  default     = {}
}

variable "permissions_boundary_arn" {
  description = "The permissions boundary of the three roles; null = none."
  type        = string
  default     = null

  validation {
    condition     = var.permissions_boundary_arn == null || can(regex("^arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/.+$", var.permissions_boundary_arn))
    error_message = "permissions_boundary_arn must be the ARN of a policy (arn:aws:iam::account:policy/name)."
  }
}

variable "iam_path" {
  description = "The path of the three roles. A change replaces them, and fires are lost meanwhile (docs/deploy.md#replaced)."
  type        = string
  default     = "/"

  validation {
    condition     = can(regex("^/([a-zA-Z0-9+=,.@_-]+/)*$", var.iam_path))
    error_message = "iam_path must begin and end with /."
  }
}

variable "app_deployment" {
  description = "What must be complete before a function changes: output deployment of modules/service. New functions expect the schema that the tasks of the new app make. Null = the app runs elsewhere, and the order is yours (docs/deploy.md#upgrade)."
  type        = string
  default     = null
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
  description = "The database's TCP port: the security groups permit it, and a secret that does not name a port has it."
  type        = number
  default     = 5432

  validation {
    condition     = var.database_port > 0 && var.database_port < 65536
    error_message = "database_port must be a port."
  }
}

variable "create_vpc_endpoints" {
  description = "Create interface endpoints for scheduler, secretsmanager and sqs; necessary in subnets without NAT. They answer for every client of the VPC, so create them in one environment of a VPC only."
  type        = bool
  default     = false
}

variable "interface_endpoint_service_names" {
  description = "The services that get an endpoint if create_vpc_endpoints is set; omit those that the VPC has already."
  type        = set(string)
  default     = ["scheduler", "secretsmanager", "sqs"]

  validation {
    condition     = alltrue([for name in var.interface_endpoint_service_names : contains(["scheduler", "secretsmanager", "sqs"], name)])
    error_message = "interface_endpoint_service_names: the Lambdas call scheduler, secretsmanager and sqs, and nothing else."
  }
}

variable "endpoint_security_group_ids" {
  description = "Security groups of interface endpoints that the VPC has already for scheduler, secretsmanager and sqs. If named, the Lambdas reach AWS only by them and by the created ones."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for id in var.endpoint_security_group_ids : startswith(id, "sg-")])
    error_message = "endpoint_security_group_ids must be ids of security groups (sg-..)."
  }
}

variable "app_security_group_ids" {
  description = "The security group of the app or of its load balancer; the runner and the publisher then reach only it on the app's port, and it admits them there. Empty: the app's port at every address, because a DNS name is no address; so it is for a load balancer on the internet, whose public addresses no rule for a group matches. A list of at most one, so that a group can be made in the same apply."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.app_security_group_ids) <= 1 && alltrue([for id in var.app_security_group_ids : startswith(id, "sg-")])
    error_message = "app_security_group_ids must be the id of one security group (sg-..)."
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
  description = "Secrets Manager's ARN of the publisher's database secret: a DSN, or RDS's own JSON. It must be in the region of the functions."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", var.database_secret_arn))
    error_message = "database_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the secret itself never goes through Terraform."
  }
}

variable "database_host" {
  description = "The database's host, for a secret that does not name it: RDS's own has only username and password."
  type        = string
  default     = null
}

variable "database_name" {
  description = "The name of the database, for a secret that does not name it."
  type        = string
  default     = null
}

variable "database_ca_file" {
  description = "Path of the certificate authorities of the database, in the publisher; null = /var/task/rds-ca.pem, which publisher.zip has, for the regions that its authorities of RDS cover."
  type        = string
  default     = null

  validation {
    condition     = var.database_ca_file == null || startswith(coalesce(var.database_ca_file, "/"), "/")
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
    condition     = can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:.+-[A-Za-z0-9]{6}$", var.scheduler_key_secret_arn))
    error_message = "scheduler_key_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the key itself never goes through Terraform."
  }
}

variable "secrets_kms_key_arn" {
  description = "The customer-managed key of both secrets; null = AWS's own key, which needs no permission."
  type        = string
  default     = null

  validation {
    condition     = var.secrets_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.secrets_kms_key_arn))
    error_message = "secrets_kms_key_arn must be the ARN of a key of KMS (arn:aws:kms:region:account:key/id)."
  }
}

variable "app_base_url" {
  description = "The app's address, without /api/v1; the runner posts there."
  type        = string

  validation {
    condition     = can(regex("^https?://[^/]+", var.app_base_url))
    error_message = "app_base_url must be http(s)://host."
  }

  # The runner sends the scheduler key there.
  validation {
    condition = anytrue([
      can(regex("^https://|^http://(localhost|127[.][0-9.]+|\\[::1\\])(:[0-9]+)?(/|$)", var.app_base_url)),
      !startswith(var.app_base_url, "http://"),
      var.app_base_url_allow_http,
    ])
    error_message = "app_base_url must begin with https://, because the scheduler key is sent there. If the network is trusted, set app_base_url_allow_http = true."
  }
}

variable "app_base_url_allow_http" {
  description = "Whether app_base_url may begin with http:// and name another machine: the scheduler key is then sent unencrypted."
  type        = bool
  default     = false
}

# Lambdas

variable "zips" {
  description = "Where publisher.zip and runner.zip are: a folder, as `make lambdas` leaves it, or a bucket that has them as <prefix>publisher-<sha256>.zip and <prefix>runner-<sha256>.zip. The digests are those of SHA256SUMS, in hexadecimal."
  type = object({
    folder           = optional(string)
    bucket           = optional(string)
    prefix           = optional(string, "")
    publisher_sha256 = optional(string)
    runner_sha256    = optional(string)
  })

  validation {
    condition     = (var.zips.folder == null) != (var.zips.bucket == null)
    error_message = "zips: name either a folder or a bucket."
  }

  validation {
    condition = alltrue([
      for sha256 in [var.zips.publisher_sha256, var.zips.runner_sha256] :
      var.zips.bucket == null ? sha256 == null : can(regex("^[0-9a-f]{64}$", sha256))
    ])
    error_message = "zips: publisher_sha256 and runner_sha256 are digests of 64 hexadecimal digits; a bucket needs both, a folder none."
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
    # -1: no reservation, for an account with a quota of less than 122 concurrent executions.
    reserved_concurrency = optional(number, 2)
  })
  default = {}

  validation {
    condition = (
      var.publisher.batch_size >= 1 && var.publisher.batch_size <= 1000 &&
      var.publisher.max_attempts >= 1 && var.publisher.max_attempts <= 1000 &&
      var.publisher.api_concurrency >= 1 && var.publisher.api_concurrency <= 1000 &&
      var.publisher.api_tps >= 1 && (var.publisher.reserved_concurrency >= 1 || var.publisher.reserved_concurrency == -1)
    )
    error_message = "publisher: batch_size, max_attempts and api_concurrency are 1 to 1000, api_tps at least 1, reserved_concurrency at least 1, or -1 for none."
  }
}

variable "runner_reserved_concurrency" {
  description = "Concurrent runners: the limit protects the app when many schedules share a minute. More fires wait in Lambda's queue. -1: no reservation, for an account with a quota of less than 122 concurrent executions; other functions of the account can then delay the fires."
  type        = number
  default     = 20

  validation {
    condition     = var.runner_reserved_concurrency >= 1 || var.runner_reserved_concurrency == -1
    error_message = "runner_reserved_concurrency must be at least 1, or -1 for none."
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
    condition     = var.logs_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$", var.logs_kms_key_arn))
    error_message = "logs_kms_key_arn must be the ARN of a key of KMS (arn:aws:kms:region:account:key/id)."
  }
}

variable "otlp_endpoint" {
  description = "The address of an OpenTelemetry collector, for example http://collector.internal:4318, which gets the traces of publisher and runner; null = no traces. Its security group must admit both Lambdas, and theirs permit port 443 only."
  type        = string
  default     = null

  validation {
    condition     = var.otlp_endpoint == null || can(regex("^https?://[^/@]+", var.otlp_endpoint))
    error_message = "otlp_endpoint must be http(s)://host, without a password."
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
  description = "SNS topics for alarms that a person must act on now, and for their ends; empty = alarms without a notification. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for arn in var.alarm_topic_arns : can(regex("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "alarm_topic_arns must be ARNs of SNS topics (arn:aws:sns:region:account:name)."
  }
}

variable "ticket_topic_arns" {
  description = "SNS topics for alarms that can wait until the next working day; null = those of alarm_topic_arns. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = null

  validation {
    condition     = alltrue([for arn in coalesce(var.ticket_topic_arns, []) : can(regex("^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$", arn))])
    error_message = "ticket_topic_arns must be ARNs of SNS topics (arn:aws:sns:region:account:name)."
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

variable "runs_failed_alarm_count" {
  description = "How many runs must fail or time out within an hour for an alarm: a minute schedule that always fails has 60."
  type        = number
  default     = 10

  validation {
    condition     = var.runs_failed_alarm_count >= 1
    error_message = "runs_failed_alarm_count must be at least 1."
  }
}

variable "skipped_overlap_alarm_count" {
  description = "How many due times must be skipped within an hour, because the run before them had not ended, for an alarm."
  type        = number
  default     = 10

  validation {
    condition     = var.skipped_overlap_alarm_count >= 1
    error_message = "skipped_overlap_alarm_count must be at least 1."
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
