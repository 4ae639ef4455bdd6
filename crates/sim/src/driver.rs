//! Threads that share the engine by the rules of the baton ([`engine::baton`]), in virtual time.
//!
//! What a thread does while it holds the lock takes no time; what the application does takes what its script says. So
//! here it is decided by the seed, and not by a scheduler, who comes in between. The lock itself and its condition
//! variables are no part of this: every interleaving of those is tried with loom.

use crate::app::{Asked, Book, Chunk, Course, Entrusted, How};
use crate::clock::{Event, MILLI, Micros};
use crate::plan::{Op, Script, pattern};
use crate::world::World;
use engine::{Input, Progress, Refusal, Ticket, Work};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::http1::Draft;

/// Turns without anything moving that are no sign of going round in circles, if they come this soon after each other.
const IDLE_TURNS: u64 = 64;

pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A call of the application.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: usize,
    pub(crate) connection: usize,
    /// The thread that it stays on.
    worker: usize,
    /// While it is under way.
    ticket: Option<Ticket>,
    /// The next operation.
    at: usize,
    written: usize,
    /// Body bytes that the operation under way has read.
    read: usize,
}

/// What a thread does.
#[derive(Debug)]
enum State {
    /// It was not started.
    Absent,
    StandsBy,
    /// It was called, and is on its way.
    Comes,
    /// It waits for the poller.
    Watches,
    /// The application has it.
    Works(Job, Doing),
    /// It is over.
    Left,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Something that takes time.
    Busy,
    WaitsForInput,
    WaitsForOutput,
    /// It never comes back.
    Hangs,
    /// What it waited for is the case.
    Woken(bool),
}

#[derive(Debug)]
pub(crate) struct Worker {
    state: State,
    mail: VecDeque<Mail>,
    /// Number of the event that goes on with it.
    round: u64,
    /// Since when it waits in the middle of a call, and when it gives up if nothing ends it before.
    waits_since: Micros,
    gives_up_at: Option<Micros>,
}

/// Work for a certain thread.
#[derive(Debug)]
enum Mail {
    Resume(Ticket, Box<Course>),
    Abandon(Box<Course>),
}

#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) workers: Vec<Worker>,
    /// Who waits for the poller, and until when.
    watcher: Option<(usize, Micros)>,
    standby: Vec<usize>,
    coming: usize,
    pub(crate) running: usize,
    most: usize,
    /// Counts what is done, so that a tick sees whether anything was.
    steps: u64,
    steps_at_tick: u64,
    is_tick_coming: bool,
    is_look_coming: bool,
    /// An event is on its way that ends the wait for the poller.
    is_wake_coming: bool,
    /// Turns since something moved, and when the first of them was.
    idle_turns: u64,
    idle_since: Micros,
    moves: u64,
    pub(crate) calls: u64,
}

