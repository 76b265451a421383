//! Connections: a client that reads nothing loses its own, and clients without a key make room for those with one.

use std::time::Instant;

use reqwest::Method;
use serde_json::json;
use tests::{Answer, Api, PATIENCE, Story};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::tenant_isolation::{lock_workflow, without_timeouts};

/// The address of the app, as a socket needs it.
fn address(s: &Story) -> &str {
    s.url().strip_prefix("http://").unwrap()
}

/// A client that requests 150 MB and reads nothing. The kernel buffers less.
async fn client_that_reads_nothing(s: &Story) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2_048).unwrap();
    let mut stream = socket.connect(address(s).parse().unwrap()).await.unwrap();
    let request = "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100);
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The count of a reason in `/metrics`.
async fn refusals(api: &Api, reason: &str) -> u64 {
    let metrics = api.get("/metrics").await.expect(200).text;
    let name = format!("cronbox_refusals_total{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
}

pub(crate) async fn until_refused(api: &Api, reason: &str, times: u64) {
    let began = Instant::now();
    while refusals(api, reason).await < times {
        assert!(began.elapsed() < PATIENCE, "{} of {times} {reason}", refusals(api, reason).await);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A hundred of them took all connections for ever, and no key was needed.
#[tokio::test]
async fn clients_that_read_nothing_lose_their_connection() {
    let s = Story::with_app(|config| {
        config.write_timeout_ms = 300;
        config.header_timeout_ms = 600_000;
        config.max_connections = 30;
    })
    .await;
    let api = Api::without_key(s.url());
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(client_that_reads_nothing(&s).await);
    }
    until_refused(&api, "slow_write", 20).await;
    for _ in 0..20 {
        silent.push(TcpStream::connect(address(&s)).await.unwrap());
    }
    api.get("/healthz").await.expect(200);
    assert_eq!(refusals(&api, "connection_places").await, 0, "their places are free");
    s.end().await;
}

/// A connection that stays open, with one request after another.
struct KeptConnection {
    stream: TcpStream,
    key: String,
}

impl KeptConnection {
    async fn open(s: &Story, key: &str) -> Self {
        Self { stream: TcpStream::connect(address(s)).await.unwrap(), key: key.to_owned() }
    }

    /// Sends a request; returns the first line of the answer.
    async fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: {}\r\n\r\n", self.key);
        self.stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = async {
            while !is_complete(&answer) {
                assert!(self.stream.read_buf(&mut answer).await.unwrap() > 0, "the connection ended");
            }
        };
        tokio::time::timeout(PATIENCE, read).await.expect("no answer");
        String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
    }
}

/// Whether an answer has its headers and as many bytes as they announce.
fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let announced = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    body.len() >= announced.unwrap_or(0)
}

/// No timeout ends the silent connections here: only their places count.
#[tokio::test]
async fn silent_connections_make_room_for_keys() {
    let s = Story::with_app(|config| {
        config.header_timeout_ms = 600_000;
        config.max_connections = 8;
    })
    .await;
    let mut kept = KeptConnection::open(&s, &s.keys.editor).await;
    assert_eq!(kept.get("/api/v1/runs").await, "HTTP/1.1 200 OK");
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(TcpStream::connect(address(&s)).await.unwrap());
        let answer = tokio::time::timeout(PATIENCE, s.scheduler_key().get("/healthz")).await;
        answer.expect("the silent clients have all places").expect(200);
    }
    assert_eq!(kept.get("/api/v1/runs").await, "HTTP/1.1 200 OK", "a connection with a key stays");
    assert!(refusals(&Api::without_key(s.url()), "connection_places").await > 0);
    s.end().await;
}

