//! Engine groups: the engines that accept from the same listeners, in one process or several, share new connections
//! evenly. A connection goes to the engine that has the fewest.
//!
//! # The rule
//!
//! The kernel wakes one or several engines for a new connection; an engine cannot know in advance which ones. An engine
//! that was woken compares itself with the others before each accept ([`Membership::better`]):
//!
//! * An engine that stops, drains or is at its limit of connections accepts nothing.
//! * An engine that has begun no call for [`BUSY_AFTER`], because all its threads are in calls or requests are queued,
//!   is *busy*. An engine that is not busy is preferred, regardless of the numbers of connections. Shorter calls do not
//!   make an engine busy, even if there are many of them, because a thread is free soon.
//! * Otherwise the numbers of connections decide. An engine accepts while it has at most one connection more than the
//!   other. Afterwards it has at most two more, and no engine exceeds the mean by more than two.
//! * If clients open a connection for each request, numbers change faster than the engines can balance them, and
//!   differences do not last. An engine then accepts while it has at most [`SLACK_IF_BRIEF`] connections more.
//!
//! An engine that leaves a connection to another one leaves it in the kernel's queue and wakes that engine
//! ([`Membership::notify`]). As long as the numbers are balanced, the rule costs a few loads and no system call.
//!
//! # No connection is left in the queue
//!
//! The other engine may never accept the connection: its thread may hold the GIL in a long call, the process may be
//! stopped or dead, or it may not have this listener at all. So an engine that left a connection checks its listeners
//! again after [`PATIENCE`], or after [`PATIENCE_IN_CALLS`] if a call may delay the other engine. If a connection waits
//! there and the other engine has accepted nothing in between, this engine leaves no connection to the other for
//! [`PASSED_OVER_FOR`], or until the other has accepted one. So nothing depends on an answer of the other engine, or on
//! the order in which stores become visible: a stale record costs balance or a few milliseconds, never a connection.
//!
//! # The records
//!
//! Each engine publishes its state in a [`Member`] record. The records of one process's engines are in one
//! [`ProcessRecord`]. A single process has its record in its own memory. Workers have their records in memory that the
//! supervisor shares with all of them; the supervisor clears the record of a worker that has exited. All-zero memory is
//! the record of a process without engines.

use crate::os::{Bell, Waker};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The time after which an engine that could begin no call is busy. This is a few times as long as a thread waits for a
/// processor on an overloaded machine, so that an engine with short calls does not count as busy there.
const BUSY_AFTER: Duration = Duration::from_millis(30);
/// The time to wait for an engine that runs no call, or that polled within this time. On an overloaded machine a thread
/// may wait that long for a processor.
const PATIENCE: Duration = Duration::from_millis(100);
/// The time to wait for any other engine. It is shorter because a call may hold the GIL.
const PATIENCE_IN_CALLS: Duration = Duration::from_millis(20);
/// The time for which no connection is left to an engine that did not accept one in time, unless it accepts one
/// meanwhile.
const PASSED_OVER_FOR: Duration = Duration::from_secs(1);

/// The number of connections by which an engine may exceed another and still accept.
const SLACK: u64 = 1;
/// The number of connections by which an engine may exceed another after [`BRIEF_IN_A_ROW`] consecutive new connections
/// with one request each.
const SLACK_IF_BRIEF: u64 = 32;
const BRIEF_IN_A_ROW: u32 = 32;

/// Returns the maximum number of connections that an engine may have more than another and still accept.
/// `brief_in_a_row` is the number of consecutive new connections with one request each.
pub(crate) fn slack(brief_in_a_row: u32) -> u64 {
    if brief_in_a_row < BRIEF_IN_A_ROW { SLACK } else { SLACK_IF_BRIEF }
}

/// The maximum number of engines of one process in a group.
pub const ENGINES_MAX: usize = 63;

/// The published state of one engine. Each field is one atomic word, so readers never wait; fields that are read
/// together may be from different times. The alignment keeps the writes of one engine off the cache lines of another.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Member {
    connections: AtomicU64,
    /// The number of connections accepted so far.
    accepted: AtomicU64,
    /// 1 if the engine accepts connections.
    is_accepting: AtomicU64,
    /// The number of calls that are running or have to be resumed.
    calls: AtomicU64,
    /// The time of the engine's last poll, in milliseconds of `CLOCK_MONOTONIC`.
    polled_at: AtomicU64,
    /// The time since which the engine has begun no call because all threads are in calls or requests are queued, in
    /// milliseconds of `CLOCK_MONOTONIC`; 0 if it could begin one.
    busy_since: AtomicU64,
    /// 1 if another engine has notified this one, until this one checks its listeners.
    is_notified: AtomicU64,
}

