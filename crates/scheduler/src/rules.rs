//! The rules of leader/followers: which thread leads, which threads follow, and which run calls. They have no threads,
//! lock or clock of their own.
//!
//! [`Scheduler`](crate::Scheduler) applies the rules to real threads, the simulator to simulated ones. A thread asks
//! [`decide`](Rules::decide) for its next action and performs it. An action that takes time has one method for its
//! start and one for its end; between the two, other threads may use the rules.

use crate::actions::{Action, PoolStatistics, StartedCall, WaitStep};
use crate::predictor::{BlockingPredictor, RouteKey};
use crate::state::{ThreadEvent, ThreadState};
use crate::tick::{Pace, TICK, Wanted};
use crate::traits::WorkSource;
use crate::worker::Worker;
use std::time::Duration;

/// The number of shorter ticks in place of one tick, while calls block that the predictor did not predict.
const EAGER: u32 = 8;
/// The time within which a call counts as returning soon. If one of the running calls is expected to return within this
/// time, and no other client can send a request meanwhile, no follower is notified: the thread of the returning call
/// becomes the leader.
const SOON: Duration = Duration::from_millis(2);

/// The state of one engine's threads. See the module's documentation.
#[derive(Debug)]
pub struct Rules<C: WorkSource> {
    source: C,
    /// The poller; `None` while a thread waits for it: the leader, or a thread that polls within its call.
    poller: Option<C::Poller>,
    workers: Box<[Worker<C::Work>]>,
    /// The threads that sleep until they are notified. The last one is notified first.
    followers: Vec<usize>,
    /// The number of threads that were notified or started and have not arrived yet.
    arriving: usize,
    /// The number of threads started so far, including worker 0.
    started: usize,
    /// The time at which the current wait for the poller ends at the latest; `None` for no limit.
    poll_until: Option<Duration>,
    /// True while an event loop that hosts the engine waits for the poller without taking it.
    is_hosted: bool,
    /// The number of threads that have not exited.
    present: usize,
    running: usize,
    /// The number of running calls that were predicted to block.
    predicted: usize,
    /// The number of running calls that wait for their peer within the call ([`begin_wait`](Self::begin_wait)).
    waiting: usize,
    /// The maximum of `running`.
    max_calls: usize,
    /// The total number of pieces of work in all inboxes.
    inbox_len: usize,
    predictor: BlockingPredictor,
    /// The route key of the last call that was not predicted to block. A tick that finds no leader suspects this key.
    unpredicted_key: Option<RouteKey>,
    /// The number of changes. By comparing it, a tick finds out whether anything has changed since the previous tick.
    steps: u64,
    steps_at_tick: u64,
    /// The time of the last tick that found a change.
    quiet_since: Duration,
    ticks: u32,
    /// True if a tick has found that no call returned in time for its thread to become the leader. Until a thread leads
    /// again, calls predicted to block notify a follower at once.
    is_return_overdue: bool,
    /// The threads to be notified after the lock is released. A thread that woke earlier would find the lock taken.
    to_signal: Vec<usize>,
    /// The number of times that a follower was notified to become the leader.
    handovers: u64,
}

/// A thread that leads instead of another.
enum Successor {
    /// A thread that already exists.
    Present,
    /// A thread that has to be started, with its number.
    Start(usize),
}

