//! No http action reaches an address that is not public: it is refused when it is saved, and again when it is sent.
//!
//! Listeners on this machine judge it. Outside of a namespace of its own, the program sends only to addresses that are this
//! machine's, so that nothing leaves the machine if the product is wrong.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tests::{Api, Story};
use uuid::Uuid;

use crate::Size;
use crate::ground::{ended_run, fire, force_action, idle_story};
use crate::network::{is_isolated, listen_everywhere};
use crate::process::App;
use crate::report::Tally;

/// One address of each network that must not be reached.
const INSIDE: [&str; 11] = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.170.2",
    "100.64.0.1",
    "100.100.100.200",
    "198.18.0.1",
];
/// The addresses of metadata in networks that an operator may allow.
const METADATA: [&str; 4] = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192"];
const METADATA_V6: [&str; 6] = [
    "[fd00:ec2::254]",
    "[fd00:ec2::23]",
    "[fd20:ce::254]",
    "[fd00:c1::a9fe:a9fe]",
    "[fd00:42::42]",
    "[fe80::a9fe:a9fe]",
];
/// Hosts that have one spelling only.
const OTHERS: [&str; 58] = [
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "a.b.LocalHost.",
    "ｌｏｃａｌｈｏｓｔ",
    "loc\u{ad}alhost",
    "127。0。0。1",
    "127．0．0．1",
    "127｡0｡0｡1",
    "①②⑦.⓪.⓪.①",
    "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
    "127.0.0.1\u{200b}",
    "%31%32%37.0.0.1",
    "%6c%6f%63%61%6c%68%6f%73%74",
    "127.0.0.1%2f",
    "0",
    "0x0",
    "00.0.0.0",
    "0.1.2.3",
    "[::]",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000::0001]",
    "[::ffff:0:127.0.0.1]",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "[fe80::1]",
    "[febf::1]",
    "[fe80::1%25lo]",
    "[::1%25lo]",
    "[100::1]",
    "[2001:db8::1]",
    "[2001:0:7f00:1::]",
    "[2001:10::1]",
    "[3fff::1]",
    "[5f00::1]",
    "[64:ff9b:1::a00:1]",
    "[ff02::1]",
    "[ff0e::1]",
    "[::7f00:1]",
    "[1::1]",
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "172.31.255.255",
    "100.127.255.255",
    "10.255.255.255",
];
/// URLs that disguise their host or their scheme; `{p}` is the port.
const DISGUISED: [&str; 40] = [
    "http://example.com@127.0.0.1:{p}/",
    "http://user:pass@127.0.0.1:{p}/",
    "http://127.0.0.1:{p}@example.com/",
    "http://example.com%2f@127.0.0.1:{p}/",
    "http://example.com:80%40127.0.0.1:{p}/",
    "http://[::1]:{p}/#@example.com",
    "http://127.0.0.1:{p}\\@example.com/",
    "http:\\\\127.0.0.1:{p}/",
    "http:127.0.0.1:{p}/",
    "http:/127.0.0.1:{p}/",
    "http:////127.0.0.1:{p}/",
    "HTTP://127.0.0.1:{p}/",
    "hTtPs://127.0.0.1:{p}/",
    " http://127.0.0.1:{p}/ ",
    "http://127.0.\t0.1:{p}/",
    "http://127.0.0.1\n:{p}/",
    "http://127.0.0.1:{p}\r\nHost: example.com/",
    "http://[::ffff:127.0.0.1%25lo]:{p}/",
    "http://127.0.0.1:{p}/?url=http://example.com",
    "http://127.0.0.1:{p}#.example.com/",
    "http://127.0.0.1:{p}?.example.com/",
    "http://127.0.0.1:0{p}/",
    "http://127.0.0.1:+{p}/",
    "http://127.0.0.1:65536{p}/",
    "http://127.0.0.1:99999/",
    "https://127.0.0.1:22/",
    "https://127.0.0.1:25/",
    "https://[::1]:6379/",
    "https://localhost:5432/",
    "https://169.254.169.254/latest/meta-data/",
    "ftp://127.0.0.1:{p}/",
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:{p}/_x",
    "dict://127.0.0.1:{p}/x",
    "ldap://127.0.0.1:{p}/x",
    "unix:///var/run/docker.sock",
    "data:text/plain,x",
    "//127.0.0.1:{p}/",
    "http://",
];

/// Saves and fires every address.
pub(crate) async fn attack_addresses(size: Size) -> Tally {
    let listener = Listener::start().await;
    let mut urls: Vec<String> = DISGUISED.iter().map(|url| url.replace("{p}", &listener.port.to_string())).collect();
    let hosts = INSIDE.iter().flat_map(|address| spellings(address.parse().unwrap()));
    for host in hosts.chain(OTHERS.map(str::to_owned)) {
        urls.push(format!("http://{host}:{}/", listener.port));
        if size == Size::Full {
            urls.extend([
                format!("https://{host}:{}/", listener.port),
                format!("https://{host}/"),
                format!("http://{host}/"),
            ]);
        }
    }
    assert!(urls.len() >= 300, "{} addresses", urls.len());
    attack_urls(&urls, &listener, &[]).await
}

