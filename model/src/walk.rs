//! Walks through a model at random; a seed repeats its walk.

use stateright::Model;

/// A generator of pseudo-random numbers, so that a seed means the same walk whatever library is updated (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Creates the dice of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let limit = limit as u64;
        // The remainder is below `limit`, which was a usize.
        usize::try_from((mixed ^ (mixed >> 31)) % limit).unwrap_or_default()
    }
}

/// One of the steps from a state; `None` if there is none. `weight` says how often an action is chosen, and is not 0.
pub fn take_step<M: Model>(
    model: &M,
    state: &M::State,
    dice: &mut Dice,
    weight: impl Fn(&M::Action) -> usize,
) -> Option<(M::Action, M::State)> {
    let steps = model.next_steps(state);
    if steps.is_empty() {
        return None;
    }
    let mut drawn = dice.below(steps.iter().map(|(action, _)| weight(action)).sum());
    steps.into_iter().find(|(action, _)| {
        let weight = weight(action);
        let is_drawn = drawn < weight;
        drawn = drawn.saturating_sub(weight);
        is_drawn
    })
}
