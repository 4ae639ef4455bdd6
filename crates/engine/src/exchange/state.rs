//! The states of an exchange, and all transitions between them.
//!
//! [`ExchangeStage::TABLE`] has all transitions; docs/design/engine.md has the diagram that is generated from it. Only
//! the methods of [`ExchangeState`] change the state of an exchange. A debug build asserts that each transition is in
//! the table.

use crate::app::{App, TermsOf};
use crate::memory::{BodyMemory, Reservation};
use crate::spool::{Body, Spool};
use std::io;
use transitions::{Machine, Table, WithData};
use wire::message::BodyLength;

/// The state of an exchange, which other code may read.
pub(crate) enum State<A: App> {
    /// There is no exchange.
    Free,
    /// The engine receives the request's body.
    Receiving(Box<Receiving<A>>),
    /// The request waits for a thread that can call the application.
    Queued(Box<Queued<A>>),
    /// The application runs the call.
    Running(TermsOf<A>),
    /// The application runs the call, but the engine discards its output.
    Detached(Detached<TermsOf<A>>),
    /// The response has begun and waits: see [`Until`].
    Suspended(Box<Suspended<A>>),
    /// The whole response has been written, but the client has not read all of it (multiplexed protocols only); or the
    /// call of a WebSocket has returned, but the closing handshake has not ended.
    Finishing(TermsOf<A>),
}

/// A request whose body has not arrived completely.
pub(crate) struct Receiving<A: App> {
    pub(crate) request: A::Request,
    terms: TermsOf<A>,
    pub(crate) spool: Spool,
}

/// A request that waits for a thread.
pub(crate) struct Queued<A: App> {
    pub(crate) request: A::Request,
    terms: TermsOf<A>,
}

/// An incomplete response that the application has returned.
pub(crate) struct Suspended<A: App> {
    pub(crate) response: A::Response,
    terms: TermsOf<A>,
    pub(super) until: Until,
}

/// The event for which a suspended response waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// The client has read the output.
    Output,
    /// Other connections have been driven.
    Turn,
    /// A message of the WebSocket has arrived, or its end.
    Message,
    /// A thread is free to handle a message. The response is in the queue of requests.
    Thread,
}

/// A call whose output the engine discards. [`Cause`] says why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detached<T> {
    pub(crate) terms: T,
    pub(crate) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client has left, or has reset the exchange.
    Left,
    /// The application has hijacked the connection and answers the client itself.
    Hijacked,
    /// The call has missed its deadline. The engine has answered the client, or has cut the response.
    Expired {
        /// True if the call is not expected to return, so that a server that stops does not wait for it.
        is_written_off: bool,
    },
}

/// The state of an exchange, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeStage {
    Free,
    Receiving,
    Queued,
    Running,
    Detached,
    Suspended,
    Finishing,
}

/// An event that changes the state of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeEvent {
    /// A head has arrived, and the body is received as a whole.
    Head,
    /// The request is complete, or the application reads its body as it arrives. The application has to be called.
    Ready,
    /// The engine has answered the request instead of the application.
    Answered,
    /// No thread can call the application now.
    NoThread,
    /// A thread can call the application.
    Thread,
    /// The application has returned an incomplete response.
    Paused,
    /// The application can continue the response.
    Resumed,
    /// The engine discards the output of the call from now on.
    Detached,
    /// The response is complete, but the client has not read all of it.
    Written,
    /// The exchange has nothing left to do, or is given up.
    Over,
}

impl<A: App> WithData for State<A> {
    type Plain = ExchangeStage;

    fn plain(&self) -> ExchangeStage {
        match self {
            State::Free => ExchangeStage::Free,
            State::Receiving(_) => ExchangeStage::Receiving,
            State::Queued(_) => ExchangeStage::Queued,
            State::Running(_) => ExchangeStage::Running,
            State::Detached(_) => ExchangeStage::Detached,
            State::Suspended(_) => ExchangeStage::Suspended,
            State::Finishing(_) => ExchangeStage::Finishing,
        }
    }
}

