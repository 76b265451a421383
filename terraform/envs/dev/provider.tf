# `endpoint_url` lets the same code run against an emulator; with AWS it stays null.

locals {
  is_emulator = var.endpoint_url != null
}

provider "aws" {
  region = var.region

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
      cloudwatch       = endpoints.value
      cloudwatchevents = endpoints.value
      cloudwatchlogs   = endpoints.value
      ec2              = endpoints.value
      iam              = endpoints.value
      lambda           = endpoints.value
      scheduler        = endpoints.value
      sqs              = endpoints.value
      sts              = endpoints.value
    }
  }
}
