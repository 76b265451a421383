//! Step 7 of 7: the secret that signs a team's http actions.

use std::fmt;

/// The secret that signs a team's http actions, `whsec_..`; never printed.
#[derive(Clone, sqlx::Type)]
#[sqlx(transparent)]
pub struct SigningSecret(pub String);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}
