//! The work source of the loop: the engine, with the records as its application.

use super::app::LoopApp;
use super::plan::Plan;
use crate::clock::{MILLI, Micros, Shared};
use crate::net::{Listening, Network, Side};
use engine::scheduler::WorkSource;
use engine::{Engine, Now, Work};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Time since 1970, for the Date field.
const WALL: Duration = Duration::from_secs(1_700_000_000);
/// More polls than these without any progress, in quick succession, are a busy loop.
const IDLE_POLLS: u64 = 64;

pub(crate) struct Core {
    pub(crate) engine: Engine<LoopApp>,
    pub(crate) app: LoopApp,
    shared: Rc<Shared>,
    plan: Rc<Plan>,
    network: Rc<RefCell<Network>>,
    idle_polls: u64,
    idle_since: Micros,
    moves: u64,
}

impl Core {
    pub(crate) fn new(shared: &Rc<Shared>, plan: &Rc<Plan>, network: &Rc<RefCell<Network>>) -> Self {
        let listeners = vec![Listening::new(network)];
        let now = Now { monotonic: Duration::ZERO, wall: WALL };
        let engine = Engine::new(Side(Rc::clone(network)), listeners, plan.config.clone(), now)
            .expect("the network accepts its own listeners");
        Self {
            engine,
            app: LoopApp::new(shared, plan),
            shared: Rc::clone(shared),
            plan: Rc::clone(plan),
            network: Rc::clone(network),
            idle_polls: 0,
            idle_since: 0,
            moves: 0,
        }
    }

    /// The engine's clock.
    pub(crate) fn clock(&self) -> Now {
        let now = Duration::from_micros(self.shared.now() / self.plan.grain * self.plan.grain);
        Now { monotonic: now, wall: WALL + now }
    }

    /// Does what a loop does that hosts the engine: polls until nothing is left. Returns the work that came of it.
    pub(crate) fn turn(&mut self) -> Vec<Work<LoopApp>> {
        let mut jobs = Vec::new();
        loop {
            while let Some(work) = self.next((), true) {
                jobs.push(work);
            }
            if self.shared.has_failed() || !self.poll(&mut ()) && self.engine.due() != Some(Duration::ZERO) {
                return jobs;
            }
        }
    }

    /// Fails if the engine is polled again and again without any progress.
    fn note_poll(&mut self, has_work: bool) {
        let (now, moves) = (self.shared.now(), self.shared.moves());
        if has_work || moves != self.moves {
            self.moves = moves;
            self.idle_polls = 0;
            self.idle_since = now;
        }
        self.idle_polls += 1;
        let polls = self.idle_polls;
        if polls > IDLE_POLLS && now - self.idle_since < polls * MILLI / 2 {
            self.shared.fail(|| format!("the engine is polled {polls} times without progress"));
        }
    }
}

impl WorkSource for Core {
    type Work = Work<LoopApp>;
    type Poller = ();
    type Token<'a> = ();

    fn next(&mut self, (): (), may_call: bool) -> Option<Work<LoopApp>> {
        let now = self.clock();
        let work = self.engine.poll(now, &mut self.app, may_call);
        self.note_poll(work.is_some());
        work
    }

    fn owner(_: &Work<LoopApp>) -> Option<usize> {
        None
    }

    fn has_queued(&self) -> bool {
        self.engine.has_queued()
    }

    fn bound(&self, _: usize) -> usize {
        0
    }

    fn poll(&mut self, (): &mut ()) -> bool {
        let mut ready = Vec::new();
        self.network.borrow_mut().poll(&mut ready);
        let is_ready = !ready.is_empty();
        self.engine.notice(&mut ready);
        is_ready
    }

    fn due(&self) -> Option<Duration> {
        if self.app.wakes.is_empty() { self.engine.due() } else { Some(Duration::ZERO) }
    }

    fn now(&self) -> Duration {
        self.clock().monotonic
    }

    fn wake_poller(&self) {
        self.network.borrow_mut().wake();
    }

    fn woken(&mut self) -> Option<usize> {
        None
    }

    fn has_deferred_output(&self) -> bool {
        self.engine.has_deferred_output()
    }

    fn tick(&mut self) {}

    fn is_over(&self) -> bool {
        self.engine.is_stopped()
    }
}
