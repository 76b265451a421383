//! Step 7 of 7: which ports a request may reach.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ports of other protocols: those that browsers refuse (the Fetch standard, "bad port"), and those of databases, caches,
/// queues and remote desktops.
const OTHER_PROTOCOLS: &[u16] = &[
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109,
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530,
    531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 873, 989, 990, 993, 995, 1433, 1521, 1719, 1720, 1723, 1883,
    2049, 2181, 3268, 3269, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432, 5671, 5672, 5900, 6000, 6379, 6380, 6432,
    6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 8883, 9042, 10080, 11211, 27017, 27018,
];

/// The ports that requests may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// All except those of other protocols.
    #[default]
    Usual,
    /// Only these.
    Listed(Vec<PortRange>),
}

/// One port, or all from one to another: `443`, `8000-8999`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(RangeInclusive<u16>);

/// The text is no port and no range of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPorts;

impl Ports {
    /// Only the listed ports; without any, the usual ones.
    #[must_use]
    pub fn new(listed: Vec<PortRange>) -> Self {
        if listed.is_empty() { Self::Usual } else { Self::Listed(listed) }
    }

    /// Whether a request may reach this port.
    #[must_use]
    pub fn permit(&self, port: u16) -> bool {
        match self {
            Self::Usual => !OTHER_PROTOCOLS.contains(&port),
            Self::Listed(ranges) => ranges.iter().any(|range| range.0.contains(&port)),
        }
    }
}

impl FromStr for PortRange {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or(BadPorts);
        let range = port(first)?..=port(last)?;
        if range.is_empty() { Err(BadPorts) } else { Ok(Self(range)) }
    }
}

impl std::error::Error for BadPorts {}

impl fmt::Display for BadPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a port or a range, for example 443 or 8000-8999")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_are_refused_unless_listed() {
        for port in [22, 25, 3306, 5432, 6379, 11211] {
            assert!(!Ports::default().permit(port), "{port}");
        }
        for port in [80, 443, 444, 3000, 8080, 8443, 9000, 49_152] {
            assert!(Ports::default().permit(port), "{port}");
        }
        let listed = Ports::new(vec!["443".parse().unwrap(), "6000-6400".parse().unwrap()]);
        assert!(listed.permit(443) && listed.permit(6379));
        assert!(!listed.permit(80) && !listed.permit(6401));
        for text in ["", "0", "65536", "9-8", "a", "1-2-3"] {
            assert_eq!(text.parse::<PortRange>(), Err(BadPorts), "{text}");
        }
    }
}
