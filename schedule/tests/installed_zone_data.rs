//! Installs zone data other than the bundled ones. A separate test binary, because a set applies to the complete
//! process.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use schedule::{Cron, Timezone, ZoneSet, parse_timezone};

/// Vancouver with the rules of Los Angeles, which it had until 2026, and no other zone.
fn zones_of_2025() -> ZoneSet {
    let los_angeles = ZoneSet::bundled().tzif("America/Los_Angeles").expect("a zone").to_vec();
    let version = "2025b".parse().expect("a version");
    ZoneSet::from_files(&version, [("America/Vancouver".to_owned(), los_angeles)]).expect("zone data")
}

#[test]
fn installed_zone_data_are_used() {
    let nine = Cron::parse("0 9 * * *").expect("a cron");
    let december: DateTime<Utc> = "2026-12-01T00:00:00Z".parse().expect("a time");
    let hour = |tz: Timezone| nine.next_after(december, tz).expect("a time").format("%R").to_string();
    let before = parse_timezone("America/Vancouver").expect("a timezone");

    ZoneSet::install_set(Arc::new(zones_of_2025()));
    assert_eq!(ZoneSet::installed().version().to_string(), "2025b");
    let installed = parse_timezone("America/Vancouver").expect("a timezone");
    assert_eq!(hour(installed), "17:00");
    assert_eq!(hour(before), "16:00", "what was parsed before keeps its rules");
    assert_ne!(installed, before);
    assert_eq!(parse_timezone("Europe/Paris").expect_err("not in the set").code(), "invalid_timezone");
    assert_eq!(parse_timezone("UTC"), Ok(Timezone::UTC));

    ZoneSet::install_set(ZoneSet::bundled());
    assert_eq!(parse_timezone("America/Vancouver"), Ok(before));
}
