//! An actor: a publisher or an editor with its own connections, which moves only when the history lets it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::database::{Ground, Process};
use crate::tap::Tap;
use crate::turnstile::Turnstile;

/// Where an actor waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// At one or more points of the turnstile.
    AtPoints,
    /// It waits for a lock of another actor's open transaction.
    AtLock,
    /// It has finished.
    Ended,
}

/// The kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Publisher,
    Editor,
    Sweeper,
    /// An instance of the app that executes runs, each in its own task.
    Executor,
}

/// One process.
pub(crate) struct Actor {
    pub(crate) id: usize,
    pub(crate) role: Role,
    pub(crate) position: Position,
    pub(crate) process: Process,
    /// The proxy to its database, if each of its statements is a point.
    tap: Option<Tap>,
    life: Pin<Box<dyn Future<Output = ()>>>,
    bell: Arc<Bell>,
}

/// Is notified when the actor can continue.
#[derive(Default)]
struct Bell {
    has_rung: AtomicBool,
    ringing: Notify,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Relaxed);
        self.ringing.notify_one();
    }
}

/// Whether an actor may wait for another actor's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locks {
    Possible,
    /// No other actor is in a transaction, or there is no other actor, so Postgres need not be queried.
    Impossible,
}

/// If the database takes longer to answer, it may be waiting for a lock.
const PATIENCE: Duration = Duration::from_millis(4);
/// After this many waits the actor counts as waiting, whatever its tap says.
const MOST_WAITS: u32 = 250;
/// The longest chain of tasks that one event wakes: a request, its answer, and the processing of the answer.
const HOPS: usize = 16;

impl Actor {
    pub(crate) fn new(id: usize, role: Role, process: Process, life: impl Future<Output = ()> + 'static) -> Actor {
        Actor { id, role, position: Position::AtPoints, process, tap: None, life: Box::pin(life), bell: Arc::default() }
    }

    /// The same actor, with its statements passing through this tap.
    pub(crate) fn behind(self, tap: Tap) -> Actor {
        Actor { tap: Some(tap), ..self }
    }

    /// Lets the actor run until it waits again.
    pub(crate) async fn go(&mut self, turnstile: &Turnstile, ground: &Ground, locks: Locks) {
        self.position = self.next_position(turnstile, ground, locks).await;
    }

    async fn next_position(&mut self, turnstile: &Turnstile, ground: &Ground, locks: Locks) -> Position {
        let waker = Waker::from(Arc::clone(&self.bell));
        let (arrivals, mut waits, mut is_quiet) = (turnstile.arrivals(self.id), 0, false);
        loop {
            turnstile.moves(self.id);
            self.bell.has_rung.store(false, Ordering::Relaxed);
            if let Poll::Ready(()) = self.life.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Position::Ended;
            }
            if self.bell.has_rung.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
                continue;
            }
            // Nothing woke while it was polled, and it is at a point, so all its remaining work waits there. The tasks
            // of an executor are not polled here. If the executor arrives at another point, its tasks have moved, or
            // none of its work is in progress at Postgres or in this process.
            let has_moved = self.role != Role::Executor || turnstile.arrivals(self.id) > arrivals || is_quiet;
            if has_moved && !turnstile.points(self.id).is_empty() {
                return Position::AtPoints;
            }
            tokio::select! {
                () = self.bell.ringing.notified() => {}
                () = turnstile.arrived() => {}
                () = tokio::time::sleep(PATIENCE) => {
                    waits += 1;
                    let is_answered = self.tap.as_ref().is_some_and(|tap| !tap.is_awaited());
                    is_quiet = is_answered || waits > MOST_WAITS;
                    // If this thread was delayed, tasks that woke during the sleep run now.
                    for _ in 0..HOPS {
                        tokio::task::yield_now().await;
                    }
                    let is_requested = locks == Locks::Possible || waits % 50 == 0;
                    if is_requested && !is_answered && ground.waits_for_lock(&self.process.name).await {
                        return Position::AtLock;
                    }
                }
            }
        }
    }
}
