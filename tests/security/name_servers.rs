//! Name servers that lie or are silent. They need a network namespace, in which this program is the name server of the app.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use schedule::WorkflowId;
use serde_json::json;
use tests::{Api, Story};
use tokio::net::UdpSocket;
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use crate::ground::{create_team, ended_run, fire, force_action, idle_story, team_key};
use crate::network::{NAME_SERVER, is_isolated, listen_everywhere};
use crate::process::App;
use crate::report::Tally;

/// A public address; in the namespace it leads to our listener.
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34));
const WHY_SKIPPED: &str = "it needs a network namespace and port 53: run `make security` on Linux as root";

/// What the name server says about one name: the answers to the first query, and those to all later ones.
#[derive(Clone)]
struct Lie {
    first: Vec<IpAddr>,
    later: Vec<IpAddr>,
}

impl Lie {
    fn always(addresses: &[IpAddr]) -> Self {
        Self { first: addresses.to_vec(), later: addresses.to_vec() }
    }
}

fn v4(text: &str) -> IpAddr {
    IpAddr::V4(text.parse().unwrap())
}

fn v6(text: &str) -> IpAddr {
    IpAddr::V6(text.parse::<Ipv6Addr>().unwrap())
}

/// The lies, by the first label of the name.
fn lies() -> HashMap<&'static str, Lie> {
    let inside = v4("127.0.0.1");
    let mut lies = HashMap::from([
        ("rebinding", Lie { first: vec![PUBLIC], later: vec![inside] }),
        ("rebinding6", Lie { first: vec![PUBLIC], later: vec![v6("::1")] }),
        ("rebindingmeta", Lie { first: vec![PUBLIC], later: vec![v4("169.254.169.254")] }),
        ("publicfirst", Lie::always(&[PUBLIC, inside])),
        ("insidefirst", Lie::always(&[inside, PUBLIC])),
        ("public4inside6", Lie::always(&[PUBLIC, v6("::1")])),
        ("public6inside4", Lie::always(&[v6("2606:4700::1111"), inside])),
        ("many", Lie::always(&[[PUBLIC; 12].as_slice(), &[inside]].concat())),
    ]);
    for (name, address) in [
        ("loopback", inside),
        ("loopback6", v6("::1")),
        ("zero", v4("0.0.0.0")),
        ("zero6", v6("::")),
        ("mapped", v6("::ffff:127.0.0.1")),
        ("nat64", v6("64:ff9b::7f00:1")),
        ("sixtofour", v6("2002:7f00:1::1")),
        ("teredo", v6("2001:0:7f00:1::")),
        ("metadata", v4("169.254.169.254")),
        ("metadata6", v6("fd00:ec2::254")),
        ("private", v4("10.0.0.1")),
        ("shared", v4("100.64.0.1")),
        ("linklocal6", v6("fe80::1")),
        ("multicast", v4("224.0.0.1")),
        ("broadcast", v4("255.255.255.255")),
    ] {
        lies.insert(name, Lie::always(&[address]));
    }
    lies
}

/// Saves and fires actions whose names lead inside, now or later.
pub(crate) async fn attack_by_lies() -> Tally {
    if !is_isolated() {
        return Tally::skipped(WHY_SKIPPED);
    }
    let mut told = lies();
    told.insert("leaving", Lie { first: vec![v4("127.0.0.1")], later: vec![PUBLIC] });
    let Ok(server) = NameServer::start(told).await else { return Tally::skipped(WHY_SKIPPED) };
    let (port, connections) = counting_listener().await;
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[]).await;
    let mut tally = Tally::default();
    for label in lies().keys() {
        for scheme in ["http", "https"] {
            let before = connections.load(Ordering::SeqCst);
            let url = format!("{scheme}://{label}.{scheme}.example:{port}/");
            let action = json!({"type": "http", "method": "GET", "url": url});
            let saved =
                app.api(&s.keys.editor).post("/api/v1/workflows", &json!({"name": url, "action": action})).await;
            // The first answer for these is public, and saving connects to nothing.
            let is_refused = saved.status == 400 || label.starts_with("rebinding");
            tally.record(is_refused, || format!("{url} is saved: {saved:?}"));
            let workflow = s.create_with(json!({"max_attempts": 1, "timeout_secs": 20})).await;
            force_action(&s, workflow, &action).await;
            let run = ended_run(&s, fire(&s, workflow).await).await;
            let sent = connections.load(Ordering::SeqCst) - before;
            tally.record(run.is_some() && sent == 0, || format!("{url}: {sent} connections, {run:?}"));
        }
    }
    if server.queries.load(Ordering::SeqCst) == 0 {
        tally.fail("no query reached the name server");
    }
    app.stop().await;
    tally.add(attack_by_leaving(&s, port, &connections).await);
    s.end_early().await;
    tally
}

/// A name leads to an allowed network when a workflow is saved, and to the internet when it is sent. An unencrypted request
/// must not follow it; an encrypted one may, because the certificate must be of the name.
async fn attack_by_leaving(s: &Story, port: u16, connections: &AtomicUsize) -> Tally {
    let settings = [("CRONBOX_ACTION_ALLOW_CIDRS", "127.0.0.0/8"), ("CRONBOX_EGRESS_ALLOW_HTTP", "false")];
    let app = App::start(&s.dsn(), &settings).await;
    let mut tally = Tally::default();
    for (scheme, follows) in [("http", false), ("https", true)] {
        let before = connections.load(Ordering::SeqCst);
        let url = format!("{scheme}://leaving.{scheme}.example:{port}/");
        let action = json!({"type": "http", "method": "GET", "url": url});
        let body = json!({"name": url, "action": action, "max_attempts": 1, "timeout_secs": 20});
        let saved = app.api(&s.keys.editor).post("/api/v1/workflows", &body).await.expect(201);
        let run = ended_run(s, fire(s, WorkflowId(saved.id())).await).await;
        let sent = connections.load(Ordering::SeqCst) - before;
        tally.record(run.is_some() && (sent > 0) == follows, || format!("{url}: {sent} connections, {run:?}"));
    }
    app.stop().await;
    tally
}

