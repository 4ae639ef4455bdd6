//! The threads and greenlets that wait for events of WebSockets.
//!
//! The engine keeps only one waiter for each WebSocket. This module lets it represent several sleepers: the call that
//! receives, and any threads that wait until they can send. Any event wakes all of them, and each checks whether its
//! own event has happened.

use super::shared::Waiter;
use engine::Awaited;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The key of a sleeper: the serial number of its WebSocket, and the number of the sleeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SleeperKey {
    serial: u64,
    number: u64,
}

struct Sleeper {
    number: u64,
    awaited: Awaited,
    until: Option<Duration>,
    waiter: Waiter,
}

/// The sleepers of all WebSockets of one engine.
#[derive(Default)]
pub(super) struct Sleepers {
    /// The sleepers, by the serial numbers of their WebSockets.
    of_websockets: HashMap<u64, Vec<Sleeper>>,
    /// The sleepers with a timeout: a map from the end of the timeout and the sleeper's number to the WebSocket's
    /// serial number.
    alarms: BTreeMap<(Duration, u64), u64>,
    /// The number of sleepers that have been added so far.
    count: u64,
}

impl Sleepers {
    /// Adds a sleeper, which waits at most until the monotonic time `until`. Returns its key, and all events for which
    /// sleepers of this WebSocket wait.
    pub(super) fn add(
        &mut self,
        serial: u64,
        awaited: Awaited,
        until: Option<Duration>,
        waiter: Waiter,
    ) -> (SleeperKey, Awaited) {
        self.count += 1;
        let number = self.count;
        let sleepers = self.of_websockets.entry(serial).or_default();
        sleepers.push(Sleeper { number, awaited, until, waiter });
        if let Some(until) = until {
            self.alarms.insert((until, number), serial);
        }
        let all = sleepers.iter().fold(awaited, |all, sleeper| all.or(sleeper.awaited));
        (SleeperKey { serial, number }, all)
    }

    /// Removes a sleeper. Returns its waiter, which the caller must drop while the engine is unlocked; `None` if it was
    /// woken before.
    pub(super) fn remove(&mut self, key: SleeperKey) -> Option<Waiter> {
        let sleepers = self.of_websockets.get_mut(&key.serial)?;
        let at = sleepers.iter().position(|sleeper| sleeper.number == key.number)?;
        let sleeper = sleepers.swap_remove(at);
        if sleepers.is_empty() {
            self.of_websockets.remove(&key.serial);
        }
        self.forget_alarm(&sleeper);
        Some(sleeper.waiter)
    }

    /// Removes all sleepers of a WebSocket. Returns their waiters, which the caller must wake.
    pub(super) fn take(&mut self, serial: u64) -> Vec<Waiter> {
        let sleepers = self.of_websockets.remove(&serial).unwrap_or_default();
        for sleeper in &sleepers {
            self.forget_alarm(sleeper);
        }
        sleepers.into_iter().map(|sleeper| sleeper.waiter).collect()
    }

    /// Removes the sleepers whose timeout has passed. Returns their waiters.
    pub(super) fn take_late(&mut self, now: Duration) -> Vec<Waiter> {
        let mut late = Vec::new();
        while let Some((&(until, number), &serial)) = self.alarms.first_key_value()
            && until <= now
        {
            late.extend(self.remove(SleeperKey { serial, number }));
        }
        late
    }

    /// Returns the end of the earliest timeout; `None` if no sleeper has one.
    #[inline]
    pub(super) fn due(&self) -> Option<Duration> {
        self.alarms.first_key_value().map(|(&(until, _), _)| until)
    }

    fn forget_alarm(&mut self, sleeper: &Sleeper) {
        if let Some(until) = sleeper.until {
            self.alarms.remove(&(until, sleeper.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(waiters: Vec<Waiter>) -> Vec<usize> {
        let number = |waiter: Waiter| match waiter {
            Waiter::Worker(worker) => worker,
            _ => unreachable!("only these were added"),
        };
        waiters.into_iter().map(number).collect()
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn test_sleepers_of_one_websocket_are_woken_together() {
        let mut sleepers = Sleepers::default();
        let (_, first) = sleepers.add(7, Awaited::INPUT, None, Waiter::Worker(1));
        let (_, all) = sleepers.add(7, Awaited::OUTPUT, Some(seconds(5)), Waiter::Worker(2));
        sleepers.add(8, Awaited::INPUT, Some(seconds(3)), Waiter::Worker(3));
        assert_eq!((first, all), (Awaited::INPUT, Awaited::INPUT.or(Awaited::OUTPUT)));
        assert_eq!(sleepers.due(), Some(seconds(3)));
        assert_eq!(workers(sleepers.take(7)), [1, 2]);
        assert_eq!(workers(sleepers.take(7)), [0; 0]);
        assert_eq!(workers(sleepers.take_late(seconds(9))), [3]);
        assert_eq!(sleepers.due(), None);
        assert!(sleepers.of_websockets.is_empty());
    }

    #[test]
    fn test_sleeper_is_late_from_its_moment_on_unless_it_was_removed() {
        let mut sleepers = Sleepers::default();
        let (key, _) = sleepers.add(1, Awaited::INPUT, Some(seconds(1)), Waiter::Worker(1));
        sleepers.add(1, Awaited::INPUT, Some(seconds(1)), Waiter::Worker(2));
        sleepers.add(2, Awaited::INPUT, Some(seconds(2)), Waiter::Worker(3));
        assert!(sleepers.remove(key).is_some());
        assert!(sleepers.remove(key).is_none());
        assert_eq!(workers(sleepers.take_late(Duration::from_millis(999))), [0; 0]);
        assert_eq!(workers(sleepers.take_late(seconds(1))), [2]);
        assert_eq!(workers(sleepers.take_late(seconds(2))), [3]);
    }
}
