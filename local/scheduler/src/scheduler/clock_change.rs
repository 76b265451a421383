//! Step 5 of 7: what a schedule does with a local time that the clocks skip or repeat.
//!
//! The source is AWS's user guide of EventBridge Scheduler, page "Schedule types", on daylight saving time:
//!
//! | the local time | what AWS says | here |
//! |---|---|---|
//! | does not exist, in a gap | "If a cron expression falls on a non-existent date and time, your schedule invocation is skipped" | no fire |
//! | comes twice, in a fold | the schedule "runs only once and does not repeat"; the example of 2:30 in Los Angeles runs "before the shift occurs" | one fire, at the first instance |
//! | in UTC | no adjustment | the time itself |
//!
//! AWS says nothing about a cron with many times in that hour, for example each 5 minutes. Read literally, the repeated
//! hour gets no fire, which is [`Fold::First`]. [`Fold::Both`] is the other reading, for tests of a client that
//! must be right with either. AWS says nothing about `at(...)` in a gap or a fold; it follows the rule of a cron. A
//! `rate(...)` counts elapsed time, so no clock change concerns it.

use chrono::{DateTime, NaiveDateTime, Utc};

use super::zone::Zone;

/// What happens to a time that occurs twice in the autumn fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fold {
    /// It fires once, at the first instance: AWS's documented rule.
    #[default]
    First,
    /// It fires at both instances, as AWS would if it followed elapsed time.
    Both,
}

impl Fold {
    /// Returns the instants at which a schedule fires for a local time, in ascending order; none in a gap.
    pub fn fire_times(self, wall: NaiveDateTime, zone: &Zone) -> impl Iterator<Item = DateTime<Utc>> + use<> {
        let most = match self {
            Fold::First => 1,
            Fold::Both => 2,
        };
        zone.instants_at(wall).take(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::zone_files::ZoneFiles;

    fn fire_times(zone: &str, wall: &str, fold: Fold) -> Vec<String> {
        let zone = Zone::by_name(zone, &ZoneFiles::bundled()).unwrap();
        fold.fire_times(wall.parse().unwrap(), &zone).map(|at| at.format("%FT%RZ").to_string()).collect()
    }

    #[test]
    fn no_rule_fires_in_a_gap() {
        for fold in [Fold::First, Fold::Both] {
            assert_eq!(fire_times("America/Los_Angeles", "2026-03-08T02:30:00", fold), [""; 0]);
            assert_eq!(fire_times("America/Los_Angeles", "2026-03-08T03:00:00", fold), ["2026-03-08T10:00Z"]);
        }
    }

    /// AWS's example is 2:30; the clocks of Los Angeles repeat the hour from 1:00 to 2:00.
    #[test]
    fn fold_fires_before_the_shift() {
        let wall = "2026-11-01T01:30:00";
        assert_eq!(fire_times("America/Los_Angeles", wall, Fold::First), ["2026-11-01T08:30Z"]);
        let both = ["2026-11-01T08:30Z", "2026-11-01T09:30Z"];
        assert_eq!(fire_times("America/Los_Angeles", wall, Fold::Both), both);
        assert_eq!(fire_times("America/Los_Angeles", "2026-11-01T02:30:00", Fold::Both), ["2026-11-01T10:30Z"]);
    }
}