/// The records of one process's engines.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct ProcessRecord {
    /// The number of members in use.
    engines: AtomicU64,
    members: [Member; ENGINES_MAX],
}

impl Default for ProcessRecord {
    fn default() -> Self {
        Self { engines: AtomicU64::new(0), members: std::array::from_fn(|_| Member::default()) }
    }
}

/// The records of all processes of a group, in shared memory.
pub struct SharedRecords {
    records: Box<[&'static ProcessRecord]>,
    bells: Box<[Bell]>,
    own: usize,
    _memory: Box<dyn Any + Send + Sync>,
}

impl SharedRecords {
    /// Creates the shared records. `records` are those of all processes; `own` is the index of this process's record.
    /// `bells` wake the processes, in the order of their records. `memory` keeps the records alive.
    ///
    /// # Panics
    /// If the numbers of bells and records differ, or `own` is not an index of them.
    #[must_use]
    pub fn new(
        records: Box<[&'static ProcessRecord]>,
        bells: Box<[Bell]>,
        own: usize,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Self {
        assert!(records.len() == bells.len() && own < records.len(), "each process has a record and a bell");
        Self { records, bells, own, _memory: memory }
    }

    /// Returns the number of processes that the records have room for.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.records.len()
    }

    /// Returns the bell that wakes this process. Each engine of the process has to watch it.
    #[must_use]
    pub fn own_bell(&self) -> &Bell {
        &self.bells[self.own]
    }
}

impl fmt::Debug for SharedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRecords").field("own", &self.own).field("of", &self.records.len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Records {
    Private(Box<ProcessRecord>),
    Shared(SharedRecords),
}

/// A group of engines that share listeners. See the module's documentation.
#[derive(Debug)]
pub struct EngineGroup {
    records: Records,
    /// The wakers of this process's engines.
    wakers: Box<[Waker]>,
    /// The number of connections for which this process's engines together have room.
    room: AtomicUsize,
    /// True if the process has reported that it accepts nothing although a connection waits.
    is_pause_reported: AtomicBool,
}

impl EngineGroup {
    /// Creates the group of this process's engines and of the engines in `shared`. `wakers` wake the pollers of this
    /// process's engines, in their order.
    ///
    /// # Panics
    /// If there are more than [`ENGINES_MAX`] engines.
    #[must_use]
    pub fn new(wakers: Vec<Waker>, shared: Option<SharedRecords>) -> Arc<Self> {
        assert!(wakers.len() <= ENGINES_MAX, "each engine has a record");
        let records = shared.map_or_else(|| Records::Private(Box::default()), Records::Shared);
        let group = Self {
            records,
            wakers: wakers.into(),
            room: AtomicUsize::new(0),
            is_pause_reported: AtomicBool::new(false),
        };
        let record = group.record(group.own());
        for member in &record.members[..group.wakers.len()] {
            member.clear();
        }
        record.engines.store(group.wakers.len() as u64, Ordering::Release);
        Arc::new(group)
    }

    /// Returns the membership of engine `index` of this process. `calls` is the maximum number of concurrent calls of
    /// that engine.
    #[must_use]
    pub fn membership(self: &Arc<Self>, index: usize, calls: usize) -> Membership {
        let calls = u64::try_from(calls).unwrap_or(u64::MAX);
        Membership { group: Arc::clone(self), index, calls, begun: 0, notified: Vec::new() }
    }

    fn own(&self) -> usize {
        match &self.records {
            Records::Private(_) => 0,
            Records::Shared(shared) => shared.own,
        }
    }

    fn processes(&self) -> usize {
        match &self.records {
            Records::Private(_) => 1,
            Records::Shared(shared) => shared.records.len(),
        }
    }

    fn record(&self, process: usize) -> &ProcessRecord {
        match &self.records {
            Records::Private(record) => record,
            Records::Shared(shared) => shared.records[process],
        }
    }

    fn member(&self, address: Address) -> &Member {
        &self.record(address.process).members[address.engine]
    }

    fn wake(&self, address: Address) {
        match &self.records {
            Records::Shared(shared) if address.process != shared.own => shared.bells[address.process].ring(),
            _ => self.wakers[address.engine].wake(),
        }
    }
}

/// The address of an engine in a group: its process and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    process: usize,
    engine: usize,
}

