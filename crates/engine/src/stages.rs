//! Where the time of each request goes, for whoever profiles a server.
//!
//! A request is in one [`Stage`] at a time, from the call that received its first byte to the one that sent its last:
//!
//! ```text
//!   Read ─▶ Parse ─▶ Environ ─▶ Parse ─▶ Queue ─▶ Environ ─▶ App ─┬─▶ Other ─▶ Write ─▶ Other ─▶ Write ─▶ finished
//!     ▲       │                                             ▲     │            (compose)         (send)
//!     └─ Peer ┘ the rest has not arrived                    └Write┘ for each part of a body
//! ```
//!
//! Each moment belongs to one stage, so the stages of a request add up to its total. What nobody claims is `Other`:
//! locks, bookkeeping, the access log, the answers that a pipelined batch is held for. The engine reads no clock: whoever
//! wants these times gives it one ([`Engine::take_times`](crate::Engine::take_times)); otherwise nothing is stamped, and
//! what is left of it on the hot path are branches that are never taken.

use std::collections::VecDeque;

/// What reads the time. Never asked unless somebody wants the times of stages.
pub trait StageClock: Send {
    /// Nanoseconds since any moment; it never goes back.
    fn time(&mut self) -> u64;

    /// Nanoseconds of processor time that the calling thread has used.
    fn worked(&mut self) -> u64;
}

/// What is done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Stage {
    /// It is received from the socket.
    Read,
    /// Its head and the framing of its body are understood, its body is kept.
    Parse,
    /// It is made into what the application is given.
    Environ,
    /// It is ready, and waits for whoever calls the application; or a response waits for its turn.
    Queue,
    /// The application works, its iterable included.
    App,
    /// The response is composed and sent.
    Write,
    /// Its peer has not sent the rest of it, or not read what it was answered.
    Peer,
    /// Everything else.
    Other,
}

impl Stage {
    /// All of them, with their names, in the order of [`Times::spent`].
    pub const ALL: [(Self, &str); 8] = [
        (Self::Read, "read"),
        (Self::Parse, "parse"),
        (Self::Environ, "environ"),
        (Self::Queue, "queue"),
        (Self::App, "app"),
        (Self::Write, "write"),
        (Self::Peer, "peer"),
        (Self::Other, "other"),
    ];
}

/// The times of one request that was answered, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In each stage, in the order of [`Stage::ALL`].
    pub spent: [u64; Stage::ALL.len()],
    /// Processor time of the threads in which the application worked, while it did.
    pub worked: u64,
    /// How often the clock was read for it, without what is left out of the total.
    pub stamps: u64,
}

impl Times {
    /// From the first byte received to the last one sent, without the reading of processor times, which is slow.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.spent.iter().sum()
    }

    /// In one stage.
    #[must_use]
    pub fn of(&self, stage: Stage) -> u64 {
        self.spent[stage as usize]
    }
}

/// A request under way.
struct Lap {
    times: Times,
    stage: Stage,
    since: u64,
    /// What the thread had worked when the application began to.
    worked_before: u64,
}

/// What is under way on one connection.
#[derive(Default)]
struct Lane {
    /// The request that is read, or answered.
    open: Option<Lap>,
    /// It was opened to receive, and nothing has come yet.
    is_fresh: bool,
    /// Those whose answers have not left as a whole.
    answered: Vec<Lap>,
}

/// Stamps for all connections of an engine, by their slots.
pub(crate) struct Stages {
    clock: Box<dyn StageClock>,
    /// What reading the times adds to the processor time that is read.
    reading: u64,
    lanes: Vec<Lane>,
    finished: VecDeque<Times>,
    /// As many finished ones are kept.
    room: usize,
    /// And so many were not.
    dropped: u64,
}

impl Stages {
    pub(crate) fn new(mut clock: Box<dyn StageClock>, room: usize) -> Self {
        // As it is read around a call, with nothing in between. What else the machine does makes it longer only.
        let mut around_nothing = || {
            let before = clock.worked();
            clock.time();
            clock.time();
            clock.worked().saturating_sub(before)
        };
        let reading = (0..32).map(|_| around_nothing()).min().unwrap_or(0);
        Self { clock, reading, lanes: Vec::new(), finished: VecDeque::new(), room, dropped: 0 }
    }

