//! What the stories share: a stack for each, clients, and servers that stand in for AWS.

mod api;
mod counting_proxy;
mod lossy_proxy;
pub mod measure;
mod moto;
mod pgbouncer;
mod proxy;
mod runtime;
pub mod statements;
mod story;
mod timeout;

pub use api::{Answer, Api, send_request};
pub use counting_proxy::{CountingWay, Rows};
pub use lossy_proxy::LossyWay;
pub use moto::Moto;
pub use pgbouncer::PgBouncer;
pub use runtime::{Ended, Runtime};
pub use story::{OutboxRow, Story, Way, find_kept_port};
pub use timeout::PATIENCE;
