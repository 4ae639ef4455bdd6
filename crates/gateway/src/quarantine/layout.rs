//! The two shared memories of the quarantine, and the recording and look-up of routes in them. Uses no Python.
//!
//! A worker that crashes cannot report which requests were running in it. So it records them in advance, in memory that
//! the supervisor shares. Because that takes time for each request, a worker records only while the supervisor asks for
//! it: for some time after a crash.
//!
//! ```text
//!   list    one for all workers, written by the supervisor: what is to be recorded, and the routes in quarantine
//!   table   one for each worker, written by the worker: the routes of its calls since recording has begun
//! ```
//!
//! Both consist of words that are stored atomically. A reader may see a mixture of old and new words during a change;
//! then one request may be handled wrongly. That does not matter for the table of a crashed worker, because it is read
//! only after its writer has ended.

use crate::text::{escaped, percent_decoded};
use scheduler::hash_route;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of words of an entry, in the list and in the table, and of the head of each.
const ENTRY: usize = 32;
/// The number of words before the name in an entry. The rest contains the bytes of the name.
const NAME_AT: usize = 8;
/// The maximum length of a name in bytes.
const NAME_BYTES: usize = (ENTRY - NAME_AT) * 8;
const NAME_LENGTH: usize = 7;

/// The maximum number of routes in quarantine.
pub(crate) const QUARANTINED_MAX: usize = 15;
/// The maximum number of routes in a table. If it is full, the route whose last call began longest ago is replaced.
const ROUTES_MAX: usize = 63;

pub(super) type ListWords = [AtomicU64; (1 + QUARANTINED_MAX) * ENTRY];
pub(super) type TableWords = [AtomicU64; (1 + ROUTES_MAX) * ENTRY];

/// The size of the list in bytes.
pub(crate) const LIST_SIZE: usize = size_of::<ListWords>();
/// The size of a table in bytes.
pub(crate) const TABLE_SIZE: usize = size_of::<TableWords>();

// The head of the list. `CONTROL` is 0 while there is nothing to record or refuse; workers read nothing else then.
// Otherwise bit 0 is set while routes are recorded, the next seven bits are the number of routes in quarantine, and the
// rest is the number of the recording.
const CONTROL: usize = 0;
// The key of the hash function, 16 random bytes.
const HASH_KEY: usize = 1;

// An entry of the list: a route, and the end and the start of its quarantine (nanoseconds of CLOCK_MONOTONIC).
const UNTIL: usize = 1;
const SINCE: usize = 2;

// The head of the table: the number of its recording, and the number of running calls that are not in the table.
const RECORDING: usize = 0;
const UNRECORDED: usize = 1;

// An entry of the table: a route (0: none); its family (0: it is a family, or has none); the number of its running
// calls, and of those that have ended; the start of the last call; 1 for a family; and the time since which at least
// one of its calls has been running. Times are nanoseconds of CLOCK_MONOTONIC.
const KEY: usize = 0;
const FAMILY: usize = 1;
const RUNNING: usize = 2;
const ENDED: usize = 3;
const BEGAN: usize = 4;
const IS_FAMILY: usize = 5;
const BUSY_SINCE: usize = 6;

/// The route of a request: its application, method and path, without the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineRoute {
    /// A keyed hash of the whole route. It identifies the route, because the name may be truncated.
    pub(super) key: u64,
    /// The same hash for all paths that differ only in numbers; 0 if the path has no numbers.
    pub(super) family: u64,
    /// The name in messages, escaped and truncated to [`NAME_BYTES`].
    name: String,
}

