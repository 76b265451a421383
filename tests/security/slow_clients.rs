//! Slow clients in four modes: they take every place, and the app must still answer an honest client.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tests::{PATIENCE, Story};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::ground::idle_story;
use crate::process::{App, DENIED};
use crate::raw::{CLOSES_SOON, answers_to, statuses_in};
use crate::report::Tally;

/// The places of the attacked app, all of which the slow clients take.
const PLACES: usize = 100;
const SETTINGS: [(&str, &str); 4] = [
    ("CRONBOX_TEAM_EDITS_IN_FLIGHT", "0"),
    ("CRONBOX_MAX_CONNECTIONS", "100"),
    ("CRONBOX_HEADER_TIMEOUT_MS", "1500"),
    ("CRONBOX_REQUEST_TIMEOUT_MS", "1500"),
];
/// A slow client sends so often.
const TRICKLE: Duration = Duration::from_millis(200);

/// What a slow client does.
struct Mode {
    /// What it sends at once.
    beginning: Vec<u8>,
    /// What it sends again and again; empty: it is silent.
    again: &'static [u8],
}

/// Headers that never end.
pub(crate) async fn attack_by_headers() -> Tally {
    attack(|_, _| Mode { beginning: b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: ".to_vec(), again: b"a" }).await
}

/// Bodies that never end, of a caller with a key.
pub(crate) async fn attack_by_bodies() -> Tally {
    attack(|key, _| Mode {
        beginning: format!(
            "POST /api/v1/workflows HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
             content-length: 100000\r\n\r\n{{"
        )
        .into_bytes(),
        again: b" ",
    })
    .await
}

/// Forms of the sign-in, which needs no key, without their last byte. Each must lose its connection, else the app would keep the
/// bytes of all of them, and they must leave the places of a team to it.
pub(crate) async fn attack_by_forms() -> Tally {
    let s = idle_story().await;
    let mut tally = Tally::default();
    lose_connections(&s, &mut tally).await;
    leave_places(&s, &mut tally).await;
    s.end_early().await;
    tally
}

fn unfinished_form(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: 4000\r\n\r\n{}",
        "a".repeat(3_999)
    )
}

/// More unfinished forms than the instance has places for requests.
async fn leave_places(s: &Story, tally: &mut Tally) {
    let limited = [("CRONBOX_REQUESTS_IN_FLIGHT", "8"), ("CRONBOX_REQUEST_TIMEOUT_MS", "600000")];
    let app = App::start(&s.dsn(), &limited).await;
    let mut forms = Vec::new();
    for _ in 0..16 {
        let mut stream = TcpStream::connect(app.address()).await.unwrap();
        stream.write_all(unfinished_form("/sign-in").as_bytes()).await.unwrap();
        forms.push(stream);
    }
    let began = Instant::now();
    while app.anonymous().get("/sign-in").await.status != 429 {
        assert!(began.elapsed() < PATIENCE, "the forms take no place");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let answer = app.api(&s.keys.editor).get("/api/v1/workflows").await;
    tally.record(answer.status == 200, || format!("forms that never end take the places of a team: {answer:?}"));
    drop(forms);
    app.stop().await;
}

async fn lose_connections(s: &Story, tally: &mut Tally) {
    let app = App::start(&s.dsn(), &CLOSES_SOON).await;
    for path in ["/sign-in", "/sign-in/link"] {
        let unfinished = unfinished_form(path);
        let answer = tokio::time::timeout(DENIED, answers_to(app.address(), unfinished.as_bytes())).await;
        let statuses = answer.map(|answer| statuses_in(&answer));
        tally.record(statuses.as_ref().is_ok_and(|statuses| statuses[..] == [408]), || {
            format!("POST {path}: a body that never ends keeps its connection: {statuses:?}")
        });
    }
    app.stop().await;
}

/// Answers that are never read: more than the buffers of both sides can take. A key keeps the place of each connection until
/// its answer ends, so that only the limit of writes frees it.
pub(crate) async fn attack_by_reads() -> Tally {
    attack(|key, large| {
        let first = format!("GET /api/v1/workflows HTTP/1.1\r\nhost: a\r\nx-api-key: {key}\r\n\r\n");
        let never_read = format!("GET {large} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(120);
        Mode { beginning: (first + &never_read).into_bytes(), again: b"" }
    })
    .await
}

/// Connections on which one request was answered.
pub(crate) async fn attack_by_idleness() -> Tally {
    attack(|_, _| Mode { beginning: b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n".to_vec(), again: b"" }).await
}

async fn attack(mode: impl Fn(&str, &str) -> Mode) -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &SETTINGS).await;
    let mode = mode(&s.keys.editor, largest_answer(&app).await);
    let mut clients = JoinSet::new();
    for _ in 0..PLACES {
        let stream = connect(app.address()).await;
        clients.spawn(be_slow(stream, mode.beginning.clone(), mode.again));
    }
    let mut tally = Tally { tries: PLACES, ..Tally::default() };
    let answered = join_all((0..3).map(|_| app.answers())).await;
    if answered.contains(&false) {
        tally.fail(format!("an honest client has no answer within {} s: {answered:?}", DENIED.as_secs()));
    }
    clients.shutdown().await;
    if !app.answers().await {
        tally.fail("an honest client has no answer after the attack");
    }
    app.stop().await;
    s.end_early().await;
    tally
}

/// A connection with a small receive buffer, from an address of its own if the machine has it.
async fn connect(address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2_048).unwrap();
    let _own = socket.bind("127.0.0.9:0".parse().unwrap());
    socket.connect(address.parse().unwrap()).await.unwrap()
}

async fn be_slow(mut stream: TcpStream, beginning: Vec<u8>, again: &'static [u8]) {
    // The server may end the connection before it has read everything.
    let _written = stream.write_all(&beginning).await;
    loop {
        tokio::time::sleep(TRICKLE).await;
        if !again.is_empty() && stream.write_all(again).await.is_err() {
            return;
        }
    }
}

/// The path of the largest answer that needs no key.
async fn largest_answer(app: &App) -> &'static str {
    let mut largest = ("/healthz", 0);
    for path in ["/docs/swagger-ui-bundle.js", "/openapi.json", "/metrics", "/healthz"] {
        let answer = app.anonymous().get(path).await;
        if answer.status == 200 && answer.text.len() > largest.1 {
            largest = (path, answer.text.len());
        }
    }
    largest.0
}
