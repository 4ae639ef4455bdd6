//! Engines that accept from the same listeners, in one process or in several, share new connections by this rule: a
//! connection goes to the engine that has the fewest.
//!
//! # The rule
//!
//! The kernel wakes one engine or several for a new connection; which one is not known in advance. An engine that was
//! woken compares itself with the others before each accept ([`Membership::better`]):
//!
//! * An engine that stops, drains or is at its bound accepts nothing.
//! * An engine that has begun no call for [`BUSY_AFTER`], because all its threads are in calls or requests are queued, is
//!   *busy*. An engine that is not busy is preferred whatever the numbers are. Shorter calls do not count, even if there
//!   are many of them: a thread is free soon.
//! * Otherwise the numbers of connections decide. An engine accepts while it has at most one connection more than the
//!   other, so afterwards it has at most two more, and no engine exceeds the mean by more than two.
//! * Where clients open a connection for each request, numbers change faster than they can be evened out, and nothing is
//!   left of a difference. There an engine accepts while it has at most [`SLACK_IF_BRIEF`] more.
//!
//! An engine that leaves a connection to another leaves it in the kernel's queue and wakes that one
//! ([`Membership::tell`]). As long as numbers are balanced, the rule costs a few loads and no system call.
//!
//! # No connection is left in the queue
//!
//! The other engine may never come: its thread may hold the GIL in a long call, the process may be stopped or dead, or
//! it may not have this listener at all. So whoever left a connection looks at its listeners again after
//! [`PATIENCE`], or [`PATIENCE_IN_CALLS`] where a call may keep the other from coming. If a connection waits there and the other has accepted nothing in between, then it is passed
//! over for [`PASSED_OVER_FOR`], or until it has accepted something. This is why nothing here depends on the other engine
//! to answer, or on the order in which stores become visible: a record that is out of date costs balance or a few
//! milliseconds, never a connection.
//!
//! # The records
//!
//! Each engine shows its state in a [`Member`] record; those of one process lie in one [`ProcessRecord`]. The records of
//! a process that is alone are its own memory. Workers have theirs in memory that the supervisor shares with all of them;
//! it clears the record of a worker that has ended. All-zero memory is a record of a process that has no engine.

use crate::os::{Bell, Waker};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// An engine that could begin no call for so long is busy. It is longer than a thread waits for a processor on a machine
/// that is overloaded by a few times, so that an engine with short calls does not look busy there.
const BUSY_AFTER: Duration = Duration::from_millis(30);
/// For so long an engine is waited for that has no call out, or was turned within this time. On a machine whose processors
/// are overloaded it takes a thread that long to get one.
const PATIENCE: Duration = Duration::from_millis(100);
/// The same for any other engine: a call may hold the GIL.
const PATIENCE_IN_CALLS: Duration = Duration::from_millis(20);
/// For so long no connection is left to an engine that did not come, unless it accepts something.
const PASSED_OVER_FOR: Duration = Duration::from_secs(1);

/// An engine accepts while it has so many connections more than another at most.
const SLACK: u64 = 1;
/// The same if so many new connections in a row were for one request.
const SLACK_IF_BRIEF: u64 = 32;
const BRIEF_IN_A_ROW: u32 = 32;

/// How many connections more an engine may have, after so many in a row that were for one request.
pub(crate) fn slack(brief_in_a_row: u32) -> u64 {
    if brief_in_a_row < BRIEF_IN_A_ROW { SLACK } else { SLACK_IF_BRIEF }
}

/// Engines that one process can have in a group.
pub const ENGINES_MAX: usize = 63;

/// What one engine shows to the others. Each field is a word of its own, so no reader waits; what is read together need
/// not be of one moment. The alignment keeps the writes of one engine off the cache lines of another.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Member {
    connections: AtomicU64,
    /// Connections accepted so far.
    accepted: AtomicU64,
    /// 1 if it accepts connections.
    is_accepting: AtomicU64,
    /// Calls that it has handed out or will have to go on with.
    calls: AtomicU64,
    /// When it was turned last, in milliseconds of `CLOCK_MONOTONIC`.
    polled_at: AtomicU64,
    /// Since when it has begun no call because all threads are in calls or requests are queued, in milliseconds of
    /// `CLOCK_MONOTONIC`; 0 if it could begin one.
    busy_since: AtomicU64,
    /// 1 after another engine has told this one to look at its listeners, until it does.
    is_told: AtomicU64,
}

/// The engines of one process.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct ProcessRecord {
    /// How many of the members are in use.
    engines: AtomicU64,
    members: [Member; ENGINES_MAX],
}

