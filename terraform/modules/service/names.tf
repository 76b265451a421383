# Names that several files need.

data "aws_caller_identity" "current" {}
data "aws_partition" "current" {}
data "aws_region" "current" {}

locals {
  name        = "${var.name_prefix}-${var.env}"
  account_id  = data.aws_caller_identity.current.account_id
  partition   = data.aws_partition.current.partition
  region      = data.aws_region.current.id
  global_name = "${local.name}-${local.region}"

  url = "https://${var.domain}"
  # The port of the API, and that of metrics, docs and probes, which no client of the load balancer reaches.
  api_port   = 8080
  admin_port = 8081

  makes_database = var.existing_database == null
  database = local.makes_database ? {
    host              = aws_db_instance.this[0].address
    port              = 5432
    name              = "cronbox"
    security_group_id = aws_security_group.database[0].id
    owner_secret_arn  = aws_secretsmanager_secret.owner[0].arn
    } : {
    host              = var.existing_database.host
    port              = var.existing_database.port
    name              = var.existing_database.name
    security_group_id = var.existing_database.security_group_id
    owner_secret_arn  = var.existing_database.owner_secret_arn
  }
}
