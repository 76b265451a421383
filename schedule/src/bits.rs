//! A set of up to 256 small numbers: the values of one field of a cron.

/// The numbers 0 to 255, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Bits([u64; 4]);

impl Bits {
    /// The numbers from `first` to `last`, both included.
    pub(crate) fn from_range(first: u32, last: u32) -> Self {
        let mut set = Self::default();
        for value in first..=last {
            set.insert(value);
        }
        set
    }

    pub(crate) fn insert(&mut self, value: u32) {
        self.0[value as usize / 64] |= 1 << (value % 64);
    }

    pub(crate) fn remove(&mut self, value: u32) {
        self.0[value as usize / 64] &= !(1 << (value % 64));
    }

    pub(crate) fn contains(self, value: u32) -> bool {
        self.0.get(value as usize / 64).is_some_and(|word| word & (1 << (value % 64)) != 0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    pub(crate) fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The numbers in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = u32> {
        let mut next = self.first_from(0);
        std::iter::from_fn(move || {
            let value = next?;
            next = self.first_from(value + 1);
            Some(value)
        })
    }

    /// The smallest number that is at least `from`.
    pub(crate) fn first_from(self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.0.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// The largest number that is at most `to`.
    pub(crate) fn last_to(self, to: u32) -> Option<u32> {
        let to = to.min(255);
        let mut word = to as usize / 64;
        let mut bits = self.0[word] & (u64::MAX >> (63 - to % 64));
        while bits == 0 {
            word = word.checked_sub(1)?;
            bits = self.0[word];
        }
        Some(word as u32 * 64 + 63 - bits.leading_zeros())
    }

    /// The numbers below 64 as bits of a `u64`.
    pub(crate) fn low_bits(self) -> u64 {
        self.0[0]
    }
}

impl From<u64> for Bits {
    fn from(low: u64) -> Self {
        Self([low, 0, 0, 0])
    }
}

impl From<u32> for Bits {
    fn from(low: u32) -> Self {
        Self::from(u64::from(low))
    }
}

impl FromIterator<u32> for Bits {
    fn from_iter<I: IntoIterator<Item = u32>>(values: I) -> Self {
        let mut set = Self::default();
        for value in values {
            set.insert(value);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_found_across_words() {
        let set: Bits = [0, 63, 64, 200, 255].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 200, 255]);
        assert_eq!((set.first_from(65), set.first_from(201), set.first_from(256)), (Some(200), Some(255), None));
        assert_eq!((set.last_to(199), set.last_to(62), set.last_to(999)), (Some(64), Some(0), Some(255)));
        assert_eq!(Bits::default().last_to(255), None);
        assert_eq!(Bits::from_range(62, 65).len(), 4);
        assert!(set.contains(255) && !set.contains(254) && !set.contains(256));
    }
}
