//! The thread of the loop that hosts the engine, and the call that it is starting. Any thread may read both.
//!
//! Only the loop's thread writes these data, so no other thread is ever taken for it.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The thread of the hosting loop, and the call that it is starting.
#[derive(Default)]
pub(super) struct Hosting {
    /// The id of the loop's thread; 0 if the loop has not polled yet or if threads poll instead.
    thread: AtomicUsize,
    /// The key of the call that the loop is starting, plus 1; 0 if there is none.
    first_step: AtomicUsize,
}

impl Hosting {
    /// Records this thread as that of the loop.
    pub(super) fn enter(&self) {
        self.thread.store(this_thread(), Ordering::Relaxed);
    }

    /// Returns true if this thread is that of the loop.
    pub(super) fn is_here(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == this_thread()
    }

    /// Sets the key of the call that the loop is starting; `None`: it starts none.
    pub(super) fn set_first_step(&self, key: Option<usize>) {
        self.first_step.store(key.map_or(0, |key| key + 1), Ordering::Relaxed);
    }

    /// Returns the key of the call that the loop is starting.
    pub(super) fn first_step(&self) -> Option<usize> {
        self.first_step.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Returns a number that identifies this thread among all running threads.
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
