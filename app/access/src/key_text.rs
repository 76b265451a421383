//! Step 1 of 7: the text of a key, which scanners for leaked secrets can verify without the app.
//!
//! | part | characters | content |
//! |---|---|---|
//! | kind | 4 | `cba_` admin, `cbt_` team, `cbs_` scheduler |
//! | id | 12 | finds the row; random |
//! | secret | 43 | 256 random bits |
//! | checksum | 6 | CRC-32 of all characters before it |
//!
//! The last three are numbers to the base 62 (`0-9A-Za-z`) with leading zeros. A key of version 0.1 is
//! `cb_<12 hex>_<43 base64url>`; it has no checksum and no kind, and stays valid.

use crate::rights::Kind;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const KIND_LENGTH: usize = 4;
const ID_LENGTH: usize = 12;
/// 62^43 is above 2^256.
const SECRET_LENGTH: usize = 43;
/// 62^6 is above 2^32.
const CHECKSUM_LENGTH: usize = 6;
const LENGTH: usize = KIND_LENGTH + ID_LENGTH + SECRET_LENGTH + CHECKSUM_LENGTH;
/// A random secret has fewer different characters in one of 10^12 cases.
const DIFFERENT_AT_LEAST: usize = 16;

/// A text with the form of a key, and with a correct checksum if its form has one.
#[derive(Clone, Copy)]
pub struct KeyText<'a> {
    text: &'a str,
    prefix: &'a str,
    kind: Option<Kind>,
}

impl<'a> KeyText<'a> {
    /// Parses a key; `None` for another form or a wrong checksum.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<Self> {
        if !text.is_ascii() {
            return None;
        }
        parse_checked(text).or_else(|| parse_unchecked(text))
    }

    /// The public part, by which the row is found.
    #[must_use]
    pub fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// The complete key.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The kind that the text says; `None` for a key of version 0.1.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Whether the secret has too few different characters to be random.
    pub(crate) fn is_weak(&self) -> bool {
        let mut characters = self.text.as_bytes()[KIND_LENGTH + ID_LENGTH..LENGTH - CHECKSUM_LENGTH].to_vec();
        characters.sort_unstable();
        characters.dedup();
        characters.len() < DIFFERENT_AT_LEAST
    }
}

/// Makes the text of a new key.
#[must_use]
pub fn make_key_text(kind: Kind) -> String {
    let id = base_62(&rand::random::<[u8; 32]>());
    let secret = base_62(&rand::random::<[u8; 32]>());
    // The last digits of a random number are uniform; its first ones are not.
    add_checksum(format!("{}{}{secret}", word(kind), &id[SECRET_LENGTH - ID_LENGTH..]))
}

/// Completes the text of a key that has no checksum yet.
#[must_use]
pub fn add_checksum(checked: String) -> String {
    let checksum = checksum_of(&checked);
    checked + &checksum
}

fn parse_checked(text: &str) -> Option<KeyText<'_>> {
    let kind = [Kind::Admin, Kind::Team, Kind::Scheduler].into_iter().find(|kind| text.starts_with(word(*kind)))?;
    if text.len() != LENGTH || !text[KIND_LENGTH..].bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let (checked, checksum) = text.split_at(LENGTH - CHECKSUM_LENGTH);
    let prefix = &text[..KIND_LENGTH + ID_LENGTH];
    (checksum_of(checked) == checksum).then_some(KeyText { text, prefix, kind: Some(kind) })
}

fn parse_unchecked(text: &str) -> Option<KeyText<'_>> {
    let (prefix, secret) = text.strip_prefix("cb_")?.split_once('_')?;
    (prefix.len() == ID_LENGTH && secret.len() == SECRET_LENGTH).then_some(KeyText { text, prefix, kind: None })
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Admin => "cba_",
        Kind::Team => "cbt_",
        Kind::Scheduler => "cbs_",
    }
}

