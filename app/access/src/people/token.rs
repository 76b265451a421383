//! Step 1 of 7: verifies the token of a person: a JWT (RFC 7519), signed by the provider for this app and for now.
//!
//! Access tokens and id tokens are accepted, because both name their audience. A token that is bound to a key of its
//! client (`cnf`) is refused: the app could not check the binding. The reason is for the log, never for the client.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::jwks::{KeySearch, KeySet, PublicKey, Signing};

/// The largest token in bytes.
pub const LARGEST_TOKEN: usize = 16 * 1024;
/// By how many seconds the clocks of the provider and of this app may differ.
pub const LEEWAY_SECS: i64 = 60;
/// OIDC permits no longer `sub`.
const LONGEST_SUBJECT: usize = 255;

/// Which tokens are for this app.
#[derive(Clone, Debug)]
pub struct TokenRules {
    /// The provider: `iss` is exactly this.
    pub issuer: String,
    /// This app: `aud` names it.
    pub audience: String,
    /// The claim with the groups: a name, or a JSON pointer as `/realm_access/roles`.
    pub groups_claim: String,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has more than 16 KiB.
    TooLarge,
    /// It is not three parts, of which two are JSON objects with claims of the right types.
    Malformed,
    /// It is not signed by RS256, ES256 or `EdDSA`.
    Algorithm,
    /// Its header has `crit`, which names what a reader must know.
    Critical,
    /// Its `typ` says that it is something else.
    Type,
    /// Another provider issued it, or none.
    Issuer,
    /// It is for another app.
    Audience,
    /// It names no end.
    NoEnd,
    /// It has ended.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It was issued in the future.
    IssuedInFuture,
    /// It has no `sub`, or one that OIDC does not permit.
    Subject,
    /// It is bound to a key of its client.
    Bound,
    /// The provider has no such key.
    UnknownKey,
    /// The provider has several such keys.
    AmbiguousKey,
    /// The signature is not that of the provider's key.
    Signature,
}

impl Refusal {
    /// The reason in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Critical => "critical_header",
            Self::Type => "type",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::NoEnd => "no_end",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::IssuedInFuture => "issued_in_future",
            Self::Subject => "subject",
            Self::Bound => "bound_to_a_key",
            Self::UnknownKey => "unknown_key",
            Self::AmbiguousKey => "ambiguous_key",
            Self::Signature => "signature",
        }
    }
}

/// A token whose claims are for this app and for now, and whose signature is not verified yet.
#[derive(Debug)]
pub struct UnverifiedToken<'a> {
    message: &'a str,
    signature: Vec<u8>,
    kid: Option<String>,
    signing: Signing,
    nonce: Option<String>,
    claims: Claims,
}

/// What a token says about a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The provider.
    pub issuer: String,
    /// The id of the person at the provider.
    pub subject: String,
    /// The address, if the provider does not say that it is not verified.
    pub email: Option<String>,
    /// The name that the person signs in with.
    pub username: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// The end of the token.
    pub expires_on: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// The claims with a type. One of them that is there twice is an error; of other claims, such as groups, the last counts.
#[derive(Deserialize)]
struct Registered {
    iss: Option<String>,
    sub: Option<String>,
    aud: Option<Audience>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    cnf: Option<Value>,
    email: Option<String>,
    email_verified: Option<Value>,
    preferred_username: Option<String>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl<'a> UnverifiedToken<'a> {
    /// Parses a token, and checks all that needs no key.
    ///
    /// # Errors
    /// Returns why it is refused.
    pub fn parse(token: &'a str, rules: &TokenRules, now: DateTime<Utc>) -> Result<Self, Refusal> {
        if token.len() > LARGEST_TOKEN {
            return Err(Refusal::TooLarge);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Refusal::Malformed)?;
        let (header, payload) = message.split_once('.').ok_or(Refusal::Malformed)?;
        let header: Header = decode_part(header)?;
        let signing = check_header(&header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Refusal::Malformed)?;
        let registered: Registered = decode_part(payload)?;
        let expires_on = check_claims(&registered, rules, now)?;
        let nonce = registered.nonce.clone();
        let claims = Claims::of(registered, decode_part(payload)?, rules, expires_on)?;
        Ok(Self { message, signature, kid: header.kid, signing, nonce, claims })
    }

    /// What ties an id token to one sign-in.
    #[must_use]
    pub fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }

