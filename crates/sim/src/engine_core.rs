//! The work source that the simulated threads share: the engine, with the records as its application.

use crate::app::{Late, Record, Records, SuspendedCall};
use crate::clock::{Event, IdlePolls, MILLI, Micros, SECOND, SLACK, Shared, micros};
use crate::deadlines::{Deadlines, RunningCall};
use crate::frames::Simulated;
use crate::net::{Network, Side};
use crate::plan::{Host, Plan};
use engine::{CallId, Engine, Expired, Now, Work};
use scheduler::{RouteKey, SLOW_TICK, WorkSource};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// If no thread polls the engine for this long after a missed deadline, queued requests are refused.
const BLOCKED_AFTER: Duration = Duration::from_secs(2);
/// The time within which a missed deadline must be noticed: a slow tick that follows another one too soon checks
/// nothing.
const NOTICED_AFTER: Micros = SLACK + 100 * MILLI;
/// The lateness after which a call is not expected to return.
const WRITE_OFF_AFTER: Micros = 10 * SECOND;
/// The number of different route keys.
const ROUTE_KEYS: usize = 3;

pub(crate) struct EngineCore<P: Simulated> {
    pub(crate) engine: Engine<Records<P>>,
    pub(crate) records: Records<P>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) deadlines: Deadlines,
    /// For each thread, the number of suspended responses that are bound to it.
    bound: Vec<usize>,
    /// For each thread, true while it waits within a call.
    waiting: Vec<bool>,
    /// The time when pending connections were last serviced.
    serviced_at: Duration,
    idle_polls: IdlePolls,
}

impl<P: Simulated> EngineCore<P> {
    pub(crate) fn new(shared: &Rc<Shared>, plan: &Rc<Plan>, network: &Rc<RefCell<Network>>) -> Self {
        let listeners = (0..plan.listeners).map(|_| crate::net::Listening::new(network)).collect();
        let now = shared.engine_now(plan.grain);
        let engine = Engine::new(Side(Rc::clone(network)), listeners, plan.config.clone(), now)
            .expect("the network accepts its own listeners");
        let threads = plan.most_calls + 1;
        Self {
            engine,
            records: Records::new(Rc::clone(shared), Rc::clone(plan), Rc::clone(network)),
            shared: Rc::clone(shared),
            plan: Rc::clone(plan),
            network: Rc::clone(network),
            deadlines: Deadlines::default(),
            bound: vec![0; threads],
            waiting: vec![false; threads],
            serviced_at: Duration::ZERO,
            idle_polls: IdlePolls::default(),
        }
    }

    pub(crate) fn clock(&self) -> Now {
        self.shared.engine_now(self.plan.grain)
    }

    /// Counts a suspended response that is bound to this thread.
    pub(crate) fn bind(&mut self, worker: usize) {
        self.bound[worker] += 1;
    }

    /// Records whether the thread waits within a call.
    pub(crate) fn set_waiting(&mut self, worker: usize, waits: bool) {
        self.waiting[worker] = waits;
    }

    /// Wakes a waiting thread as a third party would, not because of its peer.
    pub(crate) fn interrupt(&mut self, worker: usize) {
        self.records.woken.push(worker);
    }

    /// Removes and returns the requests that have become ready. Their clients may lose patience from now on.
    pub(crate) fn note_ready(&mut self) -> Vec<usize> {
        let ready = std::mem::take(&mut self.records.ready);
        for &id in &ready {
            self.shared.schedule(self.shared.now(), Event::PatienceEnds(id));
        }
        ready
    }

    /// Runs `act` as the ticker thread, which must not drop objects of the application.
    pub(crate) fn in_tick<R>(&mut self, act: impl FnOnce(&mut Self) -> R) -> R {
        let ledger = Arc::clone(&self.records.ledger);
        ledger.is_ticking.store(true, Ordering::Relaxed);
        let result = act(self);
        ledger.is_ticking.store(false, Ordering::Relaxed);
        result
    }
}

impl<P: Simulated> EngineCore<P> {
    /// Records the deadline of a call of the application, if it has one.
    pub(crate) fn begin_deadline(&mut self, id: usize, call: CallId, limit: Option<Micros>) {
        let since = Some(micros(self.clock().monotonic));
        if let Some(limit) = limit {
            let timed = RunningCall { id, call, limit, spent: 0, since, late_at: None, is_written_off: false };
            self.deadlines.calls.push(timed);
        }
    }

    /// Pauses the time of a call.
    pub(crate) fn pause_deadline(&mut self, id: usize) {
        let now = micros(self.clock().monotonic);
        if let Some(call) = self.deadlines.call(id)
            && let Some(since) = call.since.take()
        {
            call.spent += now - since;
        }
    }