/// CRC-32 as in zip and gzip, to the base 62.
fn checksum_of(checked: &str) -> String {
    let digits = base_62(&crc32fast::hash(checked.as_bytes()).to_be_bytes());
    digits[SECRET_LENGTH - CHECKSUM_LENGTH..].to_owned()
}

/// A number of at most 256 bits, of which the highest byte is first, in 43 digits.
fn base_62(bytes: &[u8]) -> String {
    let mut digits = [0_u8; SECRET_LENGTH];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in digits.iter_mut().rev() {
            carry += u32::from(*digit) << 8;
            // A remainder by 62 is a byte.
            *digit = u8::try_from(carry % 62).unwrap_or_default();
            carry /= 62;
        }
    }
    digits.iter().map(|digit| char::from(DIGITS[usize::from(*digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of docs/keys.md, which Python's `zlib.crc32` has computed.
    const EXAMPLE: &str = "cbt_0000Example0ThisKeyOpensNothingItIsForTheDocumentation12ewVI5";

    #[test]
    fn numbers_have_their_digits() {
        assert_eq!(base_62(&[]), "0".repeat(43));
        assert_eq!(base_62(&[61]), format!("{}z", "0".repeat(42)));
        assert_eq!(base_62(&[1, 0]), format!("{}48", "0".repeat(41)), "256 = 4 * 62 + 8");
        // Python: 2**256 - 1
        assert_eq!(base_62(&[0xff; 32]), "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
    }

    #[test]
    fn made_keys_are_parsed() {
        for kind in [Kind::Admin, Kind::Team, Kind::Scheduler] {
            let text = make_key_text(kind);
            assert_eq!(text.len(), 65);
            let parsed = KeyText::parse(&text).unwrap();
            assert_eq!((parsed.kind(), parsed.prefix(), parsed.is_weak()), (Some(kind), &text[..16], false));
        }
        assert_ne!(make_key_text(Kind::Team)[4..16], make_key_text(Kind::Team)[4..16]);
        assert!(KeyText::parse(&add_checksum(format!("cba_{}", "0".repeat(55)))).unwrap().is_weak());
    }

    /// A checksum of 32 bits finds each change of one character, and each swap of neighbours.
    #[test]
    fn changed_keys_are_refused() {
        assert!(KeyText::parse(EXAMPLE).is_some());
        for at in 0..EXAMPLE.len() {
            for digit in ["0", "A", "z", "_", "-"] {
                let changed = format!("{}{digit}{}", &EXAMPLE[..at], &EXAMPLE[at + 1..]);
                assert_eq!(KeyText::parse(&changed).is_some(), changed == EXAMPLE, "{changed}");
            }
        }
        for at in 0..EXAMPLE.len() - 1 {
            let mut swapped = EXAMPLE.as_bytes().to_owned();
            swapped.swap(at, at + 1);
            let swapped = String::from_utf8(swapped).unwrap();
            assert_eq!(KeyText::parse(&swapped).is_some(), swapped == EXAMPLE, "{swapped}");
        }
        for changed in ["", "cba_", &EXAMPLE[..64], &format!("{EXAMPLE}0"), &EXAMPLE.replace("cbt_", "cba_")] {
            assert!(KeyText::parse(changed).is_none(), "{changed}");
        }
        assert!(KeyText::parse(&EXAMPLE.replacen('0', "\u{e9}", 1)).is_none());
    }

    #[test]
    fn keys_of_version_0_1_are_parsed() {
        let secret = "s".repeat(43);
        let text = format!("cb_0123456789ab_{secret}");
        let parsed = KeyText::parse(&text).unwrap();
        assert_eq!((parsed.prefix(), parsed.kind(), parsed.text()), ("0123456789ab", None, text.as_str()));
        for wrong in ["cb_", "cb_0123456789ab_short", "xx_0123456789ab_", &format!("cb_short_{secret}")] {
            assert!(KeyText::parse(wrong).is_none(), "{wrong:?}");
        }
    }
}
