//! The programs in examples/, as a reader runs them, against the real app.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use local::config::target_folder;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::receiver::{NOON, Received, Receiver, accept, until_state};

/// A language in which there is an example of a receiver.
#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    TypeScript,
    Go,
}

impl Language {
    /// The program without which the test is skipped.
    fn program(self) -> &'static str {
        match self {
            Language::Python => "python3",
            Language::TypeScript => "npm",
            Language::Go => "go",
        }
    }

    /// The command that starts the receiver whose source is below this folder.
    async fn command(self, receivers: &Path, scratch: &Path) -> Command {
        match self {
            Language::Python => python(receivers),
            Language::TypeScript => typescript(),
            Language::Go => go(receivers, scratch).await,
        }
    }

    /// Copies the receiver, with work that lasts as long as there is a file `hold-<run>`; returns the folder of the copy.
    fn copy_with_held_work(self, scratch: &Path) -> PathBuf {
        let (folder, file, end_of_work, wait) = match self {
            Language::Python => (
                "python",
                "receiver.py",
                "for {call['scheduled_time']}\", flush=True)\n",
                "    while os.path.exists('hold-' + call['run_id']): __import__('time').sleep(0.01)\n",
            ),
            Language::Go => (
                "go",
                "receiver.go",
                "c.WorkflowID, c.ScheduledTime)\n",
                "for { if _, err := os.Stat(\"hold-\" + c.RunID); err != nil { break }; time.Sleep(10 * time.Millisecond) }\n",
            ),
            Language::TypeScript => panic!("its compiled program cannot be changed"),
        };
        let copy = scratch.join("receivers").join(folder);
        std::fs::create_dir_all(&copy).unwrap();
        for entry in std::fs::read_dir(examples().join("receivers").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
        let source = std::fs::read_to_string(copy.join(file)).unwrap();
        assert_eq!(source.matches(end_of_work).count(), 1, "{file} has another work");
        std::fs::write(copy.join(file), source.replace(end_of_work, &format!("{end_of_work}{wait}"))).unwrap();
        scratch.join("receivers")
    }
}

/// The work of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// That of the example, which ends at once.
    Short,
    /// It lasts as long as there is a file `hold-<run>`.
    Held,
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

/// Whether this machine has a program that an example needs. If not, the test says that it is skipped.
async fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_installed = command.status().await.is_ok();
    if !is_installed {
        let line = format!("skipped: an example that needs `{program}`, which is not installed\n");
        // Not by a macro: the harness shows what these print only if the test fails.
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    is_installed
}

fn python(receivers: &Path) -> Command {
    let program = target_folder().join("venv-examples/bin/python");
    assert!(program.exists(), "the example in Python is not installed: run `make setup`");
    let mut command = Command::new(program);
    command.arg(receivers.join("python/receiver.py"));
    command
}

fn typescript() -> Command {
    let program = target_folder().join("examples/typescript/dist/receiver.js");
    assert!(program.exists(), "the example in TypeScript is not compiled: run `make setup`");
    let mut command = Command::new("node");
    command.arg(program);
    command
}

async fn go(receivers: &Path, scratch: &Path) -> Command {
    let program = scratch.join("receiver");
    let mut build = Command::new("go");
    build.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    build.current_dir(receivers.join("go"));
    let built = build.output().await.unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Command::new(program)
}

/// A receiver of the examples, in a process of its own; it ends with its test.
struct Example {
    url: String,
    scratch: PathBuf,
    _process: Child,
    // Without a reader its next line would end it.
    lines: tokio::sync::Mutex<Lines<BufReader<ChildStdout>>>,
}

impl Example {
    /// Starts it with a team's secret; `None` if its language is not installed.
    async fn start(language: Language, work: Work, secret: &str) -> Option<Self> {
        if !is_installed(language.program()).await {
            return None;
        }
        let scratch = std::env::temp_dir().join(format!("cronbox-example-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&scratch).unwrap();
        let receivers = match work {
            Work::Short => examples().join("receivers"),
            Work::Held => language.copy_with_held_work(&scratch),
        };
        let mut command = language.command(&receivers, &scratch).await;
        command.env("CRONBOX_SIGNING_SECRET", secret).env("RECEIVER_PORT", "0").current_dir(&scratch);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await.expect("it neither listens nor ends");
        let first = first.unwrap().unwrap_or_default();
        let (_, url) = first.split_once("listens on ").unwrap_or_else(|| panic!("{language:?} said only {first:?}"));
        Some(Example { url: url.to_owned(), scratch, _process: process, lines: lines.into() })
    }

    /// The next line that it prints.
    async fn next_line(&self) -> String {
        let line = async { self.lines.lock().await.next_line().await };
        tokio::time::timeout(PATIENCE, line).await.expect("it prints nothing").unwrap().unwrap_or_default()
    }

    /// Sends it a request as cronbox sent it, or as it was changed since.
    async fn answer_to(&self, request: &Received) -> (u16, Value) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let signed = request.headers.iter().filter(|(name, _)| name.as_str().starts_with("webhook-"));
        let headers = signed.map(|(name, value)| (name.clone(), value.clone())).collect();
        let answer = tests::send_request(client.post(&self.url).headers(headers).body(request.body.clone())).await;
        (answer.status, answer.json)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.scratch).ok();
    }
}

async fn secret(s: &Story) -> String {
    s.table("SELECT signing_secret FROM teams").await
}

