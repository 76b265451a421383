//! The stream of events that the app sends (server-sent events).

use std::time::Duration;

use reqwest::Response;

/// The app sends a heartbeat every 5 s. A stream that is silent for so long is lost.
const SILENCE: Duration = Duration::from_secs(20);

/// A stream that the app has opened.
pub(super) struct EventStream {
    response: Response,
    unread: Vec<u8>,
}

/// A message of the stream: an event, its begin or a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The kind of the event, `ready` or `reset`; empty: a heartbeat.
    pub(super) name: String,
    /// Its place, after which another stream may continue.
    pub(super) id: String,
    /// The event as JSON.
    pub(super) data: String,
}

impl EventStream {
    /// The stream that an answer has.
    pub(super) fn new(response: Response) -> Self {
        Self { response, unread: Vec::new() }
    }

    /// Returns the next message; `None`: the stream has ended, or is lost.
    pub(super) async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = take_message(&mut self.unread) {
                return Some(message);
            }
            let chunk = tokio::time::timeout(SILENCE, self.response.chunk()).await;
            self.unread.extend_from_slice(&chunk.ok()?.ok()??);
        }
    }
}

/// Takes the first complete message. An empty line ends it.
fn take_message(unread: &mut Vec<u8>) -> Option<Message> {
    let end = unread.windows(2).position(|two| two == b"\n\n")?;
    let block: Vec<u8> = unread.drain(..end + 2).collect();
    let block = String::from_utf8_lossy(&block);
    let field = |name: &str| {
        let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(|value| value.strip_prefix(' ').unwrap_or(value)).unwrap_or_default().to_owned()
    };
    Some(Message { name: field("event"), id: field("id"), data: field("data") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of an answer end anywhere, also within a character.
    #[test]
    fn messages_are_taken_when_they_are_complete() {
        let text = "event: edit\nid: 7.1\ndata: {\"actor\":\"ä: b\"}\n\n: heartbeat\nid: 9.0\n\n";
        let (mut unread, mut taken) = (Vec::new(), Vec::new());
        for byte in text.bytes() {
            unread.push(byte);
            taken.extend(take_message(&mut unread));
        }
        let message = |name: &str, id: &str, data: &str| Message {
            name: name.to_owned(),
            id: id.to_owned(),
            data: data.to_owned(),
        };
        assert_eq!(taken, [message("edit", "7.1", "{\"actor\":\"ä: b\"}"), message("", "9.0", "")]);
        assert!(unread.is_empty());
    }
}
