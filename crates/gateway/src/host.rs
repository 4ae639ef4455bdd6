//! What the threads of a server share: the engine and the gateway's state behind one lock, and what never changes.
//!
//! Nothing that the application's user wrote runs while the lock is held. What has to be told or logged meanwhile is
//! put down as a note and delivered when the lock is open ([`Host::tidy`]).

use crate::access_log::{AccessLog, LoggerLines};
use crate::calls::{Call, Place};
use crate::clock::{self, Clock, Usage};
use crate::limit::RequestLimit;
use crate::log_writer;
use crate::object::Object;
use crate::scoreboard::{Histogram, Publisher, Scoreboard, Snapshot};
use crate::thread_name;
use crate::wsgi::{
    ERROR, Ending, HandleTypes, Handles, INFO, Inputs, Job, Note, StartResponse, WARNING, Wsgi, read_too_late,
};
use engine::scheduler::{self, PoolStatistics, RouteKey, Scheduler, Threads};
use engine::{
    Engine, Input, Now, Pace, Poller, Progress, Readiness, SLOW_TICK, Stage, Ticker, Ticket, Waker, Wanted, Work,
};
use pyo3::exceptions::{PyBaseException, PyConnectionResetError, PyOSError, PyRuntimeError, PyTimeoutError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use wire::http1::Fault;

/// What the lock guards.
pub(crate) struct EngineState {
    pub(crate) engine: Engine<Wsgi>,
    pub(crate) wsgi: Wsgi,
    pub(crate) clock: Clock,
    /// Room for what the poller tells.
    ready: Vec<Readiness>,
    waker: Waker,
    /// The poller has failed: nothing can go on.
    broken: Option<io::Error>,
    over: bool,
    /// Until it is reached.
    limit: Option<Arc<RequestLimit>>,
    watched: Option<Watched>,
    publisher: Option<Publisher>,
    /// When somebody looked last who does not turn the engine.
    serviced_at: Duration,
    /// When a call expired last, and how many turns of the engine there had been.
    expired_at: Option<(Duration, u64)>,
    replacement: Option<Arc<Replacement>>,
    /// The shortest limit that a call may have, where calls have limits.
    shortest_limit: Option<Duration>,
    /// When the engine was turned last, and when it was told to others.
    polled: Duration,
    published: Duration,
}

/// One server, as its threads see it.
pub(crate) struct Host {
    /// First, because it ends before anything else goes: its thread looks at the rest.
    ticker: OnceLock<Option<Ticker>>,
    scheduler: Scheduler<EngineState>,
    watched: Option<Watched>,
    /// The watchdog has something to do also while nothing is ready: others ask how it is, or calls have deadlines.
    needs_ticks: bool,
    pub(crate) application: Object,
    pub(crate) file_wrapper: Object,
    pub(crate) inputs: Inputs,
    pub(crate) handles: HandleTypes,
    report: Option<Py<PyAny>>,
    hooks: Hooks,
    /// Calls at a time.
    threads: usize,
    /// Somebody wants to know where the time of requests goes.
    pub(crate) times_stages: bool,
    waker: Waker,
    /// What other threads and signal handlers ask for; it never waits for the engine.
    control: Mutex<Control>,
    asked: AtomicBool,
    /// Which of its server's engines this is.
    place: Place,
    shared: Arc<ServerShared>,
}

/// What the engines of one server share.
#[derive(Default)]
pub(crate) struct ServerShared {
    hosts: OnceLock<Box<[Weak<Host>]>>,
    /// An exception that ends the server.
    failure: Mutex<Option<Py<PyBaseException>>>,
    /// The server has ended; whoever watches deadlines is told.
    ended: Mutex<bool>,
    end: Condvar,
}

impl ServerShared {
    /// These are all. Each is told once.
    pub(crate) fn connect(&self, hosts: &[Arc<Host>]) {
        self.hosts.set(hosts.iter().map(Arc::downgrade).collect()).ok();
    }

    fn hosts(&self) -> impl Iterator<Item = Arc<Host>> {
        self.hosts.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    /// The server has ended.
    pub(crate) fn end(&self) {
        *lock(&self.ended) = true;
        self.end.notify_all();
    }

    /// Waits, without the interpreter, for `timeout` or until the server has ended; whether it has.
    pub(crate) fn wait_for_end(&self, py: Python<'_>, timeout: Option<Duration>) -> bool {
        detached(py, || {
            let ended = lock(&self.ended);
            match timeout {
                None => *self.end.wait_while(ended, |ended| !*ended).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    *self
                        .end
                        .wait_timeout_while(ended, timeout, |ended| !*ended)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            }
        })
    }

    /// What has ended the server, if something has.
    fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = lock(&self.failure).as_ref().map(|failure| failure.clone_ref(py));
        failure.map(|failure| PyErr::from_value(failure.into_bound(py).into_any()))
    }

    pub(crate) fn take_failure(&self, py: Python<'_>) -> Option<PyErr> {
        let failure = lock(&self.failure).take();
        failure.map(|failure| PyErr::from_value(failure.into_bound(py).into_any()))
    }
}

/// What Python lends to a server.
pub(crate) struct Hooks {
    /// Starts a thread that calls `work(index)`.
    pub(crate) spawn: Option<Py<PyAny>>,
    /// Makes something that a greenlet can wait with, and waits with it.
    pub(crate) waiter: Option<Py<PyAny>>,
    pub(crate) wait: Option<Py<PyAny>>,
    /// What is raised in a call whose time is up.
    pub(crate) timeout_exception: Option<Py<PyAny>>,
}

impl Hooks {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        let again = |hook: &Option<Py<PyAny>>| hook.as_ref().map(|hook| hook.clone_ref(py));
        Self {
            spawn: again(&self.spawn),
            waiter: again(&self.waiter),
            wait: again(&self.wait),
            timeout_exception: again(&self.timeout_exception),
        }
    }
}

