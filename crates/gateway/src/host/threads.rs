//! One engine with everything that belongs to it, as its threads see it: the engine and the host's state behind one lock,
//! and what never changes.
//!
//! Nothing of the application's runs while the lock is held. What has to be reported or logged meanwhile is put down as a
//! note and delivered when the lock is open ([`Host::tidy`]).

use super::app::{AppParts, AppState, WARNING};
use super::calls::Calls;
use super::index::EngineIndex;
use super::job::{Ending, InFlight, Job, Resumable};
use super::shared::{Control, Hooks, Reentered, Replacement, ServerShared, Stop};
use super::state::{EngineState, HostEngine, Watched};
use crate::clock::{self, Clock, Usage};
use crate::forks::{self, Origin};
use crate::guarded::Guarded;
use crate::interface::{Answer, ExchangeHost, Handles as _, Interface};
use crate::limit::RequestLimit;
use crate::quarantine::Recorder;
use crate::scoreboard::{Histogram, Publisher, Scoreboard, Snapshot};
use crate::thread_name;
use engine::scheduler::{self, PoolStatistics, Scheduler, Threads, WorkSource};
use engine::{Pace, Poller, Ticker, Waker, Wanted};
use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Raised for a forked child whose coroutine waits.
const AWAITS: &str =
    "a forked process cannot await in the event loop of its parent: use asyncio.run() there, and os._exit()";

/// See the module.
pub(crate) struct Host<I: Interface> {
    /// The process that made this host. No other may use it.
    origin: Origin,
    /// First, because a drop has to end its thread before anything else goes: the thread uses the rest.
    ticker: OnceLock<Option<Ticker>>,
    pub(super) interface: I,
    pub(super) scheduler: Scheduler<EngineState<I>>,
    watched: Option<Watched>,
    /// The watchdog has something to do also while nothing is ready: others watch the server, or calls have deadlines.
    needs_ticks: bool,
    pub(super) report: Option<Py<PyAny>>,
    pub(super) hooks: Hooks,
    /// Calls at a time.
    pub(super) threads: usize,
    /// The engine measures the stages of requests.
    pub(super) times_stages: bool,
    pub(super) waker: Waker,
    /// What other threads and signal handlers request; it never waits for the engine.
    pub(super) control: Mutex<Control>,
    pub(super) has_control: AtomicBool,
    pub(super) engine_index: EngineIndex,
    pub(super) shared: Arc<ServerShared<Self>>,
    /// Calls that are suspended, at their keys.
    pub(super) suspended: Guarded<Vec<Option<InFlight<I>>>>,
    /// This host, for exchanges, which may outlive it.
    pub(super) myself: Weak<dyn ExchangeHost>,
    /// The thread of the loop that hosts the engine; 0 before it has polled, and where threads do.
    hosting_thread: AtomicUsize,
    /// The key of the call that this loop begins now, plus 1; 0 while it begins none.
    first_step: AtomicUsize,
}

/// What makes up a [`Host`].
pub(crate) struct Plan<I: Interface> {
    pub(crate) interface: I,
    pub(crate) app: AppParts<I::Requests>,
    pub(crate) engine: HostEngine<I>,
    pub(crate) poller: Poller,
    pub(crate) waker: Waker,
    pub(crate) report: Option<Py<PyAny>>,
    pub(crate) hooks: Hooks,
    pub(crate) threads: usize,
    /// How many calls may run at a time. A request beyond is answered with 503.
    pub(crate) calls_at_most: usize,
    pub(crate) limit: Option<Arc<RequestLimit>>,
    pub(crate) scoreboard: Option<Arc<Scoreboard>>,
    pub(crate) engine_index: EngineIndex,
    pub(crate) shared: Arc<ServerShared<Host<I>>>,
    /// Others ask how the server is, also while no thread polls the engine.
    pub(crate) answers_health: bool,
    /// The engine measures the stages of requests.
    pub(crate) times_stages: bool,
    pub(crate) replacement: Option<Arc<Replacement>>,
}

/// What a poll has brought for a loop that hosts the engine.
pub(crate) struct Polled<I: Interface> {
    /// What can start or go on, with the numbers of the calls.
    pub(crate) jobs: Vec<(u64, Job<I>)>,
    /// Those whose wait is over.
    pub(crate) woken: Vec<Py<PyAny>>,
}

