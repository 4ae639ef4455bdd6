//! One connection: receives, serves, sends, and knows when time is up.
//!
//! A connection owns a transport, a protocol, and the exchanges that are under way on it. [`Connection::drive`] does all
//! that can be done without waiting and sets the deadlines of what is waited for next.
//!
//! ```text
//!   Open ─── the last response is complete, or a request was refused ──▶ Closing ─▶ Linger ─▶ closed
//!     └───── the peer is gone ──────────────────────────────────────────────┴─────────┴─────▶ Gone
//! ```
//!
//! Where each exchange stands is its own affair ([`crate::exchange`]). A connection that is over but for calls that are
//! out is `Gone`: its slot stays taken until they come back.
//!
//! While output waits for the peer, nothing is read, parsed or produced for this connection: that is the backpressure, in
//! both directions. With a serial protocol, nothing of the next request is read while an exchange is under way either.
//!
//! The file is long because the steps of the state machine and what ends a connection are read together; what belongs to
//! heads, bodies, calls and deadlines stands in files of its own.

mod body;
mod call;
mod expiring;
mod head;
mod multiplexed;
mod output;
mod waiting;
mod watchdog;

use crate::app::{App, CallId, Refusal, Report};
use crate::config::{CALLS_PER_ROUND, GLANCE, LINGER_BYTES};
use crate::context::EngineContext;
use crate::deadline::{Millis, Timer};
use crate::exchange::{Awaited, Cause, Exchange, Exchanges, Index, State};
use crate::meter;
use crate::net::Net;
use crate::observe::{Observer, Stage};
use crate::protocol::Protocol;
use crate::responder::Responder;
use crate::transport::{Received, Transport};
use output::Outbound;
use std::any::Any;
use std::collections::VecDeque;
use wire::message::Fault;

pub use expiring::Expired;
pub(crate) use watchdog::Serviced;

/// What becomes of a connection that was driven.
pub(crate) enum NextAction<A: App> {
    /// It waits for its transport, a deadline, or calls.
    Wait,
    /// It could go on, but others should have their turn.
    Again,
    /// A request may be there that cannot even wait now.
    AwaitRoom,
    /// A request is ready to be answered; its exchange is `Running`.
    Call(Index, A::Request),
    /// A response may go on; its exchange is `Running`.
    Resume(Index, A::Response),
    /// It is over.
    Close,
}

/// What follows a step of [`Connection::drive`].
enum Step<A: App> {
    Next,
    Stop(NextAction<A>),
}

pub(crate) struct Connection<A: App> {
    transport: <A::Net as Net>::Transport,
    slot: usize,
    lifecycle: Lifecycle,
    protocol: A::Protocol,
    exchanges: Exchanges<A>,
    input: Inbound,
    send: Outbound<A::Chunk>,
    /// `None` until the application is told of the connection, before it is driven for the first time.
    pub(crate) app: Option<A::Connection>,
    /// What the connection as a whole waits for.
    timer: Timer,
    /// When it was last driven.
    touched: Millis,
    turn: Turn,
    history: History,
    /// The peer has been told that no further exchange is begun. Multiplexed protocols only.
    has_announced_end: bool,
    pub(crate) place: Place,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// The last response is leaving.
    Closing(Closing),
    /// All is sent; what the peer still sends is discarded until it closes, up to so many bytes.
    Linger(u64),
    /// The peer is gone, or needs nothing more.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// The peer asked for it and has sent nothing more.
    Orderly,
    /// The peer may still be sending.
    Linger,
    /// The peer must see that something is missing.
    Reset,
}

/// What has been received and not used.
struct Inbound {
    bytes: Vec<u8>,
    /// Of `bytes`, so much is used.
    used: usize,
    /// `bytes` has been looked at and is not enough.
    is_exhausted: bool,
    /// The transport may have bytes for us: set by readiness, cleared when it says that it is drained.
    is_readable: bool,
    /// The end of input has been read.
    has_ended: bool,
}

impl Inbound {
    fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }

    fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Forgets what is here, and looks at no more of it.
    fn discard(&mut self) {
        self.bytes = Vec::new();
        self.used = 0;
        self.is_exhausted = true;
    }
}

/// Requests that became ready in the round with this number.
struct Turn {
    round: u64,
    called: usize,
}

/// What has happened on the connection so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// No request has come.
    New,
    /// One has; what it left behind for speed is kept.
    Served,
    /// One has, and what was kept for speed has been given back.
    Rested,
}

