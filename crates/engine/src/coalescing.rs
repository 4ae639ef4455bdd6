//! Deferred output: output that the engine holds back for a short time because more may follow immediately.
//!
//! An application that produces its response in small parts in quick succession would cost a system call for each part;
//! so would pipelined requests. The engine therefore holds back composed output while the application works on the next
//! part. But no part may be delayed until the next one is ready (PEP 3333, "Buffering and Streaming"). So the ticker
//! thread calls [`Engine::tick`](crate::Engine::tick) every millisecond while output is deferred, and the engine sends
//! all output that has not changed since the previous tick.

/// The connections that hold back output. A slot may be stale; the next tick then removes it.
#[derive(Debug, Default)]
pub(crate) struct DeferredOutput {
    pub(crate) slots: Vec<usize>,
    /// The number of ticks so far.
    pub(crate) tick: u64,
}

impl DeferredOutput {
    /// Calls `look` once for every slot, with the number of this tick. `look` returns true if the connection still
    /// holds back output.
    pub(crate) fn tick(&mut self, mut look: impl FnMut(usize, u64) -> bool) {
        // A connection that has sent its output and then deferred more is in the list twice.
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
