//! One engine as its threads see it: the engine and the host's state behind one lock, and data that never change.
//!
//! No code of the application runs while the lock is held. Messages for the error log and lines for the access log are
//! stored meanwhile; [`Host::tidy`] delivers them after the lock is released.

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

/// One engine with its threads, its calls and its interface to the application.
pub(crate) struct Host<I: Interface> {
    /// The process that created this host. A forked child must not use it.
    pub(super) origin: Origin,
    /// Declared before the fields that its thread uses, so that it is dropped, and its thread has ended, before they
    /// are.
    ticker: OnceLock<Option<Ticker>>,
    pub(super) interface: I,
    pub(super) scheduler: Scheduler<EngineState<I>>,
    watched: Option<Watched>,
    /// True if the watchdog must run even while nothing is ready, because a supervisor or a health check watches the
    /// server or because calls have deadlines.
    needs_ticks: bool,
    pub(super) reports: Reports,
    pub(super) hooks: Hooks,
    /// The maximum number of threads, and so of calls at a time.
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
    /// A weak reference to this host, for exchanges, which may outlive the host.
    pub(super) myself: Weak<dyn ExchangeHost>,
    pub(super) hosting: Hosting,
}

/// The arguments of [`Host::new`].
pub(crate) struct Plan<I: Interface> {
    pub(crate) interface: I,
    pub(crate) app: AppParts<I::Requests>,
    pub(crate) engine: HostEngine<I>,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
    pub(crate) report: Option<Py<PyAny>>,
    pub(crate) hooks: Hooks,
    pub(crate) threads: usize,
    /// The maximum number of calls that run at the same time. The server answers further requests with 503.
    pub(crate) calls_at_most: usize,
    pub(crate) limit: Option<Arc<RequestLimit>>,
    pub(crate) scoreboard: Option<Arc<Scoreboard>>,
    /// The acceptor of TLS connections, whose handshake counters are published.
    pub(crate) acceptor: Option<Arc<Acceptor>>,
    pub(crate) engine_index: EngineIndex,
    pub(crate) shared: Arc<ServerShared<Host<I>>>,
    /// True if the server must answer health checks even while no thread polls the engine.
    pub(crate) answers_health: bool,
    /// True if the engine measures the stages of requests.
    pub(crate) times_stages: bool,
    /// True if the engine encodes bodies.
    pub(crate) compresses: bool,
    pub(crate) replacement: Option<Arc<Replacement>>,
}

/// The result of a poll for a loop that hosts the engine.
pub(crate) struct Polled<I: Interface> {
    /// The jobs that can start or continue, each with the number of its call.
    pub(crate) jobs: Vec<(u64, Job<I>)>,
    /// The waiters whose wait has ended.
    pub(crate) woken: Vec<Py<PyAny>>,
}

/// The result of one iteration of a loop that hosts the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    /// True if the iteration may have run application code.
    pub(crate) has_run: bool,
    /// True if the descriptor of [`Host::watch_beside`] is ready.
    pub(crate) is_beside_ready: bool,
    /// True if the server has stopped.
    pub(crate) is_over: bool,
}

impl<I: Interface> Host<I> {
    pub(crate) fn new(plan: Plan<I>) -> Arc<Self> {
        let Plan { interface, engine, poller, waker, report, hooks, threads, engine_index, shared, .. } = plan;
        let is_watched = plan.answers_health || plan.scoreboard.is_some();
        let publisher = plan.scoreboard.clone().map(|scoreboard| {
            // The handshake counters are for the whole process, so only the first engine publishes them.
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

    /// Returns true if this thread must not take the lock, for one of two reasons. It is in a child that the
    /// application has forked; or it holds the lock of another engine of the server, and the holder of this engine's
    /// lock might be waiting for that lock.
    fn is_elsewhere(&self) -> bool {
        !self.origin.is_here()
            || !self.engine_index.is_alone() && self.shared.hosts().any(|host| host.scheduler.is_mine())
    }

    /// Returns the index of the engine that follows this one.
    pub(crate) fn next_index(&self) -> EngineIndex {
        self.engine_index.next(self.scheduler.thread_count())
    }

    /// Locks the engine and calls `act` with its state. `act` must not run code of the application.
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

    /// Like [`with`](Self::with), for an `act` that may let other calls continue. In every thread except the hosting
    /// loop's, the scheduler wakes the poller. In the loop's thread it does not, and gevent's hub waits without asking
    /// when it must poll. So this method wakes the poller.
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

    /// Requests ticks at the given pace.
    fn tick_along(&self, pace: Pace) {
        if let Some(ticker) = self.ticker() {
            ticker.want(pace);
        }
    }

    /// Requests slow ticks if the watchdog must run while nothing is ready.
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
            // If the thread cannot be started, the server still works: a block is sent with the next one or at the end,
            // and a call may wait longer for another.
            Ticker::new(tick).ok()
        });
        ticker.as_ref()
    }

