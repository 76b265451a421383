//! `cronbox-local up` as a person runs it: it keeps its data, refuses a folder or port in use, and leaves no process
//! behind.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use chrono::{SecondsFormat, TimeDelta};
use local::config::target_folder;
use schedule::Clock;
use serde_json::{Value, json};
use tests::PATIENCE;

/// A folder that is deleted at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        Scratch(std::env::temp_dir().join(format!("cronbox-up-{}", uuid::Uuid::new_v4())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The folder may not exist.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A running `cronbox-local up`.
struct Up {
    process: Child,
    lines: Receiver<String>,
    /// The lines of its output that were read so far
    said: Vec<String>,
    env: HashMap<String, String>,
}

impl Up {
    /// Starts it on `data`, with a new target folder, and reads its output until it is ready.
    fn start(data: &Path) -> Up {
        Up::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&str]) -> Up {
        let mut process = command(data, &[free_port(), free_port()]).args(more).stdout(Stdio::piped()).spawn().unwrap();
        let (line, lines) = channel();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|said| line.send(said)));
        let mut up = Up { process, lines, said: Vec::new(), env: HashMap::new() };
        up.read_until("ready");
        let env = data.join("target/local/env");
        assert_eq!(fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(env).unwrap();
        up.env =
            text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        up
    }

    /// The first line that contains `wanted`, among those already read or still to come.
    fn read_until(&mut self, wanted: &str) -> String {
        if let Some(line) = self.said.iter().find(|line| line.contains(wanted)) {
            return line.clone();
        }
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said.push(line);
            if let Some(line) = self.said.last().filter(|line| line.contains(wanted)) {
                return line.clone();
            }
        }
        panic!("it never said {wanted:?}: {:?}", self.said);
    }

    async fn call(&self, path: &str, body: Option<Value>) -> Value {
        let url = format!("{}/api/v1{path}", self.env["CRONBOX_URL"]);
        let client = reqwest::Client::new();
        let request = match body {
            Some(body) => client.post(url).json(&body),
            None => client.get(url),
        };
        request.header("X-API-Key", &self.env["CRONBOX_KEY"]).send().await.unwrap().json().await.unwrap()
    }

    async fn until_synced(&self, workflow: &Value) {
        let synced = async {
            while self.call(&format!("/workflows/{workflow}"), None).await["sync"]["status"] != "synced" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, synced).await.expect("it is synced");
    }

    /// The names of the existing schedules.
    async fn schedules(&self) -> Vec<String> {
        let client = local::client::stand_in_client(&self.env["AWS_ENDPOINT_URL_SCHEDULER"]);
        let listed = client.list_schedules().send().await.unwrap();
        listed.schedules().iter().map(|schedule| schedule.name().unwrap().to_owned()).collect()
    }

    /// Sends SIGINT, like Ctrl-C in a terminal.
    fn interrupt(mut self) {
        let sent = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // It may have ended already.
        let _killed = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn command(data: &Path, ports: &[u16; 2]) -> Command {
    let program = target_folder().join("debug/cronbox-local");
    assert!(program.exists(), "build the programs first: `make test` does");
    let mut command = Command::new(program);
    command.arg("up").arg("--data").arg(data.join("data"));
    command.args(["--app-port", &ports[0].to_string(), "--scheduler-port", &ports[1].to_string()]);
    command.env("CARGO_TARGET_DIR", data.join("target")).env_remove("RUST_BACKTRACE");
    command
}

/// It stays free until a stack takes it, although other tests bind ports meanwhile.
fn free_port() -> u16 {
    tests::find_kept_port()
}

fn server(data: &Path) -> Option<String> {
    let file = fs::read_to_string(data.join("data/data/postmaster.pid")).ok()?;
    file.lines().next().map(str::to_owned)
}

/// The stand-in stores nothing, so it gets the schedules again.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_keep_workflows_keys_and_schedules() {
    let scratch = Scratch::new();
    let mut up = Up::start(&scratch.0);
    let team: i64 = up.env["CRONBOX_TEAM_ID"].parse().unwrap();
    let body = json!({ "name": "nightly", "team_id": team, "cron_schedule": "0 3 * * *",
                       "action": { "type": "log", "message": "hello" } });
    let dry = up.call("/workflows?dry_run=true", Some(body.clone())).await;
    assert_eq!(dry["changes"].as_array().map(Vec::len), Some(1), "{dry}");
    let made = up.call("/workflows", Some(body)).await;
    up.until_synced(&made["id"]).await;
    let name = format!("wf-{}-dev", made["id"]);
    assert_eq!(up.schedules().await, std::slice::from_ref(&name));
    up.read_until(&name);
    let created = up.said.iter().filter(|line| line.contains("edit: workflow"));
    assert_eq!(created.count(), 1, "no step of the dry run has happened: {:?}", up.said);
    let is_warning = |line: &String| line.contains("warn: ") && line.contains("generation");
    assert!(!up.said.iter().any(is_warning), "the first deployment is no warning: {:?}", up.said);
    let before = up.env.clone();
    let secrets_key = fs::metadata(&before["CRONBOX_SECRETS_KEY_FILE"]).unwrap();
    assert_eq!(secrets_key.permissions().mode() & 0o777, 0o600, "the key that encrypts secrets");
    up.interrupt();
    assert_eq!(server(&scratch.0), None, "Postgres is stopped with the rest");

    let mut again = Up::start(&scratch.0);
    for same in ["CRONBOX_KEY", "CRONBOX_SCHEDULER_KEY", "CRONBOX_SECRETS_KEY_FILE", "CRONBOX_TEAM_ID"] {
        assert_eq!(before[same], again.env[same], "{same}");
    }
    let line = again.read_until("schedule wf-");
    assert!(line.contains(&name), "{line}");
    assert_eq!(again.schedules().await, [name]);
    assert_eq!(again.call(&format!("/workflows/{}", made["id"]), None).await["name"], "nightly");
    again.interrupt();
}

