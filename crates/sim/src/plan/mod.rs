//! The plan of a world, which is drawn from its seed before anything happens: limits, conditions, threads, the bytes
//! and the behaviour of each peer, and the application's script for each request.
//!
//! The kinds of trouble in a world are drawn first (*swarm testing*): a world with all of them at once would hide
//! faults that appear only if most things go well.

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
    /// An event loop, modelled on asyncio's: calls are concurrent tasks in one thread.
    EventLoop,
}

/// A kind of worlds.
#[derive(Clone, Copy, Debug)]
pub struct Worlds {
    /// The driver.
    pub host: Host,
    /// True if the engine's sockets are real ones.
    pub on_sockets: bool,
    /// True if all clients speak HTTP/2. The driver is then `Threads`.
    pub is_http2: bool,
}

impl Worlds {
    /// Returns worlds with a simulated network and clients of different protocols.
    #[must_use]
    pub fn of(host: Host) -> Self {
        Self { host, on_sockets: false, is_http2: false }
    }

    /// Returns worlds with a simulated network whose clients speak HTTP/2.
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
    /// True if connections speak HTTP/2.
    pub(crate) is_http2: bool,
    /// True if most connections are encrypted, with the scripted [`cipher`](crate::cipher).
    pub(crate) is_encrypted: bool,
    pub(crate) config: Config,
    pub(crate) medium: Medium,
    pub(crate) conditions: Conditions,
    pub(crate) listeners: usize,
    /// The maximum number of concurrent calls of the application. With 1 there is one thread, otherwise one more thread
    /// than calls.
    pub(crate) most_calls: usize,
    /// The step by which the engine's clock advances.
    pub(crate) grain: Micros,
    /// The maximum time until a notified thread runs.
    pub(crate) wake_time: Micros,
    /// True if the rest of the process opens and closes files.
    pub(crate) has_files: bool,
    pub(crate) connections: Vec<PeerPlan>,
    pub(crate) requests: Vec<RequestPlan>,
    /// The time when the server begins to drain.
    pub(crate) drain: Option<Micros>,
    /// The orders to stop that the server receives: none, one, or two, of which the later one grants less time.
    pub(crate) stops: Vec<Stop>,
    /// The actions of threads other than the loop's on the WebSocket of a call: the time, the call, and the action.
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

/// The number of bytes at a time, and the pause between.
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
    /// The ids of the peer's requests, in order.
    pub(crate) requests: Vec<usize>,
    /// The maximum number of unanswered requests: pipelined ones, or concurrent ones on a multiplexed connection.
    pub(crate) depth: usize,
    pub(crate) sends: Pace,
    pub(crate) reads: Pace,
    /// The pause between an answer and the next request.
    pub(crate) thinks: Micros,
    /// True if the peer stays connected after the last answer, until the server closes.
    pub(crate) stays: bool,
    pub(crate) acts: Option<(Trigger, Act)>,
    /// The peer's operations on its WebSocket.
    pub(crate) ops: Vec<ClientOp>,
    /// True if the peer begins the operations before its handshake is answered.
    pub(crate) is_eager: bool,
}

/// The moment when a peer misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// This long after the peer has connected.
    After(Micros),
    /// After the peer has sent this many bytes.
    Sent(usize),
    /// After the peer has received this many bytes.
    Got(usize),
    /// When a request of the peer has waited this long to be called.
    Waited(Micros),
}

/// The way in which a peer misbehaves.
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
    /// The moment when the client resets the exchange.
    pub(crate) resets: Option<ResetTrigger>,
    /// The number of bytes of the response that the client accepts in addition to the initial window.
    pub(crate) extra: u32,
    /// The number of bytes that the client grants again at a time, after it has read as many; 0 for none.
    pub(crate) grants: Pace,
    /// The maximum number of bytes of the request's body in one frame.
    pub(crate) part: usize,
    /// The number of bytes of the request's body after which the client stops sending. It never sends the body's end.
    pub(crate) stalls_at: Option<usize>,
    /// True if the client sends more of the request's body than the server accepts.
    pub(crate) overruns: bool,
}

