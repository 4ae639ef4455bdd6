//! The application's calls that have begun and not ended: on which thread each runs, since when, and until when it may.

use super::index::EngineIndex;
use super::limits::{Limit, NEVER, Nanos, nanos};
use crate::access_log::Entry;
use crate::object::Object;
use crate::quarantine::{Recorder, Route};
use engine::{CallId, Expired};
use pyo3::prelude::*;
use slab::Slab;
use std::time::Duration;

/// A call that has not ended.
struct Current {
    number: u64,
    request: Object,
    /// When the application was called.
    began: Nanos,
    limit: Limit,
    /// For how long it had run when it was last suspended, and since when it runs again; never while it is suspended.
    spent: Nanos,
    since: Nanos,
    /// The thread in which it runs, and its number among the engine's.
    thread: libc::pthread_t,
    worker: Option<u32>,
    /// What the loop that hosts the engine waits with.
    waiter: Option<Py<PyAny>>,
    /// It waits in the middle, for its body or for its client.
    waiting: bool,
    websocket: Option<WebSocketState>,
    /// [`Calls::overdue`] has returned it.
    reported: bool,
    interrupted: bool,
    /// Its call in the engine; `None` once its connection is gone.
    id: Option<CallId>,
    /// What its client got when it missed its deadline.
    expired: Option<Expired>,
    /// For its line in the access log, until that is written.
    entry: Option<Box<Entry>>,
}

/// What a call does that has accepted a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebSocketState {
    /// It takes the messages itself. It lasts as long as both sides want.
    Receiving,
    /// It waits for a message, and no thread has it.
    Listening,
    /// A message is handled, as a request is.
    Handling,
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

/// What an ended call held, to be dropped where that may run code of the application's.
pub(crate) struct Ended {
    pub(crate) request: Object,
    _waiter: Option<Py<PyAny>>,
    /// An exception was to be raised in it.
    pub(crate) interrupted: bool,
    pub(crate) expired: Option<Expired>,
    pub(crate) entry: Option<Box<Entry>>,
}

impl Ended {
    pub(super) fn release(self, py: Python<'_>) {
        self.request.release(py);
    }
}

/// What the access log has to say of a call that was answered with 504.
pub(crate) struct Late {
    /// The call's.
    pub(crate) number: u64,
    pub(crate) entry: Box<Entry>,
    pub(crate) request: Object,
    pub(crate) body_bytes: u64,
}

/// The calls of one engine.
pub(crate) struct Calls {
    engine: EngineIndex,
    current: Slab<Current>,
    /// How many have begun.
    count: u64,
    /// How many have passed their deadlines.
    overdue: u64,
    /// No deadline that was not dealt with is before this moment.
    next_look: Nanos,
    /// How many of each thread are suspended.
    suspended: Vec<usize>,
    /// Threads that do something of the server's own in Python, between the begin of a call and its end.
    sheltered: Vec<usize>,
    /// Records the routes of calls after a crash of a worker.
    recorder: Option<Recorder>,
}

impl Calls {
    pub(crate) fn new(engine: EngineIndex, recorder: Option<Recorder>) -> Self {
        Self {
            engine,
            current: Slab::new(),
            count: 0,
            overdue: 0,
            next_look: 0,
            suspended: Vec::new(),
            sheltered: Vec::new(),
            recorder,
        }
    }

