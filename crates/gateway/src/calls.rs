//! The calls of the application that are out: who works on what, since when, and until when it may.

use crate::access_log::Entry;
use crate::object::Object;
use engine::{CallId, Expired};
use pyo3::prelude::*;
use slab::Slab;
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a request may take, by its path.
#[derive(Debug)]
pub(crate) struct Limits {
    /// For paths that no prefix below fits; `None`: as long as it takes.
    default: Limit,
    /// Prefixes of whole segments, the longest first.
    prefixes: Vec<(Box<[u8]>, Limit)>,
    /// The shortest of all.
    shortest: Option<Duration>,
}

impl Limits {
    pub(crate) fn new(default: Option<Duration>, prefixes: Vec<(String, Option<Duration>)>) -> Self {
        let shortest = prefixes.iter().filter_map(|(_, limit)| *limit).chain(default).min();
        let mut prefixes: Vec<_> = prefixes
            .into_iter()
            .map(|(prefix, limit)| (prefix.trim_end_matches('/').as_bytes().into(), limit.into()))
            .collect();
        prefixes.sort_by_key(|(prefix, _): &(Box<[u8]>, _)| std::cmp::Reverse(prefix.len()));
        Self { default: default.into(), prefixes, shortest }
    }

    /// The limit of a request for `path`, as it stands in the request line.
    pub(crate) fn of(&self, path: &[u8]) -> Limit {
        let fits = |prefix: &[u8]| path.strip_prefix(prefix).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.prefixes.iter().find(|(prefix, _)| fits(prefix)).map_or(self.default, |(_, limit)| *limit)
    }

    /// The shortest limit that any request has; `None` if none has one.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.shortest
    }
}

/// Nanoseconds: what every request has is kept small.
type Nanos = u64;

/// No limit, or not running: a moment that never comes.
const NEVER: Nanos = Nanos::MAX;

fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Nanos);

impl From<Option<Duration>> for Limit {
    fn from(limit: Option<Duration>) -> Self {
        Self(limit.map_or(NEVER, nanos))
    }
}

/// Which engine of a server the calls are of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Unlike that of any other engine in the process.
    pub(crate) id: usize,
    /// The engine among its server's, and how many those are.
    pub(crate) engine: usize,
    pub(crate) engines: usize,
    /// The number, in the server, of the engine's first thread.
    pub(crate) first_worker: usize,
}

