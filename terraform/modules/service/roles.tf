# ECS reads the secrets and the image, and writes the log, with the execution role. The app itself has a role without permissions.

data "aws_iam_policy_document" "trust" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ecs-tasks.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account_id]
    }
  }
}

resource "aws_iam_role" "execution" {
  name                 = "${local.global_name}-ecs"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "With it, ECS starts the tasks of cronbox's app."
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  tags                 = var.tags
}

resource "aws_iam_role_policy" "execution" {
  name   = "execution"
  role   = aws_iam_role.execution.id
  policy = data.aws_iam_policy_document.execution.json
}

# The policy above changes before the new tasks start, and then permits only what they need. This one changes when they run, so until then, and if
# ECS has rolled back, it permits what the tasks before need: ECS reads the secrets and the image again at each start. Not by create_before_destroy of one policy:
# it would pass to all that the policy names, and the role could then not be replaced, because its name is taken.
resource "aws_iam_role_policy" "running" {
  name   = "running"
  role   = aws_iam_role.execution.id
  policy = data.aws_iam_policy_document.execution.json

  depends_on = [aws_ecs_service.app]
}

data "aws_iam_policy_document" "execution" {
  statement {
    sid     = "Secrets"
    actions = ["secretsmanager:GetSecretValue"]
    resources = concat(
      [local.database.owner_secret_arn, aws_secretsmanager_secret.secrets_key.arn],
      [for secret in aws_secretsmanager_secret.login : secret.arn],
      [for secret in aws_secretsmanager_secret.key : secret.arn],
      local.operator_secret_arns,
    )
  }

  dynamic "statement" {
    for_each = var.secrets_kms_key_arn[*]

    content {
      sid       = "DecryptSecrets"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = ["secretsmanager.${local.region}.${data.aws_partition.current.dns_suffix}"]
      }
    }
  }

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.app.arn}:*"]
  }

  statement {
    # IAM cannot restrict it to a repository.
    sid       = "RegistryLogin"
    actions   = ["ecr:GetAuthorizationToken"]
    resources = ["*"]
  }

  dynamic "statement" {
    # The repository of an image in ECR: <account>.dkr.ecr.<region>.amazonaws.com/<repository>@<digest>
    for_each = try([regex("^([0-9]{12})[.]dkr[.]ecr[.]([a-z0-9-]+)[.][a-z.]+/([^@:]+)", var.image)], [])

    content {
      sid       = "Image"
      actions   = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
      resources = ["arn:${local.partition}:ecr:${statement.value[1]}:${statement.value[0]}:repository/${statement.value[2]}"]
    }
  }
}

resource "aws_iam_role" "task" {
  name                 = "${local.global_name}-app"
  path                 = var.iam_path
  permissions_boundary = var.permissions_boundary_arn
  description          = "The role of cronbox's app; it may do nothing."
  assume_role_policy   = data.aws_iam_policy_document.trust.json
  tags                 = var.tags
}
