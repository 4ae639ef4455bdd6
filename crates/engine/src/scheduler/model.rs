//! The baton under loom: the real code, a small core, and a crew whose interpreter is a lock.
//!
//! `make loom` runs these models. Each is a handful of calls and says in which order the poller tells of them; loom
//! executes it again and again, with the threads in another order each time, and fails where nobody can go on, where
//! somebody goes on for ever, or where one of these does not hold:
//!
//! * every call runs once, and goes on once if it was suspended, in the thread that it began in;
//! * no more calls run at a time than may;
//! * a call that blocks, waits or is suspended keeps no other from running ([`Act::Outlast`] ends only after another has
//!   run, so this shows as a deadlock), and whoever waits in the middle of a call goes on once its answer is there;
//! * in the end every thread has left and nothing is left over: no mail, nobody called who did not come.
//!
//! A thread holds the interpreter except in [`Threads::detached`], so a thread that waits for anything else while it holds
//! it, or for it while it holds the baton's lock, deadlocks in some execution. The poller is a flag that is waited for;
//! there are no timeouts, so a wake-up that is lost is never made good by one. The ticker sleeps at once when a tick is
//! not needed.
//!
//! # What is tried
//!
//! A crew of one: every execution there is. A crew of three, of which two may be in calls: every execution in which
//! threads are interrupted, where they could have gone on, so many times at most as the argument of [`Plan::check`]
//! says; switches where a thread has to wait are not counted. `LOOM_MAX_PREEMPTIONS=3` tries more and takes much longer,
//! above all for the models with ticks. Loom's condition variables do not wake for no reason, and a `try_lock` that is
//! pending while another thread takes the lock waits instead of failing; it fails in the executions in which it comes
//! later.

use super::predictor::{ALL, WORTH_CALLING};
use super::{Scheduler, Threads, WorkSource};
use crate::coalescing::TICK;
use crate::scheduler::ticker::{Pace, Wanted};
use loom::model::Builder;
use loom::sync::{Condvar, Mutex, MutexGuard};
use loom::thread::{self, JoinHandle};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// What a call does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// It returns.
    Return,
    /// It works until something has happened, and says nothing to anybody.
    Outlast(Fact),
    /// It waits in the middle until its peer answers.
    Wait,
    /// It is suspended until its peer answers, and goes on in the same thread.
    Suspend,
}

/// What a call may take as long as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    /// Another call has come to its end.
    Over(usize),
    /// The answer to another has been seen by whoever turns the core.
    Answered(usize),
}

/// What the poller tells.
#[derive(Clone, Copy, Debug)]
enum Event {
    Request(usize),
    Answer(usize),
}

/// A call.
#[derive(Clone, Copy, Debug)]
struct Job {
    act: Act,
    /// What the poller tells once it has begun.
    at_begin: Option<Event>,
    /// What the poller tells once it is over.
    at_end: Option<Event>,
}

const fn job(act: Act) -> Job {
    Job { act, at_begin: None, at_end: None }
}

impl Job {
    const fn begins_with(self, event: Event) -> Self {
        Self { at_begin: Some(event), ..self }
    }

    const fn ends_with(self, event: Event) -> Self {
        Self { at_end: Some(event), ..self }
    }
}

/// What calls are believed to be like when the model starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Fast,
    /// Many wait: threads are called beforehand.
    Waiting,
    /// Nearly all wait: whoever is called takes the baton at once.
    AllWaiting,
    /// Nearly all wait, and there is nobody whose call is not out: nobody is called until a tick, for one of them will
    /// return.
    AllOut,
}

impl Manner {
    /// How long calls wait.
    fn waits(self) -> Duration {
        match self {
            Manner::Fast => Duration::ZERO,
            Manner::Waiting | Manner::AllWaiting | Manner::AllOut => WORTH_CALLING * 10,
        }
    }
}

