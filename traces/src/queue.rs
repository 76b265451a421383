//! The queue between the spans that have ended and the collector.
//!
//! The library's own processor does not say how many spans it dropped, and its flush blocks a thread for seconds. A Lambda
//! has neither the thread nor the seconds.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter, SpanProcessor};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How many spans wait at most: about 2 MB.
const CAPACITY: usize = 2_048;
/// How many spans one request has at most.
const BATCH: usize = 512;
/// How long the first span of a request waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long one request may take, with its retries.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

static QUEUE_FULL: AtomicU64 = AtomicU64::new(0);
static NOT_DELIVERED: AtomicU64 = AtomicU64::new(0);

/// Spans that the collector did not get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// The queue was full.
    pub queue_full: u64,
    /// The collector did not accept their request.
    pub not_delivered: u64,
}

/// Returns how many spans this process has dropped since its start, or since [`take_dropped_spans`].
#[must_use]
pub fn dropped_spans() -> Dropped {
    Dropped { queue_full: QUEUE_FULL.load(Ordering::Relaxed), not_delivered: NOT_DELIVERED.load(Ordering::Relaxed) }
}

/// As [`dropped_spans`], and begins to count anew.
#[must_use]
pub fn take_dropped_spans() -> Dropped {
    Dropped {
        queue_full: QUEUE_FULL.swap(0, Ordering::Relaxed),
        not_delivered: NOT_DELIVERED.swap(0, Ordering::Relaxed),
    }
}

