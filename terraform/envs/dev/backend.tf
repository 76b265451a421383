# Where the state is kept is yours to say: `terraform init -backend-config=backend.hcl`, with
# bucket, key, region and use_lockfile = true. For a try without one, remove this file.

terraform {
  backend "s3" {}
}
