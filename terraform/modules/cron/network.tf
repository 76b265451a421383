# Permitted connections: from the publisher to the database, from both Lambdas to AWS and to the app, none to the Lambdas. The
# publisher reaches the app to redrive dead letters. If interface endpoints lead to AWS, the Lambdas reach AWS only by these.

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

  # Without the app's group, its rule admits every address. At port 443 that would be the rule by which a Lambda without endpoints
  # reaches AWS, and EC2 refuses the second of two equal rules. So the rule to the app is two there, one for each half of the
  # addresses: no change of the endpoints touches them. Equal rules that replace each other would be made and deleted in any order.
  app_is_in_halves = local.app_port == 443 && length(var.app_security_group_ids) == 0
  app_cidr         = local.app_is_in_halves ? "0.0.0.0/1" : length(var.app_security_group_ids) == 0 ? "0.0.0.0/0" : null

  # The groups of the endpoints: ours, and those that the VPC has already.
  endpoint_groups = merge(
    var.create_vpc_endpoints ? { created = one(aws_security_group.endpoints[*].id) } : {},
    { for id in var.endpoint_security_group_ids : id => id },
  )
  # With endpoints for only some of the three services, the others are reached by NAT, at addresses that AWS changes.
  has_all_endpoints = length(var.endpoint_security_group_ids) > 0 || (
    var.create_vpc_endpoints && length(var.interface_endpoint_service_names) == 3
  )
}

resource "aws_security_group" "publisher" {
  name        = "${local.name}-publisher"
  description = "cronbox publisher"
  vpc_id      = var.vpc_id
  tags        = var.tags

  # Lambda releases its network interfaces up to 45 minutes after the function is gone.
  timeouts {
    delete = "60m"
  }
}

resource "aws_security_group" "runner" {
  name        = "${local.name}-runner"
  description = "cronbox runner"
  vpc_id      = var.vpc_id
  tags        = var.tags

  # Lambda releases its network interfaces up to 45 minutes after the function is gone.
  timeouts {
    delete = "60m"
  }
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_database" {
  security_group_id            = aws_security_group.publisher.id
  description                  = "Postgres"
  referenced_security_group_id = var.database_security_group_id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "database_from_publisher" {
  security_group_id            = var.database_security_group_id
  description                  = "cronbox publisher (${var.env})"
  referenced_security_group_id = aws_security_group.publisher.id
  ip_protocol                  = "tcp"
  from_port                    = var.database_port
  to_port                      = var.database_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_aws" {
  count = local.has_all_endpoints ? 0 : 1

  security_group_id = aws_security_group.publisher.id
  description       = "EventBridge Scheduler, Secrets Manager and SQS, by NAT"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_endpoints" {
  for_each = local.endpoint_groups

  security_group_id            = aws_security_group.publisher.id
  description                  = "EventBridge Scheduler, Secrets Manager and SQS, by endpoint"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "runner_to_aws" {
  count = local.has_all_endpoints ? 0 : 1

  security_group_id = aws_security_group.runner.id
  description       = "Secrets Manager, by NAT"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "runner_to_endpoints" {
  for_each = local.endpoint_groups

  security_group_id            = aws_security_group.runner.id
  description                  = "Secrets Manager, by endpoint"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "runner_to_app" {
  security_group_id            = aws_security_group.runner.id
  description                  = "the app"
  cidr_ipv4                    = local.app_cidr
  referenced_security_group_id = one(var.app_security_group_ids)
  ip_protocol                  = "tcp"
  from_port                    = local.app_port
  to_port                      = local.app_port
  tags                         = var.tags

  # A rule for every address becomes the lower half only when the upper half exists.
  depends_on = [aws_vpc_security_group_egress_rule.runner_to_app_upper]
}

resource "aws_vpc_security_group_egress_rule" "runner_to_app_upper" {
  count = local.app_is_in_halves ? 1 : 0

  security_group_id = aws_security_group.runner.id
  description       = "the app"
  cidr_ipv4         = "128.0.0.0/1"
  ip_protocol       = "tcp"
  from_port         = local.app_port
  to_port           = local.app_port
  tags              = var.tags
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_app" {
  security_group_id            = aws_security_group.publisher.id
  description                  = "the app, for redrives"
  cidr_ipv4                    = local.app_cidr
  referenced_security_group_id = one(var.app_security_group_ids)
  ip_protocol                  = "tcp"
  from_port                    = local.app_port
  to_port                      = local.app_port
  tags                         = var.tags

  # A rule for every address becomes the lower half only when the upper half exists.
  depends_on = [aws_vpc_security_group_egress_rule.publisher_to_app_upper]
}

resource "aws_vpc_security_group_egress_rule" "publisher_to_app_upper" {
  count = local.app_is_in_halves ? 1 : 0

  security_group_id = aws_security_group.publisher.id
  description       = "the app, for redrives"
  cidr_ipv4         = "128.0.0.0/1"
  ip_protocol       = "tcp"
  from_port         = local.app_port
  to_port           = local.app_port
  tags              = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "app_from_publisher" {
  count = length(var.app_security_group_ids)

  security_group_id            = var.app_security_group_ids[0]
  description                  = "cronbox publisher (${var.env})"
  referenced_security_group_id = aws_security_group.publisher.id
  ip_protocol                  = "tcp"
  from_port                    = local.app_port
  to_port                      = local.app_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "app_from_runner" {
  count = length(var.app_security_group_ids)

  security_group_id            = var.app_security_group_ids[0]
  description                  = "cronbox runner (${var.env})"
  referenced_security_group_id = aws_security_group.runner.id
  ip_protocol                  = "tcp"
  from_port                    = local.app_port
  to_port                      = local.app_port
  tags                         = var.tags
}

# Endpoints, for subnets without NAT. With private DNS they answer for all clients of the VPC, so all may reach them.

data "aws_vpc" "endpoints" {
  count = var.create_vpc_endpoints ? 1 : 0

  id = var.vpc_id
}

# By count, because subnets that the same apply creates have no ids yet.
data "aws_subnet" "endpoints" {
  count = var.create_vpc_endpoints ? length(var.subnet_ids) : 0

  id = var.subnet_ids[count.index]
}

locals {
  # An endpoint has at most one subnet in a zone.
  endpoint_subnets = [for subnets in values({ for subnet in data.aws_subnet.endpoints : subnet.availability_zone => subnet.id... }) : subnets[0]]
}

resource "aws_security_group" "endpoints" {
  count = var.create_vpc_endpoints ? 1 : 0

  name        = "${local.name}-endpoints"
  description = "cronbox interface endpoints"
  vpc_id      = var.vpc_id
  tags        = var.tags

  ingress {
    description = "clients of the VPC"
    protocol    = "tcp"
    from_port   = 443
    to_port     = 443
    cidr_blocks = [for association in data.aws_vpc.endpoints[0].cidr_block_associations : association.cidr_block]
  }
}

resource "aws_vpc_endpoint" "this" {
  for_each = var.create_vpc_endpoints ? var.interface_endpoint_service_names : toset([])

  vpc_id              = var.vpc_id
  service_name        = "com.amazonaws.${local.region}.${each.key}"
  vpc_endpoint_type   = "Interface"
  subnet_ids          = local.endpoint_subnets
  security_group_ids  = [aws_security_group.endpoints[0].id]
  private_dns_enabled = true
  tags                = var.tags
}
