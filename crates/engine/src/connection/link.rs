//! The link of a connection: its transport, and all state that does not depend on the protocol.
//!
//! A session reads requests from the link and writes responses to it. The link consists of parts with their own state:
//! the [lifecycle](super::lifecycle), the [input](super::input), the [output](super::sending), the
//! [schedule](super::schedule), and the [intermediaries](super::front) in front of the server.

use super::front::Front;
use super::input::InputBuffer;
use super::lifecycle::{Closing, Lifecycle, LinkState};
use super::schedule::Schedule;
use super::sending::{Sending, ends_behind_output};
use super::step::{NextAction, Step};
use crate::app::{App, CallId, TransportOf};
use crate::compose::Composer;
use crate::context::{EngineContext, Load, Scratch};
use crate::deadline::{Millis, Timer, Wait};
use crate::exchange::Index;
use crate::handshakes::Handshakes;
use crate::net::Peer;
use crate::observe::Observer;
use crate::protocol::ProtocolKind;
use crate::stages::Stages;
use crate::statistics::Statistics;
use crate::transport::{Received, Transport};
use std::io;
use wire::message::Client;

/// The transport of a connection, and the state that belongs to it.
pub(crate) struct Link<A: App> {
    slot: usize,
    pub(super) transport: TransportOf<A>,
    pub(super) lifecycle: Lifecycle,
    /// The proxies in front of the server; `None` if there cannot be any.
    pub(super) front: Option<Box<Front>>,
    pub(super) opening: Opening,
    pub(super) input: InputBuffer,
    pub(super) sending: Sending<A::Chunk>,
    pub(crate) schedule: Schedule,
    /// The application's data for the connection. `None` until the engine calls [`App::connect`], before it drives the
    /// connection for the first time.
    app: Option<A::Connection>,
    /// The wait of the connection as a whole, and its deadline.
    pub(super) timer: Timer,
    /// The time when the connection was last driven.
    touched: Millis,
    turn: Turn,
    history: History,
    /// True if the connection's listener redirects clients to https.
    redirects: bool,
    /// True if the connection has become a WebSocket, or the application has hijacked it.
    is_upgraded: bool,
    /// True if the last turn of the connection took much work.
    was_busy: bool,
}

/// The round of the connection's last turn, and the number of requests that became ready in it.
#[derive(Debug)]
struct Turn {
    round: u64,
    called: usize,
}

/// The progress of the [opening](super::opening) of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The protocol has not been chosen. Holds the kind of the listener.
    UnderWay(ProtocolKind),
    /// The protocol has been chosen.
    Over,
}

/// The requests on the connection so far, and whether it keeps memory to make the next one faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// No request has arrived.
    New,
    /// A request has arrived, and the connection has not been idle since.
    Served,
    /// The connection is idle, or the next head is arriving. It still keeps the memory of the last request, for speed.
    Warm,
    /// The connection has had a request, is idle, and has freed the memory that it kept for the next one.
    Rested,
}

