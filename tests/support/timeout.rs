//! How long a test waits.

use std::time::Duration;

/// How long a test waits for an event before it fails. It is so long that no loaded machine takes it, because it only limits a
/// test that hangs.
pub const PATIENCE: Duration = Duration::from_secs(300);
