//! A bounded memory for byte strings that come again and again: header lines, names, targets.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

/// Byte strings longer than this are not worth their memory.
const KEY_AT_MOST: usize = 512;

/// Maps byte strings that were seen at least twice to what they became, each in the one slot that its hash names.
///
/// A string is taken in when it comes a second time before another claims its slot, so that strings that come once
/// (ids, tokens) do not push out those that come always. It can be filled with rubbish but not grown.
#[derive(Debug)]
pub(super) struct Table<V> {
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
pub(super) struct Vacancy {
    hash: u64,
}

impl<V> Table<V> {
    /// A table of `slots`, a power of two.
    pub(super) fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two());
        let slots = (0..slots).map(|_| Slot { claim: 0, hash: 0, entry: None }).collect();
        Self { slots, hasher: RandomState::default() }
    }

    /// What `key` became, or where to [`offer`](Self::offer) it.
    pub(super) fn get(&self, key: &[u8]) -> Result<&V, Vacancy> {
        let hash = self.hasher.hash_one(key);
        let slot = &self.slots[self.index(hash)];
        match &slot.entry {
            Some((known, value)) if slot.hash == hash && **known == *key => Ok(value),
            _ => Err(Vacancy { hash }),
        }
    }

    /// Takes `key` in if it has come before; `value` is asked for only then.
    pub(super) fn offer(&mut self, vacancy: Vacancy, key: &[u8], value: impl FnOnce() -> V) {
        let index = self.index(vacancy.hash);
        let slot = &mut self.slots[index];
        if slot.claim != vacancy.hash {
            slot.claim = vacancy.hash;
        } else if key.len() <= KEY_AT_MOST {
            slot.hash = vacancy.hash;
            slot.entry = Some((key.into(), value()));
        }
    }

    fn index(&self, hash: u64) -> usize {
        // The mask keeps it far within a usize.
        #[allow(clippy::cast_possible_truncation)]
        let index = hash as usize & (self.slots.len() - 1);
        index
    }
}