impl<C: WorkSource> Rules<C> {
    /// Creates the rules for one engine's threads.
    ///
    /// `max_calls` is the maximum number of concurrent calls. Worker 0 counts as started. There is one more thread than
    /// calls, so that one is free to lead; with `max_calls` of 1 there is only one thread.
    ///
    /// # Panics
    /// If `max_calls` is 0.
    pub fn new(source: C, poller: C::Poller, max_calls: usize) -> Self {
        assert!(max_calls > 0, "max_calls is above 0");
        let size = if max_calls == 1 { 1 } else { max_calls + 1 };
        let mut rules = Self {
            source,
            poller: Some(poller),
            workers: (0..size).map(|_| Worker::new()).collect(),
            followers: Vec::with_capacity(size),
            arriving: 0,
            started: 1,
            poll_until: None,
            is_hosted: false,
            present: 1,
            running: 0,
            predicted: 0,
            waiting: 0,
            max_calls,
            inbox_len: 0,
            predictor: BlockingPredictor::new(),
            unpredicted_key: None,
            steps: 0,
            steps_at_tick: 0,
            quiet_since: Duration::ZERO,
            ticks: 0,
            is_return_overdue: false,
            to_signal: Vec::new(),
            handovers: 0,
        };
        rules.apply(0, ThreadEvent::Start, ThreadState::Arriving);
        rules.apply(0, ThreadEvent::Arrive, ThreadState::Active);
        rules
    }

    /// Returns the work source.
    pub fn source(&self) -> &C {
        &self.source
    }

    /// Returns the work source. A caller that changes it must call [`step`](Self::step) afterwards.
    pub fn source_mut(&mut self) -> &mut C {
        &mut self.source
    }

    /// Returns the work source, and the poller; `None` for the poller if a thread waits for it.
    pub fn source_and_poller(&mut self) -> (&mut C, Option<&mut C::Poller>) {
        (&mut self.source, self.poller.as_mut())
    }

    /// Returns the maximum number of threads.
    pub fn thread_count(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of running calls.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Returns the pieces of work that wait in an inbox for their thread.
    pub fn pinned_work(&self) -> impl Iterator<Item = &C::Work> {
        self.workers.iter().flat_map(|worker| &worker.inbox)
    }

    // ----------------------------------------------------------------------------------------- life of a thread

    /// Records that a thread that was started or notified has arrived.
    pub fn arrive(&mut self, worker: usize) {
        self.apply(worker, ThreadEvent::Arrive, ThreadState::Active);
        self.arriving -= 1;
    }

    /// Decides the next action of thread `worker`. The thread must not be in a call or hold the poller.
    pub fn decide(&mut self, worker: usize, token: C::Token<'_>) -> Action<C::Work> {
        debug_assert!(self.counts_agree(), "the counters of the threads and their states differ");
        let is_cleaned_up = std::mem::replace(&mut self.workers[worker].is_cleaned_up, true);
        if self.source.is_over() && self.workers[worker].inbox.is_empty() {
            return Action::Exit;
        }
        if !is_cleaned_up && self.source.bound(worker) > 0 {
            return Action::CleanUp;
        }
        match self.find_successor(worker) {
            Some(Successor::Present) => return Action::Follow(None),
            Some(Successor::Start(new)) => return Action::Follow(Some(new)),
            None => {}
        }
        if let Some(work) = self.next(worker, token) {
            self.workers[worker].is_cleaned_up = false;
            Action::Run(work)
        } else if self.poller.is_some() {
            Action::Lead
        } else if is_cleaned_up {
            Action::Follow(None)
        } else {
            Action::CleanUp
        }
    }

    /// Records that the thread exits. Notifies all other threads, so that they check whether to exit as well.
    pub fn exit(&mut self, worker: usize) {
        self.apply(worker, ThreadEvent::Exit, ThreadState::Exited);
        self.present -= 1;
        self.publish();
        for other in 0..self.workers.len() {
            self.notify(other);
        }
        self.source.wake_poller();
    }

    /// Makes the thread a follower.
    pub fn follow(&mut self, worker: usize) {
        self.wake_poller_if_earlier();
        if self.source.is_over() {
            self.source.wake_poller();
        }
        self.apply(worker, ThreadEvent::Follow, ThreadState::Following);
        self.followers.push(worker);
        self.publish();
    }

    /// Returns true if this follower was notified.
    pub fn is_notified(&self, worker: usize) -> bool {
        self.workers[worker].state.get() != ThreadState::Following
    }

    /// Handles the failure to start a reserved thread. Returns the number of another thread to start instead, if there
    /// is one.
    pub fn start_failed(&mut self, worker: usize) -> Option<usize> {
        self.apply(worker, ThreadEvent::StartFailed, ThreadState::Exited);
        self.present -= 1;
        self.arriving -= 1;
        // Other threads may have relied on the thread that failed to start.
        self.ensure_leader()
    }

    /// Returns true if there are threads to notify once the lock is released.
    pub fn has_signals(&self) -> bool {
        !self.to_signal.is_empty()
    }

    /// Removes and returns the threads to notify once the lock is released.
    pub fn take_signals(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.to_signal)
    }

