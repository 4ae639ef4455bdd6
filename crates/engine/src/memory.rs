//! The limit on the memory of all request bodies together. WebSocket messages and encoders have limits of the same
//! type.
//!
//! Each body has its own limit ([`Config::body_memory`](crate::Config::body_memory)). But there can be many clients,
//! and the bytes of a client that stops in the middle of an upload stay in memory. So each part of a body in memory
//! belongs to a [`Reservation`], which gives its bytes back when it is dropped, on every path.
//!
//! A reservation counts allocated bytes, not used ones. It lasts from the first stored byte until the response is
//! complete, because the application holds the body until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the memory of request bodies, messages or encoders. Clones share the limit, so that several engines can
/// have a common one.
#[derive(Clone, Debug)]
pub struct BodyMemory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    most: usize,
    used: AtomicUsize,
    /// The maximum number of bytes in use since [`BodyMemory::has_fallen`] last returned true.
    peak: AtomicUsize,
}

impl BodyMemory {
    /// Creates a limit of `most` bytes, of which none is used.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { shared: Arc::new(Shared { most, used: AtomicUsize::new(0), peak: AtomicUsize::new(0) }) }
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn most(&self) -> usize {
        self.shared.most
    }

    /// Returns the number of bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes in use since [`has_fallen`](Self::has_fallen) last returned true.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// Returns true if the number of bytes in use has fallen by at least `bytes` from the peak, and then starts a new
    /// peak. The caller should then make the allocator return free memory to the system.
    #[must_use]
    pub fn has_fallen(&self, bytes: usize) -> bool {
        let Shared { used, peak, .. } = &*self.shared;
        let used = used.load(Ordering::Relaxed);
        let has_fallen = peak.load(Ordering::Relaxed).saturating_sub(used) >= bytes;
        if has_fallen {
            peak.store(used, Ordering::Relaxed);
        }
        has_fallen
    }

    /// Returns an empty reservation.
    pub(crate) fn reservation(&self) -> Reservation {
        Reservation { memory: self.clone(), bytes: 0 }
    }

    /// Returns a reservation of `bytes` bytes; `None` if they would exceed the limit.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let mut reservation = self.reservation();
        reservation.resize(bytes).then_some(reservation)
    }

    fn note_peak(&self) {
        let Shared { used, peak, .. } = &*self.shared;
        let used = used.load(Ordering::Relaxed);
        if used > peak.load(Ordering::Relaxed) {
            peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Returns true if `bytes` more bytes would stay within the limit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used().checked_add(bytes).is_some_and(|used| used <= self.shared.most)
    }
}

/// A number of bytes in use, counted in a limit. Dropping the reservation gives them back.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: BodyMemory,
    bytes: usize,
}

impl Reservation {
    /// Resizes the reservation to `bytes`. Returns false and changes nothing if that would exceed the limit.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.force(bytes);
            return true;
        };
        let Shared { most, used, .. } = &*self.memory.shared;
        // `Relaxed` is enough: the counter publishes no other memory.
        let has_room = |used: usize| used.checked_add(more).filter(|after| after <= most);
        let is_given = more == 0 || used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room).is_ok();
        if is_given {
            self.bytes = bytes;
            self.memory.note_peak();
        }
        is_given
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Resizes the reservation to `bytes`, beyond the limit if necessary: for memory that is already in use or
    /// indispensable.
    pub(crate) fn force(&mut self, bytes: usize) {
        let used = &self.memory.shared.used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
            self.memory.note_peak();
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
    fn reservations_share_a_limit_and_return_bytes_when_dropped() {
        let memory = BodyMemory::new(100);
        let mut one = memory.reserve(60).unwrap();
        assert!(memory.clone().reserve(41).is_none(), "a clone shares the limit");
        let other = memory.clone().reserve(40).unwrap();
        assert_eq!(memory.used(), 100);
        assert!(!one.resize(61) && memory.used() == 100, "a failed resize changes nothing");
        assert!(one.resize(10) && memory.used() == 50);
        drop(other);
        assert!(one.resize(100) && !memory.has_room(1) && memory.has_room(0));
        drop(one);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn fall_from_the_peak_is_reported_once() {
        let memory = BodyMemory::new(100);
        let mut reservation = memory.reserve(60).unwrap();
        reservation.resize(30);
        assert!(!memory.has_fallen(40));
        reservation.resize(20);
        assert!(memory.has_fallen(40) && !memory.has_fallen(40));
        reservation.force(90);
        drop(reservation);
        assert!(memory.has_fallen(90) && !memory.has_fallen(1));
    }

    #[test]
    fn forced_reservation_counts_beyond_the_limit() {
        let memory = BodyMemory::new(100);
        let mut forced = memory.reservation();
        forced.force(150);
        assert_eq!(memory.used(), 150);
        assert!(memory.reserve(1).is_none());
        assert!(forced.resize(120), "shrinking always succeeds");
        drop(forced);
        assert_eq!(memory.used(), 0);
        assert!(memory.reserve(usize::MAX).is_none());
    }

    #[test]
    fn threads_together_never_exceed_the_limit() {
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
