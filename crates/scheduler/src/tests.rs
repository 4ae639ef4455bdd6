//! Tests of single rules: the action that a thread receives, and the thread that is notified. Loom (`model.rs`) and the
//! simulator cover all interleavings.

use crate::state::ThreadState;
use crate::{Action, Pace, RouteKey, Rules, StartedCall, Wanted, WorkSource};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;
use transitions::Machine;

const FAST: RouteKey = RouteKey::of(1);
const SLOW: RouteKey = RouteKey::of(2);
const WAIT: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Piece {
    owner: Option<usize>,
    route_key: RouteKey,
}

/// A work source that returns the pieces of work that a test has added.
struct TestSource {
    pieces: VecDeque<Piece>,
    connections: usize,
    is_over: bool,
    wakes: Cell<u32>,
    time: Cell<Duration>,
}

impl WorkSource for TestSource {
    type Work = Piece;
    type Poller = ();
    type Token<'a> = ();

    fn next(&mut self, (): (), may_call: bool) -> Option<Piece> {
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

    fn poll(&mut self, (): &mut ()) -> bool {
        false
    }

    fn due(&self) -> Option<Duration> {
        None
    }

    fn now(&self) -> Duration {
        self.time.get()
    }

    fn wake_poller(&self) {
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

fn rules(max_calls: usize) -> Rules<TestSource> {
    let source = TestSource {
        pieces: VecDeque::new(),
        connections: max_calls,
        is_over: false,
        wakes: Cell::default(),
        time: Cell::default(),
    };
    Rules::new(source, (), max_calls)
}

impl Rules<TestSource> {
    fn put(&mut self, owner: Option<usize>, route_key: RouteKey) {
        self.source_mut().pieces.push_back(Piece { owner, route_key });
    }

    /// Makes the thread begin a call with this key.
    fn run(&mut self, worker: usize, route_key: RouteKey) -> StartedCall {
        self.put(None, route_key);
        let Action::Run(piece) = self.decide(worker, ()) else { panic!("the piece put there has to run") };
        self.begin(worker, &piece)
    }
}

/// Threads that perform the actions of the rules. One of them leads, except directly after a call has begun.
struct Pool {
    rules: Rules<TestSource>,
    leader: Option<usize>,
}

impl Pool {
    fn new(max_calls: usize) -> Self {
        let mut pool = Self { rules: rules(max_calls), leader: None };
        pool.settle(0);
        pool
    }

    /// Makes a thread without work the leader or a follower.
    fn settle(&mut self, worker: usize) {
        loop {
            match self.rules.decide(worker, ()) {
                Action::CleanUp => {}
                Action::Lead => {
                    let (is_ready, start) = self.rules.before_lead();
                    assert!(!is_ready && self.rules.lead(worker).is_some());
                    self.leader = Some(worker);
                    return self.let_arrive(start);
                }
                Action::Follow(start) => {
                    self.rules.follow(worker);
                    return self.let_arrive(start);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Makes notified threads, and the started thread if there is one, arrive.
    fn let_arrive(&mut self, start: Option<usize>) {
        for worker in self.rules.take_signals().into_iter().chain(start) {
            self.rules.arrive(worker);
            self.settle(worker);
        }
    }

    /// Makes the leader begin a call with this key.
    fn begin(&mut self, route_key: RouteKey) -> StartedCall {
        let worker = self.leader.take().expect("a thread leads");
        self.rules.return_poller(worker, ());
        self.rules.run(worker, route_key)
    }

    fn end(&mut self, started_call: &StartedCall, waited: Option<Duration>) {
        self.rules.end(started_call, waited);
        self.settle(started_call.worker);
    }

    /// Teaches the predictor that slow calls block and fast ones do not.
    fn teach(&mut self) {
        for _ in 0..3 {
            for (route_key, time) in [(SLOW, WAIT), (FAST, Duration::ZERO)] {
                let started_call = self.begin(route_key);
                self.let_arrive(started_call.start);
                let waited = (route_key == SLOW || started_call.is_measured()).then_some(time);
                self.end(&started_call, waited);
            }
        }
    }
}

#[test]
fn begin_notifies_a_follower_only_for_a_predicted_call() {
    let mut pool = Pool::new(2);
    pool.teach();
    pool.rules.source_mut().connections = 5;
    let before = pool.rules.pool_statistics().handovers;
    let fast = pool.begin(FAST);
    assert_eq!((pool.rules.pool_statistics().handovers, fast.ticks), (before, Some(Pace::Quick)));
    pool.end(&fast, None);
    let slow = pool.begin(SLOW);
    assert_eq!((pool.rules.pool_statistics().handovers, slow.ticks), (before + 1, None));
    let notified = pool.rules.take_signals();
    assert_eq!(notified.len(), 1);
    // The notified thread leads at once.
    pool.rules.arrive(notified[0]);
    assert!(pool.rules.is_notified(notified[0]) && pool.rules.lead_at_once(notified[0]).is_some());
    pool.end(&slow, None);
}

#[test]
fn begin_notifies_no_follower_when_all_clients_wait_and_a_call_returns_soon() {
    const MOST: usize = 20;
    let mut pool = Pool::new(MOST);
    pool.teach();
    // Nine of ten calls run, and then the tenth begins. They take 20 ms each, so one returns every 2 ms. The first
    // round starts the threads for them.
    for connections in [MOST, 10] {
        pool.rules.source_mut().connections = connections;
        let before = pool.rules.pool_statistics();
        let out: Vec<_> = (0..connections - 1)
            .map(|_| {
                let started_call = pool.begin(SLOW);
                pool.let_arrive(started_call.start);
                started_call
            })
            .collect();
        assert!(pool.rules.pool_statistics().handovers > before.handovers);
        if connections == MOST {
            for started_call in &out {
                pool.end(started_call, None);
            }
        }
    }
    let before = pool.rules.pool_statistics();
    let last = pool.begin(SLOW);
    assert_eq!((pool.rules.pool_statistics().handovers, last.ticks), (before.handovers, Some(Pace::Steady)));
    // If no call has returned for a long time, a tick notifies a follower. It takes two ticks to find that nothing has
    // changed.
    assert_eq!(pool.rules.tick(), Wanted::Steadily);
    assert!(pool.rules.take_signals().is_empty());
    pool.rules.source_mut().time.set(Duration::from_millis(10));
    pool.rules.tick();
    assert_eq!(pool.rules.take_signals().len(), 1);
}

#[test]
fn thread_with_work_in_its_inbox_stays_until_the_work_may_run() {
    let mut rules = rules(2);
    let first = rules.run(0, FAST);
    assert_eq!(first.start, Some(1));
    rules.arrive(1);
    let second = rules.run(1, FAST);
    assert_eq!(second.start, Some(2));
    rules.arrive(2);
    // Both calls hang, and the work source has ended.
    rules.put(Some(2), FAST);
    assert!(matches!(rules.decide(2, ()), Action::Lead));
    assert_eq!(rules.pinned_work().count(), 1);
    rules.source_mut().is_over = true;
    assert!(matches!(rules.decide(2, ()), Action::Lead));
    assert!(!rules.before_lead().0);
    let ((), timeout) = rules.lead(2).expect("its inbox may not run, so the thread waits");
    assert_eq!(timeout, None);
    // One of the calls returns after all. Its thread exits and wakes thread 2.
    let wakes = rules.source().wakes.get();
    rules.end(&first, None);
    assert!(matches!(rules.decide(0, ()), Action::Exit));
    rules.exit(0);
    assert!(rules.source().wakes.get() > wakes);
    rules.return_poller(2, ());
    assert!(matches!(rules.decide(2, ()), Action::Run(Piece { owner: Some(2), .. })));
}

#[test]
fn table_of_transitions_is_whole_and_in_the_documentation() {
    ThreadState::TABLE.validate().unwrap();
    ThreadState::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/scheduling.md"));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "illegal move of a thread: Active, Arrive, Active")]
fn thread_that_arrives_twice_is_found() {
    rules(2).arrive(0);
}
