//! One stream: its state (RFC 9113 section 5.1), its windows and its progress.

use super::priority::Priority;
use crate::message::FieldLines;
use transitions::{Machine, State, Table};

/// The states of figure 2 in RFC 9113 for a stream of a client, from the server's view. The reserved states are
/// missing, because this server does not push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    Idle,
    Open,
    /// The client has sent its whole request.
    HalfClosedRemote,
    /// The response is complete, but the request is not.
    HalfClosedLocal,
    Closed,
}

/// The events that change the state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamMove {
    /// The client's HEADERS without `END_STREAM`.
    RequestBegins,
    /// The client's HEADERS with `END_STREAM`.
    WholeRequest,
    /// The client's `END_STREAM`.
    RequestEnds,
    /// The server's `END_STREAM`.
    ResponseEnds,
    /// `RST_STREAM` from either side.
    Reset,
}

impl Machine for StreamState {
    type Event = StreamMove;
    const TABLE: Table<Self, StreamMove> = Table {
        name: "stream",
        initial: Self::Idle,
        rows: &[
            (Self::Idle, StreamMove::RequestBegins, Self::Open),
            (Self::Idle, StreamMove::WholeRequest, Self::HalfClosedRemote),
            (Self::Open, StreamMove::RequestEnds, Self::HalfClosedRemote),
            (Self::Open, StreamMove::ResponseEnds, Self::HalfClosedLocal),
            (Self::Open, StreamMove::Reset, Self::Closed),
            (Self::HalfClosedRemote, StreamMove::ResponseEnds, Self::Closed),
            (Self::HalfClosedRemote, StreamMove::Reset, Self::Closed),
            (Self::HalfClosedLocal, StreamMove::RequestEnds, Self::Closed),
            (Self::HalfClosedLocal, StreamMove::Reset, Self::Closed),
        ],
    };
}

/// A stream that is not closed, or whose exchange still exists.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    state: State<StreamState>,
    /// The response bytes that the client accepts. Negative if the client reduced its initial window below what was
    /// sent.
    pub(super) send_window: i64,
    /// The request bytes that the client may send, and those that were received but not consumed.
    pub(super) receive_window: i64,
    pub(super) unconsumed: u32,
    /// The bytes by which the window will be enlarged once they are many.
    pub(super) owed: u32,
    /// The declared length of the request body, and the number of bytes received.
    pub(super) declared: Option<u64>,
    pub(super) received: u64,
    /// True if the head was reported with a body. Then the end of the body is reported too.
    pub(super) has_body: bool,
    /// False if the rest of the request body is discarded.
    pub(super) is_wanted: bool,
    /// True if the client waits for 100 (Continue).
    pub(super) expects_continue: bool,
    /// The number of response bytes still to be sent, if the last of them carries `END_STREAM`.
    pub(super) response_left: Option<u64>,
    /// True if the request asks for a WebSocket. Then the DATA after it is not a body and has no declared length.
    pub(super) is_websocket: bool,
    /// True while the application has not accepted the WebSocket.
    pub(super) is_refused: bool,
    /// True if the client accepts trailers after the response.
    pub(super) takes_trailers: bool,
    /// The trailers to send after the response.
    pub(super) trailers: Option<Box<FieldLines>>,
    pub(super) priority: Priority,
}

impl Stream {
    /// Creates an idle stream.
    pub(super) fn new(id: u32, send_window: u32, receive_window: u32) -> Self {
        Self {
            id,
            state: State::new(),
            send_window: i64::from(send_window),
            receive_window: i64::from(receive_window),
            unconsumed: 0,
            owed: 0,
            declared: None,
            received: 0,
            has_body: false,
            is_wanted: true,
            expects_continue: false,
            response_left: None,
            is_websocket: false,
            is_refused: false,
            takes_trailers: false,
            trailers: None,
            priority: Priority::default(),
        }
    }

    /// Opens the stream on HEADERS of the client. `is_whole` is true if they end the request.
    pub(super) fn open(&mut self, is_whole: bool) {
        if is_whole {
            self.state.apply(StreamMove::WholeRequest, StreamState::HalfClosedRemote);
        } else {
            self.state.apply(StreamMove::RequestBegins, StreamState::Open);
        }
    }

    /// Records the client's `END_STREAM`.
    pub(super) fn end_request(&mut self) {
        let next = if self.is_response_open() { StreamState::HalfClosedRemote } else { StreamState::Closed };
        self.state.apply(StreamMove::RequestEnds, next);
    }

    /// Records the server's `END_STREAM`.
    pub(super) fn end_response(&mut self) {
        let next = if self.is_request_open() { StreamState::HalfClosedLocal } else { StreamState::Closed };
        self.state.apply(StreamMove::ResponseEnds, next);
    }

    /// Records a reset.
    pub(super) fn reset(&mut self) {
        self.state.apply(StreamMove::Reset, StreamState::Closed);
    }

    /// Returns true if the request is incomplete.
    pub(super) fn is_request_open(&self) -> bool {
        matches!(self.state.get(), StreamState::Open | StreamState::HalfClosedLocal)
    }

    /// Returns true if the response is incomplete.
    pub(super) fn is_response_open(&self) -> bool {
        matches!(self.state.get(), StreamState::Open | StreamState::HalfClosedRemote)
    }

    /// Returns true if the body has the declared length, or none was declared.
    pub(super) fn is_length_right(&self) -> bool {
        self.declared.is_none_or(|declared| declared == self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_sound_and_drawn_in_the_docs() {
        assert_eq!(StreamState::TABLE.validate(), Ok(()));
        StreamState::TABLE.assert_page(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/http2.md"));
    }
}
