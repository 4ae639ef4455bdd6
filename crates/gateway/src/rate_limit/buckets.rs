//! The memory of the rate limits: token buckets in a hash table that all processes of a server share. No Python here.
//!
//! A bucket is one time, the moment at which it is full again. A request moves this moment on by the time in which one
//! token comes, and is refused if the moment is then further away than a whole bucket takes to fill (the generic cell
//! rate algorithm, ITU-T I.371). So a bucket needs no clock that fills it, and taking a token is one compare-and-swap: a
//! process that is killed leaves nothing locked and nothing half done.
//!
//! ```text
//!   head    the secret; whether debts are noted, and whether there are any; how many buckets were given up
//!   set 0   keys of 8 buckets │ when each is full again │ what each owes to other hosts
//!   set 1   ...
//! ```
//!
//! The table has a fixed size. A new client takes a bucket of its set that is full, because a full bucket is the same as
//! none. If no bucket of the set is full, it takes the one that will be full first. So clients who flood the table with
//! addresses give up the buckets of those who have sent little, and never that of one who has exhausted it while another
//! has not; and nobody is refused because the table is too small. The secret decides which clients share a set.
//!
//! Two processes that change one bucket at the same moment may count one request for the client before, or not at all.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// The buckets of a set. Their keys are in one cache line.
const WAYS: usize = 8;
const SETS: usize = 1 << 14;

const SET: usize = 3 * WAYS;
const HEAD: usize = 8;

// The head. The secret is 0 until the first process has made one. `IS_SHARED` is 1 once the relay
// tells other hosts what is taken; `HAS_DEBTS` is 1 if anything was taken since the relay looked.
const SECRET: usize = 0;
const IS_SHARED: usize = 1;
const HAS_DEBTS: usize = 2;
const GIVEN_UP: usize = 3;

/// The memory.
pub(super) type BucketWords = [AtomicU64; HEAD + SETS * SET];

/// Bytes of the memory.
pub(crate) const SIZE: usize = size_of::<BucketWords>();

/// How fast the buckets of a limit fill, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// The time in which one token comes.
    pub(super) interval: u64,
    /// The time in which an empty bucket is full.
    pub(super) whole: u64,
}

/// The buckets in the memory.
#[derive(Clone, Copy)]
pub(super) struct Buckets<'a>(pub(super) &'a BucketWords);

/// A set of buckets.
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

/// Replaces `old` by `new`. Returns false if another process was faster.
fn replace(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

impl<'a> Buckets<'a> {
    /// Takes a token of the bucket `key`, which is not 0, at the time `now`.
    ///
    /// # Errors
    /// If the bucket is empty, the nanoseconds until it has a token.
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

    /// Puts back the token that was taken of the bucket `key`.
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

    /// Returns the bucket of `key` in its set: the one that it has, or another that it gets.
    fn find_or_begin(self, set: &BucketSet<'_>, key: u64, now: u64) -> usize {
        loop {
            if let Some(place) = set.find(key) {
                return place;
            }
            let when = |place: &usize| load(&set.full_at[*place]);
            let place = (0..WAYS).min_by_key(when).expect("a set has buckets");
            let (other, full_at) = (load(&set.keys[place]), when(&place));
            if other == key {
                // Another process has just begun it, and has taken tokens of it.
                return place;
            }
            if !replace(&set.keys[place], other, key) {
                continue;
            }
            if full_at > now {
                add(&self.0[GIVEN_UP], 1);
            }
            store(&set.debts[place], 0);
            // It begins full. If this fails, another process has just taken a token of it.
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
                // The standard library's keys are random.
                replace(&self.0[SECRET], 0, RandomState::new().build_hasher().finish() | 1);
                load(&self.0[SECRET])
            }
            secret => secret,
        }
    }

    /// Returns how many buckets were given up before they were full.
    pub(super) fn given_up(self) -> u64 {
        load(&self.0[GIVEN_UP])
    }

    /// Returns what was taken on this host since the last call: the key of each bucket, and the time that its tokens
    /// take to come. The first call begins to note that.
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

    /// Notes what was taken on another host: the bucket is full again so many nanoseconds later.
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

/// Spreads the bits of a number (the finalizer of `SplitMix64`). A client may have chosen them, except the secret in it.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// Two tokens in a second, and three at once.
    const PACE: Pace = Pace { interval: SECOND / 2, whole: 3 * SECOND / 2 };
    const NOW: u64 = 1_000 * SECOND;

    fn words() -> Box<BucketWords> {
        let words: Box<[AtomicU64]> = (0..HEAD + SETS * SET).map(|_| AtomicU64::new(0)).collect();
        words.try_into().unwrap_or_else(|_| unreachable!("it has this length"))
    }

    /// Keys of one set.
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
        // A refused request takes nothing, and another client has another bucket.
        assert_eq!(buckets.take(8, PACE, NOW), Ok(()));
        // After a long time the bucket is full, not more.
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
        // It exists before the threads come: two that begin a bucket at the same moment may count one request too few.
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
