//! Step 7 of 7: when a job is due: at an interval in seconds, or by a cron.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use schedule::{Cron, Timezone};

/// `60s`, or a cron in cronbox's dialect such as `0 3 * * *`.
#[derive(Clone, Debug)]
pub enum When {
    /// The job is due this long after its last turn ended.
    Every(Duration),
    /// The job is due at these times.
    Cron(Box<Cron>),
}

/// A text that is neither an interval nor a cron.
#[derive(Debug, thiserror::Error)]
#[error("{0}: write seconds as 60s, or a cron as \"0 3 * * *\"")]
pub struct WhenError(String);

impl When {
    /// An interval in seconds.
    #[must_use]
    pub fn every_secs(secs: u64) -> Self {
        Self::Every(Duration::from_secs(secs))
    }

    /// How long a job waits for its first turn after a start. Short, so that a restarted instance helps at once.
    #[must_use]
    pub fn first_wait(&self, now: DateTime<Utc>, timezone: Timezone) -> Duration {
        match self {
            Self::Every(pause) => jitter((*pause).min(Duration::from_secs(5))),
            Self::Cron(_) => self.next_wait(now, timezone),
        }
    }

    /// How long it waits for its next turn. With jitter, so that instances and jobs do not run in step.
    #[must_use]
    pub fn next_wait(&self, now: DateTime<Utc>, timezone: Timezone) -> Duration {
        match self {
            Self::Every(pause) => *pause + jitter(*pause / 10),
            Self::Cron(cron) => {
                let until = cron.next_after(now, timezone).and_then(|next| (next - now).to_std().ok());
                // The cron has no next time: check again tomorrow.
                until.unwrap_or(Duration::from_secs(24 * 60 * 60)) + jitter(Duration::from_secs(10))
            }
        }
    }
}

fn jitter(most: Duration) -> Duration {
    most.mul_f64(rand::random::<f64>())
}

impl FromStr for When {
    type Err = WhenError;

    fn from_str(text: &str) -> Result<Self, WhenError> {
        match text.strip_suffix('s').map(str::parse) {
            Some(Ok(0)) => Err(WhenError("an interval must be at least 1 s".to_owned())),
            Some(Ok(secs)) => Ok(Self::every_secs(secs)),
            _ => Cron::parse(text).map(|cron| Self::Cron(Box::new(cron))).map_err(|error| WhenError(error.to_string())),
        }
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(pause) => write!(f, "{}s", pause.as_secs()),
            Self::Cron(cron) => write!(f, "{cron}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_crons_are_read_and_written() {
        for text in ["60s", "1s", "0 3 * * *"] {
            assert_eq!(text.parse::<When>().unwrap().to_string(), text);
        }
        for text in ["", "0s", "-1s", "s", "every day", "61 * * * *"] {
            let reply = text.parse::<When>().unwrap_err().to_string();
            assert!(reply.contains(": write seconds as 60s"), "{text}: {reply}");
        }
    }

    #[test]
    fn a_cron_waits_for_its_local_time() {
        let when: When = "0 3 * * *".parse().unwrap();
        let evening = "2026-03-28T22:00:00Z".parse().unwrap();
        // 03:00 on the day of the transition is 01:00 in UTC.
        let wait = when.next_wait(evening, "Europe/Paris".parse().unwrap());
        assert!((3 * 60 * 60..=3 * 60 * 60 + 10).contains(&wait.as_secs()), "{wait:?}");
    }
}
