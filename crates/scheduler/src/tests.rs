//! Tests of single rules: the action that a thread gets, and the thread that is notified. Loom (`model.rs`) and the
//! simulator cover all interleavings.

use crate::{Action, Pace, RouteKey, Rules, StartedCall, Wanted, WorkSource};
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

    /// Gives the thread a call with this key, which it begins.
    fn run(&mut self, worker: usize, route_key: RouteKey) -> StartedCall {
        self.put(None, route_key);
        let Action::Run(piece) = self.decide(worker, ()) else { panic!("the piece put there has to run") };
        self.begin(&piece)
    }

    /// Lets the thread become a follower. It must have nothing to run, and another thread must lead.
    fn let_follow(&mut self, worker: usize) {
        loop {
            match self.decide(worker, ()) {
                Action::CleanUp => {}
                Action::Follow(None) => return self.follow(worker),
                Action::Lead => panic!("thread 0 leads"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Teaches the predictor that slow calls block and fast ones do not.
    fn teach(&mut self) {
        for _ in 0..3 {
            let started_call = self.run(0, SLOW);
            self.let_others_follow(&started_call);
            self.end(&started_call, Some(WAIT));
            let started_call = self.run(0, FAST);
            self.let_others_follow(&started_call);
            self.end(&started_call, started_call.is_measured().then_some(Duration::ZERO));
        }
    }

    /// Lets started and notified threads become followers, while thread 0 leads.
    fn let_others_follow(&mut self, started_call: &StartedCall) {
        for worker in self.take_signals().into_iter().chain(started_call.start) {
            self.arrive();
            let ((), _) = self.lead(0).expect("no thread leads");
            self.let_follow(worker);
            self.return_poller(0, ());
        }
    }
}

#[test]
fn begin_notifies_a_follower_only_for_a_predicted_call() {
    let mut rules = rules(2);
    rules.teach();
    rules.source_mut().connections = 5;
    let before = rules.pool_statistics().handovers;
    let fast = rules.run(0, FAST);
    assert_eq!((rules.pool_statistics().handovers, fast.ticks), (before, Some(Pace::Quick)));
    rules.end(&fast, None);
    let slow = rules.run(0, SLOW);
    assert_eq!((rules.pool_statistics().handovers, slow.ticks), (before + 1, None));
    let notified = rules.take_signals();
    assert_eq!(notified.len(), 1);
    // The notified thread leads at once.
    rules.arrive();
    assert!(rules.is_notified(notified[0]) && rules.lead_at_once(notified[0]).is_some());
    rules.end(&slow, None);
}

#[test]
fn begin_notifies_no_follower_when_all_clients_wait_and_a_call_returns_soon() {
    const MOST: usize = 20;
    let mut rules = rules(MOST);
    rules.teach();
    // Nine of ten calls run, and then the tenth begins. As they take 20 ms each, one returns every 2 ms. The first
    // round starts the threads for them.
    for connections in [MOST, 10] {
        rules.source_mut().connections = connections;
        let before = rules.pool_statistics();
        let out: Vec<_> = (0..connections - 1)
            .map(|_| {
                let started_call = rules.run(0, SLOW);
                rules.let_others_follow(&started_call);
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
    // When no call has returned for long, a tick notifies a follower. It takes two ticks to see that nothing has
    // changed.
    assert_eq!(rules.tick(), Wanted::Steadily);
    assert!(rules.take_signals().is_empty());
    rules.source_mut().time.set(Duration::from_millis(10));
    rules.tick();
    assert_eq!(rules.take_signals().len(), 1);
}

#[test]
fn thread_with_work_in_its_inbox_stays_until_the_work_may_run() {
    let mut rules = rules(2);
    let first = rules.run(0, FAST);
    assert_eq!(first.start, Some(1));
    rules.arrive();
    let second = rules.run(1, FAST);
    assert_eq!(second.start, Some(2));
    rules.arrive();
    // Both calls hang, and the work source is over.
    rules.put(Some(2), FAST);
    assert!(matches!(rules.decide(2, ()), Action::Lead));
    assert_eq!(rules.pinned_work().count(), 1);
    rules.source_mut().is_over = true;
    assert!(matches!(rules.decide(2, ()), Action::Lead));
    assert!(!rules.before_lead().0);
    let ((), timeout) = rules.lead(2).expect("its inbox may not run, so the thread waits");
    assert_eq!(timeout, None);
    // One of the calls returns after all. Its thread exits, and wakes thread 2.
    let wakes = rules.source().wakes.get();
    rules.end(&first, None);
    assert!(matches!(rules.decide(0, ()), Action::Exit));
    rules.exit();
    assert!(rules.source().wakes.get() > wakes);
    rules.return_poller(2, ());
    assert!(matches!(rules.decide(2, ()), Action::Run(Piece { owner: Some(2), .. })));
}
