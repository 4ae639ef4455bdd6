//! Threads that share an engine without handing requests over: the baton.
//!
//! Whoever has nothing to run and finds nobody waiting for the poller waits for it: that thread *holds the baton*. It
//! does what became ready, and runs what comes up itself, so a call that is soon over never changes threads. While the
//! application works, the shared state is unlocked and the baton lies there; a call that takes its time is found out
//! in one of three ways, and a thread standing by is called to take the baton up:
//!
//! * it outlasts a tick ([`Scheduler::tick`], called by a thread of its own);
//! * it says so, by waiting in the middle of a call ([`Scheduler::wait`]);
//! * calls like it have been found to wait ([`RouteKey`]), so somebody is called beforehand, and goes to wait for the poller
//!   at once. Where calls wait of which that was not foreseen, ticks come more often. And where every connection waits
//!   for its call and one of these is over soon, that one's thread takes the baton up instead of somebody who would have
//!   to be woken for it, and ticks come seldom.
//!
//! ```text
//!                 ┌────────────────────────── call over ◀──────────────────────────┐
//!                 ▼                                                                │
//!   locked: work of mine? new work? ──yes──▶ unlocked: run it ─────────────────────┘
//!                 │ no
//!                 ├─ nobody waits for the poller ──▶ unlocked: wait for it ──▶ (again)
//!                 └─ somebody does ──▶ stand by until called ──▶ (again)
//! ```
//!
//! Lock order: interpreter first, this lock second. Nobody waits for the interpreter while holding this lock, and
//! nobody waits for this lock while holding the interpreter ([`Threads::detached`]). The crew has one thread more than
//! calls may run, so one is always left to turn the engine.

use crate::coalescing::TICK;
use crate::scheduler::ticker::{Pace, Wanted};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, me};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[cfg(all(test, loom))]
mod model;
mod predictor;
mod route_keys;
mod rules;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod ticker;

pub use predictor::RouteKey;
pub use route_keys::RouteKeys;
pub use rules::{Action, PoolStatistics, Rules, StartedCall, Waits};

/// What is shared and turned.
pub trait WorkSource {
    /// Something to run.
    type Work;
    /// What is waited for when there is nothing to run.
    type Watch;

    /// The next thing to run. Without `may_call` it begins no new call.
    fn next(&mut self, may_call: bool) -> Option<Self::Work>;
    /// The thread that has to run it; `None` for any.
    fn owner(work: &Self::Work) -> Option<usize>;
    /// What it has in common with others that wait, or do not, as it will; `None` if nothing is known of it.
    fn route_key(work: &Self::Work) -> Option<RouteKey> {
        let _ = work;
        None
    }
    /// Whether something waits for `next` to be allowed a new call.
    fn has_queued(&self) -> bool;
    /// Connections. Newcomers that nobody has accepted are none.
    fn connections(&self) -> usize {
        usize::MAX
    }
    /// Work that is not there yet and that this thread will have to run.
    fn bound(&self, worker: usize) -> usize;
    /// Whether something became ready, without waiting.
    fn look(&mut self, watch: &mut Self::Watch) -> bool;
    /// When there will be something to do at the latest: a moment of [`now`](Self::now), zero if there is already.
    fn due(&self) -> Option<Duration>;
    /// The time.
    fn now(&self) -> Duration;
    /// Ends whoever waits for the watch.
    fn wake_watch(&self);
    /// The caller is about to wait for the watch. `is_free`: no call is out that could keep it from coming back.
    fn before_watch(&mut self, is_free: bool) {
        let _ = is_free;
    }
    /// Threads whose wait in the middle of a call is over.
    fn woken(&mut self) -> Option<usize>;
    /// Whether there is something that ticks are needed for.
    fn has_deferred_output(&self) -> bool;
    /// A tick has passed.
    fn tick(&mut self);
    /// Whether all is over and the threads can go.
    fn is_over(&self) -> bool;

    /// Looks after those who wait for [`next`](Self::next) while nobody calls it; `watch` is there unless somebody waits
    /// for it. Returns whether there is something to do now of which whoever waits for the watch does not know.
    fn service_pending(&mut self, watch: Option<&mut Self::Watch>) -> bool {
        let _ = watch;
        false
    }

