//! The rules, one step at a time: what is decided, and who is called. What comes of it in all orders is tried with loom
//! (`model.rs`) and in the simulator.

use super::predictor::RouteKey;
use super::rules::{Action, Rules, StartedCall};
use crate::scheduler::WorkSource;
use crate::scheduler::ticker::{Pace, Wanted};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

const FAST: RouteKey = RouteKey::of(1);
const SLOW: RouteKey = RouteKey::of(2);
const WAIT: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Piece {
    owner: Option<usize>,
    route_key: RouteKey,
}

/// A core that hands out what a test has put there.
struct Heap {
    pieces: VecDeque<Piece>,
    connections: usize,
    is_over: bool,
    wakes: Cell<u32>,
    time: Cell<Duration>,
}

impl WorkSource for Heap {
    type Work = Piece;
    type Watch = ();

    fn next(&mut self, may_call: bool) -> Option<Piece> {
        let is_allowed = self.pieces.front().is_some_and(|piece| may_call || piece.owner.is_some());
        if is_allowed { self.pieces.pop_front() } else { None }
    }

    fn owner(piece: &Piece) -> Option<usize> {
        piece.owner
    }

    fn route_key(piece: &Piece) -> Option<RouteKey> {
        Some(piece.route_key)
    }

    fn has_queued(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn connections(&self) -> usize {
        self.connections
    }

    fn bound(&self, _: usize) -> usize {
        0
    }

    fn look(&mut self, (): &mut ()) -> bool {
        false
    }

    fn due(&self) -> Option<Duration> {
        None
    }

    fn now(&self) -> Duration {
        self.time.get()
    }

    fn wake_watch(&self) {
        self.wakes.set(self.wakes.get() + 1);
    }

    fn woken(&mut self) -> Option<usize> {
        None
    }

    fn has_deferred_output(&self) -> bool {
        false
    }

    fn tick(&mut self) {}

    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn rules(most: usize) -> Rules<Heap> {
    let heap = Heap {
        pieces: VecDeque::new(),
        connections: most,
        is_over: false,
        wakes: Cell::default(),
        time: Cell::default(),
    };
    Rules::new(heap, (), most)
}

impl Rules<Heap> {
    fn put(&mut self, owner: Option<usize>, route_key: RouteKey) {
        self.source_mut().pieces.push_back(Piece { owner, route_key });
    }

    /// The thread gets this and runs it.
    fn run(&mut self, worker: usize, route_key: RouteKey) -> StartedCall {
        self.put(None, route_key);
        let Action::Run(piece) = self.decide(worker) else { panic!("there is something to run") };
        self.begin(&piece)
    }

    /// The thread has nothing to do, and stands by, or holds the baton and puts it down at once.
    fn rest(&mut self, worker: usize) {
        loop {
            match self.decide(worker) {
                Action::Tidy => {}
                Action::StandBy(None) => return self.stand_by(worker),
                Action::Lead => panic!("somebody else holds the scheduler"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The rules know that slow calls wait.
    fn teach(&mut self) {
        for _ in 0..3 {
            let started_call = self.run(0, SLOW);
            self.settle_in(&started_call);
            self.end(&started_call, Some(WAIT));
            let started_call = self.run(0, FAST);
            self.settle_in(&started_call);
            self.end(&started_call, started_call.is_measured().then_some(Duration::ZERO));
        }
    }

    /// Threads that were started or called find nothing to do: they stand by, since another holds the baton then.
    fn settle_in(&mut self, started_call: &StartedCall) {
        for worker in self.take_signals().into_iter().chain(started_call.start) {
            self.arrive();
            let ((), _) = self.lead(0).expect("the scheduler lies there");
            self.rest(worker);
            self.release_watch(0, ());
        }
    }
}

#[test]
fn for_a_call_that_waits_somebody_is_called_and_for_a_fast_one_nobody() {
    let mut rules = rules(2);
    rules.teach();
    rules.source_mut().connections = 5;
    let before = rules.pool_statistics().handovers;
    let fast = rules.run(0, FAST);
    assert_eq!((rules.pool_statistics().handovers, fast.ticks), (before, Some(Pace::Quick)));
    rules.end(&fast, None);
    let slow = rules.run(0, SLOW);
    assert_eq!((rules.pool_statistics().handovers, slow.ticks), (before + 1, None));
    let called = rules.take_signals();
    assert_eq!(called.len(), 1);
    // It takes the baton at once.
    rules.arrive();
    assert!(rules.is_called(called[0]) && rules.lead_at_once(called[0]).is_some());
    rules.end(&slow, None);
}

#[test]
fn where_all_connections_wait_for_calls_that_are_soon_over_nobody_is_called() {
    const MOST: usize = 20;
    let mut rules = rules(MOST);
    rules.teach();
    // Nine of ten are out, and then the tenth, too: with 20 ms each, one returns every 2 ms. Before, threads for them were
    // started.
    for connections in [MOST, 10] {
        rules.source_mut().connections = connections;
        let before = rules.pool_statistics();
        let out: Vec<_> = (0..connections - 1)
            .map(|_| {
                let started_call = rules.run(0, SLOW);
                rules.settle_in(&started_call);
                started_call
            })
            .collect();
        assert!(rules.pool_statistics().handovers > before.handovers);
        if connections == MOST {
            for started_call in &out {
                rules.end(started_call, None);
            }
        }
    }
    let before = rules.pool_statistics();
    let last = rules.run(0, SLOW);
    assert_eq!((rules.pool_statistics().handovers, last.ticks), (before.handovers, Some(Pace::Steady)));
    // None has returned for long: a tick calls somebody. It needs two ticks to see that nothing was done.
    assert_eq!(rules.tick(), Wanted::Steadily);
    assert!(rules.take_signals().is_empty());
    rules.source_mut().time.set(Duration::from_millis(10));
    rules.tick();
    assert_eq!(rules.take_signals().len(), 1);
}

#[test]
fn who_has_work_that_may_not_run_yet_waits_for_it_to_the_very_end() {
    let mut rules = rules(2);
    let first = rules.run(0, FAST);
    assert_eq!(first.start, Some(1));
    rules.arrive();
    let second = rules.run(1, FAST);
    assert_eq!(second.start, Some(2));
    rules.arrive();
    // Both calls hang, and all else is over.
    rules.put(Some(2), FAST);
    assert!(matches!(rules.decide(2), Action::Lead));
    assert_eq!(rules.mail().count(), 1);
    rules.source_mut().is_over = true;
    assert!(matches!(rules.decide(2), Action::Lead));
    assert!(!rules.before_lead().0);
    let ((), timeout) = rules.lead(2).expect("it may not run, and does not go round and round");
    assert_eq!(timeout, None);
    // One of them ends after all. Its thread leaves, and tells it.
    let wakes = rules.source().wakes.get();
    rules.end(&first, None);
    assert!(matches!(rules.decide(0), Action::Exit));
    rules.exit();
    assert!(rules.source().wakes.get() > wakes);
    rules.release_watch(2, ());
    assert!(matches!(rules.decide(2), Action::Run(Piece { owner: Some(2), .. })));
}