    // ---------------------------------------------------------------------------------------------------- calls

    /// Records that the thread begins to run `work`.
    pub fn begin(&mut self, worker: usize, work: &C::Work) -> StartedCall {
        self.apply(worker, ThreadEvent::Begin, ThreadState::Running);
        self.running += 1;
        let route_key = C::route_key(work);
        let mut prediction = self.predictor.predict(route_key);
        // With a single thread there is no follower to notify, so a measurement would be useless.
        prediction.is_measured &= self.max_calls > 1;
        let mut successor = None;
        if prediction.blocks {
            self.predicted += 1;
            self.unpredicted_key = None;
            if self.is_return_overdue || !self.returns_soon() {
                successor = self.ensure_leader();
            }
        } else {
            self.unpredicted_key = route_key;
        }
        let start = successor.or_else(|| self.keep_one_in_reserve(false));
        let ticks = if self.poller.is_none() || self.arriving > 0 {
            // A thread already leads or is about to, so no tick has to notify one.
            None
        } else if prediction.blocks && self.all_clients_wait() {
            Some(Pace::Steady)
        } else {
            Some(Pace::Quick)
        };
        StartedCall { worker, prediction, start, ticks }
    }

    /// Records that a call has ended. `waited` is the time for which it blocked, if that was measured.
    pub fn end(&mut self, started_call: &StartedCall, waited: Option<Duration>) {
        self.apply(started_call.worker, ThreadEvent::End, ThreadState::Active);
        self.running -= 1;
        self.predicted -= usize::from(started_call.prediction.blocks);
        self.step();
        if let Some(waited) = waited {
            self.predictor.learn(&started_call.prediction, waited);
        }
    }

    /// Records that the thread begins to wait within a call. `begin` registers the awaited event; [`WorkSource::woken`]
    /// reports the end of the wait.
    pub fn begin_wait(&mut self, worker: usize, begin: impl FnOnce(&mut C)) {
        self.apply(worker, ThreadEvent::BeginWait, ThreadState::Waiting);
        self.waiting += 1;
        self.workers[worker].woken = false;
        begin(&mut self.source);
        self.resume_waiters();
    }

    /// Returns the next action of a thread that waits within a call. Another thread leads meanwhile. If no other thread
    /// can, for example because there is only one, this thread polls without starting calls.
    pub fn wait(&mut self, worker: usize, token: C::Token<'_>) -> WaitStep<C::Poller> {
        while !self.workers[worker].woken {
            self.wake_poller_if_earlier();
            if let Some(new) = self.ensure_leader() {
                return WaitStep::Start(new);
            }
            if !self.is_alone() {
                return WaitStep::Sleep;
            }
            if let Some(work) = self.source.next(token, false) {
                self.workers[C::owner(&work).unwrap_or(worker)].inbox.push_back(work);
                self.inbox_len += 1;
                self.resume_waiters();
                continue;
            }
            self.resume_waiters();
            let Self { source, poller, .. } = self;
            if self.workers[worker].woken || poller.as_mut().is_some_and(|poller| source.poll(poller)) {
                continue;
            }
            let Some((poller, timeout)) = self.take_poller() else {
                unreachable!("a thread alone can take the poller")
            };
            self.apply(worker, ThreadEvent::Poll, ThreadState::Polling);
            return WaitStep::Poll(poller, timeout);
        }
        self.apply(worker, ThreadEvent::EndWait, ThreadState::Running);
        self.waiting -= 1;
        WaitStep::Done
    }

