//! Exchanges: a request and its response each.
//!
//! ```text
//!   Free ─head─▶ Receiving ─its end─▶ Running ── complete ─┬─ Done, Cut ───▶ Free
//!     │                                ▲ │  ▲              └─ Blocked, Yield ─▶ Suspended ─▶ Running
//!     └─head, no body──────────────────┘ │  └── Queued
//!                                        └─ its deadline has passed, or its client is gone,
//!                                           or the application has hijacked its connection ─▶ Detached ── complete ─▶ Free
//! ```
//!
//! An exchange is `Running` while the application runs its call. It is `Detached` while the call runs but its output is
//! discarded. In both states the connection keeps the exchange's index, because a [`Ticket`](crate::Ticket) refers to
//! it.

mod backlog;
mod incoming;
mod receiving;

pub(crate) use backlog::Backlog;
pub(crate) use incoming::Incoming;
pub use incoming::Input;
pub(crate) use receiving::Receiving;

use crate::app::{App, RequestOf, SenderOf};
use crate::deadline::{Millis, Timer};
use crate::in_flight::InFlight;
use crate::memory::Reservation;
use crate::protocol::{Protocol, StreamId};
use crate::websocket::Upgrade;
use slab::Slab;

/// The index of an exchange on its connection.
pub(crate) type Index = u32;

/// An exchange: one request and its response.
pub(crate) struct Exchange<A: App> {
    pub(crate) stream: StreamId,
    pub(crate) state: State<A>,
    /// The body of the request, if the application reads it as it arrives.
    pub(crate) incoming: Option<Box<Incoming>>,
    /// The memory that the body uses while the request waits or is answered. The application keeps the body until the
    /// response is complete.
    pub(crate) body_memory: Option<Reservation>,
    /// The response, from its head to its end.
    pub(crate) in_flight: Option<InFlight<SenderOf<A>>>,
    /// The part of the response that the client does not accept yet, if each exchange has its own window.
    pub(crate) backlog: Option<Box<Backlog<A::Chunk>>>,
    /// The WebSocket that the request asks for, or that the exchange has become.
    pub(crate) upgrade: Option<Box<Upgrade<A::Message>>>,
    /// The thread or greenlet that waits in the middle of the call, and the condition that it waits for.
    pub(crate) waiter: Option<(Awaited, A::Waiter)>,
    pub(crate) timer: Timer,
}

/// The state of an exchange.
pub(crate) enum State<A: App> {
    /// There is no exchange.
    Free,
    /// The engine receives the request's body.
    Receiving(Box<Receiving<A>>),
    /// The request waits for a thread that calls the application.
    Queued(Box<Queued<A>>),
    /// The application works on it.
    Running(RequestOf<A>),
    /// The application works on the exchange, but its output is discarded.
    Detached(Detached<RequestOf<A>>),
    /// The response has begun and waits: see [`Until`].
    Suspended(Box<Suspended<A>>),
    /// The whole response has been written, but the client has not accepted all of it (multiplexed protocols only). Or
    /// the call of a WebSocket has returned, but the closing handshake has not ended.
    Finishing(RequestOf<A>),
}

pub(crate) struct Queued<A: App> {
    pub(crate) request: A::Request,
    pub(crate) facts: RequestOf<A>,
}

pub(crate) struct Suspended<A: App> {
    pub(crate) response: A::Response,
    pub(crate) facts: RequestOf<A>,
    pub(crate) until: Until,
}

/// The event that a suspended response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The client has accepted the output.
    Output,
    /// Other connections have been served.
    Turn,
    /// A message of the WebSocket has arrived, or its end.
    Message,
    /// A thread is free to handle a message. The response is in the queue of requests.
    Thread,
}

/// A call whose output the engine discards, for one of the reasons in [`Cause`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detached<R> {
    pub(crate) facts: R,
    pub(crate) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client has left, or has reset the exchange.
    Left,
    /// The application has hijacked the connection and answers the client itself.
    Hijacked,
    /// The call has missed its deadline. The engine has answered, or has cut the response.
    Expired {
        /// True if the call is not expected to return. Then a server that stops does not wait for it.
        is_written_off: bool,
    },
}

