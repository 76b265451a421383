# The values of terraform.tfvars; the module validates and describes them.

variable "region" {
  description = "The AWS region."
  type        = string
}

variable "account_id" {
  description = "The AWS account of this environment."
  type        = string
}

variable "name_prefix" {
  description = "The beginning of every name. It does not tell two environments with the same env apart: their metrics are the same. A change replaces the roles, the schedule group and the database (docs/deploy.md#replaced)."
  type        = string
  default     = "cronbox"
}

variable "regional_names" {
  description = "Whether the names of roles and dashboard contain the region. A change replaces the roles, and fires are lost meanwhile (docs/deploy.md#replaced)."
  type        = bool
  default     = true
}

variable "permissions_boundary_arn" {
  description = "The permissions boundary of the roles, if there is one."
  type        = string
  default     = null
}

variable "iam_path" {
  description = "The path of the roles. A change replaces them, and fires are lost meanwhile (docs/deploy.md#replaced)."
  type        = string
  default     = "/"
}

variable "vpc_id" {
  description = "The VPC from which the database and the app can be reached; null = make a network."
  type        = string
  default     = null
}

variable "network_cidr" {
  description = "The addresses of the network that is made."
  type        = string
  default     = "10.42.0.0/16"
}

variable "nat_gateways" {
  description = "NAT gateways of the network that is made: one, or each zone its own."
  type        = string
  default     = "one"
}

variable "subnet_ids" {
  description = "Private subnets of that VPC."
  type        = list(string)
  default     = []

  validation {
    condition     = var.vpc_id == null || length(var.subnet_ids) > 0
    error_message = "subnet_ids: name private subnets of vpc_id."
  }
}

variable "balancer_subnet_ids" {
  description = "Subnets of that VPC for the load balancer; empty = subnet_ids."
  type        = list(string)
  default     = []
}

# The app, if it is made here

variable "image" {
  description = "The app's image by its digest, registry/name@sha256:..; null = the app runs elsewhere."
  type        = string
  default     = null
}

variable "app_size" {
  description = "CPU, memory and number of the app's tasks; an absent field takes the module's default."
  type = object({
    cpu    = optional(number)
    memory = optional(number)
    min    = optional(number)
    max    = optional(number)
  })
  default = {}
}

variable "app_settings" {
  description = "Further variables of the app (docs/deploy.md), without secrets and those that modules/service sets."
  type        = map(string)
  default     = {}
}

variable "domain" {
  description = "The name of the app, for example cron.example.com."
  type        = string
  default     = null

  validation {
    condition     = (var.image == null) == (var.domain == null)
    error_message = "domain: name it with image, and only then."
  }
}

variable "zone_id" {
  description = "The hosted zone of Route 53 in which the record and the certificate of the domain are made."
  type        = string
  default     = null
}

variable "certificate_arn" {
  description = "A certificate for the domain, instead."
  type        = string
  default     = null
}

variable "is_internal" {
  description = "Whether only the VPC reaches the app; false = also client_cidrs on the internet."
  type        = bool
  default     = true
}

variable "client_cidrs" {
  description = "The addresses that may reach the app, except the runner, the publisher and the verification, which always may."
  type        = list(string)
  default     = []
}

variable "nat_addresses" {
  description = "The public addresses of the NAT gateways of subnet_ids, if vpc_id names a network and is_internal is false: the fires arrive from there."
  type        = list(string)
  default     = []
}

variable "proxies_before_balancer" {
  description = "How many proxies each request passes before the load balancer: 1 for a CDN. Each must append the address of its client to X-Forwarded-For."
  type        = number
  default     = 0
}

variable "operator_security_group_ids" {
  description = "Groups of machines from which operators run psql and read metrics."
  type        = list(string)
  default     = []
}

variable "access_log_bucket" {
  description = "The bucket for the load balancer's log."
  type        = string
  default     = null
}

variable "web_acl_arn" {
  description = "A web ACL of WAF for the load balancer."
  type        = string
  default     = null
}

variable "database" {
  description = "The database that is made for the app; an absent field takes the module's default. is_protected also protects the roles and the schedules of an environment whose app runs elsewhere."
  type = object({
    instance_class       = optional(string)
    engine_version       = optional(string)
    allows_major_upgrade = optional(bool)
    storage_gb           = optional(number)
    max_storage_gb       = optional(number)
    is_multi_az          = optional(bool)
    backup_days          = optional(number)
    is_protected         = optional(bool)
    keeps_backups        = optional(bool)
    max_connections      = optional(number)
    max_locks            = optional(number)
    kms_key_arn          = optional(string)
    apply_now            = optional(bool)
  })
  default = {}
}

variable "existing_database" {
  description = "A database for the app that exists, instead."
  type = object({
    host              = string
    port              = optional(number, 5432)
    name              = string
    security_group_id = string
    owner_secret_arn  = string
  })
  default = null
}

variable "mail" {
  description = "The mail server of notifications: the secret of its URL, and the sender; null = no e-mail. For the app that this configuration makes."
  type = object({
    smtp_url_secret_arn = string
    from                = string
  })
  default = null
}