    /// Returns true if the event for which the thread waits within its call has occurred.
    pub fn is_woken(&self, worker: usize) -> bool {
        self.workers[worker].woken
    }

    // --------------------------------------------------------------------------------------------------- leader

    /// Prepares a thread that is about to lead. Returns true if there is already work, which the thread then does
    /// without releasing the GIL. Otherwise also returns the number of a thread that has to be started before this one
    /// waits, if there is one.
    pub fn before_lead(&mut self) -> (bool, Option<usize>) {
        let Self { source, poller, .. } = self;
        let is_ready = poller.as_mut().is_some_and(|poller| source.poll(poller)) || source.has_work();
        let start = if is_ready { None } else { self.keep_one_in_reserve(true) };
        (is_ready, start)
    }

    /// Makes the thread the leader if there is none. Returns the poller, and the maximum time to wait for it. Returns
    /// `None` if another thread leads or if there is other work, which may have arrived since [`decide`](Self::decide).
    pub fn lead(&mut self, worker: usize) -> Option<(C::Poller, Option<Duration>)> {
        let has_pinned_work = !self.workers[worker].inbox.is_empty();
        // A thread with an inbox stays even if the source has ended: it may wait until another call has returned.
        let has_other_work = if has_pinned_work { self.running < self.max_calls } else { self.source.is_over() };
        if has_other_work || self.source.has_work() {
            return None;
        }
        let taken = self.take_poller()?;
        self.apply(worker, ThreadEvent::Lead, ThreadState::Leading);
        Some(taken)
    }

    /// Makes a notified follower the leader without asking [`decide`](Self::decide), unless it has work to run. This
    /// does not need the GIL, which the blocking call may hold for a moment longer.
    pub fn lead_at_once(&mut self, worker: usize) -> Option<(C::Poller, Option<Duration>)> {
        let may_call = self.running < self.max_calls;
        if !self.workers[worker].inbox.is_empty() || self.source.has_queued() && may_call {
            return None;
        }
        self.lead(worker)
    }

    /// Takes the poller back from a thread that has stopped waiting for it.
    pub fn return_poller(&mut self, worker: usize, poller: C::Poller) {
        let is_in_call = self.workers[worker].state.get() == ThreadState::Polling;
        let next = if is_in_call { ThreadState::Waiting } else { ThreadState::Active };
        self.apply(worker, ThreadEvent::ReturnPoller, next);
        self.poller = Some(poller);
    }

    /// Passes the poller's events to the work source. Returns true if there were any.
    pub fn poll(&mut self) -> bool {
        let Self { source, poller, .. } = self;
        poller.as_mut().is_some_and(|poller| source.poll(poller))
    }

    /// Performs a tick. Returns the time at which the next one is needed.
    ///
    /// * If no thread leads and nothing has changed since the previous tick, a follower is notified to become the
    ///   leader.
    /// * The work source services pending connections, in case no thread can lead, or the leader waits for the GIL.
    /// * Coalesced output that is due is sent.
    ///
    /// Ticks are [`EAGER`] times as frequent while calls block that were not predicted to. If one of the running calls
    /// is expected to return soon, ticks only handle the case that none does, and they are rare if no client can send a
    /// request meanwhile. After that case, calls predicted to block notify a follower again, until a thread leads.
    pub fn tick(&mut self) -> Wanted {
        self.ticks = self.ticks.wrapping_add(1);
        let returns_soon = self.returns_soon();
        let is_slack = returns_soon && self.all_clients_wait();
        let is_eager = !returns_soon && self.max_calls > 1 && self.predictor.ticks_often();
        let parts = if is_eager { EAGER } else { 1 };
        if self.ticks.is_multiple_of(parts) && self.source.has_deferred_output() {
            self.source.tick();
        }
        let holds = self.source.has_deferred_output();
        let lacks_leader = self.max_calls > 1 && self.running > 0 && self.poller.is_some() && self.arriving == 0;
        if lacks_leader {
            self.notify_if_quiet(if is_slack { SOON } else { Duration::ZERO });
        }
        self.steps_at_tick = self.steps;
        let Self { source, poller, .. } = self;
        if source.service_pending(poller.as_mut()) {
            source.wake_poller();
        }
        self.publish();
        if !holds && !lacks_leader {
            Wanted::No
        } else if is_slack && !holds {
            Wanted::Steadily
        } else {
            Wanted::Soon(TICK / parts)
        }
    }

