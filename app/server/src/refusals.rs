//! Steps 1 and 7 of 7: refused requests and connections. Each is counted, and a sample of them is logged.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long the second refusal of an address for the same reason is not logged.
const WINDOW: Duration = Duration::from_secs(60);
/// How many addresses are logged in this time, for each reason: a flood must not fill the log.
const MOST_LINES: usize = 20;

/// What is known of a refused request or connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal<'a> {
    /// Why: a code of the app's own, which is the label of the metric.
    pub(crate) reason: &'static str,
    /// The address of the client.
    pub(crate) address: IpAddr,
    /// The public part of the key that it sent.
    pub(crate) key_prefix: Option<&'a str>,
    /// The route as the router names it, without ids.
    pub(crate) route: Option<&'a str>,
}

/// Decides which refusals are logged.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<HashMap<&'static str, Window>>);

/// The refusals for one reason since `began`.
#[derive(Debug)]
struct Window {
    began: Instant,
    logged: HashSet<IpAddr>,
    /// Refusals that were not logged since the last line.
    suppressed: u64,
}

impl RefusalLog {
    /// Logs a refusal, unless there were enough lines of its kind in the last minute.
    pub(crate) fn log_sample(&self, refusal: &Refusal<'_>, now: Instant) {
        let Some(suppressed) = self.sample(refusal, now) else { return };
        let Refusal { reason, address, key_prefix, route } = *refusal;
        tracing::warn!(%address, key_prefix, route, reason, suppressed, "request refused");
    }

    /// Returns the number of refusals without a line since the last line, if this one gets a line.
    fn sample(&self, refusal: &Refusal<'_>, now: Instant) -> Option<u64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(refusal.reason).or_insert_with(|| Window::new(now));
        if now.duration_since(window.began) >= WINDOW {
            *window = Window { suppressed: window.suppressed, ..Window::new(now) };
        }
        if window.logged.len() < MOST_LINES && window.logged.insert(refusal.address) {
            return Some(std::mem::take(&mut window.suppressed));
        }
        window.suppressed += 1;
        None
    }
}

impl Window {
    fn new(began: Instant) -> Self {
        Self { began, logged: HashSet::new(), suppressed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(reason: &'static str, nth: u32) -> Refusal<'static> {
        Refusal { reason, address: IpAddr::V4(nth.into()), key_prefix: None, route: None }
    }

    #[test]
    fn floods_leave_few_lines() {
        let (log, began) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.sample(&refusal("unauthorized", 1), began), Some(0));
        assert_eq!(log.sample(&refusal("unauthorized", 1), began), None);
        assert_eq!(log.sample(&refusal("unauthorized", 2), began), Some(1), "another address");
        assert_eq!(log.sample(&refusal("forbidden", 1), began), Some(0), "another reason");
        let lines = (3..1_000).filter(|nth| log.sample(&refusal("unauthorized", *nth), began).is_some()).count();
        assert_eq!(lines, MOST_LINES - 2);
        let suppressed = Some(997 - 18);
        assert_eq!(log.sample(&refusal("unauthorized", 1), began + WINDOW), suppressed, "a minute later");
    }
}
