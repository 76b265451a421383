//! Step 4 of 7: the name of a workflow's schedule in EventBridge, `wf-<id>-<env>`.

use std::{fmt, str::FromStr};

use crate::WorkflowId;

/// The deployment's name, `^[a-z0-9-]{1,24}$`: part of every schedule's name.
///
/// ```
/// use schedule::Environment;
/// let env: Environment = "dev".parse()?;
/// assert_eq!(env.as_str(), "dev");
/// # Ok::<(), schedule::EnvironmentError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Environment(String);

/// The text is not an environment's name.
///
/// ```
/// let error = "Dev".parse::<schedule::Environment>().unwrap_err();
/// assert_eq!(error.to_string(), "an environment's name must have 1 to 24 characters of a-z, 0-9 and -");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an environment's name must have 1 to 24 characters of a-z, 0-9 and -")]
pub struct EnvironmentError;

/// The name of a workflow's schedule; at most 47 of EventBridge's 64 characters.
///
/// ```
/// use schedule::{ScheduleName, WorkflowId};
/// let env = "dev".parse()?;
/// assert_eq!(ScheduleName::new(WorkflowId(12), &env).to_string(), "wf-12-dev");
/// # Ok::<(), schedule::EnvironmentError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleName {
    workflow_id: WorkflowId,
    text: String,
}

impl Environment {
    /// The name as text.
    ///
    /// ```
    /// # use schedule::Environment;
    /// assert_eq!("prod".parse::<Environment>()?.as_str(), "prod");
    /// # Ok::<(), schedule::EnvironmentError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Environment {
    type Err = EnvironmentError;

    fn from_str(text: &str) -> Result<Self, EnvironmentError> {
        let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if (1..=24).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(EnvironmentError)
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ScheduleName {
    /// Returns the name of `workflow_id`'s schedule in `env`.
    ///
    /// ```
    /// # use schedule::{ScheduleName, WorkflowId};
    /// let name = ScheduleName::new(WorkflowId(7), &"eu-1".parse()?);
    /// assert_eq!(name.as_str(), "wf-7-eu-1");
    /// # Ok::<(), schedule::EnvironmentError>(())
    /// ```
    pub fn new(workflow_id: WorkflowId, env: &Environment) -> Self {
        Self { workflow_id, text: format!("wf-{workflow_id}-{env}") }
    }

    /// Parses a name found in EventBridge; `None` if it is not a schedule name of `env`.
    ///
    /// Strict, because the sweep deletes schedules with such names: `wf-012-dev` is not one of them.
    ///
    /// ```
    /// # use schedule::{ScheduleName, WorkflowId};
    /// let env = "dev".parse()?;
    /// let ours = ScheduleName::parse("wf-12-dev", &env).map(|name| name.workflow_id());
    /// assert_eq!(ours, Some(WorkflowId(12)));
    /// assert_eq!(ScheduleName::parse("wf-12-prod", &env), None);
    /// # Ok::<(), schedule::EnvironmentError>(())
    /// ```
    pub fn parse(text: &str, env: &Environment) -> Option<Self> {
        let rest = text.strip_prefix("wf-")?.strip_suffix(env.as_str())?.strip_suffix('-')?;
        let workflow_id = rest.parse().ok()?;
        Some(Self { workflow_id, text: text.to_owned() })
    }

    /// The workflow that the name belongs to.
    ///
    /// ```
    /// # use schedule::{ScheduleName, WorkflowId};
    /// let name = ScheduleName::new(WorkflowId(7), &"dev".parse()?);
    /// assert_eq!(name.workflow_id(), WorkflowId(7));
    /// # Ok::<(), schedule::EnvironmentError>(())
    /// ```
    pub fn workflow_id(&self) -> WorkflowId {
        self.workflow_id
    }

    /// The name as text.
    ///
    /// ```
    /// # use schedule::{ScheduleName, WorkflowId};
    /// assert_eq!(ScheduleName::new(WorkflowId(7), &"dev".parse()?).as_str(), "wf-7-dev");
    /// # Ok::<(), schedule::EnvironmentError>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(text: &str) -> Environment {
        text.parse().expect("an environment")
    }

    #[test]
    fn a_name_reads_back_as_itself() {
        for (id, environment) in [(1, "dev"), (i64::MAX, "a-b-c-1"), (12, "12"), (5, "-")] {
            let name = ScheduleName::new(WorkflowId(id), &env(environment));
            assert_eq!(ScheduleName::parse(name.as_str(), &env(environment)), Some(name));
        }
    }

    #[test]
    fn a_stranger_is_not_taken_for_ours() {
        for stranger in
            ["", "wf-dev", "wf--dev", "wf-0-dev", "wf-012-dev", "wf-+1-dev", "wf-1-dev ", "WF-1-dev", "wf-1-2-dev"]
        {
            assert_eq!(ScheduleName::parse(stranger, &env("dev")), None, "{stranger:?}");
        }
    }

    #[test]
    fn an_environment_is_short_and_lower_case() {
        for wrong in ["", "Dev", "a_b", "a b", "é", &"x".repeat(25)] {
            assert_eq!(wrong.parse::<Environment>(), Err(EnvironmentError), "{wrong:?}");
        }
        assert_eq!(env(&"x".repeat(24)).as_str().len(), 24);
    }
}