    fn notify_if_quiet(&mut self, patience: Duration) {
        if self.steps != self.steps_at_tick {
            self.quiet_since = self.source.now();
            return;
        }
        let is_quiet = patience.is_zero() || self.source.now().saturating_sub(self.quiet_since) >= patience;
        if is_quiet && let Some(worker) = self.best_follower() {
            self.handovers += 1;
            self.is_return_overdue = true;
            self.predictor.suspect(self.unpredicted_key.take());
            self.notify(worker);
        }
    }

    /// Records a change of the work source, and wakes the threads that it affects.
    pub fn step(&mut self) {
        self.steps += 1;
        self.resume_waiters();
        self.wake_poller_if_earlier();
    }

    // ---------------------------------------------------------------------------------------------- hosting loop

    /// Takes the poller for an event loop that hosts the engine, in thread 0. The loop's other work keeps it from
    /// returning the poller at once.
    pub fn take_poller_for_loop(&mut self) -> Option<(C::Poller, Option<Duration>)> {
        let taken = self.take_poller_unprepared()?;
        self.apply(0, ThreadEvent::Lead, ThreadState::Leading);
        Some(taken)
    }

    /// Prepares a hosting loop's wait for the poller, which the loop does not take. Returns the time at which the wait
    /// has to end at the latest. From now on [`step`](Self::step) wakes the poller if there is earlier work.
    pub fn before_hosted_wait(&mut self) -> Option<Duration> {
        self.is_hosted = true;
        self.poll_until = self.source.due();
        self.poll_until
    }

    /// Records that the hosting loop polls. The loop has to call `before_hosted_wait` again before it waits.
    pub fn begin_hosted_poll(&mut self) {
        self.poll_until = Some(Duration::ZERO);
    }

    /// Records a change of the work source by the hosting loop's thread, and wakes the threads that it affects. Unlike
    /// [`step`](Self::step) it does not wake the poller, because the loop is not waiting.
    pub fn step_of_host(&mut self) {
        self.steps += 1;
        self.resume_waiters();
    }

    /// Counts the threads by their activity.
    pub fn pool_statistics(&self) -> PoolStatistics {
        PoolStatistics {
            threads: self.present,
            idle: self.followers.len() + usize::from(self.poller.is_none()),
            running: self.running,
            max_calls: self.max_calls,
            handovers: self.handovers,
        }
    }

    /// Publishes the state to the scoreboard. Called before a thread waits, at each tick, and at intervals in between.
    pub fn publish(&mut self) {
        let pool_statistics = self.pool_statistics();
        self.source.publish(&pool_statistics);
    }

    // -------------------------------------------------------------------------------------------------- private

    #[track_caller]
    fn apply(&mut self, worker: usize, event: ThreadEvent, to: ThreadState) {
        self.workers[worker].state.apply(event, to);
    }

    /// Returns true if each counter equals the number of threads in the states that it counts.
    fn counts_agree(&self) -> bool {
        let count = |of: &[ThreadState]| self.workers.iter().filter(|worker| of.contains(&worker.state.get())).count();
        let slots = self.workers.iter().filter(|worker| worker.has_call_slot).count();
        let waiting = count(&[ThreadState::Waiting, ThreadState::Polling]);
        self.running == count(&[ThreadState::Running]) + waiting + slots
            && self.waiting == waiting
            && self.arriving == count(&[ThreadState::Arriving])
            && self.followers.len() == count(&[ThreadState::Following])
            && self.present == self.workers.len() - count(&[ThreadState::Absent, ThreadState::Exited])
    }