/// A set of conditions. A call that waits for them in the middle goes on when any of them is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited(u8);

impl Awaited {
    /// Reading returns a result: part of the body, its end, or the news that the rest will not arrive.
    pub const INPUT: Self = Self(1);
    /// The client has accepted all output, or is gone.
    pub const OUTPUT: Self = Self(2);
    /// The client has ended its side of the connection, or is gone.
    pub const DEPARTURE: Self = Self(4);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if the two sets have a condition in common.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl<A: App> Exchange<A> {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            stream: 0,
            state: State::Free,
            incoming: None,
            body_memory: None,
            in_flight: None,
            backlog: None,
            upgrade: None,
            waiter: None,
            timer: Timer::new(now),
        }
    }

    pub(crate) fn is_free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.state, State::Receiving(_))
    }

    /// Returns true if the request, or a message of the WebSocket, waits for a thread.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued(_)) || self.has_queued_message()
    }

    /// Returns true if a message of the WebSocket waits for a thread.
    pub(crate) fn has_queued_message(&self) -> bool {
        matches!(&self.state, State::Suspended(suspended) if suspended.until == Until::Thread)
    }

    /// Returns true if the application runs a call for this exchange, so that its index must be kept.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state, State::Running(_) | State::Detached(_))
    }

    /// Returns true if the running call has missed its deadline.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Expired { .. }, .. }))
    }

    /// Returns true if the application has hijacked the connection.
    pub(crate) fn is_hijacked(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Hijacked, .. }))
    }

    /// Returns true if only a call is left that is not expected to return.
    pub(crate) fn is_written_off(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Expired { is_written_off: true }, .. }))
    }

    /// Returns the properties of the request that the response depends on.
    pub(crate) fn facts(&self) -> Option<RequestOf<A>> {
        match &self.state {
            State::Free => None,
            State::Receiving(receiving) => Some(receiving.facts),
            State::Queued(queued) => Some(queued.facts),
            State::Running(facts) | State::Finishing(facts) => Some(*facts),
            State::Detached(detached) => Some(detached.facts),
            State::Suspended(suspended) => Some(suspended.facts),
        }
    }

    /// Discards the output of the running call from now on.
    pub(crate) fn detach(&mut self, cause: Cause) {
        if let State::Running(facts) = self.state {
            self.state = State::Detached(Detached { facts, cause });
        }
    }

    /// Returns true if a part of the response waits until the client accepts more bytes of this exchange.
    pub(crate) fn has_backlog(&self) -> bool {
        <A::Protocol as Protocol>::MULTIPLEXED && self.backlog.as_ref().is_some_and(|backlog| !backlog.is_empty())
    }

    /// Returns true if the engine may receive more of the request's body now.
    pub(crate) fn wants_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.wants_more())
    }

    /// Wakes the call if it waits for any of these conditions.
    pub(crate) fn wake(&mut self, awaited: Awaited, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take_if(|(what, _)| what.has(awaited)) {
            app.wake(waiter);
        }
    }

    /// Frees the exchange's index and drops everything that it holds.
    pub(crate) fn clear(&mut self) {
        self.state = State::Free;
        self.incoming = None;
        self.body_memory = None;
        self.in_flight = None;
        self.backlog = None;
        self.upgrade = None;
    }

    /// Returns true if the exchange is an open WebSocket.
    #[inline]
    pub(crate) fn has_websocket(&self) -> bool {
        self.upgrade.as_deref().is_some_and(|upgrade| matches!(upgrade, Upgrade::Open(_)))
    }
}

/// The exchanges of one connection. The first one is stored in the connection itself, so that a serial protocol needs
/// no memory for others.
pub(crate) struct Exchanges<A: App> {
    pub(crate) first: Exchange<A>,
    /// The exchanges at index 1 and above.
    others: Option<Box<Slab<Exchange<A>>>>,
}

