# The load balancer in front of the app, with TLS.

# The app trusts the load balancer's word about its client. By count, because subnets that the same apply creates have no ids yet.
data "aws_subnet" "balancer" {
  count = length(var.balancer_subnet_ids)

  id = var.balancer_subnet_ids[count.index]
}

resource "aws_security_group" "balancer" {
  name        = "${local.name}-balancer"
  description = "cronbox load balancer"
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_security_group" "app" {
  name        = "${local.name}-app"
  description = "cronbox app"
  vpc_id      = var.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(var.client_cidrs)

  security_group_id = aws_security_group.balancer.id
  description       = "clients"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

# The name of a load balancer on the internet resolves to public addresses, in the VPC too. So the runner, the publisher and the
# verification reach it by NAT, and a rule for their security group never matches. By count, because addresses that the same apply
# creates are not known yet.
resource "aws_vpc_security_group_ingress_rule" "nat" {
  count = var.is_internal ? 0 : length(var.nat_addresses)

  security_group_id = aws_security_group.balancer.id
  description       = "cronbox runner, publisher and verify, by NAT"
  cidr_ipv4         = "${var.nat_addresses[count.index]}/32"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = var.tags
}

# Tasks of the verification reach an internal load balancer as its clients do.
resource "aws_vpc_security_group_ingress_rule" "verification" {
  security_group_id            = aws_security_group.balancer.id
  description                  = "cronbox verify"
  referenced_security_group_id = aws_security_group.app.id
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}

resource "aws_vpc_security_group_egress_rule" "balancer_to_app" {
  for_each = { api = local.api_port, probes = local.admin_port }

  security_group_id            = aws_security_group.balancer.id
  description                  = "cronbox app: ${each.key}"
  referenced_security_group_id = aws_security_group.app.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "app_from_balancer" {
  for_each = { api = local.api_port, probes = local.admin_port }

  security_group_id            = aws_security_group.app.id
  description                  = "load balancer: ${each.key}"
  referenced_security_group_id = aws_security_group.balancer.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = var.tags
}

# Actions call servers of tenants; the app itself refuses private addresses and the ports of other protocols.
resource "aws_vpc_security_group_egress_rule" "app_to_all" {
  # checkov:skip=CKV_AWS_382: actions may call any server on the internet
  security_group_id = aws_security_group.app.id
  description       = "actions, the database, the registry, Secrets Manager"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = var.tags
}

resource "aws_lb" "this" {
  # checkov:skip=CKV_AWS_91: a variable
  # checkov:skip=CKV_AWS_150: a variable
  # checkov:skip=CKV2_AWS_20: there is no listener of http: a key that was sent without TLS is known to others
  # checkov:skip=CKV2_AWS_28: a variable
  name                       = local.name
  internal                   = var.is_internal
  load_balancer_type         = "application"
  subnets                    = var.balancer_subnet_ids
  security_groups            = [aws_security_group.balancer.id]
  drop_invalid_header_fields = true
  enable_deletion_protection = var.database.is_protected
  # Longer than the longest answer (?wait=25), and shorter than the app keeps an idle connection (CRONBOX_HEADER_TIMEOUT_MS in
  # tasks.tf): a request on a connection that the app ends at the same moment is answered 502.
  idle_timeout = 60
  tags         = var.tags

  dynamic "access_logs" {
    for_each = var.access_log_bucket[*]

    content {
      bucket  = access_logs.value
      prefix  = local.name
      enabled = true
    }
  }
}

resource "aws_lb_target_group" "app" {
  # checkov:skip=CKV_AWS_378: TLS ends at the load balancer, in the VPC
  name        = "${local.name}-app"
  vpc_id      = var.vpc_id
  target_type = "ip"
  protocol    = "HTTP"
  port        = local.api_port
  # Fires are accepted until the runs of a task have ended.
  deregistration_delay = 120
  tags                 = var.tags

  health_check {
    # Never /readyz, which asks the database: during its failover the balancer would replace every task.
    path                = "/healthz"
    port                = local.admin_port
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 3
  }

  lifecycle {
    precondition {
      condition     = length("${local.name}-app") <= 32
      error_message = "name_prefix and env are too long together: a target group's name has at most 32 characters."
    }
  }
}

resource "aws_lb_listener" "https" {
  load_balancer_arn = aws_lb.this.arn
  port              = 443
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn == null ? aws_acm_certificate_validation.this[0].certificate_arn : var.certificate_arn
  tags              = var.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.app.arn
  }
}

resource "aws_wafv2_web_acl_association" "this" {
  count = var.web_acl_arn == null ? 0 : 1

  resource_arn = aws_lb.this.arn
  web_acl_arn  = var.web_acl_arn
}