/// What one iteration of a loop that hosts the engine has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    /// Something of the application's may have run.
    pub(crate) has_run: bool,
    /// What is watched beside the engine's descriptors is ready.
    pub(crate) is_beside_ready: bool,
    /// The server has stopped.
    pub(crate) is_over: bool,
}

impl<I: Interface> Host<I> {
    pub(crate) fn new(plan: Plan<I>) -> Arc<Self> {
        let Plan { interface, engine, poller, waker, report, hooks, threads, engine_index, shared, .. } = plan;
        let is_watched = plan.answers_health || plan.scoreboard.is_some();
        let publisher = plan.scoreboard.clone().map(|scoreboard| Publisher::new(scoreboard, engine_index.is_alone()));
        let watched = is_watched.then(|| Watched { scoreboard: plan.scoreboard, coming: Arc::default() });
        let recorder = plan.app.quarantine.clone().map(Recorder::new);
        let app = AppState::new(plan.app, plan.replacement);
        let shortest_limit = app.shortest_limit();
        let state = EngineState {
            engine,
            app,
            calls: Calls::new(engine_index, recorder),
            engine_index,
            clock: Clock::default(),
            ready: Vec::new(),
            is_beside_ready: false,
            waker: waker.clone(),
            broken: None,
            over: false,
            limit: plan.limit,
            watched: watched.clone(),
            publisher,
            blocked: 0,
            serviced_at: Duration::ZERO,
            expired_at: None,
            shortest_limit,
            calls_at_most: plan.calls_at_most,
            polled: Duration::ZERO,
            published: Duration::ZERO,
        };
        let needs_ticks = watched.is_some() || shortest_limit.is_some();
        Arc::new_cyclic(|myself: &Weak<Self>| Self {
            origin: Origin::here(),
            ticker: OnceLock::new(),
            interface,
            scheduler: Scheduler::new(state, poller, threads),
            watched,
            needs_ticks,
            report,
            hooks,
            threads,
            times_stages: plan.times_stages,
            waker,
            control: Mutex::default(),
            has_control: AtomicBool::new(false),
            engine_index,
            shared,
            suspended: Guarded::new(Vec::new()),
            myself: Weak::<Self>::clone(myself),
            hosting_thread: AtomicUsize::new(0),
            first_step: AtomicUsize::new(0),
        })
    }

    /// Whether this thread must not ask for the lock: it is in a child that the application has forked, or it has the lock
    /// of another engine of the server, and to wait for this one's could be to wait for a thread that waits for that.
    fn is_elsewhere(&self) -> bool {
        !self.origin.is_here()
            || !self.engine_index.is_alone() && self.shared.hosts().any(|host| host.scheduler.is_mine())
    }

    /// Passes on what the application has come back with. A child that it has forked ends here, because it must not serve.
    pub(super) fn come_back<T>(&self, py: Python<'_>, result: PyResult<T>) -> PyResult<T> {
        if !self.origin.is_here() {
            forks::leave(py, &result);
        }
        result
    }

    /// The same for the answer to a call.
    pub(super) fn come_back_with(
        &self,
        py: Python<'_>,
        answer: PyResult<Answer<I::Body>>,
    ) -> PyResult<Answer<I::Body>> {
        if !self.origin.is_here() {
            match &answer {
                Ok(Answer::Returned(result)) => forks::leave(py, result),
                Ok(Answer::Suspended(_)) => forks::leave::<()>(py, &Err(PyRuntimeError::new_err(AWAITS))),
                answer => forks::leave(py, answer),
            }
        }
        answer
    }

    /// How many threads the engine may have, the one in reserve included.
    pub(crate) fn thread_count(&self) -> usize {
        self.scheduler.thread_count()
    }

    pub(crate) fn engine_index(&self) -> &EngineIndex {
        &self.engine_index
    }

    /// Does something with the engine and the host's state, locked. `act` runs nothing of the application's.
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

    /// Ticks are needed from now on.
    fn tick_along(&self, pace: Pace) {
        if let Some(ticker) = self.ticker() {
            ticker.want(pace);
        }
    }

