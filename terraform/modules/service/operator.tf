# The commands of an operator: `cronbox-app` in the network of the app, with the login that owns the database. Nothing starts
# this task by itself; `aws ecs run-task` names the command (docs/runbook.md#operator-commands).

locals {
  operator = {
    # What a migration has, so that each command works: also `migrate --roles`, which sets the passwords of the logins.
    environment = merge(local.containers.migrate.environment, { CRONBOX_ENV = var.env })
    # For `secrets re-encrypt` and `teams create`.
    secrets = merge(local.containers.migrate.secrets, { CRONBOX_SECRETS_KEY = aws_secretsmanager_secret.secrets_key.arn })
  }
}

resource "aws_ecs_task_definition" "operator" {
  family                   = "${local.name}-operator"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 256
  memory                   = 512
  execution_role_arn       = aws_iam_role.execution.arn
  task_role_arn            = aws_iam_role.task.arn
  tags                     = var.tags

  container_definitions = jsonencode([{
    name  = "operator"
    image = var.image
    # Without an override the task changes nothing.
    command                = ["--help"]
    essential              = true
    readonlyRootFilesystem = true
    user                   = "65532:65532"
    environment            = [for key in sort(keys(local.operator.environment)) : { name = key, value = local.operator.environment[key] }]
    secrets                = [for key in sort(keys(local.operator.secrets)) : { name = key, valueFrom = local.operator.secrets[key] }]
    portMappings           = []
    mountPoints            = []
    volumesFrom            = []
    systemControls         = []
    logConfiguration = {
      logDriver = "awslogs"
      options = {
        awslogs-group         = aws_cloudwatch_log_group.app.name
        awslogs-region        = local.region
        awslogs-stream-prefix = "operator"
      }
    }
  }])

  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.architecture == "arm64" ? "ARM64" : "X86_64"
  }
}

# The machine from which an operator runs psql and reads metrics. By count, because groups of the same apply have no ids yet.
resource "aws_vpc_security_group_ingress_rule" "database_from_operator" {
  count = length(var.operator_security_group_ids)

  security_group_id            = local.database.security_group_id
  description                  = "cronbox operator (${var.env})"
  referenced_security_group_id = var.operator_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = local.database.port
  to_port                      = local.database.port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "app_from_operator" {
  count = length(var.operator_security_group_ids)

  security_group_id            = aws_security_group.app.id
  description                  = "cronbox operator: metrics"
  referenced_security_group_id = var.operator_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = local.admin_port
  to_port                      = local.admin_port
  tags                         = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "balancer_from_operator" {
  count = length(var.operator_security_group_ids)

  security_group_id            = aws_security_group.balancer.id
  description                  = "cronbox operator: API"
  referenced_security_group_id = var.operator_security_group_ids[count.index]
  ip_protocol                  = "tcp"
  from_port                    = 443
  to_port                      = 443
  tags                         = var.tags
}
