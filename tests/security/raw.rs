//! Requests that no HTTP client would send, and their answers.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// How long a connection may be silent before its answers are complete.
const SILENCE: Duration = Duration::from_millis(700);

/// The bytes that an address answers to these, until it closes or is silent.
pub(crate) async fn answers_to(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may close before it has read everything.
    let _written = stream.write_all(bytes).await;
    let (mut answer, mut chunk) = (Vec::new(), vec![0; 16 * 1024]);
    while let Ok(Ok(read @ 1..)) = tokio::time::timeout(SILENCE, stream.read(&mut chunk)).await {
        answer.extend_from_slice(&chunk[..read]);
    }
    answer
}

/// The final statuses in these bytes, in order.
pub(crate) fn statuses_in(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let starts = text.match_indices("HTTP/1.").filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok());
    starts.filter(|status| *status >= 200).collect()
}
