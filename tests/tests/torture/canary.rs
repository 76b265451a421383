//! S10: what the product writes to its log, searched for every secret that a history knows.
//!
//! All of it is searched, at TRACE; it is printed only as far as `RUST_LOG` asks for.

use std::io;
use std::sync::{Mutex, RwLock};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

static SECRETS: RwLock<Vec<String>> = RwLock::new(Vec::new());
static LEAKED: Mutex<Option<String>> = Mutex::new(None);

/// From now on no line of the log may hold this.
pub(crate) fn watch(secret: impl Into<String>) {
    let (secret, mut secrets) = (secret.into(), SECRETS.write().unwrap());
    if !secrets.contains(&secret) {
        secrets.push(secret);
    }
}

/// The first line that held a secret; it is told once.
pub(crate) fn leaked() -> Option<String> {
    LEAKED.lock().unwrap().take()
}

/// Searches what is logged from now on; prints as much of it as a replay wants to hear: `RUST_LOG=app=debug`.
pub(crate) fn listen() {
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
    let printed = fmt::layer().with_writer(io::stderr).with_filter(wanted);
    let searched = fmt::layer().with_ansi(false).with_writer(|| Search).with_filter(LevelFilter::TRACE);
    tracing_subscriber::registry().with(printed).with(searched).init();
}

/// Is handed each line whole.
struct Search;

impl io::Write for Search {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(line);
        if SECRETS.read().unwrap().iter().any(|secret| line.contains(secret)) {
            LEAKED.lock().unwrap().get_or_insert_with(|| line.to_string());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
