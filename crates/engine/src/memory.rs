//! How much memory request bodies take, of all connections together.
//!
//! Each body has its own bound ([`Config::body_memory`](crate::Config::body_memory)); but clients can be many, and those
//! that stop in the middle of an upload hold what they have sent. So whoever keeps a part of a body in memory has a
//! [`Reservation`] for it, which is given back when it is dropped, whatever the way: nobody has to remember it.
//!
//! What counts is the memory that was asked for, not the bytes that lie in it. It counts from the first byte that is
//! kept until the response is complete, because the application has the body until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bound on the memory of request bodies. Clones share it, so that several engines can keep one bound together.
#[derive(Clone, Debug)]
pub struct BodyMemory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    most: usize,
    used: AtomicUsize,
}

impl BodyMemory {
    /// A bound of `most` bytes, of which none is used.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { shared: Arc::new(Shared { most, used: AtomicUsize::new(0) }) }
    }

    /// The bound.
    #[must_use]
    pub fn most(&self) -> usize {
        self.shared.most
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Nothing yet, which can grow.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { memory: self.clone(), bytes: 0 }
    }

    /// A reservation of so many bytes, if there is room for it.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.reservation();
        reservation.resize(bytes).then_some(reservation)
    }

    /// Whether there is room for so many bytes more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|used| used <= self.shared.most)
    }
}

/// Memory that somebody may use. What is dropped is given back.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: BodyMemory,
    bytes: usize,
}

impl Reservation {
    /// Makes it as large as `bytes`. False, and nothing changes, if there is no room for what it lacks.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.force(bytes);
            return true;
        };
        let Shared { most, used } = &*self.memory.shared;
        // Only the number matters: nothing else is published by it.
        let has_room = |used: usize| used.checked_add(more).filter(|after| after <= most);
        let is_given = more == 0 || used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_ok();
        if is_given {
            self.bytes = bytes;
        }
        is_given
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The same for memory that is in use already, or cannot be done without: it goes beyond the bound if need be.
    pub(crate) fn force(&mut self, bytes: usize) {
        let used = &self.memory.shared.used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.force(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_share_a_bound_and_give_back_when_dropped() {
        let memory = BodyMemory::new(100);
        let mut one = memory.reserve(60).unwrap();
        assert!(memory.clone().reserve(41).is_none(), "a clone is the same memory");
        let other = memory.clone().reserve(40).unwrap();
        assert_eq!(memory.used(), 100);
        assert!(!one.resize(61) && memory.used() == 100, "what cannot grow stays as it is");
        assert!(one.resize(10) && memory.used() == 50);
        drop(other);
        assert!(one.resize(100) && !memory.has_room(1) && memory.has_room(0));
        drop(one);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn forced_reservation_counts_beyond_the_bound() {
        let memory = BodyMemory::new(100);
        let mut forced = memory.reservation();
        forced.force(150);
        assert_eq!(memory.used(), 150);
        assert!(memory.reserve(1).is_none());
        assert!(forced.resize(120), "less is always possible");
        drop(forced);
        assert_eq!(memory.used(), 0);
        assert!(memory.reserve(usize::MAX).is_none());
    }

    #[test]
    fn threads_never_go_beyond_the_bound_together() {
        let memory = BodyMemory::new(1000);
        std::thread::scope(|scope| {
            for size in [7, 11, 300, 999] {
                let memory = memory.clone();
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let reservation = memory.reserve(size);
                        assert!(memory.used() <= 1000);
                        drop(reservation);
                    }
                });
            }
        });
        assert_eq!(memory.used(), 0);
    }
}
