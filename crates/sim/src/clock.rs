//! Virtual time, the calendar of events, and the state that all parts of a world share.

use engine::Now;
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// Virtual time in microseconds since the world began.
pub(crate) type Micros = u64;

pub(crate) const MILLI: Micros = 1_000;
pub(crate) const SECOND: Micros = 1_000_000;

/// The tolerance by which a time limit may take effect late: the engine's grain, the clock's grain, and the time to
/// wake a thread.
pub(crate) const SLACK: Micros = 120 * MILLI;
/// The tolerance by which a time limit may take effect early, because of the clock's grain.
pub(crate) const EARLY: Micros = 5 * MILLI;
/// The time for which the engine lets a connection linger.
pub(crate) const LINGER: Micros = 2 * SECOND;

/// The time since 1970 at which the world begins, for the Date field.
const WALL: Duration = Duration::from_secs(1_700_000_000);
/// The maximum number of polls without progress in quick succession. More polls are a busy loop.
const IDLE_POLLS: u64 = 64;

pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// An event at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Something that the peer sent on this connection arrives at the server: the connection's start, bytes, an end, or
    /// a reset.
    ArriveAtServer(usize),
    /// Something that the server sent arrives at the peer on this connection.
    ArriveAtPeer(usize),
    /// The server learns that there is room for its output on this connection.
    RoomAtServer(usize),
    /// The peer learns that there is room for its output on this connection.
    RoomAtPeer(usize),
    /// A peer acts. The event is void unless its second number is the peer's current one.
    Peer(usize, u64),
    /// A thread continues. The event is void unless its second number is the thread's current one.
    Worker(usize, u64),
    /// The ticker ticks. The event is void unless its number is the current one.
    Tick(u64),
    /// The server begins to drain.
    Drain,
    /// The server stops, as this entry of [`Plan::stops`](crate::plan::Plan::stops) says.
    Stop(usize),
    /// The rest of the process opens or closes files.
    Files,
    /// The peer of this request may lose patience, if the request is ready and still waits.
    PatienceEnds(usize),
    /// The event loop continues. The event is void unless its number is the current one.
    Loop(u64),
    /// A thread other than the loop's acts, as this entry of the plan says.
    Outside(usize),
}

/// The state that all parts of a world share: time, calendar, random choices, and the failure.
#[derive(Debug)]
pub(crate) struct Shared {
    now: Cell<Micros>,
    calendar: RefCell<BinaryHeap<Reverse<(Micros, u64, Event)>>>,
    scheduled: Cell<u64>,
    rng: RefCell<Rng>,
    traces: bool,
    /// The count of progress, by which a busy loop is detected.
    moves: Cell<u64>,
    moved_at: Cell<Micros>,
    failure: RefCell<Option<String>>,
}

impl Shared {
    /// Returns the time on the engine's clock, which advances in steps of `grain`.
    pub(crate) fn engine_now(&self, grain: Micros) -> Now {
        let now = Duration::from_micros(self.now() / grain * grain);
        Now { monotonic: now, wall: WALL + now }
    }

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

    /// Schedules `event` at `at`, which must not be in the past. Events at the same time happen in the order in which
    /// they were scheduled.
    pub(crate) fn schedule(&self, at: Micros, event: Event) {
        let number = self.scheduled.get();
        self.scheduled.set(number + 1);
        self.calendar.borrow_mut().push(Reverse((at.max(self.now()), number, event)));
    }

    /// Advances time to the next event, and removes and returns that event; `None` if there is none.
    pub(crate) fn advance(&self) -> Option<Event> {
        let Reverse((at, _, event)) = self.calendar.borrow_mut().pop()?;
        self.now.set(at);
        Some(event)
    }

    /// Returns true with a probability of one in `count`.
    pub(crate) fn one_in(&self, count: u32) -> bool {
        self.rng.borrow_mut().u32(0..count) == 0
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.rng.borrow_mut().u64(0..bound.max(1))
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        self.rng.borrow_mut().usize(0..length)
    }

    /// Returns a separate generator, for choices that are drawn in advance.
    pub(crate) fn fork(&self) -> Rng {
        self.rng.borrow_mut().fork()
    }

    pub(crate) fn moved(&self) {
        self.moves.set(self.moves.get() + 1);
        self.moved_at.set(self.now());
    }

    /// Returns the time of the last progress.
    pub(crate) fn moved_at(&self) -> Micros {
        self.moved_at.get()
    }

    pub(crate) fn moves(&self) -> u64 {
        self.moves.get()
    }

    /// Makes the world fail. Only the first failure is kept.
    ///
    /// This does not panic, because the engine would catch a panic within its methods.
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

/// Returns the time in seconds with six decimal places.
pub(crate) fn moment(at: Micros) -> String {
    format!("{}.{:06}", at / SECOND, at % SECOND)
}

/// The number of polls of the engine since the last progress, and the time of the first of them.
#[derive(Default)]
pub(crate) struct IdlePolls {
    count: u64,
    since: Micros,
    moves: u64,
}

impl IdlePolls {
    /// Fails the world if the engine is polled repeatedly without any progress.
    pub(crate) fn note(&mut self, shared: &Shared, has_work: bool) {
        let (now, moves) = (shared.now(), shared.moves());
        if has_work || moves != self.moves {
            *self = Self { count: 0, since: now, moves };
        }
        self.count += 1;
        let polls = self.count;
        if polls > IDLE_POLLS && now - self.since < polls * MILLI / 2 {
            shared.fail(|| format!("the engine is polled {polls} times without progress"));
        }
    }
}
