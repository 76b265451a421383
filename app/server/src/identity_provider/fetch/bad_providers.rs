//! Step 1 of 7, tests: providers that answer without end, late, with too much, or from where no provider is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// A provider that sends `beginning`, and then a byte each tenth of a second if it trickles.
struct Bad {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Bad {
    async fn start(beginning: impl Into<Vec<u8>>, trickles: bool) -> Self {
        let (beginning, requests) = (beginning.into(), Arc::new(AtomicUsize::new(0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let bad = Self { address: listener.local_addr().unwrap(), requests: requests.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer_badly(stream, beginning.clone(), trickles, requests.clone()));
            }
        });
        bad
    }

    async fn fetch(&self) -> Result<usize, String> {
        fetch(&format!("http://{}/keys", self.address)).await
    }
}

async fn answer_badly(mut stream: TcpStream, beginning: Vec<u8>, trickles: bool, requests: Arc<AtomicUsize>) {
    // A request is one packet here.
    let _read = stream.read(&mut [0; 4_096]).await;
    requests.fetch_add(1, Ordering::SeqCst);
    let mut is_open = stream.write_all(&beginning).await.is_ok();
    while is_open && trickles {
        tokio::time::sleep(Duration::from_millis(100)).await;
        is_open = stream.write_all(b" ").await.is_ok();
    }
}

/// Returns the size of the document.
async fn fetch(url: &str) -> Result<usize, String> {
    let client = new_client(None).unwrap();
    let url = url.parse().unwrap();
    let fetched = tokio::time::timeout(PATIENCE, get_document(&client, &url)).await.expect("an end");
    fetched.map(|document| document.len()).map_err(|error| format!("{error:#}"))
}

fn document_of(size: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
    [head.into_bytes(), vec![b' '; size]].concat()
}

/// The limit is that of the complete answer, so that no pause between two bytes begins it again.
#[tokio::test]
async fn answers_that_trickle_end() {
    let bad = [
        Bad::start("HTTP/1.1 200 O", true).await,
        Bad::start("HTTP/1.1 200 OK\r\nx: ", true).await,
        Bad::start("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n", true).await,
        Bad::start("HTTP/1.1 200 OK\r\n\r\n{}", true).await,
    ];
    let [a, b, c, d] = &bad;
    let ends: [_; 4] = tokio::join!(a.fetch(), b.fetch(), c.fetch(), d.fetch()).into();
    assert!(ends.iter().all(|end| *end == Err("no complete answer within 5 s".to_owned())), "{ends:?}");
    assert!(bad.iter().all(|bad| bad.requests.load(Ordering::SeqCst) == 1), "each of them got one request");
}

#[tokio::test]
async fn large_documents_are_refused() {
    assert_eq!(Bad::start(document_of(LARGEST_DOCUMENT), false).await.fetch().await, Ok(LARGEST_DOCUMENT));
    for size in [LARGEST_DOCUMENT + 1, 10 * LARGEST_DOCUMENT] {
        let refused = Bad::start(document_of(size), false).await.fetch().await;
        assert_eq!(refused, Err("the document is larger than 1 MiB".to_owned()));
    }
}

/// Also of the answers that a client could follow.
#[tokio::test]
async fn only_an_answer_with_200_counts() {
    let target = Bad::start(document_of(2), false).await;
    for status in
        ["201 Created", "204 No Content", "302 Found", "307 Temporary Redirect", "404 Not Found", "502 Bad Gateway"]
    {
        let head = format!("HTTP/1.1 {status}\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", target.address);
        let refused = Bad::start(head, false).await.fetch().await;
        assert_eq!(refused, Err(format!("the provider answered {status}")));
    }
    assert_eq!(target.requests.load(Ordering::SeqCst), 0, "a redirect was followed");
    assert_eq!(target.fetch().await, Ok(2));
}

/// A provider that an operator has named may lead to its keys at such an address.
#[tokio::test]
async fn addresses_of_metadata_are_refused() {
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:169.254.169.254]/",
        "https://100.100.100.200/",
        "https://168.63.129.16/",
    ] {
        let refused = fetch(url).await.unwrap_err();
        assert!(refused.ends_with("the metadata of a machine"), "{url}: {refused}");
    }
    assert!(fetch("https://127.0.0.1:25/").await.unwrap_err().contains("port 25 is not permitted"));
}
