//! Who does what: the rules of the baton, without threads, a lock or a clock of their own.
//!
//! [`Scheduler`](super::Scheduler) has real threads go by them, and the simulator has others. Whoever is to do something asks
//! [`decide`](Rules::decide) and does what it says; whatever takes time has a method for its beginning and one for its
//! end, and between the two the rules are free for others.

use super::WorkSource;
use super::predictor::{BlockingPredictor, Prediction, RouteKey};
use crate::coalescing::TICK;
use crate::scheduler::ticker::{Pace, Wanted};
use std::collections::VecDeque;
use std::time::Duration;

/// So many ticks come in the time of one where calls are known to wait, and nobody knows which.
const EAGER: u32 = 8;
/// Where so many calls are out that one returns within this time, and nobody else can ask for anything, that one takes the
/// baton up.
const SOON: Duration = Duration::from_millis(2);

/// See the module.
#[derive(Debug)]
pub struct Rules<C: WorkSource> {
    source: C,
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
    /// Those of them that were foreseen to wait.
    predicted: usize,
    /// Those of them that wait in the middle.
    waiting: usize,
    /// The most that may run.
    most: usize,
    /// Work in the workers' mail.
    mail: usize,
    predictor: BlockingPredictor,
    /// The kind of the call for which the baton was left lying, which nobody had foreseen to wait.
    left_for: Option<RouteKey>,
    /// Counts what is done, so that a tick sees whether anything was.
    steps: u64,
    steps_at_tick: u64,
    /// Since when nothing was, as far as ticks have seen.
    quiet_since: Duration,
    ticks: u32,
    /// A tick has found that nobody came back to take the baton up, and what has waited since is not done yet.
    is_late: bool,
    /// Threads to be signalled when the lock is open: whoever wakes earlier would find it closed.
    to_signal: Vec<usize>,
    /// Times that a thread was called.
    handovers: u64,
}

#[derive(Debug)]
struct Worker<W> {
    /// What only this one may run.
    mail: VecDeque<W>,
    /// It was called, and may run its mail: that counts as running already.
    may_run: bool,
    called: bool,
    woken: bool,
    is_watching: bool,
    /// What its last work has left to be done unlocked is done.
    is_tidy: bool,
}

/// What a thread is to do.
#[derive(Debug)]
pub enum Action<W> {
    /// Leave: all is over. [`exit`](Rules::exit) tells the others.
    Exit,
    /// What its last work has left to be done unlocked.
    Tidy,
    /// Stand by until it is [called](Rules::is_called), from [`stand_by`](Rules::stand_by) on. Another is to be started
    /// before, if there is a number.
    StandBy(Option<usize>),
    /// Run this, between [`begin`](Rules::begin) and [`end`](Rules::end).
    Run(W),
    /// Take the baton: [`before_lead`](Rules::before_lead), [`lead`](Rules::lead), [`release_watch`](Rules::release_watch).
    Lead,
}

/// Work that has begun.
#[derive(Debug)]
#[must_use]
pub struct StartedCall {
    predict: Prediction,
    /// A thread to be started.
    pub start: Option<usize>,
    /// Ticks that are needed from now on.
    pub ticks: Option<Pace>,
}

impl StartedCall {
    /// Whether [`Rules::end`] is to be told for how long it waited.
    pub fn is_measured(&self) -> bool {
        self.predict.is_measured
    }
}

