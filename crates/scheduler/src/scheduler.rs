//! The rules applied to real threads: the lock around the rules, and the condition variables on which threads sleep.

use crate::actions::{Action, PoolStatistics, WaitStep};
use crate::rules::Rules;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, me};
use crate::tick::{TICK, Wanted};
use crate::traits::{Threads, WorkSource};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// The scheduler of an engine's threads. See the crate's documentation.
pub struct Scheduler<C: WorkSource> {
    pub(crate) rules: Mutex<Rules<C>>,
    /// The turnstile. A thread that finds the rules locked holds it until it has locked them; see
    /// [`give_way`](Self::give_way).
    turnstile: Turnstile,
    /// The thread that holds the lock. It lets the scheduler report reentry instead of deadlocking.
    owner: AtomicUsize,
    /// The thread of the loop that hosts the engine; 0 if there is none.
    host: AtomicUsize,
    /// True if the last tick found the rules locked.
    has_missed: AtomicBool,
    signals: Box<[Condvar]>,
}

/// The error of a thread that already holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

/// A turnstile, which admits one thread at a time. It is not a [`Mutex`], because a guard cannot leave the closure of
/// [`Threads::detached`] in which it was created.
#[derive(Default)]
struct Turnstile {
    is_taken: Mutex<bool>,
    left: Condvar,
}

/// The guard of a thread that the turnstile has admitted.
struct Pass<'a>(&'a Turnstile);

impl Turnstile {
    fn enter(&self) -> Pass<'_> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            is_taken = self.left.wait(is_taken).unwrap_or_else(PoisonError::into_inner);
        }
        *is_taken = true;
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.left.notify_one();
    }
}

impl<C: WorkSource<Work: Send, Poller: Send> + Send> Scheduler<C> {
    /// Creates a scheduler. `max_calls` is the maximum number of concurrent calls. Worker 0 counts as started; with
    /// `max_calls` of 1 it is the only thread.
    ///
    /// # Panics
    /// If `max_calls` is 0.
    pub fn new(source: C, poller: C::Poller, max_calls: usize) -> Self {
        let rules = Rules::new(source, poller, max_calls);
        let signals = (0..rules.thread_count()).map(|_| Condvar::new()).collect();
        Self {
            rules: Mutex::new(rules),
            turnstile: Turnstile::default(),
            owner: AtomicUsize::new(0),
            host: AtomicUsize::new(0),
            has_missed: AtomicBool::new(false),
            signals,
        }
    }

    /// Returns the maximum number of threads.
    pub fn thread_count(&self) -> usize {
        self.signals.len()
    }