/// What a turn has brought for a loop that hosts the engine.
pub(crate) struct Polled {
    /// What can start or go on, with the numbers of the calls.
    pub(crate) jobs: Vec<(u64, Job)>,
    /// Those whose wait is over.
    pub(crate) woken: Vec<Py<PyAny>>,
}

#[derive(Clone, Copy, Default)]
struct Control {
    stop: Option<Stop>,
    drain: bool,
    reopen_logs: bool,
}

/// Stop: cut what is left after `limit`, if there is one, and wait for so long as `grace` for idle connections to ask
/// once more.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    pub(crate) limit: Option<Duration>,
    pub(crate) grace: Duration,
}

impl Stop {
    /// As both ask for: what has been set can only become shorter.
    fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self { limit: self.limit.into_iter().chain(other.limit).min(), grace: self.grace.min(other.grace) }
    }
}

/// What is waited for in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// Some of the request's body. The time belongs to the request's deadline.
    Input,
    /// That the peer has taken what was written.
    Output,
}

/// Whoever waits in the middle of a call.
pub(crate) enum Waiter {
    /// A thread of the crew.
    Worker(usize),
    /// What the loop that hosts the engine waits with.
    Hosted(Py<PyAny>),
}

/// The lock is held already by the thread that asks for it: something that the interpreter ran by itself meanwhile,
/// such as a finalizer, came back to the server.
#[derive(Debug)]
pub(crate) struct Reentered;

impl From<Reentered> for PyErr {
    fn from(_: Reentered) -> Self {
        PyRuntimeError::new_err("the server was called from within itself")
    }
}

/// What makes up a [`Host`].
pub(crate) struct Plan {
    pub(crate) engine: Engine<Wsgi>,
    pub(crate) wsgi: Wsgi,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
    pub(crate) application: Object,
    pub(crate) file_wrapper: Object,
    pub(crate) inputs: Inputs,
    pub(crate) report: Option<Py<PyAny>>,
    pub(crate) hooks: Hooks,
    pub(crate) threads: usize,
    pub(crate) limit: Option<Arc<RequestLimit>>,
    pub(crate) scoreboard: Option<Arc<Scoreboard>>,
    pub(crate) place: Place,
    pub(crate) shared: Arc<ServerShared>,
    /// Others ask how it is, also while nobody turns the engine.
    pub(crate) is_asked: bool,
    /// The engine has been told to take the times of stages.
    pub(crate) times_stages: bool,
    pub(crate) replacement: Option<Arc<Replacement>>,
}

/// What asks the supervisor for a worker in this one's place, without Python.
pub(crate) struct Replacement {
    channel: UnixDatagram,
    message: Box<[u8]>,
    is_asked: AtomicBool,
}

impl Replacement {
    /// `message` is sent on `channel`, which does not block.
    pub(crate) fn new(channel: OwnedFd, message: &[u8]) -> Self {
        Self { channel: channel.into(), message: message.into(), is_asked: AtomicBool::new(false) }
    }

    fn ask(&self) {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            // Without a supervisor nobody hears it, and the worker is told of that by the channel's end.
            self.channel.send(&self.message).ok();
        }
    }
}

/// If no thread has turned the engine for so long after a call expired, although the poller was woken, the call keeps
/// all of them from it: it holds the GIL, or the only thread, or the hub of a loop that hosts the engine.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// Somebody else wants to know how the server is.
#[derive(Clone, Default)]
struct Watched {
    scoreboard: Option<Arc<Scoreboard>>,
    /// Threads that have waited for something and now wait for the interpreter.
    coming: Arc<AtomicUsize>,
}

impl Host {
    pub(crate) fn new(py: Python<'_>, plan: Plan) -> PyResult<Arc<Self>> {
        let Plan { engine, wsgi, poller, waker, application, file_wrapper, inputs, report, hooks, threads, .. } = plan;
        let Plan { place, shared, .. } = plan;
        let is_watched = plan.is_asked || plan.scoreboard.is_some();
        let publisher = plan.scoreboard.clone().map(|scoreboard| Publisher::new(scoreboard, place.is_alone()));
        let watched = is_watched.then(|| Watched { scoreboard: plan.scoreboard, coming: Arc::default() });
        let shortest_limit = wsgi.shortest_limit();
        let state = EngineState {
            engine,
            wsgi,
            clock: Clock::default(),
            ready: Vec::new(),
            waker: waker.clone(),
            broken: None,
            over: false,
            limit: plan.limit,
            watched: watched.clone(),
            publisher,
            serviced_at: Duration::ZERO,
            expired_at: None,
            replacement: plan.replacement,
            shortest_limit,
            polled: Duration::ZERO,
            published: Duration::ZERO,
        };
        let handles = HandleTypes::new(py)?;
        let needs_ticks = watched.is_some() || shortest_limit.is_some();
        Ok(Arc::new_cyclic(|host| Self {
            ticker: OnceLock::new(),
            scheduler: Scheduler::new(state, poller, threads),
            watched,
            needs_ticks,
            application,
            file_wrapper,
            inputs,
            handles: handles.of(Weak::clone(host)),
            report,
            hooks,
            threads,
            times_stages: plan.times_stages,
            waker,
            control: Mutex::default(),
            asked: AtomicBool::new(false),
            place,
            shared,
        }))
    }

