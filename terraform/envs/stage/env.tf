# What makes this stage; all other files are the same in every environment. The state's bucket and
# region are yours to say: `terraform init` asks for them, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/stage/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "stage"
  # A release's whole trial.
  log_retention_days = 30
}
