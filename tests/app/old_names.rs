//! Old names of variables and programs: accepted for one version, with a warning.

use std::path::Path;

use clap::Args as _;
use old_names::{PREFIX, VARIABLES};
use tokio::process::Command;

use crate::startup::{app, expect_error, program, run};

/// Values of the variables that have no default.
const VALUES: [(&str, &str); 4] = [
    ("DB_CA_FILE", "/dev/null"),
    ("SCHEDULES_FILE", "/dev/null"),
    ("ACTION_ALLOW_CIDRS", "127.0.0.0/8"),
    ("FAULT", "I5:1:kill"),
];

/// Nothing listens there, so a command that has read its settings ends.
const NOWHERE: &str = "postgres://a@127.0.0.1:9/x";

/// Each variable is read by its old name, with a warning.
#[tokio::test]
async fn old_variables_are_read_with_a_warning() {
    let variables = old_variables();
    assert!(variables.len() > 25, "the variables of the app were not found");
    let mut serve = app();
    serve.arg("serve").env("DATABASE_URL", NOWHERE).env("NO_COLOR", "1");
    let output = run(serve.envs(variables.clone())).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    for (name, _) in variables {
        let warning = format!("old=\"{name}\" new=\"{PREFIX}{name}\"");
        assert!(said.contains(&warning), "{warning} is not in\n{said}");
    }
    assert!(said.contains("127.0.0.1:9"), "{said}");
}

/// The variables of `cronbox-app serve` that have an old name, each with a valid value.
fn old_variables() -> Vec<(&'static str, String)> {
    let serve = app::Config::augment_args(clap::Command::new("serve"));
    let variables = serve.get_arguments().filter_map(|argument| {
        let name = argument.get_env()?.to_str()?.strip_prefix(PREFIX)?;
        let old = VARIABLES.into_iter().find(|old| *old == name)?;
        let given = VALUES.iter().find(|(name, _)| *name == old).map(|(_, value)| (*value).to_owned());
        let default = || Some(argument.get_default_values().first()?.to_string_lossy().into_owned());
        Some((old, given.or_else(default).unwrap_or_else(|| panic!("{old} needs a row of VALUES"))))
    });
    variables.collect()
}

#[tokio::test]
async fn contradicting_names_stop_the_start() {
    let serve = |more: &[&str]| {
        let mut command = app();
        command.arg("serve").args(more).env("DATABASE_URL", NOWHERE).env("ENV", "dev").env("CRONBOX_ENV", "prod");
        command
    };
    expect_error(&run(&mut serve(&[])).await, "ENV and CRONBOX_ENV differ: unset ENV");
    // An option of the command line has priority over both.
    expect_error(&run(&mut serve(&["--env", "dev"])).await, "127.0.0.1:9");
}

/// The warning is on stderr, because scripts read stdout.
#[tokio::test]
async fn old_programs_name_the_new_ones() {
    for old in ["app", "publisher", "runner", "local"] {
        let output = run(program(old).arg("--help")).await;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stderr}");
        assert!(stdout.contains(&format!("Usage: cronbox-{old}")), "{stdout}");
        assert_eq!(stderr, format!("{old}: this program is now cronbox-{old}; the next version has no {old}\n"));
    }
}

/// Arguments and environment are passed on, and the exit code is the new program's.
#[tokio::test]
async fn old_programs_become_the_new_ones() {
    let output = run(program("app").arg("serve").env("DATABASE_URL", "hunter2")).await;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("\ncronbox-app: ") && error.contains("the database DSN cannot be read"), "{error}");
    assert_eq!(output.status.code(), Some(1), "{error}");
}

#[tokio::test]
async fn an_old_program_needs_the_new_one() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("old-names-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    // A link, because the system may refuse to execute a copy while another test starts a program.
    std::fs::hard_link(program("app").as_std().get_program(), folder.join("app")).unwrap();
    let output = run(Command::new(folder.join("app")).arg("--help")).await;
    std::fs::remove_dir_all(&folder).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("/cronbox-app: No such file or directory"), "{error}");
    assert!(error.ends_with(": put cronbox-app beside app, or start cronbox-app instead\n"), "{error}");
    assert_eq!(output.status.code(), Some(1), "{error}");
}