impl Crew {
    pub(crate) fn new(most: usize) -> Self {
        let size = if most == 1 { 1 } else { most + 1 };
        let worker =
            || Worker { state: State::Absent, mail: VecDeque::new(), round: 0, waits_since: 0, gives_up_at: None };
        Self {
            workers: (0..size).map(|_| worker()).collect(),
            watcher: None,
            standby: Vec::new(),
            coming: 0,
            running: 0,
            most,
            steps: 0,
            steps_at_tick: 0,
            is_tick_coming: false,
            is_look_coming: false,
            is_wake_coming: false,
            idle_turns: 0,
            idle_since: 0,
            moves: 0,
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

    pub(crate) fn mail(&self) -> usize {
        self.workers.iter().map(|worker| worker.mail.len()).sum()
    }
}

/// What a step of a call led to.
enum Step {
    /// On with the next operation.
    Next(Job),
    /// The thread is taken until something happens.
    Stays(Job, Doing),
    /// The call has been put back.
    Over,
}

impl World {
    // -------------------------------------------------------------------------------------------------- the baton

    /// The first thread begins.
    pub(crate) fn begin_work(&mut self) {
        self.work(0);
    }

    /// The event of a thread.
    pub(crate) fn go_on_with_worker(&mut self, worker: usize, round: u64) {
        if self.crew.workers[worker].round != round {
            return;
        }
        match std::mem::replace(&mut self.crew.workers[worker].state, State::Absent) {
            State::Watches => {
                self.crew.watcher = None;
                self.crew.is_wake_coming = false;
                self.look();
                self.work(worker);
            }
            State::Comes => {
                self.crew.coming -= 1;
                self.work(worker);
            }
            State::Works(job, doing) => self.go_on_with_call(worker, job, doing),
            state @ (State::Absent | State::StandsBy | State::Left) => self.crew.workers[worker].state = state,
        }
    }

    /// A thread with nothing in its hands looks for something to do.
    fn work(&mut self, worker: usize) {
        while !self.shared.has_failed() {
            if self.engine().is_stopped() && self.crew.workers[worker].mail.is_empty() {
                self.crew.workers[worker].state = State::Left;
                for other in 0..self.crew.workers.len() {
                    self.call_worker(other);
                }
                self.network.borrow_mut().wake();
                return;
            }
            if let Some(mail) = self.next(worker) {
                if !self.run_work(worker, mail) {
                    return;
                }
            } else if self.crew.watcher.is_some() {
                return self.stand_by(worker);
            } else if !self.is_something_ready() {
                return self.watch(worker);
            }
        }
    }

    fn next(&mut self, worker: usize) -> Option<Next> {
        loop {
            let may_call = self.crew.running < self.crew.most;
            if may_call && let Some(mail) = self.crew.workers[worker].mail.pop_front() {
                return Some(Next::Mail(mail));
            }
            let Some(work) = self.turn(may_call) else { break };
            let mail = match work {
                Work::Call(ticket, asked) => return Some(Next::Call(ticket, asked)),
                Work::Resume(ticket, course) => Mail::Resume(ticket, Box::new(course)),
                Work::Abandon(course) => Mail::Abandon(Box::new(course)),
            };
            let (Mail::Resume(_, course) | Mail::Abandon(course)) = &mail;
            let owner = course.job.worker;
            if owner == worker && may_call {
                return Some(Next::Mail(mail));
            }
            self.crew.workers[owner].mail.push_back(mail);
            if may_call {
                self.call_worker(owner);
            }
        }
        if self.crew.running < self.crew.most {
            // It came when nobody could run it.
            for owner in 0..self.crew.workers.len() {
                if owner != worker && !self.crew.workers[owner].mail.is_empty() {
                    self.call_worker(owner);
                }
            }
        }
        None
    }

    /// Runs something; whether it is over already.
    fn run_work(&mut self, worker: usize, next: Next) -> bool {
        self.crew.running += 1;
        self.crew.calls += 1;
        if self.crew.running > self.crew.most {
            self.shared.fail(|| "more calls run than may".to_owned());
        }
        if self.crew.most > 1 {
            if self.plan.passes_beforehand {
                self.pass();
            }
            self.keep_one_in_reserve();
        }
        let job = match next {
            Next::Call(ticket, Asked { id, entrusted }) => {
                let connection = self.book.records[id].connection.unwrap_or_default();
                let left_at = self.network.borrow().left_at(connection);
                self.shared.trace(|| format!("thread {worker} calls request {id}"));
                self.book.call(Asked { id, entrusted }, left_at);
                Job { id, connection, worker, ticket: Some(ticket), at: 0, written: 0, read: 0 }
            }
            Next::Mail(Mail::Resume(ticket, course)) => {
                let Course { job, entrusted } = *course;
                entrusted.settle();
                self.shared.trace(|| format!("thread {worker} resumes request {}", job.id));
                Job { ticket: Some(ticket), ..job }
            }
            Next::Mail(Mail::Abandon(course)) => {
                let Course { job, entrusted } = *course;
                entrusted.settle();
                self.shared.trace(|| format!("thread {worker} abandons request {}", job.id));
                self.end(job.id, How::Abandoned);
                self.crew.running -= 1;
                return true;
            }
        };
        let is_over = self.go_through(worker, job);
        self.want_tick();
        is_over
    }

    /// The application goes on after it has taken time, or waited.
    fn go_on_with_call(&mut self, worker: usize, job: Job, doing: Doing) {
        let now = self.shared.now();
        let gives_up = self.crew.workers[worker].gives_up_at.is_some_and(|at| at <= now);
        let is_over = match doing {
            Doing::Busy | Doing::Woken(_) => {
                self.crew.workers[worker].gives_up_at = None;
                match doing {
                    Doing::Woken(for_input) => self.check_wake(&job, for_input),
                    _ => self.check_work(&job),
                }
                self.go_through(worker, job)
            }
            Doing::WaitsForInput | Doing::WaitsForOutput if gives_up => {
                self.crew.workers[worker].gives_up_at = None;
                self.crew.watcher.take_if(|(watcher, _)| *watcher == worker);
                self.shared.trace(|| format!("thread {worker} waits no more for request {}", job.id));
                let (engine, _) = self.engine_and_book();
                if let Some(ticket) = &job.ticket {
                    engine.stop_waiting(ticket);
                }
                self.raise(job, 504);
                true
            }
            Doing::WaitsForInput | Doing::WaitsForOutput => {
                self.crew.workers[worker].state = State::Works(job, doing);
                // A thread alone turns the engine meanwhile.
                if self.crew.most == 1 {
                    self.look();
                    self.turn_while_waiting(worker);
                }
                false
            }
            Doing::Hangs => {
                self.crew.workers[worker].state = State::Works(job, doing);
                false
            }
        };
        if is_over {
            self.work(worker);
        }
    }

    /// Goes through a call until it is over or takes time; whether it is over.
    fn go_through(&mut self, worker: usize, mut job: Job) -> bool {
        loop {
            match self.step(worker, job) {
                Step::Next(next) => job = next,
                Step::Over => {
                    return true;
                }
                Step::Stays(job, doing) => {
                    let waits = matches!(doing, Doing::WaitsForInput | Doing::WaitsForOutput);
                    self.crew.workers[worker].state = State::Works(job, doing);
                    // It may have been woken within the call that said what it waits for.
                    self.deliver_wakes();
                    if waits && self.crew.most == 1 {
                        self.turn_while_waiting(worker);
                    } else if waits {
                        self.pass();
                    }
                    return false;
                }
            }
            if self.shared.has_failed() {
                return false;
            }
        }
    }

    /// A thread alone turns the engine while it waits in the middle of a call, and begins no other.
    fn turn_while_waiting(&mut self, worker: usize) {
        while !self.shared.has_failed() {
            if !matches!(self.crew.workers[worker].state, State::Works(_, Doing::WaitsForInput | Doing::WaitsForOutput))
            {
                // It was woken, and an event is on its way.
                return;
            }
            let work = self.turn(false);
            match work {
                Some(Work::Resume(ticket, course)) => {
                    self.crew.workers[worker].mail.push_back(Mail::Resume(ticket, Box::new(course)));
                }
                Some(Work::Abandon(course)) => {
                    self.crew.workers[worker].mail.push_back(Mail::Abandon(Box::new(course)));
                }
                Some(Work::Call(_, asked)) => {
                    self.shared.fail(|| format!("request {} is to be called, which may not be", asked.id));
                }
                // It may have been woken in this turn.
                None if !self.is_waiting(worker) || self.is_something_ready() => {}
                None => {
                    let until = self.due().unwrap_or(Micros::MAX);
                    let until = until.min(self.crew.workers[worker].gives_up_at.unwrap_or(Micros::MAX));
                    self.crew.is_wake_coming = false;
                    self.crew.watcher = Some((worker, until));
                    self.schedule_worker(worker, until);
                    return;
                }
            }
        }
    }

    fn is_waiting(&self, worker: usize) -> bool {
        matches!(self.crew.workers[worker].state, State::Works(_, Doing::WaitsForInput | Doing::WaitsForOutput))
    }

    /// A tick has passed: what is held back leaves, and if the baton lies there, somebody is called to take it up.
    pub(crate) fn tick(&mut self) {
        self.crew.is_tick_coming = false;
        let ledger = std::sync::Arc::clone(&self.book.ledger);
        ledger.is_ticking.store(true, Ordering::Relaxed);
        self.engine_mut().tick();
        ledger.is_ticking.store(false, Ordering::Relaxed);
        let is_lying = self.crew.running > 0 && self.crew.watcher.is_none() && self.crew.coming == 0;
        if is_lying && self.crew.steps == self.crew.steps_at_tick && self.crew.most > 1 {
            self.take_up_baton();
        }
        self.crew.steps_at_tick = self.crew.steps;
        self.want_tick();
    }

    /// Somebody looks whether the engine is turned, and after those who wait for it if it is not.
    pub(crate) fn attend(&mut self) {
        self.crew.is_look_coming = false;
        let ledger = std::sync::Arc::clone(&self.book.ledger);
        let now = self.now();
        ledger.is_ticking.store(true, Ordering::Relaxed);
        let has_more = self.engine_mut().attend(now, false);
        ledger.is_ticking.store(false, Ordering::Relaxed);
        if has_more {
            self.shared.trace(|| "strangers were let in".to_owned());
            self.network.borrow_mut().wake();
        }
        self.check_step();
        self.want_tick();
    }

    /// Sees to it that there will be a tick if one is needed.
    pub(crate) fn want_tick(&mut self) {
        let may_hold_up = self.crew.running > 0 && !self.plan.config.health_path.is_empty();
        if may_hold_up && !std::mem::replace(&mut self.crew.is_look_coming, true) {
            self.shared.schedule(self.shared.now() + micros(engine::SLOW_TICK), Event::Attend);
        }
        let is_lying = self.crew.running > 0 && self.crew.watcher.is_none() && self.crew.most > 1;
        if (self.engine().is_holding() || is_lying) && !std::mem::replace(&mut self.crew.is_tick_coming, true) {
            let at = self.shared.now() + micros(engine::TICK);
            self.shared.schedule(at, Event::Tick);
        }
    }

    /// The caller does not turn the engine for a while: somebody else is to.
    fn pass(&mut self) {
        if self.crew.watcher.is_none() && self.crew.coming == 0 {
            self.take_up_baton();
        }
    }

    fn take_up_baton(&mut self) {
        if let Some(&worker) = self.crew.standby.last() {
            self.call_worker(worker);
        } else {
            self.recruit();
        }
    }

    fn keep_one_in_reserve(&mut self) {
        if self.crew.standby.is_empty() && self.crew.coming == 0 {
            self.recruit();
        }
    }

    fn recruit(&mut self) {
        let absent =
            self.crew.workers.iter().position(|worker| matches!(worker.state, State::Absent) && worker.round == 0);
        // Thread 0 is where the world begins.
        if let Some(worker) = absent.filter(|&worker| worker > 0) {
            self.crew.coming += 1;
            self.crew.workers[worker].state = State::Comes;
            let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
            self.schedule_worker(worker, at);
        }
    }

    /// Calls a thread, if it stands by or waits for the poller.
    fn call_worker(&mut self, worker: usize) {
        match self.crew.workers[worker].state {
            State::Watches => self.network.borrow_mut().wake(),
            State::StandsBy => {
                self.crew.standby.retain(|&other| other != worker);
                self.crew.coming += 1;
                self.crew.workers[worker].state = State::Comes;
                let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
                self.schedule_worker(worker, at);
            }
            _ => {}
        }
    }

    fn stand_by(&mut self, worker: usize) {
        self.crew.workers[worker].state = State::StandsBy;
        self.crew.standby.push(worker);
        let until = self.crew.watcher.map_or(Micros::MAX, |(_, until)| until);
        if self.due().unwrap_or(Micros::MAX) < until || self.engine().is_stopped() {
            // What this thread has done is something that whoever waits does not know of.
            self.network.borrow_mut().wake();
        }
    }

    fn watch(&mut self, worker: usize) {
        if self.crew.most > 1 {
            self.keep_one_in_reserve();
        }
        let is_free = self.crew.running == 0;
        self.engine_mut().before_wait(is_free);
        let until = self.due().unwrap_or(Micros::MAX);
        self.crew.watcher = Some((worker, until));
        self.crew.is_wake_coming = false;
        self.crew.workers[worker].state = State::Watches;
        self.schedule_worker(worker, until);
    }

    /// Ends the wait for the poller if something is ready.
    pub(crate) fn wake_watcher(&mut self) {
        let Some((worker, _)) = self.crew.watcher else { return };
        if self.network.borrow().is_ready() && !std::mem::replace(&mut self.crew.is_wake_coming, true) {
            let at = self.shared.now() + self.shared.below(20);
            self.schedule_worker(worker, at);
        }
    }

    fn schedule_worker(&mut self, worker: usize, at: Micros) {
        let round = &mut self.crew.workers[worker].round;
        *round += 1;
        if at != Micros::MAX {
            self.shared.schedule(at, Event::Worker(worker, *round));
        }
    }

    // ------------------------------------------------------------------------------------------------- the engine

    /// Takes note of what is ready; whether there is something.
    fn look(&mut self) -> bool {
        let mut ready = Vec::new();
        self.network.borrow_mut().poll(&mut ready);
        let is_ready = !ready.is_empty();
        self.engine_mut().notice(&mut ready);
        is_ready
    }

    fn is_something_ready(&mut self) -> bool {
        self.look() || self.due() == Some(self.shared.now())
    }

    /// When there will be something to do at the latest.
    fn due(&self) -> Option<Micros> {
        let timeout = self.engine().timeout(self.now())?;
        Some(self.shared.now().saturating_add(micros(timeout)))
    }

    fn turn(&mut self, may_call: bool) -> Option<Work<Book>> {
        if self.crew.most == 1 {
            self.crew.watcher = None;
        }
        // Others may look in the middle of a round.
        if self.shared.one_in(8) {
            self.look();
        }
        let now = self.now();
        self.book.ready.clear();
        let (engine, book) = self.engine_and_book();
        let work = engine.turn(now, book, may_call);
        let called = if let Some(Work::Call(_, asked)) = &work { Some(asked.id) } else { None };
        if called.is_some() && !may_call {
            self.shared.fail(|| "a request is to be called although none may be".to_owned());
        }
        for id in std::mem::take(&mut self.book.ready) {
            if called != Some(id) {
                self.book.records[id].was_queued = true;
            }
            self.shared.schedule(self.shared.now(), Event::Waits(id));
        }
        self.crew.steps += 1;
        self.deliver_wakes();
        self.check_step();
        self.note_turn(work.is_some());
        self.want_tick();
        work
    }

    /// An engine that is turned again and again without anything moving goes round in circles.
    fn note_turn(&mut self, has_work: bool) {
        let (now, moves) = (self.shared.now(), self.shared.moves());
        if has_work || moves != self.crew.moves {
            self.crew.moves = moves;
            self.crew.idle_turns = 0;
            self.crew.idle_since = now;
        }
        self.crew.idle_turns += 1;
        let turns = self.crew.idle_turns;
        if turns > IDLE_TURNS && now - self.crew.idle_since < turns * MILLI / 2 {
            self.shared.fail(|| format!("the engine is turned {turns} times and nothing moves"));
        }
    }

    pub(crate) fn deliver_wakes(&mut self) {
        for worker in std::mem::take(&mut self.book.woken) {
            let wake_time = self.plan.wake_time;
            match &mut self.crew.workers[worker].state {
                State::Works(job, doing @ (Doing::WaitsForInput | Doing::WaitsForOutput)) => {
                    let id = job.id;
                    *doing = Doing::Woken(*doing == Doing::WaitsForInput);
                    self.shared.trace(|| format!("thread {worker} is woken for request {id}"));
                    self.crew.watcher.take_if(|(watcher, _)| *watcher == worker);
                    let at = self.shared.now() + self.shared.below(wake_time) + 1;
                    self.schedule_worker(worker, at);
                }
                state => {
                    let state = format!("{state:?}");
                    self.shared.fail(|| format!("thread {worker} is woken although it waits for nothing: {state}"));
                }
            }
        }
    }

    /// Whoever is woken finds what it was woken for.
    fn check_wake(&mut self, job: &Job, for_input: bool) {
        let Some(ticket) = &job.ticket else { return };
        let is_full = self.engine_mut().reply(ticket, |reply| reply.is_full() && !reply.is_gone());
        if !for_input && is_full {
            self.shared.fail(|| format!("request {} is woken although its peer does not take more", job.id));
        }
    }

    /// While the application worked for more than two ticks, nothing was held back (PEP 3333).
    fn check_work(&mut self, job: &Job) {
        let Some(ticket) = &job.ticket else { return };
        let Some(Op::Work(time) | Op::Block(time)) =
            job.at.checked_sub(1).and_then(|at| self.plan.requests[job.id].script.ops.get(at))
        else {
            return;
        };
        if *time < 3 * MILLI {
            return;
        }
        let (sent, was_full) = {
            let network = self.network.borrow();
            (network.sent_on(job.connection), network.story(job.connection).full_since.is_some())
        };
        self.engine_mut().reply(ticket, |reply| reply.flush());
        if !was_full && self.network.borrow().sent_on(job.connection) > sent {
            self.shared.fail(|| format!("a part of the answer to {} is held back while there is work on it", job.id));
        }
    }

    // -------------------------------------------------------------------------------------------- the application

    /// One operation of a call.
    fn step(&mut self, worker: usize, mut job: Job) -> Step {
        let id = job.id;
        let script = &Rc::clone(&self.plan).requests[id].script;
        let op = script.ops.get(job.at).copied();
        let Some(ticket) = job.ticket.take() else { return Step::Over };
        let now = self.shared.now();
        if let Some(op) = op {
            self.shared.trace(|| format!("request {id}: {op:?}"));
        }
        match op {
            Some(Op::Work(time) | Op::Block(time)) => {
                // No part is kept back while the application works (PEP 3333).
                self.engine_mut().reply(&ticket, |reply| {
                    if reply.is_begun() {
                        reply.send_soon();
                    }
                });
                self.after_step();
                if matches!(op, Some(Op::Block(_))) && self.crew.most > 1 {
                    self.pass();
                }
                job.at += 1;
                job.ticket = Some(ticket);
                self.schedule_worker(worker, now + time);
                return Step::Stays(job, Doing::Busy);
            }
            Some(Op::Hang) => {
                self.engine_mut().reply(&ticket, |reply| {
                    if reply.is_begun() {
                        reply.flush();
                    }
                });
                self.after_step();
                self.book.records[id].hangs = true;
                job.ticket = Some(ticket);
                return Step::Stays(job, Doing::Hangs);
            }
            Some(Op::Read(count, most)) => {
                job.ticket = Some(ticket);
                return self.read(worker, job, count, most);
            }
            Some(Op::Raise) => {
                job.ticket = Some(ticket);
                self.raise(job, 500);
                return Step::Over;
            }
            Some(Op::Look) => {
                let said = self.engine().has_peer_left(&ticket);
                let network = self.network.borrow();
                let is_right = said == network.has_left_or_was_cut(job.connection);
                drop(network);
                if !is_right {
                    self.shared.fail(|| format!("request {id} is told of its peer having left: {said}"));
                }
            }
            Some(Op::Yield) => {
                job.at += 1;
                self.put_back_course(job, ticket, true);
                return Step::Over;
            }
            Some(Op::Flush | Op::SendSoon) => {
                self.engine_mut().reply(&ticket, |reply| {
                    if reply.is_begun() {
                        if op == Some(Op::Flush) { reply.flush() } else { reply.send_soon() }
                    }
                });
            }
            Some(Op::Begin | Op::Write(_) | Op::File { .. }) => {
                let chunk = match op {
                    Some(Op::Write(length)) => Some(Part::Chunk(pattern(id, job.written, length))),
                    Some(Op::File { length, missing }) => {
                        Some(Part::File(file(id, job.written, length, missing), length))
                    }
                    _ => None,
                };
                job.written += chunk.as_ref().map_or(0, |part| match part {
                    Part::Chunk(bytes) => bytes.len(),
                    Part::File(_, length) => *length,
                });
                return self.write(worker, job, ticket, chunk, script);
            }
            None => {
                let verdict = self.engine_mut().reply(&ticket, |reply| {
                    if !reply.is_begun() {
                        reply.begin(&draft(id, script), None);
                    }
                    reply.finish()
                });
                let (how, progress) = match verdict {
                    Ok(()) => (How::Whole, Progress::Done),
                    Err(_) => (How::Cut, Progress::Cut),
                };
                self.put_back(id, ticket, how, progress);
                return Step::Over;
            }
        }
        self.after_step();
        job.at += 1;
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    fn write(&mut self, worker: usize, mut job: Job, ticket: Ticket, part: Option<Part>, script: &Script) -> Step {
        let id = job.id;
        let ledger = std::sync::Arc::clone(&self.book.ledger);
        let writes = script.writes;
        let (verdict, is_full, is_gone, is_due) = self.engine_mut().reply(&ticket, |reply| {
            if !reply.is_begun() {
                reply.begin(&draft(id, script), None);
            }
            let verdict = match part {
                Some(Part::Chunk(bytes)) => reply.write(Chunk::new(id, bytes, &ledger)),
                Some(Part::File(file, length)) => reply.write_file(file, 0, length as u64),
                None => Ok(()),
            };
            if writes {
                reply.flush();
            }
            (verdict, reply.is_full(), reply.is_gone(), reply.is_due())
        });
        self.after_step();
        job.at += 1;
        if verdict.is_err() {
            self.put_back(id, ticket, How::TooLong, Progress::Done);
            return Step::Over;
        }
        if is_gone {
            // Whoever is told may give up, or leave it to the engine to say so.
            if writes || self.shared.one_in(2) {
                self.put_back(id, ticket, How::Abandoned, Progress::Cut);
            } else {
                self.put_back_course(job, ticket, false);
            }
            return Step::Over;
        }
        if writes && is_full {
            if script.relieves {
                let kept = self.engine_mut().reply(&ticket, |reply| reply.relieve());
                if let Err(error) = kept {
                    self.shared.fail(|| format!("output of request {id} could not be kept: {error}"));
                }
                self.after_step();
            } else {
                let now = self.now();
                let (engine, book) = self.engine_and_book();
                engine.wait_for_output(&ticket, worker, now, book);
                job.ticket = Some(ticket);
                self.wait(worker, script);
                return Step::Stays(job, Doing::WaitsForOutput);
            }
        } else if is_full {
            self.put_back_course(job, ticket, false);
            return Step::Over;
        } else if is_due && !writes {
            self.put_back_course(job, ticket, true);
            return Step::Over;
        }
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    /// Reads up to `count` bytes of the body, in parts of up to `most`.
    fn read(&mut self, worker: usize, mut job: Job, count: usize, most: usize) -> Step {
        let id = job.id;
        let mut buffer = vec![0; most];
        let Some(ticket) = job.ticket.take() else { return Step::Over };
        let script = &Rc::clone(&self.plan).requests[id].script;
        while job.read < count {
            let now = self.now();
            let wanted = most.min(count - job.read);
            let (engine, book) = self.engine_and_book();
            let input = engine.read(&ticket, &mut buffer[..wanted], now, book);
            if let Input::Bytes(length) = input {
                self.book.take_body(id, &buffer[..length.min(wanted)]);
            }
            self.after_step();
            match input {
                Input::Bytes(length) => {
                    self.shared.trace(|| format!("request {id} reads {length}"));
                    if length == 0 || length > wanted {
                        self.shared.fail(|| format!("request {id} reads {length} bytes of at most {wanted}"));
                    }
                    job.read += length;
                }
                Input::Pending => {
                    let now = self.now();
                    let (engine, book) = self.engine_and_book();
                    engine.wait_for_input(&ticket, worker, now, book);
                    job.ticket = Some(ticket);
                    self.wait(worker, script);
                    return Step::Stays(job, Doing::WaitsForInput);
                }
                Input::End => {
                    self.book.end_body(id);
                    break;
                }
                Input::Broken(Refusal { status, .. }) => {
                    self.shared.trace(|| format!("request {id} has lost the rest of its body: {status}"));
                    let begun = self.book.records[id].begun.unwrap_or_default();
                    let heard = self.network.borrow().story(job.connection).last_arrival;
                    let since = self.crew.workers[worker].waits_since;
                    if status == 408 && !self.is_stalled(begun, heard, since, self.shared.now()) {
                        self.shared.fail(|| format!("the body of request {id}, heard of at {heard}, is given up"));
                    }
                    job.ticket = Some(ticket);
                    self.raise(job, status);
                    return Step::Over;
                }
            }
        }
        job.read = 0;
        job.at += 1;
        job.ticket = Some(ticket);
        Step::Next(job)
    }

    fn wait(&mut self, worker: usize, script: &Script) {
        let now = self.shared.now();
        self.crew.workers[worker].waits_since = now;
        self.crew.workers[worker].gives_up_at = script.patience.map(|patience| now + patience + 1);
        let at = self.crew.workers[worker].gives_up_at.unwrap_or(Micros::MAX);
        self.schedule_worker(worker, at);
    }

    /// The application fails: an error page if nothing has left yet, else a cut.
    fn raise(&mut self, mut job: Job, status: u16) {
        let Some(ticket) = job.ticket.take() else { return };
        let is_refused = self.engine_mut().reply(&ticket, |reply| reply.refuse(status, "It has failed."));
        self.after_step();
        if is_refused {
            self.put_back(job.id, ticket, How::Refused(status), Progress::Done);
        } else {
            self.put_back(job.id, ticket, How::Cut, Progress::Cut);
        }
    }

    fn put_back_course(&mut self, job: Job, ticket: Ticket, yields: bool) {
        let course = Course { job, entrusted: Entrusted::new(&self.book.ledger) };
        self.shared.trace(|| format!("request {} is left alone", course.job.id));
        let progress = if yields { Progress::Yield(course) } else { Progress::Blocked(course) };
        self.give_back(ticket, progress);
    }

    fn put_back(&mut self, id: usize, ticket: Ticket, how: How, progress: Progress<Course>) {
        self.end(id, how);
        self.give_back(ticket, progress);
    }

    fn give_back(&mut self, ticket: Ticket, progress: Progress<Course>) {
        let now = self.now();
        let (engine, book) = self.engine_and_book();
        engine.put_back(ticket, progress, now, book);
        self.crew.running -= 1;
        self.after_step();
    }

    fn end(&mut self, id: usize, how: How) {
        self.shared.trace(|| format!("request {id} is over: {how:?}"));
        if self.book.records[id].ended.replace((self.shared.now(), how)).is_some() {
            self.shared.fail(|| format!("request {id} ends twice"));
        }
    }

    /// What has been done may be due before whoever waits for the poller would look.
    fn tell_watcher(&mut self) {
        if let Some((_, until)) = self.crew.watcher
            && self.due().is_some_and(|due| due < until)
        {
            self.network.borrow_mut().wake();
        }
    }

    fn after_step(&mut self) {
        self.crew.steps += 1;
        self.tell_watcher();
        for id in std::mem::take(&mut self.book.ready) {
            self.shared.schedule(self.shared.now(), Event::Waits(id));
        }
        self.deliver_wakes();
        self.check_step();
        self.want_tick();
    }
}

/// What a thread is to do.
enum Next {
    Call(Ticket, Asked),
    Mail(Mail),
}

enum Part {
    Chunk(Vec<u8>),
    File(File, usize),
}

fn draft(id: usize, script: &Script) -> Draft {
    let mut draft = Draft::default();
    let status = format!("{} As Planned", script.status);
    let mut written = draft.start(status.as_bytes()).and_then(|()| draft.field(b"X-Id", id.to_string().as_bytes()));
    if let Some(length) = script.declared {
        written = written.and_then(|()| draft.field(b"Content-Length", length.to_string().as_bytes()));
    }
    if script.closes {
        written = written.and_then(|()| draft.field(b"Connection", b"close"));
    }
    written.expect("a head as it should be");
    draft
}

/// A file with a part of a body, which lacks the last `missing` bytes.
fn file(id: usize, from: usize, length: usize, missing: usize) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(&pattern(id, from, length - missing)).expect("room for it");
    file
}
