# The settings of stage; all other files are the same in every environment. `terraform init` asks for the
# bucket and region of the state, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/stage/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "stage"
  # The complete trial of a release.
  log_retention_days = 30
}
