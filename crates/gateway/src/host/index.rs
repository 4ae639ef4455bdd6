//! The engines of a server, and their threads and calls, by number. No Python here.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The position of an engine among the engines of its server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EngineIndex {
    /// A number that no other engine in the process has.
    id: usize,
    /// The number of the engine in its server, from 0, and the number of engines in the server.
    pub(crate) index: usize,
    count: usize,
    /// The number, in the server, of the engine's first thread.
    pub(crate) first_worker: usize,
}

thread_local! {
    /// The `id` of the engine that this thread works for, and its number among the engine's threads.
    static WORKER: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl EngineIndex {
    /// Returns the index of the first of `count` engines; see [`Self::next`].
    pub(crate) fn first(count: usize) -> Self {
        Self { id: new_id(), index: 0, count, first_worker: 0 }
    }

    /// Returns the index of the next engine. This engine has `workers` threads.
    pub(crate) fn next(self, workers: usize) -> Self {
        Self { id: new_id(), index: self.index + 1, first_worker: self.first_worker + workers, ..self }
    }

    /// Returns true if the server has no other engine.
    pub(crate) fn is_alone(&self) -> bool {
        self.count == 1
    }

    /// Returns the number of this thread among the engine's threads; `None` if it is not one of them.
    pub(crate) fn worker(&self) -> Option<usize> {
        WORKER.get().filter(|(id, _)| *id == self.id).map(|(_, worker)| worker)
    }

    /// Makes this thread the engine's thread `worker`, or with `None` a thread of no engine.
    pub(crate) fn set_worker(&self, worker: Option<usize>) {
        WORKER.set(worker.map(|worker| (self.id, worker)));
    }

    /// Returns the number in the server of the engine's thread `worker`.
    pub(crate) fn number_of_worker(&self, worker: usize) -> usize {
        self.first_worker + worker
    }

    /// Returns the number in the server of the engine's call `count`. Both count from 1, and the numbers of the engines
    /// alternate.
    pub(super) fn number(&self, count: u64) -> u64 {
        (count - 1) * self.count as u64 + self.index as u64 + 1
    }

    /// Returns the index of the engine, among `engines`, to which the call with this number belongs.
    pub(crate) fn engine_of(number: u64, engines: usize) -> usize {
        // A remainder is smaller than the divisor, which is a usize.
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
