//! The whole of cronbox on one machine: to try it, and for its tests.
//!
//! | module | what it stands for |
//! |---|---|
//! | [`scheduler`] | step 4: EventBridge Scheduler's API and its schedules |
//! | [`fires`] | step 5: what makes a schedule fire |
//! | [`invoke`], [`dead_letters`] | Lambda's asynchronous invoke, and where failures go |
//! | [`stand_in`], [`switches`] | the three above, joined, and what a test tells them |
//! | [`postgres`] | a Postgres of our own |
//! | [`stack`], [`up`] | all parts together, for a test and for a person |
//! | [`config`], [`steps`] | the command line, and the lines it prints |

pub mod client;
pub mod config;
pub mod dead_letters;
pub mod fires;
pub mod invoke;
pub mod postgres;
pub mod scheduler;
pub mod stack;
pub mod stand_in;
pub mod steps;
pub mod switches;
pub mod up;