/// A request that the app has sent, as a receiver that keeps everything got it; and its run.
async fn sent_request(s: &Story) -> (Received, String) {
    let receiver = Receiver::kind().await;
    let workflow = s.create_with(json!({"action": receiver.action()})).await;
    let run = accept(s, workflow).await;
    until_state(s, run, "succeeded").await;
    (receiver.received().remove(0), run.to_string())
}

/// What an attacker on the way could make of a request.
fn tampered(sent: &Received) -> [Received; 3] {
    let [mut changed, mut renamed, mut unsigned] = [sent.clone(), sent.clone(), sent.clone()];
    changed.body = String::from_utf8(sent.body.to_vec()).unwrap().replace("manual", "schedule").into();
    renamed.headers.insert("webhook-id", "0195".parse().unwrap());
    unsigned.headers.remove("webhook-signature");
    [changed, renamed, unsigned]
}

async fn verifies_and_works_once(language: Language) {
    let s = Story::today().await;
    let Some(example) = Example::start(language, Work::Short, &secret(&s).await).await else {
        s.end().await;
        return;
    };
    let workflow = s.create_with(json!({"action": {"type": "http", "method": "POST", "url": example.url}})).await;
    let run = accept(&s, workflow).await;
    let succeeded = until_state(&s, run, "succeeded").await;
    assert_eq!(succeeded["result"]["status"], 200, "{succeeded}");
    let answer: Value = serde_json::from_str(succeeded["result"]["body"].as_str().unwrap()).unwrap();
    assert_eq!(answer, json!({"run_id": run.to_string(), "repeated": false}));

    let (sent, other) = sent_request(&s).await;
    for request in tampered(&sent) {
        let (status, answer) = example.answer_to(&request).await;
        assert_eq!(status, 401, "{answer}");
    }
    for repeated in [false, true] {
        assert_eq!(example.answer_to(&sent).await, (200, json!({"run_id": other, "repeated": repeated})));
    }
    s.end().await;
}

#[tokio::test]
async fn python_example_verifies_and_works_once() {
    verifies_and_works_once(Language::Python).await;
}

#[tokio::test]
async fn typescript_example_verifies_and_works_once() {
    verifies_and_works_once(Language::TypeScript).await;
}

#[tokio::test]
async fn go_example_verifies_and_works_once() {
    verifies_and_works_once(Language::Go).await;
}

/// While the work of a run lasts, other runs are done, and a second attempt of this one waits for the first.
async fn works_on_several_runs(language: Language) {
    let s = Story::today().await;
    let Some(example) = Example::start(language, Work::Held, &secret(&s).await).await else {
        s.end().await;
        return;
    };
    let ((first, held), (second, other)) = (sent_request(&s).await, sent_request(&s).await);
    let hold = example.scratch.join(format!("hold-{held}"));
    std::fs::write(&hold, "").unwrap();
    let attempts = async { tokio::join!(example.answer_to(&first), example.answer_to(&first)) };
    let meanwhile = async {
        let line = example.next_line().await;
        assert!(line.contains(&held), "{line}");
        let answer =
            tokio::time::timeout(PATIENCE, example.answer_to(&second)).await.expect("a run waits for another one");
        assert_eq!(answer, (200, json!({"run_id": other, "repeated": false})));
        std::fs::remove_file(&hold).unwrap();
    };
    let ((one, two), ()) = tokio::join!(attempts, meanwhile);
    assert_eq!((one.0, two.0), (200, 200), "{one:?} {two:?}");
    let mut repeated = [one, two].map(|(_, answer)| answer["repeated"].as_bool());
    repeated.sort_unstable();
    assert_eq!(repeated, [Some(false), Some(true)]);
    s.end().await;
}

#[tokio::test]
async fn python_example_works_on_several_runs() {
    works_on_several_runs(Language::Python).await;
}

#[tokio::test]
async fn go_example_works_on_several_runs() {
    works_on_several_runs(Language::Go).await;
}

/// The app signs by the story's clock; the examples compare the timestamp with the machine's.
#[tokio::test]
async fn example_receivers_refuse_old_requests() {
    let s = Story::at(NOON).await;
    let (old, _) = sent_request(&s).await;
    for language in [Language::Python, Language::TypeScript, Language::Go] {
        let Some(example) = Example::start(language, Work::Short, &secret(&s).await).await else { continue };
        let (status, answer) = example.answer_to(&old).await;
        assert_eq!(status, 401, "{language:?}: {answer}");
    }
    s.end().await;
}

/// examples/tour.sh with the environment that `make up` prints.
#[tokio::test]
async fn curl_tour_reaches_its_end() {
    if !is_installed("curl").await {
        return;
    }
    let s = Story::with_daemon().await;
    let mut tour = Command::new("sh");
    tour.arg(examples().join("tour.sh")).env("NO_PROXY", "127.0.0.1").env("CRONBOX_URL", s.url());
    tour.env("CRONBOX_KEY", &s.keys.admin).env("CRONBOX_TEAM_ID", s.keys.team_id.to_string());
    let done = tour.stdin(Stdio::null()).output().await.unwrap();
    let (said, failed) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}\n{failed}");
    assert!(said.contains("\"detail\":\"minute field: 75 is above 59"), "{said}");
    assert!(said.contains("The tour is over"), "{said}");
    assert_eq!(s.table("SELECT state FROM workflows").await, "archived");
    assert_eq!(s.table("SELECT trigger || ' ' || state FROM runs").await, "manual succeeded");
    let schedules = s.scheduler.list_schedules().send().await.unwrap();
    assert!(schedules.schedules().is_empty(), "{schedules:?}");
    s.end().await;
}
