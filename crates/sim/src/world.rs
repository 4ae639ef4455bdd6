//! A world: network, peers, engine and threads, and the events between them.

use crate::app::Records;
use crate::clock::{Event, Micros, SECOND, Shared, moment};
use crate::deadlines::Deadlines;
use crate::engine_core::EngineCore;
use crate::event_loop::EventLoop;
use crate::frames::Simulated;
use crate::net::Network;
use crate::peer::Peer;
use crate::plan::Plan;
use crate::threads::Threads;
use engine::{Engine, Now, StageClock};
use scheduler::Rules;
use std::cell::RefCell;
use std::rc::Rc;

/// A clock that advances a nanosecond at each reading. The world's own clock cannot be shared between threads.
#[derive(Default)]
struct Readings(u64);

impl StageClock for Readings {
    fn time(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn worked(&mut self) -> u64 {
        0
    }
}

pub(crate) struct World<P: Simulated> {
    pub(crate) shared: Rc<Shared>,
    pub(crate) plan: Rc<Plan>,
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) rules: Rules<EngineCore<P>>,
    pub(crate) threads: Threads,
    pub(crate) event_loop: EventLoop,
    pub(crate) connections: Vec<Peer>,
    /// The peer of each request.
    pub(crate) owners: Vec<usize>,
    /// The time of the order to stop the server, and the time by which it has to be stopped.
    pub(crate) stopped: Option<(Micros, Micros)>,
    /// The time since which no connection is kept alive after its response.
    pub(crate) draining_since: Option<Micros>,
    /// True if the world was ended before everything in it had ended.
    pub(crate) is_unfinished: bool,
}

impl<P: Simulated> World<P> {
    pub(crate) fn new(shared: Rc<Shared>, plan: Rc<Plan>, seed: u64) -> Self {
        shared.trace(|| format!("{:#?}", plan.config));
        shared.trace(|| {
            let Plan { conditions, most_calls, grain, wake_time, drain, stops, .. } = &*plan;
            format!(
                "{conditions:?}\n{most_calls} calls at most, clock {grain}, wakes {wake_time}, \
                 drain {drain:?}, {stops:?}"
            )
        });
        let network = Rc::new(RefCell::new(Network::new(Rc::clone(&shared), plan.conditions, plan.medium)));
        let mut engine_core = EngineCore::new(&shared, &plan, &network);
        if seed.is_multiple_of(2) {
            engine_core.engine.take_times(Box::new(Readings::default()), usize::MAX);
        }
        let connections: Vec<_> =
            plan.connections.iter().enumerate().map(|(index, peer)| Peer::new(index, peer, &plan, &shared)).collect();
        let mut owners = vec![0; plan.requests.len()];
        for peer in &connections {
            shared.trace(|| format!("peer {}: {:?}", peer.index, peer.plan));
            for &id in &peer.plan.requests {
                owners[id] = peer.index;
                shared.trace(|| {
                    let request = &plan.requests[id];
                    let head = request.bytes[..request.head].escape_ascii().to_string();
                    format!(
                        "request {id}: {} bytes, body {}, {:?} {head:.150}\n                {:?}",
                        request.bytes.len(),
                        request.body,
                        request.garbage,
                        request.script
                    )
                });
            }
            shared.schedule(peer.plan.connects_at, Event::Peer(peer.index, 0));
        }
        if let Some(at) = plan.drain {
            shared.schedule(at, Event::Drain);
        }
        for (number, stop) in plan.stops.iter().enumerate() {
            shared.schedule(stop.at, Event::Stop(number));
        }
        if plan.has_files {
            shared.schedule(shared.below(SECOND), Event::Files);
        }
        for (entry, (at, ..)) in plan.outside.iter().enumerate() {
            shared.schedule(*at, Event::Outside(entry));
        }
        let rules = Rules::new(engine_core, (), plan.most_calls);
        let threads = Threads::new(rules.thread_count());
        Self {
            shared,
            network,
            rules,
            threads,
            event_loop: EventLoop::new(plan.requests.len()),
            connections,
            owners,
            stopped: None,
            draining_since: None,
            is_unfinished: false,
            plan,
        }
    }

    pub(crate) fn deadlines(&self) -> &Deadlines {
        &self.rules.source().deadlines
    }

    pub(crate) fn engine(&self) -> &Engine<Records<P>> {
        &self.rules.source().engine
    }

    pub(crate) fn engine_mut(&mut self) -> &mut Engine<Records<P>> {
        &mut self.rules.source_mut().engine
    }

    pub(crate) fn engine_and_records(&mut self) -> (&mut Engine<Records<P>>, &mut Records<P>) {
        let EngineCore { engine, records, .. } = self.rules.source_mut();
        (engine, records)
    }

    pub(crate) fn records(&self) -> &Records<P> {
        &self.rules.source().records
    }

    pub(crate) fn records_mut(&mut self) -> &mut Records<P> {
        &mut self.rules.source_mut().records
    }

    /// Returns the time on the engine's clock.
    pub(crate) fn now(&self) -> Now {
        self.rules.source().clock()
    }

    /// Describes the remaining state, for the report of a failure.
    pub(crate) fn describe(&self) -> String {
        let (statistics, due) = (self.engine().statistics(), self.engine().due());
        format!("{statistics:?} at {}, next due at {due:?}", moment(self.shared.now()))
    }
}
