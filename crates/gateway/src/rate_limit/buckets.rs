//! The memory of the rate limits: token buckets in a hash table that all processes of a server share. Uses no Python.
//!
//! A bucket is stored as one time: the moment at which it will be full. A request advances this moment by the time in
//! which one token is added; it is refused if the moment would then be later than an empty bucket needs to fill (the
//! generic cell rate algorithm, ITU-T I.371). So no timer fills buckets, and taking a token is one compare-and-swap: a
//! process that is killed leaves no lock held and no update half done.
//!
//! ```text
//!   head    the secret; whether debts are noted, and whether there are any; how many buckets were given up
//!   set 0   keys of 8 buckets │ when each is full again │ what each owes to other hosts
//!   set 1   ...
//! ```
//!
//! The table has a fixed size. A new client takes over a full bucket of its set, because a full bucket is equivalent to
//! none. If the set has no full bucket, the client takes over the one that will be full first. So clients that flood
//! the table with addresses evict the buckets of clients that have sent little, and an exhausted bucket is evicted
//! last. No client is refused because the table is too small. The secret determines which clients share a set.
//!
//! If two processes change one bucket at the same moment, a request may be counted for the previous client, or not at
//! all.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of buckets in a set. Their keys are in one cache line.
const WAYS: usize = 8;
const SETS: usize = 1 << 14;

const SET: usize = 3 * WAYS;
const HEAD: usize = 8;

// The words of the head. The secret is 0 until the first process has made one. `IS_SHARED` is 1 once a relay tells
// other hosts about taken tokens; `HAS_DEBTS` is 1 if any were taken since the relay last asked.
const SECRET: usize = 0;
const IS_SHARED: usize = 1;
const HAS_DEBTS: usize = 2;
const GIVEN_UP: usize = 3;

/// The words of the memory.
pub(super) type BucketWords = [AtomicU64; HEAD + SETS * SET];

/// The size of the memory in bytes.
pub(crate) const SIZE: usize = size_of::<BucketWords>();

/// The filling rate of a limit's buckets, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The time in which one token is added.
    pub(super) interval: u64,
    /// The time in which an empty bucket becomes full.
    pub(super) whole: u64,
}

/// The buckets in the shared memory.
#[derive(Clone, Copy)]
pub(super) struct Buckets<'a>(pub(super) &'a BucketWords);

/// One set of the hash table: the keys, the times and the debts of its buckets.
struct BucketSet<'a> {
    keys: &'a [AtomicU64],
    full_at: &'a [AtomicU64],
    debts: &'a [AtomicU64],
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn add(word: &AtomicU64, value: u64) {
    word.fetch_add(value, Ordering::Relaxed);
}

