//! Threads that share an engine without handing requests over: the baton.
//!
//! Whoever has nothing to run and finds nobody waiting for the poller waits for it: that thread *holds the baton*. It
//! does what became ready, and runs what comes up itself, so a call that is soon over never changes threads. While the
//! application works, the shared state is unlocked and the baton lies there; a call that takes its time is found out
//! in one of three ways, and a thread standing by is called to take the baton up:
//!
//! * it outlasts a tick ([`Baton::tick`], called by a thread of its own);
//! * it says so, by waiting in the middle of a call ([`Baton::wait`]);
//! * nearly every call has been found to wait lately, so somebody is called beforehand, and goes to wait for the poller
//!   at once. Where only some do, ticks come more often. And where so many are out that one of them returns soon, that
//!   one takes the baton up instead of somebody who would have to be woken for it, and ticks come more seldom.
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
//! nobody waits for this lock while holding the interpreter ([`Crew::detached`]). The crew has one thread more than
//! calls may run, so one is always left to turn the engine.

use crate::hold::TICK;
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, me};
use std::collections::VecDeque;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[cfg(all(test, loom))]
mod model;

/// Calls of which one is measured.
const SAMPLE: u64 = 16;
/// The same while none has been found to wait for a long time: measuring takes two system calls.
const RARE_SAMPLE: u64 = 256;
/// After so many measured calls that did not wait, measuring becomes rare.
const CALM: u32 = 64;
/// The mean time that a call waits is taken over about so many measured calls.
const MEMORY: u64 = 32;
/// From this mean on it is worth while to look more often for calls that wait; at half of it no longer. It is what
/// calling a thread costs.
const WORTH_CALLING: Duration = Duration::from_micros(20);
/// So many ticks come in the time of one where calls are known to wait.
const EAGER: u32 = 8;
/// Where so many calls are out that one returns within this time, that one takes the baton up.
const SOON: Duration = Duration::from_millis(2);
/// A share of calls is counted in parts of this.
const ALL: u64 = 1 << 16;

/// What is shared and turned.
pub trait Core {
    /// Something to run.
    type Work;
    /// What is waited for when there is nothing to run.
    type Watch;

    /// The next thing to run. Without `may_call` it begins no new call.
    fn next(&mut self, may_call: bool) -> Option<Self::Work>;
    /// The thread that has to run it; `None` for any.
    fn owner(work: &Self::Work) -> Option<usize>;
    /// Whether something waits for `next` to be allowed a new call.
    fn has_queued(&self) -> bool;
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
    fn is_holding(&self) -> bool;
    /// A tick has passed.
    fn tick(&mut self);
    /// Whether all is over and the threads can go.
    fn is_over(&self) -> bool;

    /// Looks after those who wait for [`next`](Self::next) while nobody calls it; `watch` is there unless somebody waits
    /// for it. Returns whether there is something to do now of which whoever waits for the watch does not know.
    fn attend(&mut self, watch: Option<&mut Self::Watch>) -> bool {
        let _ = watch;
        false
    }

    /// Whether time has passed since others were told how things are.
    fn is_stale(&self) -> bool {
        false
    }

    /// Tells others how things are.
    fn publish(&mut self, muster: &Muster) {
        let _ = muster;
    }
}

/// The threads of a [`Baton`].
pub trait Crew {
    /// What they share.
    type Core: Core;

    /// Does `wait` without what others may be waiting for while they hold nothing else: the interpreter.
    fn detached<R>(&self, wait: impl FnOnce() -> R) -> R;
    /// Waits for the watch, detached.
    fn watch(&self, watch: &mut <Self::Core as Core>::Watch, timeout: Option<Duration>);
    /// Runs something, and puts it back before it returns, or at the next [`end`](Self::end).
    fn run(&self, worker: usize, work: <Self::Core as Core>::Work);
    /// The same; returns for how long the thread waited for something meanwhile.
    fn run_measured(&self, worker: usize, work: <Self::Core as Core>::Work) -> Duration;
    /// Does what the last run has left to be done locked. It is called soon after each.
    fn end(&self, core: &mut Self::Core);
    /// Starts the thread with this number; whether that was possible. It calls [`Baton::work`].
    fn start(&self, worker: usize) -> bool;
    /// What has to be done unlocked now and then; `is_idle`: the thread is about to wait.
    fn between(&self, is_idle: bool);
    /// Makes sure that somebody calls [`Baton::tick`].
    fn want_ticks(&self);
}