/// A model.
#[derive(Clone, Debug)]
struct Plan {
    most: usize,
    jobs: Vec<Job>,
    /// What the poller knows from the beginning on.
    first: Vec<Event>,
    /// What another thread adds at any time.
    later: Vec<Event>,
    manner: Manner,
    /// There is an interpreter with a lock.
    is_locked: bool,
    /// A thread that belongs to nobody wakes this call, as a deadline does.
    interrupted: Option<usize>,
    /// Somebody ticks.
    ticks: bool,
    /// What is not told by the poller, but taken in by somebody who attends to the core.
    serviced_at: Vec<Event>,
    /// So many threads can be started and no more, besides the first.
    startable: usize,
}

impl Plan {
    fn new(most: usize, jobs: &[Job]) -> Self {
        Self {
            most,
            jobs: jobs.to_vec(),
            first: (0..jobs.len()).map(Event::Request).collect(),
            later: Vec::new(),
            interrupted: None,
            manner: Manner::Fast,
            is_locked: true,
            ticks: false,
            serviced_at: Vec::new(),
            startable: most,
        }
    }

    fn manner(self, manner: Manner) -> Self {
        Self { manner, ..self }
    }

    fn ticking(self) -> Self {
        Self { ticks: true, ..self }
    }

    /// This request is taken in by a thread that does not turn the core.
    fn watchdog(self, number: usize) -> Self {
        let is_other = |event: &Event| !matches!(event, Event::Request(other) if *other == number);
        let first = self.first.iter().copied().filter(is_other).collect();
        Self { first, serviced_at: vec![Event::Request(number)], ..self }
    }

    fn interrupting(self, number: usize) -> Self {
        Self { interrupted: Some(number), ..self }
    }

    fn startable(self, startable: usize) -> Self {
        Self { startable, ..self }
    }

    fn free_threaded(self) -> Self {
        Self { is_locked: false, ..self }
    }

    /// These come from a thread of their own, the rest is there from the beginning on.
    fn later(self, later: &[Event]) -> Self {
        let is_first = |event: &Event| {
            !later.iter().any(|other| matches!((event, other), (Event::Request(a), Event::Request(b)) if a == b))
        };
        Self { first: self.first.iter().copied().filter(is_first).collect(), later: later.to_vec(), ..self }
    }

    /// Tries the executions with so many preemptions at most; `None`: all there are.
    fn check(self, preemptions: impl Into<Option<usize>>) {
        let mut builder = Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(preemptions.into());
        builder.max_branches = 20_000;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let story = Story::default();
        let told = story.clone();
        let checked = catch_unwind(move || {
            builder.check(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                told.clear();
                Host::run(self.clone(), told.clone());
            });
        });
        println!("{} executions", runs.load(Ordering::Relaxed));
        if let Err(panic) = checked {
            story.print();
            resume_unwind(panic);
        }
    }
}

/// Who did what, with which call or thread.
type Step = (usize, &'static str, Option<usize>);

/// What the threads did in one execution, to be read when it fails.
#[derive(Clone, Default)]
struct Story(Arc<std::sync::Mutex<Vec<Step>>>);

impl Story {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&self) {
        self.lock().clear();
    }

    fn add(&self, worker: usize, what: &'static str, number: Option<usize>) {
        self.lock().push((worker, what, number));
    }

    fn print(&self) {
        for (worker, what, number) in &*self.lock() {
            println!("  thread {worker} {what} {}", number.map(|number| number.to_string()).unwrap_or_default());
        }
    }
}

/// What is waited for: a flag and what it stands for.
#[derive(Default)]
struct Poll {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    events: VecDeque<Event>,
    is_woken: bool,
}

impl Poll {
    fn tell(&self, event: Event) {
        self.told.lock().unwrap().events.push_back(event);
        self.changed.notify_all();
    }

    fn wake(&self) {
        self.told.lock().unwrap().is_woken = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut told = self.told.lock().unwrap();
        while told.events.is_empty() && !told.is_woken {
            told = self.changed.wait(told).unwrap();
        }
    }
}

/// What has happened, for calls to wait for it: the baton knows nothing of this.
#[derive(Default)]
struct Facts {
    known: Mutex<Vec<Fact>>,
    changed: Condvar,
}

impl Facts {
    fn add(&self, fact: Fact) {
        self.known.lock().unwrap().push(fact);
        self.changed.notify_all();
    }

    fn wait(&self, fact: Fact) {
        let mut known = self.known.lock().unwrap();
        while !known.contains(&fact) {
            known = self.changed.wait(known).unwrap();
        }
    }
}