    fn lane(&mut self, slot: usize) -> &mut Lane {
        if self.lanes.len() <= slot {
            self.lanes.resize_with(slot + 1, Lane::default);
        }
        &mut self.lanes[slot]
    }

    fn open(&mut self, slot: usize, stage: Stage) {
        let since = self.clock.time();
        let times = Times { stamps: 1, ..Times::default() };
        self.lane(slot).open = Some(Lap { times, stage, since, worked_before: 0 });
    }

    /// The request on this connection goes over to `stage`. Returns the one that it comes from; `None` without a request.
    #[cold]
    pub(crate) fn switch(&mut self, slot: usize, stage: Stage) -> Option<Stage> {
        let lap = self.lanes.get_mut(slot)?.open.as_mut()?;
        let before = lap.stage;
        if before != stage {
            lap.switch(stage, &mut *self.clock, self.reading);
        }
        Some(before)
    }

    /// The request waits, if there is something that it waits for.
    #[cold]
    pub(crate) fn wait(&mut self, slot: usize, next: Option<Stage>) {
        if let Some(stage) = next {
            self.switch(slot, stage);
        }
    }

    /// Something may be received now that belongs to a request.
    #[cold]
    pub(crate) fn receive(&mut self, slot: usize) {
        if self.switch(slot, Stage::Read).is_none() {
            self.open(slot, Stage::Read);
            self.lane(slot).is_fresh = true;
        }
    }

    /// It has been, or nothing was there.
    #[cold]
    pub(crate) fn received(&mut self, slot: usize, anything: bool) {
        let is_fresh = std::mem::take(&mut self.lane(slot).is_fresh);
        if anything {
            self.switch(slot, Stage::Parse);
        } else if is_fresh {
            self.lane(slot).open = None;
        } else {
            self.switch(slot, Stage::Peer);
        }
    }

    /// A head may be here. If it was received together with another request, this one begins now.
    #[cold]
    pub(crate) fn parse(&mut self, slot: usize) {
        if self.switch(slot, Stage::Parse).is_none() {
            self.open(slot, Stage::Parse);
        }
    }

    /// The request has its answer, of which not all has left.
    #[cold]
    pub(crate) fn answered(&mut self, slot: usize) {
        self.switch(slot, Stage::Other);
        let lane = self.lane(slot);
        lane.answered.extend(lane.open.take());
    }

    /// The request has no times: the application was not called, or did not come to an end that its peer could see.
    #[cold]
    pub(crate) fn give_up(&mut self, slot: usize) {
        self.lane(slot).open = None;
    }

    /// What is composed for this connection is about to be sent.
    #[cold]
    pub(crate) fn send(&mut self, slot: usize) {
        self.switch_answered(slot, Stage::Write);
    }

    /// It has been; `all`: nothing of it is left.
    #[cold]
    pub(crate) fn sent(&mut self, slot: usize, all: bool) {
        self.switch_answered(slot, if all { Stage::Other } else { Stage::Peer });
        if !all {
            return;
        }
        let Some(lane) = self.lanes.get_mut(slot) else { return };
        for lap in lane.answered.drain(..) {
            if self.finished.len() < self.room {
                self.finished.push_back(lap.times);
            } else {
                self.dropped += 1;
            }
        }
    }

    fn switch_answered(&mut self, slot: usize, stage: Stage) {
        let Some(lane) = self.lanes.get_mut(slot) else { return };
        for lap in &mut lane.answered {
            lap.switch(stage, &mut *self.clock, self.reading);
        }
    }

    /// The connection is gone.
    #[cold]
    pub(crate) fn forget(&mut self, slot: usize) {
        *self.lane(slot) = Lane::default();
    }

    /// Those that are finished, and how many there was no room for.
    pub(crate) fn take(&mut self) -> (Vec<Times>, u64) {
        (self.finished.drain(..).collect(), std::mem::take(&mut self.dropped))
    }
}

impl Lap {
    fn switch(&mut self, stage: Stage, clock: &mut dyn StageClock, reading: u64) {
        let now = clock.time();
        self.times.spent[self.stage as usize] += now.saturating_sub(self.since);
        self.times.stamps += 1;
        self.since = now;
        // Where it is read, the processor's time is part of neither stage: it is a system call, and slow.
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
