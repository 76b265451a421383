//! Parses any text: the result is a timezone of exactly that name, or an error that can be displayed.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match schedule::parse_timezone(text) {
        Ok(tz) => assert_eq!(tz.name(), text),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.similar_names().iter().all(|name| schedule::parse_timezone(name).is_ok()));
        }
    }
});
