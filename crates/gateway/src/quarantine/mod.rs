//! Routes whose requests have crashed workers. A worker records the routes of its calls, and refuses the routes that
//! the supervisor has put into quarantine. [`layout`] describes the memory.
//! `packages/kirsch/src/kirsch/supervisor/quarantine.py` decides which route caused a crash.

mod layout;

pub(crate) use layout::{LIST_SIZE, QUARANTINED_MAX, QuarantineRoute, TABLE_SIZE};

use crate::clock;
use crate::scoreboard::View;
use engine::{Refusal, RefusalCause};
use layout::{List, ListWords, Place, Quarantined, RouteTable, TableWords};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The list of the quarantine, and the table of this worker, which all its engines share.
pub(crate) struct Quarantine {
    /// The list, in memory that `_views` keep alive.
    list: &'static ListWords,
    /// The table. The lock is for writing.
    table: Mutex<&'static TableWords>,
    _views: [View; 2],
}

impl Quarantine {
    /// Creates the quarantine.
    ///
    /// # Errors
    /// `TypeError` if an argument is not a buffer, `ValueError` if it is too small or not aligned.
    pub(crate) fn new(list: &Bound<'_, PyAny>, table: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (list_view, list) = View::lend::<ListWords>("quarantine", list)?;
        let (table_view, table) = View::lend::<TableWords>("quarantine", table)?;
        // SAFETY: `View::lend` has checked size and alignment. The memory is writable and stays at its address until
        // the views are released, which happens when the references are dropped. All accesses are atomic.
        let (list, table) = unsafe { (&*list, &*table) };
        Ok(Self { list, table: Mutex::new(table), _views: [list_view, table_view] })
    }

    fn list(&self) -> List<'_> {
        List(self.list)
    }

    /// Returns the refusal of a request whose route is in quarantine. Calls `application` for the index of the
    /// request's application only while the list is active; otherwise this is a single load.
    #[inline]
    pub(crate) fn refusal(&self, application: impl FnOnce() -> usize, method: &[u8], path: &[u8]) -> Option<Refusal> {
        if self.list().is_active() { self.find(&self.route(application(), method, path)) } else { None }
    }

    #[cold]
    fn find(&self, route: &QuarantineRoute) -> Option<Refusal> {
        let seconds = self.list().seconds_left(route, clock::fine())?;
        Some(Refusal { status: 503, cause: Some(RefusalCause::Quarantine(seconds)) })
    }

    /// Returns the route of a request; `None`, after a single load, if there is nothing to record.
    #[inline]
    pub(crate) fn to_record(&self, application: usize, method: &[u8], path: &[u8]) -> Option<Box<QuarantineRoute>> {
        if self.list().is_active() { Some(Box::new(self.route(application, method, path))) } else { None }
    }

    #[cold]
    fn route(&self, application: usize, method: &[u8], path: &[u8]) -> QuarantineRoute {
        QuarantineRoute::new(self.list().hash_key(), application, method, path)
    }
}

/// Records the calls of one engine in the table.
pub(crate) struct Recorder {
    quarantine: Arc<Quarantine>,
    /// The entries in which each call is recorded, by the key of the call.
    places: Vec<Option<Place>>,
    /// The number of running calls that are recorded.
    recorded: usize,
    /// The number of the other running calls at the last publication.
    unrecorded: u64,
}

impl Recorder {
    pub(crate) fn new(quarantine: Arc<Quarantine>) -> Self {
        Self { quarantine, places: Vec::new(), recorded: 0, unrecorded: 0 }
    }

    /// Returns true if requests of this route are refused now.
    pub(crate) fn refuses(&self, route: &QuarantineRoute) -> bool {
        self.quarantine.find(route).is_some()
    }

    /// Records the start of the call `key`. `running` is the number of calls, including this one.
    #[cold]
    pub(crate) fn begin(&mut self, key: usize, route: &QuarantineRoute, running: usize) {
        let quarantine = Arc::clone(&self.quarantine);
        let table = RouteTable(*quarantine.table.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(recording) = quarantine.list().recording() else { return };
        if self.places.len() <= key {
            self.places.resize(key + 1, None);
        }
        self.places[key] = table.begin(recording, route, clock::fine());
        self.recorded += usize::from(self.places[key].is_some());
        self.publish_unrecorded(table, running);
    }

    /// Returns true if any running call is recorded.
    #[inline]
    pub(crate) fn is_recording(&self) -> bool {
        self.recorded > 0
    }

    /// Records the end of the call `key`. `running` is the number of calls, without this one.
    #[cold]
    pub(crate) fn end(&mut self, key: usize, running: usize) {
        let quarantine = Arc::clone(&self.quarantine);
        let table = RouteTable(*quarantine.table.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(place) = self.places.get_mut(key).and_then(Option::take) {
            table.end(place);
            self.recorded -= 1;
        }
        self.publish_unrecorded(table, running);
    }

    fn publish_unrecorded(&mut self, table: RouteTable<'_>, running: usize) {
        let unrecorded = running.saturating_sub(self.recorded) as u64;
        table.add_unrecorded(unrecorded.wrapping_sub(std::mem::replace(&mut self.unrecorded, unrecorded)));
    }
}

/// Calls `act` with the words of `buffer`.
fn with_words<T, R>(buffer: &Bound<'_, PyAny>, act: impl FnOnce(&T) -> R) -> PyResult<R> {
    let (view, words) = View::lend::<T>("quarantine", buffer)?;
    // SAFETY: as in `Quarantine::new`; `view` lives longer than the reference.
    let result = act(unsafe { &*words });
    drop(view);
    Ok(result)
}

/// A route of the list for Python: key, end, start, name.
pub(crate) type ListedRoute = (u64, u64, u64, String);
/// A route of a table for Python: key, family, true for a family, running calls, ended calls, busy since, name.
pub(crate) type RecordedRoute = (u64, u64, bool, u64, u64, u64, String);

/// Initializes an empty list.
pub(crate) fn start(buffer: &Bound<'_, PyAny>, hash_key: [u64; 2]) -> PyResult<()> {
    with_words(buffer, |words| List(words).start(hash_key))
}

/// Replaces the list.
pub(crate) fn publish(buffer: &Bound<'_, PyAny>, recording: Option<u64>, routes: Vec<ListedRoute>) -> PyResult<()> {
    let routes: Vec<_> =
        routes.into_iter().map(|(key, until, since, name)| Quarantined { key, until, since, name }).collect();
    with_words(buffer, |words| List(words).publish(recording, &routes))
}

/// Returns the routes in quarantine.
pub(crate) fn listed(buffer: &Bound<'_, PyAny>) -> PyResult<Vec<ListedRoute>> {
    let routes = with_words(buffer, |words| List(words).routes())?;
    Ok(routes.into_iter().map(|Quarantined { key, until, since, name }| (key, until, since, name)).collect())
}

/// Returns the number of a table's recording, the number of unrecorded calls, and the recorded routes.
pub(crate) fn recorded(buffer: &Bound<'_, PyAny>) -> PyResult<(u64, u64, Vec<RecordedRoute>)> {
    let read = |words: &TableWords| {
        (RouteTable(words).recording(), RouteTable(words).unrecorded(), RouteTable(words).routes())
    };
    let (recording, unrecorded, routes) = with_words(buffer, read)?;
    let routes = routes
        .into_iter()
        .map(|each| (each.key, each.family, each.is_family, each.running, each.ended, each.since, each.name));
    Ok((recording, unrecorded, routes.collect()))
}
