//! The whole of cronbox on one machine.
pub mod dead_letters;
pub mod fires;
pub mod invoke;
pub mod postgres;
pub mod scheduler;
