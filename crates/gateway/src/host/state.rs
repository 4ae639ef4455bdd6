//! The state behind the engine's lock: the engine, the host's state that the engine calls, and the calls.

use super::app::{AppParts, AppState};
use super::calls::{Calls, Ended, Late};
use super::index::EngineIndex;
use super::job::{Ending, Failure, InFlight, Job, Mismatch, Rest, Resumable};
use super::shared::{Reason, Replacement};
use crate::access_log::LoggedResponse;
use crate::clock::{self, Clock};
use crate::gil::WithGil;
use crate::interface::Interface;
use crate::limit::RequestLimit;
use crate::log_writer;
use crate::quarantine::Recorder;
use crate::scoreboard::{Publisher, Scoreboard, Snapshot};
use engine::{Engine, Expired, Now, Poller, Progress, Readiness, Ticket, Waker, Work};
use pyo3::prelude::*;
use scheduler::{PoolStatistics, RouteKey, SLOW_TICK, WorkSource};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wire::message::Draft;

/// The time after which an expired call is reported as blocking the engine, if no thread has polled the engine
/// meanwhile although the poller was woken. Such a call holds the GIL, the only thread, or the loop that hosts the
/// engine.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// The engine of a host with the interface `I`.
pub(crate) type HostEngine<I> = Engine<WithGil<AppState<I>>>;

/// The state behind the engine's lock.
pub(super) struct EngineState<I: Interface> {
    pub(super) engine: HostEngine<I>,
    pub(super) app: AppState<I>,
    pub(super) calls: Calls,
    engine_index: EngineIndex,
    pub(super) clock: Clock,
    /// A buffer for the events that the poller reports.
    ready: Vec<Readiness>,
    /// True if the extra descriptor of the hosting loop (`Host::watch_beside`) is ready.
    is_beside_ready: bool,
    waker: Waker,
    /// The error of a failed poller. The engine cannot continue after it.
    broken: Option<io::Error>,
    over: bool,
    /// The number of requests after which the worker is replaced; `None` once it is reached.
    limit: Option<Arc<RequestLimit>>,
    watched: Option<Watched>,
    publisher: Option<Publisher>,
    /// The number of calls that wait for their clients to read.
    blocked: u64,
    /// The time at which a thread last serviced the engine without polling it.
    serviced_at: Duration,
    /// The time at which a call last expired, and the number of polls of the engine at that time.
    expired_at: Option<(Duration, u64)>,
    /// The shortest time limit of any call; `None` if calls have no limits.
    shortest_limit: Option<Duration>,
    /// The maximum number of calls that run at the same time.
    calls_at_most: usize,
    /// The time of the last poll of the engine, and the time at which its statistics were last published.
    polled: Duration,
    published: Duration,
}

/// The arguments of [`EngineState::new`].
pub(super) struct StateParts<I: Interface> {
    pub(super) engine: HostEngine<I>,
    pub(super) app: AppParts<I::Requests>,
    pub(super) replacement: Option<Arc<Replacement>>,
    pub(super) engine_index: EngineIndex,
    pub(super) waker: Waker,
    pub(super) limit: Option<Arc<RequestLimit>>,
    pub(super) watched: Option<Watched>,
    pub(super) publisher: Option<Publisher>,
    pub(super) calls_at_most: usize,
}

/// The data for a supervisor or health check that watches the server from outside.
#[derive(Clone, Default)]
pub(super) struct Watched {
    pub(super) scoreboard: Option<Arc<Scoreboard>>,
    /// The number of threads whose wait has ended and that now wait for the GIL.
    pub(super) coming: Arc<AtomicUsize>,
}

impl<I: Interface> EngineState<I> {
    pub(super) fn new(parts: StateParts<I>) -> Self {
        let recorder = parts.app.quarantine.clone().map(Recorder::new);
        let app = AppState::new(parts.app, parts.replacement);
        Self {
            shortest_limit: app.shortest_limit(),
            engine: parts.engine,
            app,
            calls: Calls::new(parts.engine_index, recorder),
            engine_index: parts.engine_index,
            clock: Clock::default(),
            ready: Vec::new(),
            is_beside_ready: false,
            waker: parts.waker,
            broken: None,
            over: false,
            limit: parts.limit,
            watched: parts.watched,
            publisher: parts.publisher,
            blocked: 0,
            serviced_at: Duration::ZERO,
            expired_at: None,
            calls_at_most: parts.calls_at_most,
            polled: Duration::ZERO,
            published: Duration::ZERO,
        }
    }

