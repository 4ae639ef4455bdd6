//! One engine with everything that belongs to it, as its threads see it: the engine and the host's state behind one
//! lock, and the data that never change.
//!
//! No code of the application runs while the lock is held. Messages to be reported or logged are stored as notes
//! meanwhile, and delivered after the lock is released ([`Host::tidy`]).

use super::app::{AppParts, WARNING};
use super::hosting::Hosting;
use super::index::EngineIndex;
use super::job::{Ending, Job};
use super::reports::Reports;
use super::shared::{Hooks, PendingControl, Reentered, Replacement, ServerShared, Stop};
use super::state::{EngineState, HostEngine, StateParts, Watched};
use super::suspended::SuspendedCalls;
use crate::clock::{self, Usage};
use crate::compat::check_signals;
use crate::forks::Origin;
use crate::interface::{ExchangeHost, Handles as _, Interface};
use crate::limit::RequestLimit;
use crate::scoreboard::{Histogram, Publisher, Scoreboard, Snapshot};
use crate::thread_name;
use engine::{Poller, Waker};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use scheduler::{Pace, PoolStatistics, Scheduler, Threads, Ticker, Wanted, WorkSource};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tls::Acceptor;

/// See the module.
pub(crate) struct Host<I: Interface> {
    /// The process that made this host. No other may use it.
    pub(super) origin: Origin,
    /// Dropped before the fields below, because its thread uses them and has to end first.
    ticker: OnceLock<Option<Ticker>>,
    pub(super) interface: I,
    pub(super) scheduler: Scheduler<EngineState<I>>,
    watched: Option<Watched>,
    /// True if the watchdog has something to do even while nothing is ready: others watch the server, or calls have
    /// deadlines.
    needs_ticks: bool,
    pub(super) reports: Reports,
    pub(super) hooks: Hooks,
    /// The number of threads, and so of calls at a time.
    pub(super) threads: usize,
    /// True if the engine measures the stages of requests.
    pub(super) times_stages: bool,
    /// True if the engine encodes bodies.
    pub(super) compresses: bool,
    pub(super) waker: Waker,
    pub(super) pending: PendingControl,
    pub(super) engine_index: EngineIndex,
    pub(super) shared: Arc<ServerShared<Self>>,
    pub(super) suspended: SuspendedCalls<I>,
    /// This host, for exchanges, which may outlive it.
    pub(super) myself: Weak<dyn ExchangeHost>,
    pub(super) hosting: Hosting,
}

/// The parts of a [`Host`].
pub(crate) struct Plan<I: Interface> {
    pub(crate) interface: I,
    pub(crate) app: AppParts<I::Requests>,
    pub(crate) engine: HostEngine<I>,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
    pub(crate) report: Option<Py<PyAny>>,
    pub(crate) hooks: Hooks,
    pub(crate) threads: usize,
    /// The maximum number of calls that run at a time. Further requests are answered with 503.
    pub(crate) calls_at_most: usize,
    pub(crate) limit: Option<Arc<RequestLimit>>,
    pub(crate) scoreboard: Option<Arc<Scoreboard>>,
    /// The acceptor of encrypted connections, whose handshakes are published.
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    pub(crate) engine_index: EngineIndex,
    pub(crate) shared: Arc<ServerShared<Host<I>>>,
    /// True if others ask for the server's health, even while no thread polls the engine.
    pub(crate) answers_health: bool,
    /// True if the engine measures the stages of requests.
    pub(crate) times_stages: bool,
    /// True if the engine encodes bodies.
    pub(crate) compresses: bool,
    pub(crate) replacement: Option<Arc<Replacement>>,
}

/// The result of a poll for a loop that hosts the engine.
pub(crate) struct Polled<I: Interface> {
    /// The jobs that can start or go on, with the numbers of their calls.
    pub(crate) jobs: Vec<(u64, Job<I>)>,
    /// The waiters whose wait is over.
    pub(crate) woken: Vec<Py<PyAny>>,
}

/// The result of one iteration of a loop that hosts the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    /// True if code of the application may have run.
    pub(crate) has_run: bool,
    /// True if the descriptor that is watched beside the engine's own is ready.
    pub(crate) is_beside_ready: bool,
    /// True if the server has stopped.
    pub(crate) is_over: bool,
}

