//! The plan of a world, drawn from its seed before anything happens: limits, conditions, threads, the bytes and the
//! behaviour of each peer, and the application's script for each request.
//!
//! The kinds of trouble of a world are drawn first (*swarm testing*): a world with all of them at once would hide
//! faults that show only if most things go well.

mod event_loop;
pub(crate) mod tasks;
mod threads;

use crate::clock::Micros;
use crate::net::{Conditions, Medium};
use engine::Config;
use fastrand::Rng;
use std::time::Duration;
use tasks::{Cancelled, ClientOp, Handling, Outside};

/// The driver that polls the engine and runs the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Threads that follow the scheduler's rules.
    Threads,
    /// An event loop, as asyncio's: calls are tasks beside each other in one thread.
    EventLoop,
}

/// A kind of worlds.
#[derive(Clone, Copy, Debug)]
pub struct Worlds {
    /// The driver.
    pub host: Host,
    /// True if the engine's sockets are real ones.
    pub on_sockets: bool,
    /// True if all clients speak HTTP/2. Their driver are threads.
    pub is_http2: bool,
}

impl Worlds {
    /// Returns worlds in a simulated network, of clients with different protocols.
    #[must_use]
    pub fn of(host: Host) -> Self {
        Self { host, on_sockets: false, is_http2: false }
    }

    /// Returns worlds in a simulated network whose clients speak HTTP/2.
    #[must_use]
    pub fn of_http2() -> Self {
        Self { is_http2: true, ..Self::of(Host::Threads) }
    }
}

/// Everything that is decided in advance.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) host: Host,
    /// True if connections speak the protocol of [`crate::frames`] instead of HTTP/1.
    pub(crate) is_multiplexed: bool,
    /// True if they speak HTTP/2.
    pub(crate) is_http2: bool,
    /// True if most connections are encrypted, with the scripted [`cipher`](crate::cipher).
    pub(crate) is_encrypted: bool,
    pub(crate) config: Config,
    pub(crate) medium: Medium,
    pub(crate) conditions: Conditions,
    pub(crate) listeners: usize,
    /// Calls of the application that may run at a time. With 1 there is one thread, otherwise one thread more than
    /// calls.
    pub(crate) most_calls: usize,
    /// The step by which the engine's clock advances.
    pub(crate) grain: Micros,
    /// The maximum time until a notified thread runs.
    pub(crate) wake_time: Micros,
    /// True if the rest of the process opens and closes files.
    pub(crate) has_files: bool,
    pub(crate) connections: Vec<PeerPlan>,
    pub(crate) requests: Vec<RequestPlan>,
    /// When the server begins to drain.
    pub(crate) drain: Option<Micros>,
    /// The orders to stop that the server gets: none, one, or a second one later with less time.
    pub(crate) stops: Vec<Stop>,
    /// The actions of another thread than the loop's on the WebSocket of a call: the time, the call, and the action.
    pub(crate) outside: Vec<(Micros, usize, Outside)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) at: Micros,
    /// The time that the server has to stop.
    pub(crate) limit: Option<Duration>,
    /// The time for which idle connections may still send a request.
    pub(crate) grace: Duration,
}

/// The number of bytes at a time, and the pauses between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) burst: usize,
    pub(crate) pause: Micros,
}

#[derive(Clone, Debug)]
pub(crate) struct PeerPlan {
    pub(crate) connects_at: Micros,
    pub(crate) listener: usize,
    pub(crate) latency: Micros,
    pub(crate) packet: usize,
    pub(crate) capacity: usize,
    /// Ids of its requests, in order.
    pub(crate) requests: Vec<usize>,
    /// Number of requests that may be unanswered at a time: pipelined, or with frames at the same time.
    pub(crate) depth: usize,
    pub(crate) sends: Pace,
    pub(crate) reads: Pace,
    /// Pause between an answer and the next request.
    pub(crate) thinks: Micros,
    /// Stays connected after the last answer, until the server closes.
    pub(crate) stays: bool,
    pub(crate) acts: Option<(Trigger, Act)>,
    /// Its operations on its WebSocket.
    pub(crate) ops: Vec<ClientOp>,
    /// True if it begins them before its handshake is answered.
    pub(crate) is_eager: bool,
}

/// When a peer misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// This long after it has connected.
    After(Micros),
    /// After it has sent this many bytes.
    Sent(usize),
    /// After it has received this many bytes.
    Got(usize),
    /// When one of its requests has waited this long to be called.
    Waited(Micros),
}

/// How a peer misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Vanish,
    Reset,
    Close,
    /// Stops sending, and closes its sending side.
    HalfClose,
    /// Stops sending without closing.
    StallSending,
    StallReading,
}