/// Where the engine has the connection in its lists.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The poller knows its transport; and reports when it takes output again.
    pub(crate) is_registered: bool,
    pub(crate) awaits_writable: bool,
    /// A call has left output waiting, at a time that was not told: the next poll sets the deadline.
    pub(crate) needs_deadline: bool,
    /// In a queue of those that are driven without readiness.
    pub(crate) again: bool,
    /// Queued to be driven when there is room for its request.
    pub(crate) awaits_room: bool,
}

impl<A: App> Connection<A> {
    const MULTIPLEXED: bool = <A::Protocol as Protocol>::MULTIPLEXED;

    pub(crate) fn new(
        transport: <A::Net as Net>::Transport,
        slot: usize,
        app: Option<A::Connection>,
        context: &EngineContext<A>,
    ) -> Self {
        let now = context.now;
        let mut protocol = A::Protocol::default();
        protocol.open(context.config.exchanges);
        Self {
            transport,
            slot,
            lifecycle: Lifecycle::Open,
            protocol,
            exchanges: Exchanges::new(now),
            input: Inbound { bytes: Vec::new(), used: 0, is_exhausted: true, is_readable: true, has_ended: false },
            send: Outbound::new(),
            app,
            timer: Timer::new(now),
            touched: now,
            turn: Turn { round: 0, called: 0 },
            history: History::New,
            has_announced_end: false,
            place: Place::default(),
        }
    }

    pub(crate) fn transport(&self) -> &<A::Net as Net>::Transport {
        &self.transport
    }

    /// The poller has reported readiness.
    pub(crate) fn note_readiness(&mut self, readable: bool, read_closed: bool) {
        self.input.is_readable |= readable;
        if read_closed {
            self.transport.note_read_closed();
        }
    }

    fn call(&self, exchange: Index) -> CallId {
        CallId { slot: self.slot, exchange }
    }

    /// The call that what is received next belongs to, as far as it is known.
    fn next_call(&self) -> CallId {
        self.call(self.exchanges.next_index())
    }

    /// Whether the application has seen the last of its peer, and only calls are left.
    pub(crate) fn is_left_over(&self) -> bool {
        self.lifecycle == Lifecycle::Gone && self.exchanges.has_calls()
    }

    /// Whether nothing is left of it but calls that are not expected to come back.
    pub(crate) fn is_written_off(&self) -> bool {
        self.is_left_over() && !self.exchanges.any(|exchange| !exchange.is_written_off())
    }

    /// Whether a head is awaited, or a body that is received as a whole.
    fn is_receiving(&self) -> bool {
        self.lifecycle == Lifecycle::Open && (self.exchanges.is_empty() || self.exchanges.first.is_receiving())
    }

    /// Whether a head may be read now: no exchange is in its way.
    fn awaits_head(&self) -> bool {
        self.lifecycle == Lifecycle::Open && (Self::MULTIPLEXED || self.exchanges.first.is_free())
    }

    /// Whether no exchange is under way, and one could begin.
    fn is_between_exchanges(&self) -> bool {
        self.lifecycle == Lifecycle::Open && self.exchanges.is_empty()
    }

    /// Has it driven later, without readiness: when its turn in `queue` has come.
    pub(crate) fn come_back(&mut self, queue: &mut VecDeque<usize>) {
        if !std::mem::replace(&mut self.place.again, true) {
            queue.push_back(self.slot);
        }
    }

