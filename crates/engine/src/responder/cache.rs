//! Small files that are asked for often: their content, and the heads of their responses.
//!
//! Two generations bound it: what is found moves to the young one, and when that is full, the old one is dropped and the
//! young one becomes old. So what was asked for lately stays, and each look-up is one or two of a table.

use super::directory::Stamp;
use crate::deadline::Millis;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use wire::files::Coding;
use wire::message::Draft;

/// A file with what is encoded beside it, as they were when that was looked at last.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) media_type: &'static str,
    pub(crate) cache_control: Arc<str>,
    /// By [`Coding`]; the first is always there.
    pub(crate) variants: [Option<Variant>; Coding::ALL.len()],
}

/// One representation of it.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) stamp: Stamp,
    pub(crate) etag: String,
    pub(crate) modified: u64,
    /// All of it, if it is short.
    pub(crate) content: Option<Box<[u8]>>,
    /// The head of the response with all of it.
    pub(crate) whole: Draft,
}

impl Entry {
    /// Bytes that it takes, roughly.
    fn size(&self) -> usize {
        const OVERHEAD: usize = 1 << 10;
        let content = |variant: &Variant| OVERHEAD + variant.content.as_ref().map_or(0, |content| content.len());
        self.variants.iter().flatten().map(content).sum()
    }
}

/// See the module.
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

/// Bytes of one generation.
const GENERATION: usize = 4 << 20;

/// An entry is believed for so long; then it is compared with the files.
const CHECK_EVERY: Millis = 1000;

impl Cache {
    /// The entry of `key`, and whether it has to be compared with the files.
    #[inline]
    pub(crate) fn find(&mut self, key: &[u8], now: Millis) -> Option<(Arc<Entry>, bool)> {
        if !self.young.0.contains_key(key) {
            let (key, cached) = self.old.0.remove_entry(key)?;
            self.put(key, cached);
        }
        let found = self.young.0.get(key)?;
        Some((Arc::clone(&found.entry), now.saturating_sub(found.checked) >= CHECK_EVERY))
    }

    /// The entry of `key` is as the files are now.
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