/// The client's behaviour in one exchange of a multiplexed connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangePlan {
    /// When the client resets it.
    pub(crate) resets: Option<ResetTrigger>,
    /// The bytes of the response that it takes beyond the window that each exchange has at first.
    pub(crate) extra: u32,
    /// The bytes that it lets the server send again at a time, after it has read as many; with 0 it takes no more.
    pub(crate) grants: Pace,
    /// Most bytes of the request's body in one frame.
    pub(crate) part: usize,
    /// The bytes of the request's body after which it stops sending. It never sends the body's end.
    pub(crate) stalls_at: Option<usize>,
    /// True if it sends more of the request's body than the server takes.
    pub(crate) overruns: bool,
}

/// When a client resets an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetTrigger {
    /// This long after it has begun.
    After(Micros),
    /// After so many bytes of the request's body were sent.
    Sent(usize),
    /// After so many bytes of the response's body were received.
    Got(usize),
}

/// How a request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// The head is malformed, which gets this status.
    Head(u16),
    /// A chunk size within the body is malformed.
    Chunk,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RequestPlan {
    pub(crate) is_head: bool,
    pub(crate) is_old: bool,
    /// True if it asks for the close of the connection.
    pub(crate) asks_to_close: bool,
    /// The longest time for which it waits for `100 Continue` before it sends the body; `Micros::MAX`: forever.
    pub(crate) waits_for_continue: Option<Micros>,
    pub(crate) garbage: Option<Garbage>,
    pub(crate) body: usize,
    pub(crate) is_chunked: bool,
    /// The bytes of the request; the head ends at `head`.
    pub(crate) bytes: Vec<u8>,
    pub(crate) head: usize,
    /// With frames, `bytes` is the head alone.
    pub(crate) exchange: Option<ExchangePlan>,
    /// True if the application panics when the head arrives.
    pub(crate) panics: bool,
    /// The deadline of its call.
    pub(crate) deadline: Option<Micros>,
    /// True if it asks for a WebSocket.
    pub(crate) is_websocket: bool,
    /// The script of its call in a thread.
    pub(crate) script: Script,
    /// The behaviour of its call in an event loop.
    pub(crate) handling: Handling,
    /// When a task of its call is cancelled.
    pub(crate) cancelled: Option<Cancelled>,
}

/// The application's script for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) status: u16,
    pub(crate) declared: Option<u64>,
    pub(crate) closes: bool,
    /// True if it writes within the call, and cannot be suspended while its peer is slow.
    pub(crate) writes: bool,
    /// True if it writes on although its peer does not read. Its output stays in memory.
    pub(crate) ignores_room: bool,
    /// True if output that its peer does not read goes to a file, instead of blocking the call.
    pub(crate) relieves: bool,
    /// The longest time for which it waits for its peer within the call; then the wait is ended.
    pub(crate) patience: Option<Micros>,
    pub(crate) ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Takes time.
    Work(Micros),
    /// Takes time, and tells the scheduler before.
    Block(Micros),
    Begin,
    Write(usize),
    /// This many bytes from a file that lacks the last `missing` ones.
    File {
        length: usize,
        missing: usize,
    },
    Flush,
    SendSoon,
    /// Reads this many bytes of the body, in parts of at most the second number.
    Read(usize, usize),
    /// Asks the engine whether the peer has left.
    Look,
    Yield,
    /// Fails: with the error page of this status, if nothing was sent yet.
    Raise(u16),
    /// Completes the response without having written anything, which the engine answers with an error page.
    Done,
    /// Never returns.
    Hang,
}

/// Returns the number of a request's own body.
pub(crate) fn upload(id: usize) -> usize {
    id + 100_000
}

impl Script {
    /// Returns the number of body bytes that all operations write together.
    pub(crate) fn length(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Write(length) | Op::File { length, .. } => *length,
            _ => 0,
        };
        self.ops.iter().map(of).sum()
    }
}

impl RequestPlan {
    /// Returns true if the application's answer has no body.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.is_head || matches!(self.script.status, 204 | 304)
    }

    /// Returns true if the answer ends with its connection.
    pub(crate) fn is_until_close(&self) -> bool {
        self.is_old && self.script.declared.is_none() && !self.is_bodiless()
    }
}

fn pick<T: Copy>(from: &[T], rng: &mut Rng) -> T {
    from[rng.usize(0..from.len())]
}

impl Plan {
    /// Draws the plan of a world with this driver.
    pub(crate) fn draw(Worlds { host, is_http2, .. }: Worlds, rng: &mut Rng) -> Self {
        // Drawn from a generator of its own, so that the rest of a seed's world does not depend on it.
        let is_encrypted = Rng::with_seed(rng.get_seed() ^ 0x7E15).u8(0..4) == 0;
        let plan = match host {
            Host::Threads => threads::draw(is_http2, rng),
            Host::EventLoop => event_loop::draw(rng),
        };
        Self { is_encrypted: is_encrypted && !plan.is_multiplexed, ..plan }
    }

    /// Returns true if ticks do more than send coalesced output.
    pub(crate) fn is_serviced(&self) -> bool {
        !self.config.health_path.is_empty() || self.requests.iter().any(|request| request.deadline.is_some())
    }
}