impl<A: App> Link<A> {
    pub(super) fn new(
        transport: TransportOf<A>,
        slot: usize,
        peer: &Peer,
        kind: ProtocolKind,
        context: &EngineContext<A>,
    ) -> Self {
        let now = context.time.now;
        Self {
            slot,
            front: Front::of(peer, transport.is_encrypted(), &context.config),
            transport,
            lifecycle: Lifecycle::new(),
            opening: Opening::UnderWay(kind),
            input: InputBuffer::new(),
            sending: Sending::new(),
            schedule: Schedule::new(),
            app: None,
            timer: Timer::new(now),
            touched: now,
            turn: Turn { round: 0, called: 0 },
            history: History::New,
            redirects: context.config.edge.as_ref().is_some_and(|edge| edge.redirects(peer.listener)),
            is_upgraded: false,
            was_busy: false,
        }
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Returns true if the connection's listener redirects clients to https.
    pub(super) fn redirects(&self) -> bool {
        self.redirects
    }

    /// Returns true if the transport encrypts the bytes of the protocol.
    #[inline]
    pub(super) fn is_encrypted(&self) -> bool {
        self.transport.is_encrypted()
    }

    pub(super) fn call(&self, exchange: Index) -> CallId {
        CallId { slot: self.slot, exchange }
    }

    // ----------------------------------------------------------------------------------------------------- application

    /// Returns true if the application knows the connection ([`App::connect`]).
    pub(crate) fn is_introduced(&self) -> bool {
        self.app.is_some()
    }

    /// Stores the application's data for the connection.
    pub(super) fn introduce(&mut self, app: A::Connection) {
        self.app = Some(app);
    }

    /// Returns the application's data for the connection.
    pub(super) fn app_data(&mut self) -> &mut A::Connection {
        self.client_and_data().1
    }

    /// Returns the client of the connection as a whole, if that is not the peer of the socket; and the application's
    /// data.
    pub(super) fn client_and_data(&mut self) -> (Option<&Client>, &mut A::Connection) {
        let client = self.front.as_ref().map(|front| front.forwarding.peer());
        (client, self.app.as_mut().expect("the application knows a connection before the engine drives it"))
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

    // ---------------------------------------------------------------------------------------------------------- turns

    /// Begins a turn of the connection. Returns false if it has already begun `most_calls` calls in this round, so that
    /// other connections are served first.
    #[inline]
    pub(super) fn begin_turn(&mut self, now: Millis, round: u64, most_calls: usize) -> bool {
        self.touched = now;
        if self.turn.round != round {
            self.turn = Turn { round, called: 0 };
        }
        self.turn.called < most_calls
    }

    /// Counts a call that begins, or a message that is handled like a call.
    #[inline]
    pub(super) fn count_call(&mut self) {
        self.turn.called += 1;
    }

    /// Ends a turn. `was_busy`: the turn took much work. A handshake counts as much work from its beginning, so that
    /// the handshakes of many new clients do not delay the clients that have completed theirs.
    #[inline]
    pub(super) fn end_turn(&mut self, was_busy: bool, handshakes: &mut Handshakes) {
        let is_securing = self.is_opening() && self.transport.is_encrypted();
        if is_securing && !self.transport.is_shaking_hands() {
            handshakes.end(self.slot());
        }
        self.was_busy = was_busy || is_securing;
    }

    /// Returns true if the handshake of an encrypted transport is under way.
    pub(crate) fn is_shaking_hands(&self) -> bool {
        self.transport.is_shaking_hands()
    }

    /// Returns true if the last turn of the connection took much work.
    pub(super) fn was_busy(&self) -> bool {
        self.was_busy
    }

    // --------------------------------------------------------------------------------------------------------- history

    pub(super) fn history(&self) -> History {
        self.history
    }

    /// Returns true if nothing has ever arrived on the connection, apart from input that the session has already taken.
    pub(super) fn is_unused(&self) -> bool {
        self.history == History::New && self.input.is_empty() && !self.transport.has_begun()
    }

    /// Returns true if the protocol of the connection has not been chosen.
    #[inline]
    pub(super) fn is_opening(&self) -> bool {
        self.opening != Opening::Over
    }

    /// Returns the time since which the connection has been idle while it keeps memory for speed; `None` if it is not
    /// idle or keeps no such memory.
    #[inline]
    pub(super) fn may_rest_since(&self) -> Option<Millis> {
        let may_rest = self.timer.wait == Wait::Idle && matches!(self.history, History::Served | History::Warm);
        may_rest.then_some(self.touched)
    }

    /// Lets the connection keep its memory for speed, unless `most` connections already do. Returns false then.
    pub(super) fn keep_warm(&mut self, most: usize, load: &mut Load) -> bool {
        if self.history == History::Warm {
            return true;
        }
        let may_keep = load.warm < most;
        if may_keep {
            load.warm += 1;
            self.history = History::Warm;
        }
        may_keep
    }

    /// Records that the memory kept for speed has been freed, or is about to be freed with the connection.
    pub(crate) fn rest(&mut self, load: &mut Load) {
        load.warm -= usize::from(self.history == History::Warm);
        self.history = History::Rested;
    }

    /// Records that a head has been read: the next wait begins now. `is_brief`: the client opened the connection for
    /// this request only.
    #[inline]
    pub(super) fn note_request(&mut self, is_brief: bool, load: &mut Load) {
        match self.history {
            History::New => load.brief_in_a_row = if is_brief { load.brief_in_a_row.saturating_add(1) } else { 0 },
            History::Warm => load.warm -= 1,
            History::Served | History::Rested => {}
        }
        self.history = History::Served;
        self.begin_next_wait();
        self.sending.begin_measuring();
    }

    /// Makes the next wait begin now, even if it is of the same kind as the current one.
    #[inline]
    pub(super) fn begin_next_wait(&mut self) {
        self.timer.wait = Wait::App;
    }

    /// Records that no further head arrives on this connection, because it is a WebSocket or hijacked.
    pub(super) fn upgrade(&mut self, statistics: &mut Statistics) {
        self.is_upgraded = true;
        statistics.websockets += 1;
        statistics.count_status(101);
    }

    /// Returns true if the connection has become a WebSocket, or the application has hijacked it.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.is_upgraded
    }

    // ----------------------------------------------------------------------------------------------------------- bytes

    /// Returns true if there is output that the peer has not read.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.sending.is_waiting() || self.transport.has_unsent()
    }

