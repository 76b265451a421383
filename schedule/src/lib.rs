//! The pure vocabulary of cronbox: the cron dialect, its times, and what a fire is called.
//!
//! No I/O: time comes in as an argument, and everything here can be tested by arithmetic.

mod bits;
mod calendar;
mod clock;
mod cron;
mod days;
mod describe;
mod error;
mod eventbridge;
mod field;
mod fire;
mod ids;
mod item;
mod name;
mod next;
mod parse;
mod text;
mod time;
mod timezone;
mod upcoming;

pub use chrono_tz::Tz;

pub use crate::{
    clock::{Clock, FixedClock},
    cron::Cron,
    error::CronError,
    eventbridge::{Compiled, Coverage, compile},
    fire::{Fire, FireError},
    ids::{IdError, Revision, WorkflowId},
    name::{Environment, EnvironmentError, ScheduleName},
    time::{TimeError, nominal_time},
    timezone::{TimezoneError, parse_timezone},
    upcoming::{Note, Times, Upcoming, Upcomings},
};
