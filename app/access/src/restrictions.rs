//! Step 1 of 7: what a key may less than its kind and role permit: fewer scopes, until when, from where.

use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ipnet::IpNet;
use workflows::definition::field::{self, FieldError};

use crate::key::Holder;
use crate::rights::Scope;

/// How many networks a key may name.
const MOST_CIDRS: usize = 50;

/// What a key may less than its kind and role permit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restrictions {
    /// What it permits; `None` = what its kind and role permit.
    pub scopes: Option<Vec<Scope>>,
    /// When it expires; `None` = never.
    pub expires_on: Option<DateTime<Utc>>,
    /// The networks from which it is accepted; `None` = all.
    pub allowed_cidrs: Option<Vec<IpNet>>,
}

impl Restrictions {
    /// Checks these restrictions of a new key.
    ///
    /// # Errors
    /// Returns the field that is not valid.
    pub fn check(&self, holder: Holder, now: DateTime<Utc>) -> Result<(), FieldError> {
        let Self { scopes, expires_on, allowed_cidrs } = self;
        if let Some(scopes) = scopes {
            check_scopes(holder, scopes)?;
        }
        if let Some(expires_on) = expires_on
            && field::check_instant("expires_on", *expires_on)? <= now
        {
            return Err(FieldError::invalid("expires_on", "expires_on must be in the future"));
        }
        match allowed_cidrs.as_ref().map(Vec::len) {
            Some(0) => Err(FieldError::invalid("allowed_cidrs", "name a network, or leave allowed_cidrs out for all")),
            Some(named) if named > MOST_CIDRS => {
                Err(FieldError::invalid("allowed_cidrs", format!("a key has at most {MOST_CIDRS} networks")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Parses a network, or an address, which is a network of one.
///
/// # Errors
/// Fails if it is neither, or if bits after its prefix are set.
pub fn parse_cidr(text: &str) -> Result<IpNet, FieldError> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| {
        FieldError::invalid(
            "allowed_cidrs",
            format!("{text:?} is no network: write it as 10.1.0.0/16 or 2001:db8::/32"),
        )
    })?;
    if let IpNet::V6(v6) = network
        && v6.addr().to_ipv4_mapped().is_some()
    {
        return Err(FieldError::invalid(
            "allowed_cidrs",
            format!("{network} is a network of IPv4: write it as 10.1.0.0/16"),
        ));
    }
    if network != network.trunc() {
        let detail = format!("{network} has bits after its prefix: write {}", network.trunc());
        return Err(FieldError::invalid("allowed_cidrs", detail));
    }
    Ok(network)
}

fn check_scopes(holder: Holder, scopes: &[Scope]) -> Result<(), FieldError> {
    if scopes.is_empty() {
        return Err(FieldError::invalid("scopes", "name a scope, or leave scopes out for all that the key may have"));
    }
    match scopes.iter().find(|scope| !holder.scopes().permits(**scope)) {
        Some(scope) => {
            let detail = format!("a key of this kind and role cannot have the scope {}", scope.as_str());
            Err(FieldError::invalid("scopes", detail))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_parsed() {
        let parsed = |text| parse_cidr(text).map(|network| network.to_string()).map_err(|error| error.detail);
        assert_eq!(parsed("10.1.0.0/16").unwrap(), "10.1.0.0/16");
        assert_eq!(parsed("10.1.2.3").unwrap(), "10.1.2.3/32");
        assert_eq!(parsed("2001:db8::").unwrap(), "2001:db8::/128");
        assert!(parsed("10.1.2.3/16").unwrap_err().contains("write 10.1.0.0/16"));
        assert!(parsed("::ffff:10.0.0.0/104").unwrap_err().contains("is a network of IPv4"));
        for wrong in ["", "10.1.0.0/33", "example.com", "10.1/16", "0.0.0.0/-1"] {
            assert!(parsed(wrong).unwrap_err().contains("is no network"), "{wrong}");
        }
    }
}
