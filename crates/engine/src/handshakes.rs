//! The handshakes under way. Their number is bounded.
//!
//! A handshake that never ends costs its client next to nothing, but the server a descriptor and some KiB. At the bound
//! the oldest handshake is given up for a new one: an ordinary client needs two round trips, so the oldest handshake is
//! the least likely to end. Refusing the new one instead would lock out all clients for as long as a hostile client
//! keeps the bound reached.

use crate::deadline::Millis;
use std::collections::VecDeque;

/// The connections whose handshake is under way.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// The slots of the connections, the oldest first. Removing a slot searches the list, which costs much less than
    /// the handshake itself.
    slots: VecDeque<usize>,
    /// The time of the last report of too many handshakes.
    pub(crate) reported: Option<Millis>,
}

impl Handshakes {
    /// Adds a connection whose handshake begins.
    pub(crate) fn begin(&mut self, slot: usize) {
        self.slots.push_back(slot);
    }

    /// Removes a connection whose handshake has ended, or that is gone.
    pub(crate) fn end(&mut self, slot: usize) {
        if let Some(index) = self.slots.iter().position(|each| *each == slot) {
            self.slots.remove(index);
        }
    }

    /// Removes and returns the connection with the oldest handshake, if there are more than `most`.
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
