//! The pool of threads of a model: its work source, and the threads that perform its plan.

use super::plan::{Act, Belief, Event, Fact, Plan};
use crate::predictor::ALL;
use crate::{Pace, Scheduler, TICK, Threads, Wanted, WorkSource};
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

impl Plan {
    /// Tries all executions with at most `preemptions` preemptions; `None`: without limit.
    pub(super) fn check(self, preemptions: impl Into<Option<usize>>) {
        let mut builder = Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(preemptions.into());
        builder.max_branches = 20_000;
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let trace = Trace::default();
        let own = trace.clone();
        let checked = catch_unwind(move || {
            builder.check(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                own.clear();
                Pool::run(self.clone(), own.clone());
            });
        });
        println!("{} executions", runs.load(Ordering::Relaxed));
        if let Err(panic) = checked {
            trace.print();
            resume_unwind(panic);
        }
    }
}

/// A step: the number of the thread, its action, and the call or thread on which it acts.
type Step = (usize, &'static str, Option<usize>);

/// The steps of the threads in one execution. They are printed if it fails.
#[derive(Clone, Default)]
struct Trace(Arc<std::sync::Mutex<Vec<Step>>>);

impl Trace {
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

/// The events and the wake-up for which the poller waits.
#[derive(Default)]
struct Poll {
    state: Mutex<PollState>,
    changed: Condvar,
}

#[derive(Default)]
struct PollState {
    events: VecDeque<Event>,
    is_woken: bool,
}

impl Poll {
    fn add(&self, event: Event) {
        self.state.lock().unwrap().events.push_back(event);
        self.changed.notify_all();
    }

    fn wake(&self) {
        self.state.lock().unwrap().is_woken = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        while state.events.is_empty() && !state.is_woken {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// The facts that have occurred so far, for which calls wait. The scheduler does not know them.
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

/// The poller as a token: only one thread at a time can wait for it.
struct TestPoller(Arc<Poll>);

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

struct TestSource {
    poll: Arc<Poll>,
    facts: Arc<Facts>,
    calls: Vec<Call>,
    events: VecDeque<Event>,
    /// The events that [`WorkSource::service_pending`] takes.
    pending: VecDeque<Event>,
    queued: VecDeque<usize>,
    /// Suspended calls that can resume, with their threads.
    ready: VecDeque<(usize, usize)>,
    woken: VecDeque<usize>,
    connections: usize,
    /// The current time. It advances each time it is read.
    time: Cell<Duration>,
}

impl TestSource {
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

/// A call, and the thread in which it has to resume.
struct Work {
    number: usize,
    owner: Option<usize>,
}

impl WorkSource for TestSource {
    type Work = Work;
    type Poller = TestPoller;
    type Token<'a> = ();

    fn next(&mut self, (): (), may_call: bool) -> Option<Work> {
        while let Some(event) = self.events.pop_front() {
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

    fn poll(&mut self, _: &mut TestPoller) -> bool {
        let mut state = self.poll.state.lock().unwrap();
        let is_ready = !state.events.is_empty() || state.is_woken;
        state.is_woken = false;
        self.events.append(&mut state.events);
        is_ready
    }

    fn due(&self) -> Option<Duration> {
        (!self.events.is_empty() || !self.ready.is_empty()).then_some(Duration::ZERO)
    }

    fn now(&self) -> Duration {
        self.time.set(self.time.get() + TICK * 4);
        self.time.get()
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn wake_poller(&self) {
        self.poll.wake();
    }

    fn woken(&mut self) -> Option<usize> {
        self.woken.pop_front()
    }

    fn has_deferred_output(&self) -> bool {
        false
    }

    fn tick(&mut self) {}

    fn service_pending(&mut self, _: Option<&mut TestPoller>) -> bool {
        let event = self.pending.pop_front();
        self.events.extend(event);
        event.is_some()
    }

    fn is_over(&self) -> bool {
        self.calls.iter().all(|call| call.state == State::Done)
    }
}

/// The ticker thread, and requests for ticks.
#[derive(Default)]
struct TestTicker {
    state: Mutex<TickerState>,
    changed: Condvar,
}

#[derive(Default)]
struct TickerState {
    is_wanted: bool,
    quit: bool,
}

impl TestTicker {
    fn want(&self) {
        self.state.lock().unwrap().is_wanted = true;
        self.changed.notify_all();
    }

    fn quit(&self) {
        self.state.lock().unwrap().quit = true;
        self.changed.notify_all();
    }

    /// Ticks as long as a tick is needed, and sleeps as soon as none is needed. The real ticker continues for a while.
    fn run(&self, scheduler: &Scheduler<TestSource>) {
        loop {
            let mut state = self.state.lock().unwrap();
            while !state.is_wanted && !state.quit {
                state = self.changed.wait(state).unwrap();
            }
            if state.quit {
                return;
            }
            state.is_wanted = false;
            drop(state);
            while scheduler.tick() != Wanted::No {
                // Lets the other threads run between two ticks. If all others have exited, loom reports an endless
                // model.
                thread::yield_now();
            }
        }
    }
}

/// The state that all threads of a model share.
struct Pool {
    plan: Plan,
    trace: Trace,
    scheduler: Scheduler<TestSource>,
    poll: Arc<Poll>,
    gil: Mutex<()>,
    ticker: TestTicker,
    facts: Arc<Facts>,
    /// For each call, how often it began and how often it was resumed. Checked at the end of an execution.
    begun: RefCell<Vec<(usize, usize)>>,
    running: Cell<usize>,
    started: Cell<usize>,
    handles: RefCell<Vec<JoinHandle<()>>>,
}

impl Pool {
    fn new(plan: Plan, trace: Trace) -> Self {
        let poll = Arc::new(Poll::default());
        poll.state.lock().unwrap().events.extend(&plan.first);
        let calls = plan.jobs.iter().map(|_| Call { state: State::New, is_answered: false }).collect();
        let facts = Arc::new(Facts::default());
        let source = TestSource {
            poll: Arc::clone(&poll),
            facts: Arc::clone(&facts),
            calls,
            events: VecDeque::new(),
            pending: plan.serviced_at.iter().copied().collect(),
            queued: VecDeque::new(),
            ready: VecDeque::new(),
            woken: VecDeque::new(),
            connections: if plan.belief == Belief::AllRunning { 0 } else { usize::MAX },
            time: Cell::default(),
        };
        let scheduler = Scheduler::new(source, TestPoller(Arc::clone(&poll)), plan.most);
        let share = if matches!(plan.belief, Belief::AllBlocking | Belief::AllRunning) { ALL } else { 0 };
        scheduler.rules.lock().unwrap().predictor().believe(share, plan.belief.blocks_for());
        Self {
            scheduler,
            poll,
            gil: Mutex::new(()),
            ticker: TestTicker::default(),
            facts,
            begun: RefCell::new(vec![(0, 0); plan.jobs.len()]),
            running: Cell::new(0),
            started: Cell::new(0),
            handles: RefCell::default(),
            plan,
            trace,
        }
    }

    fn run(plan: Plan, trace: Trace) {
        let pool = Rc::new(Self::new(plan, trace));
        let mut helpers = Vec::new();
        if pool.plan.ticks {
            let own = Rc::clone(&pool);
            helpers.push(thread::spawn(move || own.ticker.run(&own.scheduler)));
        }
        if !pool.plan.later.is_empty() {
            let own = Rc::clone(&pool);
            helpers.push(thread::spawn(move || own.plan.later.iter().for_each(|&event| own.poll.add(event))));
        }
        if !pool.plan.serviced_at.is_empty() {
            let own = Rc::clone(&pool);
            helpers.push(thread::spawn(move || {
                // A tick that finds the lock taken is repeated.
                if own.scheduler.tick() == Wanted::Soon(TICK) {
                    own.scheduler.tick();
                }
            }));
        }
        if let Some(number) = pool.plan.interrupted {
            let own = Rc::clone(&pool);
            helpers.push(thread::spawn(move || {
                let attached = Attached::new(&own, usize::MAX);
                attached.trace("interrupts", number);
                own.scheduler.with(&attached, |source| source.answer(number)).unwrap();
            }));
        }
        Attached::new(&pool, 0).work();
        loop {
            let Some(handle) = pool.handles.borrow_mut().pop() else { break };
            handle.join().unwrap();
        }
        pool.ticker.quit();
        for helper in helpers {
            helper.join().unwrap();
        }
        pool.verify();
    }

    /// Checks the conditions that must hold after all threads have exited.
    fn verify(&self) {
        let rules = self.scheduler.rules.lock().unwrap();
        assert!(rules.source().calls.iter().all(|call| call.state == State::Done));
        assert!(rules.is_at_rest());
        for (job, &begun) in self.plan.jobs.iter().zip(&*self.begun.borrow()) {
            assert_eq!(begun, (1, usize::from(matches!(job.act, Act::Suspend))), "{job:?}");
        }
    }
}

/// A thread that holds the GIL.
struct Attached<'a> {
    pool: &'a Rc<Pool>,
    worker: usize,
    gil: RefCell<Option<MutexGuard<'a, ()>>>,
    /// The call that still has to be completed.
    returned: Cell<Option<usize>>,
}

impl<'a> Attached<'a> {
    fn new(pool: &'a Rc<Pool>, worker: usize) -> Self {
        let attached = Self { pool, worker, gil: RefCell::new(None), returned: Cell::new(None) };
        attached.attach();
        attached
    }

    fn attach(&self) {
        if self.pool.plan.has_gil {
            let guard = self.pool.gil.lock().unwrap();
            *self.gil.borrow_mut() = Some(guard);
        }
    }

    fn work(&self) {
        self.trace("arrives", None);
        self.pool.scheduler.work(self, self.worker);
        self.trace("exits", None);
    }

    fn trace(&self, what: &'static str, number: impl Into<Option<usize>>) {
        self.pool.trace.add(self.worker, what, number.into());
    }

    /// Completes the call and reports the events after it.
    fn finish(&self, number: usize) {
        self.trace("ends", number);
        self.pool.scheduler.with(self, |source| source.finish(number)).unwrap();
        self.report_end(number);
    }

    fn report_end(&self, number: usize) {
        let pool = self.pool;
        if let Some(event) = pool.plan.jobs[number].at_end {
            pool.poll.add(event);
        }
        pool.facts.add(Fact::Returned(number));
    }

    fn call(&self, worker: usize, number: usize) {
        let pool = self.pool;
        self.trace("begins", number);
        pool.begun.borrow_mut()[number].0 += 1;
        let job = pool.plan.jobs[number];
        if let Some(event) = job.at_begin {
            pool.poll.add(event);
        }
        match job.act {
            // Every call lets other threads have the GIL at times.
            Act::Return => {
                self.detached(|| {});
                return self.returned.set(Some(number));
            }
            Act::RunUntil(fact) => {
                let facts = &*pool.facts;
                self.detached(|| facts.wait(fact));
            }
            Act::Wait => {
                self.trace("waits in", number);
                pool.scheduler.wait(self, worker, |source| source.begin_wait(number, worker)).unwrap();
                self.trace("was woken in", number);
                pool.scheduler.with(self, |source| assert!(source.calls[number].is_answered)).unwrap();
            }
            Act::Suspend => return pool.scheduler.with(self, |source| source.suspend(number, worker)).unwrap(),
        }
        self.finish(number);
    }
}

impl Threads for Attached<'_> {
    type Source = TestSource;

    fn token(&self) {}

    fn detached<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        drop(self.gil.take());
        let result = wait();
        self.attach();
        self.trace("has the GIL again", None);
        result
    }

    fn wait_for_events(TestPoller(poll): &mut TestPoller, timeout: Option<Duration>) {
        if timeout != Some(Duration::ZERO) {
            poll.wait();
        }
    }

    fn run(&self, worker: usize, Work { number, owner }: Work) {
        let running = &self.pool.running;
        running.set(running.get() + 1);
        assert!(running.get() <= self.pool.plan.most, "no more calls run than allowed");
        if let Some(owner) = owner {
            assert_eq!(owner, worker, "a call resumes in the thread it began in");
            self.trace("resumes", number);
            self.pool.begun.borrow_mut()[number].1 += 1;
            self.finish(number);
        } else {
            self.call(worker, number);
        }
        running.set(running.get() - 1);
    }

    fn run_measured(&self, worker: usize, work: Work) -> Duration {
        self.run(worker, work);
        self.pool.plan.belief.blocks_for()
    }

    fn complete(&self, source: &mut TestSource) {
        if let Some(number) = self.returned.take() {
            self.trace("has ended", number);
            source.finish(number);
            self.report_end(number);
        }
    }

    fn start(&self, worker: usize) -> bool {
        let pool = self.pool;
        if pool.started.get() == pool.plan.startable {
            self.trace("cannot start thread", worker);
            return false;
        }
        pool.started.set(pool.started.get() + 1);
        self.trace("starts thread", worker);
        let own = Rc::clone(pool);
        let handle = thread::spawn(move || Attached::new(&own, worker).work());
        pool.handles.borrow_mut().push(handle);
        true
    }

    fn clean_up(&self, _: bool) {}

    fn want_ticks(&self, _: Pace) {
        if self.pool.plan.ticks {
            self.pool.ticker.want();
        }
    }
}
