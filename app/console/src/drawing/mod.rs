//! Pictures that the server makes, as SVG. Each has a text for readers that do not see it.

pub mod calendar;
pub mod columns;
pub mod days;
pub mod heat;
pub mod strip;