thread_local! {
    /// The engine that this thread works for, and its number in the engine's crew.
    static WORKER: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl Place {
    /// The place of the first engine of several, from its server's point of view; see [`Self::next`].
    pub(crate) fn first(engines: usize) -> Self {
        Self { id: new_id(), engine: 0, engines, first_worker: 0 }
    }

    /// That of the next one, after one with so many threads.
    pub(crate) fn next(self, workers: usize) -> Self {
        Self { id: new_id(), engine: self.engine + 1, first_worker: self.first_worker + workers, ..self }
    }

    /// The server has no other engine.
    pub(crate) fn is_alone(&self) -> bool {
        self.engines == 1
    }

    /// The number of this thread in the engine's crew, if it belongs to that.
    pub(crate) fn worker(&self) -> Option<usize> {
        WORKER.get().filter(|(id, _)| *id == self.id).map(|(_, worker)| worker)
    }

    /// This thread belongs to the engine's crew from now on, or to none.
    pub(crate) fn set_worker(&self, worker: Option<usize>) {
        WORKER.set(worker.map(|worker| (self.id, worker)));
    }

    /// The number, in the server, of a thread of the crew.
    pub(crate) fn number_of_worker(&self, worker: usize) -> usize {
        self.first_worker + worker
    }

    /// The number, in the server, of the engine's call `count`, from 1. Engines take turns.
    fn number(&self, count: u64) -> u64 {
        (count - 1) * self.engines as u64 + self.engine as u64 + 1
    }

    /// Which of so many engines the call with this number is of.
    pub(crate) fn engine_of(number: u64, engines: usize) -> usize {
        // A remainder is smaller than what one divides by, which is a usize.
        usize::try_from(number.saturating_sub(1) % engines as u64).unwrap_or(0)
    }
}

fn new_id() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A call that is out.
struct Current {
    number: u64,
    environ: Object,
    /// When the application was called.
    began: Nanos,
    limit: Limit,
    /// For how long it had run when it was last suspended, and since when it runs again; never while it is suspended.
    spent: Nanos,
    since: Nanos,
    /// The thread in which it runs, and its number in the crew.
    thread: libc::pthread_t,
    worker: Option<u32>,
    /// What the loop that hosts the engine waits with.
    waiter: Option<Py<PyAny>>,
    /// It waits in the middle, for its body or for its peer.
    waiting: bool,
    told: bool,
    interrupted: bool,
    /// Its call in the engine; `None` once its connection is gone.
    id: Option<CallId>,
    /// What its client got when it missed its deadline.
    expired: Option<Expired>,
    /// For its line in the access log, until that is written.
    entry: Option<Box<Entry>>,
}

impl Current {
    fn worker(&self) -> Option<usize> {
        self.worker.map(|worker| worker as usize)
    }

    fn is_running(&self) -> bool {
        self.since != NEVER
    }

    /// The time from now on does not count.
    fn pause(&mut self, now: Nanos) {
        if self.is_running() {
            self.spent += now.saturating_sub(self.since);
            self.since = NEVER;
        }
    }

    /// When its time is up; never if it has no limit, or does not run.
    fn due(&self) -> Nanos {
        self.since.saturating_add(self.limit.0.saturating_sub(self.spent))
    }
}

/// What a call that is over held, to be let go where that may run anything.
pub(crate) struct Ended {
    pub(crate) environ: Object,
    _waiter: Option<Py<PyAny>>,
    /// An exception was to be raised in it.
    pub(crate) interrupted: bool,
    pub(crate) expired: Option<Expired>,
    pub(crate) entry: Option<Box<Entry>>,
}

/// What the access log has to say of a call that was answered with 504.
pub(crate) struct Late {
    /// The call's.
    pub(crate) number: u64,
    pub(crate) entry: Box<Entry>,
    pub(crate) environ: Object,
    pub(crate) body_bytes: u64,
}

/// All of them.
pub(crate) struct Calls {
    place: Place,
    out: Slab<Current>,
    /// How many have begun.
    count: u64,
    /// How many have passed their deadlines.
    overdue: u64,
    /// No deadline that was not dealt with is before this.
    next_look: Nanos,
    /// How many of each thread are suspended.
    suspended: Vec<usize>,
    /// Threads that do something of the server's own in Python, between the begin of a call and its end.
    sheltered: Vec<usize>,
}

impl Calls {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            place,
            out: Slab::new(),
            count: 0,
            overdue: 0,
            next_look: 0,
            suspended: Vec::new(),
            sheltered: Vec::new(),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// A call begins, in this thread. Returns its key.
    pub(crate) fn begin(
        &mut self,
        id: CallId,
        environ: Object,
        entry: Option<Box<Entry>>,
        limit: Limit,
        worker: Option<usize>,
        now: Duration,
    ) -> usize {
        self.count += 1;
        // SAFETY: the call takes nothing and cannot fail.
        let thread = unsafe { libc::pthread_self() };
        let now = nanos(now);
        self.out.insert(Current {
            number: self.place.number(self.count),
            environ,
            began: now,
            limit,
            spent: 0,
            since: now,
            thread,
            worker: worker.and_then(|worker| u32::try_from(worker).ok()),
            waiter: None,
            waiting: false,
            told: false,
            interrupted: false,
            id: Some(id),
            expired: None,
            entry,
        })
    }

    pub(crate) fn end(&mut self, key: usize) -> Ended {
        let Current { environ, waiter, interrupted, expired, entry, .. } = self.out.remove(key);
        Ended { environ, _waiter: waiter, interrupted, expired, entry }
    }

    pub(crate) fn number(&self, key: usize) -> u64 {
        self.out[key].number
    }

    pub(crate) fn set_waiter(&mut self, key: usize, waiter: Py<PyAny>) {
        self.out[key].waiter = Some(waiter);
    }

    pub(crate) fn waiter(&self, py: Python<'_>, key: usize) -> Option<Py<PyAny>> {
        self.out[key].waiter.as_ref().map(|waiter| waiter.clone_ref(py))
    }

    /// Its peer has to catch up, and nobody waits with it.
    pub(crate) fn suspend(&mut self, key: usize, now: Duration) {
        let call = &mut self.out[key];
        call.pause(nanos(now));
        if let Some(worker) = call.worker() {
            if self.suspended.len() <= worker {
                self.suspended.resize(worker + 1, 0);
            }
            self.suspended[worker] += 1;
        }
    }

    /// It goes on, or will not: then its connection is gone.
    pub(crate) fn resume(&mut self, key: usize, is_gone: bool, now: Duration) {
        let call = &mut self.out[key];
        call.since = nanos(now);
        if is_gone {
            call.id = None;
        }
        self.next_look = self.next_look.min(call.due());
        if let Some(worker) = call.worker() {
            self.suspended[worker] -= 1;
        }
    }

    /// How many calls of this thread are suspended.
    pub(crate) fn suspended(&self, worker: usize) -> usize {
        self.suspended.get(worker).copied().unwrap_or(0)
    }

    /// It begins, or ends, to wait in the middle. Waiting for a slow peer to read does not count.
    pub(crate) fn set_waiting(&mut self, key: usize, waiting: bool, counts: bool, now: Duration) {
        let call = &mut self.out[key];
        call.waiting = waiting;
        if !counts {
            if waiting {
                call.pause(nanos(now));
            } else {
                call.since = nanos(now);
                self.next_look = self.next_look.min(call.due());
            }
        }
    }

    pub(crate) fn is_waiting(&self, key: usize) -> bool {
        self.out[key].waiting
    }

    pub(crate) fn is_interrupted(&self, key: usize) -> bool {
        self.out[key].interrupted
    }

    /// Deals with calls that have missed their deadlines: `answer` answers their clients. `shortest`: the shortest limit
    /// that a call may have. Returns how many there were. It touches nothing of Python.
    pub(crate) fn expire(
        &mut self,
        shortest: Duration,
        now: Duration,
        mut answer: impl FnMut(CallId) -> Expired,
    ) -> usize {
        let now = nanos(now);
        if now < self.next_look {
            return 0;
        }
        // A call that begins later is due later than this.
        self.next_look = now.saturating_add(nanos(shortest));
        let mut count = 0;
        for (_, call) in self.out.iter_mut().filter(|(_, call)| call.expired.is_none()) {
            if call.due() <= now {
                call.expired = Some(call.id.map_or(Expired::Left, &mut answer));
                count += 1;
            } else {
                self.next_look = self.next_look.min(call.due());
            }
        }
        self.overdue += count as u64;
        count
    }

    /// Calls that have missed their deadlines and of which this was not told yet, with what is to be logged of them.
    pub(crate) fn overdue(&mut self, py: Python<'_>, now: Duration) -> Vec<(Call, Option<Late>)> {
        let mut overdue = Vec::new();
        for (_, call) in &mut self.out {
            if !call.told && call.expired.is_some() {
                call.told = true;
                let shown = Call::of(py, call, now, &self.place);
                let late = match call.expired {
                    Some(Expired::Answered { body_bytes }) => {
                        let number = call.number;
                        let environ = call.environ.clone_ref(py);
                        call.entry.take().map(|entry| Late { number, entry, environ, body_bytes })
                    }
                    _ => None,
                };
                overdue.push((shown, late));
            }
        }
        overdue
    }

    /// When the next one's will be.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let dues = self.out.iter().filter(|(_, call)| call.expired.is_none()).map(|(_, call)| call.due());
        dues.min().filter(|&due| due != NEVER).map(Duration::from_nanos)
    }

    /// The call with this number in the engine, if it has expired and its connection is there.
    pub(crate) fn expired(&self, number: u64) -> Option<CallId> {
        let (_, call) = self.out.iter().find(|(_, call)| call.number == number && call.expired.is_some())?;
        call.id
    }

    /// How many calls have passed their deadlines.
    pub(crate) fn overdue_ever(&self) -> u64 {
        self.overdue
    }

    pub(crate) fn all(&self, py: Python<'_>, now: Duration) -> Vec<Call> {
        self.out.iter().map(|(_, call)| Call::of(py, call, now, &self.place)).collect()
    }

    /// The call with this number, if it runs in a thread now: its key and the thread.
    pub(crate) fn running(&self, number: u64) -> Option<(usize, libc::pthread_t)> {
        let (key, call) = self.out.iter().find(|(_, call)| call.number == number)?;
        call.is_running().then_some((key, call.thread))
    }

    /// Marks a call as interrupted. Returns the worker that waits in the middle of it, if it does, and whether an exception
    /// may be raised in its thread now.
    pub(crate) fn interrupt(&mut self, key: usize) -> (Option<usize>, bool) {
        let call = &mut self.out[key];
        call.interrupted = true;
        let worker = call.worker();
        let is_sheltered = worker.is_some_and(|worker| self.sheltered.contains(&worker));
        (worker.filter(|_| call.waiting), !is_sheltered)
    }

    /// No exception is raised in this thread from now on. Returns whether one was to be in the call that it has begun.
    pub(crate) fn shelter(&mut self, worker: usize) -> bool {
        self.sheltered.push(worker);
        self.is_worker_interrupted(worker)
    }

    /// The same until now. Returns whether one is to be.
    pub(crate) fn expose(&mut self, worker: usize) -> bool {
        self.sheltered.retain(|&other| other != worker);
        self.is_worker_interrupted(worker)
    }

    fn is_worker_interrupted(&self, worker: usize) -> bool {
        let is_here = |call: &Current| call.worker() == Some(worker) && (call.is_running() || call.waiting);
        self.out.iter().any(|(_, call)| call.interrupted && is_here(call))
    }
}

