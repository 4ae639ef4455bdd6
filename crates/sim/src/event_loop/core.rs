//! The work source of the loop: the engine, with the records as its application.

use super::app::LoopApp;
use super::plan::Plan;
use crate::clock::{IdlePolls, Shared};
use crate::net::{Listening, Network, Side};
use engine::{Engine, Now, Work};
use scheduler::WorkSource;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) struct Core {
    pub(crate) engine: Engine<LoopApp>,
    pub(crate) app: LoopApp,
    shared: Rc<Shared>,
    plan: Rc<Plan>,
    network: Rc<RefCell<Network>>,
    idle_polls: IdlePolls,
}

impl Core {
    pub(crate) fn new(shared: &Rc<Shared>, plan: &Rc<Plan>, network: &Rc<RefCell<Network>>) -> Self {
        let listeners = vec![Listening::new(network)];
        let now = shared.engine_now(plan.grain);
        let engine = Engine::new(Side(Rc::clone(network)), listeners, plan.config.clone(), now)
            .expect("the network accepts its own listeners");
        Self {
            engine,
            app: LoopApp::new(shared, plan),
            shared: Rc::clone(shared),
            plan: Rc::clone(plan),
            network: Rc::clone(network),
            idle_polls: IdlePolls::default(),
        }
    }

    /// Returns the time of the engine's clock.
    pub(crate) fn clock(&self) -> Now {
        self.shared.engine_now(self.plan.grain)
    }

    /// Polls until nothing is left, as a loop does that hosts the engine. Returns the resulting work.
    pub(crate) fn run_once(&mut self) -> Vec<Work<LoopApp>> {
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
}

impl WorkSource for Core {
    type Work = Work<LoopApp>;
    type Poller = ();
    type Token<'a> = ();

    fn next(&mut self, (): (), may_call: bool) -> Option<Work<LoopApp>> {
        let now = self.clock();
        let work = self.engine.poll(now, &mut self.app, may_call);
        self.idle_polls.note(&self.shared, work.is_some());
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