impl<I: Interface> Host<I> {
    pub(crate) fn new(plan: Plan<I>) -> Arc<Self> {
        let Plan { interface, engine, poller, waker, report, hooks, threads, engine_index, shared, .. } = plan;
        let is_watched = plan.answers_health || plan.scoreboard.is_some();
        let publisher = plan.scoreboard.clone().map(|scoreboard| {
            // Counters of handshakes count for the whole process.
            let acceptor = plan.acceptor.filter(|_| engine_index.index == 0);
            Publisher::new(scoreboard, engine_index.is_alone(), acceptor)
        });
        let watched = is_watched.then(|| Watched { scoreboard: plan.scoreboard, coming: Arc::default() });
        let state = EngineState::new(StateParts {
            engine,
            app: plan.app,
            replacement: plan.replacement,
            engine_index,
            waker: waker.clone(),
            limit: plan.limit,
            watched: watched.clone(),
            publisher,
            calls_at_most: plan.calls_at_most,
        });
        let shortest_limit = state.shortest_limit();
        let needs_ticks = watched.is_some() || shortest_limit.is_some();
        Arc::new_cyclic(|myself: &Weak<Self>| Self {
            origin: Origin::here(),
            ticker: OnceLock::new(),
            interface,
            scheduler: Scheduler::new(state, poller, threads),
            watched,
            needs_ticks,
            reports: Reports::new(report),
            hooks,
            threads,
            times_stages: plan.times_stages,
            compresses: plan.compresses,
            waker,
            pending: PendingControl::default(),
            engine_index,
            shared,
            suspended: SuspendedCalls::default(),
            myself: Weak::<Self>::clone(myself),
            hosting: Hosting::default(),
        })
    }

    /// Returns true if this thread must not ask for the lock. Either it is in a child that the application has forked,
    /// or it holds the lock of another engine of the server: the thread that holds this engine's lock may be waiting
    /// for that one.
    fn is_elsewhere(&self) -> bool {
        !self.origin.is_here()
            || !self.engine_index.is_alone() && self.shared.hosts().any(|host| host.scheduler.is_mine())
    }

    /// Returns the index of the engine after this one.
    pub(crate) fn next_index(&self) -> EngineIndex {
        self.engine_index.next(self.scheduler.thread_count())
    }