/// A call that is out, as Python sees it.
#[pyclass(frozen, get_all, module = "kirsch._native")]
pub(crate) struct Call {
    number: u64,
    environ: Py<PyAny>,
    age: f64,
    limit: Option<f64>,
    thread: Option<u64>,
    waiter: Option<Py<PyAny>>,
    state: &'static str,
    worker: Option<usize>,
    outcome: Option<&'static str>,
}

impl Call {
    fn of(py: Python<'_>, call: &Current, now: Duration, place: &Place) -> Self {
        let is_running = call.is_running();
        Self {
            number: call.number,
            environ: call.environ.bind(py).clone().unbind(),
            age: now.saturating_sub(Duration::from_nanos(call.began)).as_secs_f64(),
            limit: (call.limit.0 != NEVER).then(|| Duration::from_nanos(call.limit.0).as_secs_f64()),
            thread: (is_running || call.waiting).then_some(call.thread),
            waiter: call.waiter.as_ref().map(|waiter| waiter.clone_ref(py)),
            state: match (is_running, call.waiting) {
                (true, true) => "waiting",
                (true, false) => "running",
                (false, _) => "suspended",
            },
            worker: call.worker().map(|worker| place.number_of_worker(worker)),
            outcome: call.expired.map(|expired| match expired {
                Expired::Answered { .. } => "504",
                Expired::Cut { .. } => "cut",
                Expired::Whole => "whole",
                Expired::Left => "left",
            }),
        }
    }
}