/// The baton itself: only one thread at a time can wait for the poller.
struct Watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Queued,
    Running,
    Waiting(usize),
    Suspended(usize),
    Done,
}

struct Call {
    state: State,
    is_answered: bool,
}

struct Fake {
    poll: Rc<Poll>,
    facts: Rc<Facts>,
    calls: Vec<Call>,
    noticed: VecDeque<Event>,
    /// What nobody has noticed yet who turns the core.
    unnoticed: VecDeque<Event>,
    queued: VecDeque<usize>,
    /// Suspended calls that can go on, with their threads.
    ready: VecDeque<(usize, usize)>,
    woken: VecDeque<usize>,
    connections: usize,
    /// It is later each time somebody asks.
    time: Cell<Duration>,
}

impl Fake {
    fn answer(&mut self, number: usize) {
        let call = &mut self.calls[number];
        assert!(!call.is_answered, "a peer answers once");
        call.is_answered = true;
        match call.state {
            State::Waiting(worker) => self.woken.push_back(worker),
            State::Suspended(worker) => self.ready.push_back((number, worker)),
            _ => {}
        }
        self.facts.add(Fact::Answered(number));
    }

    fn begin_wait(&mut self, number: usize, worker: usize) {
        let call = &mut self.calls[number];
        assert_eq!(call.state, State::Running);
        call.state = State::Waiting(worker);
        if call.is_answered {
            self.woken.push_back(worker);
        }
    }

    fn suspend(&mut self, number: usize, worker: usize) {
        let call = &mut self.calls[number];
        assert_eq!(call.state, State::Running);
        call.state = State::Suspended(worker);
        if call.is_answered {
            self.ready.push_back((number, worker));
        }
    }

    fn finish(&mut self, number: usize) {
        let call = &mut self.calls[number];
        assert!(matches!(call.state, State::Running | State::Waiting(_)), "{:?}", call.state);
        call.state = State::Done;
    }
}

/// A call, and the thread that it has to go on in.
struct Work {
    number: usize,
    owner: Option<usize>,
}

impl WorkSource for Fake {
    type Work = Work;
    type Watch = Watch;

    fn next(&mut self, may_call: bool) -> Option<Work> {
        while let Some(event) = self.noticed.pop_front() {
            match event {
                Event::Request(number) => {
                    assert_eq!(self.calls[number].state, State::New);
                    self.calls[number].state = State::Queued;
                    self.queued.push_back(number);
                }
                Event::Answer(number) => self.answer(number),
            }
        }
        if let Some((number, worker)) = self.ready.pop_front() {
            assert_eq!(self.calls[number].state, State::Suspended(worker));
            self.calls[number].state = State::Running;
            return Some(Work { number, owner: Some(worker) });
        }
        let number = if may_call { self.queued.pop_front()? } else { return None };
        assert_eq!(self.calls[number].state, State::Queued);
        self.calls[number].state = State::Running;
        Some(Work { number, owner: None })
    }

    fn owner(work: &Work) -> Option<usize> {
        work.owner
    }

    fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    fn bound(&self, worker: usize) -> usize {
        self.calls.iter().filter(|call| call.state == State::Suspended(worker)).count()
    }

    fn look(&mut self, _: &mut Watch) -> bool {
        let mut told = self.poll.told.lock().unwrap();
        let is_ready = !told.events.is_empty() || told.is_woken;
        told.is_woken = false;
        self.noticed.append(&mut told.events);
        is_ready
    }

    fn due(&self) -> Option<Duration> {
        (!self.noticed.is_empty() || !self.ready.is_empty()).then_some(Duration::ZERO)
    }