/// See the module.
pub struct Baton<C: Core> {
    state: Mutex<State<C>>,
    /// Which thread has locked it, so that one that comes back to it in the middle is told.
    owner: AtomicUsize,
    signals: Box<[Condvar]>,
}

/// What the lock guards.
pub struct State<C: Core> {
    core: C,
    /// The baton; somebody holds it and waits for it if it is not here.
    watch: Option<C::Watch>,
    workers: Box<[Worker<C::Work>]>,
    /// Threads that stand by, the last one to come first.
    standby: Vec<usize>,
    /// Threads that were called and have not arrived.
    coming: usize,
    /// Threads that were started.
    started: usize,
    /// Until when the watch is waited for.
    watched_until: Option<Duration>,
    /// Who waits for it in the middle of a call.
    watches_alone: Option<usize>,
    /// Threads that have not left.
    present: usize,
    running: usize,
    /// The most that may run.
    most: usize,
    /// Work in the workers' mail.
    mail: usize,
    /// Counts what is done, so that a tick sees whether anything was.
    steps: u64,
    steps_at_tick: u64,
    ticks: u32,
    /// How long calls wait in the mean.
    waits: Duration,
    /// How many of [`ALL`] calls wait at all.
    waiting_calls: u64,
    /// A tick has found that nobody came back to take the baton up, and what has waited since is not done yet.
    is_late: bool,
    /// Measured calls since one has waited, or outlasted a tick.
    calm: u32,
    /// Threads to be signalled when the lock is open: whoever wakes earlier would find it closed.
    to_signal: Vec<usize>,
    calls: u64,
    /// Times that a thread was called.
    handovers: u64,
}

struct Worker<W> {
    /// What only this one may run.
    mail: VecDeque<W>,
    /// It was called, and may run its mail: that counts as running already.
    may_run: bool,
    called: bool,
    woken: bool,
    is_watching: bool,
}

/// Who goes on in a thread's place.
enum Successor {
    /// Somebody who is there.
    There,
    /// A thread that has to be started.
    Start(usize),
}

/// How many threads do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Muster {
    /// Threads that are there.
    pub threads: usize,
    /// Threads that stand by or wait for the poller.
    pub idle: usize,
    /// Threads in calls.
    pub running: usize,
    /// As many calls may run at a time.
    pub most: usize,
    /// Times that a thread was called to take the baton.
    pub handovers: u64,
}

/// The lock is held already, by the thread that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reentered;