/// The state that an engine publishes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublishedState {
    /// See [`Member::calls`].
    pub(crate) calls: u64,
    /// The number of calls that the engine has begun so far.
    pub(crate) begun: u64,
    /// The number of requests in the engine's queue.
    pub(crate) queued: usize,
    pub(crate) connections: usize,
    pub(crate) accepted: u64,
    pub(crate) is_accepting: bool,
}

/// The membership of one engine in its group: its access to the published states.
#[derive(Debug)]
pub struct Membership {
    group: Arc<EngineGroup>,
    index: usize,
    /// The maximum number of concurrent calls of this engine.
    calls: u64,
    /// The number of calls that this engine had begun when it last published its state.
    begun: u64,
    /// The engines to which this one has left a connection and that have not accepted one since.
    notified: Vec<Notified>,
}

#[derive(Debug)]
struct Notified {
    address: Address,
    at: Duration,
    /// The time to wait until the engine accepts.
    patience: Duration,
    /// The number of connections that the engine had accepted when it was notified.
    accepted: u64,
    /// True if the connection left to the engine was still waiting when this engine checked again.
    did_not_come: bool,
}

impl Notified {
    fn is_due(&self, now: Duration) -> bool {
        now >= self.at + self.patience
    }
}

/// The suitability of an engine for a new connection. The lowest value is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    Free,
    Busy,
    NotAccepting,
}

impl Member {
    fn clear(&self) {
        let Self { connections, accepted, is_accepting, calls, polled_at, busy_since, is_notified } = self;
        for word in [connections, accepted, is_accepting, calls, polled_at, busy_since, is_notified] {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn patience(&self, now: Duration) -> Duration {
        let was_polled = moment(now) <= self.polled_at.load(Ordering::Relaxed).saturating_add(moment(PATIENCE));
        if was_polled || self.calls.load(Ordering::Relaxed) == 0 { PATIENCE } else { PATIENCE_IN_CALLS }
    }

    /// Returns the time when the engine becomes busy if it begins no call before, on `CLOCK_MONOTONIC`; `None` if it
    /// could begin a call.
    fn busy_at(&self) -> Option<Duration> {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_millis(since) + BUSY_AFTER),
        }
    }

    fn suitability(&self, now: Duration) -> Suitability {
        if self.is_accepting.load(Ordering::Relaxed) == 0 {
            return Suitability::NotAccepting;
        }
        match self.busy_at() {
            Some(at) if now >= at => Suitability::Busy,
            _ => Suitability::Free,
        }
    }
}

