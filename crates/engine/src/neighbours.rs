//! Engines that accept from the same listeners and have different threads: who has none left for another call leaves
//! newcomers to one that has, and who has many more connections than another leaves them to that. Otherwise the one
//! that comes first takes all who come together, and a processor has nothing to do.
//!
//! Who has been woken because somebody came may be the only one that was. So a newcomer is not left alone but passed
//! on: the other one is told to look at the listeners. It does the same if it has no thread left by then; where none
//! has, whoever is told takes the newcomer in, and its request waits in the queue.

use crate::os::Waker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The engines that share listeners.
#[derive(Debug)]
pub struct Neighbours {
    seats: Box<[Seat]>,
    /// It has been reported that none takes anybody in, and nobody has been left waiting by any since.
    is_pause_reported: AtomicBool,
}

/// Others write elsewhere, as far as the processors' caches are concerned.
#[derive(Debug)]
#[repr(align(128))]
struct Seat {
    waker: Waker,
    connections: AtomicUsize,
    /// The bound on its connections.
    most_connections: AtomicUsize,
    /// Its threads are spoken for.
    is_full: AtomicBool,
    /// It was told to look at the listeners.
    is_told: AtomicBool,
}

/// One engine among its neighbours.
#[derive(Clone, Debug)]
pub struct Place {
    neighbours: Arc<Neighbours>,
    index: usize,
    /// Calls that its threads can run at a time.
    calls: u64,
}

impl Neighbours {
    /// Of engines whose pollers these wake.
    #[must_use]
    pub fn new(wakers: Vec<Waker>) -> Arc<Self> {
        let seat = |waker| Seat {
            waker,
            connections: AtomicUsize::new(0),
            most_connections: AtomicUsize::new(0),
            is_full: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        };
        Arc::new(Self { seats: wakers.into_iter().map(seat).collect(), is_pause_reported: AtomicBool::new(false) })
    }

    /// The place of the engine that the waker `index` is of, and which can run so many calls at a time.
    #[must_use]
    pub fn place(self: &Arc<Self>, index: usize, calls: usize) -> Place {
        Place { neighbours: Arc::clone(self), index, calls: calls as u64 }
    }
}

impl Place {
    fn seat(&self) -> &Seat {
        &self.neighbours.seats[self.index]
    }

    /// This engine has room for so many connections.
    pub(crate) fn has_room_for(&self, connections: usize) {
        self.seat().most_connections.store(connections, Ordering::Relaxed);
    }

    /// For how many connections all of them have room.
    pub(crate) fn room_of_all(&self) -> usize {
        self.neighbours.seats.iter().map(|seat| seat.most_connections.load(Ordering::Relaxed)).sum()
    }

    /// Takes note of whether somebody waits for whom there is no room; whether that was known. They wait at the same
    /// listeners, whoever finds them.
    pub(crate) fn note_pause(&self, is_pausing: bool) -> bool {
        self.neighbours.is_pause_reported.swap(is_pausing, Ordering::Relaxed)
    }

    /// Whether somebody has told this engine to look at the listeners, since it was asked last.
    pub(crate) fn take_word(&self) -> bool {
        let is_told = &self.seat().is_told;
        // Mostly there is no word, and then others keep the line that they have of it.
        is_told.load(Ordering::Relaxed) && is_told.swap(false, Ordering::Acquire)
    }

    /// Takes note of how many calls this engine has out, or will have to go on with, how many connections it has, and
    /// whether it takes anybody in.
    pub(crate) fn note(&self, calls: u64, connections: usize, is_accepting: bool) {
        let is_full = calls >= self.calls || !is_accepting;
        let seat = self.seat();
        if seat.connections.load(Ordering::Relaxed) != connections {
            seat.connections.store(connections, Ordering::Relaxed);
        }
        if seat.is_full.load(Ordering::Relaxed) != is_full {
            seat.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Passes whoever may wait at the listeners on, if another engine is not full, and this one is, or has many more
    /// connections; whether it has.
    pub(crate) fn pass_on(&self) -> bool {
        let seats = &self.neighbours.seats;
        let others = (1..seats.len()).map(|distance| &seats[(self.index + distance) % seats.len()]);
        let free = others.filter(|seat| !seat.is_full.load(Ordering::Relaxed));
        let Some(other) = free.min_by_key(|seat| seat.connections.load(Ordering::Relaxed)) else { return false };
        let own = self.seat();
        let theirs = other.connections.load(Ordering::Relaxed);
        // To wake somebody for each newcomer would cost more than the difference does.
        let is_much_more = own.connections.load(Ordering::Relaxed) > theirs + 1 + theirs / 4;
        if !is_much_more && !own.is_full.load(Ordering::Relaxed) {
            return false;
        }
        if !other.is_told.swap(true, Ordering::Release) {
            other.waker.wake();
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::os::{Os, Poller};
    use std::time::Duration;

    /// Engines with room for one call each, and what wakes them.
    fn places(count: usize) -> (Vec<Place>, Vec<(Os, Poller)>) {
        let (systems, wakers): (Vec<_>, Vec<_>) =
            (0..count).map(|_| Os::new().unwrap()).map(|(net, poller, waker)| ((net, poller), waker)).unzip();
        let neighbours = Neighbours::new(wakers);
        ((0..count).map(|index| neighbours.place(index, 1)).collect(), systems)
    }

    fn is_woken(poller: &mut Poller) -> bool {
        let mut ready = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        !ready.is_empty()
    }

    #[test]
    fn who_has_room_passes_nobody_on() {
        let (places, mut systems) = places(2);
        assert!(!places[0].pass_on());
        places[1].note(1, 0, true);
        assert!(!places[0].pass_on());
        assert!(!is_woken(&mut systems[0].1) && !is_woken(&mut systems[1].1));
    }

    #[test]
    fn who_is_full_tells_one_that_is_not_and_wakes_it() {
        let (places, mut systems) = places(3);
        places[0].note(1, 0, true);
        places[1].note(0, 0, false);
        assert!(places[0].pass_on());
        assert!(!is_woken(&mut systems[1].1), "one that takes nobody in is as good as full");
        assert!(is_woken(&mut systems[2].1));
        assert!(!places[0].take_word() && !places[1].take_word());
        assert!(places[2].take_word());
        assert!(!places[2].take_word(), "it was told once");
    }

    #[test]
    fn who_has_many_more_connections_passes_newcomers_on() {
        let (places, _systems) = places(3);
        places[0].note(0, 2, true);
        places[2].note(0, 1, true);
        assert!(places[0].pass_on());
        assert!(places[1].take_word() && !places[2].take_word(), "the one that has least is told");
        places[1].note(0, 2, true);
        assert!(!places[0].pass_on(), "one more is not many more");
        places[0].note(0, 1000, true);
        places[1].note(0, 900, true);
        places[2].note(0, 900, true);
        assert!(!places[0].pass_on());
    }

    #[test]
    fn a_pause_is_that_of_all() {
        let (places, _systems) = places(2);
        places[0].has_room_for(3);
        places[1].has_room_for(4);
        assert_eq!(places[0].room_of_all(), 7);
        assert!(!places[0].note_pause(true));
        assert!(places[1].note_pause(true));
        assert!(places[1].note_pause(false));
        assert!(!places[0].note_pause(true), "it began anew");
    }

    #[test]
    fn where_all_are_full_nobody_is_passed_on() {
        let (places, _systems) = places(2);
        for place in &places {
            place.note(2, 0, true);
        }
        assert!(!places[0].pass_on() && !places[1].pass_on());
        places[1].note(0, 0, true);
        assert!(places[0].pass_on() && !places[1].pass_on());
    }
}