    /// Records the route of a call that has begun. Returns whether requests of this route are refused since.
    #[cold]
    pub(crate) fn record(&mut self, key: usize, route: &Route) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        if recorder.refuses(route) {
            return true;
        }
        recorder.begin(key, route, self.current.len());
        false
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.current.len()
    }

    /// A call begins, in this thread. Returns its key.
    pub(crate) fn begin(
        &mut self,
        id: CallId,
        request: Object,
        entry: Option<Box<Entry>>,
        limit: Limit,
        worker: Option<usize>,
        now: Duration,
    ) -> usize {
        self.count += 1;
        let now = nanos(now);
        self.current.insert(Current {
            number: self.engine.number(self.count),
            request,
            began: now,
            limit,
            spent: 0,
            since: now,
            thread: this_thread(),
            worker: worker.and_then(|worker| u32::try_from(worker).ok()),
            waiter: None,
            waiting: false,
            websocket: None,
            reported: false,
            interrupted: false,
            id: Some(id),
            expired: None,
            entry,
        })
    }

    pub(crate) fn end(&mut self, key: usize) -> Ended {
        let Current { request, waiter, interrupted, expired, entry, .. } = self.current.remove(key);
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_recording()) {
            recorder.end(key, self.current.len());
        }
        Ended { request, _waiter: waiter, interrupted, expired, entry }
    }

    /// The response of a call is complete, and the call goes on: no deadline applies to it any more. Returns its number, and
    /// what its line in the access log needs.
    pub(crate) fn answer(&mut self, py: Python<'_>, key: usize) -> (u64, Option<Box<Entry>>, Object) {
        let call = &mut self.current[key];
        call.id = None;
        call.limit = Limit(NEVER);
        (call.number, call.entry.take(), call.request.clone_ref(py))
    }

    /// The call has accepted a WebSocket: no deadline applies to it any more. Returns the one that did.
    pub(crate) fn upgrade(&mut self, key: usize) -> Limit {
        let call = &mut self.current[key];
        call.websocket = Some(WebSocketState::Receiving);
        std::mem::replace(&mut call.limit, Limit(NEVER))
    }

    /// The call waits for the next message of its WebSocket, and has no thread. Returns whether an exception was to be
    /// raised in it, and what is to be dropped when the engine is unlocked.
    pub(crate) fn listen(&mut self, key: usize) -> (bool, Option<Py<PyAny>>) {
        let call = &mut self.current[key];
        call.websocket = Some(WebSocketState::Listening);
        call.since = NEVER;
        call.spent = 0;
        call.worker = None;
        (std::mem::take(&mut call.interrupted), call.waiter.take())
    }

    /// A message is handled in this thread, under a number and a deadline of its own. `is_gone`: its connection is, and
    /// what is handled is the end.
    pub(crate) fn handle_message(
        &mut self,
        key: usize,
        limit: Limit,
        worker: Option<usize>,
        waiter: Option<Py<PyAny>>,
        is_gone: bool,
        now: Duration,
    ) {
        self.count += 1;
        let number = self.engine.number(self.count);
        let call = &mut self.current[key];
        call.number = number;
        call.websocket = Some(WebSocketState::Handling);
        call.began = nanos(now);
        call.since = call.began;
        call.spent = 0;
        call.limit = limit;
        call.thread = this_thread();
        call.worker = worker.and_then(|worker| u32::try_from(worker).ok());
        call.waiter = waiter;
        if is_gone {
            // What it says of the deadline of the message before, it says to the access log.
            call.id = None;
            call.limit = Limit(NEVER);
        } else {
            call.reported = false;
        }
        self.next_look = self.next_look.min(call.due());
    }

    /// The call of a WebSocket is about to end, under the number that it had.
    pub(crate) fn end_websocket(&mut self, key: usize, number: u64) {
        self.current[key].number = number;
    }

    /// Whether the thread `worker` runs this call, or waits in it.
    pub(crate) fn is_of(&self, key: usize, worker: usize) -> bool {
        let call = &self.current[key];
        call.worker() == Some(worker) && call.is_running()
    }

    /// Whether the call has missed its deadline.
    pub(crate) fn has_expired(&self, key: usize) -> bool {
        self.current[key].expired.is_some()
    }

    pub(crate) fn number(&self, key: usize) -> u64 {
        self.current[key].number
    }

    pub(crate) fn set_waiter(&mut self, key: usize, waiter: Py<PyAny>) {
        self.current[key].waiter = Some(waiter);
    }

    pub(crate) fn waiter(&self, py: Python<'_>, key: usize) -> Option<Py<PyAny>> {
        self.current[key].waiter.as_ref().map(|waiter| waiter.clone_ref(py))
    }

    /// The call does not run, and no thread waits with it, until its client has caught up.
    pub(crate) fn suspend(&mut self, key: usize, now: Duration) {
        let call = &mut self.current[key];
        call.pause(nanos(now));
        if let Some(worker) = call.worker() {
            if self.suspended.len() <= worker {
                self.suspended.resize(worker + 1, 0);
            }
            self.suspended[worker] += 1;
        }
    }

    /// It has been dispatched to the loop that hosts the engine, and waits for a thread beside that.
    pub(crate) fn set_aside(&mut self, key: usize, now: Duration) {
        self.current[key].pause(nanos(now));
    }

    /// It begins in this thread, `worker` of those beside the loop.
    pub(crate) fn take_over(&mut self, key: usize, worker: usize, now: Duration) {
        let call = &mut self.current[key];
        call.thread = this_thread();
        call.worker = u32::try_from(worker).ok();
        call.spent = 0;
        call.since = nanos(now);
        self.next_look = self.next_look.min(call.due());
    }

    /// It goes on, or will not: then its connection is gone.
    pub(crate) fn resume(&mut self, key: usize, is_gone: bool, now: Duration) {
        let call = &mut self.current[key];
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

    /// It begins, or ends, to wait in the middle. Waiting for a slow client to read does not count.
    pub(crate) fn set_waiting(&mut self, key: usize, waiting: bool, counts: bool, now: Duration) {
        let call = &mut self.current[key];
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
        self.current[key].waiting
    }

    pub(crate) fn is_interrupted(&self, key: usize) -> bool {
        self.current[key].interrupted
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
        for (_, call) in self.current.iter_mut().filter(|(_, call)| call.expired.is_none()) {
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

    /// Returns the calls that have missed their deadlines, each once, with what is to be logged of them. `first_step`: the
    /// call that the loop begins now.
    pub(crate) fn overdue(
        &mut self,
        py: Python<'_>,
        first_step: Option<usize>,
        now: Duration,
    ) -> Vec<(Call, Option<Late>)> {
        let mut overdue = Vec::new();
        for (key, call) in &mut self.current {
            if !call.reported && call.expired.is_some() {
                call.reported = true;
                let shown = Call::of(py, call, first_step == Some(key), now, &self.engine);
                let late = match call.expired {
                    Some(Expired::Answered { body_bytes }) => {
                        let number = call.number;
                        let request = call.request.clone_ref(py);
                        call.entry.take().map(|entry| Late { number, entry, request, body_bytes })
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
        let dues = self.current.iter().filter(|(_, call)| call.expired.is_none()).map(|(_, call)| call.due());
        dues.min().filter(|&due| due != NEVER).map(Duration::from_nanos)
    }

    /// The call with this number in the engine, if it has expired and its connection is there.
    pub(crate) fn expired(&self, number: u64) -> Option<CallId> {
        let (_, call) = self.current.iter().find(|(_, call)| call.number == number && call.expired.is_some())?;
        call.id
    }

    /// How many calls have passed their deadlines.
    pub(crate) fn overdue_ever(&self) -> u64 {
        self.overdue
    }

    /// Returns the calls that have not ended. `first_step`: the call that the loop begins now.
    pub(crate) fn all(&self, py: Python<'_>, first_step: Option<usize>, now: Duration) -> Vec<Call> {
        // One that waits for a message, and has no thread, is as idle as a connection.
        let is_shown = |call: &Current| call.websocket != Some(WebSocketState::Listening);
        let shown = self.current.iter().filter(|(_, call)| is_shown(call));
        shown.map(|(key, call)| Call::of(py, call, first_step == Some(key), now, &self.engine)).collect()
    }

    /// The call with this number, if it runs in a thread now: its key and the thread.
    pub(crate) fn running(&self, number: u64) -> Option<(usize, libc::pthread_t)> {
        let (key, call) = self.current.iter().find(|(_, call)| call.number == number)?;
        call.is_running().then_some((key, call.thread))
    }

    /// Marks a call as interrupted. Returns the worker that waits in the middle of it, if it does, and whether an exception
    /// may be raised in its thread now.
    pub(crate) fn interrupt(&mut self, key: usize) -> (Option<usize>, bool) {
        let call = &mut self.current[key];
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
        self.current.iter().any(|(_, call)| call.interrupted && is_here(call))
    }
}

fn this_thread() -> libc::pthread_t {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::pthread_self() }
}

/// A call that has not ended, as Python sees it.
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
    websocket: bool,
    outcome: Option<&'static str>,
}

impl Call {
    fn of(py: Python<'_>, call: &Current, is_first_step: bool, now: Duration, engine: &EngineIndex) -> Self {
        // A loop begins the calls of one poll one after another, in one thread: most of them have no stack yet.
        let is_queued = call.waiter.is_none() && call.worker.is_none() && !is_first_step;
        let is_running = call.is_running() && !is_queued;
        Self {
            number: call.number,
            environ: call.request.bind(py).clone().unbind(),
            age: now.saturating_sub(Duration::from_nanos(call.began)).as_secs_f64(),
            limit: (call.limit.0 != NEVER).then(|| Duration::from_nanos(call.limit.0).as_secs_f64()),
            thread: (is_running || call.waiting).then_some(call.thread),
            waiter: call.waiter.as_ref().map(|waiter| waiter.clone_ref(py)),
            state: match (is_running, call.waiting) {
                _ if is_queued => "queued",
                (true, true) => "waiting",
                (true, false) => "running",
                (false, _) => "suspended",
            },
            worker: call.worker().map(|worker| engine.number_of_worker(worker)),
            websocket: call.websocket == Some(WebSocketState::Receiving),
            outcome: call.expired.map(|expired| match expired {
                Expired::Answered { .. } => "504",
                Expired::Cut { .. } => "cut",
                Expired::Whole => "whole",
                Expired::Left => "left",
            }),
        }
    }
}
