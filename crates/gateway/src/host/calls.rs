//! The unfinished calls of the application, each with its thread, its start and its deadline.

use super::call_state::{CallEvent, CallState};
use super::index::EngineIndex;
use super::limits::{Limit, NEVER, Nanos, nanos};
use crate::access_log::Entry;
use crate::object::Object;
use crate::quarantine::{QuarantineRoute, Recorder};
use crate::thread_id::{ThreadId, this_thread};
use engine::{CallId, Expired};
use pyo3::prelude::*;
use slab::Slab;
use std::time::Duration;
use transitions::State;

/// A call that has not ended.
struct Current {
    number: u64,
    request: Object,
    /// The time at which the application was called.
    began: Nanos,
    limit: Limit,
    /// The running time of the call up to its last suspension, and the time at which it began to run again. `since` is
    /// [`NEVER`] while the call does not run.
    spent: Nanos,
    since: Nanos,
    /// The thread that runs the call, and the index of this thread in the engine.
    thread: ThreadId,
    worker: Option<u32>,
    /// The object on which the call waits, such as a Task or a greenlet, if a loop hosts the engine.
    waiter: Option<Py<PyAny>>,
    state: State<CallState>,
    /// True while the call of an accepted WebSocket receives the messages itself. Such a call has no deadline.
    is_receiving: bool,
    /// True once [`Calls::overdue`] has returned the call.
    reported: bool,
    interrupted: bool,
    /// The engine's id of the call; `None` once its response is complete or its connection is gone.
    id: Option<CallId>,
    /// The way in which the missed deadline was handled; `None` if the call has not missed it.
    expired: Option<Expired>,
    /// The entry for the access log; `None` once its line is written.
    entry: Option<Box<Entry>>,
}

impl Current {
    fn worker(&self) -> Option<usize> {
        self.worker.map(|worker| worker as usize)
    }

    fn is_running(&self) -> bool {
        debug_assert_eq!(self.since != NEVER, self.state.get().counts(), "time counts while the call runs");
        self.since != NEVER
    }

    /// Moves the call to a state in which its time does not count.
    fn stop(&mut self, event: CallEvent, state: CallState, now: Nanos) {
        if self.is_running() {
            self.spent += now.saturating_sub(self.since);
        }
        self.since = NEVER;
        self.state.apply(event, state);
    }

    /// Moves the call to a state in which its time counts.
    fn go_on(&mut self, event: CallEvent, state: CallState, now: Nanos) {
        if !self.is_running() {
            self.since = now;
        }
        self.state.apply(event, state);
    }

    /// Returns the time of the deadline; [`NEVER`] if the call has no limit or does not run.
    fn due(&self) -> Nanos {
        self.since.saturating_add(self.limit.0.saturating_sub(self.spent))
    }
}

/// The objects that an ended call held. The caller must drop them while the engine is unlocked, because their
/// destructors may run code of the application.
pub(crate) struct Ended {
    pub(crate) request: Object,
    _waiter: Option<Py<PyAny>>,
    /// True if an exception was to be raised in the call to interrupt it.
    pub(crate) interrupted: bool,
    pub(crate) expired: Option<Expired>,
    pub(crate) entry: Option<Box<Entry>>,
}

impl Ended {
    pub(super) fn release(self, py: Python<'_>) {
        self.request.release(py);
    }
}

/// The data for the access log line of a call that was answered with 504 while it was still running.
pub(crate) struct Late {
    /// The number of the call.
    pub(crate) number: u64,
    pub(crate) entry: Box<Entry>,
    pub(crate) request: Object,
    pub(crate) body_bytes: u64,
}

