//! Threads that follow the rules of leader/followers ([`scheduler::Rules`]) in virtual time.
//!
//! A thread that holds the lock takes no time. The application takes as long as its script says. So the seed, not an
//! operating system, decides which thread runs next. The lock and its condition variables are not simulated: loom tries
//! every interleaving of them.

use crate::app::{CallEnd, Job, QueuedRequest, Records, SuspendedCall};
use crate::check::Checker;
use crate::clock::{Event, Micros, micros};
use crate::engine_core::EngineCore;
use crate::frames::Simulated;
use crate::threads::{Activity, State, Step, Worker};
use crate::world::World;
use engine::Work;
use scheduler::{Action, Pace, SLOW_TICK, STEADY_TICK, TICK, WaitStep, Wanted};
use std::time::Duration;

/// The driver of a world with threads, which runs its calls.
pub(crate) struct ThreadDriver<'a, P: Simulated> {
    pub(crate) world: &'a mut World<P>,
}

impl<P: Simulated> ThreadDriver<'_, P> {
    pub(super) fn check(&self) -> Checker<'_, P> {
        Checker { world: self.world }
    }

    // ----------------------------------------------------------------------------------------------------- threads

    /// Runs the first thread.
    pub(crate) fn begin_work(&mut self) {
        self.work(0);
    }

    /// Processes the event of a thread, if `round` is the current number.
    pub(crate) fn resume_worker(&mut self, worker: usize, round: u64) {
        if self.world.threads.workers[worker].round != round {
            return;
        }
        match std::mem::replace(&mut self.world.threads.workers[worker].state, State::Absent) {
            State::Starting => {
                self.world.rules.arrive(worker);
                self.work(worker);
            }
            State::Notified => {
                self.world.rules.arrive(worker);
                match self.world.rules.lead_at_once(worker) {
                    Some(((), timeout)) => self.poll_as_leader(worker, timeout, true),
                    None => self.wake_soon(worker, State::TakingGil),
                }
            }
            State::Polling { at_once } => {
                self.world.threads.polling_thread = None;
                self.world.rules.return_poller(worker, ());
                if at_once {
                    return self.wake_soon(worker, State::TakingGil);
                }
                self.world.rules.poll();
                self.work(worker);
            }
            State::TakingGil => self.work(worker),
            State::InCall(job, activity) => self.resume_call(worker, job, activity),
            State::Completing => {
                self.end_run(worker);
                self.work(worker);
            }
            state @ (State::Absent | State::Following | State::Exited) => {
                self.world.threads.workers[worker].state = state;
            }
        }
    }

    /// Makes a thread without work decide on its next action, and perform it.
    fn work(&mut self, worker: usize) {
        while !self.world.shared.has_failed() {
            let action = self.world.rules.decide(worker, ());
            self.after_change();
            match action {
                Action::Run(work) => {
                    if !self.run_work(worker, work) {
                        return;
                    }
                }
                Action::Lead => {
                    let (is_ready, start) = self.world.rules.before_lead();
                    self.start(start);
                    if !is_ready && let Some(((), timeout)) = self.world.rules.lead(worker) {
                        return self.poll_as_leader(worker, timeout, false);
                    }
                }
                Action::Follow(start) => {
                    self.world.rules.follow(worker);
                    self.world.threads.workers[worker].state = State::Following;
                    self.after_change();
                    return self.start(start);
                }
                // This takes no time, and there is nothing to release here.
                Action::CleanUp => {}
                Action::Exit => {
                    self.world.threads.workers[worker].state = State::Exited;
                    self.world.rules.exit(worker);
                    return self.after_change();
                }
            }
        }
    }

    fn poll_as_leader(&mut self, worker: usize, timeout: Option<Duration>, at_once: bool) {
        self.world.threads.workers[worker].state = State::Polling { at_once };
        self.wait_for_poller(worker, timeout, Micros::MAX);
    }

    fn wait_for_poller(&mut self, worker: usize, timeout: Option<Duration>, at_most: Micros) {
        self.world.threads.polling_thread = Some(worker);
        self.world.threads.is_wake_scheduled = false;
        let until = timeout.map_or(Micros::MAX, |timeout| self.world.shared.now().saturating_add(micros(timeout)));
        self.schedule_worker(worker, until.min(at_most));
        self.after_change();
    }

    /// Ends the wait for the poller if an event is ready.
    pub(crate) fn wake_polling_thread(&mut self) {
        let Some(worker) = self.world.threads.polling_thread else { return };
        if self.world.network.borrow().is_ready() && !std::mem::replace(&mut self.world.threads.is_wake_scheduled, true)
        {
            let at = self.world.shared.now() + self.world.shared.below(20);
            self.schedule_worker(worker, at);
        }
    }

    fn start(&mut self, worker: Option<usize>) {
        if let Some(worker) = worker {
            self.wake_soon(worker, State::Starting);
        }
    }

    fn wake_soon(&mut self, worker: usize, state: State) {
        self.world.threads.workers[worker].state = state;
        let at = self.world.shared.now() + self.world.shared.below(self.world.plan.wake_time) + 1;
        self.schedule_worker(worker, at);
    }

    pub(crate) fn schedule_worker(&mut self, worker: usize, at: Micros) {
        let round = &mut self.world.threads.workers[worker].round;
        *round += 1;
        if at != Micros::MAX {
            self.world.shared.schedule(at, Event::Worker(worker, *round));
        }
    }

    /// Wakes threads that were notified or whose wait has ended, requests ticks if necessary, and checks the world.
    pub(crate) fn after_change(&mut self) {
        for worker in self.world.rules.take_signals() {
            match &self.world.threads.workers[worker].state {
                State::Following if self.world.rules.is_notified(worker) => self.wake_soon(worker, State::Notified),
                State::InCall(job, Activity::WaitsForInput | Activity::WaitsForOutput)
                    if self.world.rules.is_woken(worker) =>
                {
                    let id = job.id;
                    self.world.shared.trace(|| format!("thread {worker} is woken for request {id}"));
                    let at = self.world.shared.now() + self.world.shared.below(self.world.plan.wake_time) + 1;
                    self.schedule_worker(worker, at);
                }
                _ => {}
            }
        }
        if self.world.engine().has_deferred_output() {
            self.want_ticks(Pace::Quick);
        } else if self.needs_service() {
            self.want_ticks(Pace::Slow);
        }
        self.check().check_step();
    }

    /// Tells the rules that the engine has changed. Must be called after each change.
    pub(crate) fn after_step(&mut self) {
        self.world.rules.step();
        self.world.rules.source_mut().note_ready();
        self.after_change();
    }

    // ------------------------------------------------------------------------------------------------------- ticks

    fn needs_service(&self) -> bool {
        self.world.rules.running() > 0 && self.world.plan.is_serviced()
    }

    /// Makes sure that ticks happen at this pace or a faster one.
    fn want_ticks(&mut self, pace: Pace) {
        if self.world.threads.pace > pace {
            self.world.threads.pace = pace;
            let at = self.world.shared.now() + self.world.shared.below(self.world.plan.wake_time) + 1;
            self.schedule_tick(at);
        }
    }

    fn schedule_tick(&mut self, at: Micros) {
        self.world.threads.tick_round += 1;
        self.world.shared.schedule(at, Event::Tick(self.world.threads.tick_round));
    }

    /// Processes a tick, if `round` is the current number.
    pub(crate) fn tick(&mut self, round: u64) {
        if self.world.threads.tick_round != round {
            return;
        }
        let wanted = self.world.rules.tick();
        self.interrupt_late_calls();
        let (pace, period) = match wanted {
            Wanted::Soon(period) => (Pace::Quick, Some(period)),
            // The ticker does not always slow down immediately.
            _ if self.world.threads.pace == Pace::Quick && self.world.shared.one_in(2) => (Pace::Quick, Some(TICK)),
            Wanted::Steadily => (Pace::Steady, Some(STEADY_TICK)),
            Wanted::Slowly => (Pace::Slow, Some(SLOW_TICK)),
            Wanted::No if self.needs_service() => (Pace::Slow, Some(SLOW_TICK)),
            Wanted::No => (Pace::Asleep, None),
        };
        self.world.threads.pace = pace;
        if let Some(period) = period {
            self.schedule_tick(self.world.shared.now() + micros(period));
        }
        self.after_change();
    }

    // ------------------------------------------------------------------------------------------------------- calls

    /// Runs work. Returns true if it is already complete.
    fn run_work(&mut self, worker: usize, work: Work<Records<P>>) -> bool {
        let started_call = self.world.rules.begin(worker, &work);
        self.world.threads.calls += 1;
        if self.world.rules.running() > self.world.plan.most_calls {
            self.world.shared.fail(|| "more calls run than allowed".to_owned());
        }
        self.after_change();
        self.start(started_call.start);
        if let Some(pace) = started_call.ticks
            && self.world.plan.most_calls > 1
        {
            self.want_ticks(pace);
        }
        self.world.threads.workers[worker].started_call = Some(started_call);
        self.world.threads.workers[worker].blocked = 0;
        let job = match work {
            Work::Call(ticket, QueuedRequest { id, returnable }) => {
                let connection = self.world.records().requests[id].connection.unwrap_or_default();
                let left_at = self.world.network.borrow().left_at(connection);
                self.world.shared.trace(|| format!("thread {worker} calls request {id}"));
                self.world.records_mut().call(QueuedRequest { id, returnable }, left_at);
                let limit = self.world.plan.requests[id].deadline;
                self.world.rules.source_mut().begin_deadline(id, ticket.call(), limit);
                Job { id, connection, worker, ticket: Some(ticket), at: 0, written: 0, read: 0 }
            }
            Work::Resume(ticket, SuspendedCall { job, returnable }) => {
                returnable.give_back();
                self.world.records_mut().requests[job.id].is_suspended = false;
                self.world.shared.trace(|| format!("thread {worker} resumes request {}", job.id));
                self.world.rules.source_mut().resume_deadline(job.id);
                Job { ticket: Some(ticket), ..job }
            }
            Work::Abandon(SuspendedCall { job, returnable }) => {
                returnable.give_back();
                self.world.shared.trace(|| format!("thread {worker} abandons request {}", job.id));
                self.end(job.id, CallEnd::Abandoned);
                return self.finish(worker);
            }
        };
        if job.worker != worker {
            self.world.shared.fail(|| format!("thread {worker} runs a call that belongs to thread {}", job.worker));
        }
        self.run_call(worker, job)
    }

    /// Completes the call. Its thread reports that at once, or a moment later. Returns true if it has reported.
    fn finish(&mut self, worker: usize) -> bool {
        if self.world.shared.one_in(2) {
            self.end_run(worker);
            return true;
        }
        self.world.threads.workers[worker].state = State::Completing;
        let at = self.world.shared.now() + self.world.shared.below(20);
        self.schedule_worker(worker, at);
        false
    }

    fn end_run(&mut self, worker: usize) {
        let blocked = Duration::from_micros(self.world.threads.workers[worker].blocked);
        if let Some(started_call) = self.world.threads.workers[worker].started_call.take() {
            let waited = started_call.is_measured().then_some(blocked);
            self.world.rules.end(&started_call, waited);
        }
        self.after_change();
    }

    /// Continues a call whose operation or wait has ended.
    fn resume_call(&mut self, worker: usize, job: Job, activity: Activity) {
        let is_over = match activity {
            Activity::Busy => {
                self.check_work(&job);
                self.run_call(worker, job)
            }
            Activity::WaitsForInput | Activity::WaitsForOutput => {
                if std::mem::take(&mut self.world.threads.workers[worker].is_alone) {
                    self.world.threads.polling_thread = None;
                    self.world.rules.return_poller(worker, ());
                    self.world.rules.poll();
                }
                self.end_wait_if_due(worker, &job);
                self.continue_wait(worker, job, activity)
            }
            Activity::Hangs => {
                self.world.threads.workers[worker].state = State::InCall(job, activity);
                false
            }
        };
        if is_over {
            self.work(worker);
        }
    }

    /// Ends a wait within a call that has lasted too long, as another thread would.
    fn end_wait_if_due(&mut self, worker: usize, job: &Job) {
        let now = self.world.shared.now();
        let is_time = self.world.threads.workers[worker].wait_ends_at.is_some_and(|at| at <= now);
        if !is_time || self.world.rules.is_woken(worker) {
            return;
        }
        self.world.shared.trace(|| format!("thread {worker} stops waiting for request {}", job.id));
        self.world.threads.workers[worker].has_timed_out = true;
        let engine_core = self.world.rules.source_mut();
        if let Some(ticket) = &job.ticket {
            engine_core.engine.stop_waiting(ticket);
        }
        engine_core.interrupt(worker);
        self.after_step();
    }

    /// Interrupts late calls that wait for a request body.
    fn interrupt_late_calls(&mut self) {
        for id in self.world.rules.source_mut().deadlines.take_fresh() {
            let waits =
                |worker: &Worker| matches!(&worker.state, State::InCall(job, Activity::WaitsForInput) if job.id == id);
            let Some(worker) = self.world.threads.workers.iter().position(waits) else { continue };
            let at = self.world.shared.now() + self.world.shared.below(self.world.plan.wake_time) + 1;
            self.world.threads.workers[worker].wait_ends_at = Some(at);
            self.schedule_worker(worker, at);
        }
    }

    /// Makes a thread that waits within a call do its next step. Returns true if the call is complete.
    fn continue_wait(&mut self, worker: usize, job: Job, activity: Activity) -> bool {
        while !self.world.shared.has_failed() {
            let step = self.world.rules.wait(worker, ());
            self.after_change();
            match step {
                WaitStep::Start(new) => self.start(Some(new)),
                WaitStep::Sleep => {
                    let at = self.world.threads.workers[worker].wait_ends_at.unwrap_or(Micros::MAX);
                    self.world.threads.workers[worker].state = State::InCall(job, activity);
                    self.schedule_worker(worker, at);
                    return false;
                }
                WaitStep::Poll((), timeout) => {
                    let at = self.world.threads.workers[worker].wait_ends_at.unwrap_or(Micros::MAX);
                    self.world.threads.workers[worker].is_alone = true;
                    self.world.threads.workers[worker].state = State::InCall(job, activity);
                    self.wait_for_poller(worker, timeout, at);
                    return false;
                }
                WaitStep::Done => {
                    self.world.rules.source_mut().set_waiting(worker, false);
                    self.world.rules.source_mut().resume_deadline(job.id);
                    let now = self.world.shared.now();
                    let own = &mut self.world.threads.workers[worker];
                    own.wait_ends_at = None;
                    own.blocked += now - own.waits_since;
                    if std::mem::take(&mut own.has_timed_out) {
                        self.raise(job, 504);
                        return self.finish(worker);
                    }
                    self.check_wake(&job, activity == Activity::WaitsForInput);
                    return self.run_call(worker, job);
                }
            }
        }
        false
    }

    /// Begins a wait within a call, for at most `patience`. `begin` registers the awaited event with the engine.
    pub(crate) fn begin_wait(
        &mut self,
        worker: usize,
        patience: Option<Micros>,
        begin: impl FnOnce(&mut EngineCore<P>),
    ) {
        let now = self.world.shared.now();
        self.world.threads.workers[worker].waits_since = now;
        self.world.threads.workers[worker].wait_ends_at = patience.map(|patience| now + patience + 1);
        self.world.rules.begin_wait(worker, |engine_core| {
            engine_core.set_waiting(worker, true);
            begin(engine_core);
        });
    }

    /// Runs a call until it is complete or blocks. Returns true if it is complete.
    fn run_call(&mut self, worker: usize, mut job: Job) -> bool {
        while !self.world.shared.has_failed() {
            match self.step(worker, job) {
                Step::Next(next) => job = next,
                Step::Returned => return self.finish(worker),
                Step::Blocks(job, activity @ (Activity::WaitsForInput | Activity::WaitsForOutput)) => {
                    return self.continue_wait(worker, job, activity);
                }
                Step::Blocks(job, activity) => {
                    self.world.threads.workers[worker].state = State::InCall(job, activity);
                    return false;
                }
            }
        }
        false
    }
}
