//! `cronbox` as three readers use it: a backend engineer, an operator and a product team. Each task is one story, by commands only.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend_engineer;
mod imports;
mod lost_answers;
mod operator;
mod product_team;
mod schedules_as_code;
mod schema;
mod shell;
mod sign_in;
mod views;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tests::Story;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// A person at a terminal of their own: a home folder, and no setting of the machine.
struct Person {
    home: PathBuf,
    environment: Vec<(String, String)>,
}

/// What a command printed.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Person {
    /// A person with a key in the environment.
    fn with_key(s: &Story, key: &str) -> Self {
        let new = Self::without_key();
        new.set("CRONBOX_URL", s.url()).set("CRONBOX_KEY", key)
    }

    fn editor(s: &Story) -> Self {
        Self::with_key(s, &s.keys.editor)
    }

    fn admin(s: &Story) -> Self {
        Self::with_key(s, &s.keys.admin)
    }

    fn without_key() -> Self {
        let home = std::env::temp_dir().join(format!("cronbox-cli-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&home).unwrap();
        Self { home, environment: Vec::new() }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
        command.args(arguments).env_clear().env("HOME", &self.home).env("PATH", variable("PATH").unwrap());
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).current_dir(&self.home);
        command.kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        self.run_with(arguments, "").await
    }

    /// Runs a command with this on its standard input.
    async fn run_with(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that reads no input may have ended.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        let output = child.wait_with_output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command that succeeds; returns what it prints.
    async fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments).await;
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        said.out
    }

    /// Runs a command that succeeds, and reads its JSON.
    async fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"))
    }

    /// Writes a file into the home folder; returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.home).ok();
    }
}

/// A variable of this machine.
#[expect(clippy::disallowed_methods, reason = "the path of the programs, and whether a page is to be written")]
fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// The file of test data with this name.
fn data(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/data").join(name);
    path.to_str().unwrap().to_owned()
}
