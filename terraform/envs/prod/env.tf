# What makes this prod; all other files are the same in every environment. The state's bucket and
# region are yours to say: `terraform init` asks for them, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/prod/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "prod"
  # A year and a month, for those who ask a year later.
  log_retention_days = 400
}
