//! Threads that go by the rules of the baton ([`engine::scheduler::Rules`]), in virtual time.
//!
//! What a thread does while it holds the lock takes no time; what the application does takes what its script says. So
//! here it is decided by the seed, and not by a scheduler, who comes in between. The lock itself and its condition
//! variables are no part of this: every interleaving of those is tried with loom.

use crate::app::{Asked, Course, How, Records};
use crate::clock::{Event, Micros};
use crate::world::World;
use engine::scheduler::{Action, StartedCall, Waits};
use engine::{Pace, SLOW_TICK, STEADY_TICK, Ticket, Wanted, Work};
use std::time::Duration;

pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A call of the application.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: usize,
    pub(crate) connection: usize,
    /// The thread that it stays on.
    pub(crate) worker: usize,
    /// While it is under way.
    pub(crate) ticket: Option<Ticket>,
    /// The next operation.
    pub(crate) at: usize,
    pub(crate) written: usize,
    /// Body bytes that the operation under way has read.
    pub(crate) read: usize,
}

/// What a thread does.
#[derive(Debug)]
enum State {
    /// It was not started, or has something in its hands.
    Absent,
    /// It was started.
    Begins,
    StandsBy,
    /// It was called, and is on its way.
    Comes,
    /// It waits for the poller. `at_once`: without the interpreter, since it was called.
    Watches {
        at_once: bool,
    },
    /// It has waited without the interpreter, and waits for that.
    Attaches,
    /// The application has it.
    Works(Job, Doing),
    /// Its call has been put back, and it has not said so yet.
    Ends,
    /// It is over.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Something that takes time.
    Busy,
    WaitsForInput,
    WaitsForOutput,
    /// It never comes back.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Worker {
    state: State,
    /// Number of the event that goes on with it.
    round: u64,
    /// The call that it runs.
    started_call: Option<StartedCall>,
    /// For how long it has waited in it.
    pub(crate) blocked: Micros,
    /// Since when it waits in the middle of a call, and when it gives up if nothing ends it before.
    pub(crate) waits_since: Micros,
    gives_up_at: Option<Micros>,
    has_given_up: bool,
    /// It waits for the poller in the middle of a call, because nobody else is there.
    is_alone: bool,
}

#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) workers: Vec<Worker>,
    /// Who waits for the poller.
    watcher: Option<usize>,
    /// An event is on its way that ends the wait for the poller.
    is_wake_coming: bool,
    /// How the ticking thread goes, and the number of its event.
    pace: Pace,
    tick_round: u64,
    pub(crate) calls: u64,
}

impl Threads {
    pub(crate) fn new(size: usize) -> Self {
        let worker = || Worker {
            state: State::Absent,
            round: 0,
            started_call: None,
            blocked: 0,
            waits_since: 0,
            gives_up_at: None,
            has_given_up: false,
            is_alone: false,
        };
        Self {
            workers: (0..size).map(|_| worker()).collect(),
            watcher: None,
            is_wake_coming: false,
            pace: Pace::Asleep,
            tick_round: 0,
            calls: 0,
        }
    }

    /// Calls that never come back, and those that are under way otherwise.
    pub(crate) fn unfinished(&self) -> (Vec<usize>, Vec<usize>) {
        let works = self.workers.iter().filter_map(|worker| match &worker.state {
            State::Works(job, doing) => Some((job.id, *doing == Doing::Hangs)),
            _ => None,
        });
        let (hanging, others): (Vec<_>, Vec<_>) = works.partition(|(_, hangs)| *hangs);
        (hanging.into_iter().map(|(id, _)| id).collect(), others.into_iter().map(|(id, _)| id).collect())
    }
}

/// What a step of a call led to.
pub(crate) enum Step {
    /// On with the next operation.
    Next(Job),
    /// The thread is taken until something happens.
    Stays(Job, Doing),
    /// The call has been put back.
    Over,
}

impl World {
    // ------------------------------------------------------------------------------------------------- the threads

    /// The first thread begins.
    pub(crate) fn begin_work(&mut self) {
        self.work(0);
    }