    /// Resumes the time of a call.
    pub(crate) fn resume_deadline(&mut self, id: usize) {
        let now = micros(self.clock().monotonic);
        if let Some(call) = self.deadlines.call(id) {
            call.since.get_or_insert(now);
        }
    }

    /// Answers the clients of calls that have missed their deadlines. Returns true if there were any.
    pub(crate) fn expire_calls(&mut self, now: Now) -> bool {
        let at = micros(now.monotonic);
        let due: Vec<_> =
            self.deadlines.calls.iter().filter_map(|call| Some((call.id, call.call, call.due()?))).collect();
        let mut has_expired = false;
        for (id, call, due) in due.into_iter().filter(|(_, _, due)| *due <= at) {
            if at > due + NOTICED_AFTER {
                self.shared.fail(|| format!("the deadline of request {id} is noticed {} us late", at - due));
            }
            let outcome = self.in_tick(|engine_core| engine_core.engine.expire(call, now));
            self.note_late(id, outcome);
            has_expired = true;
        }
        if has_expired {
            self.deadlines.expired_at = Some((now.monotonic, self.engine.polls()));
        }
        self.write_off_calls(at);
        has_expired
    }

    fn note_late(&mut self, id: usize, outcome: Expired) {
        let at = self.shared.now();
        self.shared.trace(|| format!("request {id} has missed its deadline: {outcome:?}"));
        let connection = self.records.requests[id].connection.unwrap_or_default();
        let has_left = self.network.borrow().has_left_or_was_cut(connection);
        let may_be_reset =
            P::MULTIPLEXED && (self.network.borrow().resets.contains_key(&id) || self.engine.statistics().timeouts > 0);
        let request = &self.plan.requests[id];
        // A client that has the whole response may give up the rest of its upload: it resets the stream.
        let may_give_up = self.plan.is_http2 && request.body > 0 && request.script.declared.is_some();
        if outcome == Expired::Left && !(has_left || may_be_reset || may_give_up) {
            self.shared.fail(|| format!("the client of request {id} is reported as gone"));
        }
        if self.records.requests[id].late.replace(Late { at, outcome }).is_some() {
            self.shared.fail(|| format!("request {id} misses its deadline twice"));
        }
        if let Some(call) = self.deadlines.call(id) {
            call.late_at = Some(at);
        }
        self.deadlines.fresh.push(id);
    }

    /// Lets the server stop without waiting for calls that hang.
    fn write_off_calls(&mut self, now: Micros) {
        for call in &mut self.deadlines.calls {
            let is_stuck = call.late_at.is_some_and(|at| now >= at + WRITE_OFF_AFTER);
            if is_stuck && !std::mem::replace(&mut call.is_written_off, true) {
                self.engine.write_off(call.call);
            }
        }
    }

    /// Refuses queued requests if a late call keeps all threads from polling the engine.
    pub(crate) fn refuse_if_blocked(&mut self, now: Now) {
        let Some((at, polls)) = self.deadlines.expired_at else { return };
        if self.engine.polls() != polls {
            self.deadlines.expired_at = None;
            return;
        }
        if now.monotonic < at + BLOCKED_AFTER || self.engine.is_stopped() {
            return;
        }
        if self.plan.most_calls > 1 {
            self.shared.fail(|| "no thread polls the engine after a call has missed its deadline".to_owned());
        }
        let before = self.engine.statistics().refused;
        self.in_tick(|engine_core| engine_core.engine.refuse_waiting(now));
        let count = self.engine.statistics().refused - before;
        if count > 0 {
            self.shared.trace(|| format!("{count} waiting requests are refused"));
            self.deadlines.refused_at.push(self.shared.now());
            // The next poll reports which requests these are.
            let waits = |record: &&mut Record| record.begun.is_some() && record.called.is_none();
            self.records.requests.iter_mut().filter(waits).for_each(|record| record.may_be_refused = true);
            self.deadlines.refused_waiting += count;
        }
        if self.engine.statistics().queued > 0 {
            self.check_left_waiting();
        }
    }

    /// Checks that each request that still waits follows a response that could not be sent completely, or that its
    /// client has left.
    fn check_left_waiting(&self) {
        let network = self.network.borrow();
        let waits = |record: &Record| record.was_queued && record.called.is_none() && record.dismissed.is_none();
        let waiting = self.records.requests.iter().filter(|record| waits(record)).count();
        let is_unsent =
            |&number: &usize| network.history(number).full_since.is_some() || network.has_left_or_was_cut(number);
        let unsent = (0..network.connected()).filter(is_unsent).count();
        let queued = self.engine.statistics().queued;
        let unsent = if P::MULTIPLEXED { unsent * self.plan.requests.len() } else { unsent };
        if queued > unsent as u64 {
            self.shared.fail(|| format!("{queued} of {waiting} requests wait although no thread polls the engine"));
        }
    }

