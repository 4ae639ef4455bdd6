//! The closing handshake of a WebSocket (RFC 6455 section 7): its states, and all transitions between them.
//!
//! Only the methods of [`ClosingHandshake`] change the state. [`HandshakeStage::TABLE`] lists all transitions; the
//! diagram in docs/design/websocket.md is drawn from it.

use super::close_code::CloseCode;
use super::fault::WebSocketFault;
use transitions::{Machine, Table, WithData};

/// The state of the closing handshake.
#[derive(Debug)]
pub(super) struct ClosingHandshake(HandshakeState);

#[derive(Clone, Copy, Debug)]
enum HandshakeState {
    /// Messages are sent in both directions.
    Open,
    /// The peer broke a rule, but earlier messages may still be answered.
    Postponed(WebSocketFault),
    /// This end must send a Close frame, because the peer's frame arrived or the peer broke a rule.
    Owing { code: Option<CloseCode>, reason: &'static str },
    /// This end sent a Close frame, and the peer's has not arrived.
    Closing,
    /// No more frames are sent or read.
    Closed,
}

/// The name of a state, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeStage {
    Open,
    Postponed,
    Owing,
    Closing,
    Closed,
}

/// An event that changes the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandshakeEvent {
    /// The peer broke a rule.
    Broken,
    /// The peer's Close frame arrived.
    PeerClosed,
    /// The caller has no memory for the peer's messages.
    NoMemory,
    /// The caller postpones the answer to a broken rule.
    PutOff,
    /// The caller ends the postponement.
    TakenUp,
    /// The caller closes the connection.
    OwnClose,
    /// The pending Close frame was written.
    Answered,
}

impl WithData for HandshakeState {
    type Plain = HandshakeStage;

    fn plain(&self) -> HandshakeStage {
        match self {
            HandshakeState::Open => HandshakeStage::Open,
            HandshakeState::Postponed(_) => HandshakeStage::Postponed,
            HandshakeState::Owing { .. } => HandshakeStage::Owing,
            HandshakeState::Closing => HandshakeStage::Closing,
            HandshakeState::Closed => HandshakeStage::Closed,
        }
    }
}

impl Machine for HandshakeStage {
    type Event = HandshakeEvent;
    const TABLE: Table<Self, HandshakeEvent> = Table {
        name: "closing handshake",
        initial: Self::Open,
        rows: &[
            (Self::Open, HandshakeEvent::Broken, Self::Owing),
            (Self::Open, HandshakeEvent::PeerClosed, Self::Owing),
            (Self::Open, HandshakeEvent::NoMemory, Self::Owing),
            (Self::Open, HandshakeEvent::OwnClose, Self::Closing),
            (Self::Owing, HandshakeEvent::PutOff, Self::Postponed),
            (Self::Owing, HandshakeEvent::Answered, Self::Closed),
            (Self::Owing, HandshakeEvent::Broken, Self::Closed),
            (Self::Owing, HandshakeEvent::PeerClosed, Self::Closed),
            (Self::Owing, HandshakeEvent::NoMemory, Self::Closed),
            (Self::Postponed, HandshakeEvent::TakenUp, Self::Owing),
            (Self::Postponed, HandshakeEvent::NoMemory, Self::Owing),
            // An answer of the peer would not be read, so this end does not wait for one.
            (Self::Postponed, HandshakeEvent::OwnClose, Self::Closed),
            (Self::Postponed, HandshakeEvent::Broken, Self::Closed),
            (Self::Postponed, HandshakeEvent::PeerClosed, Self::Closed),
            (Self::Closing, HandshakeEvent::Broken, Self::Closed),
            (Self::Closing, HandshakeEvent::PeerClosed, Self::Closed),
            (Self::Closing, HandshakeEvent::NoMemory, Self::Closed),
            (Self::Closed, HandshakeEvent::Broken, Self::Closed),
            (Self::Closed, HandshakeEvent::PeerClosed, Self::Closed),
            (Self::Closed, HandshakeEvent::NoMemory, Self::Closed),
        ],
    };
}

impl ClosingHandshake {
    pub(super) fn new() -> Self {
        Self(HandshakeState::Open)
    }

    /// Returns the name of the state.
    pub(super) fn stage(&self) -> HandshakeStage {
        self.0.plain()
    }

    fn go(&mut self, event: HandshakeEvent, to: HandshakeState) {
        transitions::replace(&mut self.0, event, to);
    }

    /// Returns true if messages may be sent.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.0, HandshakeState::Open | HandshakeState::Postponed(_))
    }

    /// Returns the code and the reason of the pending Close frame.
    pub(super) fn owed(&self) -> Option<(Option<CloseCode>, &'static str)> {
        if let HandshakeState::Owing { code, reason } = self.0 { Some((code, reason)) } else { None }
    }

    /// Records that the peer broke a rule.
    pub(super) fn fail(&mut self, fault: WebSocketFault) {
        let is_open = matches!(self.0, HandshakeState::Open);
        self.go(HandshakeEvent::Broken, if is_open { owing(fault) } else { HandshakeState::Closed });
    }

    /// Records that the peer's Close frame arrived.
    pub(super) fn end_by_peer(&mut self, code: Option<CloseCode>) {
        let is_open = matches!(self.0, HandshakeState::Open);
        self.go(
            HandshakeEvent::PeerClosed,
            if is_open { HandshakeState::Owing { code, reason: "" } } else { HandshakeState::Closed },
        );
    }

    /// Records that the caller has no memory for the peer's messages.
    pub(super) fn overload(&mut self, reason: &'static str) {
        let owing = HandshakeState::Owing { code: Some(CloseCode::TRY_AGAIN_LATER), reason };
        self.go(HandshakeEvent::NoMemory, if self.is_open() { owing } else { HandshakeState::Closed });
    }

    /// Postpones the answer to a fault, if one is pending.
    pub(super) fn postpone(&mut self, fault: WebSocketFault) {
        if matches!(self.0, HandshakeState::Owing { .. }) {
            self.go(HandshakeEvent::PutOff, HandshakeState::Postponed(fault));
        }
    }

    /// Ends the postponement of the answer. Returns the fault that is answered.
    pub(super) fn take_up(&mut self) -> Option<WebSocketFault> {
        let HandshakeState::Postponed(fault) = self.0 else { return None };
        self.go(HandshakeEvent::TakenUp, owing(fault));
        Some(fault)
    }

    /// Records that this end wrote a Close frame on its own initiative.
    pub(super) fn close(&mut self) {
        let is_failed = matches!(self.0, HandshakeState::Postponed(_));
        self.go(HandshakeEvent::OwnClose, if is_failed { HandshakeState::Closed } else { HandshakeState::Closing });
    }

    /// Records that the pending Close frame was written.
    pub(super) fn answer(&mut self) {
        self.go(HandshakeEvent::Answered, HandshakeState::Closed);
    }
}

/// Returns the state after a broken rule.
fn owing(fault: WebSocketFault) -> HandshakeState {
    HandshakeState::Owing { code: Some(fault.code()), reason: fault.explanation() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound_and_drawn_in_the_docs() {
        assert_eq!(HandshakeStage::TABLE.validate(), Ok(()));
        HandshakeStage::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/websocket.md"));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "illegal move of a closing handshake: Closed, OwnClose, Closing")]
    fn closed_connection_is_not_closed_again() {
        let mut handshake = ClosingHandshake::new();
        handshake.end_by_peer(None);
        handshake.answer();
        handshake.close();
    }
}
