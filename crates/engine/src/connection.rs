//! A connection, which receives, serves and sends, and has its deadlines.
//!
//! A connection owns a transport, a protocol, and the exchanges that are under way on it. [`Connection::drive`] does
//! everything that is possible without waiting, and sets the deadlines of the next waits.
//!
//! ```text
//!   Open ─── the last response is complete, or a request was refused ──▶ Closing ─▶ Linger ─▶ closed
//!     ├───── the peer is gone ──────────────────────────────────────────────┴─────────┴─────▶ Gone
//!     └─ the application takes the connection over ─▶ Hijacked ─▶ closed, or Gone
//! ```
//!
//! Each exchange has its own state ([`crate::exchange`]). A connection that has ended while calls of the application
//! still run is `Gone`: it keeps its slot until these calls return.
//!
//! While output waits for the peer, the engine reads, parses and produces nothing for this connection. This is
//! backpressure in both directions. With a serial protocol the engine does not read the next request while an exchange
//! is under way either.
//!
//! This file has the states and the steps of the state machine. Receiving, sending, waiting and ending, and the
//! handling of heads, bodies and calls are in separate files.

mod body;
mod call;
mod ending;
mod expiring;
mod files;
mod front;
mod head;
mod hijack;
mod inbound;
mod introduction;
mod multiplexed;
mod outbound;
mod output;
mod polling;
mod receiving;
mod schedule;
mod waiting;
mod watchdog;
mod websocket;

use crate::app::{App, CallId, Refusal, Report};
use crate::config::{CALLS_PER_ROUND, LINGER_BYTES};
use crate::context::EngineContext;
use crate::deadline::{Millis, Timer};
use crate::exchange::{Awaited, Cause, Exchange, Exchanges, Index, State, Until};
use crate::meter;
use crate::net::{Net, Peer};
use crate::observe::{Observer, Stage};
use crate::protocol::Protocol;
use crate::transport::Transport;
use front::Front;
use inbound::Inbound;
use outbound::Outbound;
use schedule::{Schedule, Watched};
use std::any::Any;

pub use expiring::Expired;
pub use hijack::{HijackId, HijackRefusal, Hijacked};
pub(crate) use watchdog::Serviced;
pub(crate) use websocket::Sending;

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

/// The result of a step of [`Connection::drive`].
enum Step<A: App> {
    Next,
    Stop(NextAction<A>),
}

pub(crate) struct Connection<A: App> {
    transport: <A::Net as Net>::Transport,
    slot: usize,
    lifecycle: Lifecycle,
    protocol: A::Protocol,
    /// The proxies in front of the server, if there can be any.
    front: Option<Box<Front>>,
    exchanges: Exchanges<A>,
    input: Inbound,
    send: Outbound<A::Chunk>,
    /// The application's data for the connection. `None` until the engine calls [`App::connect`], before it drives the
    /// connection for the first time.
    pub(crate) app: Option<A::Connection>,
    /// The wait of the connection as a whole, and its deadline.
    timer: Timer,
    /// The time when the connection was last driven.
    touched: Millis,
    turn: Turn,
    history: History,
    /// True if the protocol has been told that no further exchange may begin. Multiplexed protocols only.
    has_announced_end: bool,
    watched: Watched,
    schedule: Schedule,
    /// True if a call has left output waiting. The next poll sets the deadline.
    has_stale_deadline: bool,
    /// True if the connection has become a WebSocket.
    is_upgraded: bool,
    /// True if driving the connection took much work the last time.
    was_busy: bool,
    /// True if the head that the reader keeps ([`RequestHead::retained`](wire::message::RequestHead::retained)) has a
    /// field Upgrade. So the engine need not search the fields of heads that resemble it.
    has_upgrade_field: bool,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// The connection sends its last response.
    Closing(Closing),
    /// Everything has been sent. The engine discards the peer's bytes until the peer closes, up to this number of
    /// bytes.
    Linger(u64),
    /// The application communicates with the peer itself. `serial` is unique among hijacked connections.
    Hijacked {
        serial: u64,
        holder: Holder,
    },
    /// The peer is gone, or the server need not send it anything more.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// The peer asked for the close and has sent nothing more.
    Orderly,
    /// The peer may still be sending.
    Linger,
    /// The peer must see that something is missing.
    Reset,
}

/// The part of the application that has a hijacked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// The call, which has not returned.
    Call,
    /// Only the socket: the call has returned and has not closed it.
    Socket,
}

/// The number of requests that became ready in one round.
struct Turn {
    round: u64,
    called: usize,
}

/// The history of the connection so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// No request has arrived.
    New,
    /// A request has arrived. The memory that it left for speed is kept.
    Served,
    /// A request has arrived, and the memory kept for speed has been freed.
    Rested,
}

