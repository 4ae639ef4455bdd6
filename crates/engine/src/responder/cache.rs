//! A cache of small files that are requested often: their contents, and the heads of their responses.
//!
//! The cache has two generations, which bound its size. An entry that is found moves to the young generation. When the
//! young generation is full, the old one is dropped and the young one becomes old. So recently requested entries stay,
//! and a look-up takes one or two accesses to a table.

use super::directory::Stamp;
use crate::deadline::Millis;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use wire::files::Coding;
use wire::message::Draft;

/// A file and its precompressed versions, as they were at the last check.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) media_type: &'static str,
    pub(crate) cache_control: Arc<str>,
    /// The representations, indexed by [`Coding`]; the first is always present.
    pub(crate) variants: [Option<Variant>; Coding::ALL.len()],
}

/// One representation of a file: identity or a content coding.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) stamp: Stamp,
    pub(crate) etag: String,
    pub(crate) modified: u64,
    /// The whole content; `None` if it is long.
    pub(crate) content: Option<Box<[u8]>>,
    /// The head of the response with the whole content.
    pub(crate) whole: Draft,
}

impl Entry {
    /// Returns the approximate size of the entry in bytes.
    fn size(&self) -> usize {
        const OVERHEAD: usize = 1 << 10;
        let content = |variant: &Variant| OVERHEAD + variant.content.as_ref().map_or(0, |content| content.len());
        self.variants.iter().flatten().map(content).sum()
    }
}

/// A cache with two generations; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: Generation,
    old: Generation,
}

type Generation = (HashMap<Box<[u8]>, Cached, RandomState>, usize);

#[derive(Clone, Debug)]
struct Cached {
    entry: Arc<Entry>,
    checked: Millis,
}

/// The maximum size of one generation in bytes.
const GENERATION: usize = 4 << 20;

/// The time in milliseconds for which an entry is valid. After that it has to be compared with the files.
const CHECK_EVERY: Millis = 1000;

impl Cache {
    /// Returns the entry of `key`, and true if it has to be compared with the files; `None` if there is no entry.
    #[inline]
    pub(crate) fn find(&mut self, key: &[u8], now: Millis) -> Option<(Arc<Entry>, bool)> {
        if !self.young.0.contains_key(key) {
            let (key, cached) = self.old.0.remove_entry(key)?;
            self.put(key, cached);
        }
        let found = self.young.0.get(key)?;
        Some((Arc::clone(&found.entry), now.saturating_sub(found.checked) >= CHECK_EVERY))
    }

    /// Records that the entry of `key` agrees with the files at `now`.
    pub(crate) fn confirm(&mut self, key: &[u8], now: Millis) {
        if let Some(cached) = self.young.0.get_mut(key) {
            cached.checked = now;
        }
    }

    pub(crate) fn insert(&mut self, key: &[u8], entry: Arc<Entry>, now: Millis) {
        self.remove(key);
        self.put(key.into(), Cached { entry, checked: now });
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        for (entries, size) in [&mut self.young, &mut self.old] {
            if let Some((key, cached)) = entries.remove_entry(key) {
                *size = size.saturating_sub(cached.entry.size() + key.len());
            }
        }
    }

    fn put(&mut self, key: Box<[u8]>, cached: Cached) {
        let size = cached.entry.size() + key.len();
        if self.young.1 + size > GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.1 += size;
        self.young.0.insert(key, cached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(length: usize) -> Arc<Entry> {
        let (_, stamp) = super::super::directory::Directory::open(std::path::Path::new("/proc/self"), true)
            .and_then(|directory| directory.file(b"exe").map_err(|_| std::io::ErrorKind::NotFound.into()))
            .unwrap();
        let content = Some(vec![0; length].into());
        let whole = Draft::default();
        let variant = Variant { stamp, etag: String::new(), modified: 0, content, whole };
        Arc::new(Entry { media_type: "", cache_control: "".into(), variants: [Some(variant), None, None, None] })
    }

    #[test]
    fn memory_is_bounded_and_what_is_asked_for_stays() {
        let mut cache = Cache::default();
        let entry = entry(32 << 10);
        for number in 0..10_000u32 {
            cache.insert(&number.to_le_bytes(), Arc::clone(&entry), 0);
            assert!(cache.find(&0u32.to_le_bytes(), 0).is_some(), "{number}");
            assert!(cache.young.1 <= GENERATION && cache.old.1 <= GENERATION);
        }
        assert!(cache.young.0.len() + cache.old.0.len() <= 2 * GENERATION / (32 << 10));
        assert!(cache.find(&5u32.to_le_bytes(), 0).is_none());
    }

    #[test]
    fn an_entry_is_compared_again_after_a_second() {
        let mut cache = Cache::default();
        cache.insert(b"a", entry(1), 500);
        let needs_check = |cache: &mut Cache, now| cache.find(b"a", now).unwrap().1;
        assert!(!needs_check(&mut cache, 1499));
        assert!(needs_check(&mut cache, 1500));
        cache.confirm(b"a", 1600);
        assert!(!needs_check(&mut cache, 2500));
        cache.remove(b"a");
        assert!(cache.find(b"a", 0).is_none());
        assert_eq!(cache.young.1, 0);
    }
}