variable "heartbeat_url_secret_arn" {
  description = "The secret of the URL that the app pings while it is healthy; null = no pings. For the app that this configuration makes."
  type        = string
  default     = null
}

variable "oidc_client_secret_arn" {
  description = "The secret of the console's client at the identity provider; null = it has none. For the app that this configuration makes."
  type        = string
  default     = null
}

variable "public_url" {
  description = "Where people reach the app, for the links in messages, if that is another address than the app's."
  type        = string
  default     = null
}

variable "scheduler_key" {
  description = "The runner's key; only for the first apply, or to change it with secrets_version: TF_VAR_scheduler_key=$(cronbox-app keys generate --kind scheduler)."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

variable "admin_key" {
  description = "The first operator's key; only for the first apply, or to change it with secrets_version."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

variable "secrets_version" {
  description = "Raise it to write the passwords anew, and the keys that are named."
  type        = number
  default     = 1
}

# The cron: what it uses of an app elsewhere

variable "database_security_group_id" {
  description = "The database's security group, if the app runs elsewhere."
  type        = string
  default     = null

  validation {
    condition     = (var.image == null) != (var.database_security_group_id == null)
    error_message = "database_security_group_id: name it if the app runs elsewhere (without image), and only then."
  }
}

variable "database_host" {
  description = "The database's host, if its secret does not name it."
  type        = string
  default     = null
}

variable "database_port" {
  description = "The database's port."
  type        = number
  default     = 5432
}

variable "database_name" {
  description = "The name of the database, if its secret does not name it."
  type        = string
  default     = null
}

variable "database_ca_file" {
  description = "Path of the certificate authorities of the database, in the publisher."
  type        = string
  default     = null
}

variable "create_vpc_endpoints" {
  description = "Create interface endpoints; necessary in subnets without NAT."
  type        = bool
  default     = false
}

variable "interface_endpoint_service_names" {
  description = "The services that get an endpoint if create_vpc_endpoints is set."
  type        = set(string)
  default     = ["scheduler", "secretsmanager", "sqs"]
}

variable "endpoint_security_group_ids" {
  description = "Security groups of interface endpoints that the VPC has already."
  type        = set(string)
  default     = []
}

variable "app_security_group_ids" {
  description = "The security group of the app or of its load balancer, if this configuration does not make the app."
  type        = list(string)
  default     = []
}

variable "dead_letter_operator_arns" {
  description = "Roles and users that may read, redrive and discard dead letters."
  type        = list(string)
  default     = []
}

variable "database_secret_arn" {
  description = "The database secret's ARN, if the app runs elsewhere."
  type        = string
  default     = null

  validation {
    condition     = (var.image == null) != (var.database_secret_arn == null)
    error_message = "database_secret_arn: name it if the app runs elsewhere (without image), and only then."
  }
}

variable "scheduler_key_secret_arn" {
  description = "The scheduler key secret's ARN, if the app runs elsewhere."
  type        = string
  default     = null

  validation {
    condition     = (var.image == null) != (var.scheduler_key_secret_arn == null)
    error_message = "scheduler_key_secret_arn: name it if the app runs elsewhere (without image), and only then."
  }
}

variable "secrets_kms_key_arn" {
  description = "The customer-managed key of both secrets, if there is one."
  type        = string
  default     = null
}

variable "app_base_url" {
  description = "The app's address, without /api/v1, if it runs elsewhere."
  type        = string
  default     = null

  validation {
    condition     = (var.image == null) != (var.app_base_url == null)
    error_message = "app_base_url: name it if the app runs elsewhere (without image), and only then."
  }
}

variable "app_base_url_allow_http" {
  description = "Whether app_base_url may begin with http:// and name another machine: the scheduler key is then sent unencrypted."
  type        = bool
  default     = false
}

variable "zips" {
  description = "Where the zips are: a folder, or a bucket, a prefix and the digests. By default the folder of `make lambdas`."
  type = object({
    folder           = optional(string)
    bucket           = optional(string)
    prefix           = optional(string, "")
    publisher_sha256 = optional(string)
    runner_sha256    = optional(string)
    notifier_sha256  = optional(string)
  })
  default = {}
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

variable "notifier" {
  description = "The notifier, which sends messages to these event buses and SNS topics; without targets it is not made. If the app runs elsewhere, database_secret_arn is the secret of a login in cronbox_notifier."
  type = object({
    target_arns                 = optional(list(string), [])
    target_kms_key_arns         = optional(list(string), [])
    database_secret_arn         = optional(string)
    endpoint_security_group_ids = optional(set(string), [])
    reserved_concurrency        = optional(number, 2)
  })
  default = {}
}

variable "runner_reserved_concurrency" {
  description = "Concurrent runners; -1 = no reservation."
  type        = number
  default     = 20
}

variable "alarm_topic_arns" {
  description = "SNS topics for alarms that a person must act on now. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = []
}

variable "ticket_topic_arns" {
  description = "SNS topics for alarms that can wait; null = those of alarm_topic_arns. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = null
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