impl QuarantineRoute {
    /// Returns the route of a request with this path in the form of the request line. The path is decoded first, as for
    /// the application, so escapes make no difference.
    pub(super) fn new(hash_key: [u64; 2], application: usize, method: &[u8], path: &[u8]) -> Self {
        let path = percent_decoded(path);
        let hasher = || {
            // SipHash, so that a client cannot cause collisions. The standard library deprecates its public version,
            // but has no other hash function with an explicit key, and the workers must share one.
            #[allow(deprecated, reason = "see above")]
            let mut hasher = std::hash::SipHasher::new_with_keys(hash_key[0], hash_key[1]);
            hasher.write_usize(application);
            hasher.write_usize(method.len());
            hasher
        };
        let mut whole = hasher();
        whole.write_u8(0);
        whole.write(method);
        whole.write(&path);
        let family = path.iter().any(u8::is_ascii_digit).then(|| {
            let mut family = hasher();
            family.write_u8(1);
            hash_route(method, &path, &mut family);
            family.finish().max(1)
        });
        let mut name = escaped(method);
        name.push(' ');
        name.push_str(&escaped(&path));
        cut(&mut name);
        Self { key: whole.finish().max(1), family: family.unwrap_or(0), name }
    }

    /// Returns the name of the route's family, with an asterisk for each segment that contains a digit.
    fn family_name(&self) -> String {
        let star =
            |part: &str| if part.bytes().any(|byte| byte.is_ascii_digit()) { "*".to_owned() } else { part.to_owned() };
        let (method, path) = self.name.split_once(' ').unwrap_or(("", &self.name));
        let mut name = format!("{method} {}", path.split('/').map(star).collect::<Vec<_>>().join("/"));
        cut(&mut name);
        name
    }
}

/// Truncates a name, which is ASCII.
fn cut(name: &mut String) {
    if name.len() > NAME_BYTES {
        name.truncate(NAME_BYTES - 3);
        name.push_str("...");
    }
}

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn entry(words: &[AtomicU64], index: usize) -> &[AtomicU64] {
    &words[(1 + index) * ENTRY..][..ENTRY]
}

fn set_name(entry: &[AtomicU64], name: &str) {
    let bytes = name.as_bytes();
    for (word, bytes) in entry[NAME_AT..].iter().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        store(word, u64::from_ne_bytes(whole));
    }
    store(&entry[NAME_LENGTH], bytes.len().min(NAME_BYTES) as u64);
}

fn name(entry: &[AtomicU64]) -> String {
    let length = usize::try_from(load(&entry[NAME_LENGTH])).map_or(NAME_BYTES, |length| length.min(NAME_BYTES));
    let bytes: Vec<u8> = entry[NAME_AT..].iter().flat_map(|word| load(word).to_ne_bytes()).take(length).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The list of the quarantine.
#[derive(Clone, Copy)]
pub(super) struct List<'a>(pub(super) &'a ListWords);

/// A route in quarantine. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quarantined {
    pub(crate) key: u64,
    pub(crate) until: u64,
    pub(crate) since: u64,
    pub(crate) name: String,
}

