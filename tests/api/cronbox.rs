//! The `cronbox` command as an operator calls it.

use tests::Story;
use tokio::process::Command;

/// The command with the admin's key, not started yet.
pub(crate) fn command(s: &Story, arguments: &[&str]) -> Command {
    let mut command = Command::new(local::config::target_folder().join("debug/cronbox"));
    command.args(arguments).env("CRONBOX_URL", s.url()).env("CRONBOX_KEY", &s.keys.admin);
    // The key is for no proxy.
    command.env("http_proxy", "http://127.0.0.1:9").env("ALL_PROXY", "http://127.0.0.1:9");
    command
}

/// Its exit code, and its output on stdout and stderr.
pub(crate) async fn cronbox(s: &Story, arguments: &[&str]) -> (Option<i32>, String) {
    let output = command(s, arguments).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}
