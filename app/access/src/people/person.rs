//! Step 1 of 7: a person, as the audit log and the limits know them.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::token::Claims;

/// Characters of a name in the audit log.
const LONGEST_NAME: usize = 128;

/// A person who signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The same for all tokens of the person, another one for each person: made of issuer and subject.
    pub id: Uuid,
    /// `person:<name> (<issuer> <subject>)`: a name for people, and what distinguishes two persons of the same name.
    pub actor: String,
    /// The name in it.
    pub name: String,
}

impl Person {
    /// The person that a token names.
    #[must_use]
    pub fn of_claims(claims: &Claims) -> Self {
        let Claims { issuer, subject, .. } = claims;
        let name = printable(claims.email.as_ref().or(claims.username.as_ref()).unwrap_or(subject));
        let digest: [u8; 32] = Sha256::digest(format!("{issuer}\n{subject}")).into();
        let (first, _) = digest.split_at(16);
        let id = Uuid::from_slice(first).unwrap_or_default();
        Self { id, actor: format!("person:{name} ({issuer} {subject})"), name }
    }
}

/// Without spaces, so that a name cannot look like the end of a name with an issuer behind it.
fn printable(name: &str) -> String {
    let replaced =
        |character: char| if character.is_alphanumeric() || "@.+-_'".contains(character) { character } else { '_' };
    name.chars().take(LONGEST_NAME).map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(issuer: &str, subject: &str, email: Option<&str>, username: Option<&str>) -> Person {
        Person::of_claims(&Claims {
            issuer: issuer.into(),
            subject: subject.into(),
            email: email.map(str::to_owned),
            username: username.map(str::to_owned),
            groups: Vec::new(),
            expires_on: chrono::DateTime::default(),
        })
    }

    #[test]
    fn persons_are_told_apart_by_subject() {
        let ann = person("https://a", "1", Some("ann@example.com"), Some("ann"));
        assert_eq!(ann.actor, "person:ann@example.com (https://a 1)");
        assert_eq!(person("https://a", "1", None, Some("ann")).actor, "person:ann (https://a 1)");
        assert_eq!(person("https://a", "1", None, None).actor, "person:1 (https://a 1)");
        assert_eq!(person("https://a", "1", None, None).id, ann.id, "the same person");
        let other = person("https://a", "2", Some("ann@example.com"), Some("ann"));
        assert!(other.id != ann.id && other.actor != ann.actor);
        assert_ne!(person("https://b", "1", None, None).id, ann.id);
    }

    #[test]
    fn names_forge_no_other_actor() {
        let forged = person("https://a", "2", Some("ann (https://a 1)\nkey:x\u{202e}"), None);
        assert_eq!(forged.actor, "person:ann__https___a_1__key_x_ (https://a 2)");
        let long = person("https://a", "2", Some(&"x".repeat(5_000)), None);
        assert!(long.actor.len() < 200);
    }
}
