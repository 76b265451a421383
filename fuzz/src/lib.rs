//! The properties of the attacks on parsers, for libFuzzer: each panics if its property does not hold.

#[path = "../../tests/security/properties.rs"]
mod properties;

/// As `judge_cursor`.
pub fn expect_cursor(text: &str) {
    if let Err(what) = properties::judge_cursor(text) {
        panic!("{what}");
    }
}

/// As `judge_key`.
pub fn expect_key(text: &str) {
    if let Err(what) = properties::judge_key(text) {
        panic!("{what}");
    }
}

/// As `judge_url`.
pub fn expect_url(text: &str) {
    if let Err(what) = properties::judge_url(text) {
        panic!("{what}");
    }
}

/// As `judge_references`.
pub fn expect_reference(text: &str) {
    if let Err(what) = properties::judge_references(text) {
        panic!("{what}");
    }
}

/// As `judge_action`.
pub fn expect_action(text: &str) {
    if let Err(what) = properties::judge_action(text) {
        panic!("{what}");
    }
}
