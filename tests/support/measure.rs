//! What a piece of work costs: processor time of processes, WAL and HOT updates of Postgres, buffers of statements.
//!
//! None of it is a duration, so a busy machine changes none of it much.

mod growth;
mod postgres;
mod processes;
mod statements;

pub use growth::{Growth, growth_of_an_item, largest_growth};
pub use postgres::{PostgresMeter, PostgresUsage, RowUpdates};
pub use processes::{ProcessTimes, ended_children_cpu_secs, high_water_mb, tree_cpu_secs};
pub use statements::{StatementFigures, StatementStatistics};