impl<A: App> Exchanges<A> {
    const MULTIPLEXED: bool = <A::Protocol as Protocol>::MULTIPLEXED;

    pub(crate) fn new(now: Millis) -> Self {
        Self { first: Exchange::new(now), others: None }
    }

    /// Returns the exchange at `index`, which must be under way.
    #[inline]
    pub(crate) fn at(&mut self, index: Index) -> &mut Exchange<A> {
        if !Self::MULTIPLEXED || index == 0 {
            return &mut self.first;
        }
        let others = self.others.as_mut().expect("an exchange beyond the first is under way");
        &mut others[index as usize - 1]
    }

    #[inline]
    pub(crate) fn get(&self, index: Index) -> Option<&Exchange<A>> {
        if !Self::MULTIPLEXED || index == 0 {
            return Some(&self.first);
        }
        self.others.as_ref()?.get(index as usize - 1)
    }

    /// Returns the exchanges that are under way, with their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Exchange<A>)> {
        let others = self.others.iter().flat_map(|others| others.iter());
        // The configuration limits the number of exchanges to far below 2^32.
        let others = others.map(|(at, exchange)| (u32::try_from(at + 1).unwrap_or(u32::MAX), exchange));
        std::iter::once((0, &self.first)).chain(others).filter(|(_, exchange)| !exchange.is_free())
    }

    /// Returns the indices of the exchanges that are under way now. Allocates no memory if only the first one is.
    pub(crate) fn indices(&self) -> impl Iterator<Item = Index> + use<A> {
        let first = (!self.first.is_free()).then_some(0);
        let has_others = self.others.as_ref().is_some_and(|others| !others.is_empty());
        let others =
            has_others.then(|| self.iter().map(|(index, _)| index).filter(|&index| index > 0).collect::<Vec<_>>());
        first.into_iter().chain(others.into_iter().flatten())
    }

    pub(crate) fn any(&self, mut is: impl FnMut(&Exchange<A>) -> bool) -> bool {
        if !Self::MULTIPLEXED {
            return is(&self.first);
        }
        self.iter().any(|(_, exchange)| is(exchange))
    }

    /// Returns true if no exchange is under way.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_free() && self.others.as_ref().is_none_or(|others| others.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(!self.first.is_free()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    /// Returns true if the application runs a call for any of the exchanges.
    #[inline]
    pub(crate) fn has_calls(&self) -> bool {
        self.first.is_out() || Self::MULTIPLEXED && self.any(Exchange::is_out)
    }

    /// Returns the index that the next exchange will have.
    pub(crate) fn next_index(&self) -> Index {
        if !Self::MULTIPLEXED || self.first.is_free() {
            return 0;
        }
        self.others.as_ref().map_or(1, |others| u32::try_from(others.vacant_key() + 1).unwrap_or(u32::MAX))
    }

    /// Makes room for an exchange at [`next_index`](Self::next_index) and returns that index. Its state is still
    /// `Free`.
    pub(crate) fn insert(&mut self, stream: StreamId, now: Millis) -> Index {
        let index = self.next_index();
        if index == 0 {
            self.first.stream = stream;
        } else {
            let exchange = Exchange { stream, ..Exchange::new(now) };
            self.others.get_or_insert_with(Box::default).insert(exchange);
        }
        index
    }

    /// Removes the exchange at `index`.
    pub(crate) fn remove(&mut self, index: Index) {
        if !Self::MULTIPLEXED || index == 0 {
            self.first.clear();
        } else if let Some(others) = &mut self.others {
            others.try_remove(index as usize - 1);
            if others.is_empty() {
                self.others = None;
            }
        }
    }

    /// Returns the index of the exchange with this stream number of the protocol.
    pub(crate) fn find(&self, stream: StreamId) -> Option<Index> {
        self.iter().find(|(_, exchange)| exchange.stream == stream).map(|(index, _)| index)
    }
}
