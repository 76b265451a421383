//! The secrets that a role of Terraform may read, and the row of docs/security.md about a stolen role.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use regex::Regex;

use crate::sources::root;

/// How an action of Secrets Manager begins in a policy.
const GRANT: &str = "\"secretsmanager:";

/// The element of a list of secrets.
const ELEMENT: &str = "secret.arn";

/// Each secret, as the policies refer to it and as the table names it.
static SECRETS: [(&str, &str); 7] = [
    ("var.database_secret_arn", "database secret"),
    ("var.scheduler_key_secret_arn", "scheduler key"),
    ("local.database.owner_secret_arn", "owner's login"),
    ("aws_secretsmanager_secret.login", "logins"),
    ("aws_secretsmanager_secret.key", "keys of the scheduler and the operator"),
    ("aws_secretsmanager_secret.secrets_key", "`CRONBOX_SECRETS_KEY`"),
    ("local.operator_secret_arns", "secrets of the operator"),
];

/// The secrets of each role.
type SecretsOfRoles = BTreeMap<String, BTreeSet<&'static str>>;

/// After a theft an operator replaces the secrets that the row names. The thief keeps one that it does not name.
#[test]
fn security_names_the_secrets_of_roles() {
    let granted = granted_secrets();
    assert!(granted.len() >= 4, "the policies were not found");
    assert_eq!(stated_secrets(), granted);
}

fn granted_secrets() -> SecretsOfRoles {
    let document = Regex::new(r#"(?ms)^data "aws_iam_policy_document" "(\w+)" \{$(.*?)^\}$"#).unwrap();
    let statement = Regex::new(r"(?m)^ +(?:statement|content) \{$").unwrap();
    let mut granted = SecretsOfRoles::new();
    for file in module_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut grants = 0;
        for found in document.captures_iter(&text) {
            let role = found[1].trim_end_matches("_own");
            for part in statement.split(&found[2]).filter(|part| part.contains(GRANT)) {
                grants += part.matches(GRANT).count();
                granted.entry(role.to_owned()).or_default().extend(secrets_of_statement(part));
            }
        }
        assert_eq!(grants, text.matches(GRANT).count(), "{}: a grant is in no policy document", file.display());
    }
    granted
}

fn secrets_of_statement(statement: &str) -> Vec<&'static str> {
    let resources = Regex::new(r"(?s)\bresources\s*=(.*?)\n\s*\}").unwrap();
    let reference = Regex::new(r"[a-z_]+(?:\.[a-z_]+)+").unwrap();
    let captured = resources.captures(statement).unwrap();
    let mut secrets = Vec::new();
    for found in reference.find_iter(&captured[1]).filter(|found| found.as_str() != ELEMENT) {
        let name = found.as_str().trim_end_matches(".arn");
        let known = SECRETS.iter().find(|(reference, _)| *reference == name);
        let (_, words) = known.unwrap_or_else(|| panic!("add {name} to SECRETS, and to docs/security.md"));
        secrets.push(*words);
    }
    assert!(!secrets.is_empty(), "{statement}: which secrets?");
    secrets
}

/// The secrets that the second column of the table names in the row of each role.
fn stated_secrets() -> SecretsOfRoles {
    let row = Regex::new(r"(?m)^\| ([a-z]+)(?:'s)? role\b[^|]*\|([^|]*)\|").unwrap();
    let text = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let rows = row.captures_iter(&text).map(|found| {
        let words = SECRETS.iter().map(|(_, words)| *words);
        let named: BTreeSet<_> = words.filter(|words| found[2].contains(*words)).collect();
        (found[1].to_owned(), named)
    });
    rows.collect()
}

/// The files of all modules, without their tests.
fn module_files() -> Vec<PathBuf> {
    let files = entries_of(&root().join("terraform/modules")).into_iter().flat_map(|module| entries_of(&module));
    files.filter(|path| path.extension().is_some_and(|extension| extension == "tf")).collect()
}

fn entries_of(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
