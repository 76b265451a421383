//! What the stand-in has in common with the other parts of a process: the clock and the zone data.

use schedule::{Clock, ZoneSet};
use stand_in::FixedClock;
use stand_in::scheduler::zone_files::ZoneFiles;

/// The stand-in's view of a clock: to set either of them sets both.
pub fn stand_in_clock(clock: &Clock) -> stand_in::Clock {
    match clock {
        Clock::System | Clock::Sampled(_) => stand_in::Clock::System,
        Clock::Fixed(clock) => {
            let (read, write) = (clock.clone(), clock.clone());
            stand_in::Clock::Fixed(FixedClock::shared(move || read.now(), move |now| write.set(now)))
        }
    }
}

/// The zone data that this process has installed, read at each use: a change of them changes the next schedules.
pub fn installed_zone_files() -> ZoneFiles {
    ZoneFiles::from_reader(|name| ZoneSet::installed().tzif(name).map(<[u8]>::to_vec))
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};
    use stand_in::scheduler::zone::Zone;

    use super::*;

    #[test]
    fn stand_in_shares_the_clock() {
        let ours = Clock::fixed(DateTime::UNIX_EPOCH);
        let its = stand_in_clock(&ours);
        let (first, second) = (DateTime::UNIX_EPOCH + TimeDelta::days(1), DateTime::UNIX_EPOCH + TimeDelta::days(2));
        ours.set(first);
        assert_eq!(its.now(), first);
        its.set(second);
        assert_eq!(ours.now(), second);
    }

    #[test]
    fn stand_in_reads_the_installed_zone_data() {
        let set = ZoneSet::installed();
        for name in set.names() {
            assert_eq!(installed_zone_files().read_tzif(name).as_deref(), set.tzif(name), "{name}");
            assert_eq!(ZoneFiles::bundled().read_tzif(name).as_deref(), set.tzif(name), "{name}");
            assert!(Zone::by_name(name, &ZoneFiles::bundled()).is_some(), "{name} is refused");
        }
    }
}