/// What a thread that waits in the middle of a call is to do, and to ask again then.
#[derive(Debug)]
pub enum Waits<W> {
    /// Go on with its call.
    NoMore,
    /// Start a thread.
    Start(usize),
    /// Wait until it is [woken](Rules::is_woken).
    Sleep,
    /// Wait for the watch, for so long, and [put it down](Rules::release_watch): there is nobody else.
    Watch(W, Option<Duration>),
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
pub struct PoolStatistics {
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

impl<C: WorkSource> Rules<C> {
    /// For a crew in which at most `most` calls run at a time. Worker 0 has been started; with `most` of 1 it is alone.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn new(source: C, watch: C::Watch, most: usize) -> Self {
        assert!(most > 0, "somebody has to run calls");
        let size = if most == 1 { 1 } else { most + 1 };
        let worker = || Worker {
            mail: VecDeque::new(),
            may_run: false,
            called: false,
            woken: false,
            is_watching: false,
            is_tidy: true,
        };
        Self {
            source,
            watch: Some(watch),
            workers: (0..size).map(|_| worker()).collect(),
            standby: Vec::with_capacity(size),
            coming: 0,
            started: 1,
            watched_until: None,
            watches_alone: None,
            present: 1,
            running: 0,
            predicted: 0,
            waiting: 0,
            most,
            mail: 0,
            predictor: BlockingPredictor::new(),
            left_for: None,
            steps: 0,
            steps_at_tick: 0,
            quiet_since: Duration::ZERO,
            ticks: 0,
            is_late: false,
            to_signal: Vec::new(),
            handovers: 0,
        }
    }

    /// What is shared.
    pub fn source(&self) -> &C {
        &self.source
    }

    /// The same. Whoever has done something with it says so ([`step`](Self::step)).
    pub fn source_mut(&mut self) -> &mut C {
        &mut self.source
    }

    /// The core and the watch, while nobody waits for it.
    pub fn source_and_watch(&mut self) -> (&mut C, Option<&mut C::Watch>) {
        (&mut self.source, self.watch.as_mut())
    }

    /// How many threads there may be.
    pub fn thread_count(&self) -> usize {
        self.workers.len()
    }

    /// Calls that are out.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Work that waits for a certain thread.
    pub fn mail(&self) -> impl Iterator<Item = &C::Work> {
        self.workers.iter().flat_map(|worker| &worker.mail)
    }

    // ------------------------------------------------------------------------------------------------ a thread

    /// A thread that was started, or called, is there.
    pub fn arrive(&mut self) {
        self.coming -= 1;
    }

    /// What the thread `worker` is to do, which has nothing in its hands.
    pub fn decide(&mut self, worker: usize) -> Action<C::Work> {
        let is_tidy = std::mem::replace(&mut self.workers[worker].is_tidy, true);
        if self.source.is_over() && self.workers[worker].mail.is_empty() {
            return Action::Exit;
        }
        if !is_tidy && self.source.bound(worker) > 0 {
            return Action::Tidy;
        }
        match self.spare(worker) {
            Some(Successor::There) => return Action::StandBy(None),
            Some(Successor::Start(new)) => return Action::StandBy(Some(new)),
            None => {}
        }
        if let Some(work) = self.next(worker) {
            self.workers[worker].is_tidy = false;
            Action::Run(work)
        } else if self.watch.is_some() {
            Action::Lead
        } else if is_tidy {
            Action::StandBy(None)
        } else {
            Action::Tidy
        }
    }

    /// The thread leaves.
    pub fn exit(&mut self) {
        self.present -= 1;
        self.publish();
        for other in 0..self.workers.len() {
            self.call(other);
        }
        self.source.wake_watch();
    }

    /// The thread stands by from now on.
    pub fn stand_by(&mut self, worker: usize) {
        self.notify_watch();
        if self.source.is_over() {
            self.source.wake_watch();
        }
        self.workers[worker].called = false;
        self.standby.push(worker);
        self.publish();
    }

    /// Whether a thread that stands by was called.
    pub fn is_called(&self, worker: usize) -> bool {
        self.workers[worker].called
    }

    /// A thread could not be started after all. Returns the number of another to be started in its place.
    pub fn start_failed(&mut self) -> Option<usize> {
        self.present -= 1;
        self.coming -= 1;
        // Others may have counted on it.
        self.pass()
    }

    /// Threads that were called or woken, to be told as soon as others can come here.
    pub fn take_signals(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.to_signal)
    }

    // ---------------------------------------------------------------------------------------------------- calls

