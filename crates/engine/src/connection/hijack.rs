//! A connection that the application has hijacked: the application talks to the client itself, through a descriptor of
//! its own. (Go's `net/http` and Rack use the same word.)
//!
//! ```text
//!   Open ─ hijack ─▶ Hijacked ─┬─ the call is over, then the socket is closed or the time is up ─▶ closed
//!                              └─ the socket is closed ─▶ Gone ─ the call is over ─▶ closed
//! ```
//!
//! Two readers of one stream, or two writers, make request smuggling possible. So a connection can be hijacked only
//! while the engine holds no input from the client and no output for it. From then on the engine neither reads nor
//! writes, and the poller does not report the connection. The engine keeps its own descriptor to end the connection:
//! when its stop does not wait any longer, or the application has forgotten the socket.

use super::{Connection, Holder, Lifecycle, NextAction, known};
use crate::app::App;
use crate::context::EngineContext;
use crate::exchange::{Cause, Index, State};
use crate::protocol::Protocol;
use crate::transport::Transport;
use crate::websocket::Upgrade;
use std::io;
use std::os::fd::OwnedFd;

/// The name of a hijacked connection, valid also after the connection has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HijackId {
    pub(crate) slot: usize,
    /// The serial number, which no other connection of the engine has.
    serial: u64,
}

/// A connection that belongs to the application.
#[derive(Debug)]
pub struct Hijacked {
    /// The socket, which does not block.
    pub socket: OwnedFd,
    /// The argument for [`Engine::end_hijack`](crate::Engine::end_hijack).
    pub id: HijackId,
}

/// The reason why a connection is not hijacked. The connection is unchanged.
#[derive(Debug)]
pub enum HijackRefusal {
    /// The request does not ask for a WebSocket, or has been answered, or its client is gone.
    Over,
    /// The client has sent more than its request, or has not taken the responses before it.
    Pipelined,
    /// The system has refused a descriptor.
    Failed(io::Error),
}

impl<A: App> Connection<A> {
    /// Gives the application the connection of a request that asks for a WebSocket, which the application answers
    /// itself. The poller has to forget the connection, which has to be driven then.
    pub(crate) fn hijack(
        &mut self,
        index: Index,
        context: &mut EngineContext<A>,
        app: &mut A,
    ) -> Result<Hijacked, HijackRefusal> {
        let exchange = self.exchanges.at(index);
        let is_asked = matches!(exchange.upgrade.as_deref(), Some(Upgrade::Asked(_)));
        let is_unanswered = matches!(exchange.state, State::Running(_)) && exchange.in_flight.is_none();
        if !is_asked || !is_unanswered || self.lifecycle != Lifecycle::Open || self.is_multiplexed() {
            return Err(HijackRefusal::Over);
        }
        // Responses to requests before this one may have been held back.
        if !self.flush(context) {
            return Err(HijackRefusal::Over);
        }
        if self.has_output() || !self.input.is_empty() {
            return Err(HijackRefusal::Pipelined);
        }
        let socket = self.transport.duplicate().map_err(HijackRefusal::Failed)?;
        context.websocket_serial += 1;
        let serial = context.websocket_serial;
        self.lifecycle = Lifecycle::Hijacked { serial, holder: Holder::Call };
        self.input.note_drained();
        let exchange = self.exchanges.at(index);
        exchange.upgrade = None;
        // The response that the call writes is discarded.
        exchange.detach(Cause::Hijacked);
        self.is_upgraded = true;
        context.statistics.websockets += 1;
        context.statistics.count_status(101);
        // No head follows on this connection.
        self.protocol.forget();
        app.idle(known(&mut self.app));
        Ok(Hijacked { socket, id: HijackId { slot: self.slot, serial } })
    }

    /// Records that the call of a hijacked connection is over; `is_cut`: it has failed. The connection has to be driven
    /// then.
    pub(super) fn return_hijacked(&mut self, is_cut: bool) {
        let Lifecycle::Hijacked { holder, .. } = &mut self.lifecycle else { return };
        *holder = Holder::Socket;
        if is_cut {
            self.transport.shut_down();
            self.lifecycle = Lifecycle::Gone;
        }
    }

    /// Records that the application has closed its socket. The connection has to be driven then.
    pub(crate) fn end_hijack(&mut self, id: HijackId) {
        let Lifecycle::Hijacked { serial, holder } = self.lifecycle else { return };
        if serial != id.serial {
            return;
        }
        if holder == Holder::Call {
            // The client would not see the end before the call returns, because our descriptor is open until then.
            self.transport.shut_down();
        }
        self.lifecycle = Lifecycle::Gone;
    }

    /// Ends a hijacked connection now, whatever the application does with it; `None`: the connection is not hijacked.
    pub(super) fn abort_hijacked(&mut self, context: &mut EngineContext<A>, app: &mut A) -> Option<NextAction<A>> {
        let Lifecycle::Hijacked { .. } = self.lifecycle else { return None };
        // Threads of the application that wait for the client see the end of the connection.
        self.transport.shut_down();
        Some(self.leave(context, app))
    }
}
