//! Step 1 of 7: the public keys of the provider, by which it signs tokens (RFC 7517).

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

/// How many keys a provider may publish.
const MOST_KEYS: usize = 100;

/// An algorithm that a token may be signed with. A symmetric one is none of them: its key would be public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signing {
    /// RSA with SHA-256.
    Rs256,
    /// P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

/// The keys of a provider that this app can use.
#[derive(Clone, Debug)]
pub struct KeySet(Vec<PublicKey>);

/// A public key of the provider.
#[derive(Clone, Debug)]
pub struct PublicKey {
    kid: Option<String>,
    numbers: Numbers,
}

/// The numbers of a key.
#[derive(Clone, Debug)]
enum Numbers {
    /// Modulus and exponent, from 2048 to 8192 bits.
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// The result of a search for the key of a token.
#[derive(Clone, Copy, Debug)]
pub enum KeySearch<'a> {
    /// It is this one.
    Found(&'a PublicKey),
    /// There is none.
    Unknown,
    /// Several fit, so none is used.
    Ambiguous,
}

/// One key as the provider publishes it. Other members are ignored.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

impl Signing {
    /// Parses the `alg` of a token or of a key.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

impl KeySet {
    /// Parses the document at `jwks_uri`. Keys that this app cannot use are left out.
    ///
    /// # Errors
    /// Returns why the document is not used: then the keys before it stay.
    pub fn parse(document: &[u8]) -> Result<Self, &'static str> {
        let Document { keys } = serde_json::from_slice(document).map_err(|_| "the keys are not a JWKS")?;
        if keys.len() > MOST_KEYS {
            return Err("the provider has more than 100 keys");
        }
        let jwks = keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let usable: Vec<PublicKey> = jwks.filter_map(PublicKey::of_jwk).collect();
        if usable.is_empty() { Err("the provider has no key for RS256, ES256 or EdDSA") } else { Ok(Self(usable)) }
    }

    /// Finds the key of a token. A token without a `kid` names the only key of its algorithm.
    #[must_use]
    pub fn find_key(&self, kid: Option<&str>, signing: Signing) -> KeySearch<'_> {
        let fits = |key: &&PublicKey| key.signing() == signing && (kid.is_none() || key.kid.as_deref() == kid);
        let mut fitting = self.0.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (None, _) => KeySearch::Unknown,
            (Some(only), None) => KeySearch::Found(only),
            (Some(_), Some(_)) => KeySearch::Ambiguous,
        }
    }
}

impl PublicKey {
    /// Whether this key signed the message. A key that is too small or no key at all signed nothing.
    #[must_use]
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match &self.numbers {
            Numbers::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Numbers::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature),
            Numbers::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }

    fn signing(&self) -> Signing {
        match self.numbers {
            Numbers::Rsa { .. } => Signing::Rs256,
            Numbers::P256(_) => Signing::Es256,
            Numbers::Ed25519(_) => Signing::EdDsa,
        }
    }

    fn of_jwk(jwk: Jwk) -> Option<Self> {
        if jwk.purpose.as_deref().is_some_and(|purpose| purpose != "sig")
            || jwk.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify"))
        {
            return None;
        }
        let numbers = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", None) => Numbers::Rsa { n: decode_number(jwk.n)?, e: decode_number(jwk.e)? },
            ("EC", Some("P-256")) => {
                // 4: both coordinates follow.
                Numbers::P256([vec![4], decode_bytes(jwk.x, 32)?, decode_bytes(jwk.y, 32)?].concat())
            }
            ("OKP", Some("Ed25519")) => Numbers::Ed25519(decode_bytes(jwk.x, 32)?),
            _ => return None,
        };
        let key = Self { kid: jwk.kid, numbers };
        let is_for_it = jwk.alg.is_none_or(|alg| Signing::parse(&alg) == Some(key.signing()));
        is_for_it.then_some(key)
    }
}

/// A number without its leading zeros, which some providers send.
fn decode_number(text: Option<String>) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text?).ok()?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    bytes.get(first..).map(<[u8]>::to_vec)
}

fn decode_bytes(text: Option<String>, length: usize) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok().filter(|bytes| bytes.len() == length)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn ed(kid: &str) -> serde_json::Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": X})
    }

    fn parsed(keys: serde_json::Value) -> Result<KeySet, &'static str> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_is_found_by_its_id() {
        let keys = parsed(json!([ed("a"), ed("b"), {"kty": "RSA", "kid": "a", "n": "AQAB", "e": "AQAB"}])).unwrap();
        assert!(matches!(keys.find_key(Some("a"), Signing::EdDsa), KeySearch::Found(_)));
        assert!(matches!(keys.find_key(Some("a"), Signing::Rs256), KeySearch::Found(_)), "another type of key");
        assert!(matches!(keys.find_key(Some("c"), Signing::EdDsa), KeySearch::Unknown));
        assert!(matches!(keys.find_key(Some("b"), Signing::Es256), KeySearch::Unknown));
        assert!(matches!(keys.find_key(None, Signing::Rs256), KeySearch::Found(_)), "the only one");
        assert!(matches!(keys.find_key(None, Signing::EdDsa), KeySearch::Ambiguous));
        let twice = parsed(json!([ed("a"), ed("a")])).unwrap();
        assert!(matches!(twice.find_key(Some("a"), Signing::EdDsa), KeySearch::Ambiguous));
    }

    /// A symmetric key in a public document is no key, and neither is one for encryption or for another algorithm.
    #[test]
    fn keys_for_other_uses_are_left_out() {
        let with = |member: &str, value: serde_json::Value| {
            let mut key = ed("a");
            key[member] = value;
            key
        };
        for key in [
            json!({"kty": "oct", "kid": "a", "k": "c2VjcmV0"}),
            json!({"kty": "EC", "crv": "P-384", "kid": "a", "x": X, "y": X}),
            json!({"kty": "OKP", "crv": "X25519", "kid": "a", "x": X}),
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("alg", json!("HS256")),
            with("alg", json!("RS256")),
            with("x", json!("no base64!")),
            with("kid", json!(7)),
        ] {
            assert_eq!(parsed(json!([key])).unwrap_err(), "the provider has no key for RS256, ES256 or EdDSA", "{key}");
        }
    }

    /// RFC 8037, appendix A.4.
    #[test]
    fn only_the_message_of_the_key_is_verified() {
        let keys = parsed(json!([ed("a")])).unwrap();
        let KeySearch::Found(key) = keys.find_key(Some("a"), Signing::EdDsa) else { panic!("no key") };
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(key.has_signed(message, &signature));
        assert!(!key.has_signed(b"another", &signature) && !key.has_signed(message, &[]));
        let small = Numbers::Rsa { n: vec![255; 128], e: vec![1, 0, 1] };
        assert!(!PublicKey { kid: None, numbers: small }.has_signed(message, &[1; 128]), "1024 bits");
    }

    #[test]
    fn documents_that_are_no_jwks_are_refused() {
        for document in ["", "{}", "[]", r#"{"keys":{}}"#, r#"{"keys":[]}"#, "<html>"] {
            assert!(KeySet::parse(document.as_bytes()).is_err(), "{document}");
        }
        let many: Vec<_> = (0..101).map(|nth| ed(&nth.to_string())).collect();
        assert_eq!(parsed(many.into()).unwrap_err(), "the provider has more than 100 keys");
    }
}
