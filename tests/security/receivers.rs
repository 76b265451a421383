//! Receivers of http actions that answer in bad faith: each run ends, the app keeps its memory, and serves others.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tests::{PATIENCE, Story};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::ground::{ended_run, fire, idle_story};
use crate::process::App;
use crate::report::Tally;

/// The most memory that a debug build may use while all receivers answer at once.
const MEBIBYTES: u64 = 512;
/// The most bytes of an answer that may be stored, as JSON.
const STORED: usize = 1024 * 1024;

/// In this time a run ends whose attempt lost its lease: the lease, the job that finds it, and a slow machine.
const ENDS_WITHIN: Duration = Duration::from_secs(240);
const UNFINISHED: &str = "SELECT count(*) FROM runs WHERE finished_on IS NULL";

/// How a receiver answers.
#[derive(Clone, Copy)]
enum Manner {
    /// With these bytes; then it closes.
    Bytes(&'static [u8]),
    /// With these bytes, and a large rest.
    Large(&'static [u8], &'static [u8], usize),
    /// With the first bytes, and the second ones without end.
    Endless(&'static [u8], &'static [u8]),
    /// With the bytes one by one.
    Trickle(&'static [u8]),
    /// Not at all.
    Silent,
}

use Manner::{Bytes, Endless, Large, Silent, Trickle};

/// 20 MB of zeros, compressed.
static ZEROS: &[u8] = include_bytes!("zeros.gz");

static RECEIVERS: [(&str, Manner); 44] = [
    ("endless body", Endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'a'; 16_384])),
    ("endless body of an error", Endless(b"HTTP/1.1 500 X\r\n\r\n", &[0xff; 16_384])),
    ("endless chunks", Endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\naaaaa\r\n")),
    ("endless chunk extension", Endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;", b"aaaaaaaa")),
    ("endless trailers", Endless(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-a: b\r\n")),
    ("endless headers", Endless(b"HTTP/1.1 200 OK\r\n", b"x-a: aaaaaaaaaaaaaaaa\r\n")),
    ("endless header", Endless(b"HTTP/1.1 200 OK\r\nx-a: ", b"aaaaaaaaaaaaaaaa")),
    ("endless reason", Endless(b"HTTP/1.1 200 ", b"aaaaaaaaaaaaaaaa")),
    ("endless empty lines", Endless(b"", b"\r\n")),
    ("5 MB header", Large(b"HTTP/1.1 200 OK\r\nx-a: ", b"a", 5_000_000)),
    ("100,000 headers", Large(b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n", 100_000)),
    ("2,000 x 100", Large(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 2_000)),
    ("2,000 x 103", Large(b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n", 2_000)),
    ("NUL in the body", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\na\0b\0c\0d\0")),
    ("NUL in a header", Bytes(b"HTTP/1.1 200 OK\r\nx-a: a\0b\r\ncontent-length: 0\r\n\r\n")),
    ("invalid UTF-8", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\xff\xfe\xed\xa0")),
    ("gzip", Large(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 19465\r\n\r\n", ZEROS, 1)),
    ("retry-after 2^64", Bytes(b"HTTP/1.1 503 X\r\nretry-after: 18446744073709551616\r\ncontent-length: 0\r\n\r\n")),
    ("retry-after 2^64-1", Bytes(b"HTTP/1.1 503 X\r\nretry-after: 18446744073709551615\r\ncontent-length: 0\r\n\r\n")),
    ("retry-after 2^63", Bytes(b"HTTP/1.1 429 X\r\nretry-after: 9223372036854775808\r\ncontent-length: 0\r\n\r\n")),
    ("retry-after -1", Bytes(b"HTTP/1.1 503 X\r\nretry-after: -1\r\ncontent-length: 0\r\n\r\n")),
    ("101", Bytes(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nraw")),
    ("999", Bytes(b"HTTP/1.1 999 X\r\ncontent-length: 0\r\n\r\n")),
    ("099", Bytes(b"HTTP/1.1 099 X\r\ncontent-length: 0\r\n\r\n")),
    ("1000", Bytes(b"HTTP/1.1 1000 X\r\ncontent-length: 0\r\n\r\n")),
    ("not HTTP", Bytes(b"SSH-2.0-OpenSSH_9.2\r\n")),
    ("HTTP/0.9", Bytes(b"<html>hello</html>")),
    ("HTTP/2 frames", Bytes(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0d")),
    ("a TLS alert", Bytes(b"\x15\x03\x01\0\x02\x02\x28")),
    ("CL and TE", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")),
    ("two CL", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\naaaaa")),
    ("negative CL", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\na")),
    ("CL 2^64", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551616\r\n\r\na")),
    ("CL 2^63", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9223372036854775807\r\n\r\na")),
    ("chunk of 2^64", Bytes(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\na\r\n")),
    ("short body", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\na")),
    ("two answers", Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n")),
    ("nothing", Bytes(b"")),
    ("half a line", Bytes(b"HTTP/1.1 2")),
    ("trickled headers", Trickle(b"HTTP/1.1 200 OK\r\nx-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
    ("trickled body", Trickle(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")),
    ("silence", Silent),
    ("cookies", Bytes(b"HTTP/1.1 200 OK\r\nset-cookie: session=stolen\r\ncontent-length: 0\r\n\r\n")),
    ("authentication", Bytes(b"HTTP/1.1 401 X\r\nwww-authenticate: Basic realm=x\r\ncontent-length: 0\r\n\r\n")),
];

/// The redirects that a client may follow; `{to}` is a listener that nothing may reach.
const REDIRECTS: [(&str, &str); 10] = [
    ("301", "http://{to}/"),
    ("302", "http://{to}/"),
    ("303", "http://{to}/"),
    ("307", "http://{to}/"),
    ("308", "http://{to}/"),
    ("300", "http://{to}/"),
    ("302", "//{to}/"),
    ("302", "http://169.254.169.254/latest/meta-data/"),
    ("302", "file:///etc/passwd"),
    ("302", "http://user:pass@{to}/"),
];

/// A receiver, and the heads of the requests that it got.
struct Receiver {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    async fn start(manner: Manner) -> Self {
        Self::answering(move |stream| answer(stream, manner)).await
    }

    /// Answers each request with the same bytes.
    async fn saying(bytes: String) -> Self {
        Self::answering(move |mut stream: TcpStream| {
            let bytes = bytes.clone();
            async move {
                let _written = stream.write_all(bytes.as_bytes()).await;
            }
        })
        .await
    }

    async fn answering<F: Future<Output = ()> + Send + 'static>(
        answer: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = read_head(&mut stream).await;
                seen.lock().unwrap().push(head);
                tokio::spawn(answer(stream));
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn read_head(stream: &mut TcpStream) -> String {
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk).await {
            Ok(read @ 1..) => head.extend_from_slice(&chunk[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

async fn answer(mut stream: TcpStream, manner: Manner) {
    // The app may close at any time; that is the remedy.
    let _ended: std::io::Result<()> = async {
        match manner {
            Bytes(bytes) => stream.write_all(bytes).await?,
            Large(beginning, rest, times) => {
                stream.write_all(beginning).await?;
                stream.write_all(&rest.repeat(times)).await?;
            }
            Endless(beginning, again) => {
                stream.write_all(beginning).await?;
                let block = again.repeat(65_536_usize.div_ceil(again.len()));
                loop {
                    stream.write_all(&block).await?;
                }
            }
            Trickle(bytes) => {
                for byte in bytes.iter().cycle() {
                    stream.write_all(&[*byte]).await?;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
            Silent => tokio::time::sleep(Duration::from_secs(600)).await,
        }
        Ok(())
    }
    .await;
}

/// A workflow that calls a receiver, with a timeout of seconds.
async fn calling(s: &Story, url: &str, more: Value) -> schedule::WorkflowId {
    let mut fields = json!({"timeout_secs": 3, "max_attempts": 1, "overlap_policy": "concurrent", "max_concurrent": 9,
                            "action": {"type": "http", "method": "POST", "url": url}});
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    s.create_with(fields).await
}

/// All receivers at once, while honest clients and another team's run are served.
pub(crate) async fn attack_by_answers() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8")]).await;
    let target = Receiver::saying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned()).await;
    let to = target.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut attacks: Vec<(String, Receiver)> = Vec::new();
    for (name, manner) in RECEIVERS.iter() {
        attacks.push(((*name).to_owned(), Receiver::start(*manner).await));
    }
    for (status, location) in REDIRECTS {
        let location = location.replace("{to}", &to);
        let answer = format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        attacks.push((format!("{status} to {location}"), Receiver::saying(answer).await));
    }
    let parts = join_all(attacks.iter().map(|(name, receiver)| attack(&s, name, receiver)));
    let honest = async {
        let mut tally = Tally::default();
        for _ in 0..10 {
            tally.record(app.answers().await, || "an honest client has no answer meanwhile".to_owned());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let log = s.create_with(json!({})).await;
        let run = ended_run(&s, fire(&s, log).await).await;
        tally.record(run.is_some(), || "a run of another workflow does not end".to_owned());
        tally
    };
    let (parts, mut tally) = tokio::join!(parts, honest);
    parts.into_iter().for_each(|part| tally.add(part));
    if !target.heads().is_empty() {
        tally.fail(format!("{} redirects were followed: {:?}", target.heads().len(), target.heads()));
    }
    let peak = app.peak_mebibytes();
    if peak > MEBIBYTES {
        tally.fail(format!("the app used {peak} MiB"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}

async fn attack(s: &Story, name: &str, receiver: &Receiver) -> Tally {
    let mut tally = Tally::default();
    // A second attempt is due after what the receiver requested, which must be a time that exists.
    let attempts = if name.starts_with("retry-after") { 2 } else { 1 };
    let workflow = calling(s, &receiver.url, json!({"max_attempts": attempts})).await;
    for _ in 0..2 {
        let run = fire(s, workflow).await;
        let ended = match attempts {
            1 => ended_run(s, run).await,
            _ => retried_run(s, run).await,
        };
        let stored = ended.as_ref().map_or(0, |run| run["result"].to_string().len());
        tally.record(ended.is_some() && stored <= STORED, || format!("{name}: {stored} bytes stored, {ended:?}"));
    }
    let heads = receiver.heads();
    let is_clean = !heads.iter().any(|head| head.to_lowercase().contains("\r\ncookie:"));
    tally.record(is_clean && !heads.is_empty(), || format!("{name}: {heads:?}"));
    tally
}

/// The row of a run that has ended, or whose second attempt is due within two days.
async fn retried_run(s: &Story, run: uuid::Uuid) -> Option<Value> {
    let read = "SELECT to_jsonb(r) FROM runs r WHERE id = $1
                 AND (finished_on IS NOT NULL
                      OR state = 'accepted' AND attempt >= 1 AND run_after < now() + INTERVAL '2 days')";
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let row: Option<Value> = sqlx::query_scalar(read).bind(run).fetch_optional(&s.pool).await.unwrap();
        if row.is_some() {
            return row;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Interim answers without end: each run ends, and the executor's threads serve others meanwhile.
///
/// The jobs are enabled, because a run whose attempt lost its lease, for example on a machine that stood still, ends by one.
pub(crate) async fn attack_by_endless_100s() -> Tally {
    let s = idle_story().await;
    let settings = [("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8"), ("CRONBOX_JOBS_ENABLED", "true")];
    let app = App::start(&s.dsn(), &settings).await;
    let mut tally = Tally::default();
    let mut receivers = Vec::new();
    for interim in
        [&b"HTTP/1.1 100 Continue\r\n\r\n"[..], b"HTTP/1.1 102 X\r\n\r\n", b"HTTP/1.1 103 X\r\nlink: a\r\n\r\n"]
    {
        for _ in 0..4 {
            let receiver = Receiver::start(Endless(b"", interim)).await;
            fire(&s, calling(&s, &receiver.url, json!({})).await).await;
            tally.tries += 1;
            receivers.push(receiver);
        }
    }
    let began = Instant::now();
    loop {
        tally.record(app.answers().await, || "an honest client has no answer meanwhile".to_owned());
        if s.count(UNFINISHED).await == 0 || began.elapsed() > ENDS_WITHIN {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    if s.count(UNFINISHED).await > 0 {
        let rows = s.table("SELECT to_jsonb(r)::text FROM runs r WHERE finished_on IS NULL").await;
        tally.fail(format!("runs do not end: {rows}\n{}", String::from_utf8_lossy(&app.log())));
    }
    let peak = app.peak_mebibytes();
    if peak > MEBIBYTES {
        tally.fail(format!("the app used {peak} MiB"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}