    fn now(&self) -> Duration {
        self.time.set(self.time.get() + TICK * 4);
        self.time.get()
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn wake_watch(&self) {
        self.poll.wake();
    }

    fn woken(&mut self) -> Option<usize> {
        self.woken.pop_front()
    }

    fn has_deferred_output(&self) -> bool {
        false
    }

    fn tick(&mut self) {}

    fn service_pending(&mut self, _: Option<&mut Watch>) -> bool {
        let event = self.unnoticed.pop_front();
        self.noticed.extend(event);
        event.is_some()
    }

    fn is_over(&self) -> bool {
        self.calls.iter().all(|call| call.state == State::Done)
    }
}

/// Asks for ticks, and gives them.
#[derive(Default)]
struct Ticker {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    is_wanted: bool,
    quit: bool,
}

impl Ticker {
    fn want(&self) {
        self.asked.lock().unwrap().is_wanted = true;
        self.changed.notify_all();
    }

    fn quit(&self) {
        self.asked.lock().unwrap().quit = true;
        self.changed.notify_all();
    }

    /// Ticks for as long as somebody needs it, and sleeps at once when nobody does: the real one is not so strict.
    fn run(&self, scheduler: &Scheduler<Fake>) {
        loop {
            let mut asked = self.asked.lock().unwrap();
            while !asked.is_wanted && !asked.quit {
                asked = self.changed.wait(asked).unwrap();
            }
            if asked.quit {
                return;
            }
            asked.is_wanted = false;
            drop(asked);
            while scheduler.tick() != Wanted::No {
                // Others get their turn between two ticks. Where there is nobody left, loom finds the model endless.
                thread::yield_now();
            }
        }
    }
}

/// What all threads see.
struct Host {
    plan: Plan,
    story: Story,
    scheduler: Scheduler<Fake>,
    poll: Rc<Poll>,
    interpreter: Mutex<()>,
    ticker: Ticker,
    facts: Rc<Facts>,
    /// What follows is only counted. How often each call was begun, and gone on with.
    started_call: RefCell<Vec<(usize, usize)>>,
    running: Cell<usize>,
    started: Cell<usize>,
    handles: RefCell<Vec<JoinHandle<()>>>,
}

impl Host {
    fn new(plan: Plan, story: Story) -> Self {
        let poll = Rc::new(Poll::default());
        poll.told.lock().unwrap().events.extend(&plan.first);
        let calls = plan.jobs.iter().map(|_| Call { state: State::New, is_answered: false }).collect();
        let facts = Rc::new(Facts::default());
        let source = Fake {
            poll: Rc::clone(&poll),
            facts: Rc::clone(&facts),
            calls,
            noticed: VecDeque::new(),
            unnoticed: plan.serviced_at.iter().copied().collect(),
            queued: VecDeque::new(),
            ready: VecDeque::new(),
            woken: VecDeque::new(),
            connections: if plan.manner == Manner::AllOut { 0 } else { usize::MAX },
            time: Cell::default(),
        };
        let scheduler = Scheduler::new(source, Watch, plan.most);
        let share = if matches!(plan.manner, Manner::AllWaiting | Manner::AllOut) { ALL } else { 0 };
        scheduler.rules.lock().unwrap().predictor().believe(share, plan.manner.waits());
        Self {
            scheduler,
            poll,
            interpreter: Mutex::new(()),
            ticker: Ticker::default(),
            facts,
            started_call: RefCell::new(vec![(0, 0); plan.jobs.len()]),
            running: Cell::new(0),
            started: Cell::new(0),
            handles: RefCell::default(),
            plan,
            story,
        }
    }

    fn run(plan: Plan, story: Story) {
        let host = Rc::new(Self::new(plan, story));
        let mut helpers = Vec::new();
        if host.plan.ticks {
            let own = Rc::clone(&host);
            helpers.push(thread::spawn(move || own.ticker.run(&own.scheduler)));
        }
        if !host.plan.later.is_empty() {
            let own = Rc::clone(&host);
            helpers.push(thread::spawn(move || own.plan.later.iter().for_each(|&event| own.poll.tell(event))));
        }
        if !host.plan.serviced_at.is_empty() {
            let own = Rc::clone(&host);
            helpers.push(thread::spawn(move || {
                // One that has come at the wrong moment is not the last.
                if own.scheduler.tick() == Wanted::Soon(TICK) {
                    own.scheduler.tick();
                }
            }));
        }
        if let Some(number) = host.plan.interrupted {
            let own = Rc::clone(&host);
            helpers.push(thread::spawn(move || {
                let attached = Attached::new(&own, usize::MAX);
                attached.tell("interrupts", number);
                own.scheduler.with(&attached, |source| source.answer(number)).unwrap();
            }));
        }
        Attached::new(&host, 0).work();
        loop {
            let Some(handle) = host.handles.borrow_mut().pop() else { break };
            handle.join().unwrap();
        }
        host.ticker.quit();
        for helper in helpers {
            helper.join().unwrap();
        }
        host.verify();
    }