    /// Starts the first thread of the engine. It starts further threads when they are needed.
    pub(crate) fn start_first(&self, py: Python<'_>) -> PyResult<()> {
        if self.engine_index.is_alone() {
            share_heaps();
        }
        match &self.hooks.spawn {
            Some(spawn) => spawn.call1(py, (self.engine_index.number_of_worker(0),)).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the number of remaining threads, if the server has stopped and all of them are running calls; otherwise
    /// `None`.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let PoolStatistics { threads, running, .. } = self.pool_statistics(py).ok()?;
        (self.with(py, |state| state.is_over()).ok()? && threads <= running).then_some(threads)
    }

    /// Runs the engine's thread `index`. Returns once the server has stopped.
    pub(crate) fn work(&self, py: Python<'_>, index: usize) {
        self.engine_index.set_worker(Some(index));
        if self.threads > 1 {
            // A single thread is the program's own, so its name stays.
            thread_name::set(&format!("kirsch-{}", self.engine_index.number_of_worker(index)));
        }
        self.tick_slowly();
        let thread = AttachedThread::new(self, py);
        self.scheduler.work(&thread, index);
        thread.release_last();
        self.engine_index.set_worker(None);
        self.tidy(py, true);
        if !self.engine_index.is_alone() && matches!(self.with(py, |state| state.is_broken()), Ok(true)) {
            // The engines form one server: if the poller of one fails, all of them stop.
            self.stop_all(py, Stop::NOW);
        }
    }

    fn pool_statistics(&self, py: Python<'_>) -> Result<PoolStatistics, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.scheduler.pool_statistics(&AttachedThread::new(self, py)).map_err(|scheduler::Reentered| Reentered)
    }

    /// Returns the engine's current statistics.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> Result<Snapshot, Reentered> {
        let pool_statistics = self.pool_statistics(py)?;
        self.with(py, |state| state.snapshot(pool_statistics))
    }

    /// For a hosting loop that is about to wait: returns the time until its next poll is due. Also writes the log lines
    /// of the calls that have ended since the last poll, because the next poll may be far off.
    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.tidy(py, true);
        let due = self.scheduler.before_hosted_wait(&AttachedThread::new(self, py));
        let due = due.map_err(|scheduler::Reentered| Reentered)?;
        Ok(due.map(|due| due.saturating_sub(clock::now().monotonic)))
    }

    /// For a hosting loop: makes [`run_once`](Self::run_once) also return when this descriptor is readable.
    pub(crate) fn watch_beside(&self, py: Python<'_>, descriptor: OwnedFd) -> PyResult<()> {
        let watched = self.scheduler.poll(&AttachedThread::new(self, py), |_, poller| poller.watch_beside(descriptor));
        Ok(watched.map_err(|scheduler::Reentered| Reentered)??)
    }

    /// For a hosting loop: takes the poller's events once, processes one round of ready connections, and returns the
    /// jobs that can run now and the waiters whose wait has ended. If clients send without pause, each poll leaves work
    /// for the next one. [`timeout`](Self::timeout) then returns zero, so the loop runs its other work and polls again
    /// without waiting.
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

    /// For a hosting loop, in its own thread: waits until something is ready, at most for `patience` (`None`: without
    /// limit), processes it, wakes the waiters whose wait has ended, and runs the calls that can start. Also returns
    /// the jobs that threads beside the loop must run.
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
            // If a Task raises an exception that should end the program, such as `KeyboardInterrupt`, the server ends.
            // `SystemExit` and the timeout exception end only the request: the end of the Task reports them, and other
            // requests continue.
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
            // The loop waits by itself, and the next event may be far off, so all log lines are written now.
            thread.clean_up(true);
        }
        broken.map_or(Ok((iteration, threaded)), |error| Err(error.into()))
    }

    /// Runs a job in this thread, which has the index `worker` beside the hosting loop.
    pub(crate) fn run_beside(&self, py: Python<'_>, job: Job<I>, worker: usize) {
        self.engine_index.set_worker(Some(worker));
        if let Some(key) = job.beginning() {
            let begun = self.with(py, |state| state.calls.take_over(key, worker, clock::now().monotonic));
            debug_assert!(begun.is_ok(), "a thread that takes a call is in no other");
        }
        job.run_whole(self, py, Some(worker));
        self.tidy(py, true);
        // The loop may be waiting, and must process the connection next.
        self.waker.wake();
    }

    /// Ends the server, and cuts the connections that are still open.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let jobs = self.with(py, |state| {
            state.engine.stop(clock::now(), Some(Duration::ZERO), Duration::ZERO);
            std::iter::from_fn(|| state.next(py, false)).collect::<Vec<_>>()
        })?;
        for job in jobs {
            job.run_whole(self, py, None);
        }
        // Threads beside the loop still wait for clients whose connections have just been cut.
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

/// A thread that is attached to the interpreter and works for a host.
pub(super) struct AttachedThread<'a, I: Interface> {
    host: &'a Host<I>,
    py: Python<'a>,
    /// The end of the last call; `None` once its objects have been released.
    ending: RefCell<Option<Ending<I>>>,
    /// Handles that can be reused for the next call.
    handles: RefCell<Option<I::Handles>>,
}

impl<'a, I: Interface> AttachedThread<'a, I> {
    pub(super) fn new(host: &'a Host<I>, py: Python<'a>) -> Self {
        Self { host, py, ending: RefCell::new(None), handles: RefCell::new(None) }
    }

    /// Releases the objects that the last call held. The engine must be unlocked.
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
        // The events stay in the poller until `take_events`.
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
        // A single thread is the main thread, so it must run the Python handlers of signals.
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

/// Limits glibc to two memory arenas. With one arena per thread, the data of connections would be scattered over all of
/// them, and the process would keep twice as much memory. Threads that run one after another do not profit from arenas
/// of their own. If the user has set `MALLOC_ARENA_MAX`, that setting stays.
fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: the call takes two numbers and may be made at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}