/// The unfinished calls of one engine.
pub(crate) struct Calls {
    engine: EngineIndex,
    current: Slab<Current>,
    /// The number of calls that have begun so far.
    count: u64,
    /// The number of calls that have missed their deadlines.
    overdue: u64,
    /// No deadline expires before this time, so nothing is checked earlier.
    next_look: Nanos,
    /// The number of suspended calls, by the index of their thread.
    suspended: Vec<usize>,
    /// The threads that run Python code of the server inside a call, where no exception may be raised.
    sheltered: Vec<usize>,
    /// The recorder of the routes of running calls, which the supervisor reads after a worker has crashed.
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

    /// Records the route of a call that has begun. Returns true if the route is in quarantine, so the request must be
    /// refused.
    #[cold]
    pub(crate) fn record(&mut self, key: usize, route: &QuarantineRoute) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        if recorder.refuses(route) {
            return true;
        }
        recorder.begin(key, route, self.current.len());
        false
    }

    /// Returns the number of unfinished calls.
    pub(crate) fn count(&self) -> usize {
        self.current.len()
    }

    /// Adds a call that begins in this thread. Returns its key.
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
            state: State::new(),
            is_receiving: false,
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

    /// Removes the deadline of a call that continues after its response is complete. Returns its number, and the entry
    /// and the request for its access log line.
    pub(crate) fn answer(&mut self, py: Python<'_>, key: usize) -> (u64, Option<Box<Entry>>, Object) {
        let call = &mut self.current[key];
        call.id = None;
        call.limit = Limit(NEVER);
        (call.number, call.entry.take(), call.request.clone_ref(py))
    }

    /// Removes the deadline of a call that has accepted a WebSocket. Returns the limit that it had.
    pub(crate) fn upgrade(&mut self, key: usize) -> Limit {
        let call = &mut self.current[key];
        call.is_receiving = true;
        std::mem::replace(&mut call.limit, Limit(NEVER))
    }

    /// Moves the call to the state in which it waits for messages without a thread. Returns true if an exception was to
    /// be raised in it, and its waiter, which the caller must drop while the engine is unlocked.
    pub(crate) fn listen(&mut self, key: usize) -> (bool, Option<Py<PyAny>>) {
        let call = &mut self.current[key];
        call.is_receiving = false;
        call.stop(CallEvent::Listen, CallState::Listening, 0);
        call.spent = 0;
        call.worker = None;
        (std::mem::take(&mut call.interrupted), call.waiter.take())
    }

    /// Starts to handle a message in this thread, with a new number and deadline. `is_gone`: the connection is gone,
    /// and the handler receives the end instead of a message.
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
        call.is_receiving = false;
        call.began = nanos(now);
        call.state.apply(CallEvent::HandleMessage, CallState::Running);
        call.since = call.began;
        call.spent = 0;
        call.limit = limit;
        call.thread = this_thread();
        call.worker = worker.and_then(|worker| u32::try_from(worker).ok());
        call.waiter = waiter;
        if is_gone {
            // `expired` is kept: the access log shows whether the previous message has missed its deadline.
            call.id = None;
            call.limit = Limit(NEVER);
        } else {
            call.reported = false;
        }
        self.next_look = self.next_look.min(call.due());
    }

    /// Restores the number that the call of a WebSocket had before its first message. The call is about to end.
    pub(crate) fn end_websocket(&mut self, key: usize, number: u64) {
        self.current[key].number = number;
    }

    /// Returns true if the thread `worker` runs this call.
    pub(crate) fn is_of(&self, key: usize, worker: usize) -> bool {
        let call = &self.current[key];
        call.worker() == Some(worker) && call.is_running()
    }

    /// Returns true if the call has missed its deadline.
    pub(crate) fn has_expired(&self, key: usize) -> bool {
        self.current[key].expired.is_some()
    }

    /// Returns the key of the call with this request, if it has not ended.
    pub(crate) fn key_of(&self, request: &Bound<'_, PyAny>) -> Option<usize> {
        self.current.iter().find(|(_, call)| call.request.as_ptr() == request.as_ptr()).map(|(key, _)| key)
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

    /// Suspends the call until its client has read enough output. Meanwhile its time does not count, and it occupies no
    /// thread.
    pub(crate) fn suspend(&mut self, key: usize, now: Duration) {
        let call = &mut self.current[key];
        call.stop(CallEvent::Suspend, CallState::Suspended, nanos(now));
        if let Some(worker) = call.worker() {
            if self.suspended.len() <= worker {
                self.suspended.resize(worker + 1, 0);
            }
            self.suspended[worker] += 1;
        }
    }

    /// Pauses a call that was dispatched to the hosting loop, until a thread beside the loop takes it.
    pub(crate) fn set_aside(&mut self, key: usize, now: Duration) {
        self.current[key].stop(CallEvent::SetAside, CallState::SetAside, nanos(now));
    }

    /// Begins a call that was set aside, in this thread, which has the index `worker` beside the loop.
    pub(crate) fn take_over(&mut self, key: usize, worker: usize, now: Duration) {
        let call = &mut self.current[key];
        call.thread = this_thread();
        call.worker = u32::try_from(worker).ok();
        call.spent = 0;
        call.go_on(CallEvent::TakeOver, CallState::Running, nanos(now));
        self.next_look = self.next_look.min(call.due());
    }

    /// Resumes a suspended call. `is_gone`: its connection is gone, and its response ends.
    pub(crate) fn resume(&mut self, key: usize, is_gone: bool, now: Duration) {
        let call = &mut self.current[key];
        call.go_on(CallEvent::Resume, CallState::Running, nanos(now));
        if is_gone {
            call.id = None;
        }
        self.next_look = self.next_look.min(call.due());
        if let Some(worker) = call.worker() {
            self.suspended[worker] -= 1;
        }
    }

    /// Returns the number of suspended calls of the thread `worker`.
    pub(crate) fn suspended(&self, worker: usize) -> usize {
        self.suspended.get(worker).copied().unwrap_or(0)
    }

    /// Begins a wait inside the call. `counts` is false for a wait until a slow client reads, which does not count
    /// towards the deadline.
    pub(crate) fn begin_wait(&mut self, key: usize, counts: bool, now: Duration) {
        let call = &mut self.current[key];
        if counts {
            call.go_on(CallEvent::WaitForInput, CallState::WaitingForInput, nanos(now));
            self.next_look = self.next_look.min(call.due());
        } else {
            call.stop(CallEvent::WaitForClient, CallState::WaitingForClient, nanos(now));
        }
    }

    /// Ends a wait inside the call. Does nothing if another waiter has ended it.
    pub(crate) fn end_wait(&mut self, key: usize, now: Duration) {
        let call = &mut self.current[key];
        if call.state.get().is_waiting() {
            call.go_on(CallEvent::GoOn, CallState::Running, nanos(now));
            self.next_look = self.next_look.min(call.due());
        }
    }

    pub(crate) fn is_waiting(&self, key: usize) -> bool {
        self.current[key].state.get().is_waiting()
    }

    pub(crate) fn is_interrupted(&self, key: usize) -> bool {
        self.current[key].interrupted
    }

    /// Marks the calls that have missed their deadlines, and passes the id of each to `answer`, which answers the
    /// client. Returns their number. `shortest` is the shortest limit of any call. Uses no Python.
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
        // A call that begins later has its deadline after this time.
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

    /// Returns the calls that have missed their deadlines, each only once, with the data for the access log.
    /// `first_step` is the key of the call that the hosting loop is starting.
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

    /// Returns the earliest deadline; `None` if no call has one.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let dues = self.current.iter().filter(|(_, call)| call.expired.is_none()).map(|(_, call)| call.due());
        dues.min().filter(|&due| due != NEVER).map(Duration::from_nanos)
    }

    /// Returns the engine's id of the call with this number, if the call has expired and its connection still exists.
    pub(crate) fn expired(&self, number: u64) -> Option<CallId> {
        let (_, call) = self.current.iter().find(|(_, call)| call.number == number && call.expired.is_some())?;
        call.id
    }

    /// Returns the number of calls that have missed their deadlines so far.
    pub(crate) fn overdue_ever(&self) -> u64 {
        self.overdue
    }

    /// Returns the calls that have not ended. `first_step` is the key of the call that the hosting loop is starting.
    pub(crate) fn all(&self, py: Python<'_>, first_step: Option<usize>, now: Duration) -> Vec<Call> {
        // A call that waits for a message without a thread is like an idle connection, and is not shown.
        let is_shown = |call: &Current| call.state.get() != CallState::Listening;
        let shown = self.current.iter().filter(|(_, call)| is_shown(call));
        shown.map(|(key, call)| Call::of(py, call, first_step == Some(key), now, &self.engine)).collect()
    }

    /// Returns the key and the thread of the call with this number; `None` if it does not run in a thread now.
    pub(crate) fn running(&self, number: u64) -> Option<(usize, ThreadId)> {
        let (key, call) = self.current.iter().find(|(_, call)| call.number == number)?;
        call.is_running().then_some((key, call.thread))
    }

    /// Marks a call as interrupted. Returns the index of its thread if that waits inside the call, and true if an
    /// exception may be raised in the thread now.
    pub(crate) fn interrupt(&mut self, key: usize) -> (Option<usize>, bool) {
        let call = &mut self.current[key];
        call.interrupted = true;
        let worker = call.worker();
        let is_sheltered = worker.is_some_and(|worker| self.sheltered.contains(&worker));
        (worker.filter(|_| call.state.get().is_waiting()), !is_sheltered)
    }

    /// Protects the thread `worker` from asynchronous exceptions until [`expose`](Self::expose). Returns true if one
    /// was already to be raised in the call of this thread.
    pub(crate) fn shelter(&mut self, worker: usize) -> bool {
        self.sheltered.push(worker);
        self.is_worker_interrupted(worker)
    }

    /// Ends the protection by [`shelter`](Self::shelter). Returns true if an exception is still to be raised in the
    /// thread's call.
    pub(crate) fn expose(&mut self, worker: usize) -> bool {
        self.sheltered.retain(|&other| other != worker);
        self.is_worker_interrupted(worker)
    }

    fn is_worker_interrupted(&self, worker: usize) -> bool {
        let is_here =
            |call: &Current| call.worker() == Some(worker) && (call.is_running() || call.state.get().is_waiting());
        self.current.iter().any(|(_, call)| call.interrupted && is_here(call))
    }
}