impl Machine for ExchangeStage {
    type Event = ExchangeEvent;
    const TABLE: Table<Self, ExchangeEvent> = Table {
        name: "exchange",
        initial: Self::Free,
        rows: &[
            (Self::Free, ExchangeEvent::Head, Self::Receiving),
            (Self::Free, ExchangeEvent::Ready, Self::Running),
            (Self::Free, ExchangeEvent::Answered, Self::Finishing),
            (Self::Receiving, ExchangeEvent::Ready, Self::Running),
            (Self::Receiving, ExchangeEvent::Over, Self::Free),
            (Self::Running, ExchangeEvent::NoThread, Self::Queued),
            (Self::Running, ExchangeEvent::Paused, Self::Suspended),
            (Self::Running, ExchangeEvent::Detached, Self::Detached),
            (Self::Running, ExchangeEvent::Written, Self::Finishing),
            (Self::Running, ExchangeEvent::Over, Self::Free),
            (Self::Queued, ExchangeEvent::Thread, Self::Running),
            (Self::Queued, ExchangeEvent::Over, Self::Free),
            (Self::Suspended, ExchangeEvent::Resumed, Self::Running),
            (Self::Suspended, ExchangeEvent::Over, Self::Free),
            (Self::Detached, ExchangeEvent::Detached, Self::Detached),
            (Self::Detached, ExchangeEvent::Written, Self::Finishing),
            (Self::Detached, ExchangeEvent::Over, Self::Free),
            (Self::Finishing, ExchangeEvent::Over, Self::Free),
        ],
    };
}

/// The state of one exchange. Only this type's methods change it.
pub(crate) struct ExchangeState<A: App>(State<A>);

impl<A: App> ExchangeState<A> {
    pub(crate) fn new() -> Self {
        Self(State::Free)
    }

    /// Returns a reference to the state.
    #[inline]
    pub(crate) fn view(&self) -> &State<A> {
        &self.0
    }

    /// Changes to another state. Returns the previous one.
    #[inline]
    fn go(&mut self, event: ExchangeEvent, to: State<A>) -> State<A> {
        transitions::replace(&mut self.0, event, to)
    }

    /// Returns the properties of the request that determine the form of its response; `None` if there is no exchange.
    pub(crate) fn terms(&self) -> Option<TermsOf<A>> {
        match &self.0 {
            State::Free => None,
            State::Receiving(receiving) => Some(receiving.terms),
            State::Queued(queued) => Some(queued.terms),
            State::Running(terms) | State::Finishing(terms) => Some(*terms),
            State::Detached(detached) => Some(detached.terms),
            State::Suspended(suspended) => Some(suspended.terms),
        }
    }

    /// Begins to receive the body of a request as a whole.
    pub(crate) fn receive(&mut self, request: A::Request, terms: TermsOf<A>, length: BodyLength, memory: &BodyMemory) {
        let expected = if let BodyLength::Known(length) = length { Some(length) } else { None };
        let spool = Spool::new(memory.reservation(), expected);
        self.go(ExchangeEvent::Head, State::Receiving(Box::new(Receiving { request, terms, spool })));
    }

    /// Returns the body that is being received; `None` if no body is being received.
    pub(crate) fn spool(&mut self) -> Option<&mut Spool> {
        if let State::Receiving(receiving) = &mut self.0 { Some(&mut receiving.spool) } else { None }
    }

    /// Ends the body that is being received. Returns the request, which is now ready, with its body; `None` if no body
    /// is being received.
    ///
    /// # Errors
    /// If the file of the body cannot be read. The state is unchanged then, but the body is lost.
    pub(crate) fn end_body(
        &mut self,
        memory: &BodyMemory,
    ) -> io::Result<Option<(A::Request, Body<'static>, Reservation)>> {
        let State::Receiving(receiving) = &mut self.0 else { return Ok(None) };
        let spool = std::mem::replace(&mut receiving.spool, Spool::new(memory.reservation(), None));
        let (body, reserved) = spool.finish()?;
        let terms = receiving.terms;
        match self.go(ExchangeEvent::Ready, State::Running(terms)) {
            State::Receiving(receiving) => Ok(Some((receiving.request, body, reserved))),
            _ => Ok(None),
        }
    }

