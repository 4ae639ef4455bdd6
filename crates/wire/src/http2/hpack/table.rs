//! The static and the dynamic table (RFC 7541 section 2.3).

use super::TABLE_SIZE;
use std::collections::VecDeque;

/// The size that is counted for each entry in addition to its name and value (RFC 7541 section 4.1).
pub(super) const OVERHEAD: usize = 32;

/// The static table (RFC 7541 appendix A). Its first entry has index 1.
#[rustfmt::skip]
pub(super) static STATIC: [(&[u8], &[u8]); 61] = [
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"), (b"accept-language", b""), (b"accept-ranges", b""), (b"accept", b""),
    (b"access-control-allow-origin", b""), (b"age", b""), (b"allow", b""), (b"authorization", b""),
    (b"cache-control", b""), (b"content-disposition", b""), (b"content-encoding", b""), (b"content-language", b""),
    (b"content-length", b""), (b"content-location", b""), (b"content-range", b""), (b"content-type", b""),
    (b"cookie", b""), (b"date", b""), (b"etag", b""), (b"expect", b""), (b"expires", b""), (b"from", b""),
    (b"host", b""), (b"if-match", b""), (b"if-modified-since", b""), (b"if-none-match", b""), (b"if-range", b""),
    (b"if-unmodified-since", b""), (b"last-modified", b""), (b"link", b""), (b"location", b""),
    (b"max-forwards", b""), (b"proxy-authenticate", b""), (b"proxy-authorization", b""), (b"range", b""),
    (b"referer", b""), (b"refresh", b""), (b"retry-after", b""), (b"server", b""), (b"set-cookie", b""),
    (b"strict-transport-security", b""), (b"transfer-encoding", b""), (b"user-agent", b""), (b"vary", b""),
    (b"via", b""), (b"www-authenticate", b""),
];

/// The position of a name or a field in one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A position in the static table, from 0.
    Static(usize),
    /// A position in the dynamic table; the newest entry has 0.
    Dynamic(usize),
}

impl Place {
    /// Converts an index of the protocol (RFC 7541 section 2.3.3). Returns `None` for 0.
    pub(super) fn of_index(index: usize) -> Option<Self> {
        let index = index.checked_sub(1)?;
        Some(index.checked_sub(STATIC.len()).map_or(Self::Static(index), Self::Dynamic))
    }

    /// Returns the index in the protocol.
    pub(super) fn index(self) -> usize {
        match self {
            Self::Static(index) => index + 1,
            Self::Dynamic(index) => index + 1 + STATIC.len(),
        }
    }
}

/// The dynamic table. All names and values are in one buffer, to which entries are appended. The bytes of evicted
/// entries are removed from it when they are as many as the table may hold.
///
/// `size <= limit <= TABLE_SIZE`, and `bytes.len() <= 2 * TABLE_SIZE`, so an offset fits 16 bits.
#[derive(Debug)]
pub(super) struct DynamicTable {
    bytes: Vec<u8>,
    /// The entries, the oldest first.
    entries: VecDeque<Entry>,
    /// The total size of the entries (RFC 7541 section 4.1).
    size: usize,
    limit: usize,
    /// The number of changes to the table. While it stays the same, the table stays the same.
    version: u64,
}

/// The offsets of a field in the buffer. Small, because an idle connection keeps as many entries as its client has
/// added.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u16,
    value: u16,
    end: u16,
}

impl Entry {
    fn size(self) -> usize {
        usize::from(self.end - self.start) + OVERHEAD
    }
}

impl Default for DynamicTable {
    fn default() -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, limit: TABLE_SIZE, version: 0 }
    }
}

