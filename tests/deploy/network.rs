//! In which order a change of the network's gateways happens. Terraform's own resources take the places of AWS's, so this needs no
//! emulator: what refers to what, and the lifecycles, are those of `modules/network`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use local::config::target_folder;

/// The locals that the two resources read.
const LOCALS: &str = "variable \"nat_gateways\" {
  type = string
}
locals {
  private = { a = \"10.42.128.0/20\", b = \"10.42.144.0/20\" }
  zones   = keys(local.private)
  nats    = toset(var.nat_gateways == \"each\" ? local.zones : [local.zones[0]])
}
";
/// Attributes that only AWS's resources have.
const OF_AWS: [&str; 6] =
    ["allocation_id ", "subnet_id ", "tags ", "depends_on ", "route_table_id ", "destination_cidr_block "];

/// The resource of `modules/network`, as one of Terraform's own.
fn resource(main: &str, header: &str) -> String {
    let (_, after) = main.split_once(header).unwrap();
    let (body, _) = after.split_once("\n}\n").unwrap();
    let kept = body.lines().filter(|line| !OF_AWS.iter().any(|attribute| line.trim_start().starts_with(attribute)));
    let text = [header, &kept.collect::<Vec<_>>().join("\n"), "\n}\n"].concat();
    let text = text.replace("nat_gateway_id ", "input ");
    text.replace("aws_nat_gateway", "terraform_data").replace("aws_route", "terraform_data")
}

fn written(name: &str) -> PathBuf {
    let folder = target_folder().join(name);
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("../terraform/modules/network/main.tf");
    let main = std::fs::read_to_string(main).unwrap();
    let resources = ["resource \"aws_nat_gateway\" \"this\" {", "resource \"aws_route\" \"nat\" {"];
    let resources = resources.map(|header| resource(&main, header)).concat();
    std::fs::write(folder.join("main.tf"), [LOCALS, &resources].concat()).unwrap();
    folder
}

/// Returns what Terraform printed.
fn terraform(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("terraform");
    command.current_dir(folder).args(arguments).args(["-input=false", "-no-color"]).stdin(Stdio::null());
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(done.status.success(), "terraform {arguments:?}: {said}");
    said
}

/// AWS needs a minute to delete a gateway. A route that still leads to it would lead nowhere meanwhile.
#[test]
fn routes_leave_a_gateway_before_it_goes() {
    let folder = written("deploy-gateways");
    terraform(&folder, &["init"]);
    terraform(&folder, &["apply", "-auto-approve", "-var=nat_gateways=each"]);
    let said = terraform(&folder, &["apply", "-auto-approve", "-var=nat_gateways=one"]);
    let moved = said.find("terraform_data.nat[\"b\"]: Modifications complete");
    let deleted = said.find("terraform_data.this[\"b\"]: Destroying");
    assert!(moved.is_some() && deleted.is_some() && moved < deleted, "{said}");
}
