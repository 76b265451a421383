//! Steps 3 and 4 of 7: how the publisher is started: as a Lambda, as a daemon, or for one run.

pub(crate) mod lambda;
mod listen;
mod once;
mod tick;