    /// The event of a thread.
    pub(crate) fn go_on_with_worker(&mut self, worker: usize, round: u64) {
        if self.threads.workers[worker].round != round {
            return;
        }
        match std::mem::replace(&mut self.threads.workers[worker].state, State::Absent) {
            State::Begins => {
                self.rules.arrive();
                self.work(worker);
            }
            State::Comes => {
                self.rules.arrive();
                match self.rules.lead_at_once(worker) {
                    Some(((), timeout)) => self.watch(worker, timeout, true),
                    None => self.come_soon(worker, State::Attaches),
                }
            }
            State::Watches { at_once } => {
                self.threads.watcher = None;
                self.rules.release_watch(worker, ());
                if at_once {
                    return self.come_soon(worker, State::Attaches);
                }
                self.rules.look();
                self.work(worker);
            }
            State::Attaches => self.work(worker),
            State::Works(job, doing) => self.go_on_with_call(worker, job, doing),
            State::Ends => {
                self.end_run(worker);
                self.work(worker);
            }
            state @ (State::Absent | State::StandsBy | State::Left) => self.threads.workers[worker].state = state,
        }
    }

    /// A thread with nothing in its hands does what there is to do.
    fn work(&mut self, worker: usize) {
        while !self.shared.has_failed() {
            let what = self.rules.decide(worker);
            self.settle();
            match what {
                Action::Run(work) => {
                    if !self.run_work(worker, work) {
                        return;
                    }
                }
                Action::Lead => {
                    let (is_ready, start) = self.rules.before_lead();
                    self.start(start);
                    if !is_ready && let Some(((), timeout)) = self.rules.lead(worker) {
                        return self.watch(worker, timeout, false);
                    }
                }
                Action::StandBy(start) => {
                    self.rules.stand_by(worker);
                    self.threads.workers[worker].state = State::StandsBy;
                    self.settle();
                    return self.start(start);
                }
                // It takes no time, and nothing is left here to be done.
                Action::Tidy => {}
                Action::Exit => {
                    self.threads.workers[worker].state = State::Left;
                    self.rules.exit();
                    return self.settle();
                }
            }
        }
    }

    fn watch(&mut self, worker: usize, timeout: Option<Duration>, at_once: bool) {
        self.threads.workers[worker].state = State::Watches { at_once };
        self.wait_for_poller(worker, timeout, Micros::MAX);
    }

    fn wait_for_poller(&mut self, worker: usize, timeout: Option<Duration>, at_most: Micros) {
        self.threads.watcher = Some(worker);
        self.threads.is_wake_coming = false;
        let until = timeout.map_or(Micros::MAX, |timeout| self.shared.now().saturating_add(micros(timeout)));
        self.schedule_worker(worker, until.min(at_most));
        self.settle();
    }

    /// Ends the wait for the poller if something is ready.
    pub(crate) fn wake_watcher(&mut self) {
        let Some(worker) = self.threads.watcher else { return };
        if self.network.borrow().is_ready() && !std::mem::replace(&mut self.threads.is_wake_coming, true) {
            let at = self.shared.now() + self.shared.below(20);
            self.schedule_worker(worker, at);
        }
    }

    fn start(&mut self, worker: Option<usize>) {
        if let Some(worker) = worker {
            self.come_soon(worker, State::Begins);
        }
    }

    fn come_soon(&mut self, worker: usize, state: State) {
        self.threads.workers[worker].state = state;
        let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
        self.schedule_worker(worker, at);
    }

    pub(crate) fn schedule_worker(&mut self, worker: usize, at: Micros) {
        let round = &mut self.threads.workers[worker].round;
        *round += 1;
        if at != Micros::MAX {
            self.shared.schedule(at, Event::Worker(worker, *round));
        }
    }

    /// Those who were called or woken set out, somebody ticks if need be, and everything is as it has to be.
    pub(crate) fn settle(&mut self) {
        for worker in self.rules.take_signals() {
            match &self.threads.workers[worker].state {
                State::StandsBy if self.rules.is_called(worker) => self.come_soon(worker, State::Comes),
                State::Works(job, Doing::WaitsForInput | Doing::WaitsForOutput) if self.rules.is_woken(worker) => {
                    let id = job.id;
                    self.shared.trace(|| format!("thread {worker} is woken for request {id}"));
                    let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
                    self.schedule_worker(worker, at);
                }
                _ => {}
            }
        }
        if self.engine().has_deferred_output() {
            self.want_ticks(Pace::Quick);
        } else if self.needs_service() {
            self.want_ticks(Pace::Slow);
        }
        self.check_step();
    }

    /// Something was done with the engine.
    pub(crate) fn after_step(&mut self) {
        self.rules.step();
        self.rules.source_mut().note_ready();
        self.settle();
    }

    // --------------------------------------------------------------------------------------------------- the ticks

