//! Vector clocks: how far each stream had come, as somebody knows it.

/// For each slot, which a stream holds while it is open, the number of the last issue that is known.
/// Slots that are not there are known up to 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    /// How far the slot is known.
    pub(super) fn at(&self, slot: usize) -> u64 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    /// Knows the slot at least so far from now on.
    pub(super) fn advance(&mut self, slot: usize, to: u64) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        if let Some(known) = self.0.get_mut(slot) {
            *known = to.max(*known);
        }
    }

    /// Knows what the other knows as well.
    pub(super) fn join(&mut self, other: &Self) {
        for (slot, &to) in other.0.iter().enumerate() {
            self.advance(slot, to);
        }
    }
}
