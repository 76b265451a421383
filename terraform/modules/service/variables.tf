# The inputs of the app of one environment.

variable "env" {
  description = "The environment; part of every name. Unique in an account and a region, because metrics and alarms know an environment only by it."
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
  description = "The permissions boundary of the roles; null = none."
  type        = string
  default     = null
}

variable "iam_path" {
  description = "The path of the roles. A change replaces them, and ECS cannot roll back to tasks with the old ones (docs/deploy.md#replaced)."
  type        = string
  default     = "/"
}

# The program

variable "image" {
  description = "The image of `make image` in a registry, by its digest: registry/name@sha256:.."
  type        = string

  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image must name its digest (registry/name@sha256:..): a tag can change between two environments."
  }
}

variable "architecture" {
  description = "The architecture of the image: x86_64 or arm64."
  type        = string
  default     = "x86_64"

  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "architecture must be x86_64 or arm64."
  }
}

variable "size" {
  description = "CPU units (1,024 = one CPU) and MiB of memory of a task, and how many tasks run: never fewer than min, in two zones, never more than max."
  type = object({
    cpu    = optional(number, 512)
    memory = optional(number, 1024)
    min    = optional(number, 2)
    max    = optional(number, 6)
  })
  default = {}

  validation {
    condition     = var.size.min >= 1 && var.size.max >= var.size.min
    error_message = "size: min is at least 1, and max at least min."
  }

  # ECS would refuse the revision in the middle of an apply.
  validation {
    condition = contains(
      try({
        "256"   = [512, 1024, 2048]
        "512"   = range(1024, 4097, 1024)
        "1024"  = range(2048, 8193, 1024)
        "2048"  = range(4096, 16385, 1024)
        "4096"  = range(8192, 30721, 1024)
        "8192"  = range(16384, 61441, 4096)
        "16384" = range(32768, 122881, 8192)
      }[tostring(var.size.cpu)], []),
      var.size.memory
    )
    error_message = "size: Fargate has no task of this CPU and memory; a CPU of 512 has 1024 to 4096 MiB, one of 1024 has 2048 to 8192."
  }
}

variable "waits_for_tasks" {
  description = "Whether an apply waits until the new tasks answer, so that the functions change after them, and ends with an error if ECS rolls the deployment back. An emulator runs no tasks."
  type        = bool
  default     = true
}

variable "settings" {
  description = "Further variables of the app, as docs/deploy.md lists them, for example { CRONBOX_RETENTION_DAYS = \"30\" }. No secrets."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for name in keys(var.settings) :
      startswith(name, "CRONBOX_") && !contains(["CRONBOX_SECRETS_KEY", "CRONBOX_KEY", "CRONBOX_SERVE_PASSWORD", "CRONBOX_PUBLISH_PASSWORD", "CRONBOX_NOTIFY_PASSWORD", "CRONBOX_DB_DIRECT_DSN", "CRONBOX_SMTP_URL", "CRONBOX_HEARTBEAT_URL", "CRONBOX_OIDC_CLIENT_SECRET"], name)
    ])
    error_message = "settings begin with CRONBOX_, and contain no key and no password: these are in Secrets Manager."
  }

  validation {
    condition     = length(setintersection(keys(var.settings), keys(local.own_settings))) == 0
    error_message = "settings: the module sets ${join(", ", setintersection(keys(var.settings), keys(local.own_settings)))}; remove it. For proxies in front of the load balancer set proxies_before_balancer."
  }
}

variable "otlp_endpoint" {
  description = "The address of an OpenTelemetry collector, for example http://collector.internal:4318, which gets the app's traces; null = no traces. Its security group must admit the tasks."
  type        = string
  default     = null

  validation {
    condition     = var.otlp_endpoint == null || can(regex("^https?://[^/@]+", var.otlp_endpoint))
    error_message = "otlp_endpoint must be http(s)://host, without a password."
  }
}

# Network

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "subnet_ids" {
  description = "Private subnets of two zones, which reach the internet: for tasks and the database."
  type        = list(string)

  validation {
    condition     = length(var.subnet_ids) >= 2
    error_message = "subnet_ids must name subnets of at least two zones."
  }
}

variable "balancer_subnet_ids" {
  description = "Subnets of two zones for the load balancer: public ones, unless it is internal."
  type        = list(string)

  validation {
    condition     = length(var.balancer_subnet_ids) >= 2
    error_message = "balancer_subnet_ids must name subnets of at least two zones."
  }
}

variable "is_internal" {
  description = "Whether the load balancer has private addresses only."
  type        = bool
  default     = true
}

variable "client_cidrs" {
  description = "The addresses that may reach the load balancer. The runner, the publisher and the verification may in any case: by their security groups, or by nat_addresses if the load balancer is on the internet."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.client_cidrs : can(cidrhost(cidr, 0))])
    error_message = "client_cidrs must be blocks of addresses, for example 10.0.0.0/8."
  }
}