    /// Returns the composer of this connection. None of its bytes has been sent.
    #[inline]
    pub(super) fn out(&mut self, scratch: &mut Scratch<A::Chunk>) -> &mut Composer<A::Chunk> {
        self.sending.out(scratch)
    }

    /// Returns true if more responses may be composed before the output is sent: responses to pipelined requests are
    /// sent together.
    #[inline]
    pub(super) fn is_composing(&self) -> bool {
        !self.has_output() && self.sending.has_room_beside_composed()
    }

    /// Returns the result of a step of a connection whose output waits for the peer.
    pub(super) fn wait_for_output(&self) -> Step<A> {
        Step::Stop(if self.sending.is_paused() { NextAction::Again } else { NextAction::Wait })
    }

    /// Sends as much output as the transport accepts, at once: the end of a connection that closes may follow much later,
    /// because its turn is over, or because the watchdog calls this. Returns false if the peer is gone.
    #[inline]
    pub(super) fn flush(&mut self, context: &mut EngineContext<A>) -> bool {
        self.flush_output(|_| false, context)
    }

    /// Sends as much output as the transport accepts, in a step that ends a connection that closes directly behind it:
    /// the kernel may hold the last bytes back until then. `ends`: the step also ends a connection that is open. Returns
    /// false if the peer is gone.
    #[inline]
    pub(super) fn flush_in_step(&mut self, ends: bool, context: &mut EngineContext<A>) -> bool {
        self.flush_output(|lifecycle| ends || ends_behind_output(lifecycle), context)
    }

    #[inline]
    fn flush_output(&mut self, ends: impl FnOnce(&Lifecycle) -> bool, context: &mut EngineContext<A>) -> bool {
        if context.observer.is_some() {
            return self.flush_observed(ends(&self.lifecycle), context);
        }
        // Usual case: most steps have nothing to send.
        if self.sending.is_empty() && !self.transport.has_unsent() {
            return true;
        }
        let ends = ends(&self.lifecycle);
        self.sending.flush(&mut self.transport, ends, &mut context.statistics)
    }

    #[cold]
    fn flush_observed(&mut self, ends: bool, context: &mut EngineContext<A>) -> bool {
        context.observer.send(self.slot);
        let flushed = self.sending.flush(&mut self.transport, ends, &mut context.statistics);
        context.observer.sent(self.slot, !self.has_output());
        flushed
    }

    /// Sends as many of the composed bytes as the transport accepts, and drops nothing. Returns true if all have been
    /// sent.
    pub(super) fn send_composed(&mut self, statistics: &mut Statistics) -> bool {
        self.sending.send_composed(&mut self.transport, statistics)
    }

