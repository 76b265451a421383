//! All of cronbox on one machine: to try it, and for its tests.
//!
//! | module | its part |
//! |---|---|
//! | [`scheduler`] | step 4: EventBridge Scheduler's API and its schedules |
//! | [`fires`] | step 5: fires schedules |
//! | [`invoke`], [`dead_letters`] | Lambda's asynchronous invoke, and where failures go |
//! | [`stand_in`], [`switches`] | the three above together, and the calls by which a test controls them |
//! | [`served`] | the stand-in as a server |
//! | [`postgres`] | a private Postgres server |
//! | [`stack`], [`up`] | all parts together, for tests and for people |
//! | [`config`], [`steps`] | the command line, and the lines it prints |

pub mod client;
pub mod config;
pub mod dead_letters;
pub mod fires;
pub mod invoke;
pub mod postgres;
pub mod scheduler;
pub mod served;
pub mod stack;
pub mod stand_in;
pub mod steps;
pub mod switches;
pub mod up;