impl Default for ProcessRecord {
    fn default() -> Self {
        Self { engines: AtomicU64::new(0), members: std::array::from_fn(|_| Member::default()) }
    }
}

/// Records in memory that this process shares with others.
pub struct SharedRecords {
    records: Box<[&'static ProcessRecord]>,
    bells: Box<[Bell]>,
    own: usize,
    _memory: Box<dyn Any + Send + Sync>,
}

impl SharedRecords {
    /// The `records` of all processes, of which `own` is that of this one. `bells` wake the processes, in the order of
    /// their records. `memory` keeps the records where they are.
    ///
    /// # Panics
    /// If there are not as many bells as records, or `own` is not one of them.
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

    /// How many processes the records have room for.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.records.len()
    }

    /// What others wake this process with. Each of its engines has to watch it.
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

/// See the module.
#[derive(Debug)]
pub struct EngineGroup {
    records: Records,
    /// Of this process's engines.
    wakers: Box<[Waker]>,
    /// Connections that this process's engines have room for.
    room: AtomicUsize,
    /// It has been reported that this process accepts nothing although a connection waits.
    is_pause_reported: AtomicBool,
}

impl EngineGroup {
    /// The group of the engines of this process, whose pollers `wakers` wake, and of those of other processes if the
    /// records are `shared` with any.
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

    /// The membership of engine `index` of this process, which can run so many calls at a time.
    #[must_use]
    pub fn membership(self: &Arc<Self>, index: usize, calls: usize) -> Membership {
        let calls = u64::try_from(calls).unwrap_or(u64::MAX);
        Membership { group: Arc::clone(self), index, calls, begun: 0, told: Vec::new() }
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

/// Which engine of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    process: usize,
    engine: usize,
}

/// What an engine shows of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// See [`Member::calls`].
    pub(crate) calls: u64,
    /// Calls that it has handed out so far.
    pub(crate) begun: u64,
    /// Requests that wait for a thread.
    pub(crate) queued: usize,
    pub(crate) connections: usize,
    pub(crate) accepted: u64,
    pub(crate) is_accepting: bool,
}

/// One engine in its group.
#[derive(Debug)]
pub struct Membership {
    group: Arc<EngineGroup>,
    index: usize,
    /// Calls that its threads can run at a time.
    calls: u64,
    /// Calls that it had handed out when it was shown to the others last.
    begun: u64,
    /// Engines that this one has left connections to and that have not accepted any since.
    told: Vec<Told>,
}

#[derive(Debug)]
struct Told {
    address: Address,
    at: Duration,
    /// How long to wait for the engine.
    patience: Duration,
    /// What the engine had accepted by then.
    accepted: u64,
    /// A connection that was left to it was still there when this engine looked again.
    in_vain: bool,
}

impl Told {
    fn is_due(&self, now: Duration) -> bool {
        now >= self.at + self.patience
    }
}

/// How suitable an engine is for a new connection; the least is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suitability {
    Free,
    Busy,
    NotAccepting,
}