fn moment(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Stores the value if it differs. Most calls change nothing, and the other engines then keep their copy of the cache
/// line.
fn set(word: &AtomicU64, value: u64) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

impl Membership {
    fn address(&self) -> Address {
        Address { process: self.group.own(), engine: self.index }
    }

    fn own(&self) -> &Member {
        self.group.member(self.address())
    }

    /// Returns the other engines with their records: those of this process first, then those of the next process, and
    /// so on. So not all engines notify equally suitable ones in the same order.
    fn others(&self) -> impl Iterator<Item = (Address, &Member)> {
        let own = self.address();
        let processes = self.group.processes();
        let behind = move |distance| (own.process + distance) % processes;
        (0..processes).map(behind).flat_map(move |process| {
            let record = self.group.record(process);
            // A record that another process has corrupted must not cause an index out of bounds.
            let engines = usize::try_from(record.engines.load(Ordering::Acquire)).unwrap_or(0).min(ENGINES_MAX);
            let members = record.members[..engines].iter().enumerate();
            members
                .map(move |(engine, member)| (Address { process, engine }, member))
                .filter(move |(address, _)| *address != own)
        })
    }

    /// Adds `connections`, for which this engine has room, to the room of the process.
    pub(crate) fn has_room_for(&self, connections: usize) {
        self.group.room.fetch_add(connections, Ordering::Relaxed);
    }

    /// Returns the number of connections for which this process's engines together have room.
    pub(crate) fn room_of_all(&self) -> usize {
        self.group.room.load(Ordering::Relaxed)
    }

    /// Records whether a connection waits for which no engine of this process has room. Returns the previous value.
    pub(crate) fn note_pause(&self, is_pausing: bool) -> bool {
        self.group.is_pause_reported.swap(is_pausing, Ordering::Relaxed)
    }

    /// Clears the notification from another engine. Returns true if there was one.
    pub(crate) fn take_notification(&self) -> bool {
        let is_notified = &self.own().is_notified;
        is_notified.load(Ordering::Relaxed) != 0 && is_notified.swap(0, Ordering::Acquire) != 0
    }

    /// Publishes this engine's state.
    pub(crate) fn publish(&mut self, state: PublishedState, now: Duration) {
        let has_begun = std::mem::replace(&mut self.begun, state.begun) != state.begun;
        let own = self.own();
        set(&own.connections, state.connections as u64);
        set(&own.accepted, state.accepted);
        set(&own.is_accepting, state.is_accepting.into());
        set(&own.calls, state.calls);
        set(&own.polled_at, moment(now));
        let since = if state.queued == 0 && state.calls < self.calls {
            0
        } else {
            match own.busy_since.load(Ordering::Relaxed) {
                since if since != 0 && !has_begun => since,
                _ => moment(now).max(1),
            }
        };
        set(&own.busy_since, since);
    }

    /// Wakes the other engines, so that an engine without others now watches the listeners as a member of a group.
    pub(crate) fn wake_others(&self) {
        for (address, member) in self.others() {
            if member.is_accepting.load(Ordering::Relaxed) != 0 {
                self.group.wake(address);
            }
        }
    }

    /// Returns true if another engine accepts connections, too.
    pub(crate) fn has_others(&self) -> bool {
        self.others().any(|(_, member)| member.is_accepting.load(Ordering::Relaxed) != 0)
    }

    /// Returns true if each of the other accepting engines has more connections than this one.
    pub(crate) fn has_fewest(&self) -> bool {
        let own = self.own().connections.load(Ordering::Relaxed);
        self.others().all(|(_, member)| {
            member.is_accepting.load(Ordering::Relaxed) == 0 || own < member.connections.load(Ordering::Relaxed)
        })
    }

    /// Returns the engine that should accept a new connection; `None` if this one should. This engine may have up to
    /// `slack` connections more than the other.
    pub(crate) fn better(&mut self, now: Duration, slack: u64) -> Option<Address> {
        if !self.notified.is_empty() {
            let group = &self.group;
            self.notified.retain(|notified| {
                let has_accepted = group.member(notified.address).accepted.load(Ordering::Relaxed) != notified.accepted;
                !has_accepted && (!notified.did_not_come || now < notified.at + PASSED_OVER_FOR)
            });
        }
        let is_passed_over =
            |address| self.notified.iter().any(|notified| notified.address == address && notified.is_due(now));
        let (best, other, connections) = self
            .others()
            .filter(|&(address, _)| !is_passed_over(address))
            .map(|(address, member)| (member.suitability(now), address, member.connections.load(Ordering::Relaxed)))
            .filter(|&(suitability, ..)| suitability != Suitability::NotAccepting)
            .min_by_key(|&(suitability, _, connections)| (suitability, connections))?;
        let own = self.own();
        let suitability = own.suitability(now);
        if best != suitability {
            return (best < suitability).then_some(other);
        }
        // On a tie, an engine that has a free thread is preferred.
        let is_full = own.busy_since.load(Ordering::Relaxed) != 0;
        let load = own.connections.load(Ordering::Relaxed) + u64::from(is_full);
        (load > connections + slack).then_some(other)
    }

    /// Notifies another engine that this one leaves a connection to it. Returns the time to check again: when the other
    /// engine should have accepted, or becomes busy.
    pub(crate) fn notify(&mut self, other: Address, now: Duration) -> Duration {
        let member = self.group.member(other);
        let due = if let Some(notified) = self.notified.iter().find(|notified| notified.address == other) {
            notified.at + notified.patience
        } else {
            let patience = member.patience(now);
            let accepted = member.accepted.load(Ordering::Relaxed);
            self.notified.push(Notified { address: other, at: now, patience, accepted, did_not_come: false });
            now + patience
        };
        let busy_at = member.busy_at();
        if member.is_notified.swap(1, Ordering::Release) == 0 {
            self.group.wake(other);
        }
        busy_at.filter(|&at| at > now).map_or(due, |at| at.min(due))
    }

    /// Records that this engine has accepted a connection. Marks the notified engines that have accepted none in time.
    pub(crate) fn has_accepted(&mut self, now: Duration) {
        for notified in &mut self.notified {
            notified.did_not_come |= notified.is_due(now);
        }
    }

    /// Records that no connection waits at any listener. Removes notified engines whose time has passed: they may have
    /// come and found no connection.
    pub(crate) fn has_found_none(&mut self, now: Duration) {
        self.notified.retain(|notified| notified.did_not_come || !notified.is_due(now));
    }
}

#[cfg(test)]
mod tests;
