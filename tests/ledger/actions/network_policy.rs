//! No http action reaches a private address: the app refuses it when it is saved, and again when it is sent.

use local::stack::StackOptions;
use serde_json::json;
use tests::Story;
use tokio::net::{TcpListener, TcpStream};

/// Private hosts in all their spellings; each is tried on several ports.
const HOSTS: [&str; 92] = [
    // Loopback.
    "127.0.0.1",
    "127.0.0.2",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "017700000001",
    "0177.1",
    "127.0.0.1.",
    "127。0。0。1",
    "①②⑦.⓪.⓪.①",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    // This network (0.0.0.0/8), and the unspecified address.
    "0.0.0.0",
    "0",
    "0x0",
    "00.0.0.0",
    "0.1.2.3",
    "[::]",
    "[::ffff:0.0.0.0]",
    // Private networks.
    "10.0.0.1",
    "10.1",
    "10.255.255.255",
    "167772161",
    "0xa.0.0.1",
    "012.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "0xac100001",
    "192.168.0.1",
    "192.168.1.1",
    "192.168.257",
    "3232235777",
    "0xc0a80101",
    "0300.0250.1.1",
    "[::ffff:10.0.0.1]",
    "[::ffff:192.168.1.1]",
    "[fc00::1]",
    "[fd12:3456:789a::1]",
    "[fec0::1]",
    // Metadata services, and other link-local addresses.
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.254.170.2",
    "169.254.0.1",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[fd00:ec2::254]",
    "[fe80::1]",
    "[febf::1]",
    // Carrier-grade NAT, and AWS' and Alibaba's services in it.
    "100.64.0.1",
    "100.127.255.255",
    "100.100.100.200",
    "1681915905",
    "[::ffff:100.64.0.1]",
    // IPv4 addresses inside IPv6 addresses.
    "[64:ff9b::7f00:1]",
    "[64:ff9b::10.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a00:1]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]",
    // Reserved, documentation, benchmark and multicast addresses.
    "192.0.0.8",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[ff02::1]",
];

/// URLs that disguise their host.
fn disguised(port: u16) -> Vec<String> {
    [
        "http://example.com@127.0.0.1:{p}/",
        "http://user:pass@127.0.0.1:{p}/",
        "http://127.0.0.1:{p}@example.com/",
        "http://example.com%2f@127.0.0.1:{p}/",
        "http://[::1]:{p}/#@example.com",
        "http://127.0.0.1:{p}\\@example.com/",
        "http:\\\\127.0.0.1:{p}/",
        "http:127.0.0.1:{p}/",
        "http:/127.0.0.1:{p}/",
        "http:////127.0.0.1:{p}/",
        "HTTP://127.0.0.1:{p}/",
        " http://127.0.0.1:{p}/ ",
        "http://127.0.\t0.1:{p}/",
        "http://127.0.0.1\n:{p}/",
        "http://%31%32%37.0.0.1:{p}/",
        "http://[::ffff:127.0.0.1%25lo]:{p}/",
        "http://[::1%25eth0]:{p}/",
        "https://127.0.0.1:{p}/",
        "https://localhost:{p}/",
        "http://127.0.0.1:{p}/?url=http://example.com",
        "ftp://127.0.0.1:{p}/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{p}/_x",
        "dict://127.0.0.1:{p}/x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "//127.0.0.1:{p}/",
        "http://",
    ]
    .map(|url| url.replace("{p}", &port.to_string()))
    .to_vec()
}

fn corpus(port: u16) -> Vec<String> {
    let plain = HOSTS.iter().map(|host| format!("http://{host}:{port}/"));
    let ports =
        ["127.0.0.1:22", "127.0.0.1:5432", "169.254.169.254:80", "10.0.0.1:443", "[::1]:6379", "localhost:8080"];
    plain.chain(ports.map(|host| format!("https://{host}/"))).chain(disguised(port)).collect()
}

/// Each URL of the corpus is refused when it is saved, and again when it is sent.
#[tokio::test]
async fn private_addresses_are_neither_saved_nor_called() {
    let options = StackOptions { app: |config| config.action_allow_cidrs.clear(), ..StackOptions::default() };
    let s = Story::with(options).await;
    let v4 = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = v4.local_addr().unwrap().port();
    // Not every machine has IPv6.
    let v6 = TcpListener::bind(("::1", port)).await.ok();
    let corpus = corpus(port);
    assert!(corpus.len() >= 120, "{}", corpus.len());
    for url in &corpus {
        let action = json!({"type": "http", "method": "GET", "url": url});
        let saved =
            s.editor().post("/api/v1/workflows", &json!({"name": uuid::Uuid::new_v4(), "action": action})).await;
        assert_eq!((saved.status, saved.json["field"].as_str()), (400, Some("action.url")), "{url:?}: {}", saved.text);
        let wf = s.create_with(json!({})).await;
        let patched = s.editor().patch(&format!("/api/v1/workflows/{wf}"), &json!({ "action": action })).await;
        assert_eq!(
            (patched.status, patched.json["field"].as_str()),
            (400, Some("action.url")),
            "{url:?}: {}",
            patched.text
        );
        // Stores it directly, as if an older version with fewer checks had saved it.
        let written = "UPDATE workflows SET action = $2 WHERE id = $1";
        sqlx::query(written).bind(wf.0).bind(&action).execute(&s.pool).await.unwrap();
        crate::receiver::accept(&s, wf).await;
    }
    s.runs_end().await;
    let sent = "SELECT count(*) FROM runs WHERE state <> 'failed' OR result IS NOT NULL OR attempt <> 1
                 OR error NOT SIMILAR TO '%(is not a public address|must not contain|is not a URL|must begin with)%'";
    assert_eq!(s.count(sent).await, 0, "{}", s.table("SELECT DISTINCT error FROM runs").await);
    for listener in [Some(v4), v6].into_iter().flatten() {
        // A listener accepts connections in order. If the first is ours, there was none before it.
        let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_, first) = listener.accept().await.unwrap();
        assert_eq!(first, ours.local_addr().unwrap(), "a request reached the listener before the test did");
    }
    s.end().await;
}

/// An edit of other fields is accepted.
#[tokio::test]
async fn an_edit_cannot_set_a_private_address() {
    let options = StackOptions { app: |config| config.action_allow_cidrs.clear(), ..StackOptions::default() };
    let s = Story::with(options).await;
    let outside = json!({"type": "http", "method": "GET", "url": "https://93.184.216.34/"});
    let wf = s.create_with(json!({ "action": outside })).await;
    let path = format!("/api/v1/workflows/{wf}");
    let inside = json!({"action": {"url": "http://10.0.0.1/"}});
    s.editor().merge_patch(&path, &inside).await.refused(400, "invalid_field", Some("action.url"));
    s.editor().merge_patch(&path, &json!({"name": "renamed", "action": {"method": "POST"}})).await.expect(200);
    s.end().await;
}
