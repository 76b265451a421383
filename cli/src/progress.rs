//! Progress on standard error, on a terminal, of what takes longer than two seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What ends sooner shows no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// A bar or a spinner that appears late.
pub(crate) struct Progress {
    bar: ProgressBar,
    began: Instant,
}

impl Progress {
    /// A bar of so many steps.
    pub(crate) fn of_steps(total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {eta} left");
        let bar = style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style));
        Self { bar, began: Instant::now() }
    }

    /// A spinner for what has no steps.
    pub(crate) fn spinner() -> Self {
        Self { bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()), began: Instant::now() }
    }

    /// Shows how many steps are done.
    pub(crate) fn show_position(&self, done: u64) {
        self.appear();
        self.bar.set_position(done);
    }

    /// Shows what is waited for.
    pub(crate) fn show_message(&self, message: String) {
        self.appear();
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// Writes a line of standard error beside the bar.
    pub(crate) fn print_beside(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Removes it.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn appear(&self) {
        if self.bar.is_hidden() && self.began.elapsed() >= SHOWN_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}