    /// Everybody has left: what has to be true then.
    fn verify(&self) {
        let rules = self.scheduler.rules.lock().unwrap();
        assert!(rules.source().calls.iter().all(|call| call.state == State::Done));
        assert!(rules.is_at_rest());
        for (job, &started_call) in self.plan.jobs.iter().zip(&*self.started_call.borrow()) {
            assert_eq!(started_call, (1, usize::from(matches!(job.act, Act::Suspend))), "{job:?}");
        }
    }
}

/// A thread that holds the interpreter.
struct Attached<'a> {
    host: &'a Rc<Host>,
    worker: usize,
    interpreter: RefCell<Option<MutexGuard<'a, ()>>>,
    /// The call that is to be put back.
    ending: Cell<Option<usize>>,
}

impl<'a> Attached<'a> {
    fn new(host: &'a Rc<Host>, worker: usize) -> Self {
        let attached = Self { host, worker, interpreter: RefCell::new(None), ending: Cell::new(None) };
        attached.attach();
        attached
    }

    fn attach(&self) {
        if self.host.plan.is_locked {
            let guard = self.host.interpreter.lock().unwrap();
            *self.interpreter.borrow_mut() = Some(guard);
        }
    }

    fn work(&self) {
        self.tell("comes", None);
        self.host.scheduler.work(self, self.worker);
        self.tell("leaves", None);
    }

    fn tell(&self, what: &'static str, number: impl Into<Option<usize>>) {
        self.host.story.add(self.worker, what, number.into());
    }

    /// The call is over, and what follows from that happens.
    fn finish(&self, number: usize) {
        self.tell("ends", number);
        self.host.scheduler.with(self, |source| source.finish(number)).unwrap();
        self.conclude(number);
    }

    fn conclude(&self, number: usize) {
        let host = self.host;
        if let Some(event) = host.plan.jobs[number].at_end {
            host.poll.tell(event);
        }
        host.facts.add(Fact::Over(number));
    }

    fn call(&self, worker: usize, number: usize) {
        let host = self.host;
        self.tell("begins", number);
        host.started_call.borrow_mut()[number].0 += 1;
        let job = host.plan.jobs[number];
        if let Some(event) = job.at_begin {
            host.poll.tell(event);
        }
        match job.act {
            // Every call lets others to the interpreter now and then.
            Act::Return => {
                self.detached(|| {});
                return self.ending.set(Some(number));
            }
            Act::Outlast(fact) => self.detached(|| host.facts.wait(fact)),
            Act::Wait => {
                self.tell("waits in", number);
                host.scheduler.wait(self, worker, |source| source.begin_wait(number, worker)).unwrap();
                self.tell("was woken in", number);
                host.scheduler.with(self, |source| assert!(source.calls[number].is_answered)).unwrap();
            }
            Act::Suspend => return host.scheduler.with(self, |source| source.suspend(number, worker)).unwrap(),
        }
        self.finish(number);
    }
}

