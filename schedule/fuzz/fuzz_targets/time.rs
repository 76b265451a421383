//! Parses any text: the result is a full UTC minute that parses to itself, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use schedule::nominal_time;

fuzz_target!(|text: &str| {
    if let Ok(time) = nominal_time(text) {
        assert_eq!(time.timestamp() % 60, 0);
        assert_eq!(time.timestamp_subsec_nanos(), 0);
        assert_eq!(nominal_time(&time.to_rfc3339()), Ok(time));
    }
});