/// One team saves names that are never answered, again and again. Meanwhile another team's names must still be resolved: a
/// name that leads inside is refused only if it was.
pub(crate) async fn attack_by_silence() -> Tally {
    if !is_isolated() {
        return Tally::skipped(WHY_SKIPPED);
    }
    let answered = HashMap::from([("inside", Lie::always(&[v4("127.0.0.1")])), ("public", Lie::always(&[PUBLIC]))]);
    let Ok(server) = NameServer::start(answered).await else { return Tally::skipped(WHY_SKIPPED) };
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_TEAM_EDITS_IN_FLIGHT", "0")]).await;
    let other = app.api(&team_key(&s, create_team(&s, "honest").await, "editor").await);
    let mut flood = JoinSet::new();
    let editor = app.api(&s.keys.editor);
    for nth in 0..FLOOD {
        flood.spawn(send_silent_names(editor.clone(), nth));
    }
    // Two queries for each name: the flood takes effect as soon as lookups wait for silent servers again and again.
    while server.queries.load(Ordering::SeqCst) < 64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut tally = Tally::default();
    for nth in 0..3 {
        for (label, expected) in [("inside", 400), ("public", 201)] {
            let url = format!("https://{label}.{nth}.example/");
            let body = json!({"name": url, "action": {"type": "http", "method": "GET", "url": url}});
            let saved = other.post("/api/v1/workflows", &body).await;
            tally.record(saved.status == expected, || format!("another team's {url}: {saved:?}"));
        }
    }
    flood.shutdown().await;
    app.kill().await;
    s.end_early().await;
    tally
}

/// How many clients of one team save such names: more than the threads on which names may be resolved.
const FLOOD: usize = 700;

async fn send_silent_names(api: Api, client: usize) {
    for nth in 0.. {
        let action = json!({"type": "http", "method": "GET", "url": format!("https://silent.{nth}.{client}.example/")});
        let request =
            api.request(Method::POST, "/api/v1/workflows").json(&json!({"name": Uuid::new_v4(), "action": action}));
        // The app may refuse or close; only the load counts.
        let _answer = request.send().await;
    }
}

async fn counting_listener() -> (u16, Arc<AtomicUsize>) {
    let listener = listen_everywhere(0).await.unwrap();
    let (port, connections) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, connections)
}

/// There is one address for name servers, and the attacks run at once.
static TURN: AsyncMutex<()> = AsyncMutex::const_new(());

/// A name server on the address that the namespace's resolv.conf names. It stops when it is dropped.
struct NameServer {
    queries: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
    _turn: MutexGuard<'static, ()>,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl NameServer {
    async fn start(lies: HashMap<&'static str, Lie>) -> std::io::Result<Self> {
        let turn = TURN.lock().await;
        // The socket of an earlier server is closed as soon as its task has ended.
        let socket = bind_when_free().await?;
        let queries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&queries);
        let serving = tokio::spawn(async move {
            let mut query = [0; 1500];
            let seen: Mutex<HashMap<(String, u16), usize>> = Mutex::default();
            while let Ok((read, peer)) = socket.recv_from(&mut query).await {
                counted.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = answer_to(&query[..read], &lies, &seen) {
                    let _sent = socket.send_to(&answer, peer).await;
                }
            }
        });
        Ok(Self { queries, serving, _turn: turn })
    }
}

async fn bind_when_free() -> std::io::Result<UdpSocket> {
    for _ in 0..100 {
        match UdpSocket::bind(NAME_SERVER).await {
            Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::time::sleep(Duration::from_millis(20)).await,
            bound => return bound,
        }
    }
    UdpSocket::bind(NAME_SERVER).await
}

/// The answer to a query; `None` for a name that this server does not know, about which it is silent.
fn answer_to(query: &[u8], lies: &HashMap<&str, Lie>, seen: &Mutex<HashMap<(String, u16), usize>>) -> Option<Vec<u8>> {
    let (name, end) = name_in(query)?;
    let kind = u16::from_be_bytes([*query.get(end)?, *query.get(end + 1)?]);
    let lie = lies.get(name.split('.').next()?)?;
    let nth = {
        let mut seen = seen.lock().unwrap();
        let count = seen.entry((name, kind)).or_default();
        *count += 1;
        *count
    };
    let addresses = if nth == 1 { &lie.first } else { &lie.later };
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(v4), 1) => Some(v4.octets().to_vec()),
            (IpAddr::V6(v6), 28) => Some(v6.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut answer = query[..2].to_vec();
    // An answer without an error; the recursion was available.
    answer.extend([0x81, 0x80, 0, 1]);
    answer.extend(u16::try_from(records.len()).unwrap().to_be_bytes());
    answer.extend([0; 4]);
    answer.extend(query.get(12..end + 4)?);
    for record in records {
        // The name of the question, the class IN, and no time to live.
        answer.extend([0xc0, 12]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0, 0]);
        answer.extend(u16::try_from(record.len()).unwrap().to_be_bytes());
        answer.extend(record);
    }
    Some(answer)
}

/// The name of the first question, and where it ends.
fn name_in(query: &[u8]) -> Option<(String, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((labels.join("."), at));
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).to_lowercase());
        at += length;
    }
}