/// What the terminal does not keep is in a file, which its owner only may read.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_request_is_found() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch.0);
    let answer = reqwest::get(format!("{}/api/v1/me", up.env["CRONBOX_URL"])).await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    let mut logs = Command::new(target_folder().join("debug/cronbox"));
    logs.args(["logs", "--request", id]).env("CRONBOX_LOG_FILE", &up.env["CRONBOX_LOG_FILE"]).stdin(Stdio::null());
    let found = logs.output().unwrap();
    let text = String::from_utf8(found.stdout).unwrap();
    assert!(found.status.success() && text.lines().count() == 1, "{text}");
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["fields"]["status"], &line["fields"]["request_id"]), (&json!(401), &json!(id)));
    assert_eq!(fs::metadata(&up.env["CRONBOX_LOG_FILE"]).unwrap().permissions().mode() & 0o777, 0o600);
    up.interrupt();
}

/// Its Postgres ends with it, and a new one starts on the same data.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_stack_can_start_again() {
    let scratch = Scratch::new();
    let mut up = Up::start(&scratch.0);
    let pid = server(&scratch.0).unwrap();
    up.process.kill().unwrap();
    up.process.wait().unwrap();
    // At once, while the old server may still be stopping.
    let again = Up::start(&scratch.0);
    assert_ne!(server(&scratch.0).unwrap(), pid);
    again.interrupt();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_stack_says_what_to_do() {
    let scratch = Scratch::new();
    let up = Up::start(&scratch.0);
    let second = command(&scratch.0, &[free_port(), free_port()]).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("stop it, or choose another folder with --data DIR") && said.lines().count() == 1, "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = Scratch::new();
    let third = command(&other.0, &[taken.local_addr().unwrap().port(), free_port()]).output().unwrap();
    let said = String::from_utf8(third.stderr).unwrap();
    assert_eq!(third.status.code(), Some(1));
    assert!(said.contains("choose another port with --app-port") && said.lines().count() == 1, "{said}");
    up.interrupt();
}