    /// Returns the shortest time limit of any call; `None` if calls have no limits.
    pub(super) fn shortest_limit(&self) -> Option<Duration> {
        self.shortest_limit
    }

    /// Returns true once the poller has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Removes and returns the error of a failed poller.
    pub(super) fn take_failure(&mut self) -> Option<io::Error> {
        self.broken.take()
    }

    /// Returns true if the extra descriptor of the hosting loop is ready, and resets that flag.
    pub(super) fn take_beside(&mut self) -> bool {
        std::mem::take(&mut self.is_beside_ready)
    }

    /// Updates the statistics when a wait inside a call begins or ends. `counts` is false for a wait until a slow
    /// client reads; only these are counted.
    pub(super) fn note_wait(&mut self, begins: bool, counts: bool) {
        match (begins, counts) {
            (_, true) => {}
            (true, false) => self.blocked += 1,
            (false, false) => self.blocked -= 1,
        }
    }

    /// Makes a job from work that the engine has dispatched. Registers the call if it is a new one.
    fn begin_job(&mut self, py: Python<'_>, work: Work<WithGil<AppState<I>>>, now: Now) -> Job<I> {
        match work {
            Work::Call(ticket, mut request) => {
                let entry = request.entry.take();
                let key = request.object.as_ref().map(|object| {
                    let worker = self.engine_index.worker();
                    let object = object.clone_ref(py);
                    self.calls.begin(ticket.call(), object, entry, request.limit, worker, now.monotonic)
                });
                request.is_refused = self.calls.count() > self.calls_at_most;
                if let (Some(route), Some(key)) = (&request.recorded, key) {
                    request.is_refused |= self.calls.record(key, route);
                }
                if let (Some(stopwatch), Some(key)) = (&mut self.app.stopwatch, key) {
                    if self.app.is_hosted {
                        stopwatch.dispatch(key);
                    } else {
                        stopwatch.begin(key, request.queued_at);
                    }
                }
                Job::Call { ticket, request, key }
            }
            Work::Resume(ticket, response) => Job::Resume(ticket, response),
            Work::Abandon(response) => Job::Abandon(response),
        }
    }

    /// Returns a ticket to the engine, with the progress of its response.
    pub(super) fn complete(&mut self, py: Python<'_>, ticket: Ticket, progress: Progress<Resumable<I>>, now: Now) {
        self.engine.complete(ticket, progress, now, WithGil::new(&mut self.app, py));
    }

    /// Notes that the hosting loop has started a call that was dispatched to it earlier.
    pub(super) fn take_up(&mut self, key: usize) {
        if let Some(stopwatch) = &mut self.app.stopwatch {
            stopwatch.take_up(key);
        }
    }

    /// Removes a call that has ended.
    pub(super) fn end(&mut self, key: usize) -> Ended {
        if let Some(stopwatch) = &mut self.app.stopwatch {
            stopwatch.end(key);
        }
        self.calls.end(key)
    }

    /// Removes a call that has ended, and logs it. Returns the objects that it held; the caller must drop them after it
    /// has released the lock.
    pub(super) fn end_call(&mut self, py: Python<'_>, call: &InFlight<I>, body_bytes: u64) -> Ended {
        let number = self.calls.number(call.key());
        let mut ended = self.end(call.key());
        let close_code = if ended.entry.is_some() { self.close_code(py, call.exchange()) } else { None };
        if let (Some(log), Some(entry)) = (&mut self.app.access_log, ended.entry.take()) {
            let (is_refused, body_bytes) = match ended.expired {
                Some(Expired::Answered { body_bytes }) => (true, body_bytes),
                Some(Expired::Cut { body_bytes }) => (false, body_bytes),
                _ => (false, body_bytes),
            };
            // Writing a line calls Python, and the exchange must not be in use then. So the draft is moved out until
            // the line is written.
            let exchange = call.exchange();
            let mut draft = exchange.with(py, |state| std::mem::take(&mut state.draft));
            if is_refused {
                // The client got the 504 of the engine, not the later response of the application.
                draft = timeout_draft();
            }
            let response = LoggedResponse { status: draft.status(), body_bytes, draft: Some(&draft), close_code };
            log.write(py, &entry, response, Some(&ended.request), Some(number));
            exchange.with(py, |state| state.draft = draft);
        }
        ended
    }