impl<C: Core> Baton<C> {
    /// For a crew in which at most `most` calls run at a time. Worker 0 has been started; with `most` of 1 it is alone.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn new(core: C, watch: C::Watch, most: usize) -> Self {
        assert!(most > 0, "somebody has to run calls");
        let size = if most == 1 { 1 } else { most + 1 };
        let workers = (0..size)
            .map(|_| Worker { mail: VecDeque::new(), may_run: false, called: false, woken: false, is_watching: false })
            .collect();
        Self {
            state: Mutex::new(State {
                core,
                watch: Some(watch),
                workers,
                standby: Vec::with_capacity(size),
                coming: 0,
                started: 1,
                watched_until: None,
                watches_alone: None,
                present: 1,
                running: 0,
                most,
                mail: 0,
                steps: 0,
                steps_at_tick: 0,
                ticks: 0,
                waits: Duration::ZERO,
                waiting_calls: 0,
                is_late: false,
                calm: 0,
                to_signal: Vec::new(),
                calls: 0,
                handovers: 0,
            }),
            owner: AtomicUsize::new(0),
            signals: (0..size).map(|_| Condvar::new()).collect(),
        }
    }

    /// How many threads there may be.
    pub fn crew(&self) -> usize {
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
    pub fn with<R>(&self, crew: &impl Crew<Core = C>, act: impl FnOnce(&mut C) -> R) -> Result<R, Reentered> {
        let mut state = self.try_lock(crew)?;
        let result = act(&mut state.core);
        state.step();
        self.unlock(state);
        Ok(result)
    }

    /// Does something with the core and the watch, for a loop that hosts the engine: there is no thread at work.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    ///
    /// # Panics
    /// If there is a thread at work after all.
    pub fn turn<R>(
        &self,
        crew: &impl Crew<Core = C>,
        act: impl FnOnce(&mut C, &mut C::Watch) -> R,
    ) -> Result<R, Reentered> {
        let mut state = self.try_lock(crew)?;
        let State { core, watch, .. } = &mut *state;
        let result = act(core, watch.as_mut().expect("no thread waits for it"));
        state.publish();
        self.unlock(state);
        Ok(result)
    }

    /// How many threads do what.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn muster(&self, crew: &impl Crew<Core = C>) -> Result<Muster, Reentered> {
        let state = self.try_lock(crew)?;
        let muster = state.muster();
        self.unlock(state);
        Ok(muster)
    }

    /// Tells others how things are.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn publish(&self, crew: &impl Crew<Core = C>) -> Result<(), Reentered> {
        let mut state = self.try_lock(crew)?;
        state.publish();
        self.unlock(state);
        Ok(())
    }

    /// Is the thread `worker`, until all is over.
    pub fn work(&self, crew: &impl Crew<Core = C>, worker: usize) {
        let mut state = self.lock(crew);
        if worker > 0 {
            // Whoever started it counted on it.
            state.coming -= 1;
        }
        // What this thread's last work has left to be done unlocked is done.
        let mut is_tidy = true;
        loop {
            if state.core.is_over() && state.workers[worker].mail.is_empty() {
                break;
            }
            if !is_tidy && state.core.bound(worker) > 0 {
                state = self.tidy(state, crew);
                is_tidy = true;
            } else if let Some(successor) = state.spare(worker) {
                let start = if let Successor::Start(new) = successor { Some(new) } else { None };
                self.unlock_to_stand_by(state, crew, worker, start);
                state = self.lock(crew);
            } else if let Some(work) = state.next(worker) {
                state = self.run(state, crew, worker, work);
                is_tidy = false;
            } else if state.watch.is_some() {
                state = self.hold(state, crew, worker);
                is_tidy = true;
            } else if is_tidy {
                self.unlock_to_stand_by(state, crew, worker, None);
                state = self.lock(crew);
            } else {
                state = self.tidy(state, crew);
                is_tidy = true;
            }
        }
        state.present -= 1;
        state.publish();
        for other in 0..state.workers.len() {
            state.call(other);
        }
        state.core.wake_watch();
        self.unlock(state);
    }

    /// Waits in the middle of a call. `begin` says what for; [`Core::woken`] tells when it is over. Others go on
    /// meanwhile; where there are none, as in a crew of one, the thread turns the engine itself, without beginning new
    /// calls.
    ///
    /// # Errors
    /// [`Reentered`], from within [`with`](Self::with).
    pub fn wait(&self, crew: &impl Crew<Core = C>, worker: usize, begin: impl FnOnce(&mut C)) -> Result<(), Reentered> {
        let mut state = self.try_lock(crew)?;
        state.workers[worker].woken = false;
        begin(&mut state.core);
        state.deliver_wakes();
        while !state.workers[worker].woken {
            state.tell_watch();
            let start = state.pass();
            if start.is_some() {
                self.unlock(state);
                self.start(crew, start);
                state = self.lock(crew);
            } else if !state.is_alone() {
                self.unlock(state);
                crew.detached(|| {
                    let mut state = self.lock_detached();
                    while !state.workers[worker].woken {
                        state = self.signals[worker].wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                });
                state = self.lock(crew);
            } else if let Some(work) = state.core.next(false) {
                state.workers[C::owner(&work).unwrap_or(worker)].mail.push_back(work);
                state.mail += 1;
                state.deliver_wakes();
            } else {
                state.deliver_wakes();
                if state.workers[worker].woken {
                    break;
                }
                let State { core, watch, .. } = &mut *state;
                if watch.as_mut().is_some_and(|watch| core.look(watch)) {
                    continue;
                }
                let Some((mut watch, timeout)) = state.take_watch() else { unreachable!("who is alone has the baton") };
                state.watches_alone = Some(worker);
                self.unlock(state);
                crew.detached(|| crew.watch(&mut watch, timeout));
                crew.between(true);
                state = self.lock(crew);
                state.watches_alone = None;
                state.core.look(&mut watch);
                state.watch = Some(watch);
            }
        }
        self.unlock(state);
        Ok(())
    }

    /// A tick has passed, says a thread that is detached all the time: if the baton lies there and nothing was done
    /// since the tick before, somebody is called to take it. Where nobody can, or whoever holds it waits for the
    /// interpreter, the core looks after those who wait, as far as that can be done here. Returns after what time the
    /// next tick is needed, if it is.
    ///
    /// Where some calls wait and most do not, ticks are [`EAGER`]: to call somebody for every call would cost more than
    /// the few that wait keep others waiting until the next tick. Where one of many calls returns soon, a tick is only
    /// for the case that none does; what has waited for it is then done without waiting for returns again.
    pub fn tick(&self) -> Option<Duration> {
        let mut state = self.lock_detached();
        self.owner.store(me(), Ordering::Relaxed);
        state.ticks = state.ticks.wrapping_add(1);
        let is_lazy = state.is_lazy();
        let is_eager = !is_lazy && state.most > 1 && state.waits >= WORTH_CALLING;
        if (!is_eager || state.ticks.is_multiple_of(EAGER)) && state.core.is_holding() {
            state.core.tick();
        }
        let holds = state.core.is_holding();
        let period = if is_eager {
            TICK / EAGER
        } else if is_lazy && !holds {
            SOON
        } else {
            TICK
        };
        let is_lying = state.most > 1 && state.running > 0 && state.watch.is_some() && state.coming == 0;
        if is_lying
            && state.steps == state.steps_at_tick
            && let Some(worker) = state.best_standby()
        {
            state.handovers += 1;
            state.calm = 0;
            state.is_late = true;
            state.call(worker);
        }
        state.steps_at_tick = state.steps;
        let State { core, watch, .. } = &mut *state;
        if core.attend(watch.as_mut()) {
            core.wake_watch();
        }
        state.publish();
        self.unlock(state);
        (holds || is_lying).then_some(period)
    }

    fn tidy<'a>(&'a self, state: MutexGuard<'a, State<C>>, crew: &impl Crew<Core = C>) -> MutexGuard<'a, State<C>> {
        self.unlock(state);
        crew.between(true);
        self.lock(crew)
    }

    fn run<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<C>>,
        crew: &impl Crew<Core = C>,
        worker: usize,
        work: C::Work,
    ) -> MutexGuard<'a, State<C>> {
        state.running += 1;
        state.calls += 1;
        let called = if state.mostly_waits() && (state.is_late || !state.is_lazy()) { state.pass() } else { None };
        let start = called.or_else(|| state.keep_one_in_reserve(false));
        let is_measured = state.is_to_measure();
        // Where somebody is there or on his way already, no tick has to call one.
        let is_covered = state.watch.is_none() || state.coming > 0;
        self.unlock(state);
        self.start(crew, start);
        if !is_covered {
            crew.want_ticks();
        }
        let waited = if is_measured {
            Some(crew.run_measured(worker, work))
        } else {
            crew.run(worker, work);
            None
        };
        let mut state = self.lock(crew);
        state.running -= 1;
        crew.end(&mut state.core);
        state.step();
        if let Some(waited) = waited {
            state.learn(waited);
        }
        state
    }

    /// Holds the baton: waits for the watch.
    fn hold<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<C>>,
        crew: &impl Crew<Core = C>,
        worker: usize,
    ) -> MutexGuard<'a, State<C>> {
        let State { core, watch, .. } = &mut *state;
        // Work that is there already is done without letting go of anything but the lock.
        let is_ready = watch.as_mut().is_some_and(|watch| core.look(watch)) || core.due() == Some(Duration::ZERO);
        let start = if is_ready { None } else { state.keep_one_in_reserve(true) };
        self.unlock(state);
        self.start(crew, start);
        crew.between(!is_ready);
        let mut state = self.lock(crew);
        // Somebody may have done something meanwhile.
        let has_mail = !state.workers[worker].mail.is_empty() && state.running < state.most;
        if is_ready || has_mail || state.core.is_over() || state.core.due() == Some(Duration::ZERO) {
            return state;
        }
        let Some((mut watch, timeout)) = state.take_watch() else { return state };
        state.workers[worker].is_watching = true;
        self.unlock(state);
        crew.detached(|| crew.watch(&mut watch, timeout));
        let mut state = self.lock(crew);
        state.workers[worker].is_watching = false;
        state.core.look(&mut watch);
        state.watch = Some(watch);
        state
    }

    fn unlock_to_stand_by(
        &self,
        mut state: MutexGuard<'_, State<C>>,
        crew: &impl Crew<Core = C>,
        worker: usize,
        start: Option<usize>,
    ) {
        state.tell_watch();
        if state.core.is_over() {
            state.core.wake_watch();
        }
        state.workers[worker].called = false;
        state.standby.push(worker);
        state.publish();
        self.unlock(state);
        self.start(crew, start);
        crew.detached(|| {
            let mut state = self.lock_detached();
            while !state.workers[worker].called {
                state = self.signals[worker].wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.coming -= 1;
            self.watch_at_once(state, crew, worker);
        });
    }

    /// Where nearly every call waits, whoever was called while one begins takes the baton without the interpreter,
    /// which that call needs for a moment more, and nobody before the next event.
    fn watch_at_once(&self, mut state: MutexGuard<'_, State<C>>, crew: &impl Crew<Core = C>, worker: usize) {
        let has_mail = !state.workers[worker].mail.is_empty();
        let is_due = state.core.due() == Some(Duration::ZERO);
        if !state.mostly_waits() || has_mail || is_due || state.core.is_over() {
            return;
        }
        let Some((mut watch, timeout)) = state.take_watch() else { return };
        state.workers[worker].is_watching = true;
        drop(state);
        crew.watch(&mut watch, timeout);
        let mut state = self.lock_detached();
        state.workers[worker].is_watching = false;
        state.watch = Some(watch);
    }

    fn start(&self, crew: &impl Crew<Core = C>, mut worker: Option<usize>) {
        while let Some(new) = worker
            && !crew.start(new)
        {
            let mut state = self.lock(crew);
            state.present -= 1;
            state.coming -= 1;
            // Others may have counted on it.
            worker = state.pass();
            self.unlock(state);
        }
    }

    /// Locks, by a thread that holds the interpreter.
    fn lock(&self, crew: &impl Crew<Core = C>) -> MutexGuard<'_, State<C>> {
        self.try_lock(crew).expect("no thread comes here while it does something with the core")
    }

    /// Locks, by a thread that does not hold the interpreter.
    fn lock_detached(&self) -> MutexGuard<'_, State<C>> {
        // What panics while it holds the lock leaves the data whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self, crew: &impl Crew<Core = C>) -> Result<MutexGuard<'_, State<C>>, Reentered> {
        loop {
            let state = match self.state.try_lock() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(state) = state {
                self.owner.store(me(), Ordering::Relaxed);
                return Ok(state);
            }
            if self.is_mine() {
                return Err(Reentered);
            }
            // Whoever holds it may be waiting for nothing else, but only without the interpreter may it be waited for.
            crew.detached(|| drop(self.lock_detached()));
        }
    }

    fn unlock(&self, mut state: MutexGuard<'_, State<C>>) {
        self.owner.store(0, Ordering::Relaxed);
        if state.to_signal.is_empty() {
            return;
        }
        let to_signal = std::mem::take(&mut state.to_signal);
        drop(state);
        for worker in to_signal {
            self.signals[worker].notify_one();
        }
    }
}

