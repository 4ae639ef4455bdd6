//! One exchange: a request and its response.
//!
//! ```text
//!   Free ─head─▶ Receiving ─its end─▶ Running ── complete ─┬─ Done, Cut ───▶ Free
//!     │                                ▲ │  ▲              └─ Blocked, Yield ─▶ Suspended ─▶ Running
//!     └─head, no body──────────────────┘ │  └── Queued
//!                                        └─ its deadline has passed, or its client is gone,
//!                                           or the application has hijacked its connection ─▶ Detached ── complete ─▶ Free
//! ```
//!
//! An exchange is `Running` while its call is out, and `Detached` while the call is out and what it writes goes nowhere.
//! In both the exchange's place on its connection is kept, because a [`Ticket`](crate::Ticket) names it.

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

/// The place of an exchange on its connection.
pub(crate) type Index = u32;

/// One request and its response.
pub(crate) struct Exchange<A: App> {
    pub(crate) stream: StreamId,
    pub(crate) state: State<A>,
    /// The body of the request, where it is handed on as it arrives.
    pub(crate) incoming: Option<Box<Incoming>>,
    /// What the body takes of memory while the request waits or is answered: the application has it until the response
    /// is complete.
    pub(crate) body_memory: Option<Reservation>,
    /// The response that has begun, until it ends.
    pub(crate) in_flight: Option<InFlight<SenderOf<A>>>,
    /// What of the response its client does not take yet, where each exchange has its own window.
    pub(crate) backlog: Option<Box<Backlog<A::Chunk>>>,
    /// The WebSocket that its request asks for, or that it has become.
    pub(crate) upgrade: Option<Box<Upgrade<A::Message>>>,
    /// Waits in the middle of the call.
    pub(crate) waiter: Option<(Awaited, A::Waiter)>,
    pub(crate) timer: Timer,
}

/// Where an exchange is.
pub(crate) enum State<A: App> {
    /// There is none.
    Free,
    /// The request's body is awaited or partly here.
    Receiving(Box<Receiving<A>>),
    /// The request waits for a thread that calls the application.
    Queued(Box<Queued<A>>),
    /// The application works on it.
    Running(RequestOf<A>),
    /// The same, and what it writes goes nowhere.
    Detached(Detached<RequestOf<A>>),
    /// The response is under way, and waits for its client or its turn.
    Suspended(Box<Suspended<A>>),
    /// The response has been written as a whole, and its client has not taken all of it: multiplexed protocols only. Or the
    /// call of a WebSocket is over, and its closing handshake is not.
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

/// What a suspended response waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Its client, to take what was written.
    Output,
    /// Others, to have their turn.
    Turn,
    /// A message of its WebSocket, or the end.
    Message,
    /// A thread for the message that is there: it is in the queue, as requests are.
    Thread,
}

/// A call whose client has its answer, or is gone, or is the application's own affair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detached<R> {
    pub(crate) facts: R,
    pub(crate) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client is gone, or has given up the exchange.
    Left,
    /// The application has hijacked the connection, and answers by itself.
    Hijacked,
    /// The call has missed its deadline: the engine has answered, or cut the response.
    Expired {
        /// It is not expected to come back: the server's end does not wait for it.
        is_written_off: bool,
    },
}

/// What a call waits for in the middle: one of several things, or any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited(u8);

impl Awaited {
    /// Reading gives something: some of the body, its end, or that the rest will not come.
    pub const INPUT: Self = Self(1);
    /// The client has taken all that was written, or is gone.
    pub const OUTPUT: Self = Self(2);
    /// The client has ended its side of the connection, or is gone.
    pub const DEPARTURE: Self = Self(4);

    /// Either of both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is among these.
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