    /// Writes the access log line of a request that was answered with 504, although its call is still running.
    pub(super) fn log_late(&mut self, py: Python<'_>, Late { number, entry, request, body_bytes }: &Late) {
        if let Some(log) = &mut self.app.access_log {
            let draft = timeout_draft();
            let response =
                LoggedResponse { status: 504, body_bytes: *body_bytes, draft: Some(&draft), close_code: None };
            log.write(py, entry, response, Some(request), Some(*number));
        }
    }

    /// Writes the response of a call and completes it. On failure, stores the reason in `ending.rest`.
    pub(super) fn end_whole(&mut self, py: Python<'_>, ending: &mut Ending<I>) {
        let Ending { call, rest } = ending;
        let Rest::Write(chunk) = std::mem::replace(rest, Rest::InProgress) else { return };
        let length = chunk.as_ref().len() as u64;
        let written = call.exchange().with(py, |exchange| {
            let Some(ticket) = &exchange.ticket else { unreachable!("the call has not ended") };
            let draft = &exchange.draft;
            let written = self.engine.reply(ticket, |reply| {
                if !reply.is_begun() {
                    if draft.is_empty() {
                        // Another thread is in the middle of a second start_response call, which has taken the draft.
                        return Err(Failure::Raised(I::unstarted()));
                    }
                    if let Err(misuse) = reply.check_length(draft, length) {
                        return Err(Failure::Mismatched(Mismatch::of(misuse, draft, length)));
                    }
                    reply.begin(draft, Some(length));
                }
                match reply.write(chunk).and_then(|()| reply.finish()) {
                    Ok(()) => Ok(reply.body_bytes()),
                    Err(misuse) => Err(Failure::Mismatched(Mismatch::of(misuse, draft, reply.offered_bytes()))),
                }
            });
            written.map(|written| (exchange.take_ticket_for_good(), written))
        });
        let (ticket, body_bytes) = match written {
            Ok(written) => written,
            Err(failure) => {
                *rest = Rest::Fail(Box::new(failure));
                return;
            }
        };
        let Some(ticket) = ticket else { unreachable!("it was there") };
        let ended = self.end_call(py, call, body_bytes);
        let now = self.clock.now();
        self.complete(py, ticket, Progress::Done, now);
        *rest = Rest::Release(ended);
    }
}

/// Returns the head of the engine's own 504 response for a call that has missed its deadline.
fn timeout_draft() -> Draft {
    let mut draft = Draft::default();
    // 504 is a valid status.
    draft.start_refusal(504).ok();
    draft
}

impl<I: Interface> EngineState<I> {
    /// Returns the time of the next timer of the engine or of a sleeper.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let due = self.engine.due();
        due.into_iter().chain(self.app.sleepers.due()).min()
    }
}

impl<I: Interface> WorkSource for EngineState<I> {
    type Work = Job<I>;
    type Poller = Poller;
    type Token<'a> = Python<'a>;

    fn next(&mut self, py: Python<'_>, may_call: bool) -> Option<Job<I>> {
        let now = self.clock.now();
        self.polled = now.monotonic;
        let work = self.engine.poll(now, WithGil::new(&mut self.app, py), may_call)?;
        if let Some(limit) = &self.limit
            && matches!(work, Work::Call(..))
            && limit.count()
        {
            self.limit = None;
        }
        Some(self.begin_job(py, work, now))
    }

    fn owner(job: &Job<I>) -> Option<usize> {
        job.worker()
    }

    fn route_key(job: &Job<I>) -> Option<RouteKey> {
        job.route_key()
    }

    fn has_queued(&self) -> bool {
        self.engine.has_queued()
    }

    fn connections(&self) -> usize {
        self.engine.connections()
    }

    fn bound(&self, worker: usize) -> usize {
        self.calls.suspended(worker)
    }

    fn poll(&mut self, poller: &mut Poller) -> bool {
        poller.wait_until_ready(Some(Duration::ZERO));
        let is_ready = self.fill(poller);
        is_ready | self.wake_late()
    }

    fn take_events(&mut self, poller: &mut Poller) {
        self.fill(poller);
        self.wake_late();
    }

    fn due(&self) -> Option<Duration> {
        if self.app.hosted_wakes.is_empty() { self.next_due() } else { Some(Duration::ZERO) }
    }

    fn has_work(&self) -> bool {
        !self.app.hosted_wakes.is_empty() || self.engine.must_poll()
    }

    fn now(&self) -> Duration {
        clock::coarse()
    }

    fn wake_poller(&self) {
        self.waker.wake();
    }