    /// The watchdog has to look now and then, if it has anything to do while nothing is ready.
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
            // SAFETY: a host is `Sync`, as every `ExchangeHost` is; the pointer stands for a shared reference.
            unsafe impl<I: Interface> Send for Borrowed<I> {}
            let host = Borrowed::<I>(self);
            let tick = move || {
                let host = &host;
                // SAFETY: the host lies in an `Arc`, and its drop begins with the ticker's, which waits for the thread.
                let host = unsafe { &*host.0 };
                match host.scheduler.tick() {
                    Wanted::No if host.needs_ticks && !host.shared.has_ended() => Wanted::Slowly,
                    wanted => wanted,
                }
            };
            // Without the thread, blocks leave when the next one or the end comes, and calls wait for each other.
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

    /// Once all is over and only threads in calls are left: how many.
    pub(crate) fn threads_left(&self, py: Python<'_>) -> Option<usize> {
        let PoolStatistics { threads, running, .. } = self.pool_statistics(py).ok()?;
        (self.is_stopped(py).ok()? && threads <= running).then_some(threads)
    }

    /// Is the engine's thread `index` until the server has stopped.
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
        if !self.engine_index.is_alone() && matches!(self.with(py, |state| state.broken.is_some()), Ok(true)) {
            // The engines are one server: where one has failed, all end.
            self.stop_all(py, Stop::NOW);
        }
    }

    pub(crate) fn is_stopped(&self, py: Python<'_>) -> Result<bool, Reentered> {
        self.with(py, |state| state.is_over())
    }

    fn pool_statistics(&self, py: Python<'_>) -> Result<PoolStatistics, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.scheduler.pool_statistics(&AttachedThread::new(self, py)).map_err(|scheduler::Reentered| Reentered)
    }

    /// How things are.
    pub(crate) fn snapshot(&self, py: Python<'_>) -> Result<Snapshot, Reentered> {
        let pool_statistics = self.pool_statistics(py)?;
        self.with(py, |state| state.snapshot(pool_statistics))
    }

    /// For a loop that hosts the engine and is about to wait: how long until it has to poll at the latest. The lines of
    /// calls that have ended since the last poll are written, because the next poll may be far off.
    pub(crate) fn timeout(&self, py: Python<'_>) -> Result<Option<Duration>, Reentered> {
        if self.is_elsewhere() {
            return Err(Reentered);
        }
        self.tidy(py, true);
        let due = self.scheduler.before_hosted_wait(&AttachedThread::new(self, py));
        let due = due.map_err(|scheduler::Reentered| Reentered)?;
        Ok(due.map(|due| due.saturating_sub(clock::now().monotonic)))
    }

    /// For the same: waits of [`run_once`](Self::run_once) end when this descriptor is readable, too.
    pub(crate) fn watch_beside(&self, py: Python<'_>, descriptor: OwnedFd) -> PyResult<()> {
        let watched = self.scheduler.poll(&AttachedThread::new(self, py), |_, poller| poller.watch_beside(descriptor));
        Ok(watched.map_err(|scheduler::Reentered| Reentered)??)
    }

    /// For a loop that hosts the engine: takes the poller's events once, does one round of what is ready, and returns
    /// what can start or go on now, and whose wait is over. While clients send without pause there is always more to do:
    /// it is for the next poll, for which [`timeout`](Self::timeout) does not let the loop wait, and between the two the
    /// loop runs what else it has.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<Polled<I>> {
        if self.is_elsewhere() {
            return Err(Reentered.into());
        }
        self.hosting_thread.store(this_thread(), Ordering::Relaxed);
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

    /// For a loop that hosts the engine and runs in this thread: waits until something is ready, at most for so long as
    /// `patience` says (`None`: without limit), does what there is to do, runs the calls that can start, and wakes what
    /// waited. Returns the calls that are for threads beside the loop, too.
    pub(crate) fn run_once(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<(Iteration, Vec<Job<I>>)> {
        if self.is_elsewhere() {
            return Err(Reentered.into());
        }
        self.hosting_thread.store(this_thread(), Ordering::Relaxed);
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
                is_beside_ready: std::mem::take(&mut state.is_beside_ready),
                is_over: state.is_over(),
            };
            (iteration, woken, state.engine.has_deferred_output(), state.broken.take())
        });
        let (iteration, woken, has_deferred_output, broken) = iteration.map_err(|scheduler::Reentered| Reentered)?;
        if has_deferred_output {
            self.tick_along(Pace::Quick);
        }
        for waiter in woken {
            let woken = self.interface.wake(py, &waiter, true);
            if let Err(error) = self.come_back(py, woken) {
                self.note_raised(py, error);
            }
        }
        for job in jobs {
            self.first_step.store(job.beginning().map_or(0, |key| key + 1), Ordering::Relaxed);
            self.run_whole(py, job, None);
        }
        self.first_step.store(0, Ordering::Relaxed);
        if patience == Some(Duration::ZERO) {
            // The loop waits for itself, and there may be no other event soon.
            thread.clean_up(true);
        }
        broken.map_or(Ok((iteration, threaded)), |error| Err(error.into()))
    }

    /// A Task that was woken has raised what ends the program. Of its request's failure the Task's end tells, and other
    /// requests go on; but an interrupt of the program's is not the request's.
    fn note_raised(&self, py: Python<'_>, error: PyErr) {
        if !error.is_instance_of::<PySystemExit>(py) && !self.is_timeout(py, &error) {
            self.fail_with(py, error);
        }
    }

    /// Runs a job in this thread, `worker` of those beside the loop that hosts the engine.
    pub(crate) fn run_beside(&self, py: Python<'_>, job: Job<I>, worker: usize) {
        self.engine_index.set_worker(Some(worker));
        if let Some(key) = job.beginning() {
            let begun = self.with(py, |state| state.calls.take_over(key, worker, clock::now().monotonic));
            debug_assert!(begun.is_ok(), "a thread that takes a call is in no other");
        }
        self.run_whole(py, job, Some(worker));
        self.tidy(py, true);
        // The loop may wait, and what the connection does next is its to do.
        self.waker.wake();
    }

    /// Answers a request with 503, for which no thread was free.
    pub(crate) fn refuse_job(&self, py: Python<'_>, mut job: Job<I>) {
        match &mut job {
            Job::Call { request, .. } => request.is_refused = true,
            Job::Resume(_, Resumable::Listening(listening)) => self.close_overloaded(py, listening),
            Job::Resume(..) | Job::Abandon(_) => {}
        }
        self.run_whole(py, job, None);
    }

    /// The key of the call that the loop that hosts the engine begins now.
    pub(super) fn first_step(&self) -> Option<usize> {
        self.first_step.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Whether this thread is that of the loop that hosts the engine.
    pub(super) fn is_hosting(&self) -> bool {
        self.hosting_thread.load(Ordering::Relaxed) == this_thread()
    }

    /// Everything is over, or has to be: what is open is cut.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let jobs = self.with(py, |state| {
            state.engine.stop(clock::now(), Some(Duration::ZERO), Duration::ZERO);
            std::iter::from_fn(|| state.next(py, false)).collect::<Vec<_>>()
        })?;
        for job in jobs {
            self.run_whole(py, job, None);
        }
        // Threads beside the loop wait for clients that are gone now.
        for waiter in self.with(py, |state| std::mem::take(&mut state.app.hosted_wakes))? {
            self.interface.wake(py, &waiter, false)?;
        }
        self.abandon_suspended(py);
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
    /// The last call, while something is left to be done with it.
    ending: RefCell<Option<Ending<I>>>,
    /// Handles for the next one.
    handles: RefCell<Option<I::Handles>>,
}