    /// Returns true if the calling thread holds the lock.
    pub fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == me()
    }

    /// Runs `act` with the work source, under the lock. `act` must not block.
    ///
    /// # Errors
    /// [`Reentered`] if called from within another `with`.
    pub fn with<R>(&self, threads: &impl Threads<Source = C>, act: impl FnOnce(&mut C) -> R) -> Result<R, Reentered> {
        let mut rules = self.try_lock(threads)?;
        let result = act(rules.source_mut());
        if self.host.load(Ordering::Relaxed) == me() {
            rules.step_of_host();
        } else {
            rules.step();
        }
        self.unlock(rules);
        Ok(result)
    }

    /// Runs `act` with the work source and the poller, for an event loop that hosts the engine. No thread may be in
    /// [`work`](Self::work).
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    ///
    /// # Panics
    /// If a thread waits for the poller.
    pub fn poll<R>(
        &self,
        threads: &impl Threads<Source = C>,
        act: impl FnOnce(&mut C, &mut C::Poller) -> R,
    ) -> Result<R, Reentered> {
        let mut rules = self.try_lock(threads)?;
        rules.begin_hosted_poll();
        let (source, poller) = rules.source_and_poller();
        let result = act(source, poller.expect("no thread waits for the poller"));
        rules.publish();
        self.unlock(rules);
        Ok(result)
    }

    /// Prepares the wait of an event loop that hosts the engine. Returns the time at which the loop has to
    /// [poll](Self::poll) at the latest, on the clock of [`WorkSource::now`]; zero if there is something to do now. If
    /// another thread makes that time earlier while the loop waits, it wakes the poller.
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    pub fn before_hosted_wait(&self, threads: &impl Threads<Source = C>) -> Result<Option<Duration>, Reentered> {
        let mut rules = self.try_lock(threads)?;
        self.host.store(me(), Ordering::Relaxed);
        let due = rules.before_hosted_wait();
        self.unlock(rules);
        Ok(due)
    }

    /// Runs one iteration of an event loop that hosts the engine, in the loop's thread: waits for the poller until
    /// there is work, at most for `patience` (`None`: without limit), takes the poller's events, and runs `act` with
    /// the work source. No thread may be in [`work`](Self::work).
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    ///
    /// # Panics
    /// If a thread waits for the poller.
    pub fn run_once<T: Threads<Source = C>, R>(
        &self,
        threads: &T,
        patience: Option<Duration>,
        act: impl FnOnce(&mut C) -> R,
    ) -> Result<R, Reentered> {
        let mut rules = self.try_lock(threads)?;
        self.host.store(me(), Ordering::Relaxed);
        let (mut poller, due) = rules.take_poller_for_loop().expect("no thread waits for the poller");
        let over = rules.source().is_over().then_some(Duration::ZERO);
        let wait = patience.into_iter().chain(due).chain(over).min();
        self.unlock(rules);
        if wait == Some(Duration::ZERO) {
            // This wait takes no time, so it need not release the GIL.
            T::wait_for_events(&mut poller, wait);
        } else {
            threads.detached(|| T::wait_for_events(&mut poller, wait));
        }
        let mut rules = self.lock(threads);
        rules.source_mut().take_events(&mut poller);
        rules.return_poller(0, poller);
        rules.begin_hosted_poll();
        let result = act(rules.source_mut());
        self.unlock(rules);
        Ok(result)
    }

    /// Counts the threads by their activity.
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    pub fn pool_statistics(&self, threads: &impl Threads<Source = C>) -> Result<PoolStatistics, Reentered> {
        let rules = self.try_lock(threads)?;
        let pool_statistics = rules.pool_statistics();
        self.unlock(rules);
        Ok(pool_statistics)
    }

    /// Publishes the state to other processes.
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    pub fn publish(&self, threads: &impl Threads<Source = C>) -> Result<(), Reentered> {
        let mut rules = self.try_lock(threads)?;
        rules.publish();
        self.unlock(rules);
        Ok(())
    }

    /// Runs thread `worker`. Returns when the work source has ended.
    pub fn work<T: Threads<Source = C>>(&self, threads: &T, worker: usize) {
        let mut rules = self.lock(threads);
        if worker > 0 {
            // The thread that started this one has already counted it as arriving.
            rules.arrive(worker);
        }
        let mut goes_on = false;
        loop {
            rules = match rules.decide(worker, threads.token()) {
                Action::Run(work) => {
                    goes_on = false;
                    self.run(rules, threads, worker, work)
                }
                Action::Lead => self.lead(rules, threads, worker, &mut goes_on),
                Action::Follow(start) => self.follow(rules, threads, worker, start),
                Action::CleanUp => {
                    self.unlock(rules);
                    threads.clean_up(true);
                    self.lock(threads)
                }
                Action::Exit => break,
            };
        }
        rules.exit(worker);
        self.unlock(rules);
    }

    /// Waits within a call. `begin` registers the event for which the call waits; [`WorkSource::woken`] reports the end
    /// of the wait. Another thread leads meanwhile. If there is no other thread, this thread polls without beginning
    /// new calls.
    ///
    /// # Errors
    /// [`Reentered`] if called from within [`with`](Self::with).
    pub fn wait<T: Threads<Source = C>>(
        &self,
        threads: &T,
        worker: usize,
        begin: impl FnOnce(&mut C),
    ) -> Result<(), Reentered> {
        let mut rules = self.try_lock(threads)?;
        rules.begin_wait(worker, begin);
        loop {
            let step = rules.wait(worker, threads.token());
            if matches!(step, WaitStep::Done) {
                break;
            }
            self.unlock(rules);
            rules = match step {
                WaitStep::Done => unreachable!("the loop has ended"),
                WaitStep::Start(new) => {
                    self.start(threads, Some(new));
                    self.lock(threads)
                }
                WaitStep::Sleep => {
                    threads.detached(|| drop(self.sleep_until(worker, |rules| rules.is_woken(worker))));
                    self.lock(threads)
                }
                WaitStep::Poll(mut poller, timeout) => {
                    threads.detached(|| T::wait_for_events(&mut poller, timeout));
                    threads.clean_up(true);
                    let mut rules = self.lock(threads);
                    rules.return_poller(worker, poller);
                    rules.poll();
                    rules
                }
            };
        }
        self.unlock(rules);
        Ok(())
    }

    /// Performs a tick; see [`Rules::tick`]. The calling thread never holds the GIL. If the lock is taken, one tick is
    /// skipped, because otherwise the thread that releases the lock would have to wake this one.
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
        let started_call = rules.begin(worker, &work);
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
        threads.complete(rules.source_mut());
        rules.end(&started_call, waited);
        rules
    }

    /// Leads: waits for the poller and takes its events. `goes_on`: this thread also found an event when it last led,
    /// and has run no work since.
    fn lead<'a, T: Threads<Source = C>>(
        &'a self,
        mut rules: MutexGuard<'a, Rules<C>>,
        threads: &T,
        worker: usize,
        goes_on: &mut bool,
    ) -> MutexGuard<'a, Rules<C>> {
        let (is_ready, start) = rules.before_lead();
        self.unlock(rules);
        self.start(threads, start);
        threads.clean_up(!is_ready);
        if std::mem::replace(goes_on, is_ready) && is_ready {
            threads.detached(|| self.give_way());
        }
        let mut rules = self.lock(threads);
        let taken = if is_ready { None } else { rules.lead(worker) };
        let Some((mut poller, timeout)) = taken else { return rules };
        self.unlock(rules);
        threads.detached(|| T::wait_for_events(&mut poller, timeout));
        let mut rules = self.lock(threads);
        rules.return_poller(worker, poller);
        rules.poll();
        rules
    }

    /// Follows: sleeps until notified, and then leads at once if no other thread does.
    fn follow<'a, T: Threads<Source = C>>(
        &'a self,
        mut rules: MutexGuard<'a, Rules<C>>,
        threads: &T,
        worker: usize,
        start: Option<usize>,
    ) -> MutexGuard<'a, Rules<C>> {
        rules.follow(worker);
        self.unlock(rules);
        self.start(threads, start);
        threads.detached(|| {
            let mut rules = self.sleep_until(worker, |rules| rules.is_notified(worker));
            rules.arrive(worker);
            let Some((mut poller, timeout)) = rules.lead_at_once(worker) else { return };
            drop(rules);
            T::wait_for_events(&mut poller, timeout);
            self.lock_detached().return_poller(worker, poller);
        });
        self.lock(threads)
    }

    /// Sleeps until `is_time` returns true. The caller must not hold the GIL.
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
            worker = rules.start_failed(new);
            self.unlock(rules);
        }
    }

    /// Locks the rules. The caller holds the GIL.
    fn lock(&self, threads: &impl Threads<Source = C>) -> MutexGuard<'_, Rules<C>> {
        self.try_lock(threads).expect("`with` does not call this")
    }

    /// Lets waiting threads have the lock and the GIL. The caller must not hold the GIL. A thread that never waits, for
    /// example because it always has bodies to receive, would otherwise take both again before a waiting thread has
    /// woken.
    fn give_way(&self) {
        drop(self.turnstile.enter());
    }

    /// Locks the rules. The caller must not hold the GIL.
    fn lock_detached(&self) -> MutexGuard<'_, Rules<C>> {
        // A panic under the lock leaves the rules consistent, so poisoning is ignored.
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self, threads: &impl Threads<Source = C>) -> Result<MutexGuard<'_, Rules<C>>, Reentered> {
        match self.lock_if_free() {
            Some(rules) => Ok(rules),
            None => self.wait_for_lock(threads),
        }
    }

    #[inline]
    fn lock_if_free(&self) -> Option<MutexGuard<'_, Rules<C>>> {
        let rules = match self.rules.try_lock() {
            Ok(rules) => rules,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.owner.store(me(), Ordering::Relaxed);
        Some(rules)
    }

    #[cold]
    fn wait_for_lock(&self, threads: &impl Threads<Source = C>) -> Result<MutexGuard<'_, Rules<C>>, Reentered> {
        let mut turn = None;
        loop {
            if self.is_mine() {
                return Err(Reentered);
            }
            // A thread must not wait for this lock while it holds the GIL.
            threads.detached(|| {
                turn.get_or_insert_with(|| self.turnstile.enter());
                drop(self.lock_detached());
            });
            if let Some(rules) = self.lock_if_free() {
                return Ok(rules);
            }
        }
    }

    fn unlock(&self, mut rules: MutexGuard<'_, Rules<C>>) {
        self.owner.store(0, Ordering::Relaxed);
        if rules.has_signals() {
            let signals = rules.take_signals();
            drop(rules);
            for worker in signals {
                self.signals[worker].notify_one();
            }
        }
    }
}
