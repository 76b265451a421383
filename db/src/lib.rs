//! Steps 1 to 3 and 7 of 7: how the app and the publisher reach Postgres.
//!
//! This crate has connections, transactions and the schema's migrations; queries are in the files of their nouns. Every
//! connection sets its timeouts in its startup packet, or behind a pooler in its session or transaction, so that a
//! process that crashes keeps no lock for longer than a few seconds, whatever the server's defaults. Every statement
//! has a client-side time limit, so that a server that crashes blocks no process.

mod connection;
mod dry_run;
/// It is here because both binaries with named points connect through this crate.
pub mod failpoint;
mod kept;
mod limits;
mod listener;
mod migrate;
mod options;
mod pool;
mod pooled;
mod proof;
mod roles;
mod server;
mod tls;
mod transaction;
mod zones;

pub use connection::{AcquiredConnection, PgConnection};
pub use dry_run::{is_dry_run, run_dry};
pub use kept::KeptConnection;
pub use limits::TransactionLimits;
pub use listener::Listener;
pub use migrate::{
    MIGRATOR, SchemaState, check_migrated, migrate_by, migrate_schema, migrate_unless_newer, migrate_with_roles,
};
pub use options::{Options, Pooler};
pub use pool::{PgPool, PoolUse, connect_pool, create_pool, create_pool_beside, log_in_anew};
pub use roles::logins::{NewLogin, NewLogins, make_logins};
pub use roles::{APP_GROUP, NOTIFIER_GROUP, OWNER_GROUP, PUBLISHER_GROUP};
pub use server::STATEMENT_LIMIT;
pub use server::{concerns_one_statement, is_refused_login};
pub use tls::{ca_file, with_ca};
pub use transaction::{READ_LIMIT_SECS, Transaction, begin_indexed_read, begin_read, begin_transaction};
pub use zones::{ZoneChange, load_zones, read_zone_archive, read_zone_change};