    fn next(&mut self, worker: usize, token: C::Token<'_>) -> Option<C::Work> {
        loop {
            let own = &mut self.workers[worker];
            if std::mem::take(&mut own.has_call_slot) {
                self.running -= 1;
            }
            if self.running < self.max_calls
                && let Some(work) = self.workers[worker].inbox.pop_front()
            {
                self.inbox_len -= 1;
                return Some(work);
            }
            self.distribute(worker);
            let may_call = self.running < self.max_calls;
            let work = self.source.next(token, may_call);
            self.steps += 1;
            if self.source.is_stale() {
                self.publish();
            }
            self.resume_waiters();
            match work.map(|work| (C::owner(&work), work)) {
                Some((Some(owner), work)) if owner != worker || !may_call => {
                    self.workers[owner].inbox.push_back(work);
                    self.inbox_len += 1;
                }
                Some((_, work)) => return Some(work),
                None if self.inbox_len == 0 => return None,
                None => {
                    self.distribute(worker);
                    return None;
                }
            }
        }
    }

    /// Notifies sleeping threads that have work in their inbox, before new calls use up the maximum number of calls.
    fn distribute(&mut self, worker: usize) {
        if self.inbox_len == 0 {
            return;
        }
        for other in 0..self.workers.len() {
            let has_pinned_work = !self.workers[other].inbox.is_empty() && !self.workers[other].has_call_slot;
            if has_pinned_work && other != worker && self.running < self.max_calls && self.notify(other) {
                self.workers[other].has_call_slot = true;
                self.running += 1;
            }
        }
    }

    /// Makes sure that another thread leads while the caller does not. Returns the number of a thread that has to be
    /// started for this, if there is one.
    fn ensure_leader(&mut self) -> Option<usize> {
        if self.poller.is_none() || self.arriving > 0 {
            return None;
        }
        match self.best_follower() {
            Some(worker) if self.source.bound(worker) == 0 || self.started == self.workers.len() => {
                self.handovers += 1;
                self.notify(worker);
                None
            }
            _ => self.reserve_thread(),
        }
    }

    /// Returns true if all threads are in calls, so that no thread except the caller leads or is about to lead.
    fn is_alone(&self) -> bool {
        self.poller.is_some() && self.arriving == 0 && self.present <= self.running
    }

    /// Returns true if one of the running calls is expected to return so soon that its thread can become the leader. A
    /// follower would otherwise have to be woken, and put to sleep again, for each call. Soon means before the next
    /// tick, or within [`SOON`] if no client can send a request meanwhile.
    fn returns_soon(&self) -> bool {
        let out = u32::try_from(self.predicted).unwrap_or(u32::MAX);
        if self.waiting > 0 || out == 0 {
            return false;
        }
        let time = self.predictor.mean_block / out;
        time < TICK || time <= SOON && self.all_clients_wait()
    }

    /// Returns true if no client can start a call without opening a connection: each connection waits for a call, or
    /// the maximum number of calls is running.
    fn all_clients_wait(&self) -> bool {
        self.running >= self.max_calls || self.source.connections() <= self.running
    }

    /// Returns a successor for this thread if the thread should follow: a suspended call is bound to it and would have
    /// to wait while it runs something else, and another thread can take its place. Notifies that thread, or returns
    /// the number of a thread to start.
    fn find_successor(&mut self, worker: usize) -> Option<Successor> {
        let own = &self.workers[worker];
        if self.source.bound(worker) == 0 || own.has_call_slot || !own.inbox.is_empty() {
            return None;
        }
        // Work for other threads may have waited until this thread's call ended.
        self.distribute(worker);
        let is_covered = self.arriving > 0 || self.poller.is_none() && !self.source.has_queued();
        if is_covered {
            return Some(Successor::Present);
        }
        if let Some(other) = self.best_follower().filter(|&other| self.source.bound(other) == 0) {
            self.handovers += 1;
            self.notify(other);
            return Some(Successor::Present);
        }
        self.reserve_thread().map(Successor::Start)
    }

