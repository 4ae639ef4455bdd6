//! One direction of a connection: bytes under way, bytes that have arrived, and the end after them.

use crate::clock::{Micros, Shared};
use std::collections::VecDeque;

/// One direction of a connection.
#[derive(Debug)]
pub(super) struct Pipe {
    /// The bytes under way, with their times of arrival, in order.
    pub(super) under_way: VecDeque<(Micros, Vec<u8>)>,
    pub(super) under_way_bytes: usize,
    /// The bytes that have arrived; those from offset `read` on are unread.
    pub(super) arrived: Vec<u8>,
    pub(super) read: usize,
    /// The capacity in bytes, for bytes under way and unread bytes together.
    pub(super) capacity: usize,
    pub(super) latest: Micros,
    pub(super) end: End,
    /// True if the last send was short, so that the sender waits for room.
    pub(super) wants_room: bool,
    /// The total numbers of bytes that were sent and that were read.
    pub(super) sent: u64,
    pub(super) taken: u64,
    pub(super) last_arrival: Micros,
    pub(super) last_send: Micros,
    /// The time of the send before the last one. A send that only continues a short one does not count.
    pub(super) earlier_send: Micros,
    /// The time since which the sender's bytes have not fitted completely.
    pub(super) full_since: Option<Micros>,
}

/// The counts of protocol bytes on an encrypted connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlainCounts {
    /// The numbers of bytes that the engine has received and sent.
    pub(super) taken: u64,
    pub(super) sent: u64,
    pub(super) last_send: Micros,
    /// The time of the send before the last one.
    pub(super) earlier_send: Micros,
}

/// The state of the end of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    /// The end is under way, after all bytes, and arrives at this time.
    At(Micros),
    Here(Micros),
}

impl Pipe {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            under_way: VecDeque::new(),
            under_way_bytes: 0,
            arrived: Vec::new(),
            read: 0,
            capacity,
            latest: 0,
            end: End::Open,
            wants_room: false,
            sent: 0,
            taken: 0,
            last_arrival: 0,
            last_send: 0,
            earlier_send: 0,
            full_since: None,
        }
    }

    /// Records the time of a send. `continues`: it sends the rest of a send that was short.
    pub(super) fn sent_at(&mut self, now: Micros, continues: bool) {
        let before = std::mem::replace(&mut self.last_send, now);
        if !continues {
            self.earlier_send = before;
        }
    }

    pub(super) fn unread(&self) -> usize {
        self.arrived.len() - self.read
    }

    pub(super) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.under_way_bytes + self.unread())
    }

    /// Delivers the bytes and the end that have arrived by now. Returns true if there were any.
    pub(super) fn deliver(&mut self, now: Micros) -> bool {
        let mut any = false;
        while let Some((at, _)) = self.under_way.front()
            && *at <= now
        {
            let Some((_, bytes)) = self.under_way.pop_front() else { break };
            self.under_way_bytes -= bytes.len();
            self.arrived.drain(..std::mem::take(&mut self.read));
            self.arrived.extend_from_slice(&bytes);
            self.last_arrival = now;
            any = true;
        }
        if let End::At(at) = self.end
            && at <= now
            && self.under_way.is_empty()
        {
            self.end = End::Here(now);
            any = true;
        }
        any
    }

    pub(super) fn take(&mut self, most: usize) -> &[u8] {
        let count = most.min(self.unread());
        let from = self.read;
        self.read += count;
        self.taken += count as u64;
        &self.arrived[from..self.read]
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.end, End::Here(_))
    }

    /// Drops the bytes that have not arrived.
    pub(super) fn lose(&mut self) {
        self.under_way.clear();
        self.under_way_bytes = 0;
    }

    pub(super) fn discard(&mut self) {
        self.lose();
        self.arrived.clear();
        self.read = 0;
    }
}

/// Sends bytes in packets. Returns the time of arrival of each.
pub(super) fn post(shared: &Shared, pipe: &mut Pipe, bytes: &[u8], latency: Micros, packet: usize) -> Vec<Micros> {
    let mut arrivals = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = if packet >= rest.len() { rest.len() } else { 1 + shared.index(packet) };
        // Packets have some jitter but never overtake each other.
        let at = pipe.latest.max(shared.now() + latency + shared.below(latency / 4 + 1));
        pipe.latest = at;
        pipe.under_way.push_back((at, rest[..count].to_vec()));
        pipe.under_way_bytes += count;
        if arrivals.last() != Some(&at) {
            arrivals.push(at);
        }
        rest = &rest[count..];
    }
    pipe.sent += bytes.len() as u64;
    arrivals
}