impl<C: Core> State<C> {
    fn next(&mut self, worker: usize) -> Option<C::Work> {
        loop {
            let own = &mut self.workers[worker];
            if std::mem::take(&mut own.may_run) {
                self.running -= 1;
            }
            if self.running < self.most
                && let Some(work) = self.workers[worker].mail.pop_front()
            {
                self.mail -= 1;
                return Some(work);
            }
            self.distribute(worker);
            let may_call = self.running < self.most;
            let work = self.core.next(may_call);
            self.steps += 1;
            if self.core.is_stale() {
                self.publish();
            }
            self.deliver_wakes();
            match work.map(|work| (C::owner(&work), work)) {
                Some((Some(owner), work)) if owner != worker || !may_call => {
                    self.workers[owner].mail.push_back(work);
                    self.mail += 1;
                }
                Some((_, work)) => return Some(work),
                None if self.mail == 0 => return None,
                None => {
                    self.distribute(worker);
                    return None;
                }
            }
        }
    }

    /// Calls the threads that have mail and nothing to do, before anything new is begun in their place.
    fn distribute(&mut self, worker: usize) {
        if self.mail == 0 {
            return;
        }
        for other in 0..self.workers.len() {
            let has_mail = !self.workers[other].mail.is_empty() && !self.workers[other].may_run;
            if has_mail && other != worker && self.running < self.most && self.call(other) {
                self.workers[other].may_run = true;
                self.running += 1;
            }
        }
    }

