//! What the stories share: a stack for each, clients, and servers that stand in for AWS.

mod api;
mod counting;
mod lossy;
mod moto;
mod patience;
mod proxy;
mod runtime;
pub mod statements;
mod story;

pub use api::{Answer, Api, answer};
pub use counting::{CountingWay, Rows};
pub use lossy::LossyWay;
pub use moto::Moto;
pub use patience::PATIENCE;
pub use runtime::{Ended, Runtime};
pub use story::{OutboxRow, Story, Way};
