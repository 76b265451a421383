//! A load generator: POSTs over many persistent connections, with little client overhead in the figures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::millis;

/// One request as bytes on the wire.
pub(crate) type Request = Vec<u8>;

/// The results of a load.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub(crate) secs: f64,
    pub(crate) taken_ms: Vec<f64>,
    pub(crate) by_status: BTreeMap<u16, usize>,
}

impl Answered {
    pub(crate) fn per_sec(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
        let calls = self.taken_ms.len() as f64;
        calls / self.secs
    }

    pub(crate) fn of(&self, status: u16) -> usize {
        self.by_status.get(&status).copied().unwrap_or_default()
    }
}

/// The POST request of a fire.
pub(crate) fn invoke(key: &str, workflow: i64, time: &str) -> Request {
    let body = format!(r#"{{"scheduled_time":"{time}"}}"#);
    format!(
        "POST /api/v1/cron/workflows/{workflow}:invoke HTTP/1.1\r\nhost: bench\r\nx-api-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends each request once, over this many connections. If a connection breaks, it is opened again, and its request is
/// repeated, as a runner does.
pub(crate) async fn send(address: SocketAddr, connections: usize, requests: Vec<Request>) -> Answered {
    let (requests, next) = (Arc::new(requests), Arc::new(AtomicUsize::default()));
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for _ in 0..connections {
        senders.spawn(sender(address, Arc::clone(&requests), Arc::clone(&next)));
    }
    let mut all = Answered::default();
    while let Some(sent) = senders.join_next().await {
        let Answered { taken_ms, by_status, .. } = sent.unwrap();
        all.taken_ms.extend(taken_ms);
        for (status, count) in by_status {
            *all.by_status.entry(status).or_default() += count;
        }
    }
    all.secs = began.elapsed().as_secs_f64();
    all
}

async fn sender(address: SocketAddr, requests: Arc<Vec<Request>>, next: Arc<AtomicUsize>) -> Answered {
    let mut answered = Answered::default();
    let mut connection = None;
    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
        let sent = Instant::now();
        let status = loop {
            match ask(&mut connection, address, request).await {
                Ok(status) if status < 500 => break status,
                Ok(status) => *answered.by_status.entry(status).or_default() += 1,
                Err(_) => connection = None,
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        answered.taken_ms.push(millis(sent));
        *answered.by_status.entry(status).or_default() += 1;
    }
    answered
}

/// Sends one request and reads the complete answer.
async fn ask(connection: &mut Option<TcpStream>, address: SocketAddr, request: &[u8]) -> std::io::Result<u16> {
    let stream = match connection {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            connection.insert(stream)
        }
    };
    stream.write_all(request).await?;
    let (mut answer, mut read) = ([0_u8; 4096], 0);
    loop {
        let more = stream.read(&mut answer[read..]).await?;
        if more == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read += more;
        if let Some(status) = whole(&answer[..read]) {
            return Ok(status);
        }
    }
}

/// The status of an answer, if the answer is complete. Both servers write names of headers in lower case. The generator has the
/// same two cores as the server, so it does no more than this with an answer.
fn whole(answer: &[u8]) -> Option<u16> {
    let end = memmem::find(answer, b"\r\n\r\n")? + 4;
    let length = memmem::find(&answer[..end], b"content-length: ")? + b"content-length: ".len();
    let digits = answer[length..end].iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    (answer.len() >= end + length).then(|| std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()).flatten()
}