    /// The work begins.
    pub fn begin(&mut self, work: &C::Work) -> StartedCall {
        self.running += 1;
        let route_key = C::route_key(work);
        let mut predict = self.predictor.predict(route_key);
        // Who is alone has nobody to call.
        predict.is_measured &= self.most > 1;
        let mut called = None;
        if predict.waits {
            self.predicted += 1;
            self.left_for = None;
            if self.is_late || !self.returns_soon() {
                called = self.pass();
            }
        } else {
            self.left_for = route_key;
        }
        let start = called.or_else(|| self.keep_one_in_reserve(false));
        let ticks = if self.watch.is_none() || self.coming > 0 {
            // Somebody is there or on his way already, so no tick has to call one.
            None
        } else if predict.waits && self.all_are_served() {
            Some(Pace::Steady)
        } else {
            Some(Pace::Quick)
        };
        StartedCall { predict, start, ticks }
    }

    /// It is over, and has waited for so long, if that was measured.
    pub fn end(&mut self, started_call: &StartedCall, waited: Option<Duration>) {
        self.running -= 1;
        self.predicted -= usize::from(started_call.predict.waits);
        self.step();
        if let Some(waited) = waited {
            self.predictor.learn(&started_call.predict, waited);
        }
    }

    /// The thread begins to wait in the middle of a call, and says by `begin` what for; [`WorkSource::woken`] tells when that
    /// is over.
    pub fn begin_wait(&mut self, worker: usize, begin: impl FnOnce(&mut C)) {
        self.waiting += 1;
        self.workers[worker].woken = false;
        begin(&mut self.source);
        self.deliver_wakes();
    }

    /// What it does then. Others go on meanwhile; where there are none, as in a crew of one, it turns the core itself,
    /// without beginning new calls.
    pub fn wait(&mut self, worker: usize) -> Waits<C::Watch> {
        while !self.workers[worker].woken {
            self.notify_watch();
            if let Some(new) = self.pass() {
                return Waits::Start(new);
            }
            if !self.is_alone() {
                return Waits::Sleep;
            }
            if let Some(work) = self.source.next(false) {
                self.workers[C::owner(&work).unwrap_or(worker)].mail.push_back(work);
                self.mail += 1;
                self.deliver_wakes();
                continue;
            }
            self.deliver_wakes();
            let Self { source, watch, .. } = self;
            if self.workers[worker].woken || watch.as_mut().is_some_and(|watch| source.look(watch)) {
                continue;
            }
            let Some((watch, timeout)) = self.take_watch() else { unreachable!("who is alone has the scheduler") };
            self.watches_alone = Some(worker);
            return Waits::Watch(watch, timeout);
        }
        self.waiting -= 1;
        Waits::NoMore
    }

    /// Whether what it waits for in the middle of a call is the case.
    pub fn is_woken(&self, worker: usize) -> bool {
        self.workers[worker].woken
    }

    // ------------------------------------------------------------------------------------------------- the baton

    /// The thread is about to take the baton. Work that is there already is done without letting go of anything but the
    /// lock. Otherwise there may be a thread to be started before it waits.
    pub fn before_lead(&mut self) -> (bool, Option<usize>) {
        let Self { source, watch, .. } = self;
        let is_ready = watch.as_mut().is_some_and(|watch| source.look(watch)) || source.due() == Some(Duration::ZERO);
        let start = if is_ready { None } else { self.keep_one_in_reserve(true) };
        (is_ready, start)
    }

    /// The thread takes the baton if it lies there: what to wait for, and how long. Others may have done something since
    /// it was told to, and then there is something else to do.
    pub fn lead(&mut self, worker: usize) -> Option<(C::Watch, Option<Duration>)> {
        let has_mail = !self.workers[worker].mail.is_empty();
        // With mail that it may not run yet, it stays to the very end.
        let is_called = if has_mail { self.running < self.most } else { self.source.is_over() };
        if is_called || self.source.due() == Some(Duration::ZERO) {
            return None;
        }
        let taken = self.take_watch()?;
        self.workers[worker].is_watching = true;
        Some(taken)
    }

    /// Whoever was called takes the baton at once, and nobody before the next event. It does without the interpreter,
    /// which the call that waits from now on may need for a moment more.
    pub fn lead_at_once(&mut self, worker: usize) -> Option<(C::Watch, Option<Duration>)> {
        let may_call = self.running < self.most;
        if !self.workers[worker].mail.is_empty() || self.source.has_queued() && may_call {
            return None;
        }
        self.lead(worker)
    }

