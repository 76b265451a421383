//! Step 6 of 7: whether the app has refused a key.

use serde_json::Value;

/// Whether an answer says that the app does not know the key.
#[must_use]
pub fn refuses_key(status: u16, body: &[u8]) -> bool {
    status == 401 || is_rate_limited(status, body)
}

/// Whether the app refuses the key because its address has tried too many unknown keys. While others do that, a key that was
/// rotated gets this answer instead of 401, and the new key for some seconds, too.
#[must_use]
pub fn is_rate_limited(status: u16, body: &[u8]) -> bool {
    let problem = || serde_json::from_slice::<Value>(body).ok();
    status == 429 && problem().is_some_and(|problem| problem["code"] == "rate_limited")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A proxy's 429 says nothing about the key.
    #[test]
    fn only_the_app_refuses_keys() {
        assert!(refuses_key(401, b""));
        assert!(refuses_key(429, br#"{"code":"rate_limited"}"#));
        assert!(!refuses_key(429, b"slow down") && !refuses_key(403, b"") && !refuses_key(503, b""));
    }
}