    /// Begins the call of a request that is ready as soon as its head is.
    #[inline]
    pub(crate) fn run(&mut self, terms: TermsOf<A>) {
        self.go(ExchangeEvent::Ready, State::Running(terms));
    }

    /// Records that the engine has answered the request itself.
    pub(crate) fn answer(&mut self, terms: TermsOf<A>) {
        self.go(ExchangeEvent::Answered, State::Finishing(terms));
    }

    /// Makes a ready request wait for a thread.
    pub(crate) fn enqueue(&mut self, request: A::Request) {
        let State::Running(terms) = self.0 else { unreachable!("a request that is ready has begun its call") };
        self.go(ExchangeEvent::NoThread, State::Queued(Box::new(Queued { request, terms })));
    }

    /// Removes and returns the request that waits for a thread, because a thread is free now; `None` if no request
    /// waits.
    pub(crate) fn dequeue(&mut self) -> Option<A::Request> {
        let State::Queued(queued) = &self.0 else { return None };
        let terms = queued.terms;
        match self.go(ExchangeEvent::Thread, State::Running(terms)) {
            State::Queued(queued) => Some(queued.request),
            _ => None,
        }
    }

    /// Stores an incomplete response that the application has returned.
    pub(crate) fn suspend(&mut self, response: A::Response, until: Until) {
        let State::Running(terms) = self.0 else { unreachable!("only a running call returns a response") };
        self.go(ExchangeEvent::Paused, State::Suspended(Box::new(Suspended { response, terms, until })));
    }

    /// Returns the event for which the suspended response waits; `None` if no response is suspended.
    pub(crate) fn until(&self) -> Option<Until> {
        if let State::Suspended(suspended) = &self.0 { Some(suspended.until) } else { None }
    }

    /// Changes the event for which the suspended response waits.
    pub(crate) fn wait_until(&mut self, until: Until) {
        if let State::Suspended(suspended) = &mut self.0 {
            suspended.until = until;
        }
    }

    /// Removes and returns the suspended response, which the application continues; `None` if no response is suspended.
    pub(crate) fn resume(&mut self) -> Option<A::Response> {
        let State::Suspended(suspended) = &self.0 else { return None };
        let terms = suspended.terms;
        match self.go(ExchangeEvent::Resumed, State::Running(terms)) {
            State::Suspended(suspended) => Some(suspended.response),
            _ => None,
        }
    }

    /// Makes the engine discard the output of the running call from now on.
    pub(crate) fn detach(&mut self, cause: Cause) {
        if let State::Running(terms) = self.0 {
            self.go(ExchangeEvent::Detached, State::Detached(Detached { terms, cause }));
        }
    }

    /// Changes the reason why the call's output is discarded. Returns false if the output is not discarded.
    pub(crate) fn detach_again(&mut self, cause: Cause) -> bool {
        let State::Detached(Detached { terms, .. }) = self.0 else { return false };
        self.go(ExchangeEvent::Detached, State::Detached(Detached { terms, cause }));
        true
    }

    /// Records that the response is complete, but that the client has not read all of it.
    pub(crate) fn written(&mut self) {
        if let State::Running(terms) | State::Detached(Detached { terms, .. }) = self.0 {
            self.go(ExchangeEvent::Written, State::Finishing(terms));
        }
    }

    /// Ends the exchange in any state. Returns that state.
    #[inline]
    pub(crate) fn end(&mut self) -> State<A> {
        if let State::Free = self.0 {
            return State::Free;
        }
        self.go(ExchangeEvent::Over, State::Free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound_and_drawn_in_the_docs() {
        assert_eq!(ExchangeStage::TABLE.validate(), Ok(()));
        ExchangeStage::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/engine.md"));
    }
}
