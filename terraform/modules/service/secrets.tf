# Secrets are made by ephemeral values and written by write-only arguments, so no plan and no state contains one. A secret is
# written when its version changes; `secrets_version` changes all of them.

locals {
  given_keys = { scheduler = var.scheduler_key, admin = var.admin_key }

  # The logins of least privilege, by their names in Postgres: `cronbox-app migrate --roles` makes them. Logins belong to the
  # server, which several environments may share. Two names alternate, so that a new version leaves the tasks that run their login.
  login_suffix = "${replace(var.env, "-", "_")}_${var.secrets_version % 2 == 0 ? 2 : 1}"
  logins = merge(
    { app = "cronbox_serve_${local.login_suffix}", publisher = "cronbox_publish_${local.login_suffix}" },
    var.has_notifier ? { notifier = "cronbox_notify_${local.login_suffix}" } : {},
  )
}

ephemeral "aws_secretsmanager_random_password" "owner" {
  password_length     = 32
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "app" {
  password_length     = 32
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "publisher" {
  password_length     = 32
  exclude_punctuation = true
}

ephemeral "aws_secretsmanager_random_password" "notifier" {
  password_length     = 32
  exclude_punctuation = true
}

# 32 characters are the 32 bytes of a key.
ephemeral "aws_secretsmanager_random_password" "secrets_key" {
  password_length     = 32
  exclude_punctuation = true
}

resource "aws_secretsmanager_secret" "owner" {
  # checkov:skip=CKV2_AWS_57: raise secrets_version; Secrets Manager's rotation needs a function for Postgres
  # checkov:skip=CKV_AWS_149: a variable
  count = local.makes_database ? 1 : 0

  name        = "${local.name}-owner"
  description = "The login of cronbox's database that owns it; only migrations use it."
  kms_key_id  = var.secrets_kms_key_arn
  # After a trial its names must be free at once.
  recovery_window_in_days = var.database.keeps_backups ? 30 : 0
  tags                    = var.tags
}

resource "aws_secretsmanager_secret_version" "owner" {
  count = local.makes_database ? 1 : 0

  secret_id                = aws_secretsmanager_secret.owner[0].id
  secret_string_wo         = jsonencode({ username = "cronbox_owner_login", password = ephemeral.aws_secretsmanager_random_password.owner.random_password })
  secret_string_wo_version = var.secrets_version
}

# The database gets what was stored, so that an apply that stops in between leaves no other password in the secret.
ephemeral "aws_secretsmanager_secret_version" "owner" {
  count = local.makes_database ? 1 : 0

  secret_id = aws_secretsmanager_secret_version.owner[0].secret_id
}

resource "aws_secretsmanager_secret" "login" {
  # checkov:skip=CKV2_AWS_57: raise secrets_version; Secrets Manager's rotation needs a function for Postgres
  # checkov:skip=CKV_AWS_149: a variable
  for_each = local.logins

  name        = "${local.name}-${each.key}-login"
  description = "The login of cronbox's ${each.key} at its database."
  kms_key_id  = var.secrets_kms_key_arn
  # The next task makes a login anew, so no backup needs it, and a notifier that is switched on again finds its name free.
  recovery_window_in_days = 0
  tags                    = var.tags

  lifecycle {
    # So that Terraform deletes the login of a notifier that is switched off only after the service is steady, and not if ECS has rolled back: the
    # tasks before need it at each start.
    create_before_destroy = true
  }
}

resource "aws_secretsmanager_secret_version" "login" {
  for_each = local.logins

  secret_id = aws_secretsmanager_secret.login[each.key].id
  secret_string_wo = jsonencode({
    username = each.value
    password = {
      app       = ephemeral.aws_secretsmanager_random_password.app.random_password
      publisher = ephemeral.aws_secretsmanager_random_password.publisher.random_password
      notifier  = ephemeral.aws_secretsmanager_random_password.notifier.random_password
    }[each.key]
  })
  secret_string_wo_version = var.secrets_version
}

resource "aws_secretsmanager_secret" "key" {
  # checkov:skip=CKV2_AWS_57: keys are rotated by docs/keys.md
  # checkov:skip=CKV_AWS_149: a variable
  for_each = toset(["scheduler", "admin"])

  name        = "${local.name}-${each.key}-key"
  description = "The ${each.key} key of cronbox's app."
  kms_key_id  = var.secrets_kms_key_arn
  # After a trial its names must be free at once.
  recovery_window_in_days = var.database.keeps_backups ? 30 : 0
  tags                    = var.tags
}

# The stored key, so that an apply which names none keeps it. If one is named, another secret is read in its place: that of a key which
# this apply makes has no value yet.
ephemeral "aws_secretsmanager_secret_version" "key" {
  for_each = aws_secretsmanager_secret.key

  secret_id = local.given_keys[each.key] == null ? each.value.id : aws_secretsmanager_secret_version.secrets_key.secret_id
}

# Runner and publisher find the new scheduler key here before a task has made it in the database. Until then they use the version before.
resource "aws_secretsmanager_secret_version" "key" {
  for_each = aws_secretsmanager_secret.key

  secret_id                = each.value.id
  secret_string_wo         = coalesce(local.given_keys[each.key], ephemeral.aws_secretsmanager_secret_version.key[each.key].secret_string)
  secret_string_wo_version = var.secrets_version
}

# It encrypts header values and signing secrets in the database. Without it they are lost, so secrets_version does not change it.
resource "aws_secretsmanager_secret" "secrets_key" {
  # checkov:skip=CKV2_AWS_57: docs/deploy.md says how it is rotated, with re-encryption
  # checkov:skip=CKV_AWS_149: a variable
  name        = "${local.name}-secrets-key"
  description = "The key that encrypts secrets in cronbox's database. Never delete it."
  kms_key_id  = var.secrets_kms_key_arn
  # After a trial its names must be free at once.
  recovery_window_in_days = var.database.keeps_backups ? 30 : 0
  tags                    = var.tags
}

# Whether the secret has a key: only its first value may be random. After rotations Secrets Manager may delete the version that the state names, and
# Terraform would then make a new one, which opens no secret of the database.
data "aws_secretsmanager_secret_versions" "secrets_key" {
  secret_id = aws_secretsmanager_secret.secrets_key.id
}

locals {
  # Of a secret without a version the list is null.
  has_secrets_key = try(length(data.aws_secretsmanager_secret_versions.secrets_key.versions), 0) > 0
}

# The stored keys. While there are none, another secret is read in their place.
ephemeral "aws_secretsmanager_secret_version" "secrets_key" {
  secret_id = local.has_secrets_key ? aws_secretsmanager_secret.secrets_key.id : aws_secretsmanager_secret_version.login["app"].secret_id
}

resource "aws_secretsmanager_secret_version" "secrets_key" {
  secret_id = aws_secretsmanager_secret.secrets_key.id
  secret_string_wo = (
    local.has_secrets_key ?
    ephemeral.aws_secretsmanager_secret_version.secrets_key.secret_string :
    "k1:${base64encode(ephemeral.aws_secretsmanager_random_password.secrets_key.random_password)}"
  )
  secret_string_wo_version = 1

  lifecycle {
    # A rotation writes two keys.
    ignore_changes = [secret_string_wo_version]
  }
}