impl Member {
    fn clear(&self) {
        let Self { connections, accepted, is_accepting, calls, polled_at, busy_since, is_told } = self;
        for word in [connections, accepted, is_accepting, calls, polled_at, busy_since, is_told] {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn patience(&self, now: Duration) -> Duration {
        let was_turned = moment(now) <= self.polled_at.load(Ordering::Relaxed).saturating_add(moment(PATIENCE));
        if was_turned || self.calls.load(Ordering::Relaxed) == 0 { PATIENCE } else { PATIENCE_IN_CALLS }
    }

    /// From when on it is busy, if it begins no call before: a moment of `CLOCK_MONOTONIC`.
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

/// Most calls change nothing, and then others keep their copy of the cache line.
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

    /// The other engines with their records, those of the processes behind this one first, so that engines that are
    /// equally good are not all told in the same order.
    fn others(&self) -> impl Iterator<Item = (Address, &Member)> {
        let own = self.address();
        let processes = self.group.processes();
        let behind = move |distance| (own.process + distance) % processes;
        (0..processes).map(behind).flat_map(move |process| {
            let record = self.group.record(process);
            // A record that another process has overwritten must not lead out of bounds.
            let engines = usize::try_from(record.engines.load(Ordering::Acquire)).unwrap_or(0).min(ENGINES_MAX);
            let members = record.members[..engines].iter().enumerate();
            members
                .map(move |(engine, member)| (Address { process, engine }, member))
                .filter(move |(address, _)| *address != own)
        })
    }

    /// This engine has room for so many connections.
    pub(crate) fn has_room_for(&self, connections: usize) {
        self.group.room.fetch_add(connections, Ordering::Relaxed);
    }

    /// How many connections the engines of this process have room for.
    pub(crate) fn room_of_all(&self) -> usize {
        self.group.room.load(Ordering::Relaxed)
    }

    /// Notes whether a connection waits that no engine of this process has room for. Returns whether that was known.
    pub(crate) fn note_pause(&self, is_pausing: bool) -> bool {
        self.group.is_pause_reported.swap(is_pausing, Ordering::Relaxed)
    }

    /// Whether another engine has told this one to look at its listeners, since this was asked last.
    pub(crate) fn take_word(&self) -> bool {
        let is_told = &self.own().is_told;
        is_told.load(Ordering::Relaxed) != 0 && is_told.swap(0, Ordering::Acquire) != 0
    }

    /// Shows the others how things are.
    pub(crate) fn show(&mut self, shown: Shown, now: Duration) {
        let has_begun = std::mem::replace(&mut self.begun, shown.begun) != shown.begun;
        let own = self.own();
        set(&own.connections, shown.connections as u64);
        set(&own.accepted, shown.accepted);
        set(&own.is_accepting, shown.is_accepting.into());
        set(&own.calls, shown.calls);
        set(&own.polled_at, moment(now));
        let since = if shown.queued == 0 && shown.calls < self.calls {
            0
        } else {
            match own.busy_since.load(Ordering::Relaxed) {
                since if since != 0 && !has_begun => since,
                _ => moment(now).max(1),
            }
        };
        set(&own.busy_since, since);
    }

    /// Wakes the others, so that whoever was alone until now watches the listeners as one of several.
    pub(crate) fn announce(&self) {
        for (address, member) in self.others() {
            if member.is_accepting.load(Ordering::Relaxed) != 0 {
                self.group.wake(address);
            }
        }
    }

    /// Whether another engine accepts connections too.
    pub(crate) fn has_company(&self) -> bool {
        self.others().any(|(_, member)| member.is_accepting.load(Ordering::Relaxed) != 0)
    }

    /// Whether each of the others has more connections than this engine.
    pub(crate) fn has_fewest(&self) -> bool {
        let own = self.own().connections.load(Ordering::Relaxed);
        self.others().all(|(_, member)| {
            member.is_accepting.load(Ordering::Relaxed) == 0 || own < member.connections.load(Ordering::Relaxed)
        })
    }

    /// The engine that a new connection should go to, if that is not this one, which may have `slack` connections more.
    pub(crate) fn better(&mut self, now: Duration, slack: u64) -> Option<Address> {
        if !self.told.is_empty() {
            let group = &self.group;
            self.told.retain(|told| {
                let has_accepted = group.member(told.address).accepted.load(Ordering::Relaxed) != told.accepted;
                !has_accepted && (!told.in_vain || now < told.at + PASSED_OVER_FOR)
            });
        }
        let is_passed_over = |address| self.told.iter().any(|told| told.address == address && told.is_due(now));
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
        // In doubt an engine that has a thread left is the better one.
        let is_full = own.busy_since.load(Ordering::Relaxed) != 0;
        let load = own.connections.load(Ordering::Relaxed) + u64::from(is_full);
        (load > connections + slack).then_some(other)
    }

    /// Tells another engine to look at its listeners, because this one leaves a connection to it. Returns when to see
    /// what became of that: when the other engine should have come, or is busy.
    pub(crate) fn tell(&mut self, other: Address, now: Duration) -> Duration {
        let member = self.group.member(other);
        let due = if let Some(told) = self.told.iter().find(|told| told.address == other) {
            told.at + told.patience
        } else {
            let patience = member.patience(now);
            let accepted = member.accepted.load(Ordering::Relaxed);
            self.told.push(Told { address: other, at: now, patience, accepted, in_vain: false });
            now + patience
        };
        let busy_at = member.busy_at();
        if member.is_told.swap(1, Ordering::Release) == 0 {
            self.group.wake(other);
        }
        busy_at.filter(|&at| at > now).map_or(due, |at| at.min(due))
    }

    /// This engine has accepted a connection: whoever was told long ago and has accepted none did not come.
    pub(crate) fn has_accepted(&mut self, now: Duration) {
        for told in &mut self.told {
            told.in_vain |= told.is_due(now);
        }
    }

    /// No connection waits at any of the listeners: whoever was told may have come and found none.
    pub(crate) fn has_found_none(&mut self, now: Duration) {
        self.told.retain(|told| told.in_vain || !told.is_due(now));
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
