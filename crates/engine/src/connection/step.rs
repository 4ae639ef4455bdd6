//! The results of a step of a connection, and the answers that the engine gives instead of the application.

use crate::app::{App, Refusal, RefusalCause};
use crate::exchange::Index;
use crate::protocol::ProtocolKind;

/// The response that a client got when its call missed its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The page of `504 Gateway Timeout`; `body_bytes`: the length of its body.
    Answered {
        /// The length of the body in bytes, without framing.
        body_bytes: u64,
    },
    /// A part of the application's response, and the end of the exchange, so that the client sees that the rest is
    /// missing.
    Cut {
        /// The length of the body's part in bytes, without framing.
        body_bytes: u64,
    },
    /// The whole response of the application, which had been written before: only the call has not ended.
    Whole,
    /// Nothing: the client had left before.
    Left,
}

/// The answer to a request for which the server has no thread.
pub(super) const BUSY: Refusal = Refusal::of_status(503);

/// The answer to a queued request whose client has closed its side of the connection.
pub(super) const LEFT: Refusal = Refusal { status: 503, cause: Some(RefusalCause::Left) };

/// The refusal sent to a client whose call has missed its deadline.
pub(super) const MISSED: Refusal = Refusal::of_status(504);

/// The action that the engine takes after it has driven a connection.
pub(crate) enum NextAction<A: App> {
    /// The connection waits for its transport, a deadline, or calls.
    Wait,
    /// The connection could go on, but the engine serves other connections first.
    Again,
    /// A request may have arrived, but the queue of requests is full.
    AwaitRoom,
    /// The application has to answer a request. Its exchange is `Running`.
    Call(Index, A::Request),
    /// The application can continue a response. Its exchange is `Running`.
    Resume(Index, A::Response),
    /// A message has arrived for a response that listens. The response waits for a thread.
    Enqueue(Index),
    /// The connection has ended.
    Close,
}

/// The result of a step of a session.
pub(super) enum Step<A: App> {
    /// There may be more to do.
    Next,
    /// The input belongs to a protocol of this kind, so the connection needs another session. This one has read none
    /// of it.
    Become(ProtocolKind),
    /// The connection can do no more now.
    Stop(NextAction<A>),
    /// The peer is gone, or must see that something is missing.
    Abort,
    /// Nothing more is to be sent to the peer.
    End,
    /// The connection is over, apart from its running calls.
    Leave,
}

/// The outcome of servicing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serviced {
    /// The client has more to send, or has still to take its answer.
    Stays,
    /// The input is for the application.
    Waits,
    /// The connection is over.
    Over,
}

/// The refusal sent to a client that was too slow to send.
pub(super) const SLOW: Refusal = Refusal::of_status(408);

/// The work of a connection with several exchanges while the call that it has begun runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BesideCall {
    /// None before the poller reports an event.
    Nothing,
    /// Input that may hold other requests, other exchanges, or answers of the protocol.
    More,
    /// None before the call is answered: the connection ends with it, and no further input matters. The connection is
    /// then like a short-lived one of a serial protocol. A wait for the client to leave, or to take output, has the
    /// poller watch it all the same.
    End,
}

/// The share that one connection has of the calls and of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// The number of calls that run, and how many may run at a time.
    pub(crate) calls: usize,
    pub(crate) most: usize,
    /// The number of requests that wait for a thread.
    pub(crate) queued: usize,
}