/// Replaces `old` by `new`. Returns false if another process has changed the word.
fn replace(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl<'a> Buckets<'a> {
    /// Takes a token from the bucket `key`, which is not 0, at the time `now`.
    ///
    /// # Errors
    /// The number of nanoseconds until the bucket has a token, if it is empty.
    pub(super) fn take(self, key: u64, pace: Pace, now: u64) -> Result<(), u64> {
        let set = self.set(key);
        let place = self.find_or_begin(&set, key, now);
        self.move_on(&set, place, pace, now)
    }

    fn move_on(self, set: &BucketSet<'_>, place: usize, pace: Pace, now: u64) -> Result<(), u64> {
        loop {
            let before = load(&set.full_at[place]);
            let after = before.max(now).saturating_add(pace.interval);
            let latest = now.saturating_add(pace.whole);
            if after > latest {
                return Err(after - latest);
            }
            if replace(&set.full_at[place], before, after) {
                if load(&self.0[IS_SHARED]) != 0 {
                    add(&set.debts[place], pace.interval);
                    store(&self.0[HAS_DEBTS], 1);
                }
                return Ok(());
            }
        }
    }

    /// Puts back a token that was taken from the bucket `key`.
    pub(super) fn give_back(self, key: u64, pace: Pace) {
        let set = self.set(key);
        if let Some(place) = set.find(key) {
            let less = |word: &AtomicU64| {
                word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| {
                    Some(value.saturating_sub(pace.interval))
                })
            };
            less(&set.full_at[place]).ok();
            less(&set.debts[place]).ok();
        }
    }

    /// Returns the index of the bucket of `key` in its set. If `key` has none, takes over another bucket.
    fn find_or_begin(self, set: &BucketSet<'_>, key: u64, now: u64) -> usize {
        loop {
            if let Some(place) = set.find(key) {
                return place;
            }
            let when = |place: &usize| load(&set.full_at[*place]);
            let place = (0..WAYS).min_by_key(when).expect("a set has buckets");
            let (other, full_at) = (load(&set.keys[place]), when(&place));
            if other == key {
                // Another process has just taken over this bucket for the same key, and may have taken tokens.
                return place;
            }
            if !replace(&set.keys[place], other, key) {
                continue;
            }
            if full_at > now {
                add(&self.0[GIVEN_UP], 1);
            }
            store(&set.debts[place], 0);
            // The bucket starts full. If this fails, another process has just taken a token from it.
            replace(&set.full_at[place], full_at, now);
            return place;
        }
    }

    fn set(self, key: u64) -> BucketSet<'a> {
        let start = HEAD + SET * (usize::try_from(mix(key ^ self.secret())).unwrap_or(0) % SETS);
        let words = &self.0[start..start + SET];
        let (keys, rest) = words.split_at(WAYS);
        let (full_at, debts) = rest.split_at(WAYS);
        BucketSet { keys, full_at, debts }
    }

    fn secret(self) -> u64 {
        match load(&self.0[SECRET]) {
            0 => {
                // The standard library's hash keys are random.
                replace(&self.0[SECRET], 0, RandomState::new().build_hasher().finish() | 1);
                load(&self.0[SECRET])
            }
            secret => secret,
        }
    }

    /// Returns how many buckets were evicted before they were full.
    pub(super) fn given_up(self) -> u64 {
        load(&self.0[GIVEN_UP])
    }

    /// Returns the tokens that were taken on this host since the last call: the key of each bucket, and the time in
    /// which these tokens are added again. The recording starts with the first call.
    pub(super) fn take_debts(self) -> Vec<(u64, u64)> {
        store(&self.0[IS_SHARED], 1);
        let mut debts = Vec::new();
        if self.0[HAS_DEBTS].swap(0, Ordering::Relaxed) == 0 {
            return debts;
        }
        for set in self.0[HEAD..].chunks_exact(SET) {
            for place in 0..WAYS {
                if load(&set[2 * WAYS + place]) != 0 {
                    let debt = set[2 * WAYS + place].swap(0, Ordering::Relaxed);
                    debts.push((load(&set[place]), debt));
                }
            }
        }
        debts
    }

    /// Records tokens that were taken on another host: the bucket will be full `debt` nanoseconds later.
    pub(super) fn add_debt(self, key: u64, debt: u64, now: u64) {
        let set = self.set(key);
        let place = self.find_or_begin(&set, key, now);
        let later = |before: u64| Some(before.max(now).saturating_add(debt));
        set.full_at[place].fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).ok();
    }
}

impl BucketSet<'_> {
    fn find(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|other| load(other) == key)
    }
}

