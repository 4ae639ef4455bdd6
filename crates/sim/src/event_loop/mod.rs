//! The event loop of a world, as asyncio's: the engine is polled in the loop's selector, and the calls of the
//! application go on beside each other in one thread. The state is here; `driver` has the loop, `calls` what the calls
//! do.
//!
//! A request is a call of tasks that receive, send and sleep; or, with a WebSocket, a handler that is given back until
//! a message is there.

mod call;
mod calls;
pub(crate) mod driver;

use crate::clock::Micros;
pub(crate) use call::Call;
use wire::websocket::Kind;

/// The state of an event loop.
#[derive(Debug)]
pub(crate) struct EventLoop {
    /// The calls that have begun.
    pub(crate) calls: Vec<Option<Call>>,
    /// Messages that handlers could not send.
    handler_owes: Vec<Option<(Kind, usize)>>,
    /// Tasks that the loop runs in its next iteration.
    ready: Vec<(usize, usize)>,
    /// Cancellations that are still to come.
    cancels: Vec<(Micros, usize, usize, bool)>,
    /// Number of the loop's next event. Events with another number are void.
    round: u64,
    /// The loop waits, at the latest until then.
    waits_until: Option<Micros>,
    is_wake_scheduled: bool,
    /// Number of waits of tasks.
    pub(crate) waits: u64,
    /// Tasks that were cancelled.
    pub(crate) cancelled: u64,
    /// WebSockets that the application has accepted.
    pub(crate) websockets: u64,
    /// Number of times that a handler was resumed.
    pub(crate) resumed: u64,
    /// Actions of a thread other than the loop's.
    pub(crate) outside: u64,
}

impl EventLoop {
    /// Creates a loop for `count` requests.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            calls: (0..count).map(|_| None).collect(),
            handler_owes: vec![None; count],
            ready: Vec::new(),
            cancels: Vec::new(),
            round: 0,
            waits_until: Some(0),
            is_wake_scheduled: false,
            waits: 0,
            cancelled: 0,
            websockets: 0,
            resumed: 0,
            outside: 0,
        }
    }
}