    fn needs_service(&self) -> bool {
        self.rules.running() > 0 && self.plan.is_serviced()
    }

    /// Sees to it that ticks come at this pace, or faster.
    fn want_ticks(&mut self, pace: Pace) {
        if self.threads.pace > pace {
            self.threads.pace = pace;
            let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
            self.schedule_tick(at);
        }
    }

    fn schedule_tick(&mut self, at: Micros) {
        self.threads.tick_round += 1;
        self.shared.schedule(at, Event::Tick(self.threads.tick_round));
    }

    /// A tick has passed.
    pub(crate) fn tick(&mut self, round: u64) {
        if self.threads.tick_round != round {
            return;
        }
        let wanted = self.rules.tick();
        self.interrupt_late_calls();
        let (pace, period) = match wanted {
            Wanted::Soon(period) => (Pace::Quick, Some(period)),
            // It does not go slower at once.
            _ if self.threads.pace == Pace::Quick && self.shared.one_in(2) => (Pace::Quick, Some(engine::TICK)),
            Wanted::Steadily => (Pace::Steady, Some(STEADY_TICK)),
            Wanted::Slowly => (Pace::Slow, Some(SLOW_TICK)),
            Wanted::No if self.needs_service() => (Pace::Slow, Some(SLOW_TICK)),
            Wanted::No => (Pace::Asleep, None),
        };
        self.threads.pace = pace;
        if let Some(period) = period {
            self.schedule_tick(self.shared.now() + micros(period));
        }
        self.settle();
    }

    // --------------------------------------------------------------------------------------------------- the calls

    /// Runs something; whether it is over already.
    fn run_work(&mut self, worker: usize, work: Work<Records>) -> bool {
        let started_call = self.rules.begin(&work);
        self.threads.calls += 1;
        if self.rules.running() > self.plan.most_calls {
            self.shared.fail(|| "more calls run than may".to_owned());
        }
        self.settle();
        self.start(started_call.start);
        if let Some(pace) = started_call.ticks
            && self.plan.most_calls > 1
        {
            self.want_ticks(pace);
        }
        self.threads.workers[worker].started_call = Some(started_call);
        self.threads.workers[worker].blocked = 0;
        let job = match work {
            Work::Call(ticket, Asked { id, entrusted }) => {
                let connection = self.records().requests[id].connection.unwrap_or_default();
                let left_at = self.network.borrow().left_at(connection);
                self.shared.trace(|| format!("thread {worker} calls request {id}"));
                self.records_mut().call(Asked { id, entrusted }, left_at);
                let limit = self.plan.requests[id].deadline;
                self.rules.source_mut().begin_deadline(id, ticket.call(), limit);
                Job { id, connection, worker, ticket: Some(ticket), at: 0, written: 0, read: 0 }
            }
            Work::Resume(ticket, Course { job, entrusted }) => {
                entrusted.settle();
                self.shared.trace(|| format!("thread {worker} resumes request {}", job.id));
                self.rules.source_mut().resume_deadline(job.id);
                Job { ticket: Some(ticket), ..job }
            }
            Work::Abandon(Course { job, entrusted }) => {
                entrusted.settle();
                self.shared.trace(|| format!("thread {worker} abandons request {}", job.id));
                self.end(job.id, How::Abandoned);
                return self.finish(worker);
            }
        };
        if job.worker != worker {
            self.shared.fail(|| format!("thread {worker} runs what belongs to {}", job.worker));
        }
        self.go_through(worker, job)
    }

    /// The call has been put back. Its thread says so at once, or a moment later; whether it has.
    fn finish(&mut self, worker: usize) -> bool {
        if self.shared.one_in(2) {
            self.end_run(worker);
            return true;
        }
        self.threads.workers[worker].state = State::Ends;
        let at = self.shared.now() + self.shared.below(20);
        self.schedule_worker(worker, at);
        false
    }

    fn end_run(&mut self, worker: usize) {
        let blocked = Duration::from_micros(self.threads.workers[worker].blocked);
        if let Some(started_call) = self.threads.workers[worker].started_call.take() {
            let waited = started_call.is_measured().then_some(blocked);
            self.rules.end(&started_call, waited);
        }
        self.settle();
    }

