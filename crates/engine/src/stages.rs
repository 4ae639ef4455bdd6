//! The measurement of the time that each request spends in each stage, for `kirsch profile`.
//!
//! A request is in one [`Stage`] at a time, from the system call that received its first byte to the one that sent its
//! last byte:
//!
//! ```text
//!   Read ─▶ Parse ─▶ Environ ─▶ Parse ─▶ Queue ─▶ Environ ─▶ App ─┬─▶ Other ─▶ Write ─▶ Other ─▶ Write ─▶ finished
//!     ▲       │                                             ▲     │            (compose)         (send)
//!     └─ Peer ┘ the rest has not arrived                    └Write┘ for each part of a body
//! ```
//!
//! Each moment belongs to one stage, so the stages of a request add up to its total. `Other` is the time outside all
//! other stages: for locks, bookkeeping, the access log, and the other responses of a pipelined batch. The engine reads
//! no clock of its own: the profiler passes one to it ([`Engine::take_times`](crate::Engine::take_times)). Without a
//! clock nothing is measured, and the hot path only has branches that are never taken.

use crate::app::CallId;
use crate::observe::{Observer, Stage};
use std::collections::VecDeque;

/// A clock for the stages. The engine reads it only while it measures.
pub trait StageClock: Send {
    /// Returns the nanoseconds since an arbitrary moment; never decreases.
    fn time(&mut self) -> u64;

    /// Returns the processor time in nanoseconds that the calling thread has used.
    fn worked(&mut self) -> u64;
}

/// The times of one answered request, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The time in each stage, in the order of [`Stage::ALL`].
    pub spent: [u64; Stage::ALL.len()],
    /// The processor time of threads in the stage [`Stage::App`].
    pub worked: u64,
    /// The number of clock readings whose cost is contained in this request's total.
    pub stamps: u64,
}

impl Times {
    /// Returns the time from the first byte received to the last byte sent. It excludes the reading of processor times,
    /// which is slow.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.spent.iter().sum()
    }

    /// Returns the time in one stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> u64 {
        self.spent[stage as usize]
    }
}

/// A request under way, and its current stage.
struct Lap {
    times: Times,
    stage: Stage,
    since: u64,
    /// The thread's processor time when the application stage began.
    worked_before: u64,
}

/// The requests of the exchange at one index of a connection: one after the other, and perhaps overlapping.
#[derive(Default)]
struct Lane {
    /// The request that is being received or handled.
    open: Option<Lap>,
    /// True if the request was opened before a receive, and nothing has arrived yet.
    is_fresh: bool,
    /// The requests whose responses have not been sent completely.
    answered: Vec<Lap>,
}

/// The measured times of all exchanges of an engine, by the slot of the connection and the index of the exchange.
pub(crate) struct Stages {
    clock: Box<dyn StageClock>,
    /// The processor time in nanoseconds for reading the clocks, which is subtracted from each measurement.
    reading: u64,
    lanes: Vec<Vec<Lane>>,
    finished: VecDeque<Times>,
    /// The maximum number of finished requests whose times are kept.
    room: usize,
    /// The number of finished requests whose times were dropped for lack of room.
    dropped: u64,
}

impl Stages {
    pub(crate) fn new(mut clock: Box<dyn StageClock>, room: usize) -> Self {
        // Read the clocks as around a call, but without a call in between. Other load on the machine can only increase
        // the result, so take the minimum.
        let mut around_nothing = || {
            let before = clock.worked();
            clock.time();
            clock.time();
            clock.worked().saturating_sub(before)
        };
        let reading = (0..32).map(|_| around_nothing()).min().unwrap_or(0);
        Self { clock, reading, lanes: Vec::new(), finished: VecDeque::new(), room, dropped: 0 }
    }