impl DynamicTable {
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the name and value of the entry at `index`; the newest entry has 0.
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let oldest_first = self.entries.len().checked_sub(index + 1)?;
        let Entry { start, value, end } = self.entries[oldest_first];
        let [start, value, end] = [start, value, end].map(usize::from);
        Some((&self.bytes[start..value], &self.bytes[value..end]))
    }

    /// Sets the maximum size, which must not exceed [`TABLE_SIZE`].
    pub(super) fn resize(&mut self, limit: usize) {
        debug_assert!(limit <= TABLE_SIZE, "the caller checks the limit");
        self.limit = limit;
        self.version += 1;
        self.evict(0);
    }

    /// Adds an entry. An entry that exceeds the maximum size empties the table (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8]) {
        self.version += 1;
        let size = name.len() + value.len() + OVERHEAD;
        self.evict(size);
        if size > self.limit {
            return;
        }
        let start = offset(self.bytes.len());
        self.bytes.extend_from_slice(name);
        let middle = offset(self.bytes.len());
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { start, value: middle, end: offset(self.bytes.len()) });
        self.size += size;
        debug_assert!(self.size <= self.limit, "entries are evicted before one is added");
    }

    /// Evicts the oldest entries until an entry of `size` fits.
    fn evict(&mut self, size: usize) {
        while self.size + size > self.limit {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= entry.size();
        }
        if self.evicted() >= TABLE_SIZE || self.entries.is_empty() {
            self.compact();
        }
        debug_assert!(self.bytes.len() <= 2 * TABLE_SIZE, "evicted entries leave the buffer");
    }

    /// Returns the number of bytes in the buffer that belong to evicted entries.
    fn evicted(&self) -> usize {
        self.entries.front().map_or(self.bytes.len(), |entry| usize::from(entry.start))
    }

    /// Removes the bytes of evicted entries from the buffer.
    fn compact(&mut self) {
        let evicted = self.evicted();
        self.bytes.drain(..evicted);
        let evicted = offset(evicted);
        for entry in &mut self.entries {
            (entry.start, entry.value, entry.end) = (entry.start - evicted, entry.value - evicted, entry.end - evicted);
        }
    }

    /// Finds a field. Returns its position and true; if only the name is in a table, the position of the name and
    /// false.
    pub(super) fn find(&self, name: &[u8], value: &[u8]) -> Option<(Place, bool)> {
        let mut named = None;
        for (index, entry) in STATIC.iter().enumerate() {
            if entry.0 == name {
                if entry.1 == value {
                    return Some((Place::Static(index), true));
                }
                named = named.or(Some(Place::Static(index)));
            }
        }
        for index in 0..self.entries.len() {
            let Some(entry) = self.get(index) else { break };
            if entry.0 == name {
                if entry.1 == value {
                    return Some((Place::Dynamic(index), true));
                }
                named = named.or(Some(Place::Dynamic(index)));
            }
        }
        named.map(|place| (place, false))
    }

    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.compact();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }
}

/// Converts an offset in the buffer, which is bounded.
fn offset(at: usize) -> u16 {
    u16::try_from(at).expect("the buffer is bounded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entries_are_evicted() {
        let mut table = DynamicTable::default();
        for number in 0..1000 {
            table.insert(b"name", format!("{number:03}").as_bytes());
            assert!(table.size <= TABLE_SIZE && table.bytes.len() <= 2 * TABLE_SIZE);
        }
        assert_eq!(table.entries.len(), TABLE_SIZE / (OVERHEAD + 7));
        assert_eq!(table.get(0), Some((&b"name"[..], &b"999"[..])));
        assert_eq!(table.get(table.entries.len() - 1), Some((&b"name"[..], &b"895"[..])));
        assert_eq!(table.get(table.entries.len()), None);
        table.shrink();
        assert_eq!(table.bytes.len(), 7 * table.entries.len());
        assert_eq!(table.get(table.entries.len() - 1), Some((&b"name"[..], &b"895"[..])));
        table.resize(OVERHEAD + 7);
        assert_eq!((table.entries.len(), table.get(0)), (1, Some((&b"name"[..], &b"999"[..]))));
    }

    #[test]
    fn entry_larger_than_the_table_empties_it() {
        let mut table = DynamicTable::default();
        table.insert(b"a", b"b");
        table.insert(b"a", &[b'x'; TABLE_SIZE]);
        assert_eq!((table.size, table.get(0)), (0, None));
        table.insert(b"c", b"d");
        assert_eq!(table.get(0), Some((&b"c"[..], &b"d"[..])));
    }
}
