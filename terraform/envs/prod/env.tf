# The settings of prod; all other files are the same in every environment. `terraform init` asks for the
# bucket and region of the state, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/prod/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "prod"
  # A year and a month, for questions a year later.
  log_retention_days = 400
}