    fn lane(&mut self, call: CallId) -> &mut Lane {
        if self.lanes.len() <= call.slot {
            self.lanes.resize_with(call.slot + 1, Vec::new);
        }
        let (lanes, at) = (&mut self.lanes[call.slot], call.exchange as usize);
        if lanes.len() <= at {
            lanes.resize_with(at + 1, Lane::default);
        }
        &mut lanes[at]
    }

    fn open(&mut self, call: CallId, stage: Stage) {
        let since = self.clock.time();
        let times = Times { stamps: 1, ..Times::default() };
        self.lane(call).open = Some(Lap { times, stage, since, worked_before: 0 });
    }

    fn switch_answered(&mut self, slot: usize, stage: Stage) {
        for lap in self.lanes.get_mut(slot).into_iter().flatten().flat_map(|lane| &mut lane.answered) {
            lap.switch(stage, &mut *self.clock, self.reading);
        }
    }

    /// Removes and returns the times of finished requests, and the number of requests whose times were dropped for lack
    /// of room.
    pub(crate) fn take(&mut self) -> (Vec<Times>, u64) {
        (self.finished.drain(..).collect(), std::mem::take(&mut self.dropped))
    }
}

impl Observer for Stages {
    #[cold]
    fn switch(&mut self, call: CallId, stage: Stage) -> Option<Stage> {
        let lap = self.lanes.get_mut(call.slot)?.get_mut(call.exchange as usize)?.open.as_mut()?;
        let before = lap.stage;
        if before != stage {
            lap.switch(stage, &mut *self.clock, self.reading);
        }
        Some(before)
    }

    #[cold]
    fn receive(&mut self, call: CallId) {
        if self.switch(call, Stage::Read).is_none() {
            self.open(call, Stage::Read);
            self.lane(call).is_fresh = true;
        }
    }

    #[cold]
    fn received(&mut self, call: CallId, anything: bool) {
        let is_fresh = std::mem::take(&mut self.lane(call).is_fresh);
        if anything {
            self.switch(call, Stage::Parse);
        } else if is_fresh {
            self.lane(call).open = None;
        } else {
            self.switch(call, Stage::Peer);
        }
    }

    #[cold]
    fn parse(&mut self, call: CallId) {
        if self.switch(call, Stage::Parse).is_none() {
            self.open(call, Stage::Parse);
        }
    }

    #[cold]
    fn answered(&mut self, call: CallId) {
        self.switch(call, Stage::Other);
        let lane = self.lane(call);
        lane.answered.extend(lane.open.take());
    }

    #[cold]
    fn give_up(&mut self, call: CallId) {
        self.lane(call).open = None;
    }

    #[cold]
    fn send(&mut self, slot: usize) {
        self.switch_answered(slot, Stage::Write);
    }

    #[cold]
    fn sent(&mut self, slot: usize, all: bool) {
        self.switch_answered(slot, if all { Stage::Other } else { Stage::Peer });
        if !all {
            return;
        }
        for lap in self.lanes.get_mut(slot).into_iter().flatten().flat_map(|lane| lane.answered.drain(..)) {
            if self.finished.len() < self.room {
                self.finished.push_back(lap.times);
            } else {
                self.dropped += 1;
            }
        }
    }

    #[cold]
    fn forget(&mut self, slot: usize) {
        if let Some(lanes) = self.lanes.get_mut(slot) {
            lanes.clear();
        }
    }
}

impl Lap {
    fn switch(&mut self, stage: Stage, clock: &mut dyn StageClock, reading: u64) {
        let now = clock.time();
        self.times.spent[self.stage as usize] += now.saturating_sub(self.since);
        self.times.stamps += 1;
        self.since = now;
        // Reading the processor time is a slow system call, so its duration is counted in neither stage.
        if self.stage == Stage::App && stage != Stage::App {
            self.times.worked += clock.worked().saturating_sub(self.worked_before + reading);
            self.since = clock.time();
        } else if stage == Stage::App && self.stage != Stage::App {
            self.worked_before = clock.worked();
            self.since = clock.time();
        }
        self.stage = stage;
    }
}