impl Threads for Attached<'_> {
    type Source = Fake;

    fn detached<R>(&self, wait: impl FnOnce() -> R) -> R {
        drop(self.interpreter.take());
        let result = wait();
        self.attach();
        self.tell("is attached again", None);
        result
    }

    fn watch(&self, _: &mut Watch, timeout: Option<Duration>) {
        self.tell("watches", None);
        if timeout != Some(Duration::ZERO) {
            self.host.poll.wait();
        }
    }

    fn run(&self, worker: usize, Work { number, owner }: Work) {
        let running = &self.host.running;
        running.set(running.get() + 1);
        assert!(running.get() <= self.host.plan.most, "more calls run than may");
        if let Some(owner) = owner {
            assert_eq!(owner, worker, "a call goes on in its own thread");
            self.tell("goes on with", number);
            self.host.started_call.borrow_mut()[number].1 += 1;
            self.finish(number);
        } else {
            self.call(worker, number);
        }
        running.set(running.get() - 1);
    }

    fn run_measured(&self, worker: usize, work: Work) -> Duration {
        self.run(worker, work);
        self.host.plan.manner.waits()
    }

    fn end(&self, source: &mut Fake) {
        if let Some(number) = self.ending.take() {
            self.tell("has ended", number);
            source.finish(number);
            self.conclude(number);
        }
    }

    fn start(&self, worker: usize) -> bool {
        let host = self.host;
        if host.started.get() == host.plan.startable {
            self.tell("cannot start thread", worker);
            return false;
        }
        host.started.set(host.started.get() + 1);
        self.tell("starts thread", worker);
        let own = Rc::clone(host);
        let handle = thread::spawn(move || Attached::new(&own, worker).work());
        host.handles.borrow_mut().push(handle);
        true
    }

    fn between(&self, _: bool) {}

    fn want_ticks(&self, _: Pace) {
        if self.host.plan.ticks {
            self.host.ticker.want();
        }
    }
}

const RETURN: Job = job(Act::Return);
const WAIT: Job = job(Act::Wait);
const SUSPEND: Job = job(Act::Suspend);

#[test]
fn one_thread_turns_the_engine_while_its_call_waits() {
    let later = [Event::Answer(0), Event::Request(2), Event::Answer(1)];
    Plan::new(1, &[WAIT, SUSPEND, RETURN]).later(&later).check(None);
}

#[test]
fn fast_calls() {
    Plan::new(2, &[RETURN, RETURN, RETURN]).later(&[Event::Request(2)]).check(2);
}

#[test]
fn fast_calls_without_an_interpreter_lock() {
    Plan::new(2, &[RETURN, RETURN]).free_threaded().check(2);
}

#[test]
fn fast_calls_with_ticks() {
    Plan::new(2, &[RETURN, RETURN]).ticking().check(2);
}

#[test]
fn calls_that_mostly_wait() {
    for manner in [Manner::Waiting, Manner::AllWaiting, Manner::AllOut] {
        Plan::new(2, &[RETURN, RETURN, RETURN]).later(&[Event::Request(2)]).manner(manner).check(2);
    }
}

#[test]
fn calls_that_mostly_wait_without_an_interpreter_lock() {
    for manner in [Manner::Waiting, Manner::AllWaiting, Manner::AllOut] {
        Plan::new(2, &[RETURN, RETURN]).manner(manner).free_threaded().check(2);
    }
}

#[test]
fn a_call_that_takes_long_keeps_nobody_waiting() {
    for manner in [Manner::Fast, Manner::AllOut] {
        Plan::new(2, &[RETURN, job(Act::Outlast(Fact::Over(2))), RETURN]).manner(manner).ticking().check(1);
    }
}

#[test]
fn a_call_that_takes_long_keeps_nobody_waiting_without_an_interpreter_lock() {
    Plan::new(2, &[job(Act::Outlast(Fact::Over(1))), RETURN]).ticking().free_threaded().check(1);
}

#[test]
fn a_call_that_takes_long_keeps_no_later_request_waiting() {
    Plan::new(2, &[job(Act::Outlast(Fact::Over(1))), RETURN]).later(&[Event::Request(1)]).ticking().check(1);
}

#[test]
fn a_call_that_is_foreseen_to_take_long_needs_no_tick() {
    let jobs = [job(Act::Outlast(Fact::Over(1))), RETURN];
    Plan::new(2, &jobs).manner(Manner::AllWaiting).check(2);
    Plan::new(2, &jobs).later(&[Event::Request(1)]).manner(Manner::AllWaiting).check(2);
}

#[test]
fn a_call_that_waits_passes_the_baton() {
    for manner in [Manner::Fast, Manner::Waiting, Manner::AllWaiting, Manner::AllOut] {
        Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).manner(manner).check(2);
    }
}

#[test]
fn a_call_that_waits_passes_the_baton_without_an_interpreter_lock() {
    Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).free_threaded().check(2);
}