/// Clients with a key of a team take all places, and send one request after another. A fire still arrives.
#[tokio::test]
async fn connections_of_teams_make_room_for_fires() {
    let s = Story::with_app(|config| {
        config.header_timeout_ms = 600_000;
        config.max_connections = 4;
    })
    .await;
    let mut fires = KeptConnection::open(&s, &s.keys.scheduler).await;
    fires.get("/api/v1/runs").await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut team = KeptConnection::open(&s, &s.keys.editor).await;
        assert_eq!(team.get("/api/v1/runs").await, "HTTP/1.1 200 OK");
        kept.push(team);
    }
    let mut newcomer = tokio::time::timeout(PATIENCE, KeptConnection::open(&s, &s.keys.scheduler)).await.unwrap();
    let answer = tokio::time::timeout(PATIENCE, newcomer.get("/api/v1/runs")).await;
    assert_eq!(answer.expect("the team has all places"), "HTTP/1.1 403 Forbidden");
    assert_eq!(fires.get("/api/v1/runs").await, "HTTP/1.1 403 Forbidden", "the scheduler's connection stays");
    assert!(refusals(&Api::without_key(s.url()), "connection_places").await > 0);
    s.end().await;
}

#[tokio::test]
async fn requests_need_one_host() {
    let s = Story::today().await;
    for (version, headers, status) in [
        ("1.1", "", "400"),
        ("1.1", "host: a\r\nhost: b\r\n", "400"),
        ("1.1", "host: a b\r\n", "400"),
        ("1.1", "host: a/b\r\n", "400"),
        ("1.1", "host: a@b\r\n", "400"),
        ("1.1", "host: a\r\n", "200"),
        ("1.1", "host: [::1]:80\r\n", "200"),
        ("1.0", "", "200"),
    ] {
        let mut stream = TcpStream::connect(address(&s)).await.unwrap();
        let request = format!("GET /healthz HTTP/{version}\r\nconnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("no answer").unwrap();
        assert!(answer.starts_with(&format!("HTTP/{version} {status}")), "{headers:?}: {answer}");
        assert_eq!(answer.contains("invalid_host"), status == "400", "{answer}");
    }
    s.end().await;
}

const UNKNOWN: &str = "cb_000000000000_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A request of a client behind a proxy.
async fn request_from(api: &Api, client: &str, path: &str) -> Answer {
    tests::send_request(api.request(Method::GET, path).header("x-forwarded-for", client)).await
}

#[tokio::test]
async fn clients_behind_proxies_are_counted_apart() {
    let s = Story::with_app(|config| {
        config.bad_keys_per_min = 2;
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    let stranger = Api::new(s.url(), UNKNOWN);
    for _ in 0..2 {
        request_from(&stranger, "203.0.113.1", "/api/v1/runs").await.refused(401, "unauthorized", None);
    }
    request_from(&stranger, "203.0.113.1", "/api/v1/runs").await.refused(429, "rate_limited", None);
    request_from(&stranger, "198.51.100.7, 203.0.113.1", "/api/v1/runs").await.refused(429, "rate_limited", None);
    request_from(&stranger, "203.0.113.2", "/api/v1/runs").await.refused(401, "unauthorized", None);
    s.end().await;
}

/// A machine in the subnets of an internal load balancer wrote the left entry, and the load balancer appended the right one.
#[tokio::test]
async fn clients_in_trusted_networks_name_no_other() {
    let s = Story::with_app(|config| {
        config.bad_keys_per_min = 2;
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        config.trusted_hops = Some(1);
    })
    .await;
    let stranger = Api::new(s.url(), UNKNOWN);
    for invented in ["192.0.2.1, 10.0.2.50", "192.0.2.2, 10.0.2.50"] {
        request_from(&stranger, invented, "/api/v1/runs").await.refused(401, "unauthorized", None);
    }
    request_from(&stranger, "192.0.2.3, 10.0.2.50", "/api/v1/runs").await.refused(429, "rate_limited", None);
    request_from(&stranger, "192.0.2.3, 10.0.2.51", "/api/v1/runs").await.refused(401, "unauthorized", None);
    s.end().await;
}

/// A proxy appends the address to the line that the client sent, here with a byte that is no text.
#[tokio::test]
async fn unreadable_entries_do_not_hide_the_client() {
    let s = Story::with_app(|config| {
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
        config.trusted_hops = Some(1);
    })
    .await;
    let key = json!({"name": "k", "kind": "admin", "allowed_cidrs": ["127.0.0.0/8"]});
    let key = s.admin().post("/api/v1/keys", &key).await.expect(201).json;
    let stolen = Api::new(s.url(), key["key"].as_str().unwrap());
    stolen.get("/api/v1/keys").await.expect(200);
    let request = stolen.request(Method::GET, "/api/v1/keys");
    let answer = tests::send_request(request.header("x-forwarded-for", &b"\xff, 203.0.113.9"[..])).await;
    answer.refused(403, "address_not_allowed", None);
    s.end().await;
}

#[tokio::test]
async fn requests_of_an_address_are_limited() {
    let s = Story::with_app(|config| {
        config.address_requests_in_flight = 1;
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    assert_one_request_at_once(&s, "203.0.113.1").await;
    s.end().await;
}

/// An address of the networks of counted proxies is a client's, which has the limit of each client.
#[tokio::test]
async fn clients_in_trusted_networks_are_limited() {
    let s = Story::with_app(|config| {
        config.address_requests_in_flight = 1;
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
        config.trusted_hops = Some(1);
    })
    .await;
    assert_one_request_at_once(&s, "10.0.2.50").await;
    s.end().await;
}

/// A client has as many edits in progress as it may; others, and fires, do not wait for it.
async fn assert_one_request_at_once(s: &Story, client: &'static str) {
    let id = s.create("0 9 * * *", "UTC").await;
    let path = format!("/api/v1/workflows/{id}");
    without_timeouts(&s.app().pools.edits).await;
    let holder = lock_workflow(s, id).await;
    let (editor, edited) = (s.editor(), path.clone());
    let edit = tokio::spawn(async move {
        let edit = editor.request(Method::PATCH, &edited).json(&json!({"description": "x"}));
        tests::send_request(edit.header("x-forwarded-for", client)).await
    });
    s.until("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'", 1)
        .await;
    let second = request_from(&s.editor(), client, &path).await;
    second.refused(429, "limit_requests_in_flight", None);
    assert_eq!(second.headers["ratelimit-policy"], "\"address-requests\";q=1;qu=\"concurrent-requests\"");
    request_from(&s.editor(), "203.0.113.2", &path).await.expect(200);
    let fire = s.scheduler_key().request(Method::POST, "/api/v1/cron/workflows/1:invoke").json(&json!({}));
    tests::send_request(fire.header("x-forwarded-for", client)).await.expect(400);
    holder.rollback().await.unwrap();
    edit.await.unwrap().expect(200);
    request_from(&s.editor(), client, &path).await.expect(200);
}

#[tokio::test]
async fn metrics_and_docs_move_to_their_listener() {
    let s = Story::with_app(|config| config.admin_addr = Some(([127, 0, 0, 1], 0).into())).await;
    let (public, admin) = (Api::without_key(s.url()), Api::without_key(s.admin_url().unwrap()));
    for path in ["/metrics", "/openapi.json", "/docs/"] {
        public.get(path).await.refused(404, "not_found", None);
        admin.get(path).await.expect(200);
    }
    for path in ["/healthz", "/readyz"] {
        public.get(path).await.expect(200);
        admin.get(path).await.expect(200);
    }
    admin.get("/api/v1/runs").await.refused(404, "not_found", None);
    s.end().await;
}

/// A probe at the listener for operators has places that no client takes.
#[tokio::test]
async fn probes_answer_when_clients_have_all_places() {
    let s = Story::with_app(|config| {
        config.admin_addr = Some(([127, 0, 0, 1], 0).into());
        config.header_timeout_ms = 600_000;
        config.max_connections = 1;
    })
    .await;
    // Neither side ends it while it is idle.
    let mut scheduler = KeptConnection::open(&s, &s.keys.scheduler).await;
    assert_eq!(scheduler.get("/api/v1/runs").await, "HTTP/1.1 403 Forbidden");
    let mut outside = TcpStream::connect(address(&s)).await.unwrap();
    outside.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let admin = Api::without_key(s.admin_url().unwrap());
    for path in ["/healthz", "/readyz"] {
        admin.get(path).await.expect(200);
    }
    let mut answer = [0; 1];
    let waiting = outside.try_read(&mut answer).unwrap_err();
    assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock, "the only place is the scheduler's");
    drop(scheduler);
    s.end().await;
}
