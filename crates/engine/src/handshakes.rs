//! The handshakes under way, whose number is bounded.
//!
//! A handshake that does not end costs its client next to nothing, and the server a descriptor and some KiB. At the bound
//! the oldest is given up for a new one: an ordinary client needs two round trips, so the oldest is the one that is least
//! likely to end. Refusing the new one instead would lock out all clients as long as a hostile one keeps the bound
//! reached.

use crate::deadline::Millis;
use std::collections::VecDeque;

/// The connections whose handshake is under way.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Their slots, the oldest first. Removing one searches for it, which costs much less than the handshake itself.
    slots: VecDeque<usize>,
    /// The time when it was reported that there were too many.
    pub(crate) reported: Option<Millis>,
}

impl Handshakes {
    /// Adds a connection whose handshake begins.
    pub(crate) fn begin(&mut self, slot: usize) {
        self.slots.push_back(slot);
    }

    /// Removes a connection whose handshake is over, or that is gone.
    pub(crate) fn end(&mut self, slot: usize) {
        if let Some(index) = self.slots.iter().position(|each| *each == slot) {
            self.slots.remove(index);
        }
    }

    /// Removes and returns the oldest one if there are more than `most`.
    pub(crate) fn take_surplus(&mut self, most: usize) -> Option<usize> {
        if self.slots.len() > most { self.slots.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_handshakes_are_surplus() {
        let mut handshakes = Handshakes::default();
        for slot in [4, 1, 3, 2] {
            handshakes.begin(slot);
        }
        handshakes.end(1);
        handshakes.end(7);
        assert_eq!(handshakes.take_surplus(3), None);
        assert_eq!(handshakes.take_surplus(2), Some(4));
        assert_eq!(handshakes.take_surplus(1), Some(3));
        assert_eq!(handshakes.take_surplus(1), None);
    }
}
