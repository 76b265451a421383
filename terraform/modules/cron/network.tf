# Permitted connections: from the publisher to the database, from both Lambdas to AWS and from the runner to the app, none
# to the Lambdas. If interface endpoints lead to AWS, the Lambdas reach AWS only by these.

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

  # The groups of the endpoints: ours, and those that the VPC has already.
  endpoint_groups = merge(
    var.create_vpc_endpoints ? { created = one(aws_security_group.endpoints[*].id) } : {},
    { for id in var.endpoint_security_group_ids : id => id },
  )
  # With endpoints for only one of the two services, the other one is reached by NAT, at addresses that AWS changes.
  has_all_endpoints = length(var.endpoint_security_group_ids) > 0 || (
    var.create_vpc_endpoints && length(var.interface_endpoint_service_names) == 2
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
  count = local.has_all_endpoints ? 0 : 1

  security_group_id = aws_security_group.publisher.id
  description       = "EventBridge Scheduler and Secrets Manager, by NAT"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_endpoints" {
  for_each = local.endpoint_groups

  security_group_id            = aws_security_group.publisher.id
  description                  = "EventBridge Scheduler and Secrets Manager, by endpoint"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

resource "aws_vpc_security_group_egress_rule" "runner_to_aws" {
  count = local.has_all_endpoints ? 0 : 1

  security_group_id = aws_security_group.runner.id
  description       = "Secrets Manager, by NAT"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_egress_rule" "runner_to_endpoints" {
  for_each = local.endpoint_groups

  security_group_id            = aws_security_group.runner.id
  description                  = "Secrets Manager, by endpoint"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
}

# Another rule may permit the same port to all addresses; two equal rules are an error.
resource "aws_vpc_security_group_egress_rule" "runner_to_app" {
  count = local.app_port == 443 && !local.has_all_endpoints && var.app_security_group_id == null ? 0 : 1

  security_group_id            = aws_security_group.runner.id
  description                  = "the app"
  cidr_ipv4                    = var.app_security_group_id == null ? "0.0.0.0/0" : null
  referenced_security_group_id = var.app_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = local.app_port
  to_port                      = local.app_port
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