    /// Whether this thread does something with another engine of the server just now: to wait for this one here could be
    /// to wait for somebody who waits for that.
    fn is_elsewhere(&self) -> bool {
        !self.place.is_alone() && self.shared.hosts().any(|host| host.scheduler.is_mine())
    }

    /// How many threads the crew may have, the one in reserve included.
    pub(crate) fn thread_count(&self) -> usize {
        self.scheduler.thread_count()
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Does something with the engine and the gateway's state, locked.
    pub(crate) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut EngineState) -> R) -> Result<R, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        let (result, holds) = self
            .scheduler
            .with(&Attached::new(self, py), |state| {
                let result = act(state);
                (result, state.engine.has_deferred_output())
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if holds {
            self.tick_along(Pace::Quick);
        }
        Ok(result)
    }

    /// The call that `it` answers goes over to another stage.
    #[cold]
    pub(crate) fn switch_stage(&self, py: Python<'_>, it: &StartResponse, stage: Stage) {
        let switched = self.with(py, |state| {
            it.exchange().with(py, |exchange| {
                exchange.ticket.as_ref().and_then(|ticket| state.engine.switch_stage(ticket, stage))
            })
        });
        switched.ok();
    }

    /// Somebody has to tick from now on.
    fn tick_along(&self, pace: Pace) {
        if let Some(ticker) = self.ticker() {
            ticker.want(pace);
        }
    }

    /// Somebody has to look now and then how things are, if others are to know.
    fn tick_slowly(&self) {
        if self.needs_ticks
            && let Some(ticker) = self.ticker()
        {
            ticker.want(Pace::Slow);
        }
    }

    fn ticker(&self) -> Option<&Ticker> {
        let ticker = self.ticker.get_or_init(|| {
            struct Place(*const Host);
            // SAFETY: what the thread does with the site, `Scheduler::tick`, touches nothing of Python.
            unsafe impl Send for Place {}
            let place = Place(self);
            let tick = move || {
                let place = &place;
                // SAFETY: the site lies in an `Arc`, and its drop begins with the ticker's, which waits for the thread.
                let host = unsafe { &*place.0 };
                match host.scheduler.tick() {
                    Wanted::No if host.needs_ticks && !*lock(&host.shared.ended) => Wanted::Slowly,
                    wanted => wanted,
                }
            };
            // Without the thread, blocks leave when the next one or the end comes, and calls wait for each other.
            Ticker::new(tick).ok()
        });
        ticker.as_ref()
    }

    /// Starts the first thread of the crew, which starts others as they are needed.
    pub(crate) fn start_first(&self, py: Python<'_>) -> PyResult<()> {
        if self.place.is_alone() {
            share_heaps();
        }
        match &self.hooks.spawn {
            Some(spawn) => spawn.call1(py, (self.place.number_of_worker(0),)).map(drop),
            None => Ok(()),
        }
    }

    /// Once all is over and only threads in calls are left: how many.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let pool_statistics = self.pool_statistics(py).ok()?;
        (self.is_stopped(py).ok()? && pool_statistics.threads <= pool_statistics.running)
            .then_some(pool_statistics.threads)
    }

    pub(crate) fn wake(&self, py: Python<'_>) {
        self.obey(py);
        self.waker.wake();
    }

    /// Calls whose time is up, and how long to wait until there may be more.
    pub(crate) fn overdue(&self, py: Python<'_>) -> Result<(Vec<Call>, Option<Duration>), Reentered> {
        let (overdue, wait) = self.with(py, |state| {
            let now = clock::now().monotonic;
            state.expire();
            let overdue = state.wsgi.calls.overdue(py, now);
            for (_, late) in &overdue {
                if let Some(late) = late {
                    state.wsgi.log_late(py, late);
                }
            }
            let due = state.wsgi.calls.next_due().map(|due| due.saturating_sub(now));
            // A call that begins meanwhile is not due before the shortest limit has passed. The clock moves on in
            // steps, so a little is added to be behind the moment.
            let wait = due.into_iter().chain(state.wsgi.shortest_limit()).min();
            (overdue, wait.map(|wait| wait + Duration::from_millis(5)))
        })?;
        if !overdue.is_empty() {
            self.tidy(py, true);
        }
        Ok((overdue.into_iter().map(|(call, _)| call).collect(), wait))
    }

    /// The call with this number is not expected to come back: the server's end does not wait for it.
    pub(crate) fn write_off(&self, py: Python<'_>, number: u64) -> Result<(), Reentered> {
        self.with(py, |state| {
            if let Some(call) = state.wsgi.calls.expired(number) {
                state.engine.write_off(call);
            }
        })
    }

    /// Is the thread `index` of the crew until the server has stopped.
    pub(crate) fn work(&self, py: Python<'_>, index: usize) {
        self.place.set_worker(Some(index));
        if self.threads > 1 {
            // A single thread is the program's own.
            thread_name::set(&format!("kirsch-{}", self.place.number_of_worker(index)));
        }
        self.tick_slowly();
        let thread_count = Attached::new(self, py);
        self.scheduler.work(&thread_count, index);
        thread_count.let_go();
        self.place.set_worker(None);
        self.tidy(py, true);
        if !self.place.is_alone() && matches!(self.with(py, |state| state.broken.is_some()), Ok(true)) {
            // What is over here is over everywhere: there is one server.
            self.stop_all(py, Stop { limit: Some(Duration::ZERO), grace: Duration::ZERO });
        }
    }

    /// [Stops](Self::stop) each of the server's engines.
    fn stop_all(&self, py: Python<'_>, stop: Stop) {
        for host in self.shared.hosts() {
            host.stop(py, stop);
        }
    }

    pub(crate) fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered> {
        self.with(py, |state| scheduler::WorkSource::is_over(state))
    }

    pub(crate) fn pool_statistics(&self, py: Python<'_>) -> Result<PoolStatistics, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.scheduler.pool_statistics(&Attached::new(self, py)).map_err(|scheduler::Reentered| Reentered)
    }

    /// All calls that are not over.
    pub(crate) fn calls(&self, py: Python<'_>) -> Result<Vec<Call>, Reentered> {
        self.with(py, |state| state.wsgi.calls.all(py, clock::now().monotonic))
    }

    /// How things are.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> Result<Snapshot, Reentered> {
        let pool_statistics = self.pool_statistics(py)?;
        self.with(py, |state| state.snapshot(pool_statistics))
    }

    /// For a loop that hosts the engine: seconds until it is to be turned at the latest.
    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        self.with(py, |state| state.engine.timeout(clock::now()))
    }

    /// For a loop that hosts the engine: what can start or go on now, and whose wait is over.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<Polled> {
        let thread_count = Attached::new(self, py);
        let mut jobs = Vec::new();
        let (woken, holds) = self
            .scheduler
            .poll(&thread_count, |state, poller| {
                loop {
                    while let Some(job) = scheduler::WorkSource::next(state, true) {
                        jobs.push((job.number(&state.wsgi), job));
                    }
                    if !scheduler::WorkSource::poll(state, poller)
                        && scheduler::WorkSource::due(state) != Some(Duration::ZERO)
                    {
                        break;
                    }
                }
                (state.wsgi.take_hosted_wakes(), state.engine.has_deferred_output())
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if holds {
            self.tick_along(Pace::Quick);
        }
        self.tick_slowly();
        thread_count.clean_up(true);
        self.fail_if_failed(py)?;
        Ok(Polled { jobs, woken })
    }

    /// Everything is over, or has to be: what is open is cut.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let jobs = self.with(py, |state| {
            state.engine.stop(clock::now(), Some(Duration::ZERO), Duration::ZERO);
            std::iter::from_fn(|| scheduler::WorkSource::next(state, false)).collect::<Vec<_>>()
        })?;
        for job in jobs {
            self.run_whole(py, job);
        }
        self.tidy(py, true);
        self.scheduler.publish(&Attached::new(self, py)).ok();
        Ok(())
    }

    /// Asks for the server's end. It may be called anywhere and does not wait.
    pub(crate) fn stop(&self, py: Python<'_>, stop: Stop) {
        self.ask(py, |control| control.stop = Some(stop.and(control.stop)));
    }

    /// Asks for each response to be the last one of its connection. It may be called anywhere and does not wait.
    pub(crate) fn drain(&self, py: Python<'_>) {
        self.ask(py, |control| control.drain = true);
    }

    fn ask(&self, py: Python<'_>, set: impl FnOnce(&mut Control)) {
        set(&mut lock(&self.control));
        self.asked.store(true, Ordering::Relaxed);
        self.obey(py);
        self.waker.wake();
    }

    pub(crate) fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        let reopened = self.with(py, |state| state.wsgi.access_log.as_mut().map_or(Ok(()), AccessLog::reopen));
        if let Ok(result) = reopened {
            return result;
        }
        // From within: somebody does it later.
        lock(&self.control).reopen_logs = true;
        self.asked.store(true, Ordering::Relaxed);
        self.waker.wake();
        Ok(())
    }

    /// Does what was asked for, unless it was asked for from within: then somebody else does.
    fn obey(&self, py: Python<'_>) {
        if !self.asked.swap(false, Ordering::Relaxed) {
            return;
        }
        let asked = std::mem::take(&mut *lock(&self.control));
        let done = self.with(py, |state| {
            if asked.drain {
                state.engine.drain();
            }
            if let Some(Stop { limit, grace }) = asked.stop {
                state.engine.stop(clock::now(), limit, grace);
            }
            if asked.reopen_logs
                && let Some(Err(error)) = state.wsgi.access_log.as_mut().map(AccessLog::reopen)
            {
                state.wsgi.note(ERROR, format!("the access log could not be opened again: {error}"), None);
            }
        });
        if done.is_err() {
            let mut control = lock(&self.control);
            control.stop = asked.stop.map(|stop| stop.and(control.stop)).or(control.stop);
            control.drain |= asked.drain;
            control.reopen_logs |= asked.reopen_logs;
            self.asked.store(true, Ordering::Relaxed);
        }
    }

    /// A call is over without having come to an end; `key`: of the call, if it has begun.
    pub(crate) fn cut_off(&self, py: Python<'_>, ticket: Ticket, key: Option<usize>) {
        let ended = self.with(py, |state| {
            let refused = state.engine.reply(&ticket, |reply| reply.refuse(500, "The server has failed."));
            let progress = if refused { Progress::Done } else { Progress::Cut };
            state.engine.complete(ticket, progress, clock::now(), &mut state.wsgi);
            key.map(|key| state.wsgi.end(key))
        });
        drop(ended);
    }

    /// An exception that is to end the server.
    pub(crate) fn fail_with(&self, py: Python<'_>, error: PyErr) {
        // Made here, and let go of below, because both may run what is Python's.
        let mut failure = Some(error.into_value(py));
        {
            let mut first = lock(&self.shared.failure);
            if first.is_none() {
                *first = failure.take();
            }
        }
        drop(failure);
        self.stop_all(py, Stop { limit: Some(Duration::ZERO), grace: Duration::ZERO });
    }

    /// Raises what has ended the server, if something has.
    pub(crate) fn fail_if_failed(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(error) = self.shared.take_failure(py) {
            return Err(error);
        }
        self.with(py, |state| state.broken.take())?.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Waits in the middle of a call until its peer has taken what was written. Where nobody else could go on meanwhile,
    /// what piles up is kept elsewhere instead.
    pub(crate) fn wait_for_output(&self, py: Python<'_>, it: &StartResponse) -> PyResult<()> {
        let cannot_wait = self.hooks.waiter.is_none() && (self.threads == 1 || self.place.worker().is_none());
        loop {
            let is_to_wait = self.with(py, |state| {
                it.exchange().with(py, |exchange| {
                    let Some(ticket) = &exchange.ticket else { return Ok(false) };
                    state.engine.reply(ticket, |reply| {
                        if cannot_wait {
                            reply.relieve().map(|()| false)
                        } else {
                            Ok(reply.is_full() && !reply.is_gone())
                        }
                    })
                })
            })??;
            if !is_to_wait {
                return Ok(());
            }
            // A wait may be over early.
            self.wait(py, it, Awaited::Output)?;
        }
    }

    /// Waits in the middle of a call.
    fn wait(&self, py: Python<'_>, it: &StartResponse, what: Awaited) -> PyResult<()> {
        if let Some(wait) = &self.hooks.wait {
            let mut waiter = None;
            let begun = self.with(py, |state| {
                let key = it.exchange().with(py, |exchange| exchange.ticket.as_ref().map(|_| exchange.key));
                waiter = key.and_then(|key| state.wsgi.calls.waiter(py, key));
                let waiter = waiter.as_ref().map(|waiter| Waiter::Hosted(waiter.clone_ref(py)));
                waiter.and_then(|waiter| Self::begin_wait(py, state, it, what, waiter))
            })?;
            let waited = wait.call1(py, (waiter,));
            if let Some(begun) = begun {
                self.with(py, |state| Self::end_wait(py, state, it, what, begun))?;
            }
            return waited.map(drop);
        }
        let Some(worker) = self.place.worker() else {
            return Err(PyRuntimeError::new_err("only the thread of a request can wait for its peer"));
        };
        let mut begun = None;
        let mut is_taken = false;
        self.scheduler
            .wait(&Attached::new(self, py), worker, |state| {
                let key = it.exchange().with(py, |exchange| exchange.ticket.as_ref().map(|_| exchange.key));
                is_taken = key.is_some_and(|key| state.wsgi.calls.is_waiting(key));
                if !is_taken {
                    begun = Self::begin_wait(py, state, it, what, Waiter::Worker(worker));
                }
                if begun.is_none() {
                    // There is nothing to wait for.
                    state.wsgi.wake_worker(worker);
                }
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if is_taken {
            return Err(PyRuntimeError::new_err("another thread waits for the same peer"));
        }
        if let Some(begun) = begun
            && self.with(py, |state| Self::end_wait(py, state, it, what, begun))?
            && let Some(exception) = &self.hooks.timeout_exception
        {
            // Here and not once more behind it.
            Self::take_back_interrupt(py);
            return Err(PyErr::from_value(exception.bind(py).call0()?));
        }
        // The server's end is the call's too.
        self.shared.failure(py).map_or(Ok(()), Err)
    }

    /// Has the engine wake `waiter`. Returns the key of the call and the stage that its request was in; `None` if its response is over or suspended, as another
    /// thread than the application's may find it.
    fn begin_wait(
        py: Python<'_>,
        state: &mut EngineState,
        it: &StartResponse,
        what: Awaited,
        waiter: Waiter,
    ) -> Option<(usize, Option<Stage>)> {
        let now = clock::now();
        it.exchange().with(py, |exchange| {
            let ticket = exchange.ticket.as_ref()?;
            let counts = what == Awaited::Input;
            let stage = state.engine.switch_stage(ticket, Stage::Peer);
            state.wsgi.blocked += u64::from(!counts);
            state.wsgi.calls.set_waiting(exchange.key, true, counts, now.monotonic);
            match what {
                Awaited::Input => state.engine.wait_for_input(ticket, waiter, now, &mut state.wsgi),
                Awaited::Output => state.engine.wait_for_output(ticket, waiter, now, &mut state.wsgi),
            }
            Some((exchange.key, stage))
        })
    }

    /// The wait is over. Returns whether the call was interrupted meanwhile.
    fn end_wait(
        py: Python<'_>,
        state: &mut EngineState,
        it: &StartResponse,
        what: Awaited,
        (key, stage): (usize, Option<Stage>),
    ) -> bool {
        let counts = what == Awaited::Input;
        state.wsgi.blocked -= u64::from(!counts);
        it.exchange().with(py, |exchange| {
            if let Some(ticket) = &exchange.ticket {
                state.engine.stop_waiting(ticket);
                if let Some(stage) = stage {
                    state.engine.switch_stage(ticket, stage);
                }
            }
            // Where it was another thread that waited, the call may have ended meanwhile, and the key be another's.
            if exchange.is_over() {
                return false;
            }
            state.wsgi.calls.set_waiting(key, false, counts, clock::now().monotonic);
            state.wsgi.calls.is_interrupted(key)
        })
    }

    /// Reads from a body that is handed on as it arrives, and waits until some of it is here. None read is its end.
    ///
    /// # Errors
    /// `ConnectionResetError` if the peer has left before its end, `TimeoutError` if it did not come in time, `OSError`
    /// if it is malformed or too long.
    pub(crate) fn read_body(&self, py: Python<'_>, it: &StartResponse, buffer: &mut [u8]) -> PyResult<usize> {
        loop {
            let input = self.with(py, |state| {
                it.exchange().with(py, |exchange| {
                    let ticket = exchange.ticket.as_ref()?;
                    Some(state.engine.read(ticket, buffer, clock::now(), &mut state.wsgi))
                })
            })?;
            match input.ok_or_else(read_too_late)? {
                Input::Bytes(count) => return Ok(count),
                Input::End => return Ok(0),
                Input::Broken(refusal) => {
                    return Err(match refusal.fault {
                        None if refusal.status == 504 => PyTimeoutError::new_err("the request has missed its deadline"),
                        None => PyTimeoutError::new_err("the request body took too long to arrive"),
                        Some(Fault::Truncated) => {
                            PyConnectionResetError::new_err("the client left before its request body was complete")
                        }
                        Some(fault) => {
                            PyOSError::new_err(format!("the request body is broken: {}", fault.explanation()))
                        }
                    });
                }
                Input::Pending => self.wait(py, it, Awaited::Input)?,
            }
        }
    }

    /// Raises `timeout_exception` in the thread in which the call with this number runs.
    pub(crate) fn interrupt(&self, py: Python<'_>, number: u64) -> Result<bool, Reentered> {
        let Some(exception) = &self.hooks.timeout_exception else { return Ok(false) };
        self.with(py, |state| {
            let Some((key, thread)) = state.wsgi.calls.running(number) else { return false };
            let (waiting, is_exposed) = state.wsgi.calls.interrupt(key);
            if let Some(worker) = waiting {
                state.wsgi.wake_worker(worker);
            }
            !is_exposed || raise_in(py, thread, Some(exception))
        })
    }

    /// The call has ended although an exception was to be raised in it: it must not reach what runs here next.
    pub(crate) fn take_back_interrupt(py: Python<'_>) {
        raise_here(py, None);
    }

    /// Does something of the server's own in Python, in a thread that may have begun a call already: an exception that is
    /// to be raised in that call is raised afterwards.
    pub(crate) fn sheltered<R>(&self, py: Python<'_>, act: impl FnOnce() -> R) -> R {
        let (Some(worker), Some(exception)) = (self.place.worker(), &self.hooks.timeout_exception) else {
            return act();
        };
        if self.with(py, |state| state.wsgi.calls.shelter(worker)).unwrap_or(false) {
            Self::take_back_interrupt(py);
        }
        let result = act();
        if self.with(py, |state| state.wsgi.calls.expose(worker)).unwrap_or(false) {
            raise_here(py, Some(exception));
        }
        result
    }

    /// Whether `error` is what [`interrupt`](Self::interrupt) raises.
    pub(crate) fn is_timeout(&self, py: Python<'_>, error: &PyErr) -> bool {
        self.hooks.timeout_exception.as_ref().is_some_and(|exception| error.is_instance(py, exception.bind(py)))
    }

    /// Makes what a greenlet waits with, at the beginning of its call.
    pub(crate) fn make_waiter(&self, py: Python<'_>) -> Option<PyResult<Py<PyAny>>> {
        self.hooks.waiter.as_ref().map(|make| make.call0(py))
    }

    /// Delivers what was put down while the lock was held. `is_idle`: there is time to write the access log and to give
    /// memory back.
    pub(crate) fn tidy(&self, py: Python<'_>, is_idle: bool) {
        let tidied = self.with(py, |state| {
            let notes = state.wsgi.has_notes().then(|| state.wsgi.take_notes(py));
            if is_idle {
                state.wsgi.return_memory();
                state.wsgi.access_log.iter_mut().for_each(AccessLog::flush);
            }
            (
                notes,
                state.wsgi.access_log.as_ref().map(|log| log.take_notices(false)),
                state.wsgi.refusals.take_counts(false),
            )
        });
        // From within, somebody else does it later.
        let Ok((notes, notices, refusals)) = tidied else { return };
        self.log_given_counts(py, notices.unwrap_or_default(), refusals);
        let Some((notes, lines)) = notes else { return };
        if let Some(LoggerLines { logger, lines }) = lines {
            for line in lines {
                if let Err(error) = logger.call1(py, line) {
                    error.write_unraisable(py, Some(logger.bind(py)));
                }
            }
        }
        for Note { level, message, error } in notes {
            self.log(py, level, &message, error);
        }
    }

    /// Tells what there is to tell at the end, when the logs have been written.
    pub(crate) fn log_counts(&self, py: Python<'_>) {
        let told = self.with(py, |state| {
            (state.wsgi.access_log.as_ref().map(|log| log.take_notices(true)), state.wsgi.refusals.take_counts(true))
        });
        if let Ok((notices, refusals)) = told {
            self.log_given_counts(py, notices.unwrap_or_default(), refusals);
        }
    }

    fn log_given_counts(&self, py: Python<'_>, notices: Vec<String>, refusals: Vec<String>) {
        for notice in notices {
            self.log(py, WARNING, &format!("access log: {notice}"), None);
        }
        for refusals in refusals {
            self.log(py, INFO, &refusals, None);
        }
    }

    /// Hands a message to whoever reports; the last resort is Python's own place for what nobody can handle.
    pub(crate) fn log(&self, py: Python<'_>, level: u8, message: &str, error: Option<PyErr>) {
        let error = error.map(|error| error.into_value(py));
        if let Some(report) = &self.report {
            if let Err(error) = report.call1(py, (level, message, error)) {
                error.write_unraisable(py, Some(report.bind(py)));
            }
            return;
        }
        eprintln!("kirsch: {message}");
        if let Some(error) = error {
            PyErr::from_value(error.into_bound(py).into_any()).display(py);
        }
    }
}

impl scheduler::WorkSource for EngineState {
    type Work = Job;
    type Poller = Poller;

    fn next(&mut self, may_call: bool) -> Option<Job> {
        let now = self.clock.now();
        self.polled = now.monotonic;
        let work = self.engine.poll(now, &mut self.wsgi, may_call)?;
        if let Some(limit) = &self.limit
            && matches!(work, Work::Call(..))
            && limit.count()
        {
            self.limit = None;
        }
        Some(self.wsgi.begin_job(work, now))
    }

    fn owner(job: &Job) -> Option<usize> {
        job.worker()
    }

    fn route_key(job: &Job) -> Option<RouteKey> {
        job.route_key()
    }

    fn has_queued(&self) -> bool {
        self.engine.has_queued()
    }

    fn connections(&self) -> usize {
        self.engine.connections()
    }

    fn bound(&self, worker: usize) -> usize {
        self.wsgi.calls.suspended(worker)
    }

    fn poll(&mut self, poller: &mut Poller) -> bool {
        self.fill(poller, Some(Duration::ZERO));
        let is_ready = !self.ready.is_empty();
        self.engine.notice(&mut self.ready);
        is_ready
    }

    fn due(&self) -> Option<Duration> {
        self.engine.due()
    }

    fn now(&self) -> Duration {
        clock::now().monotonic
    }

    fn wake_poller(&self) {
        self.waker.wake();
    }

    fn before_wait(&mut self, is_free: bool) {
        self.engine.before_wait(is_free);
    }

    fn woken(&mut self) -> Option<usize> {
        self.wsgi.take_worker_wake()
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
        // Ticks may come more often than this is worth while. The clock moves on in steps.
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

impl EngineState {
    /// Answers the clients of calls that have missed their deadlines; whether there were any. It touches nothing of
    /// Python, so that it works while a call keeps the GIL.
    fn expire(&mut self) -> bool {
        let Some(shortest) = self.shortest_limit else { return false };
        let now = clock::now();
        let Self { engine, wsgi, .. } = self;
        let has_expired = wsgi.calls.expire(shortest, now.monotonic, |call| engine.expire(call, now)) > 0;
        if has_expired {
            self.expired_at = Some((now.monotonic, self.engine.polls()));
        }
        has_expired
    }

    /// Where an expired call keeps all threads from turning the engine, the supervisor is asked for another worker, and
    /// clients that wait here are told to try again. It touches nothing of Python.
    fn look_for_block(&mut self, now: Now) {
        let Some((at, polls)) = self.expired_at else { return };
        if self.engine.polls() != polls {
            self.expired_at = None;
        } else if now.monotonic >= at + BLOCKED_AFTER {
            if let Some(replacement) = &self.replacement {
                replacement.ask();
            }
            self.engine.refuse_waiting(now);
        }
    }

    /// How things are. It touches nothing of Python.
    fn snapshot(&self, pool_statistics: PoolStatistics) -> Snapshot {
        // Where a loop hosts the engine, as many calls run as there are.
        let pool_statistics =
            if self.wsgi.is_hosted { PoolStatistics { max_calls: 0, ..pool_statistics } } else { pool_statistics };
        Snapshot {
            at: clock::coarse(),
            engine: self.engine.statistics(),
            is_draining: self.engine.is_draining(),
            is_stalled: self.engine.is_stalled(),
            blocked: self.wsgi.blocked,
            overdue: self.wsgi.calls.overdue_ever(),
            pool_statistics,
            // The number is the process's, and those of several engines are added up.
            log_lines_dropped: if self.wsgi.calls.place().engine == 0 { log_writer::dropped() } else { 0 },
        }
    }

    fn fill(&mut self, poller: &mut Poller, timeout: Option<Duration>) {
        if let Err(error) = poller.wait(timeout, &mut self.ready) {
            self.broken = Some(error);
            self.over = true;
        }
    }
}

/// A thread that is attached to the interpreter, at work for a site.
struct Attached<'a> {
    host: &'a Host,
    py: Python<'a>,
    /// The last call, while something is left to be done with it.
    ending: RefCell<Option<Ending>>,
    /// Handles for the next one.
    handles: RefCell<Option<Handles>>,
}

impl<'a> Attached<'a> {
    fn new(host: &'a Host, py: Python<'a>) -> Self {
        Self { host, py, ending: RefCell::new(None), handles: RefCell::new(None) }
    }

    /// Lets go of what the last call held, unlocked.
    fn let_go(&self) {
        let ending = self.ending.take();
        if let Some(ending) = ending
            && let Some(handles) = self.host.let_go_of(self.py, ending)
            && !handles.is_shared()
        {
            self.handles.replace(Some(handles));
        }
    }
}

impl Threads for Attached<'_> {
    type Source = EngineState;

    fn detached<R>(&self, wait: impl FnOnce() -> R) -> R {
        let Some(Watched { scoreboard, coming }) = &self.host.watched else { return detached(self.py, wait) };
        let (result, back_at) = detached(self.py, || {
            let result = wait();
            coming.fetch_add(1, Ordering::Relaxed);
            (result, scoreboard.as_ref().map(|_| clock::fine()))
        });
        coming.fetch_sub(1, Ordering::Relaxed);
        if let (Some(scoreboard), Some(back_at)) = (scoreboard, back_at) {
            scoreboard.count(Histogram::InterpreterWait, clock::fine().saturating_sub(back_at));
        }
        result
    }

    fn wait_for_events(&self, poller: &mut Poller, timeout: Option<Duration>) {
        // What it tells it keeps until the next look.
        poller.wait_until_ready(timeout);
    }

    fn run(&self, worker: usize, job: Job) {
        self.let_go();
        let ending = self.host.run(self.py, job, Some(worker), &mut self.handles.borrow_mut());
        *self.ending.borrow_mut() = ending;
    }

    fn complete(&self, state: &mut EngineState) {
        if let Some(ending) = &mut *self.ending.borrow_mut() {
            ending.end(self.py, state);
        }
    }

    fn run_measured(&self, worker: usize, job: Job) -> Duration {
        let before = Usage::read();
        self.run(worker, job);
        before.waited()
    }

    fn start(&self, worker: usize) -> bool {
        let Some(spawn) = &self.host.hooks.spawn else { return false };
        let number = self.host.place.number_of_worker(worker);
        match self.host.sheltered(self.py, || spawn.call1(self.py, (number,))) {
            Ok(_) => true,
            Err(error) => {
                let message = "no further thread can be started; those that are there go on";
                self.host.log(self.py, WARNING, message, Some(error));
                false
            }
        }
    }

    fn clean_up(&self, is_idle: bool) {
        let host = self.host;
        self.let_go();
        host.obey(self.py);
        host.tidy(self.py, is_idle);
        // Where there is one thread, it is the one that may run signal handlers.
        if host.threads == 1
            && let Err(error) = self.py.check_signals()
        {
            host.fail_with(self.py, error);
        }
    }

    fn want_ticks(&self, pace: Pace) {
        if self.host.threads > 1 {
            self.host.tick_along(pace);
        }
    }
}

/// The same as [`raise_in`], in this thread.
fn raise_here(py: Python<'_>, exception: Option<&Py<PyAny>>) {
    // SAFETY: the call takes nothing and cannot fail.
    raise_in(py, unsafe { libc::pthread_self() }, exception);
}

/// Threads in whose calls an exception is to be raised, or was and the call has not ended, with the exception.
static INTERRUPTED: Mutex<Vec<(libc::pthread_t, Py<PyAny>)>> = Mutex::new(Vec::new());

/// Has an exception raised in a thread as soon as Python runs there, or takes back one that was not raised yet. Returns
/// whether there is such a thread.
fn raise_in(py: Python<'_>, thread: libc::pthread_t, exception: Option<&Py<PyAny>>) -> bool {
    {
        let mut interrupted = lock(&INTERRUPTED);
        interrupted.retain(|(other, _)| *other != thread);
        interrupted.extend(exception.map(|exception| (thread, exception.clone_ref(py))));
    }
    set_exception(py, thread, exception)
}

fn set_exception(_py: Python<'_>, thread: libc::pthread_t, exception: Option<&Py<PyAny>>) -> bool {
    // The identifier of a thread is the same number in Python and in C, whichever sign it is given.
    let thread = std::ffi::c_long::from_ne_bytes(thread.to_ne_bytes());
    let exception = exception.map_or(std::ptr::null_mut(), Py::as_ptr);
    // SAFETY: this thread is attached; one that is gone is not found, and nothing happens; null takes back.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread, exception) == 1 }
}

/// Does something in this thread before an exception that is to be raised in its call. Whether it was raised already
/// cannot be known, so it may be raised in the call once more.
pub(crate) fn uninterrupted<R>(py: Python<'_>, act: impl FnOnce() -> R) -> R {
    // SAFETY: the call takes nothing and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    let interrupted = lock(&INTERRUPTED);
    let pending = interrupted.iter().find(|(other, _)| *other == thread).map(|(_, exception)| exception.clone_ref(py));
    drop(interrupted);
    if pending.is_some() {
        set_exception(py, thread, None);
    }
    let result = act();
    if pending.is_some() {
        set_exception(py, thread, pending.as_ref());
    }
    result
}

/// Keeps glibc from giving every thread a heap of its own: what connections keep would lie scattered over all of them,
/// and twice as much memory would stay with the process. Threads that take turns gain nothing by it. Whoever has set
/// `MALLOC_ARENA_MAX` knows better.
fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: the call takes two numbers and may be made at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}

/// Runs `wait` without the interpreter.
pub(crate) fn detached<R>(_py: Python<'_>, wait: impl FnOnce() -> R) -> R {
    // SAFETY: the thread is attached, as `_py` shows, and is again when this returns. What waits touches nothing of
    // Python; PyO3's own `detach` cannot know that, because the engine also holds objects.
    unsafe {
        let state = ffi::PyEval_SaveThread();
        let result = wait();
        ffi::PyEval_RestoreThread(state);
        result
    }
}

/// Nothing panics while it holds one of these locks, and the data are whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