    /// Calls `act` with the engine and the host's state, locked. `act` must not run code of the application.
    pub(super) fn with<R>(&self, py: Python<'_>, act: impl FnOnce(&mut EngineState<I>) -> R) -> Result<R, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        let (result, has_deferred_output) = self
            .scheduler
            .with(&AttachedThread::new(self, py), |state| {
                let result = act(state);
                (result, state.engine.has_deferred_output())
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if has_deferred_output {
            self.tick_along(Pace::Quick);
        }
        Ok(result)
    }

    /// Does the same as [`with`](Self::with), for an `act` that may let other calls go on. In any thread but that of
    /// the hosting loop, the scheduler wakes the poller. In the loop's own thread the scheduler does not, and gevent's
    /// hub does not ask before each of its waits when it has to poll. So the poller is woken here.
    pub(super) fn with_waking<R>(&self, py: Python<'_>, act: impl FnOnce(&mut EngineState<I>) -> R) -> PyResult<R> {
        let is_hosting = self.hosting.is_here();
        let (result, must_wake) = self.with(py, |state| {
            let result = act(state);
            let has_wakes = !state.app.hosted_wakes.is_empty();
            (result, is_hosting && (has_wakes || state.engine.must_poll()))
        })?;
        if must_wake {
            self.waker.wake();
        }
        Ok(result)
    }

    /// Requests ticks from now on.
    fn tick_along(&self, pace: Pace) {
        if let Some(ticker) = self.ticker() {
            ticker.want(pace);
        }
    }

    /// Requests slow ticks for the watchdog, if it has anything to do while nothing is ready.
    fn tick_slowly(&self) {
        if self.needs_ticks
            && let Some(ticker) = self.ticker()
        {
            ticker.want(Pace::Slow);
        }
    }

    fn ticker(&self) -> Option<&Ticker> {
        let ticker = self.ticker.get_or_init(|| {
            struct Borrowed<I: Interface>(*const Host<I>);
            // SAFETY: a host is `Sync`, as every `ExchangeHost` is; the pointer represents a shared reference.
            unsafe impl<I: Interface> Send for Borrowed<I> {}
            let host = Borrowed::<I>(self);
            let tick = move || {
                let host = &host;
                // SAFETY: the host is in an `Arc`, and its drop begins with the drop of the ticker, which waits for the
                // thread.
                let host = unsafe { &*host.0 };
                match host.scheduler.tick() {
                    Wanted::No if host.needs_ticks && !host.shared.has_ended() => Wanted::Slowly,
                    wanted => wanted,
                }
            };
            // Without the thread, a block is sent only with the next one or at the end, and calls wait for each other.
            Ticker::new(tick).ok()
        });
        ticker.as_ref()
    }

    /// Starts the first thread of the engine, which starts others as they are needed.
    pub(crate) fn start_first(&self, py: Python<'_>) -> PyResult<()> {
        if self.engine_index.is_alone() {
            share_heaps();
        }
        match &self.hooks.spawn {
            Some(spawn) => spawn.call1(py, (self.engine_index.number_of_worker(0),)).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the number of threads that are left, once the server has stopped and all of them are in calls.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let PoolStatistics { threads, running, .. } = self.pool_statistics(py).ok()?;
        (self.with(py, |state| state.is_over()).ok()? && threads <= running).then_some(threads)
    }

    /// Runs the engine's thread `index` until the server has stopped.
    pub(crate) fn work(&self, py: Python<'_>, index: usize) {
        self.engine_index.set_worker(Some(index));
        if self.threads > 1 {
            // A single thread is the program's own.
            thread_name::set(&format!("kirsch-{}", self.engine_index.number_of_worker(index)));
        }
        self.tick_slowly();
        let thread = AttachedThread::new(self, py);
        self.scheduler.work(&thread, index);
        thread.release_last();
        self.engine_index.set_worker(None);
        self.tidy(py, true);
        if !self.engine_index.is_alone() && matches!(self.with(py, |state| state.is_broken()), Ok(true)) {
            // The engines are one server: if one has failed, all end.
            self.stop_all(py, Stop::NOW);
        }
    }

    fn pool_statistics(&self, py: Python<'_>) -> Result<PoolStatistics, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.scheduler.pool_statistics(&AttachedThread::new(self, py)).map_err(|scheduler::Reentered| Reentered)
    }

    /// Returns the current statistics.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> Result<Snapshot, Reentered> {
        let pool_statistics = self.pool_statistics(py)?;
        self.with(py, |state| state.snapshot(pool_statistics))
    }

    /// For a loop that hosts the engine and is about to wait: returns the time until it has to poll at the latest.
    /// Writes the log lines of calls that have ended since the last poll, because the next poll may be far off.
    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.tidy(py, true);
        let due = self.scheduler.before_hosted_wait(&AttachedThread::new(self, py));
        let due = due.map_err(|scheduler::Reentered| Reentered)?;
        Ok(due.map(|due| due.saturating_sub(clock::now().monotonic)))
    }

    /// For a loop that hosts the engine: has waits of [`run_once`](Self::run_once) end when this descriptor is
    /// readable, too.
    pub(crate) fn watch_beside(&self, py: Python<'_>, descriptor: OwnedFd) -> PyResult<()> {
        let watched = self.scheduler.poll(&AttachedThread::new(self, py), |_, poller| poller.watch_beside(descriptor));
        Ok(watched.map_err(|scheduler::Reentered| Reentered)??)
    }

    /// For a loop that hosts the engine: takes the poller's events once, processes one round of ready connections, and
    /// returns the jobs that can start or go on now, and the waiters whose wait is over. While clients send without
    /// pause there is always more to do. That is left to the next poll, for which [`timeout`](Self::timeout) does not
    /// let the loop wait, and between the two polls the loop runs its other work.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<Polled<I>> {
        if self.is_elsewhere() {
            return Err(Reentered.into());
        }
        self.hosting.enter();
        let thread = AttachedThread::new(self, py);
        let mut jobs = Vec::new();
        let (woken, has_deferred_output) = self
            .scheduler
            .poll(&thread, |state, poller| {
                state.poll(poller);
                while let Some(job) = state.next(py, true) {
                    jobs.push((job.number(&state.calls), job));
                }
                (std::mem::take(&mut state.app.hosted_wakes), state.engine.has_deferred_output())
            })
            .map_err(|scheduler::Reentered| Reentered)?;
        if has_deferred_output {
            self.tick_along(Pace::Quick);
        }
        self.tick_slowly();
        thread.clean_up(true);
        self.fail_if_failed(py)?;
        Ok(Polled { jobs, woken })
    }