    /// The application goes on after it has taken time, or waited.
    fn go_on_with_call(&mut self, worker: usize, job: Job, doing: Doing) {
        let is_over = match doing {
            Doing::Busy => {
                self.check_work(&job);
                self.go_through(worker, job)
            }
            Doing::WaitsForInput | Doing::WaitsForOutput => {
                if std::mem::take(&mut self.threads.workers[worker].is_alone) {
                    self.threads.watcher = None;
                    self.rules.release_watch(worker, ());
                    self.rules.look();
                }
                self.give_up_if_time(worker, &job);
                self.go_on_waiting(worker, job, doing)
            }
            Doing::Hangs => {
                self.threads.workers[worker].state = State::Works(job, doing);
                false
            }
        };
        if is_over {
            self.work(worker);
        }
    }

    /// A call that has waited for too long is woken by somebody else.
    fn give_up_if_time(&mut self, worker: usize, job: &Job) {
        let now = self.shared.now();
        let is_time = self.threads.workers[worker].gives_up_at.is_some_and(|at| at <= now);
        if !is_time || self.rules.is_woken(worker) {
            return;
        }
        self.shared.trace(|| format!("thread {worker} waits no more for request {}", job.id));
        self.threads.workers[worker].has_given_up = true;
        let engine_core = self.rules.source_mut();
        if let Some(ticket) = &job.ticket {
            engine_core.engine.stop_waiting(ticket);
        }
        engine_core.interrupt(worker);
        self.after_step();
    }

    /// A late call that waits for its request body is told to stop.
    fn interrupt_late_calls(&mut self) {
        for id in self.rules.source_mut().deadlines.take_fresh() {
            let waits =
                |worker: &Worker| matches!(&worker.state, State::Works(job, Doing::WaitsForInput) if job.id == id);
            let Some(worker) = self.threads.workers.iter().position(waits) else { continue };
            let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
            self.threads.workers[worker].gives_up_at = Some(at);
            self.schedule_worker(worker, at);
        }
    }

    /// The call waits in the middle: what its thread does meanwhile; whether it is over.
    fn go_on_waiting(&mut self, worker: usize, job: Job, doing: Doing) -> bool {
        while !self.shared.has_failed() {
            let waits = self.rules.wait(worker);
            self.settle();
            match waits {
                Waits::Start(new) => self.start(Some(new)),
                Waits::Sleep => {
                    let at = self.threads.workers[worker].gives_up_at.unwrap_or(Micros::MAX);
                    self.threads.workers[worker].state = State::Works(job, doing);
                    self.schedule_worker(worker, at);
                    return false;
                }
                Waits::Watch((), timeout) => {
                    let at = self.threads.workers[worker].gives_up_at.unwrap_or(Micros::MAX);
                    self.threads.workers[worker].is_alone = true;
                    self.threads.workers[worker].state = State::Works(job, doing);
                    self.wait_for_poller(worker, timeout, at);
                    return false;
                }
                Waits::NoMore => {
                    self.rules.source_mut().set_waiting(worker, false);
                    self.rules.source_mut().resume_deadline(job.id);
                    let now = self.shared.now();
                    let own = &mut self.threads.workers[worker];
                    own.gives_up_at = None;
                    own.blocked += now - own.waits_since;
                    if std::mem::take(&mut own.has_given_up) {
                        self.raise(job, 504);
                        return self.finish(worker);
                    }
                    self.check_wake(&job, doing == Doing::WaitsForInput);
                    return self.go_through(worker, job);
                }
            }
        }
        false
    }

    /// The thread begins to wait in the middle of a call, for as long as its peer's patience lasts: `begin` has said what
    /// for.
    pub(crate) fn begin_wait(
        &mut self,
        worker: usize,
        patience: Option<Micros>,
        begin: impl FnOnce(&mut crate::engine_core::EngineCore),
    ) {
        let now = self.shared.now();
        self.threads.workers[worker].waits_since = now;
        self.threads.workers[worker].gives_up_at = patience.map(|patience| now + patience + 1);
        self.rules.begin_wait(worker, |engine_core| {
            engine_core.set_waiting(worker, true);
            begin(engine_core);
        });
    }

    /// Goes through a call until it is over or takes time; whether it is over.
    fn go_through(&mut self, worker: usize, mut job: Job) -> bool {
        while !self.shared.has_failed() {
            match self.step(worker, job) {
                Step::Next(next) => job = next,
                Step::Over => return self.finish(worker),
                Step::Stays(job, doing @ (Doing::WaitsForInput | Doing::WaitsForOutput)) => {
                    return self.go_on_waiting(worker, job, doing);
                }
                Step::Stays(job, doing) => {
                    self.threads.workers[worker].state = State::Works(job, doing);
                    return false;
                }
            }
        }
        false
    }
}