/// A snapshot of an unfinished call, for Python.
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
        // A loop starts the calls of one poll one after another in its thread, so those after the first have no stack
        // yet.
        let is_queued = call.waiter.is_none() && call.worker.is_none() && !is_first_step;
        let is_running = call.is_running() && !is_queued;
        let is_waiting = call.state.get().is_waiting();
        Self {
            number: call.number,
            environ: call.request.bind(py).clone().unbind(),
            age: now.saturating_sub(Duration::from_nanos(call.began)).as_secs_f64(),
            limit: (call.limit.0 != NEVER).then(|| Duration::from_nanos(call.limit.0).as_secs_f64()),
            thread: (is_running || is_waiting).then_some(call.thread as u64),
            waiter: call.waiter.as_ref().map(|waiter| waiter.clone_ref(py)),
            state: match (is_running, is_waiting) {
                _ if is_queued => "queued",
                (true, true) => "waiting",
                (true, false) => "running",
                (false, _) => "suspended",
            },
            worker: call.worker().map(|worker| engine.number_of_worker(worker)),
            websocket: call.is_receiving,
            outcome: call.expired.map(|expired| match expired {
                Expired::Answered { .. } => "504",
                Expired::Cut { .. } => "cut",
                Expired::Whole => "whole",
                Expired::Left => "left",
            }),
        }
    }
}
