//! A world: network, clients, engine and loop, and the events between them.

use super::app::{Held, LoopApp};
use super::call::{Call, Outcome, TaskState};
use super::client::Client;
use super::core::Core;
use super::plan::{Plan, Script};
use crate::clock::{Event, Micros, SECOND, Shared, micros, moment};
use crate::net::{Medium, Network};
use engine::Work;
use scheduler::{Rules, WorkSource};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::websocket::Kind;

/// Longer than any wait of a world.
const QUIET: Micros = 3600 * SECOND;

/// The counters of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopSummary {
    /// Requests that the application was called for.
    pub calls: u64,
    /// WebSockets that it has accepted.
    pub websockets: u64,
    /// Whole answers that clients received.
    pub answers: u64,
    /// Messages that the application has taken, and those that clients have received.
    pub messages: (u64, u64),
    /// Number of waits of tasks.
    pub waits: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Number of times that a handler was resumed.
    pub resumed: u64,
    /// Actions of a thread other than the loop's.
    pub outside: u64,
    /// Elapsed virtual time.
    pub time: Duration,
}

impl LoopSummary {
    pub(crate) fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.websockets += other.websockets;
        self.answers += other.answers;
        self.messages.0 += other.messages.0;
        self.messages.1 += other.messages.1;
        self.waits += other.waits;
        self.cancelled += other.cancelled;
        self.resumed += other.resumed;
        self.outside += other.outside;
        self.time += other.time;
    }
}

pub(super) struct World {
    pub(super) shared: Rc<Shared>,
    pub(super) plan: Rc<Plan>,
    pub(super) network: Rc<RefCell<Network>>,
    pub(super) rules: Rules<Core>,
    pub(super) clients: Vec<Client>,
    /// The client of each call.
    pub(super) owners: Vec<usize>,
    /// The calls that have begun.
    pub(super) calls: Vec<Option<Call>>,
    /// Messages that handlers could not send.
    pub(super) handler_owes: Vec<Option<(Kind, usize)>>,
    /// Tasks that the loop runs in its next iteration.
    pub(super) ready: Vec<(usize, usize)>,
    /// Cancellations that are still to come.
    pub(super) cancels: Vec<(Micros, usize, usize, bool)>,
    /// Number of the loop's next event. Events with another number are void.
    pub(super) round: u64,
    /// The loop waits, at the latest until then.
    pub(super) waits_until: Option<Micros>,
    pub(super) is_wake_scheduled: bool,
    pub(super) waits: u64,
    pub(super) cancelled: u64,
    pub(super) websockets: u64,
    pub(super) resumed: u64,
    pub(super) outside: u64,
}

impl World {
    pub(super) fn new(shared: Rc<Shared>, plan: Rc<Plan>) -> Self {
        shared.trace(|| format!("{:#?}", plan.config));
        shared.trace(|| format!("{:?}, drain {:?}, {:?}", plan.conditions, plan.drain, plan.stop));
        let network = Rc::new(RefCell::new(Network::new(Rc::clone(&shared), plan.conditions, Medium::Simulated)));
        let core = Core::new(&shared, &plan, &network);
        let clients: Vec<_> =
            plan.clients.iter().enumerate().map(|(index, client)| Client::new(index, client, &plan, &shared)).collect();
        let mut owners = vec![0; plan.calls.len()];
        for (index, client) in clients.iter().enumerate() {
            shared.trace(|| format!("client {index}: {:?}", client.plan));
            for &id in &client.plan.calls {
                owners[id] = index;
                let call = &plan.calls[id];
                shared.trace(|| format!("call {id}: body {}, {:?} {:?}", call.body, call.script, call.cancelled));
            }
            shared.schedule(client.plan.connects_at, Event::Peer(index, 0));
        }
        for (entry, (at, ..)) in plan.outside.iter().enumerate() {
            shared.schedule(*at, Event::Outside(entry));
        }
        if let Some(at) = plan.drain {
            shared.schedule(at, Event::Drain);
        }
        shared.schedule(plan.stop.at, Event::Stop(0));
        let count = plan.calls.len();
        Self {
            network,
            rules: Rules::new(core, (), 1),
            clients,
            owners,
            calls: (0..count).map(|_| None).collect(),
            handler_owes: vec![None; count],
            ready: Vec::new(),
            cancels: Vec::new(),
            round: 0,
            waits_until: Some(0),
            is_wake_scheduled: false,
            waits: 0,
            cancelled: 0,
            websockets: 0,
            resumed: 0,
            outside: 0,
            shared,
            plan,
        }
    }