impl<A: App> Connection<A> {
    pub(crate) fn new(
        transport: <A::Net as Net>::Transport,
        slot: usize,
        peer: &Peer,
        app: Option<A::Connection>,
        context: &EngineContext<A>,
    ) -> Self {
        let now = context.now;
        let mut protocol =
            A::Protocol::of_kind(context.config.protocols.get(peer.listener).copied().unwrap_or_default());
        protocol.open(context.config.exchanges);
        Self {
            transport,
            slot,
            lifecycle: Lifecycle::Open,
            protocol,
            front: Front::of(peer, &context.config),
            exchanges: Exchanges::new(now),
            input: Inbound::new(),
            send: Outbound::new(),
            app,
            timer: Timer::new(now),
            touched: now,
            turn: Turn { round: 0, called: 0 },
            history: History::New,
            has_announced_end: false,
            watched: Watched::No,
            schedule: Schedule::OnEvent,
            has_stale_deadline: false,
            is_upgraded: false,
            was_busy: false,
            has_upgrade_field: false,
        }
    }

    /// Returns true if the connection has become a WebSocket.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.is_upgraded
    }

    /// Returns true if the connection can have several exchanges at a time.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.protocol.is_multiplexed()
    }

    /// Notes the readiness that the poller has reported.
    pub(crate) fn note_readiness(&mut self, readable: bool, read_closed: bool) {
        if readable {
            self.input.note_readable();
        }
        if read_closed {
            self.transport.note_read_closed();
        }
    }

    fn call(&self, exchange: Index) -> CallId {
        CallId { slot: self.slot, exchange }
    }

    /// Returns the call that the next received bytes belong to, as far as it is known.
    fn next_call(&self) -> CallId {
        self.call(self.exchanges.next_index())
    }

    /// Returns true if the peer is gone and the connection exists only because calls have not returned.
    pub(crate) fn is_left_over(&self) -> bool {
        self.lifecycle == Lifecycle::Gone && self.exchanges.has_calls()
    }

    /// Returns true if the peer is gone and only calls are left that are not expected to return.
    pub(crate) fn is_written_off(&self) -> bool {
        self.is_left_over() && !self.exchanges.any(|exchange| !exchange.is_written_off())
    }

    /// Returns true if the connection waits for a head, or for a body that is received as a whole.
    fn is_receiving(&self) -> bool {
        self.lifecycle == Lifecycle::Open && (self.exchanges.is_empty() || self.exchanges.first.is_receiving())
    }

    /// Returns true if the connection may read a head now, because no exchange prevents it.
    fn awaits_head(&self) -> bool {
        self.lifecycle == Lifecycle::Open && (self.is_multiplexed() || self.exchanges.first.is_free())
    }

    /// Returns true if no exchange is under way and a new one could begin.
    fn is_between_exchanges(&self) -> bool {
        self.lifecycle == Lifecycle::Open && self.exchanges.is_empty()
    }

    /// Returns true if the connection may need much work, because it receives a body or has just done much work. The
    /// engine serves others first.
    pub(crate) fn is_bulk(&self) -> bool {
        if self.was_busy {
            return true;
        }
        match self.lifecycle {
            Lifecycle::Linger(_) => true,
            Lifecycle::Open if self.is_multiplexed() => false,
            Lifecycle::Open => match self.exchanges.first.state {
                State::Receiving(_) => true,
                State::Running(_) => self.exchanges.first.incoming.is_some(),
                _ => false,
            },
            Lifecycle::Closing(_) | Lifecycle::Hijacked { .. } | Lifecycle::Gone => false,
        }
    }

    /// Returns true if the connection has not asked for anything yet.
    pub(crate) fn is_new(&self) -> bool {
        let is_untouched = self.history == History::New && !self.awaits_room() && !self.has_output();
        is_untouched && self.is_between_exchanges()
    }

    /// Returns true if a call for this connection has not returned, so that its slot must be kept.
    pub(crate) fn has_calls(&self) -> bool {
        self.exchanges.has_calls()
    }

    /// Returns true if this exchange is an open WebSocket.
    pub(crate) fn has_websocket(&self, exchange: Index) -> bool {
        self.exchanges.get(exchange).is_some_and(Exchange::has_websocket)
    }

    /// Returns true if the request of this exchange, or a message of its WebSocket, waits for a thread that calls the
    /// application.
    pub(crate) fn is_queued(&self, exchange: Index) -> bool {
        self.exchanges.get(exchange).is_some_and(Exchange::is_queued)
    }

    /// Does everything that is possible without waiting, and sets the deadlines of the next waits.
    pub(crate) fn drive(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> NextAction<A> {
        self.touched = context.now;
        if self.turn.round != context.round {
            self.turn = Turn { round: context.round, called: 0 };
        }
        context.meter.begin_turn();
        // If there is much to do, a connection that has already begun a call in this round yields to others.
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
            // A step that stops to wait has just flushed. A second flush could send the output that the connection
            // waits for, and then no event would drive the connection again.
            NextAction::Again if !self.flush(context) => action = self.abort(context, app),
            // Output composed for earlier requests leaves with this one's response, if that is ready within a tick.
            NextAction::Call(..) => self.defer(context),
            _ => {}
        }
        self.was_busy = context.meter.is_bulk();
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

    /// Tells the observer what the request that is being received waits for next.
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

    /// Returns the call of the request whose head or body is being received.
    fn receiving_call(&self) -> CallId {
        if self.exchanges.first.is_receiving() { self.call(0) } else { self.next_call() }
    }

    /// Does one step: sends output, then continues a response, or serves stored input, or receives.
    fn step(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8], app: &mut A) -> Step<A> {
        if self.is_websocket() {
            return self.step_websocket(context, buffer, app);
        }
        // Answers to pipelined requests are sent together.
        let is_composing =
            !self.has_output() && self.send.composer.as_ref().is_some_and(|out| !out.is_full()) && !context.is_full;
        if is_composing && self.awaits_head() && self.input.has_unseen() && !self.protocol.must_write_control() {
            return self.serve_stored(context, app);
        }
        if self.has_announced_end && self.must_look_before_end() {
            return self.receive_some(context, buffer, app);
        }
        if !self.flush(context) {
            return Step::Stop(self.abort(context, app));
        }
        if self.has_output() {
            if !self.is_multiplexed() {
                // A client that reads slowly may leave, too.
                self.look_for_departure(0, app);
            }
            return Step::Stop(if self.send.waiting.is_paused() { NextAction::Again } else { NextAction::Wait });
        }
        match self.lifecycle {
            Lifecycle::Open => {
                if let Some(action) = self.go_on_with_exchanges(context, app) {
                    return Step::Stop(action);
                }
                let has_frames = || self.send.composer.as_ref().is_some_and(|out| !out.is_sent());
                if self.is_multiplexed() && (self.lifecycle != Lifecycle::Open || has_frames()) {
                    // Send frames of exchanges whose clients accept more, or close the connection directly after the
                    // last frame.
                    return Step::Next;
                }
            }
            Lifecycle::Hijacked { .. } => return Step::Stop(NextAction::Wait),
            Lifecycle::Gone => return Step::Stop(self.leave(context, app)),
            Lifecycle::Closing(Closing::Reset) => {
                self.transport.reset_on_drop();
                return Step::Stop(self.end_connection(context, app));
            }
            // If the socket is closed while it has unread bytes, the kernel sends a reset, which destroys output on its
            // way.
            Lifecycle::Closing(Closing::Orderly) if self.input.is_empty() && !self.input.is_readable() => {
                return Step::Stop(self.end_connection(context, app));
            }
            Lifecycle::Closing(_) => {
                if self.input.has_ended() && !self.has_calls() {
                    return Step::Stop(NextAction::Close);
                }
                self.transport.end_output();
                if self.input.has_ended() {
                    return Step::Stop(self.end_connection(context, app));
                }
                self.input.discard();
                self.lifecycle = Lifecycle::Linger(LINGER_BYTES);
                return Step::Next;
            }
            Lifecycle::Linger(_) => {}
        }
        if self.input.has_unseen() {
            return self.serve_stored(context, app);
        }
        if !self.input.is_readable() {
            return Step::Stop(NextAction::Wait);
        }
        self.receive_some(context, buffer, app)
    }

    /// Continues the exchanges of an open connection that has nothing to send. Returns the resulting action; `None` if
    /// there may be input to serve.
    fn go_on_with_exchanges(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        if self.is_multiplexed() {
            return self.go_on_with_all(context, app);
        }
        match &mut self.exchanges.first.state {
            State::Suspended(suspended) => {
                if std::mem::replace(&mut suspended.until, Until::Output) == Until::Turn {
                    // The response has used its share of this turn.
                    return Some(NextAction::Again);
                }
                Some(self.resume(0, context))
            }
            State::Running(_) => {
                self.exchanges.first.wake(Awaited::OUTPUT, app);
                self.look_for_departure(0, app);
                (!self.exchanges.first.wants_body()).then_some(NextAction::Wait)
            }
            State::Queued(_) => Some(NextAction::Wait),
            State::Free | State::Receiving(_) | State::Detached(_) | State::Finishing(_) => None,
        }
    }

    /// Returns true if the client of a call has left, as far as the server can tell.
    pub(crate) fn has_client_left(&self, exchange: Index) -> bool {
        let is_detached = self.exchanges.get(exchange).is_none_or(|exchange| match &exchange.state {
            State::Detached(detached) => detached.cause != Cause::Hijacked,
            _ => false,
        });
        is_detached || self.input.has_ended() || self.transport.has_peer_left()
    }
}

fn known<C>(app: &mut Option<C>) -> &mut C {
    app.as_mut().expect("the application is told of a connection before it is driven")
}

/// The answer to a request for which the server has no thread.
const BUSY: Refusal = Refusal::of_status(503);

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