    /// Returns true if the engine refused queued requests between `from` and `to`, because no thread polled it.
    pub(crate) fn has_refused_waiting(&self, from: Micros, to: Micros) -> bool {
        self.deadlines.refused_at.iter().any(|&at| from <= at && at <= to)
    }
}

impl<P: Simulated> WorkSource for EngineCore<P> {
    type Work = Work<Records<P>>;
    type Poller = ();
    type Token<'a> = ();

    fn next(&mut self, (): (), may_call: bool) -> Option<Work<Records<P>>> {
        // Simulates another thread that polls during a round of the engine.
        if self.plan.host == Host::Threads && self.shared.one_in(8) {
            let is_woken = self.network.borrow().is_woken();
            self.poll(&mut ());
            // A wake-up is meant for the thread that waits for the poller, so it is repeated.
            if is_woken {
                self.network.borrow_mut().wake();
            }
        }
        let now = self.clock();
        self.note_ready();
        let work = self.engine.poll(now, &mut self.records, may_call);
        let called = if let Some(Work::Call(_, asked)) = &work { Some(asked.id) } else { None };
        if let Some(id) = called
            && !may_call
        {
            self.shared.fail(|| format!("request {id} is to be called although no call may begin"));
        }
        if let Some(Work::Resume(_, SuspendedCall { job, .. }) | Work::Abandon(SuspendedCall { job, .. })) = &work {
            self.bound[job.worker] -= 1;
        }
        for id in self.note_ready() {
            if called != Some(id) {
                self.records.requests[id].was_queued = true;
            }
        }
        self.idle_polls.note(&self.shared, work.is_some());
        work
    }

    fn owner(work: &Work<Records<P>>) -> Option<usize> {
        match work {
            Work::Call(..) => None,
            Work::Resume(_, SuspendedCall { job, .. }) | Work::Abandon(SuspendedCall { job, .. }) => Some(job.worker),
        }
    }

    fn route_key(work: &Work<Records<P>>) -> Option<RouteKey> {
        match work {
            Work::Call(_, asked) => Some(RouteKey::of((asked.id % ROUTE_KEYS) as u64)),
            Work::Resume(..) | Work::Abandon(_) => None,
        }
    }

    fn has_queued(&self) -> bool {
        self.engine.has_queued()
    }

    fn connections(&self) -> usize {
        self.engine.connections()
    }

    fn bound(&self, worker: usize) -> usize {
        self.bound[worker]
    }

    fn poll(&mut self, (): &mut ()) -> bool {
        let mut ready = Vec::new();
        self.network.borrow_mut().poll(&mut ready);
        let is_ready = !ready.is_empty();
        self.engine.notice(&mut ready);
        is_ready
    }

    fn due(&self) -> Option<Duration> {
        let wakes_calls = self.plan.host == Host::EventLoop && !self.records.woken.is_empty();
        if wakes_calls { Some(Duration::ZERO) } else { self.engine.due() }
    }

    fn now(&self) -> Duration {
        self.clock().monotonic
    }

    fn wake_poller(&self) {
        self.network.borrow_mut().wake();
    }

    fn before_wait(&mut self, is_free: bool) {
        self.engine.before_wait(is_free);
    }

    fn woken(&mut self) -> Option<usize> {
        if self.plan.host == Host::EventLoop {
            return None;
        }
        let worker = self.records.woken.pop()?;
        if !self.waiting[worker] {
            self.shared.fail(|| format!("thread {worker} is woken although it does not wait"));
        }
        Some(worker)
    }

    fn has_deferred_output(&self) -> bool {
        self.engine.has_deferred_output()
    }

    fn tick(&mut self) {
        self.in_tick(|engine_core| engine_core.engine.tick());
    }

    fn service_pending(&mut self, _: Option<&mut ()>) -> bool {
        let now = self.clock();
        if !self.plan.is_serviced() || now.monotonic < self.serviced_at + SLOW_TICK * 9 / 10 {
            return false;
        }
        self.serviced_at = now.monotonic;
        let has_expired = self.expire_calls(now);
        self.refuse_if_blocked(now);
        if self.plan.config.health_path.is_empty() {
            return has_expired;
        }
        let has_more = self.in_tick(|engine_core| engine_core.engine.service_pending(now, false));
        if has_more {
            self.shared.trace(|| "pending connections were serviced".to_owned());
        }
        has_more || has_expired
    }

    fn is_over(&self) -> bool {
        self.engine.is_stopped()
    }
}