variable "nat_addresses" {
  description = "The public addresses of the NAT gateways by which the Lambdas and the tasks reach the internet, for example [\"203.0.113.7\"]. A load balancer on the internet admits them, because the fires arrive from there. Needed if is_internal is false and client_cidrs does not contain 0.0.0.0/0."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for address in var.nat_addresses : can(cidrhost("${address}/32", 0))])
    error_message = "nat_addresses must be IPv4 addresses without a mask, for example 203.0.113.7."
  }

  validation {
    condition     = var.is_internal || length(var.nat_addresses) > 0 || contains(var.client_cidrs, "0.0.0.0/0")
    error_message = "nat_addresses: a load balancer on the internet gets the fires from the NAT gateways; name their addresses."
  }

  # EC2 refuses two equal rules.
  validation {
    condition     = var.is_internal || alltrue([for address in var.nat_addresses : !contains(var.client_cidrs, "${address}/32")])
    error_message = "nat_addresses: they are admitted in any case; remove them from client_cidrs. If the rule of such an address exists, move it with `terraform state mv` before the apply (docs/deploy.md#nat-addresses), or the load balancer refuses the fires meanwhile."
  }
}

variable "proxies_before_balancer" {
  description = "How many proxies each request passes before the load balancer: 1 for a CDN. Each must append the address of its client to X-Forwarded-For, and no client may reach the load balancer around them; else a client can name any address as its own."
  type        = number
  default     = 0

  validation {
    condition     = var.proxies_before_balancer >= 0 && var.proxies_before_balancer < 255 && floor(var.proxies_before_balancer) == var.proxies_before_balancer
    error_message = "proxies_before_balancer must be a whole number from 0 to 254."
  }
}

variable "operator_security_group_ids" {
  description = "The groups of machines from which operators run psql and read metrics (docs/runbook.md#operator-commands); they may reach the database, the metrics of the tasks and the load balancer."
  type        = list(string)
  default     = []
}

variable "domain" {
  description = "The name of the app, for example cron.example.com: that of the certificate."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)+$", var.domain))
    error_message = "domain must be a name like cron.example.com."
  }
}

variable "zone_id" {
  description = "The hosted zone of Route 53 in which the module makes the record of the domain, and proves that it is yours for a certificate. Null: both are your work."
  type        = string
  default     = null
}

variable "certificate_arn" {
  description = "A certificate of ACM for the domain; null = the module makes one, with zone_id."
  type        = string
  default     = null

  validation {
    condition     = var.certificate_arn != null || var.zone_id != null
    error_message = "certificate_arn: name a certificate of the domain, or zone_id, so that the module can make one."
  }
}

variable "access_log_bucket" {
  description = "The bucket in which the load balancer writes its log of requests; null = none. Its policy must permit it."
  type        = string
  default     = null
}

variable "web_acl_arn" {
  description = "A regional web ACL of WAF for the load balancer; null = none."
  type        = string
  default     = null
}

# Database

variable "database" {
  description = "The database that the module makes. is_protected: RDS and the load balancer refuse to be deleted. keeps_backups: a destroy makes a final snapshot and keeps the automated backups, and the secrets, among them the key without which a backup cannot be used, are deleted after 30 days; false = for trials, nothing is left (docs/deploy.md#destroy). allows_major_upgrade: for the apply that raises the major version (docs/deploy.md#postgres). max_connections: null = computed for size.max tasks (docs/deploy.md#database-access). Connections need memory, so choose the class for the busiest hour. max_locks suffices for 90 days of retention (docs/operations.md#locks)."
  type = object({
    instance_class       = optional(string, "db.t4g.small")
    engine_version       = optional(string, "15")
    allows_major_upgrade = optional(bool, false)
    storage_gb           = optional(number, 20)
    max_storage_gb       = optional(number, 200)
    is_multi_az          = optional(bool, true)
    backup_days          = optional(number, 14)
    is_protected         = optional(bool, true)
    keeps_backups        = optional(bool, true)
    max_connections      = optional(number)
    max_locks            = optional(number, 200)
    kms_key_arn          = optional(string)
    apply_now            = optional(bool, false)
  })
  default = {}

  validation {
    condition     = var.database.backup_days >= 1 && var.database.backup_days <= 35
    error_message = "database: backup_days is 1 to 35."
  }

  # In the maintenance window no person accepts the ledger, and no run starts before.
  validation {
    condition     = !var.database.allows_major_upgrade || var.database.apply_now
    error_message = "database: a major upgrade needs apply_now = true, because no run starts until you accept the ledger (docs/deploy.md#postgres)."
  }
}

variable "existing_database" {
  description = "A database that exists, instead: its address, its security group, and the secret of a login that has CREATEROLE and owns the database (JSON with username and password)."
  type = object({
    host              = string
    port              = optional(number, 5432)
    name              = string
    security_group_id = string
    owner_secret_arn  = string
  })
  default = null
}

# Secrets that the operator brings. They are ephemeral: no plan and no state has them.

