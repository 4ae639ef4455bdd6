//! The loop that hosts the engine: its thread, and the call that it begins now. Both may be asked from any thread.
//!
//! Only the thread of the loop changes these data, so no other thread ever counts as the loop's.

use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Default)]
pub(super) struct Hosting {
    /// The thread of the loop; 0 before the loop has polled, and if threads poll instead.
    thread: AtomicUsize,
    /// The key of the call that the loop begins now, plus 1; 0 while it begins none.
    first_step: AtomicUsize,
}

impl Hosting {
    /// Marks this thread as that of the loop.
    pub(super) fn enter(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Returns true in the thread of the loop.
    pub(super) fn is_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// Sets the key of the call that the loop begins now; `None`: it begins none.
    pub(super) fn set_first_step(&self, key: Option<usize>) {
        self.first_step.store(key.map_or(0, |key| key + 1), Ordering::Relaxed);
    }

    /// Returns the key of the call that the loop begins now.
    pub(super) fn first_step(&self) -> Option<usize> {
        self.first_step.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Returns a number that no other running thread has.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_the_thread_that_entered_is_the_loop() {
        let hosting = Hosting::default();
        assert!(!hosting.is_here());
        hosting.enter();
        assert!(hosting.is_here());
        std::thread::scope(|scope| assert!(!scope.spawn(|| hosting.is_here()).join().unwrap()));
    }

    #[test]
    fn test_first_step_has_the_key_of_one_call() {
        let hosting = Hosting::default();
        assert_eq!(hosting.first_step(), None);
        for key in [Some(0), Some(7), None] {
            hosting.set_first_step(key);
            assert_eq!(hosting.first_step(), key);
        }
    }
}
