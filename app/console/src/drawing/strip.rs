//! The strip of the last runs: one mark for each, the newest at the right; its height is the duration.

use api_types::results::RecentRunView;

use crate::times;
use crate::words;

/// One mark.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The page of the run.
    pub href: String,
    /// Its class, for the colour.
    pub class: &'static str,
    /// Its sign, for the shape.
    pub sign: &'static str,
    /// Left edge.
    pub x: usize,
    /// Upper edge.
    pub y: i64,
    /// Height.
    pub height: i64,
    /// What it says on focus.
    pub title: String,
}

/// The width of a mark with its gap.
pub const STEP: usize = 12;
/// The height of the strip.
pub const HEIGHT: i64 = 24;

/// The marks of runs, which come with the newest first.
#[must_use]
pub fn marks(recent: &[RecentRunView]) -> Vec<Mark> {
    let longest = recent.iter().filter_map(|run| run.duration_ms).max().unwrap_or(0).max(1);
    let of_run = |(nth, run): (usize, &RecentRunView)| {
        let state = words::run_state(&run.state);
        // A third of the height is for the sign, so that the shortest run is seen, too.
        let height = 12 + run.duration_ms.unwrap_or(0) * (HEIGHT - 12) / longest;
        let at =
            run.scheduled_time.or(run.finished_on).map(|at| format!(", {}", times::in_utc(&at))).unwrap_or_default();
        let took = run.duration_ms.map(|took| format!(", {}", times::milliseconds(&took))).unwrap_or_default();
        Mark {
            href: format!("/runs/{}", run.id),
            class: state.class,
            sign: state.mark,
            x: nth * STEP,
            y: HEIGHT - height,
            height,
            title: format!("{}{at}{took}", state.words),
        }
    };
    recent.iter().rev().enumerate().map(of_run).collect()
}

/// The width of a strip of so many marks.
#[must_use]
pub fn width(marks: &[Mark]) -> usize {
    marks.len().max(1) * STEP
}
