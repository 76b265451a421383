//! Steps 3 and 7 of 7: how the publisher and the notifier log in to the database, also after a rotation of the password.

mod arguments;
pub mod arn;
mod login;
mod secret;

pub use arguments::Database;
pub use login::{Login, SecretVersions};
