//! The results of a step of a connection, and the refusals that the engine sends instead of a response of the
//! application.

use crate::app::{App, Refusal, RefusalCause};
use crate::exchange::Index;
use crate::protocol::ProtocolKind;

/// The response that a client receives when its call has missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The page of `504 Gateway Timeout`.
    Answered {
        /// The length of the body in bytes, without framing.
        body_bytes: u64,
    },
    /// A part of the application's response. The engine ends the exchange so that the client sees that the rest is
    /// missing.
    Cut {
        /// The length in bytes of the part of the body, without framing.
        body_bytes: u64,
    },
    /// The whole response, which the application had already written. Only the call has not ended.
    Whole,
    /// Nothing, because the client had already left.
    Left,
}

/// The refusal of a request for which the server has no free thread.
pub(super) const BUSY: Refusal = Refusal::of_status(503);

/// The refusal of a queued request whose client has closed its side of the connection.
pub(super) const LEFT: Refusal = Refusal { status: 503, cause: Some(RefusalCause::Left) };

/// The refusal of a request whose call has missed its deadline.
pub(super) const MISSED: Refusal = Refusal::of_status(504);

/// The action that the engine takes after it has driven a connection.
pub(crate) enum NextAction<A: App> {
    /// The connection waits for its transport, a deadline, or calls.
    Wait,
    /// The connection could continue, but the engine serves other connections first.
    Again,
    /// A request may have arrived, but the queue of requests is full.
    AwaitRoom,
    /// The application has to answer this request. The exchange is `Running`.
    Call(Index, A::Request),
    /// The application can continue this response. The exchange is `Running`.
    Resume(Index, A::Response),
    /// A message has arrived for a response that listens. The response now waits for a thread.
    Enqueue(Index),
    /// The connection has ended.
    Close,
}

/// The result of a step of a session.
pub(super) enum Step<A: App> {
    /// There may be more to do.
    Next,
    /// The input belongs to a protocol of this kind, so the connection needs another session. The current session has
    /// used none of the input.
    Become(ProtocolKind),
    /// The connection cannot continue now.
    Stop(NextAction<A>),
    /// The peer is gone, or must see that a response is incomplete.
    Abort,
    /// Nothing more has to be sent to the peer.
    End,
    /// The connection has ended, apart from its running calls.
    Leave,
}

/// The result of servicing a connection without the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serviced {
    /// The connection stays: the client has more to send, or has not read its response.
    Stays,
    /// The connection waits for a poll, because its input is for the application.
    Waits,
    /// The connection has ended.
    Over,
}

/// The refusal of a request that arrived too slowly.
pub(super) const SLOW: Refusal = Refusal::of_status(408);

/// The work that a multiplexed connection has while the call that it has begun runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BesideCall {
    /// No work before the poller reports an event.
    Nothing,
    /// Input, which may hold other requests, data of other exchanges, or messages that the protocol answers.
    More,
    /// No work before the call has answered: the connection ends with that response, and further input is ignored, as
    /// on a short-lived connection of a serial protocol. If the call waits for the client to leave or to read output,
    /// the poller watches the connection nevertheless.
    End,
}

/// The share of one connection in the calls and in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// The number of running calls, and their maximum.
    pub(crate) calls: usize,
    pub(crate) most: usize,
    /// The number of requests that wait for a thread.
    pub(crate) queued: usize,
}