/// Mixes the bits of a number (the finalizer of `SplitMix64`). A client may have chosen the number, but does not know
/// the secret in it.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// Two tokens per second, and a capacity of three.
    const PACE: Pace = Pace { interval: SECOND / 2, whole: 3 * SECOND / 2 };
    const NOW: u64 = 1_000 * SECOND;

    fn words() -> Box<BucketWords> {
        let words: Box<[AtomicU64]> = (0..HEAD + SETS * SET).map(|_| AtomicU64::new(0)).collect();
        words.try_into().unwrap_or_else(|_| unreachable!("it has this length"))
    }

    /// Returns keys of one set.
    fn neighbours(buckets: Buckets<'_>) -> impl Iterator<Item = u64> {
        let first = buckets.set(1).keys.as_ptr();
        (1..).filter(move |key| buckets.set(*key).keys.as_ptr() == first)
    }

    #[test]
    fn test_bucket_gives_its_burst_and_then_its_rate() {
        let words = words();
        let buckets = Buckets(&words);
        for _ in 0..3 {
            assert_eq!(buckets.take(7, PACE, NOW), Ok(()));
        }
        assert_eq!(buckets.take(7, PACE, NOW), Err(SECOND / 2));
        assert_eq!(buckets.take(7, PACE, NOW + SECOND / 2 - 1), Err(1));
        assert_eq!(buckets.take(7, PACE, NOW + SECOND / 2), Ok(()));
        assert_eq!(buckets.take(7, PACE, NOW + SECOND / 2), Err(SECOND / 2));
        // A refused request takes no token, and another client has another bucket.
        assert_eq!(buckets.take(8, PACE, NOW), Ok(()));
        // After a long time the bucket is just full.
        let taken = (0..5).filter(|_| buckets.take(7, PACE, NOW + 100 * SECOND).is_ok()).count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn test_token_that_is_given_back_can_be_taken_again() {
        let words = words();
        let buckets = Buckets(&words);
        while buckets.take(7, PACE, NOW).is_ok() {}
        buckets.give_back(7, PACE);
        assert_eq!(buckets.take(7, PACE, NOW), Ok(()));
        assert_eq!(buckets.take(7, PACE, NOW), Err(SECOND / 2));
        buckets.give_back(9, PACE);
    }

    #[test]
    fn test_flood_of_clients_does_not_give_up_the_bucket_that_is_exhausted() {
        let words = words();
        let buckets = Buckets(&words);
        let mut keys = neighbours(buckets);
        let greedy = keys.next().unwrap();
        while buckets.take(greedy, PACE, NOW).is_ok() {}
        for key in keys.take(1_000) {
            assert_eq!(buckets.take(key, PACE, NOW), Ok(()), "nobody is refused for lack of room");
            assert!(buckets.take(greedy, PACE, NOW).is_err());
        }
        assert_eq!(buckets.given_up(), 1_000 - (WAYS as u64 - 1));
    }

    #[test]
    fn test_full_bucket_gives_way_without_being_counted() {
        let words = words();
        let buckets = Buckets(&words);
        for (index, key) in (0..).zip(neighbours(buckets).take(100)) {
            assert_eq!(buckets.take(key, PACE, NOW + index * SECOND), Ok(()));
        }
        assert_eq!(buckets.given_up(), 0);
    }

    #[test]
    fn test_debts_reach_another_host_once() {
        let (words, others) = (words(), words());
        let (here, there) = (Buckets(&words), Buckets(&others));
        assert_eq!(here.take_debts(), []);
        for key in [7, 7, 8] {
            here.take(key, PACE, NOW).unwrap();
        }
        here.take(9, PACE, NOW).unwrap();
        here.give_back(9, PACE);
        let mut debts = here.take_debts();
        debts.sort_unstable();
        assert_eq!(debts, [(7, SECOND), (8, SECOND / 2)]);
        assert_eq!(here.take_debts(), []);
        for (key, debt) in debts {
            there.add_debt(key, debt, NOW);
        }
        assert_eq!(there.take(7, PACE, NOW), Ok(()));
        assert_eq!(there.take(7, PACE, NOW), Err(SECOND / 2));
        assert_eq!(there.take_debts(), [], "what others have taken is not told them");
    }

    #[test]
    fn test_threads_take_no_more_than_there_is() {
        let words = words();
        let pace = Pace { interval: SECOND, whole: 1_000 * SECOND };
        // The bucket exists before the threads start: two that create it at the same moment may count one request too
        // few.
        Buckets(&words).take(7, pace, NOW).unwrap();
        let taken = AtomicU64::new(1);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while Buckets(&words).take(7, pace, NOW).is_ok() {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 1_000);
    }
}
