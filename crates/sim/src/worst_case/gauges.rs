//! The counters of the process, and the memory that the engine keeps for the attackers' input.

use engine::BodyMemory;

/// Functions that read the counters of the process.
#[derive(Clone, Copy)]
pub struct Gauges {
    /// The steps since the process began, or nanoseconds of processor time; `None` if the program counts neither.
    pub steps: Option<fn() -> u64>,
    /// The number of allocated bytes of memory.
    pub live: fn() -> u64,
    /// The maximum number of allocated bytes since this was last read, or since the process began.
    pub peak: fn() -> u64,
}

/// A watch on memory that exceeds the stated totals.
pub(super) struct MemoryWatch {
    gauges: Gauges,
    /// The limits on memory that all connections share.
    shared: Vec<BodyMemory>,
    /// The number of bytes that were allocated before, plus the number that an engine may keep.
    base: u64,
    /// The number of bytes that the engine may keep for each connection.
    per_connection: u64,
    /// The maximum number of bytes that exceeded all of these.
    pub(super) most: u64,
}

impl MemoryWatch {
    pub(super) fn new(gauges: Gauges, shared: Vec<BodyMemory>, of_engine: u64, per_connection: u64) -> Self {
        let base = (gauges.live)() + of_engine;
        // Each of these calls begins a new peak.
        (gauges.peak)();
        for memory in &shared {
            let _ = memory.has_fallen(0);
        }
        Self { gauges, shared, base, per_connection, most: 0 }
    }

    /// Records the peak of memory since the last call. The peak of the shared memory is subtracted, which may be from
    /// another moment; so this is called often: whenever the engine receives or sends, and at the end of each turn.
    pub(super) fn note(&mut self, connections: u64) {
        let shared: usize = self.shared.iter().map(|memory| memory.peak().min(memory.most())).sum();
        let stated = self.base + self.per_connection * connections + shared as u64;
        self.most = self.most.max((self.gauges.peak)().saturating_sub(stated));
        for memory in &self.shared {
            let _ = memory.has_fallen(0);
        }
    }
}