    fn before_wait(&mut self, is_free: bool) {
        self.engine.before_wait(is_free);
    }

    fn woken(&mut self) -> Option<usize> {
        self.app.worker_wakes.pop()
    }

    fn has_deferred_output(&self) -> bool {
        self.engine.has_deferred_output()
    }

    fn tick(&mut self) {
        self.engine.tick();
    }

    fn is_over(&self) -> bool {
        self.over || self.engine.is_stopped()
    }

    fn service_pending(&mut self, poller: Option<&mut Poller>) -> bool {
        if self.watched.is_none() && self.shortest_limit.is_none() {
            return false;
        }
        let now = self.clock.now();
        // Ticks may be more frequent than this check needs. The 9/10 allows for the clock's coarse steps.
        if now.monotonic < self.serviced_at + SLOW_TICK * 9 / 10 {
            return false;
        }
        self.serviced_at = now.monotonic;
        let has_expired = self.expire();
        self.look_for_block(now);
        let Some(watched) = &self.watched else { return has_expired };
        let is_awaited = watched.coming.load(Ordering::Relaxed) > 0 || poller.is_some_and(|poller| poller.is_ready());
        self.engine.service_pending(now, is_awaited) || has_expired
    }

    fn is_stale(&self) -> bool {
        self.publisher.is_some() && self.polled > self.published
    }

    fn publish(&mut self, pool_statistics: &PoolStatistics) {
        if self.publisher.is_some() {
            let snapshot = self.snapshot(*pool_statistics);
            self.published = snapshot.at;
            self.publisher.iter_mut().for_each(|publisher| publisher.publish(&snapshot));
        }
    }
}

impl<I: Interface> EngineState<I> {
    /// Sends 504 to the clients of calls that have missed their deadlines. Returns true if there were any. Uses no
    /// Python, so it works while a call holds the GIL.
    pub(super) fn expire(&mut self) -> bool {
        let Some(shortest) = self.shortest_limit else { return false };
        let now = clock::now();
        let Self { engine, calls, .. } = self;
        let has_expired = calls.expire(shortest, now.monotonic, |call| engine.expire(call, now)) > 0;
        if has_expired {
            self.expired_at = Some((now.monotonic, self.engine.polls()));
        }
        has_expired
    }

    /// If an expired call keeps all threads from polling the engine, requests another worker from the supervisor, and
    /// refuses the requests that wait in this one. Uses no Python.
    fn look_for_block(&mut self, now: Now) {
        let Some((at, polls)) = self.expired_at else { return };
        if self.engine.polls() != polls {
            self.expired_at = None;
        } else if now.monotonic >= at + BLOCKED_AFTER {
            if let Some(replacement) = &self.app.replacement {
                replacement.request(Reason::Stuck);
            }
            self.engine.refuse_waiting(now);
        }
    }

    /// Wakes the sleepers whose timeout has passed. Returns true if there were any.
    fn wake_late(&mut self) -> bool {
        if self.app.sleepers.due().is_none() {
            return false;
        }
        let late = self.app.sleepers.take_late(clock::now().monotonic);
        let is_any = !late.is_empty();
        for waiter in late {
            self.app.wake_waiter(waiter);
        }
        is_any
    }

    /// Returns the current statistics. Uses no Python.
    pub(super) fn snapshot(&self, pool_statistics: PoolStatistics) -> Snapshot {
        // A loop that hosts the engine does not limit the number of calls.
        let max_calls = if self.app.is_hosted { 0 } else { pool_statistics.max_calls };
        Snapshot {
            at: clock::coarse(),
            engine: self.engine.statistics(),
            is_draining: self.engine.is_draining(),
            is_stalled: self.engine.is_stalled(),
            blocked: self.blocked,
            overdue: self.calls.overdue_ever(),
            pool_statistics: PoolStatistics { max_calls, ..pool_statistics },
            // This counter is for the whole process. Only the first engine reports it, because the numbers of engines
            // are summed.
            log_lines_dropped: if self.engine_index.index == 0 { log_writer::dropped() } else { 0 },
        }
    }

    /// Passes the poller's events to the engine. Returns true if there are any.
    fn fill(&mut self, poller: &mut Poller) -> bool {
        if let Err(error) = poller.take(&mut self.ready) {
            self.broken = Some(error);
            self.over = true;
        }
        self.is_beside_ready |= poller.take_beside();
        let is_ready = !self.ready.is_empty();
        self.engine.notice(&mut self.ready);
        is_ready
    }
}