    /// The thread has waited for the watch.
    pub fn release_watch(&mut self, worker: usize, watch: C::Watch) {
        self.workers[worker].is_watching = false;
        self.watches_alone.take_if(|alone| *alone == worker);
        self.watch = Some(watch);
    }

    /// Takes in what the watch has seen.
    pub fn look(&mut self) -> bool {
        let Self { source, watch, .. } = self;
        watch.as_mut().is_some_and(|watch| source.look(watch))
    }

    /// A tick has passed. If the baton lies there and nothing was done since the tick before, somebody is called to take
    /// it. Where nobody can, or whoever holds it waits for the interpreter, the core looks after those who wait, as far
    /// as that can be done here. Returns when the next tick is needed.
    ///
    /// Where calls wait of which nobody knows, ticks are [`EAGER`]. Where one of many calls returns soon, they are only for
    /// the case that none does, and rare where nobody can ask for anything meanwhile; what has waited for it is then done
    /// without waiting for returns again.
    pub fn tick(&mut self) -> Wanted {
        self.ticks = self.ticks.wrapping_add(1);
        let returns_soon = self.returns_soon();
        let is_slack = returns_soon && self.all_are_served();
        let is_eager = !returns_soon && self.most > 1 && self.predictor.looks_often();
        let parts = if is_eager { EAGER } else { 1 };
        if self.ticks.is_multiple_of(parts) && self.source.has_deferred_output() {
            self.source.tick();
        }
        let holds = self.source.has_deferred_output();
        let is_lying = self.most > 1 && self.running > 0 && self.watch.is_some() && self.coming == 0;
        if is_lying {
            self.call_if_quiet(if is_slack { SOON } else { Duration::ZERO });
        }
        self.steps_at_tick = self.steps;
        let Self { source, watch, .. } = self;
        if source.service_pending(watch.as_mut()) {
            source.wake_watch();
        }
        self.publish();
        if !holds && !is_lying {
            Wanted::No
        } else if is_slack && !holds {
            Wanted::Steadily
        } else {
            Wanted::Soon(TICK / parts)
        }
    }

    fn call_if_quiet(&mut self, patience: Duration) {
        if self.steps != self.steps_at_tick {
            self.quiet_since = self.source.now();
            return;
        }
        let is_quiet = patience.is_zero() || self.source.now().saturating_sub(self.quiet_since) >= patience;
        if is_quiet && let Some(worker) = self.best_standby() {
            self.handovers += 1;
            self.is_late = true;
            self.predictor.suspect(self.left_for.take());
            self.call(worker);
        }
    }

    /// Something was done with the core: tells those whom it concerns.
    pub fn step(&mut self) {
        self.steps += 1;
        self.deliver_wakes();
        self.notify_watch();
    }

    /// How many threads do what.
    pub fn pool_statistics(&self) -> PoolStatistics {
        PoolStatistics {
            threads: self.present,
            idle: self.standby.len() + usize::from(self.watch.is_none()),
            running: self.running,
            most: self.most,
            handovers: self.handovers,
        }
    }

    /// Tells others how things are: before a thread waits, with each tick, and now and then between.
    pub fn publish(&mut self) {
        let pool_statistics = self.pool_statistics();
        self.source.publish(&pool_statistics);
    }

