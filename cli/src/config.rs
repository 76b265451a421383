//! The environment: the only reader of variables that are no options.

use std::ffi::OsString;

/// The value of a variable, unless it is empty.
#[expect(clippy::disallowed_methods, reason = "the one place that reads them")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The value of a variable as text; `None`: it is not set, or it is no Unicode.
#[expect(clippy::disallowed_methods, reason = "the one place that reads them")]
pub(crate) fn text_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
