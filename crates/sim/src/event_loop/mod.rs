//! The event loop of a world, modelled on asyncio's: the loop's selector polls the engine, and the application's calls
//! run concurrently in one thread. This file has the state; `driver` has the loop, `calls` the operations of the calls.
//!
//! A call consists of tasks that receive, send and sleep; or, for a WebSocket, it is a handler that is suspended until
//! a message arrives.

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
    /// The messages that handlers could not send yet.
    handler_owes: Vec<Option<(Kind, usize)>>,
    /// The tasks that the loop runs in its next iteration.
    ready: Vec<(usize, usize)>,
    /// The cancellations that are due later.
    cancels: Vec<(Micros, usize, usize, bool)>,
    /// The number of the loop's next event. Events with another number are void.
    round: u64,
    /// The time by which the loop's wait ends; `None` while the loop runs.
    waits_until: Option<Micros>,
    is_wake_scheduled: bool,
    /// The number of waits of tasks.
    pub(crate) waits: u64,
    /// The number of tasks that were cancelled.
    pub(crate) cancelled: u64,
    /// The number of WebSockets that the application has accepted.
    pub(crate) websockets: u64,
    /// The number of times that a handler was resumed.
    pub(crate) resumed: u64,
    /// The number of actions of a thread other than the loop's.
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