    /// Whether time has passed since others were told how things are.
    fn is_stale(&self) -> bool {
        false
    }

    /// Tells others how things are.
    fn publish(&mut self, pool_statistics: &PoolStatistics) {
        let _ = pool_statistics;
    }
}

/// The threads of a [`Scheduler`].
pub trait Threads {
    /// What they share.
    type Source: WorkSource;

    /// Does `wait` without what others may be waiting for while they hold nothing else: the interpreter.
    fn detached<R>(&self, wait: impl FnOnce() -> R) -> R;
    /// Waits for the watch, detached.
    fn watch(&self, watch: &mut <Self::Source as WorkSource>::Watch, timeout: Option<Duration>);
    /// Runs something, and puts it back before it returns, or at the next [`end`](Self::end).
    fn run(&self, worker: usize, work: <Self::Source as WorkSource>::Work);
    /// The same; returns for how long the thread waited for something meanwhile.
    fn run_measured(&self, worker: usize, work: <Self::Source as WorkSource>::Work) -> Duration;
    /// Does what the last run has left to be done locked. It is called soon after each.
    fn end(&self, source: &mut Self::Source);
    /// Starts the thread with this number; whether that was possible. It calls [`Scheduler::work`].
    fn start(&self, worker: usize) -> bool;
    /// What has to be done unlocked now and then; `is_idle`: the thread is about to wait.
    fn between(&self, is_idle: bool);
    /// Makes sure that somebody calls [`Scheduler::tick`] at this pace, or faster.
    fn want_ticks(&self, pace: Pace);
}

/// See the module.
pub struct Scheduler<C: WorkSource> {
    rules: Mutex<Rules<C>>,
    /// Whoever has found the rules locked holds this until it has locked them: see [`give_way`](Self::give_way).
    turnstile: Mutex<()>,
    /// Which thread has locked it, so that one that comes back to it in the middle is told.
    owner: AtomicUsize,
    /// The last tick has found it locked.
    has_missed: AtomicBool,
    signals: Box<[Condvar]>,
}

/// The lock is held already, by the thread that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

