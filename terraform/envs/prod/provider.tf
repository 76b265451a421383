# `endpoint_url` lets the same code run against an emulator; with AWS it stays null.

locals {
  is_emulator = var.endpoint_url != null
}

provider "aws" {
  region = var.region
  # Credentials of another account are an error, so that no environment is applied to the account of another one.
  allowed_account_ids = [var.account_id]

  # An emulator has no credentials of ours, and only its own account.
  access_key                  = local.is_emulator ? "emulator" : null
  secret_key                  = local.is_emulator ? "emulator" : null
  skip_credentials_validation = local.is_emulator
  skip_metadata_api_check     = local.is_emulator

  default_tags {
    tags = { app = "cronbox", env = local.env }
  }

  dynamic "endpoints" {
    for_each = var.endpoint_url[*]

    content {
      acm              = endpoints.value
      appautoscaling   = endpoints.value
      cloudwatch       = endpoints.value
      cloudwatchevents = endpoints.value
      cloudwatchlogs   = endpoints.value
      ec2              = endpoints.value
      ecs              = endpoints.value
      elbv2            = endpoints.value
      iam              = endpoints.value
      lambda           = endpoints.value
      rds              = endpoints.value
      route53          = endpoints.value
      scheduler        = endpoints.value
      secretsmanager   = endpoints.value
      sqs              = endpoints.value
      sts              = endpoints.value
    }
  }
}
