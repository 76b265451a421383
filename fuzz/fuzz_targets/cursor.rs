//! Any text: see `judge_cursor` in `tests/security/properties.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| parser_fuzz::expect_cursor(text));