impl List<'_> {
    /// Returns true if there are routes to record or to refuse.
    #[inline]
    pub(super) fn is_active(self) -> bool {
        load(&self.0[CONTROL]) != 0
    }

    /// Returns the number of the recording; `None` while routes are not recorded.
    pub(super) fn recording(self) -> Option<u64> {
        let control = load(&self.0[CONTROL]);
        (control & 1 != 0).then_some(control >> 8)
    }

    pub(super) fn hash_key(self) -> [u64; 2] {
        [load(&self.0[HASH_KEY]), load(&self.0[HASH_KEY + 1])]
    }

    fn len(self) -> usize {
        usize::try_from(load(&self.0[CONTROL]) >> 1 & 0x7f).map_or(0, |count| count.min(QUARANTINED_MAX))
    }

    /// Returns the number of seconds, rounded up, for which the route stays in quarantine; `None` if it is not in
    /// quarantine.
    pub(super) fn seconds_left(self, route: &QuarantineRoute, now: u64) -> Option<u32> {
        (0..self.len()).map(|index| entry(self.0, index)).find_map(|entry| {
            let (key, until) = (load(&entry[KEY]), load(&entry[UNTIL]));
            let is_here = (key == route.key || key == route.family) && key != 0 && until > now;
            is_here.then(|| u32::try_from((until - now).div_ceil(1_000_000_000)).unwrap_or(u32::MAX))
        })
    }

    /// Initializes an empty list; called in the supervisor. `hash_key` must be random.
    pub(super) fn start(self, hash_key: [u64; 2]) {
        store(&self.0[CONTROL], 0);
        store(&self.0[HASH_KEY], hash_key[0]);
        store(&self.0[HASH_KEY + 1], hash_key[1]);
    }

    /// Replaces the list; called in the supervisor. `recording` is the number of the recording; `None`: do not record.
    pub(super) fn publish(self, recording: Option<u64>, routes: &[Quarantined]) {
        let routes = &routes[..routes.len().min(QUARANTINED_MAX)];
        for (index, route) in routes.iter().enumerate() {
            let entry = entry(self.0, index);
            set_name(entry, &route.name);
            store(&entry[UNTIL], route.until);
            store(&entry[SINCE], route.since);
            store(&entry[KEY], route.key);
        }
        let control = recording.map_or(0, |number| number << 8 | 1) | (routes.len() as u64) << 1;
        self.0[CONTROL].store(control, Ordering::Release);
    }

    /// Returns the routes in quarantine.
    pub(super) fn routes(self) -> Vec<Quarantined> {
        let routes = (0..self.len()).map(|index| entry(self.0, index));
        let route = |entry: &[AtomicU64]| Quarantined {
            key: load(&entry[KEY]),
            until: load(&entry[UNTIL]),
            since: load(&entry[SINCE]),
            name: name(entry),
        };
        routes.map(route).collect()
    }
}

/// The table of a worker. Only one thread at a time may write it.
#[derive(Clone, Copy)]
pub(super) struct RouteTable<'a>(pub(super) &'a TableWords);

/// The indices of a call's entries: that of its route, and that of the route's family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    route: u8,
    family: Option<u8>,
}

/// A recorded route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) key: u64,
    pub(crate) family: u64,
    pub(crate) running: u64,
    pub(crate) ended: u64,
    pub(crate) since: u64,
    pub(crate) is_family: bool,
    pub(crate) name: String,
}

