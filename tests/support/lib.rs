//! What the stories share: a stack for each, clients, and servers that stand in for AWS.

mod api;
mod canaille;
mod collector;
mod counting_proxy;
mod lossy_proxy;
pub mod measure;
pub mod metric_names;
mod moto;
mod pgbouncer;
mod port;
mod proxy;
pub mod publisher_process;
mod runtime;
pub mod statements;
mod story;
mod timeout;
mod visitor;

pub use api::{Answer, Api, send_request};
pub use canaille::Canaille;
pub use collector::{Collected, Collecting, Collector};
pub use counting_proxy::{CountingWay, Rows};
pub use lossy_proxy::LossyWay;
pub use moto::Moto;
pub use pgbouncer::PgBouncer;
pub use port::find_kept_port;
pub use runtime::{Ended, Runtime};
pub use story::{OutboxRow, Story, Way, refused_action};
pub use timeout::PATIENCE;
pub use visitor::{PageForm, Visitor};
