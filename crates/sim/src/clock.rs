//! Virtual time, what is to happen in it, and what everybody in the world shares.

use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Microseconds since the world began.
pub(crate) type Micros = u64;

pub(crate) const MILLI: Micros = 1_000;
pub(crate) const SECOND: Micros = 1_000_000;

/// Something that happens at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// What was sent towards the server arrives on this connection: the start of it, bytes, an end, a reset.
    ArriveAtServer(usize),
    /// What was sent towards the peer arrives on this connection.
    ArriveAtPeer(usize),
    /// The sending side of the server learns of room.
    RoomAtServer(usize),
    /// The sending side of the peer does.
    RoomAtPeer(usize),
    /// A peer acts. An event of an older round is void.
    Peer(usize, u64),
    /// A thread goes on. An event of an older round is void.
    Worker(usize, u64),
    /// The ticking thread ticks. An event of an older round is void.
    Tick(u64),
    /// The server is told to drain.
    Drain,
    /// It is told to stop, as this number of its plan says.
    Stop(usize),
    /// The rest of the process opens or closes files.
    Files,
    /// A request that was ready then may still wait: its peer may leave.
    Waits(usize),
}

/// What everybody shares: time, what is to come, chance, and what went wrong.
#[derive(Debug)]
pub(crate) struct Shared {
    now: Cell<Micros>,
    calendar: RefCell<BinaryHeap<Reverse<(Micros, u64, Event)>>>,
    scheduled: Cell<u64>,
    rng: RefCell<Rng>,
    traces: bool,
    /// Counts what moved, so that a server that is busy without doing anything is seen.
    moves: Cell<u64>,
    moved_at: Cell<Micros>,
    failure: RefCell<Option<String>>,
}

impl Shared {
    pub(crate) fn new(seed: u64, traces: bool) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::new(0),
            calendar: RefCell::default(),
            scheduled: Cell::new(0),
            rng: RefCell::new(Rng::with_seed(seed)),
            traces,
            moves: Cell::new(0),
            moved_at: Cell::new(0),
            failure: RefCell::new(None),
        })
    }

    pub(crate) fn now(&self) -> Micros {
        self.now.get()
    }

    /// Has `event` happen at `at`, which is not in the past; those of one moment happen in the order of this call.
    pub(crate) fn schedule(&self, at: Micros, event: Event) {
        let number = self.scheduled.get();
        self.scheduled.set(number + 1);
        self.calendar.borrow_mut().push(Reverse((at.max(self.now()), number, event)));
    }

    /// Moves time on to what happens next.
    pub(crate) fn advance(&self) -> Option<Event> {
        let Reverse((at, _, event)) = self.calendar.borrow_mut().pop()?;
        self.now.set(at);
        Some(event)
    }

    /// A chance of one in `count`.
    pub(crate) fn one_in(&self, count: u32) -> bool {
        self.rng.borrow_mut().u32(0..count) == 0
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().u64(0..bound.max(1))
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        self.rng.borrow_mut().usize(0..length)
    }

    /// A generator of its own for what is drawn in advance.
    pub(crate) fn fork(&self) -> Rng {
        self.rng.borrow_mut().fork()
    }

    pub(crate) fn moved(&self) {
        self.moves.set(self.moves.get() + 1);
        self.moved_at.set(self.now());
    }

    /// When something moved last.
    pub(crate) fn moved_at(&self) -> Micros {
        self.moved_at.get()
    }

    pub(crate) fn moves(&self) -> u64 {
        self.moves.get()
    }

    /// Something that must not happen has happened. The first one ends the world.
    ///
    /// It is no panic, because the engine contains those that come up within it.
    pub(crate) fn fail(&self, what: impl FnOnce() -> String) {
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            let what = what();
            self.trace(|| format!("FAILED: {what}"));
            *failure = Some(format!("at {}: {what}", moment(self.now())));
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.borrow().is_some()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>14}  {}", moment(self.now()), what());
        }
    }
}

/// Seconds with six places.
pub(crate) fn moment(at: Micros) -> String {
    format!("{}.{:06}", at / SECOND, at % SECOND)
}