    pub(super) fn run(mut self) -> Result<LoopSummary, String> {
        self.shared.schedule(0, Event::Loop(0));
        while !self.shared.has_failed()
            && let Some(event) = self.shared.advance()
        {
            self.process(event);
            self.wake_loop();
            if self.shared.now() > self.shared.moved_at() + QUIET {
                self.shared.fail(|| "the world does not end".to_owned());
            }
        }
        if !self.shared.has_failed() {
            self.check_end();
        }
        let records = &self.rules.source().app.records;
        let summary = LoopSummary {
            calls: self.calls.iter().flatten().count() as u64,
            websockets: self.websockets,
            answers: self.clients.iter().map(|client| client.answers.len() as u64).sum(),
            messages: (
                records.iter().map(|record| record.taken as u64).sum(),
                self.clients.iter().filter_map(|client| client.websocket.as_ref()).map(|own| own.received as u64).sum(),
            ),
            waits: self.waits,
            cancelled: self.cancelled,
            resumed: self.resumed,
            outside: self.outside,
            time: Duration::from_micros(self.shared.now()),
        };
        let ledger = Arc::clone(&self.rules.source().app.ledger);
        let Self { shared, network, rules, calls, .. } = self;
        drop((rules, calls));
        if !shared.has_failed() {
            let (alive, lost) = (ledger.alive.load(Ordering::Relaxed), ledger.lost.load(Ordering::Relaxed));
            let open = network.borrow().open();
            if alive != 0 || open != 0 || lost != 0 {
                shared.fail(|| format!("{alive} objects and {open} sockets outlive the engine, {lost} were lost"));
            }
        }
        shared.failure().map_or(Ok(summary), Err)
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::ArriveAtServer(number) => self.network.borrow_mut().arrive_at_server(number),
            Event::ArriveAtPeer(number) => {
                let client = self.network.borrow_mut().arrive_at_peer(number);
                if let Some(client) = client {
                    self.act(client);
                }
            }
            Event::RoomAtServer(number) => self.network.borrow_mut().room_at_server(number),
            Event::RoomAtPeer(number) => {
                let client = self.network.borrow().room_at_peer(number);
                self.act(client);
            }
            Event::Peer(client, round) if self.clients[client].round == round => self.act(client),
            Event::Loop(round) if self.round == round => self.go_round(),
            Event::Peer(..) | Event::Loop(_) => {}
            Event::Outside(entry) => {
                self.outside += 1;
                self.act_outside(entry);
            }
            Event::Drain => {
                self.shared.trace(|| "drain".to_owned());
                self.rules.source_mut().engine.drain();
                self.rules.step();
            }
            Event::Stop(_) => self.stop(),
            Event::Worker(..) | Event::Tick(_) | Event::Files | Event::PatienceEnds(_) => {
                unreachable!("this world has no threads")
            }
        }
    }

    fn act(&mut self, client: usize) {
        let index = client;
        let client = &mut self.clients[index];
        let next = client.act(&mut self.network.borrow_mut());
        client.round += 1;
        if let Some(at) = next {
            self.shared.schedule(at, Event::Peer(index, client.round));
        }
    }

    fn stop(&mut self) {
        let crate::plan::Stop { limit, grace, .. } = self.plan.stop;
        self.shared.trace(|| format!("stop within {limit:?}"));
        let core = self.rules.source_mut();
        let now = core.clock();
        core.engine.stop(now, limit, grace);
        self.rules.step();
    }

    // ---------------------------------------------------------------------------------------------------- the loop

    fn schedule_loop(&mut self, at: Micros) {
        self.round += 1;
        if at != Micros::MAX {
            self.shared.schedule(at, Event::Loop(self.round));
        }
    }

    /// Ends the loop's wait if an event is ready.
    fn wake_loop(&mut self) {
        if self.waits_until.is_some()
            && self.network.borrow().is_ready()
            && !std::mem::replace(&mut self.is_wake_scheduled, true)
        {
            let at = self.shared.now() + self.shared.below(self.plan.wake_time) + 1;
            self.schedule_loop(at.min(self.waits_until.unwrap_or(at)));
        }
    }

    /// Runs one iteration of the loop: the selector's reports, tasks and timers; then begins the next wait.
    fn go_round(&mut self) {
        self.waits_until = None;
        self.is_wake_scheduled = false;
        let core = self.rules.source();
        let is_due = core.due().is_some_and(|due| due <= core.now());
        if is_due || self.network.borrow().is_ready() {
            self.run_once();
        }
        self.run_timers();
        let mut ready = std::mem::take(&mut self.ready);
        while !ready.is_empty() && !self.shared.has_failed() {
            let (id, task) = ready.swap_remove(self.shared.index(ready.len()));
            self.run_task(id, task);
        }
        let now = self.shared.now();
        if !self.ready.is_empty() {
            let at = now + self.shared.below(20);
            return self.schedule_loop(at);
        }
        if self.rules.source().engine.is_stopped() && self.calls.iter().flatten().all(|call| call.is_over) {
            return;
        }
        let due = self.rules.before_hosted_wait();
        let clock = self.rules.source().now();
        let due = due.map_or(Micros::MAX, |due| now + micros(due.saturating_sub(clock)));
        let until = due.min(self.next_timer());
        if until > now && !self.network.borrow().is_ready() {
            self.check_waiting();
        }
        self.waits_until = Some(until);
        self.schedule_loop(until.max(now + 1));
    }

    /// Lets the engine do everything that is ready and due; runs the calls that can begin, and wakes those that waited.
    fn run_once(&mut self) {
        self.rules.begin_hosted_poll();
        let core = self.rules.source_mut();
        let jobs = core.run_once();
        let wakes = std::mem::take(&mut core.app.wakes);
        for id in wakes {
            self.wake(id);
        }
        for work in jobs {
            self.begin(work);
        }
    }

    fn begin(&mut self, work: Work<LoopApp>) {
        match work {
            Work::Call(ticket, Held { id, returnable }) => {
                returnable.give_back();
                self.shared.trace(|| format!("call {id} is called"));
                let record = &mut self.rules.source_mut().app.records[id];
                if std::mem::replace(&mut record.is_called, true) || record.is_dismissed {
                    self.shared.fail(|| format!("call {id} is called again"));
                }
                let script = &self.plan.calls[id].script;
                self.calls[id] = Some(Call::new(ticket, script));
                if let Some(cancelled) = self.plan.calls[id].cancelled {
                    let at = self.shared.now() + cancelled.after;
                    self.cancels.push((at, id, cancelled.task, cancelled.is_swallowed));
                }
                match script {
                    // The first step of a task is made at once; a task of its own begins in the next iteration.
                    Script::Tasks(tasks) => {
                        self.ready.extend((1..tasks.len()).map(|task| (id, task)));
                        self.run_task(id, 0);
                    }
                    Script::Handler { .. } => self.run_handler(id, None),
                }
            }
            Work::Resume(ticket, Held { id, returnable }) => {
                returnable.give_back();
                self.resumed += 1;
                self.shared.trace(|| format!("call {id} is resumed"));
                let Some(call) = self.calls[id].as_mut() else { return };
                let Some(until) = call.until.take().filter(|_| call.ticket.is_none() && !call.is_over) else {
                    return self.shared.fail(|| format!("call {id} is resumed, which was not given back"));
                };
                call.ticket = Some(ticket);
                self.run_handler(id, Some(until));
            }
            Work::Abandon(Held { id, returnable }) => {
                returnable.give_back();
                self.shared.trace(|| format!("call {id} is abandoned"));
                let Some(call) = self.calls[id].as_mut() else { return };
                if call.until.take().is_none() || call.is_over {
                    self.shared.fail(|| format!("call {id} is abandoned, which was not given back"));
                }
                let call = self.calls[id].as_mut().expect("it was called");
                call.is_over = true;
                call.outcome = Some(Outcome::Abandoned);
            }
        }
    }

    /// Returns when the loop has to run at the latest, for tasks that sleep and for cancellations.
    fn next_timer(&self) -> Micros {
        let sleeps = self.calls.iter().flatten().flat_map(|call| &call.tasks).filter_map(|task| match task.state {
            TaskState::Sleeping(until) => Some(until),
            _ => None,
        });
        sleeps.chain(self.cancels.iter().map(|(at, ..)| *at)).min().unwrap_or(Micros::MAX)
    }

    fn run_timers(&mut self) {
        let now = self.shared.now();
        for (id, call) in self.calls.iter_mut().enumerate() {
            for (index, task) in call.iter_mut().flat_map(|call| &mut call.tasks).enumerate() {
                if matches!(task.state, TaskState::Sleeping(until) if until <= now) {
                    task.state = TaskState::Ready;
                    self.ready.push((id, index));
                }
            }
        }
        let (due, later) = std::mem::take(&mut self.cancels).into_iter().partition(|(at, ..)| *at <= now);
        self.cancels = later;
        let due: Vec<(Micros, usize, usize, bool)> = due;
        for (_, id, task, is_swallowed) in due {
            self.cancel(id, task, is_swallowed);
        }
    }

    /// Describes the remaining state, for the report of a failure.
    pub(super) fn describe(&self) -> String {
        let core = self.rules.source();
        format!("{:?} at {}, next due at {:?}", core.engine.statistics(), moment(self.shared.now()), core.engine.due())
    }
}
