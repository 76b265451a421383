//! `GET /live`: the stream that tells the open pages of a browser to read themselves again.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, Response, header, redirect};
use serde_json::{Value, json};
use tests::{Api, PATIENCE, Story};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::connections::until_refused;

const PATH: &str = "/live";

/// A browser with the session of a key.
struct Browser {
    http: Client,
    url: String,
    cookie: String,
}

impl Browser {
    async fn sign_in(s: &Story, key: &str) -> Self {
        // A connection for each request, so that an idle one takes no place.
        let http = Client::builder().no_proxy().tls_certs_only([]).pool_max_idle_per_host(0);
        let http = http.redirect(redirect::Policy::none()).build().unwrap();
        let form = http.post(format!("{}/sign-in", s.url())).header("sec-fetch-site", "same-origin");
        let form = form.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(format!("key={key}"));
        let answer = form.send().await.unwrap();
        assert_eq!(answer.status(), 303);
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
        Self { http, url: s.url().to_owned(), cookie }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url)).header(header::COOKIE, &self.cookie)
    }

    async fn status_of(&self, path: &str) -> u16 {
        self.request(Method::GET, path).send().await.unwrap().status().as_u16()
    }

    /// A stream that has begun.
    async fn follow(&self) -> Response {
        let mut stream = self.request(Method::GET, PATH).send().await.unwrap();
        assert_eq!(
            (stream.status().as_u16(), &stream.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        let first = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("no event comes").unwrap().unwrap();
        assert!(first.starts_with(b"event: ready"), "{first:?}");
        stream
    }

    /// The same, of a client that reads nothing more. The kernel buffers little for it.
    async fn follow_without_reading(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2_048).unwrap();
        let host = self.url.strip_prefix("http://").unwrap();
        let mut stream = socket.connect(host.parse().unwrap()).await.unwrap();
        let request = format!("GET {PATH} HTTP/1.1\r\nhost: {host}\r\ncookie: {}\r\n\r\n", self.cookie);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains("event: ready") {
            let count = tokio::time::timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("no event comes");
            assert!(count.unwrap() > 0, "{}", String::from_utf8_lossy(&read));
        }
        stream
    }
}

/// Reads a stream until its end, which must be one that the app has made: a browser then connects again.
async fn until_end(mut stream: Response) {
    let read = async { while stream.chunk().await.expect("the connection breaks").is_some() {} };
    tokio::time::timeout(PATIENCE, read).await.expect("the stream stays open");
}

async fn read_bytes(mut stream: Response, count: usize) {
    let mut length = 0;
    while length < count {
        let chunk = tokio::time::timeout(PATIENCE, stream.chunk()).await.expect("no event comes");
        length += chunk.unwrap().expect("the stream ended").len();
    }
}

/// As many pages as a session may have open follow, read nothing, and miss 10 MB of events.
#[tokio::test]
async fn pages_that_read_nothing_lose_their_stream() {
    let s = Story::with_app(|config| config.write_timeout_ms = 500).await;
    let browser = Browser::sign_in(&s, &s.keys.admin).await;
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(browser.follow_without_reading().await);
    }
    let reading = Browser::sign_in(&s, &s.keys.editor).await.follow().await;
    let reading = tokio::spawn(read_bytes(reading, 10_000_000));
    s.execute(
        "INSERT INTO events (kind, what, team_id, actor)
         SELECT 'edit', 'update', (SELECT min(id) FROM teams), repeat('x', 1000) FROM generate_series(1, 10000)",
    )
    .await;
    until_refused(&Api::without_key(s.url()), "slow_write", 5).await;
    browser.follow().await;
    reading.await.expect("it waits for those that read nothing");
    drop(silent);
    s.end().await;
}

#[tokio::test]
async fn streams_of_a_session_are_limited() {
    let s = Story::today().await;
    let browser = Browser::sign_in(&s, &s.keys.editor).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        streams.push(browser.follow().await);
    }
    let sixth = browser.request(Method::GET, PATH).send().await.unwrap();
    assert_eq!(sixth.status(), 429);
    assert_eq!(sixth.json::<Value>().await.unwrap()["code"], "limit_streams");
    assert_eq!(browser.status_of("/workflows").await, 200, "its pages are read every five seconds instead");
    streams.pop();
    let freed = async {
        while browser.status_of(PATH).await != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("a closed page keeps its place");
    s.end().await;
}

/// Its caller was identified once, when it began.
#[tokio::test]
async fn streams_end_with_their_session() {
    let s = Story::today().await;
    let body = json!({"name": "leaver", "kind": "team", "team_id": s.keys.team_id, "role": "viewer"});
    let key = s.admin().post("/api/v1/keys", &body).await.expect(201).json;
    let leaver = Browser::sign_in(&s, key["key"].as_str().unwrap()).await;
    let [signed_out, ended] = [Browser::sign_in(&s, &s.keys.editor).await, Browser::sign_in(&s, &s.keys.editor).await];
    let streams = [leaver.follow().await, signed_out.follow().await, ended.follow().await];

    s.admin().post_empty(&format!("/api/v1/keys/{}:revoke", key["id"].as_str().unwrap())).await.expect(200);
    let sign_out = signed_out.request(Method::POST, "/sign-out").header("sec-fetch-site", "same-origin");
    assert_eq!(sign_out.header("hx-request", "true").send().await.unwrap().status(), 200);
    let sessions = s.admin().get("/api/v1/sessions").await.expect(200).json;
    let last = sessions["items"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    s.admin().post_empty(&format!("/api/v1/sessions/{last}:end")).await.expect(204);
    for stream in streams {
        until_end(stream).await;
    }
    for browser in [leaver, signed_out, ended] {
        assert_eq!(browser.status_of(PATH).await, 303, "it is led to the sign-in");
    }
    s.end().await;
}

/// A page has the only place, and no end of its request is near.
#[tokio::test]
async fn streams_of_pages_make_room_for_fires() {
    let s = Story::with_app(|config| config.max_connections = 1).await;
    let stream = Browser::sign_in(&s, &s.keys.editor).await.follow().await;
    let fire = async { s.scheduler_key().post("/api/v1/cron/workflows/1:invoke", &json!({})).await };
    tokio::time::timeout(PATIENCE, fire).await.expect("the page has the only place").expect(400);
    until_end(stream).await;
    s.end().await;
}
