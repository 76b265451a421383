//! The pure types of cronbox: the cron dialect, its times, and fires.
//!
//! No I/O: time is an argument, so everything here can be tested without a clock.
//!
//! | you write | EventBridge gets | fires when |
//! |---|---|---|
//! | `*/5 * * * *` | `cron(0/5 * * * ? *)`, in UTC | every 5 minutes |
//! | `0 9 * * MON-FRI` | `cron(0 9 ? * MON-FRI *)` | at 09:00, Monday to Friday |
//! | `0 9 * * 5#2` | `cron(0 9 ? * 6#2 *)` | at 09:00, on the second Friday of the month |
//! | `0 9 13 * FRI` | `cron(0 9 * * ? *)`, a superset | at 09:00, on the 13th and on Fridays |
//!
//! A time in the spring gap is skipped; in the autumn fold a restricted hour fires at the first instance, an open hour
//! (all 24) at both. `docs/cron.md` explains the complete dialect.
//!
//! ```
//! use schedule::{Cron, compile_cron};
//! let cron: Cron = "0 9 * * mon-fri".parse()?;
//! let paris = schedule::parse_timezone("Europe/Paris")?;
//! let friday = "2026-03-27T12:00:00Z".parse()?;
//! assert_eq!(cron.next_after(friday, paris), Some("2026-03-30T07:00:00Z".parse()?));
//! assert_eq!(compile_cron(&cron, paris).expression, "cron(0 9 ? * MON-FRI *)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From text to times: `parse` and `item` parse the fields into sets (`bits`, `days`), `text` writes them, `calendar`
//! searches the local calendar, `next` maps it to instants, `eventbridge` compiles.

mod answer;
mod bits;
mod calendar;
mod clock;
mod cron;
mod days;
pub mod delivery;
mod describe;
mod error;
mod eventbridge;
mod field;
mod fire;
mod ids;
mod item;
mod mistake;
mod moment;
mod name;
mod next;
mod parse;
mod state;
mod text;
mod time;
mod timezone;
mod upcoming;
mod zone;
mod zone_change;
mod zone_error;
mod zone_history;
mod zones;

#[cfg(debug_assertions)]
pub use crate::clock::offset_machine_clock;

pub use crate::{
    answer::Delivered,
    clock::{Clock, FixedClock, SampledClock},
    cron::Cron,
    error::CronError,
    eventbridge::{Compiled, compile_cron, form::Coverage},
    fire::{Fire, FireError},
    ids::{IdError, Revision, WorkflowId},
    moment::Moment,
    name::{Environment, EnvironmentError, ScheduleName},
    state::{WorkflowState, WorkflowStateError},
    time::{TimeError, nominal_time},
    timezone::{TimezoneError, parse_timezone},
    upcoming::{Note, Times, Upcoming, Upcomings},
    zone::{Timezone, ZoneOffset},
    zone_error::ZoneDataError,
    zone_history::{TimezoneHistory, ZoneHistory},
    zones::{ZoneSet, ZoneVersion},
};
