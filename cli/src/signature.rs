//! `cronbox signature verify`: checks the signature of a request manually, as a receiver does.

use std::fs;
use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use hmac::{Hmac, KeyInit as _, Mac as _};
use schedule::Clock;
use sha2::Sha256;

use crate::print::print_text;

/// How far the clocks of sender and receiver may differ, as the standard recommends.
const TOLERANCE_SECS: i64 = 300;

/// What can be done with signatures.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Verify the signature of a request; exit 1 if it is not valid.
    Verify(Verify),
}

/// A signed request.
#[derive(Args)]
pub(crate) struct Verify {
    /// The signing secret, whsec_..; better in the environment.
    #[arg(long, env = "CRONBOX_SIGNING_SECRET", hide_env_values = true, value_name = "SECRET",
        value_parser = NonEmptyStringValueParser::new())]
    secret: String,
    /// The header webhook-id.
    #[arg(long, value_name = "ID")]
    id: String,
    /// The header webhook-timestamp, seconds.
    #[arg(long, value_name = "SECONDS")]
    timestamp: i64,
    /// The header webhook-signature.
    #[arg(long, value_name = "SIGNATURE")]
    signature: String,
    /// The file with the body, byte for byte; - for standard input.
    #[arg(long, value_name = "FILE", default_value = "-")]
    body: String,
    /// Also accept a request that was signed more than 5 minutes ago.
    #[arg(long)]
    any_age: bool,
}

/// Why a signature is not valid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The secret is not `whsec_` and base64.
    Secret,
    /// It was signed too long ago, or in the future.
    Age(i64),
    /// No signature fits.
    Signature,
}

/// Runs the command.
pub(crate) fn run_signature(verb: &Verb) -> anyhow::Result<ExitCode> {
    let Verb::Verify(verify) = verb;
    let body = read_body(&verify.body)?;
    let now = if verify.any_age { None } else { Some(Clock::System.now()) };
    match verify_signature(&verify.secret, &verify.id, verify.timestamp, &verify.signature, &body, now) {
        Ok(()) => print_text("the signature is valid\n"),
        Err(Invalid::Secret) => bail!("the secret must be whsec_ and base64, as `cronbox team create` prints it"),
        Err(Invalid::Age(seconds)) => {
            print_text(&format!("not valid: it was signed {seconds} s before now; --any-age accepts that\n"))?;
            Ok(ExitCode::FAILURE)
        }
        Err(Invalid::Signature) => {
            print_text(
                "not valid: no signature fits; check the secret, and that the body is byte for byte as it came\n",
            )?;
            Ok(ExitCode::FAILURE)
        }
    }
}

fn read_body(file: &str) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    match file {
        "-" => std::io::stdin().lock().read_to_end(&mut body).map(|_| body).context("cannot read standard input"),
        file => fs::read(file).with_context(|| format!("cannot read {file}")),
    }
}

/// Verifies a signature of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, with one of several signatures.
///
/// # Errors
/// Returns why it is not valid. Without `now` its age is not checked.
pub(crate) fn verify_signature(
    secret: &str,
    id: &str,
    timestamp: i64,
    signature: &str,
    body: &[u8],
    now: Option<DateTime<Utc>>,
) -> Result<(), Invalid> {
    let key = secret.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok()).ok_or(Invalid::Secret)?;
    let age = now.map_or(0, |now| now.timestamp().saturating_sub(timestamp));
    if age.unsigned_abs() > TOLERANCE_SECS.unsigned_abs() {
        return Err(Invalid::Age(age));
    }
    let signed = [id.as_bytes(), timestamp.to_string().as_bytes(), body].join(&b'.');
    let fits = |one: &str| {
        let sent = one.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
        let mac = Hmac::<Sha256>::new_from_slice(&key).ok().map(|mac| mac.chain_update(&signed));
        sent.zip(mac).is_some_and(|(sent, mac)| mac.verify_slice(&sent).is_ok())
    };
    if signature.split(' ').any(fits) { Ok(()) } else { Err(Invalid::Signature) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;

    fn verify(signature: &str, now: Option<i64>) -> Result<(), Invalid> {
        let now = now.map(|seconds| DateTime::from_timestamp(seconds, 0).unwrap());
        verify_signature(SECRET, ID, 1_614_265_330, signature, BODY, now)
    }

    /// The example of the specification.
    #[test]
    fn the_example_of_the_standard_is_valid() {
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(verify(good, Some(1_614_265_400)), Ok(()));
        assert_eq!(verify(&format!("v1,AAAA {good}"), None), Ok(()));
        assert_eq!(verify(good, Some(1_614_265_331 + 300)), Err(Invalid::Age(301)));
        assert_eq!(verify(good, Some(1_614_265_329 - 300)), Err(Invalid::Age(-301)));
        for bad in ["", "v1,", "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1,AAAA"] {
            assert_eq!(verify(bad, None), Err(Invalid::Signature), "{bad}");
        }
        assert_eq!(verify_signature("hunter2", ID, 0, good, BODY, None), Err(Invalid::Secret));
    }
}
