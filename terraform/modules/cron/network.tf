# Permitted connections: from the publisher to the database, from both Lambdas to HTTPS, none to the Lambdas.

locals {
  # A Lambda in a VPC creates its own network interfaces; IAM cannot restrict most of these to a resource.
  network_interface_statements = {
    NetworkInterfaces = [
      "ec2:AssignPrivateIpAddresses",
      "ec2:CreateNetworkInterface",
      "ec2:DeleteNetworkInterface",
      "ec2:DescribeNetworkInterfaces",
      "ec2:DescribeSubnets",
      "ec2:UnassignPrivateIpAddresses",
    ]
  }

  # The app may listen on another port than 443.
  app_port = try(
    tonumber(regex("^https?://[^/]+:([0-9]+)", var.app_base_url)[0]),
    startswith(var.app_base_url, "https://") ? 443 : 80,
  )
}

resource "aws_security_group" "publisher" {
  name        = "${local.name}-publisher"
  description = "cronbox publisher"
  vpc_id      = var.vpc_id
}

resource "aws_security_group" "runner" {
  name        = "${local.name}-runner"
  description = "cronbox runner"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_database" {
  security_group_id            = aws_security_group.publisher.id
  description                  = "Postgres"
  referenced_security_group_id = var.database_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
}

resource "aws_vpc_security_group_ingress_rule" "database_from_publisher" {
  security_group_id            = var.database_security_group_id
  description                  = "cronbox publisher (${var.env})"
  referenced_security_group_id = aws_security_group.publisher.id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_aws" {
  security_group_id = aws_security_group.publisher.id
  description       = "EventBridge Scheduler and Secrets Manager, by NAT or by endpoint"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "runner_to_aws" {
  security_group_id = aws_security_group.runner.id
  description       = "Secrets Manager, by NAT or by endpoint"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "runner_to_app" {
  count = local.app_port == 443 ? 0 : 1

  security_group_id = aws_security_group.runner.id
  description       = "the app"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = local.app_port
  to_port           = local.app_port
}

# Endpoints, for subnets without NAT.

resource "aws_security_group" "endpoints" {
  count = var.create_vpc_endpoints ? 1 : 0

  name        = "${local.name}-endpoints"
  description = "cronbox interface endpoints"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "endpoints" {
  for_each = var.create_vpc_endpoints ? {
    publisher = aws_security_group.publisher.id
    runner    = aws_security_group.runner.id
  } : {}

  security_group_id            = aws_security_group.endpoints[0].id
  description                  = "cronbox ${each.key}"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_vpc_endpoint" "this" {
  for_each = var.create_vpc_endpoints ? var.interface_endpoint_service_names : toset([])

  vpc_id              = var.vpc_id
  service_name        = "com.amazonaws.${local.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  subnet_ids          = var.subnet_ids
  security_group_ids  = [aws_security_group.endpoints[0].id]
  private_dns_enabled = true
}
