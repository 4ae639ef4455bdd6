//! A bounded cache for byte strings that recur, such as header lines, field names and targets.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Longer byte strings are not cached.
const KEY_AT_MOST: usize = 512;

/// Maps byte strings that were seen at least twice to their converted values. The hash of a string selects a pair of
/// slots, and the string is stored in one of the two. With a single slot, two strings of every request that share it
/// would evict each other for ever; with 30 lines and 1,024 slots that happens to one process in three.
///
/// A string is stored when it is seen a second time before another string claims its slot. So strings that occur once
/// (ids, tokens) do not evict those that recur. A client can fill the table with useless strings but cannot enlarge it.
#[derive(Debug)]
pub(crate) struct Table<V> {
    slots: Box<[Slot<V>]>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Slot<V> {
    /// The hash of the string that last claimed the slot.
    claim: u64,
    hash: u64,
    entry: Option<(Box<[u8]>, V)>,
}

/// The hash of a missing string, with which it can be [offered](Table::offer).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy {
    hash: u64,
}

impl<V> Table<V> {
    /// Creates a table with `slots` slots. `slots` must be a power of two and at least 2; otherwise this panics.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two() && slots >= 2);
        let slots = (0..slots).map(|_| Slot { claim: 0, hash: 0, entry: None }).collect();
        Self { slots, hasher: RandomState::default() }
    }

    /// Returns the value of `key`, or a [`Vacancy`] with which the caller can [`offer`](Self::offer) the value.
    pub(crate) fn get(&self, key: &[u8]) -> Result<&V, Vacancy> {
        let hash = self.hasher.hash_one(key);
        let first = self.pair(hash);
        for slot in &self.slots[first..first + 2] {
            if let Some((known, value)) = &slot.entry
                && slot.hash == hash
                && **known == *key
            {
                return Ok(value);
            }
        }
        Err(Vacancy { hash })
    }

    /// Stores `key` if it has claimed a slot before; otherwise claims one. Calls `value` only to store the result.
    pub(crate) fn offer(&mut self, vacancy: Vacancy, key: &[u8], value: impl FnOnce() -> V) {
        let first = self.pair(vacancy.hash);
        let pair = &mut self.slots[first..first + 2];
        if let Some(slot) = pair.iter_mut().find(|slot| slot.claim == vacancy.hash) {
            if key.len() <= KEY_AT_MOST {
                slot.hash = vacancy.hash;
                slot.entry = Some((key.into(), value()));
            }
            return;
        }
        // Claims a free slot first, otherwise the one that the highest bit of the hash selects.
        let free = pair.iter().position(|slot| slot.entry.is_none());
        pair[free.unwrap_or(usize::from(vacancy.hash >> 63 == 1))].claim = vacancy.hash;
    }

    /// Returns the index of the first of the two slots for `hash`.
    fn pair(&self, hash: u64) -> usize {
        // The mask makes the index smaller than the number of slots.
        #[allow(clippy::cast_possible_truncation)]
        let index = hash as usize & (self.slots.len() - 2);
        index
    }
}