    /// Keeps one thread free that runs no call, in addition to the caller, because a tick cannot start a thread.
    /// `is_idle`: the caller runs no call either. Returns the number of a thread to start, if necessary.
    fn keep_one_in_reserve(&mut self, is_idle: bool) -> Option<usize> {
        let free = self.present.saturating_sub(self.running + usize::from(is_idle));
        if free == 0 { self.reserve_thread() } else { None }
    }

    fn reserve_thread(&mut self) -> Option<usize> {
        if self.started == self.workers.len() {
            return None;
        }
        self.apply(self.started, ThreadEvent::Start, ThreadState::Arriving);
        self.started += 1;
        self.present += 1;
        self.arriving += 1;
        Some(self.started - 1)
    }

    /// Notifies a thread that follows or leads. Returns false if it does neither.
    fn notify(&mut self, worker: usize) -> bool {
        if self.workers[worker].state.get() == ThreadState::Leading {
            self.source.wake_poller();
            return true;
        }
        let Some(index) = self.followers.iter().rposition(|&other| other == worker) else { return false };
        self.followers.remove(index);
        self.apply(worker, ThreadEvent::Notify, ThreadState::Arriving);
        self.arriving += 1;
        self.to_signal.push(worker);
        true
    }

    fn resume_waiters(&mut self) {
        while let Some(worker) = self.source.woken() {
            self.workers[worker].woken = true;
            if self.workers[worker].state.get() == ThreadState::Polling {
                self.source.wake_poller();
            } else {
                self.to_signal.push(worker);
            }
        }
    }

    /// Returns the follower to notify next: the most recent one, whose caches are warm, but preferably one to which no
    /// suspended call is bound.
    fn best_follower(&self) -> Option<usize> {
        let free = self.followers.iter().rev().find(|&&worker| self.source.bound(worker) == 0);
        free.or(self.followers.last()).copied()
    }

    /// Wakes the leader, or the loop that hosts the engine, if there is something to do before its wait would end.
    fn wake_poller_if_earlier(&mut self) {
        if self.poller.is_some() && !self.is_hosted {
            return;
        }
        let due = self.source.due();
        if due.is_some_and(|due| self.poll_until.is_none_or(|until| due < until)) {
            self.poll_until = due;
            self.source.wake_poller();
        }
    }

    /// Takes the poller if no thread has it, and computes the maximum time to wait for it.
    fn take_poller(&mut self) -> Option<(C::Poller, Option<Duration>)> {
        self.poller.as_ref()?;
        self.is_return_overdue = false;
        self.source.before_wait(self.running == 0);
        self.take_poller_unprepared()
    }

    fn take_poller_unprepared(&mut self) -> Option<(C::Poller, Option<Duration>)> {
        let poller = self.poller.take()?;
        let due = self.source.due();
        self.poll_until = due;
        self.publish();
        Some((poller, due.map(|due| due.saturating_sub(self.source.now()))))
    }

    /// Returns true if all threads have exited and all counters are zero.
    #[cfg(all(test, loom))]
    pub(crate) fn is_at_rest(&self) -> bool {
        (self.present, self.running, self.predicted, self.waiting, self.arriving, self.inbox_len) == (0, 0, 0, 0, 0, 0)
            && self.followers.is_empty()
            && self.poller.is_some()
            && self.to_signal.is_empty()
            && self.workers.iter().all(Worker::is_gone)
    }

    #[cfg(all(test, loom))]
    pub(crate) fn predictor(&mut self) -> &mut BlockingPredictor {
        &mut self.predictor
    }
}
