//! A bounded memory for byte strings that come again and again: header lines, names, targets.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Byte strings longer than this are not worth their memory.
const KEY_AT_MOST: usize = 512;

/// Maps byte strings that were seen at least twice to what they became. The hash of a string names a pair of slots, and
/// the string is kept in one of the two: with a single slot, two strings that come with every request and share it
/// would evict each other for ever, which among 30 lines and 1,024 slots happens to one process in three.
///
/// A string is taken in when it comes a second time before another claims its slot, so that strings that come once
/// (ids, tokens) do not push out those that come always. It can be filled with rubbish but not grown.
#[derive(Debug)]
pub(crate) struct Table<V> {
    slots: Box<[Slot<V>]>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Slot<V> {
    /// The hash of the string that claimed the slot last.
    claim: u64,
    hash: u64,
    entry: Option<(Box<[u8]>, V)>,
}

/// The place where a string that is not known could be taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacancy {
    hash: u64,
}

impl<V> Table<V> {
    /// A table of `slots`, a power of two from 2 on.
    pub(crate) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two() && slots >= 2);
        let slots = (0..slots).map(|_| Slot { claim: 0, hash: 0, entry: None }).collect();
        Self { slots, hasher: RandomState::default() }
    }

    /// Returns the value of `key`, or the place to [`offer`](Self::offer) one.
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

    /// Takes `key` in if it has come before; `value` is asked for only then.
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
        // A free slot is claimed first, and otherwise the one that the highest bit of the hash names.
        let free = pair.iter().position(|slot| slot.entry.is_none());
        pair[free.unwrap_or(usize::from(vacancy.hash >> 63 == 1))].claim = vacancy.hash;
    }

    /// The index of the first of the two slots for `hash`.
    fn pair(&self, hash: u64) -> usize {
        // The mask keeps it far within a usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = hash as usize & (self.slots.len() - 2);
        index
    }
}
