//! One connection: receives, serves, sends, and knows when time is up.
//!
//! A connection owns a transport, a protocol, and the exchanges that are under way on it. [`Connection::drive`] does all
//! that can be done without waiting and sets the deadlines of what is waited for next.
//!
//! ```text
//!   Open ─── the last response is complete, or a request was refused ──▶ Closing ─▶ Linger ─▶ closed
//!     ├───── the peer is gone ──────────────────────────────────────────────┴─────────┴─────▶ Gone
//!     └─ the application takes the connection over ─▶ Hijacked ─▶ closed, or Gone
//! ```
//!
//! Where each exchange stands is its own affair ([`crate::exchange`]). A connection that is over but for calls that are
//! out is `Gone`: its slot stays taken until they come back.
//!
//! While output waits for the peer, nothing is read, parsed or produced for this connection: that is the backpressure, in
//! both directions. With a serial protocol, nothing of the next request is read while an exchange is under way either.
//!
//! This file has the states and the steps of the state machine. What the connection receives, sends and waits for, how it
//! ends, and what belongs to heads, bodies and calls stands in files of its own.

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
    /// A message is there for a response that listens, and waits for a thread.
    Enqueue(Index),
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
    /// Proxies in front of the server, where there can be some.
    front: Option<Box<Front>>,
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
    /// The protocol knows that no further exchange is to be begun. Multiplexed protocols only.
    has_announced_end: bool,
    watched: Watched,
    schedule: Schedule,
    /// A call has left output waiting, and the next poll sets the deadline.
    has_stale_deadline: bool,
    /// It has become a WebSocket.
    is_upgraded: bool,
    /// The last time that it was driven took much work.
    was_busy: bool,
    /// The head that the reader keeps ([`RequestHead::retained`](wire::message::RequestHead::retained)) has a field
    /// Upgrade. So the fields of heads that resemble it need not be looked at.
    has_upgrade_field: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// The last response is leaving.
    Closing(Closing),
    /// All is sent; what the peer still sends is discarded until it closes, up to so many bytes.
    Linger(u64),
    /// The application speaks to the peer itself. `serial`: no other hijacked connection has it.
    Hijacked {
        serial: u64,
        holder: Holder,
    },
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

/// What of the application has a hijacked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Its call, which has not returned.
    Call,
    /// Its socket alone: the call is over, and has not closed it.
    Socket,
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

    /// Whether it has become a WebSocket.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.is_upgraded
    }

    /// Whether it has many exchanges at a time.
    #[inline]
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.protocol.is_multiplexed()
    }

    /// The poller has reported readiness.
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
        self.lifecycle == Lifecycle::Open && (self.is_multiplexed() || self.exchanges.first.is_free())
    }

    /// Whether no exchange is under way, and one could begin.
    fn is_between_exchanges(&self) -> bool {
        self.lifecycle == Lifecycle::Open && self.exchanges.is_empty()
    }

    /// Whether it may go on for long, because it receives a body or has just done much work: others come first.
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

    /// Whether it has asked for nothing yet.
    pub(crate) fn is_new(&self) -> bool {
        let is_untouched = self.history == History::New && !self.awaits_room() && !self.has_output();
        is_untouched && self.is_between_exchanges()
    }

    /// Whether a call is out for it, so that its slot has to be kept.
    pub(crate) fn has_calls(&self) -> bool {
        self.exchanges.has_calls()
    }

    /// Whether this exchange is an open WebSocket.
    pub(crate) fn has_websocket(&self, exchange: Index) -> bool {
        self.exchanges.get(exchange).is_some_and(Exchange::has_websocket)
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
        if self.is_websocket() {
            return self.step_websocket(context, buffer, app);
        }
        // Answers to pipelined requests leave together.
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
                // A slow client may leave, too.
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
                    // Frames of exchanges whose clients take more; or the end, which follows the last one at once.
                    return Step::Next;
                }
            }
            Lifecycle::Hijacked { .. } => return Step::Stop(NextAction::Wait),
            Lifecycle::Gone => return Step::Stop(self.leave(context, app)),
            Lifecycle::Closing(Closing::Reset) => {
                self.transport.reset_on_drop();
                return Step::Stop(self.end_connection(context, app));
            }
            // Closing while unread bytes lie in the socket would be a reset, which destroys what is on its way.
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

    /// Goes on with the exchanges of an open connection that has nothing to send. Returns what comes of it, unless there
    /// may be input to be served.
    fn go_on_with_exchanges(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        if self.is_multiplexed() {
            return self.go_on_with_all(context, app);
        }
        match &mut self.exchanges.first.state {
            State::Suspended(suspended) => {
                if std::mem::replace(&mut suspended.until, Until::Output) == Until::Turn {
                    // It has had its share of this turn.
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

    /// Whether the client of a call has left, as far as can be seen.
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

/// What a client gets whose request the server has no thread for.
const BUSY: Refusal = Refusal::of_status(503);

pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