    /// For a loop that hosts the engine and runs in this thread: waits until something is ready, at most for `patience`
    /// (`None`: without limit), processes it, wakes the waiters whose wait is over, and runs the calls that can start.
    /// Also returns the calls that are for threads beside the loop.
    pub(crate) fn run_once(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<(Iteration, Vec<Job<I>>)> {
        if self.is_elsewhere() {
            return Err(Reentered.into());
        }
        self.hosting.enter();
        let thread = AttachedThread::new(self, py);
        self.interface.before_wait(py);
        self.tick_slowly();
        thread.clean_up(true);
        if let Some(error) = self.shared.take_failure(py) {
            return Err(error);
        }
        let (mut jobs, mut threaded) = (Vec::new(), Vec::new());
        let iteration = self.scheduler.run_once(&thread, patience, |state| {
            while let Some(job) = state.next(py, true) {
                let key = job.beginning();
                if job.is_threaded() {
                    let now = clock::coarse();
                    if let Some(key) = key {
                        state.calls.set_aside(key, now);
                    }
                    threaded.push(job);
                } else {
                    if let Some(key) = key {
                        state.take_up(key);
                    }
                    jobs.push(job);
                }
            }
            let woken = std::mem::take(&mut state.app.hosted_wakes);
            let iteration = Iteration {
                has_run: !jobs.is_empty() || !threaded.is_empty() || !woken.is_empty(),
                is_beside_ready: state.take_beside(),
                is_over: state.is_over(),
            };
            (iteration, woken, state.engine.has_deferred_output(), state.take_failure())
        });
        let (iteration, woken, has_deferred_output, broken) = iteration.map_err(|scheduler::Reentered| Reentered)?;
        if has_deferred_output {
            self.tick_along(Pace::Quick);
        }
        for waiter in woken {
            let woken = self.interface.wake(py, &waiter, true);
            // A Task that raises an exception that ends the program, such as `KeyboardInterrupt`, ends the server.
            // `SystemExit` and the timeout exception are a failure of the request alone: the end of the Task reports
            // them, and other requests go on.
            if let Err(error) = self.origin.come_back(py, woken)
                && !error.is_instance_of::<PySystemExit>(py)
                && !self.hooks.is_timeout(py, &error)
            {
                self.fail_with(py, error);
            }
        }
        for job in jobs {
            self.hosting.set_first_step(job.beginning());
            job.run_whole(self, py, None);
        }
        self.hosting.set_first_step(None);
        if patience == Some(Duration::ZERO) {
            // The loop waits by itself, and there may be no other event soon.
            thread.clean_up(true);
        }
        broken.map_or(Ok((iteration, threaded)), |error| Err(error.into()))
    }

    /// Runs a job in this thread, number `worker` of the threads beside the loop that hosts the engine.
    pub(crate) fn run_beside(&self, py: Python<'_>, job: Job<I>, worker: usize) {
        self.engine_index.set_worker(Some(worker));
        if let Some(key) = job.beginning() {
            let begun = self.with(py, |state| state.calls.take_over(key, worker, clock::now().monotonic));
            debug_assert!(begun.is_ok(), "a thread that takes a call is in no other");
        }
        job.run_whole(self, py, Some(worker));
        self.tidy(py, true);
        // The loop may be waiting, and it has to process the connection next.
        self.waker.wake();
    }

    /// Ends the server. Cuts the connections that are still open.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let jobs = self.with(py, |state| {
            state.engine.stop(clock::now(), Some(Duration::ZERO), Duration::ZERO);
            std::iter::from_fn(|| state.next(py, false)).collect::<Vec<_>>()
        })?;
        for job in jobs {
            job.run_whole(self, py, None);
        }
        // Threads beside the loop wait for clients that are gone now.
        for waiter in self.with(py, |state| std::mem::take(&mut state.app.hosted_wakes))? {
            self.interface.wake(py, &waiter, false)?;
        }
        let suspended = self.suspended.take_all(py);
        if !suspended.is_empty() {
            let count = suspended.len();
            let message = format!("{count} calls of the application had not ended when the server did");
            self.reports.log(py, WARNING, &message, None);
        }
        for call in suspended {
            call.abandon(self, py);
        }
        self.interface.end(py);
        self.tidy(py, true);
        self.scheduler.publish(&AttachedThread::new(self, py)).ok();
        Ok(())
    }
}

