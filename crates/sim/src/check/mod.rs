//! The invariants of a world, checked after every step and at the end.

pub(crate) mod event_loop;
mod exchanges;
pub(crate) mod late;
mod serial;

use crate::app::Record;
use crate::clock::Micros;
use crate::frames::Simulated;
use crate::peer::Peer;
use crate::world::World;
use engine::Config;
use std::sync::atomic::Ordering;

/// Limits in bytes that the engine documents: a write buffer and one part; the output that is kept in memory before it
/// is moved to a file; the bytes of a body that are read ahead, and the buffer of one receive.
const OUTPUT_AT_MOST: i64 = (128 << 10) + 250_000;
const UNRELIEVED_AT_MOST: i64 = 1 << 20;
const READ_AHEAD_AT_MOST: u64 = (64 << 10) + (64 << 10) + 16;
/// The last limit as allocated memory, which may be twice the number of bytes in it.
const BODY_BEYOND_MEMORY: usize = 2 * ((64 << 10) + (64 << 10));

/// The checker of a world.
pub(crate) struct Checker<'a, P: Simulated> {
    pub(crate) world: &'a World<P>,
}

impl<P: Simulated> Checker<'_, P> {
    // ------------------------------------------------------------------------------------------- after every step

    pub(crate) fn check_step(&self) {
        let shared = &self.world.shared;
        let statistics = self.world.engine().statistics();
        let network = self.world.network.borrow();
        if statistics.connections != network.open() as u64 {
            shared.fail(|| format!("{} connections have {} sockets", statistics.connections, network.open()));
        }
        if network.open() > self.world.plan.config.connections {
            shared.fail(|| format!("{} connections are open", network.open()));
        }
        let room = self.world.plan.conditions.descriptors - self.world.plan.conditions.reserve;
        if network.open() > room {
            shared.fail(|| format!("{} connections are open with room for {room}", network.open()));
        }
        if let Some(number) = network.held_back() {
            shared.fail(|| format!("the kernel holds the last bytes of c{number} back, and the server waits"));
        }
        self.check_body_memory(network.open());
        // Bodies whose heads arrived earlier are received nevertheless, and completing a call may make the next request
        // visible.
        let waits = |record: &&Record| record.ready.is_some() && record.called.is_none() && record.dismissed.is_none();
        let with_bodies = self.world.records().requests.iter().filter(waits).filter(|record| record.read > 0).count();
        if statistics.queued > (self.world.plan.config.queue + self.world.plan.most_calls + with_bodies) as u64 {
            shared.fail(|| format!("{} requests are queued", statistics.queued));
        }
        let ledger = &self.world.records().ledger;
        if ledger.dropped_in_tick.load(Ordering::Relaxed) > 0 {
            shared.fail(|| "a tick drops an object of the application".to_owned());
        }
        if ledger.lost.load(Ordering::Relaxed) > 0 {
            shared.fail(|| "a request or a response was dropped and not given back".to_owned());
        }
        for (number, connection) in self.world.records().connections.iter().enumerate() {
            // With HTTP/1 all requests except the last one have ended.
            let one = if P::MULTIPLEXED { 0 } else { connection.begun.len().saturating_sub(1) };
            for &id in &connection.begun[one..] {
                let record = &self.world.records().requests[id];
                let request = &self.world.plan.requests[id];
                let deferred = ledger.deferred[id].load(Ordering::Relaxed);
                let most = if request.script.writes { OUTPUT_AT_MOST + UNRELIEVED_AT_MOST } else { OUTPUT_AT_MOST };
                if deferred > most && !request.script.ignores_room {
                    shared.fail(|| format!("{deferred} bytes of the answer to {id} are deferred in memory"));
                }
                // The engine discards the bytes that the client of a late call still sends.
                let is_read = record.late.is_none() && self.world.deadlines().refused_at.is_empty();
                // The bytes after a handshake are messages, which have their own limits.
                let is_read = is_read && !request.is_websocket;
                let (Some(_), None, None, true) = (record.ready, record.ended, record.dismissed, is_read) else {
                    continue;
                };
                let Some(place) = self.place_of(number, id) else { continue };
                // For a chunked body, the offset on the wire of its bytes is not known here.
                let used = match (self.world.plan.config.buffer_bodies, request.is_chunked) {
                    (true, _) | (false, true) => place.end,
                    (false, false) => place.head + record.read,
                };
                let ahead = network.taken(number).saturating_sub(used as u64);
                if ahead > READ_AHEAD_AT_MOST {
                    shared.fail(|| format!("{ahead} bytes are read ahead of request {id}"));
                }
            }
        }
    }

    /// Checks that all bodies together respect the limit on their memory, and release the memory when they have ended.
    fn check_body_memory(&self, connections: usize) {
        let Config { body_memory_total, buffer_bodies, .. } = &self.world.plan.config;
        let (used, most) = (body_memory_total.used(), body_memory_total.most());
        // A body that is read as it arrives may always have a part in memory, so that its call makes progress.
        let bodies = if P::MULTIPLEXED { self.world.plan.requests.len() } else { connections };
        let beyond = if *buffer_bodies { 0 } else { bodies * BODY_BEYOND_MEMORY };
        if used > most.saturating_add(beyond) {
            self.world.shared.fail(|| format!("{used} bytes of bodies are in memory; the limit is {most}"));
        }
        let is_under_way =
            |record: &Record| record.begun.is_some() && record.ended.is_none() && record.dismissed.is_none();
        if used > 0 && self.world.rules.running() == 0 && !self.world.records().requests.iter().any(is_under_way) {
            self.world.shared.fail(|| format!("{used} bytes of bodies are in memory without any request"));
        }
    }

    fn peer_of(&self, connection: usize) -> Option<&Peer> {
        self.world.connections.iter().find(|peer| peer.connection == Some(connection))
    }

    fn place_of(&self, connection: usize, id: usize) -> Option<crate::peer::Place> {
        let peer = self.peer_of(connection)?;
        let index = peer.plan.requests.iter().position(|&other| other == id)?;
        peer.places.get(index).copied()
    }

    // -------------------------------------------------------------------------------------------------- at the end

    pub(crate) fn check_end(&self) {
        let (hanging, unfinished) = self.world.threads.unfinished();
        let pinned = self.world.rules.pinned_work().count();
        let fail = |what: String| self.world.shared.fail(|| format!("{what}; {}", self.world.describe()));
        if !unfinished.is_empty() && !self.world.is_unfinished {
            return fail(format!("the calls of requests {unfinished:?} never continue"));
        }
        let statistics = self.world.engine().statistics();
        // If calls hang, work that is bound to their threads waits forever.
        let is_free = hanging.is_empty();
        let is_cut_off = self.world.stopped.is_some_and(|(_, until)| until != Micros::MAX);
        if is_free && (statistics.connections != 0 || pinned != 0) {
            return fail(format!("nothing moves any more, and {pinned} pieces of work wait for their threads"));
        }
        let awaiting = self.world.network.borrow().awaiting();
        if is_free && self.world.stopped.is_none() && awaiting > 0 {
            return fail(format!("nothing moves any more, and {awaiting} connections wait to be accepted"));
        }
        if is_free && self.world.stopped.is_some() && !self.world.engine().is_stopped() {
            return fail("the engine was told to stop and has not stopped".to_owned());
        }
        if is_cut_off && !is_free && statistics.connections > (hanging.len() + pinned) as u64 {
            return fail("more is left than hanging calls".to_owned());
        }
        for peer in &self.world.connections {
            if self.world.shared.has_failed() {
                return;
            }
            if P::MULTIPLEXED {
                self.check_exchanges(peer, is_free);
            } else {
                self.check_peer(peer, is_free);
            }
        }
        self.check_statistics(hanging.len() as u64, is_free);
        let in_memory = self.world.plan.config.body_memory_total.used();
        if is_free && in_memory > 0 {
            fail(format!("{in_memory} bytes of bodies are still reserved"));
        }
    }

    fn check_statistics(&self, hanging: u64, is_free: bool) {
        let statistics = self.world.engine().statistics();
        let network = self.world.network.borrow();
        let records = &self.world.records().requests;
        let count = |of: &dyn Fn(&Record) -> bool| records.iter().filter(|record| of(record)).count() as u64;
        let called = count(&|record| record.called.is_some());
        let busy = count(&|record| record.dismissed.is_some_and(|(_, status)| status == Some(503)))
            + self
                .world
                .records()
                .connections
                .iter()
                .filter(|connection| !P::MULTIPLEXED && connection.refused.is_some_and(|(_, status)| status == 503))
                .count() as u64;
        // If requests are refused because no thread polls the engine, the application is not notified.
        let blocked = self.world.deadlines().refused_waiting;
        let ranges = [
            ("refused", statistics.refused, self.world.records().refusals, blocked),
            ("busy", busy, statistics.queue_timeouts + statistics.left, blocked),
        ];
        for (name, counted, expected, more) in ranges {
            if counted < expected || counted > expected + more {
                self.world
                    .shared
                    .fail(|| format!("{name} is counted as {counted}, expected {expected} to {}", expected + more));
            }
        }
        let equal = [
            ("accepted", statistics.accepted, network.accepted),
            ("requests", statistics.requests, called),
            ("bytes_in", statistics.bytes_in, network.received),
            ("bytes_out", statistics.bytes_out, network.sent),
            ("panics", statistics.panics, self.world.records().panics),
        ];
        for (name, counted, expected) in equal {
            if counted != expected {
                self.world.shared.fail(|| format!("{name} is counted as {counted}, expected {expected}"));
            }
        }
        if is_free {
            let left = [statistics.running, statistics.suspended, statistics.queued, statistics.connections];
            let of_http2 = [statistics.http2_connections, statistics.http2_streams];
            if left != [0; 4] || of_http2 != [0; 2] {
                self.world.shared.fail(|| format!("nothing is left, but the counters say {left:?}, {of_http2:?}"));
            }
        } else if statistics.running < hanging {
            self.world.shared.fail(|| format!("{} calls run and {hanging} hang", statistics.running));
        }
        if statistics.accept_pauses < self.world.records().pauses_reported {
            self.world.shared.fail(|| "more pauses are reported than occurred".to_owned());
        }
    }
}