    /// Whether it may go on receiving for long without anything that could be answered: others come first.
    pub(crate) fn is_bulk(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Linger(_) => true,
            Lifecycle::Open if Self::MULTIPLEXED => false,
            Lifecycle::Open => match self.exchanges.first.state {
                State::Receiving(_) => true,
                State::Running(_) => self.exchanges.first.incoming.is_some(),
                _ => false,
            },
            Lifecycle::Closing(_) | Lifecycle::Gone => false,
        }
    }

    /// Whether it has asked for nothing yet.
    pub(crate) fn is_new(&self) -> bool {
        let is_untouched = self.history == History::New && !self.place.awaits_room && !self.has_output();
        is_untouched && self.is_between_exchanges()
    }

    /// Whether a call is out for it, so that its slot has to be kept.
    pub(crate) fn has_calls(&self) -> bool {
        self.exchanges.has_calls()
    }

    /// Whether the request of this exchange waits for a thread that calls the application.
    pub(crate) fn is_queued(&self, exchange: Index) -> bool {
        self.exchanges.get(exchange).is_some_and(Exchange::is_queued)
    }

    /// Does all that can be done without waiting, and sets the deadlines of what is waited for next.
    pub(crate) fn drive(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> NextAction<A> {
        self.touched = context.now;
        if self.turn.round != context.round {
            self.turn = Turn { round: context.round, called: 0 };
        }
        context.meter.begin_turn();
        // A connection that has called in this round lets others go on sooner if there is much to do.
        let most_calls = if context.meter.is_stage_over() { 1 } else { CALLS_PER_ROUND };
        let has_turn = self.turn.called < most_calls;
        let mut action = NextAction::Again;
        while has_turn && !context.meter.is_turn_over() {
            context.meter.charge(meter::STEP);
            match self.step(context, buffer, app) {
                Step::Next => {}
                Step::Stop(stop) => {
                    action = stop;
                    break;
                }
            }
        }
        match action {
            // A step that stops to wait has just flushed. Doing so again could drain what is waited for, and then nothing
            // would drive the connection on.
            NextAction::Again if !self.flush(context) => action = self.abort(context, app),
            // What was composed for requests before this one goes with its response, if that comes within a tick.
            NextAction::Call(..) => self.defer(context),
            _ => {}
        }
        if context.observer.is_some() {
            self.observe_wait(&action, context);
        }
        if let NextAction::Close = action {
            if self.send.waiting.has_file_shrunk() {
                context.statistics.cut += 1;
                app.report(Report::FileShrank);
            }
            self.finish(context, app);
        } else {
            self.set_deadlines(context);
        }
        self.store(context);
        action
    }

    /// Tells the observer what the request that is received waits for next.
    #[cold]
    fn observe_wait(&self, action: &NextAction<A>, context: &mut EngineContext<A>) {
        let (call, stage) = match action {
            NextAction::Call(index, _) => (self.call(*index), Stage::Queue),
            NextAction::AwaitRoom | NextAction::Again if self.is_receiving() => (self.receiving_call(), Stage::Queue),
            NextAction::Wait if self.is_receiving() => (self.receiving_call(), Stage::Peer),
            _ => return,
        };
        context.observer.switch(call, stage);
    }

    /// The call of the request whose head or body is received.
    fn receiving_call(&self) -> CallId {
        if self.exchanges.first.is_receiving() { self.call(0) } else { self.next_call() }
    }

    /// One step: send, then go on with a response, or with input that is here, or receive.
    fn step(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        // Answers to pipelined requests leave together.
        let is_composing =
            !self.has_output() && self.send.composer.as_ref().is_some_and(|out| !out.is_full()) && !context.is_full;
        if is_composing && self.awaits_head() && !self.input.is_exhausted && !self.input.is_empty() {
            return self.serve_stored(context, app);
        }
        if !self.flush(context) {
            return Step::Stop(self.abort(context, app));
        }
        if self.has_output() {
            return Step::Stop(NextAction::Wait);
        }
        match self.lifecycle {
            Lifecycle::Open => {
                if let Some(action) = self.go_on_with_exchanges(context, app) {
                    return Step::Stop(action);
                }
                if Self::MULTIPLEXED && self.send.composer.as_ref().is_some_and(|out| !out.is_sent()) {
                    // Frames of exchanges whose clients take more.
                    return Step::Next;
                }
            }
            Lifecycle::Gone => return Step::Stop(self.leave(context, app)),
            Lifecycle::Closing(Closing::Reset) => {
                self.transport.reset_on_drop();
                return Step::Stop(self.end_connection(context, app));
            }
            // Closing while unread bytes lie in the socket would be a reset, which destroys what is on its way.
            Lifecycle::Closing(Closing::Orderly) if self.input.is_empty() && !self.input.is_readable => {
                return Step::Stop(self.end_connection(context, app));
            }
            Lifecycle::Closing(_) => {
                if self.input.has_ended && !self.has_calls() {
                    return Step::Stop(NextAction::Close);
                }
                self.transport.end_output();
                if self.input.has_ended {
                    return Step::Stop(self.end_connection(context, app));
                }
                self.input.discard();
                self.lifecycle = Lifecycle::Linger(LINGER_BYTES);
                return Step::Next;
            }
            Lifecycle::Linger(_) => {}
        }
        if !self.input.is_exhausted && !self.input.is_empty() {
            return self.serve_stored(context, app);
        }
        if !self.input.is_readable {
            return Step::Stop(NextAction::Wait);
        }
        self.receive_some(context, buffer, app)
    }

    /// Goes on with the exchanges of an open connection that has nothing to send. Returns what comes of it, unless there
    /// may be input to be served.
    fn go_on_with_exchanges(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        if Self::MULTIPLEXED {
            return self.go_on_with_all(context, app);
        }
        match &mut self.exchanges.first.state {
            State::Suspended(suspended) => {
                if std::mem::take(&mut suspended.yielded) {
                    // It has had its share of this turn.
                    return Some(NextAction::Again);
                }
                Some(self.resume(0, context))
            }
            State::Running(_) => {
                self.exchanges.first.wake(Awaited::Output, app);
                (!self.exchanges.first.wants_body()).then_some(NextAction::Wait)
            }
            State::Queued(_) => Some(NextAction::Wait),
            State::Free | State::Receiving(_) | State::Detached(_) | State::Finishing(_) => None,
        }
    }

    /// Receives, and serves what came.
    fn receive_some(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        let mut buffer = buffer;
        if !Self::MULTIPLEXED
            && let (State::Running(_), Some(incoming)) = (&self.exchanges.first.state, &self.exchanges.first.incoming)
        {
            let room = incoming.room(&context.config.body_memory_total).min(buffer.len());
            if room == 0 {
                return Step::Stop(NextAction::Wait);
            }
            buffer = &mut buffer[..room];
        }
        if context.is_full && self.is_between_exchanges() {
            if context.responder.path().is_none() {
                return Step::Stop(NextAction::AwaitRoom);
            }
            // It may ask for nothing but what a responder answers.
            buffer = &mut buffer[..GLANCE];
        }
        let received = if context.observer.is_some() {
            self.receive_observed(buffer, context)
        } else {
            self.transport.receive(buffer)
        };
        match received {
            Ok(Received::Bytes { count, is_drained }) => {
                context.statistics.bytes_in += count as u64;
                context.meter.charge(count as u64);
                self.input.is_readable = !is_drained;
                self.serve_received(&buffer[..count], context, app)
            }
            Ok(Received::WouldBlock) => {
                self.input.is_readable = false;
                // What came may have been for the transport alone, and ask for an answer.
                if self.transport.has_unsent() { Step::Next } else { Step::Stop(NextAction::Wait) }
            }
            Ok(Received::End) => self.end_of_input(context, app),
            Err(_) => Step::Stop(self.abort(context, app)),
        }
    }

    #[cold]
    fn receive_observed(&mut self, buffer: &mut [u8], context: &mut EngineContext<A>) -> std::io::Result<Received> {
        if !self.is_receiving() {
            return self.transport.receive(buffer);
        }
        let call = self.receiving_call();
        context.observer.receive(call);
        let received = self.transport.receive(buffer);
        context.observer.received(call, matches!(received, Ok(Received::Bytes { .. })));
        received
    }

    /// Serves what lies here.
    fn serve_stored(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        let input = std::mem::take(&mut self.input.bytes);
        let (used, step) = self.serve(&input[self.input.used..], context, app);
        self.input.used += used;
        let left = input.len() - self.input.used;
        if left > 0 && left < input.capacity() / 4 {
            // Little is left of much, and it may be long until the rest comes.
            self.input.bytes = input[std::mem::take(&mut self.input.used)..].to_vec();
        } else if left > 0 {
            self.input.bytes = input;
        } else {
            self.input.used = 0;
        }
        step
    }

    /// Serves what was received, behind what was left over.
    fn serve_received(&mut self, received: &[u8], context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        if !self.input.is_empty() {
            self.input.bytes.drain(..std::mem::take(&mut self.input.used));
            self.input.bytes.extend_from_slice(received);
            return self.serve_stored(context, app);
        }
        let (used, step) = self.serve(received, context, app);
        self.input.used = 0;
        if used < received.len() {
            self.input.bytes.clear();
            self.input.bytes.extend_from_slice(&received[used..]);
        } else if self.input.bytes.capacity() > 0 {
            self.input.bytes = Vec::new();
        }
        step
    }

    /// Serves the requests in `input` as far as they are here, until one is ready to be answered. Returns how many bytes
    /// of it are used.
    fn serve(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> (usize, Step<A>) {
        let mut used = 0;
        self.input.is_exhausted = false;
        // Output that the peer does not take ends the loop with input left.
        while !self.has_output() {
            let rest = &input[used..];
            if rest.is_empty() {
                self.input.is_exhausted = true;
                break;
            }
            if self.lifecycle != Lifecycle::Open {
                self.discard_received(rest.len() as u64);
                used = input.len();
                break;
            }
            if context.is_full && self.is_between_exchanges() {
                match context.glance(rest) {
                    Some(true) => {}
                    Some(false) => return (used, Step::Stop(NextAction::AwaitRoom)),
                    None => {
                        self.input.is_exhausted = true;
                        break;
                    }
                }
            }
            let (count, ready) = if Self::MULTIPLEXED || self.exchanges.first.is_free() {
                let (count, ready) = self.message(rest, context, app);
                if count == 0 && ready.is_none() {
                    self.input.is_exhausted = true;
                    break;
                }
                (count, ready)
            } else if self.exchanges.first.is_receiving() {
                let (count, ready) = self.body(rest, context, app);
                if self.exchanges.first.is_receiving() {
                    self.input.is_exhausted = true;
                    used += count;
                    break;
                }
                (count, ready)
            } else {
                if let State::Running(_) = self.exchanges.first.state {
                    used += self.take_in(rest, context, app);
                    // What is left is either kept for later or too little to be read.
                    self.input.is_exhausted = self.exchanges.first.wants_body() || used == input.len();
                }
                break;
            };
            used += count;
            if let Some((exchange, request)) = ready {
                return (used, Step::Stop(NextAction::Call(exchange, request)));
            }
            if self.send.composer.as_ref().is_some_and(|out| out.is_full()) {
                break;
            }
        }
        (used, Step::Next)
    }

    /// Input came behind the last request: nothing of it is read as another one. That it is there is noted.
    fn discard_received(&mut self, count: u64) {
        match &mut self.lifecycle {
            Lifecycle::Closing(closing @ Closing::Orderly) => *closing = Closing::Linger,
            Lifecycle::Linger(left) => {
                *left = left.saturating_sub(count);
                if *left == 0 {
                    self.lifecycle = Lifecycle::Closing(Closing::Reset);
                }
            }
            Lifecycle::Open | Lifecycle::Closing(_) | Lifecycle::Gone => {}
        }
    }

    /// The peer has closed its side.
    fn end_of_input(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Step<A> {
        self.input.has_ended = true;
        self.input.is_readable = false;
        if self.is_receiving() {
            context.observer.give_up(self.receiving_call());
        }
        if self.lifecycle != Lifecycle::Open {
            return Step::Stop(self.end_connection(context, app));
        }
        if Self::MULTIPLEXED {
            // It cannot say any more how much it takes.
            return Step::Stop(if self.exchanges.is_empty() { NextAction::Close } else { self.abort(context, app) });
        }
        match &self.exchanges.first.state {
            State::Free if self.protocol.end_of_input(&self.input.bytes).is_ok() => {
                return Step::Stop(NextAction::Close);
            }
            State::Free => self.refuse_stored(Fault::Truncated.into(), context, app),
            State::Receiving(_) => self.refuse_request(0, Fault::Truncated.into(), context, app),
            State::Running(_) => self.break_body(0, Fault::Truncated.into(), app),
            _ => return Step::Stop(NextAction::Close),
        }
        Step::Next
    }

    /// The peer is gone, or must see that something is missing because a file could not be sent: the connection is over,
    /// once the calls that are out for it come back.
    fn abort(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.transport.reset_on_drop();
        if !self.has_calls() {
            return NextAction::Close;
        }
        self.transport.cut();
        self.leave(context, app)
    }

    /// Nothing more is to be said to the peer: the connection is over, once the calls that are out for it come back.
    fn end_connection(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        if !self.has_calls() {
            return NextAction::Close;
        }
        if self.lifecycle == Lifecycle::Closing(Closing::Reset) {
            self.transport.cut();
        }
        self.leave(context, app)
    }

    /// Keeps the connection for the calls that are out, without its peer.
    fn leave(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        self.lifecycle = Lifecycle::Gone;
        self.input.is_readable = false;
        self.send.discard();
        if !self.has_calls() {
            return NextAction::Close;
        }
        self.release_exchanges(true, context, app);
        NextAction::Wait
    }

    /// Gives up all exchanges that no call is out for, and tells the calls that are out that their client has gone.
    fn release_exchanges(&mut self, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        if !Self::MULTIPLEXED {
            return self.release_exchange(0, has_left, context, app);
        }
        for index in self.exchanges.indices() {
            self.release_exchange(index, has_left, context, app);
        }
    }

    /// The same for one.
    fn release_exchange(&mut self, index: Index, has_left: bool, context: &mut EngineContext<A>, app: &mut A) {
        let exchange = self.exchanges.at(index);
        if exchange.is_out() {
            if has_left {
                exchange.detach(Cause::Left);
            }
            self.break_body(index, Fault::Truncated.into(), app);
            let exchange = self.exchanges.at(index);
            if let Some(backlog) = &mut exchange.backlog {
                backlog.stop();
            }
            exchange.wake(Awaited::Output, app);
            return;
        }
        match std::mem::replace(&mut exchange.state, State::Free) {
            State::Receiving(receiving) => app.abandon_request(receiving.request, None),
            State::Queued(queued) => {
                context.queued -= 1;
                app.abandon_request(queued.request, None);
            }
            State::Suspended(suspended) => {
                context.statistics.suspended -= 1;
                context.abandoned.push(suspended.response);
            }
            State::Free | State::Finishing(_) | State::Running(_) | State::Detached(_) => {}
        }
        self.exchanges.remove(index);
    }

    /// Cuts whatever is under way. The slot stays if a call is out.
    pub(crate) fn cut(&mut self, context: &mut EngineContext<A>, app: &mut A) -> NextAction<A> {
        let only_lingers = matches!(self.lifecycle, Lifecycle::Linger(_)) && !self.has_calls();
        if !self.is_between_requests() && !only_lingers {
            let is_ended = self.lifecycle == Lifecycle::Gone || self.exchanges.any(Exchange::is_expired);
            if !is_ended {
                context.statistics.cut += 1;
            }
            let action = self.abort(context, app);
            if let NextAction::Close = action {
                self.finish(context, app);
            }
            return action;
        }
        NextAction::Close
    }

    /// The connection is over: what was under way is given up.
    fn finish(&mut self, context: &mut EngineContext<A>, app: &mut A) {
        if let Some(mut out) = self.send.composer.take() {
            out.clear();
            context.spare.push(out);
        }
        self.lifecycle = Lifecycle::Gone;
        if !self.exchanges.is_empty() {
            self.release_exchanges(true, context, app);
        }
    }

    /// Code of ours panicked in driving it. Whether the slot has to be kept because a call is out.
    pub(crate) fn give_up(&mut self, context: &mut EngineContext<A>, app: &mut A) -> bool {
        if self.has_calls() {
            self.abort(context, app);
            return true;
        }
        self.transport.reset_on_drop();
        for (_, exchange) in self.exchanges.iter() {
            match exchange.state {
                State::Queued(_) => context.queued -= 1,
                State::Suspended(_) => context.statistics.suspended -= 1,
                _ => {}
            }
        }
        false
    }

    /// Whether the client of a call has left, as far as can be seen.
    pub(crate) fn has_client_left(&self, exchange: Index) -> bool {
        let is_detached =
            self.exchanges.get(exchange).is_none_or(|exchange| matches!(exchange.state, State::Detached(_)));
        is_detached || self.input.has_ended || self.transport.has_peer_left()
    }
}

impl<A: App> EngineContext<A> {
    /// Whether the request that `input` begins with may be for a responder, as far as that can be told.
    fn glance(&self, input: &[u8]) -> Option<bool> {
        self.responder.path().map_or(Some(false), |path| A::Protocol::glance(input, path))
    }
}

fn known<C>(app: &mut Option<C>) -> &mut C {
    app.as_mut().expect("the application is told of a connection before it is driven")
}

/// One sentence about a refusal for which no rule was broken.
#[must_use]
pub fn explanation(status: u16) -> &'static str {
    match status {
        408 => "The request took too long to arrive.",
        503 => "The server has too much to do at the moment.",
        504 => "The application did not answer in time.",
        507 => "The server has no room for the request body.",
        _ => "The server has failed.",
    }
}

/// What a client gets whose request the server has no thread for.
const BUSY: Refusal = Refusal { status: 503, fault: None };

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
