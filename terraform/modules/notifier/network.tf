# Permitted connections: to the database and to AWS, none to the notifier.

resource "aws_security_group" "notifier" {
  name        = "${local.name}-notifier"
  description = "cronbox notifier"
  vpc_id      = var.vpc_id
  tags        = var.tags

  # Lambda releases its network interfaces up to 45 minutes after the function is gone.
  timeouts {
    delete = "60m"
  }
}

resource "aws_vpc_security_group_egress_rule" "notifier_to_database" {
  security_group_id            = aws_security_group.notifier.id
  description                  = "Postgres"
  referenced_security_group_id = var.database_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "database_from_notifier" {
  security_group_id            = var.database_security_group_id
  description                  = "cronbox notifier (${var.env})"
  referenced_security_group_id = aws_security_group.notifier.id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "notifier_to_aws" {
  count = length(var.endpoint_security_group_ids) == 0 ? 1 : 0

  security_group_id = aws_security_group.notifier.id
  description       = "EventBridge, SNS and Secrets Manager, by NAT"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "notifier_to_endpoints" {
  for_each = var.endpoint_security_group_ids

  security_group_id            = aws_security_group.notifier.id
  description                  = "EventBridge, SNS and Secrets Manager, by endpoint"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}