/// A newer Postgres does not read the data of an older one. The person learns which one is missing.
#[test]
fn data_of_a_missing_postgres_are_refused() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.0.join("data/data")).unwrap();
    fs::write(scratch.0.join("data/data/PG_VERSION"), "9\n").unwrap();
    let refused = command(&scratch.0, &[free_port(), free_port()]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("those of Postgres 9, which is not installed") && said.lines().count() == 1, "{said}");
}

/// What each kind of the demo has, with how many at least.
const DEMO: [(&str, i64); 19] = [
    ("SELECT count(*) FROM teams WHERE name IN ('payments', 'data', 'platform')", 3),
    ("SELECT count(*) FROM workflows", 40),
    ("SELECT count(DISTINCT cron_schedule) FROM workflows WHERE labels <> '{}'", 30),
    ("SELECT count(*) FROM workflows WHERE paused_by = 'client' AND pause_reason IS NOT NULL", 1),
    ("SELECT count(*) FROM workflows WHERE paused_by = 'cronbox'", 1),
    ("SELECT count(*) FROM publications WHERE error_class = 'permanent'", 1),
    ("SELECT count(*) FROM publications WHERE drift IS NOT NULL", 1),
    ("SELECT count(*) FROM freezes WHERE ends_on < now()", 1),
    ("SELECT count(*) FROM occurrences WHERE reason LIKE 'frozen:%'", 20),
    ("SELECT count(*) FROM occurrences WHERE decision = 'missed'", 20),
    (
        "SELECT count(*) FROM occurrences o JOIN workflows w ON w.id = workflow_id WHERE decision = 'caught_up' AND catch_up_policy = 'run_all'",
        28,
    ),
    ("SELECT count(*) FROM runs WHERE state IN ('failed', 'timed_out')", 100),
    ("SELECT count(*) FROM runs WHERE state = 'succeeded'", 20_000),
    ("SELECT count(*) FROM failure_streaks WHERE failures >= 5", 1),
    ("SELECT count(*) FROM schedule_versions WHERE revision = 2", 3),
    ("SELECT count(*) FROM notification_rules", 12),
    ("SELECT count(*) FROM notification_messages WHERE state IN ('sent', 'failed')", 10),
    ("SELECT count(*) FROM dead_letters WHERE state = 'present'", 3),
    ("SELECT count(*) FROM daily_verifications WHERE finished_on IS NOT NULL AND differences = 0 AND unproven = 0", 87),
];

/// The history is proven like any other; on a database that has workflows the demo is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_demo_has_everything_and_is_proven() {
    let scratch = Scratch::new();
    let mut up = Up::start_with(&scratch.0, &["--demo"]);
    up.read_until("three teams with 40 workflows");
    let pool = sqlx::PgPool::connect(&up.env["CRONBOX_OWNER_DSN"]).await.unwrap();
    for (query, least) in DEMO {
        let found: i64 = sqlx::query_scalar(query).fetch_one(&pool).await.unwrap();
        assert!(found >= least, "{found} instead of {least}: {query}");
    }
    pool.close().await;

    let days_ago = |days: i64, minutes: i64| {
        let at = Clock::System.now() - TimeDelta::days(days) - TimeDelta::minutes(minutes);
        at.to_rfc3339_opts(SecondsFormat::Secs, true)
    };
    let span = format!("/verify?from={}&to={}", days_ago(89, 0), days_ago(0, 10));
    let (mut compared, mut cursor) = (0, String::new());
    loop {
        let page = up.call(&format!("{span}{cursor}"), None).await;
        assert_eq!(page["differences"], json!([]), "{page}");
        compared += page["due"].as_i64().unwrap();
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(compared > 20_000, "{compared}");
    up.interrupt();

    let again = command(&scratch.0, &[free_port(), free_port()]).arg("--demo").output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("--demo needs a database without workflows"), "{said}");
}
