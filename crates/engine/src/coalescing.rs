//! Output that is held back for a moment, because more may follow at once.
//!
//! An application that produces its response in small parts, one soon after the other, would cost a system call for
//! each; so would pipelined requests. What is composed is therefore held while the application works on the next part.
//! But no part may be held back for as long as that takes (PEP 3333, "Buffering and Streaming"): the ticker thread
//! calls [`Engine::tick`](crate::Engine::tick) every [`TICK`] while output is deferred, and what was not touched since
//! the tick before is sent.

use std::time::Duration;

/// How long the application may keep a part waiting.
pub const TICK: Duration = Duration::from_millis(1);

/// Which connections hold output back. One that no longer does is taken out at the next tick.
#[derive(Debug, Default)]
pub(crate) struct DeferredOutput {
    pub(crate) slots: Vec<usize>,
    /// Counts the ticks.
    pub(crate) tick: u64,
}

impl DeferredOutput {
    /// Has every slot looked at once, by `look`, which gets the number of this tick and says whether it still holds.
    pub(crate) fn tick(&mut self, mut look: impl FnMut(usize, u64) -> bool) {
        // What is sent in between and held again stands there once more.
        self.slots.sort_unstable();
        self.slots.dedup();
        self.slots.retain(|&slot| look(slot, self.tick));
        self.tick += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_looked_at_once_in_a_tick() {
        let mut deferred = DeferredOutput::default();
        deferred.slots.extend([3, 1, 3, 2, 1, 3]);
        let mut looked = Vec::new();
        deferred.tick(|slot, tick| {
            looked.push((slot, tick));
            slot != 2
        });
        assert_eq!(looked, [(1, 0), (2, 0), (3, 0)]);
        assert_eq!((deferred.slots, deferred.tick), (vec![1, 3], 1));
    }
}
