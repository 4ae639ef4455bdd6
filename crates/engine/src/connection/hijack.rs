//! A connection that the application has hijacked: the application talks to the client itself, through a descriptor of
//! its own. (Go's `net/http` and Rack use the same word.)
//!
//! ```text
//!   Open ─ hijack ─▶ Hijacked ─┬─ the call returns, then the socket is closed or the time is up ─▶ closed
//!                              └─ the socket is closed ─▶ Gone ─ the call returns ─▶ closed
//! ```
//!
//! Two readers of one stream, or two writers, make request smuggling possible. So a connection can be hijacked only
//! while the engine holds no input from the client and no output for it. From then on the engine neither reads nor
//! writes, and the poller does not report the connection. The engine keeps its own descriptor, to close the connection
//! when a stop of the engine no longer waits or the application has forgotten the socket.

use super::lifecycle::{Holder, LinkState};
use super::link::Link;
use crate::app::App;
use crate::context::EngineContext;
use crate::exchange::{Cause, Exchange};
use crate::transport::Transport;
use crate::websocket::Upgrade;
use std::io;
use std::os::fd::OwnedFd;

/// The identifier of a hijacked connection, valid even after the connection has closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HijackId {
    pub(crate) slot: usize,
    /// The serial number, which no other connection of the engine has.
    serial: u64,
}

/// A connection that the application has taken over.
#[derive(Debug)]
pub struct Hijacked {
    /// The non-blocking socket.
    pub socket: OwnedFd,
    /// The argument for [`Engine::end_hijack`](crate::Engine::end_hijack).
    pub id: HijackId,
}

/// The reason why a connection cannot be hijacked. The connection is unchanged.
#[derive(Debug)]
pub enum HijackRefusal {
    /// The request does not ask for a WebSocket, or has been answered, or its client is gone.
    Over,
    /// The client has sent more than its request, or has not read the responses before it.
    Pipelined,
    /// The system could not duplicate the descriptor.
    Failed(io::Error),
}

/// Gives the application the connection of a request that asks for a WebSocket; the application then answers the
/// request itself. The caller has to unwatch the connection and then drive it.
pub(super) fn hijack<A: App>(
    exchange: &mut Exchange<A>,
    link: &mut Link<A>,
    context: &mut EngineContext<A>,
) -> Result<Hijacked, HijackRefusal> {
    let is_asked = matches!(exchange.upgrade.as_deref(), Some(Upgrade::Asked(_)));
    if !is_asked || !exchange.is_unanswered() || !link.lifecycle.is_open() {
        return Err(HijackRefusal::Over);
    }
    // Responses to earlier requests may still be held back.
    if !link.flush(context) {
        return Err(HijackRefusal::Over);
    }
    if link.has_output() || !link.input.is_empty() {
        return Err(HijackRefusal::Pipelined);
    }
    let socket = link.transport.duplicate().map_err(HijackRefusal::Failed)?;
    let serial = context.websockets.next_serial();
    link.lifecycle.hijack(serial);
    link.input.note_drained();
    exchange.upgrade = None;
    // The engine discards the response that the call writes.
    exchange.state.detach(Cause::Hijacked);
    link.upgrade(&mut context.statistics);
    Ok(Hijacked { socket, id: HijackId { slot: link.slot(), serial } })
}

/// Records that the application has closed its socket. The caller has to drive the connection afterwards.
pub(crate) fn end_hijack<A: App>(link: &mut Link<A>, id: HijackId) {
    let LinkState::Hijacked { serial, holder } = link.lifecycle.state() else { return };
    if serial != id.serial {
        return;
    }
    if holder == Holder::Call {
        // The client would not see the end before the call returns, because the engine's descriptor is open until then.
        link.transport.shut_down();
    }
    link.lifecycle.lose();
}
