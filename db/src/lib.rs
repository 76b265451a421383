//! Steps 1 to 3 and 7 of 7: how the app and the publisher reach Postgres.
//!
//! Connections, transactions and the schema's migrations live here; queries live with their nouns.
//! Every connection carries its own timeouts in its startup packet, so that a process that dies
//! without a word holds no lock for longer than a few seconds, whatever the server's defaults; and
//! every statement has a limit on our side, so that a server that dies holds up no process.

mod connection;
mod listener;
mod migrate;
mod options;
mod pool;
mod server;
mod tls;
mod transaction;
mod zones;

pub use connection::{AcquiredConnection, PgConnection, STATEMENT_LIMIT};
pub use listener::Listener;
pub use migrate::{MIGRATOR, check_migrated, migrate, migrate_by};
pub use options::Options;
pub use pool::{PgPool, connect, log_in_anew, pool};
pub use tls::{ca_file, with_ca};
pub use transaction::{Transaction, begin};
pub use zones::{ZoneChange, load_zones, read_zone_archive, read_zone_change};