/// The services that a cloud gives to each machine, although an operator allows networks that contain their addresses. That of
/// Azure is outside of all special registries.
pub(crate) async fn attack_platforms() -> Tally {
    let listener = Listener::start().await;
    let url = |host: &str| format!("http://{host}:{}/", listener.port);
    let azure: Vec<String> = spellings("168.63.129.16".parse().unwrap()).iter().map(|host| url(host)).collect();
    let mut tally = attack_urls(&azure, &listener, &[]).await;
    let others = METADATA.iter().flat_map(|address| spellings(address.parse().unwrap()));
    let others = others.chain(METADATA_V6.map(str::to_owned)).map(|host| url(&host));
    let all: Vec<String> = azure.into_iter().chain(others).collect();
    tally.add(attack_urls(&all, &listener, &[("CRONBOX_ACTION_ALLOW_CIDRS", "0.0.0.0/0,::/0")]).await);
    tally
}

/// Actions that would carry a secret in clear, without a setting by which an operator permits it.
pub(crate) async fn attack_clear_text() -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), &[("CRONBOX_EGRESS_ALLOW_HTTP", "false")]).await;
    let mut tally = Tally::default();
    // A literal address needs no name server, and is only saved.
    for url in ["http://93.184.216.34/", "http://93.184.216.34:8080/x", "HTTP://93.184.216.34:443/"] {
        for headers in [json!({"authorization": "Bearer x"}), json!({"x-secret": "x"}), json!({})] {
            let action = json!({"type": "http", "method": "POST", "url": url, "headers": headers});
            let saved = save(&app.api(&s.keys.editor), &action).await;
            tally.record(saved.0 == 400, || format!("{url} with {headers}: {saved:?}"));
        }
    }
    app.stop().await;
    s.end_early().await;
    tally
}

async fn attack_urls(urls: &[String], listener: &Listener, settings: &[(&str, &str)]) -> Tally {
    let s = idle_story().await;
    let app = App::start(&s.dsn(), settings).await;
    let parts = futures::stream::iter(urls).map(|url| attack_url(&s, &app, url)).buffer_unordered(8);
    let mut tally = Tally::default();
    parts.collect::<Vec<_>>().await.into_iter().for_each(|part| tally.add(part));
    let connections = listener.connections.load(Ordering::SeqCst);
    if connections > 0 {
        tally.fail(format!("{connections} connections reached a listener"));
    }
    app.stop().await;
    s.end_early().await;
    tally
}

async fn attack_url(s: &Story, app: &App, url: &str) -> Tally {
    let mut tally = Tally::default();
    let (editor, action) = (app.api(&s.keys.editor), json!({"type": "http", "method": "GET", "url": url}));
    let saved = save(&editor, &action).await;
    tally.record(saved.0 == 400, || format!("{url:?} is saved: {saved:?}"));
    let workflow = s.create_with(json!({"max_attempts": 1})).await;
    let path = format!("/api/v1/workflows/{workflow}");
    for patched in [
        editor.patch(&path, &json!({"action": action})).await,
        editor
            .merge_patch(&path, &json!({"action": {"type": "http", "method": "GET", "url": url, "message": null}}))
            .await,
    ] {
        tally.record(patched.status == 400, || format!("{url:?} is patched in: {patched:?}"));
    }
    if is_isolated() || leads_here(url) {
        force_action(s, workflow, &action).await;
        let run = ended_run(s, fire(s, workflow).await).await;
        let is_refused = run.as_ref().is_some_and(|run| run["state"] == "failed" && run["result"].is_null());
        tally.record(is_refused, || format!("{url:?} is sent: {run:?}"));
    }
    tally
}

/// Saves a workflow with this action; returns the status and the body.
async fn save(editor: &Api, action: &Value) -> (u16, String) {
    let saved = editor.post("/api/v1/workflows", &json!({"name": Uuid::new_v4(), "action": action})).await;
    (saved.status, saved.text)
}

/// Whether this URL is of this machine, or no URL at all, so that a wrong product sends nothing elsewhere.
fn leads_here(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return true };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host.is_empty() || host.trim_end_matches('.').ends_with("localhost"),
    }
}

/// All spellings of an IPv4 address as a host: numbers, and addresses that contain it.
fn spellings(v4: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = v4.octets();
    let number = u32::from(v4);
    let (low16, low24) = (number & 0xffff, number & 0xff_ffff);
    let (high, low) = (number >> 16, number & 0xffff);
    vec![
        format!("{v4}"),
        format!("{v4}."),
        format!("{number}"),
        format!("{number:#x}"),
        format!("{number:#X}").replace("0X", "0x"),
        format!("0{number:o}"),
        format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.000{b:o}.000{c:o}.000{d:o}"),
        format!("{a:#x}.{b}.0{c:o}.{d}"),
        format!("{a}.{low24}"),
        format!("{a}.{b}.{low16}"),
        format!("{a:#x}.{low24:#x}"),
        format!("0{a:o}.{b}.{low16:#x}"),
        full_width(&v4.to_string()),
        v4.to_string().replace('.', "。"),
        format!("[::ffff:{v4}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:ffff:{v4}]"),
        format!("[::{v4}]"),
        format!("[64:ff9b::{v4}]"),
        format!("[64:ff9b::{high:x}:{low:x}]"),
        format!("[64:ff9b:1::{v4}]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::]"),
    ]
}

fn full_width(text: &str) -> String {
    text.chars().map(|sign| char::from_u32(u32::from(sign) - 0x20 + 0xff00).unwrap_or(sign)).collect()
}

/// Listeners that count every connection.
struct Listener {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Listener {
    async fn start() -> Self {
        let listener = listen_everywhere(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let mut listeners = vec![listener];
        if is_isolated() {
            for port in [22, 25, 80, 443, 6379] {
                listeners.extend(listen_everywhere(port).await.ok());
            }
        }
        for listener in listeners {
            let connections = Arc::clone(&connections);
            tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    connections.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        Self { port, connections }
    }
}
