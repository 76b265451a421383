#!/bin/sh
# Checks terraform/ and its example: format, validity, tests on plans, and checkov. $1 is the target folder. Works on a copy, because
# `terraform init` writes into the folders that it prepares. CRONBOX_TF_PLUGIN_DIR names a folder of providers, for machines
# that cannot reach the registry.
set -eu
mkdir -p "$1"
target=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
copy="$target/terraform"

command -v terraform >/dev/null || {
    echo "terraform: install Terraform 1.11 or later (https://developer.hashicorp.com/terraform/install), then run this again" >&2
    exit 1
}

init() {
    terraform init -backend=false -input=false -no-color ${CRONBOX_TF_PLUGIN_DIR:+-plugin-dir="$CRONBOX_TF_PLUGIN_DIR"} >/dev/null
}

terraform fmt -check -diff -recursive "$root/terraform"
terraform fmt -check -diff -recursive "$root/examples/terraform"
python3 "$root/scripts/terraform_docs.py" check

rm -rf "$copy"
mkdir -p "$copy"
# The test of the alarms reads the runbook in docs/.
cp -R "$root/terraform" "$root/docs" "$copy"
for env in dev stage prod; do
    (cd "$copy/terraform/envs/$env" && init && terraform validate -no-color)
done
for module in cron network notifier; do
    (cd "$copy/terraform/modules/$module" && init && terraform validate -no-color && terraform test -no-color)
done
# Plans of the service call Secrets Manager, so its tests run against an emulator (tests/deploy/whole.rs).
# The examples call the modules by their relative paths.
mkdir "$copy/examples"
cp -R "$root/examples/terraform" "$copy/examples"
for example in minimal complete existing-database two-environments; do
    (cd "$copy/examples/terraform/$example" && init && terraform validate -no-color)
done
(cd "$copy/examples/terraform/minimal" && terraform test -no-color -var="zips=$target/lambdas/x86_64")

sh "$root/scripts/venv.sh" "$target/venv-terraform" "$root/scripts/terraform.txt"
# Fix a finding, or write its reason next to the resource (checkov:skip=..).
"$target/venv-terraform/bin/checkov" --directory "$root/terraform" --framework terraform --skip-download --compact --quiet
