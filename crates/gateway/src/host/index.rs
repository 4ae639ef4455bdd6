//! The numbers of a server's engines, and of their threads and calls. Uses no Python.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The position of an engine among the engines of its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineIndex {
    /// A number that identifies the engine in the process.
    id: usize,
    /// The index of the engine in its server, and the number of the server's engines.
    pub(crate) index: usize,
    count: usize,
    /// The number, in the server, of the engine's first thread.
    pub(crate) first_worker: usize,
}

thread_local! {
    /// The `id` of the engine for which this thread works, and the index of the thread in this engine.
    static WORKER: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl EngineIndex {
    /// Returns the index of the first of `count` engines. [`Self::next`] returns the others.
    pub(crate) fn first(count: usize) -> Self {
        Self { id: new_id(), index: 0, count, first_worker: 0 }
    }

    /// Returns the index of the engine after this one, which has `workers` threads.
    pub(crate) fn next(self, workers: usize) -> Self {
        Self { id: new_id(), index: self.index + 1, first_worker: self.first_worker + workers, ..self }
    }

    /// Returns true if the server has only this engine.
    pub(crate) fn is_alone(&self) -> bool {
        self.count == 1
    }

    /// Returns the index of this thread in the engine; `None` if the thread does not belong to the engine.
    pub(crate) fn worker(&self) -> Option<usize> {
        WORKER.get().filter(|(id, _)| *id == self.id).map(|(_, worker)| worker)
    }

    /// Registers this thread as the engine's thread `worker`; `None` ends the registration.
    pub(crate) fn set_worker(&self, worker: Option<usize>) {
        WORKER.set(worker.map(|worker| (self.id, worker)));
    }

    /// Returns the number in the server of the engine's thread with the index `worker`.
    pub(crate) fn number_of_worker(&self, worker: usize) -> usize {
        self.first_worker + worker
    }

    /// Returns the number in the server of the engine's `count`-th call. Both numbers start at 1. The numbers of n
    /// engines interleave: engine 0 has 1, n + 1, 2n + 1, …
    pub(super) fn number(&self, count: u64) -> u64 {
        (count - 1) * self.count as u64 + self.index as u64 + 1
    }

    /// Returns the index of the engine, of `engines`, to which the call with this number belongs.
    pub(crate) fn engine_of(number: u64, engines: usize) -> usize {
        // The remainder is smaller than the divisor, which is a `usize`, so the conversion cannot fail.
        usize::try_from(number.saturating_sub(1) % engines as u64).unwrap_or(0)
    }
}

fn new_id() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_calls_of_several_engines_have_different_numbers_that_name_their_engine() {
        let first = EngineIndex::first(3);
        let all = [first, first.next(4), first.next(4).next(2)];
        let mut numbers = Vec::new();
        for engine in &all {
            for count in 1..=5 {
                let number = engine.number(count);
                assert_eq!(EngineIndex::engine_of(number, 3), engine.index);
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=15).collect::<Vec<_>>());
        assert_eq!(all.map(|engine| engine.number_of_worker(1)), [1, 5, 7]);
    }

    #[test]
    fn test_thread_belongs_to_one_engine() {
        let first = EngineIndex::first(2);
        let second = first.next(1);
        first.set_worker(Some(3));
        assert_eq!((first.worker(), second.worker()), (Some(3), None));
        first.set_worker(None);
        assert_eq!(first.worker(), None);
    }
}