impl Dropped {
    /// The counts with the names of their reasons.
    pub fn by_reason(self) -> [(&'static str, u64); 2] {
        [("queue_full", self.queue_full), ("not_delivered", self.not_delivered)]
    }
}

/// Where spans end: it never waits.
#[derive(Debug)]
pub(crate) struct Queue(mpsc::Sender<SpanData>);

/// Asks the exporter to send what has ended so far, and to answer then.
pub(crate) type Flush = oneshot::Sender<()>;

/// Takes spans from the queue and sends them.
pub(crate) struct Sending<E> {
    exporter: E,
    spans: mpsc::Receiver<SpanData>,
    flushes: mpsc::UnboundedReceiver<Flush>,
    /// Whether the last request failed. Only a change is logged, so that a dead collector does not fill the log.
    is_failing: bool,
}

/// Creates a queue whose spans this exporter sends.
pub(crate) fn create_queue<E: SpanExporter>(exporter: E) -> (Queue, Sending<E>, mpsc::UnboundedSender<Flush>) {
    let (sender, spans) = mpsc::channel(CAPACITY);
    let (flush, flushes) = mpsc::unbounded_channel();
    (Queue(sender), Sending { exporter, spans, flushes, is_failing: false }, flush)
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled()
            && let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.0.try_send(span)
        {
            QUEUE_FULL.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl<E: SpanExporter> Sending<E> {
    /// Sends spans until the queue is dropped.
    pub(crate) async fn send_repeatedly(mut self) {
        let mut batch = Vec::new();
        loop {
            let flush = tokio::select! {
                () = gather(&mut self.spans, &mut batch) => None,
                Some(flush) = self.flushes.recv() => Some(flush),
            };
            if batch.is_empty() && flush.is_none() {
                return;
            }
            self.send(mem::take(&mut batch)).await;
            if let Some(flush) = flush {
                self.send_rest().await;
                // The caller may have stopped waiting.
                let _ = flush.send(());
            }
        }
    }

    /// Sends what is in the queue now, and no span that ends meanwhile.
    async fn send_rest(&mut self) {
        let mut left = self.spans.len();
        while left > 0 {
            let batch: Vec<_> = std::iter::from_fn(|| self.spans.try_recv().ok()).take(left.min(BATCH)).collect();
            left -= batch.len();
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len();
        if count == 0 {
            return;
        }
        let sent = timeout(REQUEST_LIMIT, self.exporter.export(batch)).await;
        match sent.unwrap_or(Err(OTelSdkError::Timeout(REQUEST_LIMIT))) {
            Ok(()) if mem::take(&mut self.is_failing) => tracing::info!("collector accepts traces again"),
            Ok(()) => {}
            Err(error) => {
                NOT_DELIVERED.fetch_add(count as u64, Ordering::Relaxed);
                if !mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%error, spans = count, "traces not sent; until the collector accepts them, they are dropped and counted");
                }
            }
        }
    }
}

/// Waits for a span and gathers others. If it is dropped, the batch has what it gathered.
async fn gather(spans: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    if batch.is_empty() && spans.recv_many(batch, BATCH).await == 0 {
        return;
    }
    let others = async { while batch.len() < BATCH && spans.recv_many(batch, BATCH - batch.len()).await > 0 {} };
    // The time is over, or the batch is full.
    let _ = timeout(GATHER, others).await;
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

    use super::*;

    /// A collector that says how many spans each request had.
    #[derive(Clone, Debug, Default)]
    struct Collector {
        requests: Arc<Mutex<Vec<usize>>>,
        hangs: bool,
    }

    impl SpanExporter for Collector {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            self.requests.lock().unwrap().push(batch.len());
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    }

    fn tracer(queue: Queue) -> SdkTracer {
        SdkTracerProvider::builder().with_span_processor(queue).build().tracer("test")
    }

    async fn flush(flushes: &mpsc::UnboundedSender<Flush>, limit: Duration) -> bool {
        let (done, ended) = oneshot::channel();
        flushes.send(done).unwrap();
        timeout(limit, ended).await.is_ok()
    }

    /// With a paused clock, which runs ahead when all tasks wait. One test, because the counts are those of the process.
    #[tokio::test(start_paused = true)]
    async fn a_silent_collector_delays_no_span() {
        let collector = Collector { hangs: true, ..Collector::default() };
        let (queue, sending, flushes) = create_queue(collector.clone());
        let tracer = tracer(queue);
        let before = dropped_spans();
        let sending = tokio::spawn(sending.send_repeatedly());
        drop(tracer.start("first"));
        assert!(!flush(&flushes, Duration::from_millis(500)).await, "the collector does not answer");
        assert_eq!(*collector.requests.lock().unwrap(), [1]);
        // Each of these ends at once: this task never yields to the one that sends.
        (0..CAPACITY + 3).for_each(|_| drop(tracer.start("more")));
        assert_eq!(dropped_spans().queue_full, before.queue_full + 3);
        tokio::time::sleep(REQUEST_LIMIT).await;
        assert_eq!(dropped_spans().not_delivered, before.not_delivered + 1);
        sending.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flush_sends_what_has_ended() {
        let collector = Collector::default();
        let (queue, sending, flushes) = create_queue(collector.clone());
        let tracer = tracer(queue);
        let sending = tokio::spawn(sending.send_repeatedly());
        (0..BATCH + 7).for_each(|_| drop(tracer.start("one")));
        assert!(flush(&flushes, Duration::from_secs(1)).await);
        assert_eq!(collector.requests.lock().unwrap().iter().sum::<usize>(), BATCH + 7);
        assert!(flush(&flushes, Duration::from_secs(1)).await, "an empty queue is flushed, too");
        drop(tracer);
        sending.await.unwrap();
    }

    /// The spans of one second share a request.
    #[tokio::test(start_paused = true)]
    async fn spans_are_sent_together() {
        let collector = Collector::default();
        let (queue, sending, _flushes) = create_queue(collector.clone());
        let tracer = tracer(queue);
        tokio::spawn(sending.send_repeatedly());
        for _ in 0..3 {
            drop(tracer.start("one"));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(collector.requests.lock().unwrap().is_empty());
        tokio::time::sleep(GATHER).await;
        assert_eq!(*collector.requests.lock().unwrap(), [3]);
    }
}
