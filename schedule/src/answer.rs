//! Step 6 of 7: which answers to a fire are the app's own.
//!
//! A load balancer, a proxy or a wrong address may answer, too. Such an answer must not count as delivered, because the
//! fire would be lost without an error: the runner would not try again, and an operator's redrive would delete the last
//! copy.

use serde::Deserialize;

/// The app's answer to a fire.
///
/// ```
/// use schedule::Delivered;
/// let answer = br#"{"accepted":false,"reason":"duplicate","run_id":"r1"}"#;
/// assert_eq!(Delivered::parse_answer(200, answer), Some(Delivered::Declined { reason: "duplicate".to_owned() }));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It starts a run.
    Accepted {
        /// The run.
        run_id: Option<String>,
    },
    /// It starts no run, and this decision is recorded.
    Declined {
        /// Why: `duplicate`, `paused`, `not_due`, ..
        reason: String,
    },
    /// The workflow does not exist any more; the app requests the removal of the schedule.
    Gone,
}

#[derive(Deserialize)]
struct Decision {
    accepted: bool,
    run_id: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
}

impl Delivered {
    /// Parses an answer; `None` if it is not the app's.
    ///
    /// ```
    /// use schedule::Delivered;
    /// assert_eq!(Delivered::parse_answer(410, br#"{"code":"workflow_gone"}"#), Some(Delivered::Gone));
    /// assert_eq!(Delivered::parse_answer(404, b"no such page"), None);
    /// ```
    #[must_use]
    pub fn parse_answer(status: u16, body: &[u8]) -> Option<Self> {
        match status {
            200 | 202 => {
                let Decision { accepted, run_id, reason } = serde_json::from_slice(body).ok()?;
                Some(if accepted {
                    Delivered::Accepted { run_id }
                } else {
                    Delivered::Declined { reason: reason.unwrap_or_else(|| "unsaid".to_owned()) }
                })
            }
            410 => {
                let Problem { code } = serde_json::from_slice(body).ok()?;
                (code == "workflow_gone").then_some(Delivered::Gone)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_app_s_answers_count() {
        let accepted = |run_id: Option<&str>| Some(Delivered::Accepted { run_id: run_id.map(str::to_owned) });
        let declined = |reason: &str| Some(Delivered::Declined { reason: reason.to_owned() });
        for (status, body, answer) in [
            (202, r#"{"accepted":true,"run_id":"r1"}"#, accepted(Some("r1"))),
            (200, r#"{"accepted":true}"#, accepted(None)),
            (200, r#"{"accepted":false,"reason":"duplicate","run_id":"r1"}"#, declined("duplicate")),
            (410, r#"{"code":"workflow_gone","title":"gone"}"#, Some(Delivered::Gone)),
            (200, "<html>Welcome to nginx</html>", None),
            (200, r#"{"status":"ok"}"#, None),
            (200, r#"{"accepted":"yes"}"#, None),
            (200, "", None),
            (201, r#"{"accepted":true}"#, None),
            (204, "", None),
            (302, r#"{"accepted":true}"#, None),
            (404, r#"{"code":"not_found"}"#, None),
            (410, "gone", None),
            (410, r#"{"code":"something_else"}"#, None),
            (503, r#"{"accepted":true}"#, None),
        ] {
            assert_eq!(Delivered::parse_answer(status, body.as_bytes()), answer, "{status} {body}");
        }
    }
}