/// A thread that is attached to the interpreter, at work for a host.
pub(super) struct AttachedThread<'a, I: Interface> {
    host: &'a Host<I>,
    py: Python<'a>,
    /// The last call, until it has been completed and released.
    ending: RefCell<Option<Ending<I>>>,
    /// The handles for the next call.
    handles: RefCell<Option<I::Handles>>,
}

impl<'a, I: Interface> AttachedThread<'a, I> {
    pub(super) fn new(host: &'a Host<I>, py: Python<'a>) -> Self {
        Self { host, py, ending: RefCell::new(None), handles: RefCell::new(None) }
    }

    /// Releases the objects that the last call held. Called unlocked.
    fn release_last(&self) {
        let ending = self.ending.take();
        if let Some(ending) = ending
            && let Some(handles) = ending.release(self.host, self.py)
            && !handles.is_shared()
        {
            self.handles.replace(Some(handles));
        }
    }
}

impl<I: Interface> Threads for AttachedThread<'_, I> {
    type Source = EngineState<I>;

    fn token(&self) -> Python<'_> {
        self.py
    }

    fn detached<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        let Some(Watched { scoreboard, coming }) = &self.host.watched else { return self.py.detach(wait) };
        let (result, back_at) = self.py.detach(|| {
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

    fn wait_for_events(poller: &mut Poller, timeout: Option<Duration>) {
        // The poller keeps its events until they are taken.
        poller.wait_until_ready(timeout);
    }

    fn run(&self, worker: usize, job: Job<I>) {
        self.release_last();
        let ending = job.run(self.host, self.py, Some(worker), &mut self.handles.borrow_mut());
        *self.ending.borrow_mut() = ending;
    }

    fn complete(&self, state: &mut EngineState<I>) {
        if let Some(ending) = &mut *self.ending.borrow_mut() {
            state.end_whole(self.py, ending);
        }
    }

    fn run_measured(&self, worker: usize, job: Job<I>) -> Duration {
        let before = Usage::read();
        self.run(worker, job);
        before.waited()
    }

    fn start(&self, worker: usize) -> bool {
        let Some(spawn) = &self.host.hooks.spawn else { return false };
        let number = self.host.engine_index.number_of_worker(worker);
        match self.host.sheltered(self.py, || spawn.call1(self.py, (number,))) {
            Ok(_) => true,
            Err(error) => {
                let message = "no further thread can be started; those that are there go on";
                self.host.reports.log(self.py, WARNING, message, Some(error));
                false
            }
        }
    }

    fn clean_up(&self, is_idle: bool) {
        let host = self.host;
        self.release_last();
        host.obey(self.py);
        host.tidy(self.py, is_idle);
        // If there is one thread, it is the one that may run signal handlers.
        if host.threads == 1
            && let Err(error) = check_signals(self.py)
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

/// Keeps glibc from giving every thread a heap of its own: the data of connections would be scattered over all heaps,
/// and twice as much memory would stay with the process. Threads that take turns gain nothing by separate heaps. A user
/// who has set `MALLOC_ARENA_MAX` knows better.
fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: the call takes two numbers and may be made at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}