impl RouteTable<'_> {
    /// Records the start of a call of this route. Returns `None` if the table is full of routes with running calls.
    pub(super) fn begin(self, recording: u64, route: &QuarantineRoute, now: u64) -> Option<Place> {
        if load(&self.0[RECORDING]) != recording {
            self.restart(recording);
        }
        let index = self.place(route.key, || route.name.clone())?;
        self.count_begin(index, now);
        store(&entry(self.0, index)[FAMILY], route.family);
        store(&entry(self.0, index)[IS_FAMILY], 0);
        let family = if route.family == 0 { None } else { self.place(route.family, || route.family_name()) };
        if let Some(family) = family {
            self.count_begin(family, now);
            store(&entry(self.0, family)[FAMILY], 0);
            store(&entry(self.0, family)[IS_FAMILY], 1);
        }
        let small = |index: usize| u8::try_from(index).unwrap_or(u8::MAX);
        Some(Place { route: small(index), family: family.map(small) })
    }

    /// Records the end of a call.
    pub(super) fn end(self, place: Place) {
        for index in std::iter::once(place.route).chain(place.family) {
            let entry = entry(self.0, index.into());
            store(&entry[ENDED], load(&entry[ENDED]) + 1);
            store(&entry[RUNNING], load(&entry[RUNNING]).saturating_sub(1));
        }
    }

    /// Adds `more`, which may be negative (wrapping), to the number of running calls that are not in the table.
    pub(super) fn add_unrecorded(self, more: u64) {
        store(&self.0[UNRECORDED], load(&self.0[UNRECORDED]).wrapping_add(more));
    }

    /// Returns the number of running calls that are not in the table.
    pub(super) fn unrecorded(self) -> u64 {
        load(&self.0[UNRECORDED])
    }

    /// Returns the number of the table's recording; 0 if there is none.
    pub(super) fn recording(self) -> u64 {
        load(&self.0[RECORDING])
    }

    /// Returns all routes in the table.
    pub(super) fn routes(self) -> Vec<Recorded> {
        let entries = (0..ROUTES_MAX).map(|index| entry(self.0, index)).filter(|entry| load(&entry[KEY]) != 0);
        let recorded = |entry: &[AtomicU64]| Recorded {
            key: load(&entry[KEY]),
            family: load(&entry[FAMILY]),
            running: load(&entry[RUNNING]),
            ended: load(&entry[ENDED]),
            since: load(&entry[BUSY_SINCE]),
            is_family: load(&entry[IS_FAMILY]) != 0,
            name: name(entry),
        };
        entries.map(recorded).collect()
    }

    /// Removes the routes of an earlier recording, except those with running calls.
    fn restart(self, recording: u64) {
        for entry in (0..ROUTES_MAX).map(|index| entry(self.0, index)) {
            store(&entry[ENDED], 0);
            if load(&entry[RUNNING]) == 0 {
                store(&entry[KEY], 0);
            }
        }
        store(&self.0[RECORDING], recording);
    }

    /// Returns the index of the entry for the route with this key. Creates the entry if necessary.
    fn place(self, key: u64, name: impl FnOnce() -> String) -> Option<usize> {
        let mut free: Option<(u64, usize)> = None;
        for index in 0..ROUTES_MAX {
            let entry = entry(self.0, index);
            let known = load(&entry[KEY]);
            if known == key {
                return Some(index);
            }
            let began = if known == 0 { 0 } else { load(&entry[BEGAN]) };
            let may_go = known == 0 || load(&entry[RUNNING]) == 0;
            if may_go && free.is_none_or(|(earliest, _)| began < earliest) {
                free = Some((began, index));
            }
        }
        let (_, index) = free?;
        let entry = entry(self.0, index);
        store(&entry[ENDED], 0);
        store(&entry[RUNNING], 0);
        set_name(entry, &name());
        store(&entry[KEY], key);
        Some(index)
    }

    fn count_begin(self, index: usize, now: u64) {
        let entry = entry(self.0, index);
        store(&entry[BEGAN], now);
        if load(&entry[RUNNING]) == 0 {
            store(&entry[BUSY_SINCE], now);
        }
        store(&entry[RUNNING], load(&entry[RUNNING]) + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: [u64; 2] = [1, 2];

    fn route(path: &str) -> QuarantineRoute {
        QuarantineRoute::new(HASH, 0, b"GET", path.as_bytes())
    }

    fn table() -> Box<TableWords> {
        Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn list() -> Box<ListWords> {
        Box::new(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn counts(table: RouteTable<'_>) -> Vec<(String, u64, u64)> {
        table.routes().into_iter().map(|each| (each.name, each.running, each.ended)).collect()
    }

    #[test]
    fn test_routes_with_long_paths_differ_although_their_names_are_cut_alike() {
        let long = format!("/{}", "x".repeat(500));
        let (one, other) = (route(&format!("{long}a")), route(&format!("{long}b")));
        assert_eq!(one.name, other.name);
        assert!(one.name.ends_with("x...") && one.name.len() == NAME_BYTES);
        assert_ne!(one.key, other.key);
    }

    #[test]
    fn test_route_is_the_same_however_its_path_is_escaped() {
        assert_eq!(route("/b%6Fom"), route("/boom"));
        assert_ne!(route("/boom/").key, route("/boom").key);
        assert_ne!(QuarantineRoute::new(HASH, 0, b"POST", b"/boom").key, route("/boom").key);
        assert_ne!(QuarantineRoute::new(HASH, 1, b"GET", b"/boom").key, route("/boom").key);
        assert_ne!(QuarantineRoute::new([1, 3], 0, b"GET", b"/boom").key, route("/boom").key);
        assert_eq!(route("/\u{1b}[2J").name, r"GET /\x1b[2J");
    }

    #[test]
    fn test_paths_that_differ_in_numbers_belong_to_one_family() {
        assert_eq!(route("/item/1").family, route("/item/22").family);
        assert_ne!(route("/item/1").key, route("/item/22").key);
        assert_eq!(route("/item").family, 0);
        assert_ne!(route("/item/0").key, route("/item/0").family);
        assert_eq!(route("/item/1/x").family_name(), "GET /item/*/x");
    }

    #[test]
    fn test_table_counts_calls_of_a_route_and_of_its_family() {
        let words = table();
        let table = RouteTable(&words);
        let first = table.begin(1, &route("/item/1"), 5).unwrap();
        table.begin(1, &route("/item/2"), 6).unwrap();
        table.end(first);
        assert_eq!(table.routes().iter().map(|each| each.since).collect::<Vec<_>>(), [5, 5, 6]);
        let expected = [("GET /item/1", 0, 1), ("GET /item/*", 1, 1), ("GET /item/2", 1, 0)];
        assert_eq!(counts(table), expected.map(|(name, running, ended)| (name.to_owned(), running, ended)));
    }

    #[test]
    fn test_new_recording_forgets_what_does_not_run() {
        let words = table();
        let table = RouteTable(&words);
        let ended = table.begin(1, &route("/a"), 5).unwrap();
        table.end(ended);
        let slow = table.begin(1, &route("/slow"), 6).unwrap();
        table.begin(2, &route("/b"), 7).unwrap();
        assert_eq!(counts(table), [("GET /b".to_owned(), 1, 0), ("GET /slow".to_owned(), 1, 0)]);
        table.end(slow);
        assert_eq!(counts(table)[1], ("GET /slow".to_owned(), 0, 1));
    }

    #[test]
    fn test_full_table_drops_the_route_that_was_called_least_recently_and_no_running_one() {
        let words = table();
        let table = RouteTable(&words);
        let path = |index: usize| format!("/{}", "x".repeat(index + 1));
        for index in 0..ROUTES_MAX {
            let place = table.begin(1, &route(&path(index)), index as u64 + 1).unwrap();
            if index < 2 {
                table.end(place);
            }
        }
        assert!(table.begin(1, &route("/new"), 1000).is_some());
        assert!(counts(table).iter().all(|(name, ..)| *name != "GET /x"));
        assert!(table.begin(1, &route("/newer"), 1001).is_some());
        assert!(table.begin(1, &route("/newest"), 1002).is_none(), "all others run");
    }

    #[test]
    fn test_list_is_inactive_until_something_is_published() {
        let words = list();
        let list = List(&words);
        assert!(!list.is_active());
        list.publish(Some(7), &[]);
        assert_eq!((list.is_active(), list.recording()), (true, Some(7)));
        list.publish(None, &[]);
        assert_eq!((list.is_active(), list.recording()), (false, None));
    }

    #[test]
    fn test_list_refuses_a_route_and_a_family_until_their_time_is_up() {
        let words = list();
        let list = List(&words);
        let (boom, item) = (route("/boom"), route("/item/1"));
        let quarantined = |key, until| Quarantined { key, until, since: 0, name: "name".to_owned() };
        let routes = [quarantined(boom.key, 3_000_000_001), quarantined(item.family, 9_000_000_000)];
        list.publish(None, &routes);
        assert!(list.is_active());
        assert_eq!(list.routes(), routes);
        assert_eq!(list.seconds_left(&boom, 0), Some(4));
        assert_eq!(list.seconds_left(&boom, 3_000_000_001), None);
        assert_eq!(list.seconds_left(&route("/item/2"), 0), Some(9));
        assert_eq!(list.seconds_left(&route("/item"), 0), None);
    }

    #[test]
    fn test_list_holds_as_many_routes_as_there_is_room_for() {
        let words = list();
        let list = List(&words);
        let routes = vec![Quarantined { key: 1, until: 1, since: 0, name: "x".repeat(999) }; QUARANTINED_MAX + 5];
        list.publish(None, &routes);
        assert_eq!(list.routes().len(), QUARANTINED_MAX);
        assert_eq!(list.routes()[0].name.len(), NAME_BYTES);
    }
}