    /// Sees to it that somebody turns the engine while the caller does not. Returns the number of a thread to be
    /// started for it.
    fn pass(&mut self) -> Option<usize> {
        if self.watch.is_none() || self.coming > 0 {
            return None;
        }
        match self.best_standby() {
            Some(worker) if self.core.bound(worker) == 0 || self.started == self.workers.len() => {
                self.handovers += 1;
                self.call(worker);
                None
            }
            _ => self.recruit(),
        }
    }

    /// Whether nobody turns the engine, or is about to, unless the caller does: all threads are in calls.
    fn is_alone(&self) -> bool {
        self.watch.is_some() && self.coming == 0 && self.present <= self.running
    }

    /// Whether this thread had better stand by, because work is bound to it that would have to wait while it runs
    /// something else, and another can go on in its place: that one is called, or to be started.
    fn spare(&mut self, worker: usize) -> Option<Successor> {
        let own = &self.workers[worker];
        if self.core.bound(worker) == 0 || own.may_run || !own.mail.is_empty() {
            return None;
        }
        // Work of others may have waited for this thread's call to be over.
        self.distribute(worker);
        let is_covered = self.coming > 0 || self.watch.is_none() && !self.core.has_queued();
        if is_covered {
            return Some(Successor::There);
        }
        if let Some(other) = self.best_standby().filter(|&other| self.core.bound(other) == 0) {
            self.handovers += 1;
            self.call(other);
            return Some(Successor::There);
        }
        self.recruit().map(Successor::Start)
    }