    /// Finds the provider's key of this token.
    fn find_key<'k>(&self, keys: &'k KeySet) -> KeySearch<'k> {
        keys.find_key(self.kid.as_deref(), self.signing)
    }

    /// Whether the provider may have signed it by a key that is not among these: it names one that is not, or it names
    /// none, and the only one that it can mean did not sign it.
    #[must_use]
    pub fn may_need_other_keys(&self, keys: &KeySet) -> bool {
        match self.find_key(keys) {
            KeySearch::Unknown => true,
            KeySearch::Found(key) => self.kid.is_none() && !self.is_signed_by(key),
            KeySearch::Ambiguous => false,
        }
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// Returns why the token is refused.
    pub fn verify(self, keys: &KeySet) -> Result<Claims, Refusal> {
        let key = match self.find_key(keys) {
            KeySearch::Found(key) => key,
            KeySearch::Unknown => return Err(Refusal::UnknownKey),
            KeySearch::Ambiguous => return Err(Refusal::AmbiguousKey),
        };
        if self.is_signed_by(key) { Ok(self.claims) } else { Err(Refusal::Signature) }
    }

    fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.has_signed(self.message.as_bytes(), &self.signature)
    }
}

fn decode_part<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, Refusal> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| Refusal::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| Refusal::Malformed)
}

fn check_header(header: &Header) -> Result<Signing, Refusal> {
    let signing = Signing::parse(&header.alg).ok_or(Refusal::Algorithm)?;
    if header.crit.is_some() {
        return Err(Refusal::Critical);
    }
    let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
    match kind.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ)) {
        // `at+jwt` is an access token (RFC 9068).
        None | Some("jwt" | "at+jwt") => Ok(signing),
        Some(_) => Err(Refusal::Type),
    }
}

/// Returns the end of the token.
fn check_claims(claims: &Registered, rules: &TokenRules, now: DateTime<Utc>) -> Result<DateTime<Utc>, Refusal> {
    if claims.iss.as_deref() != Some(&*rules.issuer) {
        return Err(Refusal::Issuer);
    }
    let is_for_this_app = match &claims.aud {
        Some(Audience::One(one)) => *one == rules.audience,
        Some(Audience::Several(several)) => several.contains(&rules.audience),
        None => false,
    };
    if !is_for_this_app {
        return Err(Refusal::Audience);
    }
    if claims.cnf.is_some() {
        return Err(Refusal::Bound);
    }
    let expires_on = instant_of(claims.exp.ok_or(Refusal::NoEnd)?)?;
    let (begins_on, issued_on) = (claims.nbf.map(instant_of).transpose()?, claims.iat.map(instant_of).transpose()?);
    let leeway = chrono::TimeDelta::seconds(LEEWAY_SECS);
    if has_ended(expires_on, now) {
        return Err(Refusal::Expired);
    }
    if begins_on.is_some_and(|begins_on| begins_on > now + leeway) {
        return Err(Refusal::NotYetValid);
    }
    if issued_on.is_some_and(|issued_on| issued_on > now + leeway) {
        return Err(Refusal::IssuedInFuture);
    }
    Ok(expires_on)
}

/// Whether a token with this end is refused now.
#[must_use]
pub fn has_ended(expires_on: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    expires_on + chrono::TimeDelta::seconds(LEEWAY_SECS) <= now
}

