//! Steps 1 and 7 of 7: how many unknown keys each address may still try.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::network::network_of;

/// How many addresses are counted one by one. All further ones share the tries of one, so that a flood from many
/// addresses takes little memory.
const MOST_ADDRESSES: usize = 100_000;
/// Under which address the further ones are counted.
const FURTHER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The tries of each address: as many as in a minute at once, then one after another.
#[derive(Debug)]
pub(crate) struct BadKeys {
    per_minute: f64,
    tries: Mutex<HashMap<IpAddr, Tries>>,
}

/// The tries that an address had left at a time.
#[derive(Clone, Copy, Debug)]
struct Tries {
    left: f64,
    at: Instant,
}

impl BadKeys {
    pub(crate) fn new(per_minute: NonZeroU32) -> Self {
        Self { per_minute: per_minute.get().into(), tries: Mutex::default() }
    }

    /// Takes a try of this address; returns whether one was left.
    pub(crate) fn take_try(&self, address: IpAddr, now: Instant) -> bool {
        let mut all = self.lock();
        let network = network_of(address);
        let network = if all.len() < MOST_ADDRESSES || all.contains_key(&network) { network } else { FURTHER };
        let tries = all.entry(network).or_insert(Tries { left: self.per_minute, at: now });
        *tries = Tries { left: self.left(*tries, now), at: now };
        let has_try = tries.left >= 1.0;
        if has_try {
            tries.left -= 1.0;
        }
        has_try
    }

    /// Returns a try: the key was active.
    pub(crate) fn return_try(&self, address: IpAddr) {
        let mut all = self.lock();
        let network = network_of(address);
        let network = if all.contains_key(&network) { network } else { FURTHER };
        if let Some(tries) = all.get_mut(&network) {
            tries.left = (tries.left + 1.0).min(self.per_minute);
        }
    }

    /// Removes addresses that have all their tries.
    pub(crate) fn remove_idle(&self, now: Instant) {
        self.lock().retain(|_, tries| self.left(*tries, now) < self.per_minute);
    }

    fn left(&self, tries: Tries, now: Instant) -> f64 {
        let new = now.saturating_duration_since(tries.at).as_secs_f64() / 60.0 * self.per_minute;
        (tries.left + new).min(self.per_minute)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Tries>> {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(nth: u32) -> IpAddr {
        IpAddr::V4(nth.into())
    }

    #[test]
    fn tries_come_back_with_time() {
        let (bad, began) = (BadKeys::new(NonZeroU32::new(2).unwrap()), Instant::now());
        let take = |secs| bad.take_try(address(1), began + Duration::from_secs(secs));
        assert_eq!([take(0), take(0), take(0)], [true, true, false]);
        assert!(bad.take_try(address(2), began), "another address has its own");
        assert_eq!([take(29), take(31), take(31)], [false, true, false]);
        bad.return_try(address(1));
        assert!(take(31), "the key was active");
        bad.remove_idle(began + Duration::from_secs(300));
        assert!(bad.lock().is_empty());
    }

    #[test]
    fn further_addresses_share_their_tries() {
        let (bad, began) = (BadKeys::new(NonZeroU32::MIN), Instant::now());
        for nth in 1..=MOST_ADDRESSES {
            assert!(bad.take_try(address(u32::try_from(nth).unwrap()), began));
        }
        let further = |nth| bad.take_try(IpAddr::from([203, 0, 113, nth]), began);
        assert_eq!([further(1), further(2)], [true, false]);
        assert!(!bad.take_try(address(7), began), "an address that is counted keeps its count");
        assert_eq!(bad.lock().len(), MOST_ADDRESSES + 1);
    }
}
