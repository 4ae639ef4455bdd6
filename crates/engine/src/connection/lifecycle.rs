//! The states of a connection, and all transitions between them.
//!
//! [`LinkStage::TABLE`] has all transitions; docs/design/engine.md has the diagram that is generated from it.
//!
//! Only the methods of [`Lifecycle`] change the state of a connection. A debug build asserts that each transition is in
//! the table.

use crate::config::LINGER_BYTES;
use transitions::{Machine, Table, WithData};

/// The state of a connection, which other code may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Open,
    /// The connection sends its last response.
    Closing(Closing),
    /// Everything has been sent. The engine discards the peer's bytes until the peer closes, at most this number of
    /// bytes.
    Linger(u64),
    /// The application communicates with the peer itself. `serial` is unique among hijacked connections.
    Hijacked {
        serial: u64,
        holder: Holder,
    },
    /// The peer is gone, or nothing more has to be sent to it. The connection keeps its slot until its calls have
    /// returned.
    Gone,
}

/// The way in which a connection ends after its last response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// A normal close: the peer asked for it and has sent nothing more.
    Orderly,
    /// The engine has to discard input first, because the peer may still be sending.
    Linger,
    /// A reset: the peer must see that the response is incomplete.
    Reset,
}

impl Closing {
    /// Returns the way in which a connection ends without an error. `may_be_sending`: the peer may send more.
    pub(super) fn of(may_be_sending: bool) -> Self {
        if may_be_sending { Self::Linger } else { Self::Orderly }
    }
}

/// The part of the application that holds a hijacked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The call, which has not returned.
    Call,
    /// Only the socket: the call has returned without closing it.
    Socket,
}

/// The state of a connection, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkStage {
    Open,
    Closing,
    Linger,
    Hijacked,
    Gone,
}

/// An event that changes the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// The last response is written, or no response follows.
    Last,
    /// The last response is sent.
    Sent,
    /// The peer has sent bytes that the server discards.
    Unread,
    /// The peer has sent more bytes than the server discards.
    TooMuch,
    /// The application takes over the connection.
    Hijack,
    /// The call that took over the connection has returned.
    Returned,
    /// The peer is gone, or nothing more has to be sent to it.
    Lost,
}

impl WithData for LinkState {
    type Plain = LinkStage;

    fn plain(&self) -> LinkStage {
        match self {
            LinkState::Open => LinkStage::Open,
            LinkState::Closing(_) => LinkStage::Closing,
            LinkState::Linger(_) => LinkStage::Linger,
            LinkState::Hijacked { .. } => LinkStage::Hijacked,
            LinkState::Gone => LinkStage::Gone,
        }
    }
}

impl Machine for LinkStage {
    type Event = LinkEvent;
    const TABLE: Table<Self, LinkEvent> = Table {
        name: "connection",
        initial: Self::Open,
        rows: &[
            (Self::Open, LinkEvent::Last, Self::Closing),
            (Self::Open, LinkEvent::Hijack, Self::Hijacked),
            (Self::Open, LinkEvent::Lost, Self::Gone),
            // The call of a WebSocket may end after the closing handshake.
            (Self::Closing, LinkEvent::Last, Self::Closing),
            (Self::Closing, LinkEvent::Unread, Self::Closing),
            (Self::Closing, LinkEvent::Sent, Self::Linger),
            (Self::Closing, LinkEvent::Lost, Self::Gone),
            (Self::Linger, LinkEvent::Last, Self::Closing),
            (Self::Linger, LinkEvent::Unread, Self::Linger),
            (Self::Linger, LinkEvent::TooMuch, Self::Closing),
            (Self::Linger, LinkEvent::Lost, Self::Gone),
            (Self::Hijacked, LinkEvent::Returned, Self::Hijacked),
            (Self::Hijacked, LinkEvent::Lost, Self::Gone),
            (Self::Gone, LinkEvent::Lost, Self::Gone),
        ],
    };
}

/// The state of one connection. Only this type's methods change it.
#[derive(Debug)]
pub(super) struct Lifecycle(LinkState);

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self(LinkState::Open)
    }

    /// Returns a copy of the state.
    #[inline]
    pub(super) fn state(&self) -> LinkState {
        self.0
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.0 == LinkState::Open
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0 == LinkState::Gone
    }

    #[inline]
    fn go(&mut self, event: LinkEvent, to: LinkState) {
        transitions::replace(&mut self.0, event, to);
    }

    /// Begins to close: no output follows the output that has been written.
    pub(super) fn close(&mut self, closing: Closing) {
        self.go(LinkEvent::Last, LinkState::Closing(closing));
    }

    /// Begins to discard the peer's bytes, after the last output has been sent.
    pub(super) fn linger(&mut self) {
        self.go(LinkEvent::Sent, LinkState::Linger(LINGER_BYTES));
    }

    /// Records that `count` bytes have arrived after the last request. If the connection is closing, this shows that
    /// the peer may be sending more, so the connection will linger. If it lingers and has discarded too many bytes, it
    /// ends with a reset.
    pub(super) fn discard(&mut self, count: u64) {
        match self.0 {
            LinkState::Closing(Closing::Orderly) => self.go(LinkEvent::Unread, LinkState::Closing(Closing::Linger)),
            LinkState::Linger(left) if left <= count => self.go(LinkEvent::TooMuch, LinkState::Closing(Closing::Reset)),
            LinkState::Linger(left) => self.go(LinkEvent::Unread, LinkState::Linger(left - count)),
            LinkState::Open | LinkState::Closing(_) | LinkState::Hijacked { .. } | LinkState::Gone => {}
        }
    }

    /// Gives the connection to a call of the application.
    pub(super) fn hijack(&mut self, serial: u64) {
        self.go(LinkEvent::Hijack, LinkState::Hijacked { serial, holder: Holder::Call });
    }

    /// Records that the call that hijacked the connection has returned. Returns false if the connection is not
    /// hijacked.
    pub(super) fn return_hijacked(&mut self) -> bool {
        let LinkState::Hijacked { serial, .. } = self.0 else { return false };
        self.go(LinkEvent::Returned, LinkState::Hijacked { serial, holder: Holder::Socket });
        true
    }

    /// Records that the peer is gone, or that nothing more has to be sent to it.
    pub(super) fn lose(&mut self) {
        self.go(LinkEvent::Lost, LinkState::Gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound_and_drawn_in_the_docs() {
        assert_eq!(LinkStage::TABLE.validate(), Ok(()));
        LinkStage::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/engine.md"));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal move of a connection: Gone, Last, Closing")]
    fn connection_without_a_peer_sends_no_response() {
        let mut lifecycle = Lifecycle::new();
        lifecycle.lose();
        lifecycle.close(Closing::Linger);
    }

    #[test]
    fn peer_that_sends_too_much_while_it_is_discarded_is_reset() {
        let mut lifecycle = Lifecycle::new();
        lifecycle.close(Closing::Orderly);
        lifecycle.discard(1);
        assert_eq!(lifecycle.state(), LinkState::Closing(Closing::Linger));
        lifecycle.linger();
        lifecycle.discard(LINGER_BYTES - 1);
        assert_eq!(lifecycle.state(), LinkState::Linger(1));
        lifecycle.discard(1);
        assert_eq!(lifecycle.state(), LinkState::Closing(Closing::Reset));
    }
}