    /// A tick cannot start a thread, so besides the caller one more is there that runs nothing. `is_idle`: the caller
    /// does not either.
    fn keep_one_in_reserve(&mut self, is_idle: bool) -> Option<usize> {
        let free = self.present.saturating_sub(self.running + usize::from(is_idle));
        if free == 0 { self.recruit() } else { None }
    }

    fn recruit(&mut self) -> Option<usize> {
        if self.started == self.workers.len() {
            return None;
        }
        self.started += 1;
        self.present += 1;
        self.coming += 1;
        Some(self.started - 1)
    }

    /// Calls a thread, if it stands by or holds the baton; whether it does.
    fn call(&mut self, worker: usize) -> bool {
        if self.workers[worker].is_watching {
            self.core.wake_watch();
            return true;
        }
        let Some(place) = self.standby.iter().rposition(|&other| other == worker) else { return false };
        self.standby.remove(place);
        self.coming += 1;
        self.workers[worker].called = true;
        self.to_signal.push(worker);
        true
    }

    /// Something was done with the core: tells those whom it concerns.
    fn step(&mut self) {
        self.steps += 1;
        self.deliver_wakes();
        self.tell_watch();
    }

    fn deliver_wakes(&mut self) {
        while let Some(worker) = self.core.woken() {
            self.workers[worker].woken = true;
            if self.watches_alone == Some(worker) {
                self.core.wake_watch();
            } else {
                self.to_signal.push(worker);
            }
        }
    }

