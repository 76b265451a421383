//! Steps 1 and 7 of 7: why a due time was not run, why a run ended early, why cronbox paused a workflow.
//!
//! A row stores the code. The sentence is for people and may change; docs/errors.md lists both. Some reasons have a
//! fact, which the row stores after a colon, for example `timed_out:30`.

mod before;

use std::fmt;

pub use api_types::reasons::ReasonCode;

/// A reason: its code, and its fact if its sentence has one. Displays as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The code.
    pub code: ReasonCode,
    fact: String,
}

impl From<ReasonCode> for Reason {
    fn from(code: ReasonCode) -> Self {
        Self { code, fact: String::new() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code.as_str())?;
        if self.fact.is_empty() { Ok(()) } else { write!(f, ":{}", self.fact) }
    }
}

impl Reason {
    /// A reason with its fact, a number.
    #[must_use]
    pub fn with_fact(code: ReasonCode, fact: impl Into<i64>) -> Self {
        Self { code, fact: fact.into().to_string() }
    }

    /// The reason of a time that a freeze has stopped; `text` is what a person wrote about the freeze.
    #[must_use]
    pub fn of_freeze(text: &str) -> Self {
        Self { code: ReasonCode::Frozen, fact: text.to_owned() }
    }

    /// Reads a stored text: a code, or a sentence that the previous version stored. `None`: another text, for example
    /// the error of an action.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        ReasonCode::ALL.into_iter().find_map(|code| {
            let stored = if code.has_fact() { format!("{}:{{}}", code.as_str()) } else { code.as_str().to_owned() };
            Self::by_template(code, &stored, text)
                .or_else(|| Self::by_template(code, before::sentence_before(code), text))
        })
    }

    /// The sentence for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        self.code.sentence().replace("{}", &self.fact)
    }

    /// The sentence that the previous version stored and answered.
    #[must_use]
    pub fn sentence_before(&self) -> String {
        let fact = match self.code {
            ReasonCode::InstanceLostAfterCancel => Self::parse(&self.fact).map(|cause| cause.sentence_before()),
            _ => None,
        };
        before::sentence_before(self.code).replace("{}", fact.as_ref().unwrap_or(&self.fact))
    }

    fn by_template(code: ReasonCode, template: &str, text: &str) -> Option<Self> {
        let Some((start, end)) = template.split_once("{}") else {
            return (text == template).then(|| code.into());
        };
        let fact = text.strip_prefix(start)?.strip_suffix(end)?;
        let fact = match code {
            ReasonCode::InstanceLostAfterCancel => Self::parse(fact)?.to_string(),
            ReasonCode::Frozen => fact.to_owned(),
            _ => fact.parse::<i64>().ok()?.to_string(),
        };
        Some(Self { code, fact })
    }
}

/// Returns the sentence of the previous version and the code of a stored text, as an answer has them. A text that is
/// no reason, or a reason that `may_be` excludes, is returned unchanged.
#[must_use]
pub fn as_answered(
    stored: Option<String>,
    may_be: impl Fn(ReasonCode) -> bool,
) -> (Option<String>, Option<ReasonCode>) {
    let (text, code) = stored.map(|stored| answer_text(stored, may_be)).unzip();
    (text, code.flatten())
}

/// As [`as_answered`], for the `pause_reason` of a workflow: a person has written every other text.
#[must_use]
pub fn answer_pause_reason(stored: String) -> (String, Option<ReasonCode>) {
    answer_text(stored, |code| code == ReasonCode::FailuresInARow)
}

fn answer_text(stored: String, may_be: impl Fn(ReasonCode) -> bool) -> (String, Option<ReasonCode>) {
    match Reason::parse(&stored).filter(|reason| may_be(reason.code)) {
        Some(reason) => (reason.sentence_before(), Some(reason.code)),
        None => (stored, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_old_sentences_are_read_alike() {
        for code in ReasonCode::ALL {
            let reason = match code {
                ReasonCode::Frozen => Reason::of_freeze("Black Friday: no jobs"),
                ReasonCode::InstanceLostAfterCancel => {
                    Reason { code, fact: ReasonCode::ReplacedByLaterRun.as_str().to_owned() }
                }
                _ if code.has_fact() => Reason::with_fact(code, 3),
                _ => code.into(),
            };
            assert_eq!(Reason::parse(&reason.to_string()), Some(reason.clone()), "{reason}");
            assert_eq!(Reason::parse(&reason.sentence_before()), Some(reason.clone()), "{reason}");
        }
    }

    #[test]
    fn another_text_is_no_reason() {
        for text in ["", "the receiver answered 500", "timed_out:", "timed_out:soon", "no answer within 2.0 s"] {
            assert_eq!(Reason::parse(text), None, "{text}");
            assert_eq!(as_answered(Some(text.to_owned()), |_| true), (Some(text.to_owned()), None));
        }
    }

    #[test]
    fn an_answer_has_code_and_old_sentence() {
        let answered = |text: &str| as_answered(Some(text.to_owned()), |_| true);
        let timeout = (Some("no answer within 30 s".to_owned()), Some(ReasonCode::TimedOut));
        assert_eq!(answered("timed_out:30"), timeout);
        assert_eq!(answered("no answer within 30 s"), timeout);
        let lost = Some("the workflow was archived; its instance was lost".to_owned());
        assert_eq!(
            answered("instance_lost_after_cancel:workflow_archived"),
            (lost, Some(ReasonCode::InstanceLostAfterCancel))
        );
    }
}
