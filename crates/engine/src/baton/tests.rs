//! The rules, one step at a time: what is decided, and who is called. What comes of it in all orders is tried with loom
//! (`model.rs`) and in the simulator.

use super::forecast::Kind;
use super::rules::{Begun, Do, Rules};
use crate::baton::Core;
use crate::ticker::{Pace, Wanted};
use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

const FAST: Kind = Kind::of(1);
const SLOW: Kind = Kind::of(2);
const WAIT: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Piece {
    owner: Option<usize>,
    kind: Kind,
}

/// A core that hands out what a test has put there.
struct Heap {
    pieces: VecDeque<Piece>,
    peers: usize,
    is_over: bool,
    wakes: Cell<u32>,
    time: Cell<Duration>,
}

impl Core for Heap {
    type Work = Piece;
    type Watch = ();

    fn next(&mut self, may_call: bool) -> Option<Piece> {
        let is_allowed = self.pieces.front().is_some_and(|piece| may_call || piece.owner.is_some());
        if is_allowed { self.pieces.pop_front() } else { None }
    }

    fn owner(piece: &Piece) -> Option<usize> {
        piece.owner
    }

    fn kind(piece: &Piece) -> Option<Kind> {
        Some(piece.kind)
    }

    fn has_queued(&self) -> bool {
        !self.pieces.is_empty()
    }

    fn peers(&self) -> usize {
        self.peers
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

    fn is_holding(&self) -> bool {
        false
    }

    fn tick(&mut self) {}

    fn is_over(&self) -> bool {
        self.is_over
    }
}

fn rules(most: usize) -> Rules<Heap> {
    let heap =
        Heap { pieces: VecDeque::new(), peers: most, is_over: false, wakes: Cell::default(), time: Cell::default() };
    Rules::new(heap, (), most)
}

impl Rules<Heap> {
    fn put(&mut self, owner: Option<usize>, kind: Kind) {
        self.core_mut().pieces.push_back(Piece { owner, kind });
    }

    /// The thread gets this and runs it.
    fn run(&mut self, worker: usize, kind: Kind) -> Begun {
        self.put(None, kind);
        let Do::Run(piece) = self.decide(worker) else { panic!("there is something to run") };
        self.begin(&piece)
    }

    /// The thread has nothing to do, and stands by, or holds the baton and puts it down at once.
    fn rest(&mut self, worker: usize) {
        loop {
            match self.decide(worker) {
                Do::Tidy => {}
                Do::StandBy(None) => return self.stand_by(worker),
                Do::Hold => panic!("somebody else holds the baton"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The rules know that slow calls wait.
    fn teach(&mut self) {
        for _ in 0..3 {
            let begun = self.run(0, SLOW);
            self.settle_in(&begun);
            self.end(&begun, Some(WAIT));
            let begun = self.run(0, FAST);
            self.settle_in(&begun);
            self.end(&begun, begun.is_measured().then_some(Duration::ZERO));
        }
    }

    /// Threads that were started or called find nothing to do: they stand by, since another holds the baton then.
    fn settle_in(&mut self, begun: &Begun) {
        for worker in self.take_signals().into_iter().chain(begun.start) {
            self.arrive();
            let ((), _) = self.hold(0).expect("the baton lies there");
            self.rest(worker);
            self.put_down(0, ());
        }
    }
}

#[test]
fn for_a_call_that_waits_somebody_is_called_and_for_a_fast_one_nobody() {
    let mut rules = rules(2);
    rules.teach();
    rules.core_mut().peers = 5;
    let before = rules.muster().handovers;
    let fast = rules.run(0, FAST);
    assert_eq!((rules.muster().handovers, fast.ticks), (before, Some(Pace::Quick)));
    rules.end(&fast, None);
    let slow = rules.run(0, SLOW);
    assert_eq!((rules.muster().handovers, slow.ticks), (before + 1, None));
    let called = rules.take_signals();
    assert_eq!(called.len(), 1);
    // It takes the baton at once.
    rules.arrive();
    assert!(rules.is_called(called[0]) && rules.hold_at_once(called[0]).is_some());
    rules.end(&slow, None);
}

#[test]
fn where_all_connections_wait_for_calls_that_are_soon_over_nobody_is_called() {
    const MOST: usize = 20;
    let mut rules = rules(MOST);
    rules.teach();
    // Nine of ten are out, and then the tenth, too: with 20 ms each, one returns every 2 ms. Before, threads for them were
    // started.
    for peers in [MOST, 10] {
        rules.core_mut().peers = peers;
        let before = rules.muster();
        let out: Vec<_> = (0..peers - 1)
            .map(|_| {
                let begun = rules.run(0, SLOW);
                rules.settle_in(&begun);
                begun
            })
            .collect();
        assert!(rules.muster().handovers > before.handovers);
        if peers == MOST {
            for begun in &out {
                rules.end(begun, None);
            }
        }
    }
    let before = rules.muster();
    let last = rules.run(0, SLOW);
    assert_eq!((rules.muster().handovers, last.ticks), (before.handovers, Some(Pace::Steady)));
    // None has returned for long: a tick calls somebody. It needs two ticks to see that nothing was done.
    assert_eq!(rules.tick(), Wanted::Steadily);
    assert!(rules.take_signals().is_empty());
    rules.core_mut().time.set(Duration::from_millis(10));
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
    assert!(matches!(rules.decide(2), Do::Hold));
    assert_eq!(rules.mail().count(), 1);
    rules.core_mut().is_over = true;
    assert!(matches!(rules.decide(2), Do::Hold));
    assert!(!rules.before_hold().0);
    let ((), timeout) = rules.hold(2).expect("it may not run, and does not go round and round");
    assert_eq!(timeout, None);
    // One of them ends after all. Its thread leaves, and tells it.
    let wakes = rules.core().wakes.get();
    rules.end(&first, None);
    assert!(matches!(rules.decide(0), Do::Leave));
    rules.leave();
    assert!(rules.core().wakes.get() > wakes);
    rules.put_down(2, ());
    assert!(matches!(rules.decide(2), Do::Run(Piece { owner: Some(2), .. })));
}