    /// Sends held-back output that has not changed since the previous tick. Returns true if output is still held back.
    /// Drops no object of the application.
    pub(crate) fn tick(&mut self, tick: u64, statistics: &mut Statistics, observer: &mut Option<Box<Stages>>) -> bool {
        self.sending.tick(&mut self.transport, (self.slot, tick), statistics, observer)
    }

    /// Receives into `buffer`, and counts the bytes. `receiving` returns the call to which the bytes belong, if a
    /// request is being received.
    #[inline]
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        receiving: impl FnOnce() -> Option<CallId>,
        context: &mut EngineContext<A>,
    ) -> io::Result<Received> {
        let received = if context.observer.is_some() {
            self.receive_observed(buffer, receiving(), context)
        } else {
            self.transport.receive(buffer)
        };
        context.meter.charge(self.transport.take_work());
        match received {
            Ok(Received::Bytes { count, is_drained }) => {
                context.statistics.bytes_in += count as u64;
                context.meter.charge(count as u64);
                if is_drained {
                    self.input.note_drained();
                }
            }
            Ok(Received::WouldBlock) => self.input.note_drained(),
            Ok(Received::End) => self.input.end(),
            Err(_) => {}
        }
        received
    }

    #[cold]
    fn receive_observed(
        &mut self,
        buffer: &mut [u8],
        receiving: Option<CallId>,
        context: &mut EngineContext<A>,
    ) -> io::Result<Received> {
        let Some(call) = receiving else { return self.transport.receive(buffer) };
        context.observer.receive(call);
        let received = self.transport.receive(buffer);
        context.observer.received(call, matches!(received, Ok(Received::Bytes { .. })));
        received
    }

    /// Receives the input that has arrived, up to the maximum length of a head, and keeps it for later.
    pub(super) fn receive_unread(&mut self, context: &mut EngineContext<A>, buffer: &mut [u8]) {
        while self.input.kept() < context.config.limits.head {
            match self.transport.receive(buffer) {
                Ok(Received::Bytes { count, .. }) => {
                    context.statistics.bytes_in += count as u64;
                    self.input.append_unseen(&buffer[..count]);
                }
                // The thread that polls the engine next meets the same error, and handles it.
                Ok(Received::End | Received::WouldBlock) | Err(_) => break,
            }
        }
    }

    // ------------------------------------------------------------------------------------------------------------- end

    /// Closes the connection after a refusal has been written as the last output.
    pub(super) fn close_refused(&mut self, status: u16, statistics: &mut Statistics) {
        statistics.refused += 1;
        statistics.count_status(status);
        self.input.discard();
        self.lifecycle.close(Closing::Linger);
    }

    /// Runs a step of a connection that is closing and has sent all output. Returns `None` if the connection lingers,
    /// so that its input has to be read and discarded.
    pub(super) fn step_to_end(&mut self, has_calls: bool) -> Option<Step<A>> {
        match self.lifecycle.state() {
            LinkState::Hijacked { .. } => Some(Step::Stop(NextAction::Wait)),
            LinkState::Gone => Some(Step::Leave),
            LinkState::Closing(Closing::Reset) => {
                self.transport.reset_on_drop();
                Some(Step::End)
            }
            // If a socket is closed while it has unread bytes, the kernel sends a reset, which can destroy output that
            // the peer has not read yet.
            LinkState::Closing(Closing::Orderly) if self.input.is_empty() && !self.input.is_readable() => {
                Some(Step::End)
            }
            LinkState::Closing(_) => {
                if self.input.has_ended() && !has_calls {
                    return Some(Step::Stop(NextAction::Close));
                }
                self.transport.end_output();
                if self.input.has_ended() {
                    return Some(Step::End);
                }
                self.input.discard();
                self.lifecycle.linger();
                Some(Step::Next)
            }
            LinkState::Linger(_) | LinkState::Open => None,
        }
    }

    /// Records that the peer is gone, or that nothing more has to be sent to it.
    pub(super) fn lose(&mut self) {
        self.lifecycle.lose();
        self.input.note_drained();
        self.sending.discard();
    }
}