    // --------------------------------------------------------------------------------------------------- beneath

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
            let work = self.source.next(may_call);
            self.steps += 1;
            if self.source.is_stale() {
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

    /// Sees to it that somebody turns the core while the caller does not. Returns the number of a thread to be started
    /// for it.
    fn pass(&mut self) -> Option<usize> {
        if self.watch.is_none() || self.coming > 0 {
            return None;
        }
        match self.best_standby() {
            Some(worker) if self.source.bound(worker) == 0 || self.started == self.workers.len() => {
                self.handovers += 1;
                self.call(worker);
                None
            }
            _ => self.recruit(),
        }
    }

    /// Whether nobody turns the core, or is about to, unless the caller does: all threads are in calls.
    fn is_alone(&self) -> bool {
        self.watch.is_some() && self.coming == 0 && self.present <= self.running
    }

    /// Whether nobody need be called for the baton, because one of the calls that are out is over soon: its thread takes
    /// the baton up, while one that was called would have to be woken for it, and put to sleep again, for each call. Soon
    /// is before a tick would come, and a little later where nobody can ask for anything meanwhile.
    fn returns_soon(&self) -> bool {
        let out = u32::try_from(self.predicted).unwrap_or(u32::MAX);
        if self.waiting > 0 || out == 0 {
            return false;
        }
        let time = self.predictor.wait / out;
        time < TICK || time <= SOON && self.all_are_served()
    }

    /// Whether nobody but a newcomer can ask for anything: all connections wait for their calls, or no further call may
    /// begin anyway.
    fn all_are_served(&self) -> bool {
        self.running >= self.most || self.source.connections() <= self.running
    }

    /// Whether this thread had better stand by, because work is bound to it that would have to wait while it runs
    /// something else, and another can go on in its place: that one is called, or to be started.
    fn spare(&mut self, worker: usize) -> Option<Successor> {
        let own = &self.workers[worker];
        if self.source.bound(worker) == 0 || own.may_run || !own.mail.is_empty() {
            return None;
        }
        // Work of others may have waited for this thread's call to be over.
        self.distribute(worker);
        let is_covered = self.coming > 0 || self.watch.is_none() && !self.source.has_queued();
        if is_covered {
            return Some(Successor::There);
        }
        if let Some(other) = self.best_standby().filter(|&other| self.source.bound(other) == 0) {
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
            self.source.wake_watch();
            return true;
        }
        let Some(place) = self.standby.iter().rposition(|&other| other == worker) else { return false };
        self.standby.remove(place);
        self.coming += 1;
        self.workers[worker].called = true;
        self.to_signal.push(worker);
        true
    }

    fn deliver_wakes(&mut self) {
        while let Some(worker) = self.source.woken() {
            self.workers[worker].woken = true;
            if self.watches_alone == Some(worker) {
                self.source.wake_watch();
            } else {
                self.to_signal.push(worker);
            }
        }
    }

    /// The thread to be called next: the last that came, for it is still warm, but rather one that nothing waits for.
    fn best_standby(&self) -> Option<usize> {
        let free = self.standby.iter().rev().find(|&&worker| self.source.bound(worker) == 0);
        free.or(self.standby.last()).copied()
    }

    /// Ends the wait for the watch if there will be something to do earlier than whoever waits for it knows.
    fn notify_watch(&mut self) {
        if self.watch.is_some() {
            return;
        }
        let due = self.source.due();
        if due.is_some_and(|due| self.watched_until.is_none_or(|until| due < until)) {
            self.watched_until = due;
            self.source.wake_watch();
        }
    }

    /// Takes the baton up, if it lies there: the watch, and how long to wait for it.
    fn take_watch(&mut self) -> Option<(C::Watch, Option<Duration>)> {
        let watch = self.watch.take()?;
        self.is_late = false;
        self.source.before_watch(self.running == 0);
        let due = self.source.due();
        self.watched_until = due;
        self.publish();
        Some((watch, due.map(|due| due.saturating_sub(self.source.now()))))
    }

    /// Whether nothing is left over of what was done.
    #[cfg(all(test, loom))]
    pub(super) fn is_at_rest(&self) -> bool {
        let is_idle = |worker: &Worker<C::Work>| worker.mail.is_empty() && !worker.may_run && !worker.is_watching;
        (self.present, self.running, self.predicted, self.waiting, self.coming, self.mail) == (0, 0, 0, 0, 0, 0)
            && self.standby.is_empty()
            && self.watch.is_some()
            && self.to_signal.is_empty()
            && self.workers.iter().all(is_idle)
    }

    #[cfg(all(test, loom))]
    pub(super) fn predictor(&mut self) -> &mut BlockingPredictor {
        &mut self.predictor
    }
}
