# Postgres, unless one exists already.

locals {
  connections_of_task = tonumber(lookup(var.settings, "CRONBOX_DB_MAX_CONNECTIONS", "40"))
  # docs/deploy.md#database-access: a deployment has the old and the new tasks; two publishers may run at once; operators.
  needed_connections = 2 * var.size.max * local.connections_of_task + 2 * 3 + 10
  max_connections    = coalesce(var.database.max_connections, local.needed_connections)
}

# A warning only: the operator may know that no deployment meets the busiest hour.
check "connections" {
  assert {
    condition     = !local.makes_database || local.max_connections >= local.needed_connections
    error_message = "database.max_connections is ${local.max_connections}, and ${var.size.max} tasks need up to ${local.needed_connections} during a deployment: raise it, or leave it out."
  }
}

resource "aws_db_subnet_group" "this" {
  count = local.makes_database ? 1 : 0

  name        = local.name
  description = "The subnets of cronbox's database."
  subnet_ids  = var.subnet_ids
  tags        = var.tags
}

resource "aws_db_parameter_group" "this" {
  # checkov:skip=CKV2_AWS_30: only slow statements are logged; a log of all of them would be as large as the database
  count = local.makes_database ? 1 : 0

  name_prefix = "${local.name}-"
  family      = "postgres${split(".", var.database.engine_version)[0]}"
  description = "What cronbox relies on."
  tags        = var.tags

  dynamic "parameter" {
    for_each = {
      # Passwords and rows are encrypted on the way. From 15 on it is RDS's default. For a value that equals a default RDS keeps
      # pending-reboot, and each plan would change it to immediate again (hashicorp/terraform-provider-aws#39252).
      "rds.force_ssl" = { value = "1", apply_method = "pending-reboot" }
      # Lists read every day's partition (docs/operations.md#locks).
      max_locks_per_transaction = { value = tostring(var.database.max_locks), apply_method = "pending-reboot" }
      max_connections           = { value = tostring(local.max_connections), apply_method = "pending-reboot" }
      # Live runs are updated often (docs/operations.md). RDS has the same default.
      autovacuum_naptime = { value = "15", apply_method = "pending-reboot" }
      # A statement that takes a second is worth a line.
      log_min_duration_statement = { value = "1000", apply_method = "immediate" }
      log_lock_waits             = { value = "1", apply_method = "immediate" }
      # Without the values in it: inputs and URLs of tenants. For statements that fail, Postgres has the same default.
      log_parameter_max_length          = { value = "0", apply_method = "immediate" }
      log_parameter_max_length_on_error = { value = "0", apply_method = "pending-reboot" }
    }

    content {
      name         = parameter.key
      value        = parameter.value.value
      apply_method = parameter.value.apply_method
    }
  }

  lifecycle {
    create_before_destroy = true
  }
}

# RDS would make them, and keep what is in them for ever. An environment that is older than this resource has them already: the imports of
# terraform/envs take them over, and docs/deploy.md#database-logs says how another configuration does.
resource "aws_cloudwatch_log_group" "database" {
  # checkov:skip=CKV_AWS_158: a variable
  # checkov:skip=CKV_AWS_338: a variable; the database, not the log, keeps the decisions and their reasons
  for_each = toset(local.makes_database ? ["postgresql", "upgrade"] : [])

  name              = "/aws/rds/instance/${local.name}/${each.key}"
  retention_in_days = var.log_retention_days
  kms_key_id        = var.logs_kms_key_arn
  tags              = var.tags
}

# The time of the first apply is in the name of the final snapshot: that of an earlier environment of the same name still exists.
resource "terraform_data" "database" {
  count = local.makes_database ? 1 : 0

  input = plantimestamp()

  lifecycle {
    # Each plan has another time.
    ignore_changes = [input]
  }
}

resource "aws_db_instance" "this" {
  # checkov:skip=CKV_AWS_161: logins are Postgres's own, of least privilege
  # checkov:skip=CKV_AWS_118: Performance Insights shows waits; enhanced monitoring costs by line
  # checkov:skip=CKV_AWS_354: the database's own key, or AWS's
  # checkov:skip=CKV_AWS_157: a variable
  # checkov:skip=CKV_AWS_293: a variable
  # checkov:skip=CKV_AWS_133: a variable, at least a day
  # checkov:skip=CKV2_AWS_69: rds.force_ssl is in the parameter group
  count = local.makes_database ? 1 : 0

  identifier     = local.name
  engine         = "postgres"
  engine_version = var.database.engine_version
  instance_class = var.database.instance_class
  db_name        = "cronbox"

  username            = "cronbox_owner_login"
  password_wo         = jsondecode(ephemeral.aws_secretsmanager_secret_version.owner[0].secret_string).password
  password_wo_version = var.secrets_version

  storage_type          = "gp3"
  allocated_storage     = var.database.storage_gb
  max_allocated_storage = var.database.max_storage_gb
  storage_encrypted     = true
  kms_key_id            = var.database.kms_key_arn

  multi_az               = var.database.is_multi_az
  db_subnet_group_name   = aws_db_subnet_group.this[0].name
  vpc_security_group_ids = [aws_security_group.database[0].id]
  publicly_accessible    = false
  # One of the authorities in the image and in publisher.zip.
  ca_cert_identifier = "rds-ca-rsa2048-g1"

  parameter_group_name       = aws_db_parameter_group.this[0].name
  auto_minor_version_upgrade = true
  # RDS refuses one by mistake: the server gets another identifier, so the ledger waits for its acceptance.
  allow_major_version_upgrade = var.database.allows_major_upgrade
  apply_immediately           = var.database.apply_now
  # After the backup, and before the night of most schedules.
  backup_window      = "02:00-03:00"
  maintenance_window = "sun:03:30-sun:04:30"

  backup_retention_period         = var.database.backup_days
  copy_tags_to_snapshot           = true
  deletion_protection             = var.database.is_protected
  delete_automated_backups        = !var.database.keeps_backups
  skip_final_snapshot             = !var.database.keeps_backups
  final_snapshot_identifier       = var.database.keeps_backups ? "${local.name}-final-${formatdate("YYYYMMDDhhmmss", terraform_data.database[0].input)}" : null
  performance_insights_enabled    = true
  enabled_cloudwatch_logs_exports = sort(keys(aws_cloudwatch_log_group.database))
  tags                            = var.tags
}

resource "aws_security_group" "database" {
  count = local.makes_database ? 1 : 0

  name        = "${local.name}-database"
  description = "cronbox database"
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "database_from_app" {
  security_group_id            = local.database.security_group_id
  description                  = "cronbox app (${var.env})"
  referenced_security_group_id = aws_security_group.app.id
  ip_protocol                  = "tcp"
  from_port                    = local.database.port
  to_port                      = local.database.port
  tags                         = var.tags
}