/// The moment when a client resets an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetTrigger {
    /// This long after the exchange has begun.
    After(Micros),
    /// After this many bytes of the request's body have been sent.
    Sent(usize),
    /// After this many bytes of the response's body have been received.
    Got(usize),
}

/// The way in which a request is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbage {
    /// The head is malformed, and is answered with this status.
    Head(u16),
    /// A chunk size within the body is malformed.
    Chunk,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RequestPlan {
    pub(crate) is_head: bool,
    pub(crate) is_old: bool,
    /// True if the request asks for the close of the connection.
    pub(crate) asks_to_close: bool,
    /// The maximum time for which the client waits for `100 Continue` before it sends the body; `Micros::MAX`: forever.
    pub(crate) waits_for_continue: Option<Micros>,
    pub(crate) garbage: Option<Garbage>,
    pub(crate) body: usize,
    pub(crate) is_chunked: bool,
    /// The bytes of the request; the head ends at `head`.
    pub(crate) bytes: Vec<u8>,
    pub(crate) head: usize,
    /// The plan of the exchange on a multiplexed connection. `bytes` is only the head then.
    pub(crate) exchange: Option<ExchangePlan>,
    /// True if the application panics when the head arrives.
    pub(crate) panics: bool,
    /// The deadline of the call.
    pub(crate) deadline: Option<Micros>,
    /// True if the request asks for a WebSocket.
    pub(crate) is_websocket: bool,
    /// The script of the call in a thread.
    pub(crate) script: Script,
    /// The behaviour of the call in an event loop.
    pub(crate) handling: Handling,
    /// The cancellation of a task of the call.
    pub(crate) cancelled: Option<Cancelled>,
}

/// The application's script for a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) status: u16,
    pub(crate) declared: Option<u64>,
    pub(crate) closes: bool,
    /// True if the call waits for a slow peer while it writes, instead of being suspended.
    pub(crate) writes: bool,
    /// True if the call continues to write although its peer does not read. Its output stays in memory.
    pub(crate) ignores_room: bool,
    /// True if output that the peer does not read goes to a file, instead of blocking the call.
    pub(crate) relieves: bool,
    /// The maximum time for which the call waits for its peer. After that the wait is ended.
    pub(crate) patience: Option<Micros>,
    pub(crate) ops: Vec<Op>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Compute for this time.
    Work(Micros),
    /// Block for this time, after telling the scheduler.
    Block(Micros),
    Begin,
    Write(usize),
    /// Write this many bytes from a file that lacks the last `missing` ones.
    File {
        length: usize,
        missing: usize,
    },
    Flush,
    SendSoon,
    /// Read this many bytes of the body, in parts of at most the second number.
    Read(usize, usize),
    /// Ask the engine whether the peer has left.
    Look,
    Yield,
    /// Fail: with an error page of this status, if nothing has been sent yet.
    Raise(u16),
    /// Complete the response without having written anything. The engine then sends an error page.
    Done,
    /// Never return.
    Hang,
}

/// Returns the number of a request's own body, for [`pattern`](crate::response::pattern).
pub(crate) fn upload(id: usize) -> usize {
    id + 100_000
}

impl Script {
    /// Returns the total number of body bytes that the operations write.
    pub(crate) fn length(&self) -> usize {
        let of = |op: &Op| match op {
            Op::Write(length) | Op::File { length, .. } => *length,
            _ => 0,
        };
        self.ops.iter().map(of).sum()
    }
}

impl RequestPlan {
    /// Returns true if the application's response has no body.
    pub(crate) fn is_bodiless(&self) -> bool {
        self.is_head || matches!(self.script.status, 204 | 304)
    }

    /// Returns true if the response ends with its connection.
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
        // Drawn from a separate generator, so that the rest of a seed's world does not depend on this choice.
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