    /// The thread to be called next: the last that came, for it is still warm, but rather one that nothing waits for.
    fn best_standby(&self) -> Option<usize> {
        let free = self.standby.iter().rev().find(|&&worker| self.core.bound(worker) == 0);
        free.or(self.standby.last()).copied()
    }

    /// Ends the wait for the watch if there will be something to do earlier than whoever waits for it knows.
    fn tell_watch(&mut self) {
        if self.watch.is_some() {
            return;
        }
        let due = self.core.due();
        if due.is_some_and(|due| self.watched_until.is_none_or(|until| due < until)) {
            self.watched_until = due;
            self.core.wake_watch();
        }
    }

    /// Takes the baton up, if it lies there: the watch, and how long to wait for it.
    fn take_watch(&mut self) -> Option<(C::Watch, Option<Duration>)> {
        let watch = self.watch.take()?;
        self.is_late = false;
        self.core.before_watch(self.running == 0);
        let due = self.core.due();
        self.watched_until = due;
        self.publish();
        Some((watch, due.map(|due| due.saturating_sub(self.core.now()))))
    }

    fn muster(&self) -> Muster {
        Muster {
            threads: self.present,
            idle: self.standby.len() + usize::from(self.watch.is_none()),
            running: self.running,
            most: self.most,
            handovers: self.handovers,
        }
    }

    /// Tells others how things are: before a thread waits, with each tick, and now and then between.
    fn publish(&mut self) {
        let muster = self.muster();
        self.core.publish(&muster);
    }

    /// Whether nearly every call waits.
    fn mostly_waits(&self) -> bool {
        self.waiting_calls >= ALL * 3 / 4
    }

    /// Whether nearly every call waits and so many are out that one of them returns soon: it takes the baton up, and
    /// nobody has to be called, who would have to be woken, and put to sleep again, for each call.
    fn is_lazy(&self) -> bool {
        let running = u32::try_from(self.running).unwrap_or(u32::MAX).max(1);
        self.mostly_waits() && self.waits / running <= SOON
    }

    /// Whether the call that begins is to be measured. Who is alone has nobody to call.
    fn is_to_measure(&self) -> bool {
        let one_in = if self.calm < CALM { SAMPLE } else { RARE_SAMPLE };
        self.most > 1 && (self.calls <= SAMPLE || self.calls.is_multiple_of(one_in))
    }

    /// A measured call has waited for so long.
    fn learn(&mut self, waited: Duration) {
        self.calm = if waited.is_zero() { self.calm.saturating_add(1) } else { 0 };
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        // A very long wait says no more than a long one.
        let waited = nanos(waited.min(Duration::from_millis(100)));
        let before = nanos(self.waits);
        let mean = before - before / MEMORY + waited / MEMORY;
        // Looking often starts at the full mark and ends at half of it: in between it stays as it is.
        let was_eager = self.waits >= WORTH_CALLING;
        let is_between = mean < nanos(WORTH_CALLING) && mean >= nanos(WORTH_CALLING) / 2;
        self.waits = if was_eager && is_between { WORTH_CALLING } else { Duration::from_nanos(mean) };
        let share = if waited >= nanos(WORTH_CALLING) { ALL } else { 0 };
        self.waiting_calls = self.waiting_calls - self.waiting_calls / MEMORY + share / MEMORY;
    }
}
