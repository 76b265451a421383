//! Step 7 of 7: the secrets that sign a team's http actions.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// What the text of a secret begins with.
const PREFIX: &str = "whsec_";
/// The salt of the derivation; another purpose would have another one.
const RECEIVER: &[u8] = b"cronbox receiver secret 1";

/// The secret that signs a team's http actions, `whsec_..`; never printed.
#[derive(Clone, sqlx::Type)]
#[sqlx(transparent)]
pub struct SigningSecret(pub String);

impl SigningSecret {
    /// Returns the key of the signature; `None` unless the text is `whsec_` and base64.
    #[must_use]
    pub fn decode_key(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.0.strip_prefix(PREFIX)?).ok()
    }

    /// Returns the secret of one receiver: HKDF-SHA256 of this secret and the origin of the URL. A receiver that knows it
    /// can neither compute this secret nor that of another receiver. `None` unless this is a valid secret.
    #[must_use]
    pub fn derive_for_receiver(&self, origin: &str) -> Option<Self> {
        let extracted = Salt::new(HKDF_SHA256, RECEIVER).extract(&self.decode_key()?);
        let mut derived = Zeroizing::new([0; 32]);
        extracted.expand(&[origin.as_bytes()], HKDF_SHA256).ok()?.fill(&mut *derived).ok()?;
        Some(Self(format!("{PREFIX}{}", STANDARD.encode(*derived))))
    }
}

/// Signs as Standard Webhooks defines, <https://www.standardwebhooks.com>: HMAC-SHA256 over the parts, with a dot between two.
/// Returns a signature of each secret, separated by blanks; `None` if a secret is not `whsec_` and base64.
///
/// The parts of a webhook are its id, its time in seconds since 1970, and its body.
#[must_use]
pub fn sign_by_all(secrets: &[SigningSecret], parts: &[&[u8]]) -> Option<String> {
    let signed = parts.join(&b'.');
    let signatures = secrets.iter().map(|secret| {
        let key = hmac::Key::new(HMAC_SHA256, &secret.decode_key()?);
        Some(format!("v1,{}", STANDARD.encode(hmac::sign(&key, &signed))))
    });
    Some(signatures.collect::<Option<Vec<_>>>()?.join(" "))
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification, which its own libraries test too.
    #[test]
    fn the_example_of_the_standard_is_signed() {
        let secret = SigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let parts: [&[u8]; 3] = [b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", br#"{"test": 2432232314}"#];
        let signature = sign_by_all(&[secret], &parts).unwrap();
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(sign_by_all(&[SigningSecret("no secret".to_owned())], &parts), None);
    }

    #[test]
    fn each_origin_has_its_own_secret() {
        let team = SigningSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let [a, again, b] = ["https://a.example", "https://a.example", "https://b.example"]
            .map(|origin| team.derive_for_receiver(origin).unwrap().0);
        assert!(a == again && a != b && a != team.0);
        assert!(SigningSecret("no secret".to_owned()).derive_for_receiver("https://a.example").is_none());
    }
}
