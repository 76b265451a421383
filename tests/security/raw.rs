//! Requests that no HTTP client would send, and their answers.

use tests::PATIENCE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Settings of an app that soon closes a connection on which nothing more arrives.
pub(crate) const CLOSES_SOON: [(&str, &str); 2] =
    [("CRONBOX_HEADER_TIMEOUT_MS", "500"), ("CRONBOX_REQUEST_TIMEOUT_MS", "1500")];

/// The bytes that an app with [`CLOSES_SOON`] answers to these until it closes.
pub(crate) async fn answers_to(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server may close before it has read everything.
    let _written = stream.write_all(bytes).await;
    let (mut answer, mut chunk) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        match tokio::time::timeout(PATIENCE, stream.read(&mut chunk)).await.expect("the app closes the connection") {
            Ok(read @ 1..) => answer.extend_from_slice(&chunk[..read]),
            Ok(0) | Err(_) => return answer,
        }
    }
}

/// The final statuses in these bytes, in order.
pub(crate) fn statuses_in(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let starts = text.match_indices("HTTP/1.").filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok());
    starts.filter(|status| *status >= 200).collect()
}
