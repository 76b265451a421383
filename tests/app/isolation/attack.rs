//! An attack: clients of one team that repeat their requests while the fires of another team are delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::RequestBuilder;
use tests::PATIENCE;
use tokio::task::JoinSet;

/// What one request got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    /// The HTTP status; 0 = the connection broke.
    pub(super) status: u16,
    /// The length of the body.
    pub(super) bytes: usize,
}

/// Clients that repeat their requests until the attack is stopped.
pub(super) struct Attack {
    is_over: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
    clients: JoinSet<Vec<Reply>>,
}

impl Attack {
    /// Starts this many clients; each repeats the request of its number.
    pub(super) fn start(clients: usize, request: impl Fn(usize) -> RequestBuilder + Send + Sync + 'static) -> Self {
        let mut attack = Self { is_over: Arc::default(), succeeded: Arc::default(), clients: JoinSet::new() };
        let request = Arc::new(request);
        for nth in 0..clients {
            let request = Arc::clone(&request);
            let (is_over, succeeded) = (Arc::clone(&attack.is_over), Arc::clone(&attack.succeeded));
            attack.clients.spawn(repeat_request(move || request(nth), is_over, succeeded));
        }
        attack
    }

    /// How many of its requests succeeded so far.
    pub(super) fn succeeded(&self) -> usize {
        self.succeeded.load(Ordering::SeqCst)
    }

    /// Waits until one more of its requests succeeds.
    pub(super) async fn goes_on(&self) {
        let (so_far, began) = (self.succeeded(), Instant::now());
        while self.succeeded() == so_far {
            assert!(began.elapsed() < PATIENCE, "no request of the attack succeeds");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Lets each client end after its present request.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Stops the attack; returns what all its requests got.
    pub(super) async fn replies(self) -> Vec<Reply> {
        self.stop();
        self.clients.join_all().await.concat()
    }
}

async fn repeat_request(
    request: impl Fn() -> RequestBuilder,
    is_over: Arc<AtomicBool>,
    succeeded: Arc<AtomicUsize>,
) -> Vec<Reply> {
    let mut replies = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let reply = reply_to(request()).await;
        replies.push(reply);
        if reply.status == 200 {
            succeeded.fetch_add(1, Ordering::SeqCst);
        } else {
            // A client that is refused waits before it repeats.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    replies
}

/// Reads the answer without parsing it, which would cost more than the server's part.
async fn reply_to(request: RequestBuilder) -> Reply {
    let Ok(response) = request.send().await else { return Reply { status: 0, bytes: 0 } };
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap_or_default();
    Reply { status, bytes: body.len() }
}
