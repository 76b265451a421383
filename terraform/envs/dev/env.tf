# The settings of dev; all other files are the same in every environment. `terraform init` asks for the
# bucket and region of the state, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/dev/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "dev"
  # Long enough to read the logs of last week.
  log_retention_days = 14
}