#[test]
fn all_calls_wait_and_are_woken() {
    Plan::new(2, &[WAIT, WAIT]).later(&[Event::Answer(1), Event::Answer(0)]).check(2);
}

#[test]
fn all_calls_wait_and_are_woken_with_a_request_behind_them() {
    let jobs = [WAIT.ends_with(Event::Answer(1)), WAIT, RETURN];
    Plan::new(2, &jobs).later(&[Event::Answer(0)]).check(2);
}

#[test]
fn a_suspended_call_goes_on_in_its_thread() {
    for manner in [Manner::Fast, Manner::Waiting, Manner::AllWaiting, Manner::AllOut] {
        Plan::new(2, &[SUSPEND, RETURN.begins_with(Event::Answer(0))]).manner(manner).check(3);
    }
}

#[test]
fn a_suspended_call_is_answered_at_any_time() {
    Plan::new(2, &[SUSPEND, RETURN]).later(&[Event::Answer(0)]).check(3);
}

#[test]
fn a_tick_finds_a_call_that_outlasts_it_while_a_suspended_one_can_go_on() {
    let jobs = [SUSPEND, job(Act::Outlast(Fact::Over(0))).begins_with(Event::Answer(0))];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn work_that_came_while_all_calls_ran_reaches_its_thread_when_one_is_over() {
    let jobs = [
        SUSPEND.ends_with(Event::Answer(1)),
        SUSPEND,
        job(Act::Outlast(Fact::Over(0))),
        job(Act::Outlast(Fact::Answered(0))).begins_with(Event::Answer(0)),
    ];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn work_that_came_while_all_calls_ran_goes_before_new_calls() {
    let jobs = [
        SUSPEND,
        job(Act::Outlast(Fact::Over(0))),
        job(Act::Outlast(Fact::Answered(0))).begins_with(Event::Answer(0)),
        job(Act::Outlast(Fact::Over(0))),
    ];
    Plan::new(2, &jobs).ticking().check(1);
}

#[test]
fn suspended_calls_go_on_where_threads_are_few() {
    let later = [Event::Answer(0), Event::Request(2), Event::Answer(1)];
    Plan::new(2, &[SUSPEND, SUSPEND, job(Act::Outlast(Fact::Over(0)))]).later(&later).startable(1).ticking().check(1);
}

#[test]
fn every_kind_of_call() {
    let jobs = [SUSPEND, WAIT, RETURN.begins_with(Event::Answer(1)).ends_with(Event::Answer(0))];
    Plan::new(2, &jobs).check(3);
}

#[test]
fn threads_that_cannot_be_started_are_done_without() {
    let later = [Event::Answer(1), Event::Answer(0)];
    for startable in [0, 1] {
        for manner in [Manner::Fast, Manner::AllWaiting] {
            let plan = |jobs: &[Job]| Plan::new(2, jobs).later(&later).manner(manner).startable(startable);
            plan(&[WAIT, SUSPEND, RETURN]).check(1);
            plan(&[SUSPEND, WAIT, RETURN]).check(1);
            plan(&[SUSPEND, SUSPEND, RETURN]).check(1);
            plan(&[WAIT, WAIT]).check(1);
        }
    }
}

#[test]
fn a_call_that_waits_is_interrupted() {
    for (most, preemptions) in [(1, None), (2, Some(2))] {
        Plan::new(most, &[WAIT]).interrupting(0).check(preemptions);
        Plan::new(most, &[WAIT]).interrupting(0).free_threaded().check(preemptions);
    }
    Plan::new(2, &[WAIT, RETURN]).interrupting(0).startable(0).check(2);
}

#[test]
fn what_was_taken_in_beside_the_poller_is_served() {
    Plan::new(1, &[RETURN, RETURN]).watchdog(1).check(None);
    Plan::new(1, &[RETURN]).watchdog(0).free_threaded().check(None);
    for manner in [Manner::Fast, Manner::AllWaiting] {
        Plan::new(2, &[RETURN, RETURN]).manner(manner).watchdog(1).check(2);
    }
    // Nobody else is there when the call that waits is woken by what was taken in.
    Plan::new(2, &[WAIT, RETURN.begins_with(Event::Answer(0))]).watchdog(1).check(2);
}