    /// Whether its request, or a message of its WebSocket, waits for a thread.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued(_)) || self.has_queued_message()
    }

    /// Whether a message of its WebSocket waits for a thread.
    pub(crate) fn has_queued_message(&self) -> bool {
        matches!(&self.state, State::Suspended(suspended) if suspended.until == Until::Thread)
    }

    /// Whether a call is out for it, so that its place has to be kept.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.state, State::Running(_) | State::Detached(_))
    }

    /// Whether the call that is out has missed its deadline.
    pub(crate) fn is_expired(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Expired { .. }, .. }))
    }

    /// Whether the application has hijacked its connection.
    pub(crate) fn is_hijacked(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Hijacked, .. }))
    }

    /// Whether nothing is left of it but a call that is not expected to come back.
    pub(crate) fn is_written_off(&self) -> bool {
        matches!(self.state, State::Detached(Detached { cause: Cause::Expired { is_written_off: true }, .. }))
    }

    /// What its response depends on.
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

    /// What the call that is out writes goes nowhere from now on.
    pub(crate) fn detach(&mut self, cause: Cause) {
        if let State::Running(facts) = self.state {
            self.state = State::Detached(Detached { facts, cause });
        }
    }

    /// Whether some of the response waits for the client to take more of this exchange.
    pub(crate) fn has_backlog(&self) -> bool {
        <A::Protocol as Protocol>::MULTIPLEXED && self.backlog.as_ref().is_some_and(|backlog| !backlog.is_empty())
    }

    /// Whether more of the request's body would be taken now.
    pub(crate) fn wants_body(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.wants_more())
    }

    /// Wakes the call if it waits for this.
    pub(crate) fn wake(&mut self, awaited: Awaited, app: &mut A) {
        if let Some((_, waiter)) = self.waiter.take_if(|(what, _)| what.has(awaited)) {
            app.wake(waiter);
        }
    }

    /// Its place becomes free; whatever it holds is let go.
    pub(crate) fn clear(&mut self) {
        self.state = State::Free;
        self.incoming = None;
        self.body_memory = None;
        self.in_flight = None;
        self.backlog = None;
        self.upgrade = None;
    }

    /// Whether it is an open WebSocket.
    #[inline]
    pub(crate) fn has_websocket(&self) -> bool {
        self.upgrade.as_deref().is_some_and(|upgrade| matches!(upgrade, Upgrade::Open(_)))
    }
}

/// The exchanges of one connection. The first one has its place in the connection, so that a protocol that has one at a
/// time pays for no other.
pub(crate) struct Exchanges<A: App> {
    pub(crate) first: Exchange<A>,
    /// Those at 1 and beyond.
    others: Option<Box<Slab<Exchange<A>>>>,
}

impl<A: App> Exchanges<A> {
    const MULTIPLEXED: bool = <A::Protocol as Protocol>::MULTIPLEXED;

    pub(crate) fn new(now: Millis) -> Self {
        Self { first: Exchange::new(now), others: None }
    }

    /// The exchange at `index`, which is under way.
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

    /// Those that are under way, with their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Index, &Exchange<A>)> {
        let others = self.others.iter().flat_map(|others| others.iter());
        // Places are fewer than a configuration allows, which is far below 2^32.
        let others = others.map(|(at, exchange)| (u32::try_from(at + 1).unwrap_or(u32::MAX), exchange));
        std::iter::once((0, &self.first)).chain(others).filter(|(_, exchange)| !exchange.is_free())
    }

    /// Those that are under way now. One alone needs no memory.
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

    /// Whether none is under way.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_free() && self.others.as_ref().is_none_or(|others| others.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        usize::from(!self.first.is_free()) + self.others.as_ref().map_or(0, |others| others.len())
    }

    /// Whether a call is out for any of them.
    #[inline]
    pub(crate) fn has_calls(&self) -> bool {
        self.first.is_out() || Self::MULTIPLEXED && self.any(Exchange::is_out)
    }

    /// The place that the next exchange will have.
    pub(crate) fn next_index(&self) -> Index {
        if !Self::MULTIPLEXED || self.first.is_free() {
            return 0;
        }
        self.others.as_ref().map_or(1, |others| u32::try_from(others.vacant_key() + 1).unwrap_or(u32::MAX))
    }

    /// Makes a place for an exchange: [`next_index`](Self::next_index). It is free still.
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

    /// Gives up the place of an exchange.
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

    /// The place of the exchange that its protocol calls so.
    pub(crate) fn find(&self, stream: StreamId) -> Option<Index> {
        self.iter().find(|(_, exchange)| exchange.stream == stream).map(|(index, _)| index)
    }
}