impl<C: WorkSource> Scheduler<C> {
    /// For a crew in which at most `most` calls run at a time. Worker 0 has been started; with `most` of 1 it is alone.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn new(source: C, watch: C::Watch, most: usize) -> Self {
        let rules = Rules::new(source, watch, most);
        let signals = (0..rules.thread_count()).map(|_| Condvar::new()).collect();
        Self {
            rules: Mutex::new(rules),
            turnstile: Mutex::new(()),
            owner: AtomicUsize::new(0),
            has_missed: AtomicBool::new(false),
            signals,
        }
    }

    /// How many threads there may be.
    pub fn thread_count(&self) -> usize {
        self.signals.len()
    }

    /// Whether this thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == me()
    }

    /// Does something with the core. `act` must not wait.
    ///
    /// # Errors
    /// [`Reentered`], from within another `with`.
    pub fn with<R>(&self, threads: &impl Threads<Source = C>, act: impl FnOnce(&mut C) -> R) -> Result<R, Reentered> {
        let mut rules = self.try_lock(threads)?;
        let result = act(rules.source_mut());
        rules.step();
        self.unlock(rules);
        Ok(result)
    }

    /// Does something with the core and the watch, for a loop that hosts the engine: there is no thread at work.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    ///
    /// # Panics
    /// If there is a thread at work after all.
    pub fn poll<R>(
        &self,
        threads: &impl Threads<Source = C>,
        act: impl FnOnce(&mut C, &mut C::Watch) -> R,
    ) -> Result<R, Reentered> {
        let mut rules = self.try_lock(threads)?;
        let (source, watch) = rules.source_and_watch();
        let result = act(source, watch.expect("no thread waits for it"));
        rules.publish();
        self.unlock(rules);
        Ok(result)
    }

    /// How many threads do what.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn pool_statistics(&self, threads: &impl Threads<Source = C>) -> Result<PoolStatistics, Reentered> {
        let rules = self.try_lock(threads)?;
        let pool_statistics = rules.pool_statistics();
        self.unlock(rules);
        Ok(pool_statistics)
    }

    /// Tells others how things are.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn publish(&self, threads: &impl Threads<Source = C>) -> Result<(), Reentered> {
        let mut rules = self.try_lock(threads)?;
        rules.publish();
        self.unlock(rules);
        Ok(())
    }

    /// Is the thread `worker`, until all is over.
    pub fn work(&self, threads: &impl Threads<Source = C>, worker: usize) {
        let mut rules = self.lock(threads);
        if worker > 0 {
            // Whoever started it counted on it.
            rules.arrive();
        }
        let mut goes_on = false;
        loop {
            rules = match rules.decide(worker) {
                Action::Run(work) => {
                    goes_on = false;
                    self.run(rules, threads, worker, work)
                }
                Action::Lead => self.lead(rules, threads, worker, &mut goes_on),
                Action::StandBy(start) => self.stand_by(rules, threads, worker, start),
                Action::Tidy => {
                    self.unlock(rules);
                    threads.between(true);
                    self.lock(threads)
                }
                Action::Exit => break,
            };
        }
        rules.exit();
        self.unlock(rules);
    }

    /// Waits in the middle of a call. `begin` says what for; [`WorkSource::woken`] tells when it is over. Others go on
    /// meanwhile; where there are none, as in a crew of one, the thread turns the engine itself, without beginning new
    /// calls.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn wait(
        &self,
        threads: &impl Threads<Source = C>,
        worker: usize,
        begin: impl FnOnce(&mut C),
    ) -> Result<(), Reentered> {
        let mut rules = self.try_lock(threads)?;
        rules.begin_wait(worker, begin);
        loop {
            let waits = rules.wait(worker);
            if matches!(waits, Waits::NoMore) {
                break;
            }
            self.unlock(rules);
            rules = match waits {
                Waits::NoMore => unreachable!("it would have gone on"),
                Waits::Start(new) => {
                    self.start(threads, Some(new));
                    self.lock(threads)
                }
                Waits::Sleep => {
                    threads.detached(|| drop(self.sleep_until(worker, |rules| rules.is_woken(worker))));
                    self.lock(threads)
                }
                Waits::Watch(mut watch, timeout) => {
                    threads.detached(|| threads.watch(&mut watch, timeout));
                    threads.between(true);
                    let mut rules = self.lock(threads);
                    rules.release_watch(worker, watch);
                    rules.look();
                    rules
                }
            };
        }
        self.unlock(rules);
        Ok(())
    }

    /// A tick has passed, says a thread that is detached all the time: see [`Rules::tick`]. Where somebody is at work with
    /// the core, the next tick will do; to wait for the lock would have whoever opens it wake this thread.
    pub fn tick(&self) -> Wanted {
        let mut rules = match self.rules.try_lock() {
            Ok(rules) => rules,
            Err(TryLockError::WouldBlock) if !self.has_missed.swap(true, Ordering::Relaxed) => {
                return Wanted::Soon(TICK);
            }
            Err(_) => self.lock_detached(),
        };
        self.has_missed.store(false, Ordering::Relaxed);
        self.owner.store(me(), Ordering::Relaxed);
        let wanted = rules.tick();
        self.unlock(rules);
        wanted
    }

    fn run<'a>(
        &'a self,
        mut rules: MutexGuard<'a, Rules<C>>,
        threads: &impl Threads<Source = C>,
        worker: usize,
        work: C::Work,
    ) -> MutexGuard<'a, Rules<C>> {
        let started_call = rules.begin(&work);
        self.unlock(rules);
        self.start(threads, started_call.start);
        if let Some(pace) = started_call.ticks {
            threads.want_ticks(pace);
        }
        let waited = if started_call.is_measured() {
            Some(threads.run_measured(worker, work))
        } else {
            threads.run(worker, work);
            None
        };
        let mut rules = self.lock(threads);
        threads.end(rules.source_mut());
        rules.end(&started_call, waited);
        rules
    }

    /// Holds the baton: waits for the watch. `goes_on`: this thread has found something ready the last time, too, and
    /// nothing to run since.
    fn lead<'a>(
        &'a self,
        mut rules: MutexGuard<'a, Rules<C>>,
        threads: &impl Threads<Source = C>,
        worker: usize,
        goes_on: &mut bool,
    ) -> MutexGuard<'a, Rules<C>> {
        let (is_ready, start) = rules.before_lead();
        self.unlock(rules);
        self.start(threads, start);
        threads.between(!is_ready);
        if std::mem::replace(goes_on, is_ready) && is_ready {
            threads.detached(|| self.give_way());
        }
        let mut rules = self.lock(threads);
        let taken = if is_ready { None } else { rules.lead(worker) };
        let Some((mut watch, timeout)) = taken else { return rules };
        self.unlock(rules);
        threads.detached(|| threads.watch(&mut watch, timeout));
        let mut rules = self.lock(threads);
        rules.release_watch(worker, watch);
        rules.look();
        rules
    }

    /// Stands by until it is called, and takes the baton then if nobody has.
    fn stand_by<'a>(
        &'a self,
        mut rules: MutexGuard<'a, Rules<C>>,
        threads: &impl Threads<Source = C>,
        worker: usize,
        start: Option<usize>,
    ) -> MutexGuard<'a, Rules<C>> {
        rules.stand_by(worker);
        self.unlock(rules);
        self.start(threads, start);
        threads.detached(|| {
            let mut rules = self.sleep_until(worker, |rules| rules.is_called(worker));
            rules.arrive();
            let Some((mut watch, timeout)) = rules.lead_at_once(worker) else { return };
            drop(rules);
            threads.watch(&mut watch, timeout);
            self.lock_detached().release_watch(worker, watch);
        });
        self.lock(threads)
    }

    /// Sleeps, detached, until `is_time`.
    fn sleep_until(&self, worker: usize, is_time: impl Fn(&Rules<C>) -> bool) -> MutexGuard<'_, Rules<C>> {
        let mut rules = self.lock_detached();
        while !is_time(&rules) {
            rules = self.signals[worker].wait(rules).unwrap_or_else(PoisonError::into_inner);
        }
        rules
    }

    fn start(&self, threads: &impl Threads<Source = C>, mut worker: Option<usize>) {
        while let Some(new) = worker
            && !threads.start(new)
        {
            let mut rules = self.lock(threads);
            worker = rules.start_failed();
            self.unlock(rules);
        }
    }

    /// Locks, by a thread that holds the interpreter.
    fn lock(&self, threads: &impl Threads<Source = C>) -> MutexGuard<'_, Rules<C>> {
        self.try_lock(threads).expect("no thread comes here while it does something with the source")
    }

    /// Lets others have the lock and the interpreter, detached. A thread that has always something to do, such as bodies
    /// to receive, would otherwise take both again before anybody has noticed that they were free.
    fn give_way(&self) {
        drop(self.turnstile.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Locks, by a thread that does not hold the interpreter.
    fn lock_detached(&self) -> MutexGuard<'_, Rules<C>> {
        // What panics while it holds the lock leaves the data whole.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self, threads: &impl Threads<Source = C>) -> Result<MutexGuard<'_, Rules<C>>, Reentered> {
        let mut poll = None;
        loop {
            let rules = match self.rules.try_lock() {
                Ok(rules) => Some(rules),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(rules) = rules {
                self.owner.store(me(), Ordering::Relaxed);
                return Ok(rules);
            }
            if self.is_mine() {
                return Err(Reentered);
            }
            // Whoever holds it may be waiting for nothing else, but only without the interpreter may it be waited for.
            threads.detached(|| {
                poll.get_or_insert_with(|| self.turnstile.lock().unwrap_or_else(PoisonError::into_inner));
                drop(self.lock_detached());
            });
        }
    }

    fn unlock(&self, mut rules: MutexGuard<'_, Rules<C>>) {
        self.owner.store(0, Ordering::Relaxed);
        let signals = rules.take_signals();
        drop(rules);
        for worker in signals {
            self.signals[worker].notify_one();
        }
    }
}
