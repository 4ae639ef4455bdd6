//! One stream: its state (RFC 9113 section 5.1), windows and progress.

use super::priority::Priority;
use crate::message::FieldLines;
use transitions::{Machine, State, Table};

/// The states of figure 2 of RFC 9113, as the server sees a client's stream. A server that does not push has no
/// reserved streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    Idle,
    Open,
    /// The client has sent all of its request.
    HalfClosedRemote,
    /// The response is complete, and the request is not.
    HalfClosedLocal,
    Closed,
}

/// The events that move a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamMove {
    /// The client's HEADERS without `END_STREAM`.
    RequestBegins,
    /// The same with `END_STREAM`.
    WholeRequest,
    /// `END_STREAM` of the client.
    RequestEnds,
    /// `END_STREAM` of the server.
    ResponseEnds,
    /// `RST_STREAM` of either side.
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

/// A stream that is not closed, or whose exchange has not been forgotten.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    state: State<StreamState>,
    /// The bytes of the response that the client accepts. Negative after it has made its initial window smaller.
    pub(super) send_window: i64,
    /// The bytes of the request that the client may send, and those that it has sent and that were not consumed.
    pub(super) receive_window: i64,
    pub(super) unconsumed: u32,
    /// Bytes by which the window is to be enlarged, once they are many.
    pub(super) owed: u32,
    /// The declared length of the request's body, and the bytes received.
    pub(super) declared: Option<u64>,
    pub(super) received: u64,
    /// True if the head has reported a body, so that its end is reported too.
    pub(super) has_body: bool,
    /// False if the rest of the body is discarded.
    pub(super) is_wanted: bool,
    /// True if the client waits for 100 (Continue).
    pub(super) expects_continue: bool,
    /// The bytes that the response has still to send, if `END_STREAM` goes with the last of them.
    pub(super) response_left: Option<u64>,
    /// True if the request asks for a WebSocket: what follows is no body, and has no length.
    pub(super) is_websocket: bool,
    /// True if the application has not accepted it.
    pub(super) is_refused: bool,
    /// True if the client takes trailers behind the response.
    pub(super) takes_trailers: bool,
    /// The trailers that follow the response.
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

    /// Opens the stream with the client's HEADERS.
    pub(super) fn open(&mut self, is_whole: bool) {
        if is_whole {
            self.state.apply(StreamMove::WholeRequest, StreamState::HalfClosedRemote);
        } else {
            self.state.apply(StreamMove::RequestBegins, StreamState::Open);
        }
    }

    /// Records `END_STREAM` of the client.
    pub(super) fn end_request(&mut self) {
        let next = if self.is_response_open() { StreamState::HalfClosedRemote } else { StreamState::Closed };
        self.state.apply(StreamMove::RequestEnds, next);
    }

    /// Records `END_STREAM` of the server.
    pub(super) fn end_response(&mut self) {
        let next = if self.is_request_open() { StreamState::HalfClosedLocal } else { StreamState::Closed };
        self.state.apply(StreamMove::ResponseEnds, next);
    }

    /// Records a reset.
    pub(super) fn reset(&mut self) {
        self.state.apply(StreamMove::Reset, StreamState::Closed);
    }

    /// Returns true if the client has more of the request to send.
    pub(super) fn is_request_open(&self) -> bool {
        matches!(self.state.get(), StreamState::Open | StreamState::HalfClosedLocal)
    }

    /// Returns true if the server has more of the response to send.
    pub(super) fn is_response_open(&self) -> bool {
        matches!(self.state.get(), StreamState::Open | StreamState::HalfClosedRemote)
    }

    /// Returns true if the body is as long as declared.
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