/// A `NumericDate`: seconds since 1970, of which some providers send fractions. Until the year 9999.
fn instant_of(seconds: f64) -> Result<DateTime<Utc>, Refusal> {
    if !(0.0..253_402_300_800.0).contains(&seconds) {
        return Err(Refusal::Malformed);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked above")]
    let whole = seconds as i64;
    DateTime::from_timestamp(whole, 0).ok_or(Refusal::Malformed)
}

impl Claims {
    fn of(
        claims: Registered,
        all: Map<String, Value>,
        rules: &TokenRules,
        expires_on: DateTime<Utc>,
    ) -> Result<Self, Refusal> {
        let is_permitted = |sub: &String| {
            (1..=LONGEST_SUBJECT).contains(&sub.len()) && sub.bytes().all(|byte| matches!(byte, 32..=126))
        };
        let subject = claims.sub.filter(is_permitted).ok_or(Refusal::Subject)?;
        // Some providers send the boolean as a text.
        let is_unverified = matches!(claims.email_verified, Some(Value::Bool(false)))
            || claims.email_verified.as_ref().and_then(Value::as_str) == Some("false");
        Ok(Self {
            issuer: rules.issuer.clone(),
            subject,
            email: claims.email.filter(|_| !is_unverified),
            username: claims.preferred_username,
            groups: groups_of(&Value::Object(all), &rules.groups_claim),
            expires_on,
        })
    }
}

/// The texts of the claim; a claim of another type is no group.
fn groups_of(claims: &Value, claim: &str) -> Vec<String> {
    let found = if claim.starts_with('/') { claims.pointer(claim) } else { claims.get(claim) };
    match found {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(|group| group.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> TokenRules {
        TokenRules { issuer: "https://id.example".into(), audience: "cronbox".into(), groups_claim: "groups".into() }
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn token(header: &Value, claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(&header.to_string()), part(claims), part("signature"))
    }

    fn good() -> Value {
        json!({"iss": "https://id.example", "sub": "s1", "aud": "cronbox", "exp": 1_800_000_300, "iat": 1_800_000_000,
               "groups": ["a", 7, "b"]})
    }

    fn parse(header: &Value, claims: &Value) -> Result<Claims, Refusal> {
        let token = token(header, &claims.to_string());
        UnverifiedToken::parse(&token, &rules(), now()).map(|token| token.claims)
    }

    fn parse_with(claim: &str, value: Value) -> Result<Claims, Refusal> {
        let mut claims = good();
        claims[claim] = value;
        parse(&json!({"alg": "RS256"}), &claims)
    }

    #[test]
    fn only_asymmetric_algorithms_are_accepted() {
        for alg in ["RS256", "ES256", "EdDSA"] {
            assert!(parse(&json!({ "alg": alg }), &good()).is_ok());
        }
        for alg in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "RS384", "PS256", "ES384", "rs256", "ES256K"]
        {
            assert_eq!(parse(&json!({ "alg": alg }), &good()), Err(Refusal::Algorithm), "{alg}");
        }
        assert_eq!(parse(&json!({}), &good()), Err(Refusal::Malformed));
        assert_eq!(parse(&json!({"alg": ["RS256"]}), &good()), Err(Refusal::Malformed));
    }

    #[test]
    fn other_types_of_tokens_are_refused() {
        for typ in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
            assert!(parse(&json!({"alg": "RS256", "typ": typ}), &good()).is_ok(), "{typ}");
        }
        for typ in ["logout+jwt", "dpop+jwt", "JOSE", ""] {
            assert_eq!(parse(&json!({"alg": "RS256", "typ": typ}), &good()), Err(Refusal::Type), "{typ}");
        }
        assert_eq!(parse(&json!({"alg": "RS256", "crit": ["exp"]}), &good()), Err(Refusal::Critical));
        assert_eq!(parse_with("cnf", json!({"jkt": "x"})), Err(Refusal::Bound));
    }

    #[test]
    fn times_have_a_leeway_of_a_minute() {
        let at = |claim, offset: i64| parse_with(claim, json!(1_800_000_000 + offset)).map(drop);
        assert_eq!((at("exp", -59), at("exp", -60)), (Ok(()), Err(Refusal::Expired)));
        assert_eq!((at("nbf", 60), at("nbf", 61)), (Ok(()), Err(Refusal::NotYetValid)));
        assert_eq!((at("iat", 60), at("iat", 61)), (Ok(()), Err(Refusal::IssuedInFuture)));
        assert_eq!(parse_with("exp", Value::Null), Err(Refusal::NoEnd));
        for value in [json!(-1), json!(1e300), json!("1800000300"), json!([1])] {
            assert_eq!(parse_with("exp", value.clone()), Err(Refusal::Malformed), "{value}");
        }
        assert!(parse_with("exp", json!(1_800_000_000.5)).is_ok(), "a fraction");
    }

    #[test]
    fn issuer_audience_and_subject_are_exact() {
        for iss in [json!("https://id.example/"), json!("https://ID.example"), json!(""), Value::Null] {
            assert_eq!(parse_with("iss", iss.clone()), Err(Refusal::Issuer), "{iss}");
        }
        for aud in [json!("cronbox2"), json!("Cronbox"), json!([]), json!(["other"]), Value::Null] {
            assert_eq!(parse_with("aud", aud.clone()), Err(Refusal::Audience), "{aud}");
        }
        assert!(parse_with("aud", json!(["other", "cronbox"])).is_ok());
        for sub in [json!(""), Value::Null, json!("é"), json!("a\nb"), json!("x".repeat(256))] {
            assert_eq!(parse_with("sub", sub.clone()), Err(Refusal::Subject), "{sub}");
        }
    }

    #[test]
    fn repeated_claims_are_refused() {
        let twice = good().to_string().replacen('{', r#"{"iss":"https://evil.example","#, 1);
        let token = token(&json!({"alg": "RS256"}), &twice);
        assert_eq!(UnverifiedToken::parse(&token, &rules(), now()).unwrap_err(), Refusal::Malformed);
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in ["", ".", "..", "...", "a.b.c", "e30.e30.", "e30", &"[".repeat(4_000), "e30=.e30=.e30="] {
            assert_eq!(UnverifiedToken::parse(text, &rules(), now()).unwrap_err(), Refusal::Malformed, "{text}");
        }
        let bomb = token(&json!({"alg": "RS256"}), &format!("{}{}", "[".repeat(5_000), "]".repeat(5_000)));
        assert_eq!(UnverifiedToken::parse(&bomb, &rules(), now()).unwrap_err(), Refusal::Malformed);
        let large = "a".repeat(LARGEST_TOKEN + 1);
        assert_eq!(UnverifiedToken::parse(&large, &rules(), now()).unwrap_err(), Refusal::TooLarge);
    }

    #[test]
    fn groups_are_texts_of_the_claim() {
        assert_eq!(parse_with("x", json!(1)).unwrap().groups, ["a", "b"]);
        assert_eq!(parse_with("groups", json!("one")).unwrap().groups, ["one"]);
        assert!(parse_with("groups", json!({"a": 1})).unwrap().groups.is_empty());
        let nested = json!({"realm": {"roles": ["deep"]}, "/realm/roles": ["no"]});
        assert_eq!(groups_of(&nested, "/realm/roles"), ["deep"]);
        assert!(groups_of(&nested, "realm.roles").is_empty());
    }

    #[test]
    fn unverified_addresses_are_no_names() {
        let email = |verified: Value| {
            let mut claims = good();
            claims["email"] = json!("a@example.com");
            claims["email_verified"] = verified;
            parse(&json!({"alg": "RS256"}), &claims).unwrap().email
        };
        assert_eq!((email(json!(false)), email(json!("false"))), (None, None));
        assert_eq!(
            (email(json!(true)).as_deref(), email(Value::Null).as_deref()),
            (Some("a@example.com"), Some("a@example.com"))
        );
    }
}
