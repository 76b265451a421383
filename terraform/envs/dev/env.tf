# What makes this dev; all other files are the same in every environment. The state's bucket and
# region are yours to say: `terraform init` asks for them, or reads -backend-config=backend.hcl.

terraform {
  backend "s3" {
    key          = "cronbox/dev/terraform.tfstate"
    encrypt      = true
    use_lockfile = true
  }
}

locals {
  env = "dev"
  # Long enough to look into last week.
  log_retention_days = 14
}