impl<'a, I: Interface> AttachedThread<'a, I> {
    pub(super) fn new(host: &'a Host<I>, py: Python<'a>) -> Self {
        Self { host, py, ending: RefCell::new(None), handles: RefCell::new(None) }
    }

    /// Releases what the last call held, unlocked.
    fn release_last(&self) {
        let ending = self.ending.take();
        if let Some(ending) = ending
            && let Some(handles) = self.host.release(self.py, ending)
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
        // What it reports it keeps until the next look.
        poller.wait_until_ready(timeout);
    }

    fn run(&self, worker: usize, job: Job<I>) {
        self.release_last();
        let ending = self.host.run(self.py, job, Some(worker), &mut self.handles.borrow_mut());
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
                self.host.log(self.py, WARNING, message, Some(error));
                false
            }
        }
    }

    fn clean_up(&self, is_idle: bool) {
        let host = self.host;
        self.release_last();
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

/// A number that no other thread has which runs now.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Keeps glibc from giving every thread a heap of its own: what connections keep would lie scattered over all of them,
/// and twice as much memory would stay with the process. Threads that take turns gain nothing by it. A user who has set
/// `MALLOC_ARENA_MAX` knows better.
fn share_heaps() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        // SAFETY: the call takes two numbers and may be made at any time.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    }
}
