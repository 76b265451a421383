//! Ports of servers that a test starts as processes.

use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port that stays free while nothing listens on it: connections get theirs from a higher range.
///
/// # Panics
/// Panics if no port is free.
pub fn find_kept_port() -> u16 {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Programs of tests that run at once have process ids near each other, so each id has a hundred ports of its own.
    let first = 20_000 + u16::try_from(std::process::id() % 100).unwrap_or_default() * 100;
    let mut candidates = std::iter::repeat_with(|| first + TAKEN.fetch_add(1, Ordering::Relaxed));
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    candidates.find(is_free).unwrap_or_else(|| panic!("no port is free"))
}
