//! Step 7 of 7: what signs a team's http actions.

use std::fmt;

/// What signs a team's http actions, `whsec_..`; printed by nothing.
#[derive(Clone, sqlx::Type)]
#[sqlx(transparent)]
pub struct SigningSecret(pub(crate) String);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}