variable "scheduler_key" {
  description = "The runner's key, as `cronbox-app keys generate --kind scheduler` prints it, for the first apply; later with a raised secrets_version. Null = the stored key stays."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = var.scheduler_key == null || can(regex("^cbs_[0-9A-Za-z]{61}$", var.scheduler_key))
    error_message = "scheduler_key is what `cronbox-app keys generate --kind scheduler` prints."
  }
}

variable "admin_key" {
  description = "The first operator's key, as `cronbox-app keys generate --kind admin` prints it, for the first apply; later with a raised secrets_version. Null = the stored key stays."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true

  validation {
    condition     = var.admin_key == null || can(regex("^cba_[0-9A-Za-z]{61}$", var.admin_key))
    error_message = "admin_key is what `cronbox-app keys generate --kind admin` prints."
  }
}

variable "secrets_version" {
  description = "Raise it to write all passwords anew, and the keys that are named. Tasks that start after that use them. Raise it again only when they run; if they do not start, apply again with the same version."
  type        = number
  default     = 1

  validation {
    condition     = var.secrets_version >= 1 && floor(var.secrets_version) == var.secrets_version
    error_message = "secrets_version is a whole number from 1 on."
  }
}

variable "secrets_kms_key_arn" {
  description = "A customer-managed key for the secrets; null = AWS's own."
  type        = string
  default     = null
}

# Notifications

variable "mail" {
  description = "The mail server of notifications: the sender, for example cronbox <cronbox@example.com>, and the ARN of the operator's secret with CRONBOX_SMTP_URL as docs/notifications.md describes it, as text, or followed by :name:: for a value of a secret in JSON. Null = no e-mail. If the secret has another customer-managed key than secrets_kms_key_arn, its key policy must permit the execution role."
  type = object({
    smtp_url_secret_arn = string
    from                = string
  })
  default = null

  validation {
    condition     = var.mail == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[^:]+-[A-Za-z0-9]{6}(:[^:]+:[^:]*:[^:]*)?$", var.mail.smtp_url_secret_arn))
    error_message = "mail: smtp_url_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the URL itself never goes through Terraform."
  }

  validation {
    condition     = var.mail == null || can(regex("^[^@]+@[^@]+$", var.mail.from))
    error_message = "mail: from must be an address, for example cronbox <cronbox@example.com>."
  }
}

variable "heartbeat_url_secret_arn" {
  description = "The ARN of the operator's secret with CRONBOX_HEARTBEAT_URL, which the app pings once a minute while it is healthy, as text, or followed by :name:: for a value of a secret in JSON. Null = no pings."
  type        = string
  default     = null

  validation {
    condition     = var.heartbeat_url_secret_arn == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[^:]+-[A-Za-z0-9]{6}(:[^:]+:[^:]*:[^:]*)?$", var.heartbeat_url_secret_arn))
    error_message = "heartbeat_url_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the URL itself never goes through Terraform."
  }
}

variable "oidc_client_secret_arn" {
  description = "The ARN of the operator's secret with CRONBOX_OIDC_CLIENT_SECRET, the secret of the console's client at the identity provider, as text, or followed by :name:: for a value of a secret in JSON. Null = the client has none. All else of the provider is in settings."
  type        = string
  default     = null

  validation {
    condition     = var.oidc_client_secret_arn == null || can(regex("^arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[^:]+-[A-Za-z0-9]{6}(:[^:]+:[^:]*:[^:]*)?$", var.oidc_client_secret_arn))
    error_message = "oidc_client_secret_arn must be a complete ARN of Secrets Manager, with the six characters at its end; the secret itself never goes through Terraform."
  }

  # The app would not start.
  validation {
    condition     = var.oidc_client_secret_arn == null || contains(keys(var.settings), "CRONBOX_OIDC_CLIENT_ID")
    error_message = "oidc_client_secret_arn needs CRONBOX_OIDC_CLIENT_ID in settings."
  }
}

variable "public_url" {
  description = "Where people reach the app, for the links in messages, if that is not https:// and the domain."
  type        = string
  default     = null

  validation {
    condition     = var.public_url == null || can(regex("^https?://[^/]+", var.public_url))
    error_message = "public_url must be http(s)://host."
  }
}

variable "has_notifier" {
  description = "Whether to make a login for the notifier module, and its secret."
  type        = bool
  default     = false
}

# Alarms

variable "alarm_topic_arns" {
  description = "SNS topics for alarms and their ends, for what the verification finds, and for events of RDS. Their policies: docs/deploy.md#topics."
  type        = list(string)
  default     = []
}

variable "runbook_url" {
  description = "The address of docs/runbook.md; every alarm's description links to its paragraph."
  type        = string
  default     = "docs/runbook.md"
}

variable "log_retention_days" {
  description = "The number of days for which CloudWatch keeps the logs."
  type        = number
  default     = 30
}

variable "logs_kms_key_arn" {
  description = "A customer-managed key for the logs of the app and of the database, whose policy permits CloudWatch Logs; null = AWS's own."
  type        = string
  default     = null
}
