//! A simple multiplexed protocol for tests of many exchanges on one connection.
//!
//! A frame is the length of its payload (2 bytes), its kind (1 byte), the number of its exchange (4 bytes), and the
//! payload. Numbers are in network byte order. The head of a request has the bytes of an HTTP/1 head; its exchange
//! number must be larger than all previous ones. Each exchange has a window in both directions, initially of [`WINDOW`]
//! bytes: the receiver announces with [`CREDIT`] how many more bytes it accepts.

use engine::{
    Http1, Http2, MultiplexedProtocol, OnlyMultiplexed, OnlySerial, Protocols, Reset, ResponseSender, ResponseTerms,
    StreamEvent, StreamId,
};
use std::collections::BTreeMap;
use wire::http1::Receiver;
use wire::http2::HeadScratch;
use wire::message::{BodyLength, Draft, Fault, Field, Limits, Misuse, RequestHead, Stamp};

/// The initial window: the number of body bytes that may be sent before the first credit.
pub const WINDOW: usize = 32 << 10;
const HEADER: usize = 7;

/// The head of a request that has a body.
pub const HEAD: u8 = b'H';
/// The head of a request without a body, or of any response.
pub const HEAD_ONLY: u8 = b'h';
/// A part of a body.
pub const DATA: u8 = b'D';
/// The end of a body, with its last part.
pub const END: u8 = b'E';
/// The early end of an exchange. From the server, the payload is a letter with the reason.
pub const RESET: u8 = b'R';
/// A credit: the sender accepts this many more bytes of the exchange's body (4 bytes).
pub const CREDIT: u8 = b'W';
/// From the server: the number of exchanges that may be under way (2 bytes).
pub const SETTINGS: u8 = b'S';
/// From the server: no further exchange may begin.
pub const GOAWAY: u8 = b'G';

/// Appends a frame to `out`.
///
/// # Panics
/// If the payload is longer than 65,535 bytes.
pub fn frame(kind: u8, stream: StreamId, payload: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(payload.len()).expect("a payload fits into a frame");
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A frame that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind, which is one of the constants above.
    pub kind: u8,
    /// The number of the frame's exchange.
    pub stream: StreamId,
    /// The bytes after the header.
    pub payload: &'a [u8],
    /// The total length in bytes.
    pub length: usize,
}

/// Reads the first frame in `input`; `None` if it is incomplete.
pub fn read(input: &[u8]) -> Option<Frame<'_>> {
    let header = input.get(..HEADER)?;
    let count = usize::from(u16::from_be_bytes([header[0], header[1]]));
    let payload = input.get(HEADER..HEADER + count)?;
    let stream = StreamId::from_be_bytes([header[3], header[4], header[5], header[6]]);
    Some(Frame { kind: header[2], stream, payload, length: HEADER + count })
}

/// The server's side of a connection. `SAYS_GOODBYE`: it can tell its client that no further exchange may begin.
#[derive(Debug, Default)]
pub struct Frames<const SAYS_GOODBYE: bool = true> {
    streams: BTreeMap<StreamId, Stream>,
    last: StreamId,
    /// The parser of request heads.
    receiver: Receiver,
    fields: Vec<Field>,
    /// The number of exchanges to be announced in the server's first frame; `None` once that frame has been written.
    settings: Option<u16>,
    is_draining: bool,
    /// True if the connection ends when no exchange is under way, because the client cannot be told.
    is_ending: bool,
}

/// An exchange that is under way.
#[derive(Debug)]
struct Stream {
    /// The number of bytes of the response that the client accepts.
    window: usize,
    /// The number of bytes of the request's body that the client may send.
    credit: usize,
    /// True if the request's body has ended.
    has_ended: bool,
    /// True if the server has told the client that it does not want the rest of the body.
    is_unwanted: bool,
}

/// A protocol set of a simulated world.
pub(crate) trait Simulated: Protocols {
    /// True if a connection has many exchanges at a time.
    const MULTIPLEXED: bool;
}

impl Simulated for OnlySerial<Http1> {
    const MULTIPLEXED: bool = false;
}

impl Simulated for OnlyMultiplexed<Http2> {
    const MULTIPLEXED: bool = true;
}

impl<const SAYS_GOODBYE: bool> Simulated for OnlyMultiplexed<Frames<SAYS_GOODBYE>> {
    const MULTIPLEXED: bool = true;
}

/// The properties of a request that determine the form of its response: true if the method is HEAD.
#[derive(Clone, Copy, Debug)]
pub struct IsHead(bool);

impl ResponseTerms for IsHead {
    fn is_last(self) -> bool {
        false
    }

    fn delimits_body(self) -> bool {
        true
    }

    fn ending(self) -> Self {
        self
    }

    fn refusing(self) -> Self {
        self
    }

    fn check_length(self, draft: &Draft, length: u64) -> Result<(), Misuse> {
        match draft.content_length() {
            Some(declared) if declared < length && !self.0 => Err(Misuse::BodyTooLong),
            Some(declared) if declared > length && !self.0 => Err(Misuse::BodyTooShort),
            _ => Ok(()),
        }
    }
}

impl<const SAYS_GOODBYE: bool> MultiplexedProtocol for Frames<SAYS_GOODBYE> {
    type Terms = IsHead;
    type Sender = FrameSender;

    fn fresh(&self) -> Self {
        Self::default()
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        _scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, IsHead>), Fault> {
        let Some(Frame { kind, stream, payload, length }) = read(input) else { return Ok((0, StreamEvent::More)) };
        let event = match kind {
            HEAD | HEAD_ONLY => {
                if stream <= self.last {
                    return Err(Fault::RequestLineMalformed);
                }
                self.last = stream;
                let has_body = kind == HEAD;
                self.streams.insert(
                    stream,
                    Stream { window: WINDOW, credit: WINDOW, has_ended: !has_body, is_unwanted: false },
                );
                self.receiver = Receiver::default();
                match self.receiver.head(payload, &mut self.fields, limits) {
                    Ok(Some(head)) => {
                        let body = if has_body { BodyLength::Unknown } else { BodyLength::None };
                        let is_head = head.request.method == b"HEAD";
                        let head = RequestHead { body, ..head.request };
                        StreamEvent::Head { stream, head, terms: IsHead(is_head) }
                    }
                    Ok(None) => StreamEvent::Broken { stream, fault: Fault::Truncated },
                    Err(fault) => StreamEvent::Broken { stream, fault },
                }
            }
            DATA | END => match self.streams.get_mut(&stream) {
                Some(known) if known.is_unwanted => StreamEvent::Nothing,
                Some(known) if known.has_ended || payload.len() > known.credit => {
                    known.has_ended = true;
                    StreamEvent::Broken { stream, fault: Fault::BodyTooLarge }
                }
                Some(known) => {
                    known.credit -= payload.len();
                    known.has_ended = kind == END;
                    match payload {
                        [] if kind == END => StreamEvent::End { stream },
                        [] => StreamEvent::Nothing,
                        bytes => StreamEvent::Data { stream, bytes, is_last: kind == END },
                    }
                }
                // The exchange had ended while the frame was on its way.
                None => StreamEvent::Nothing,
            },
            RESET => StreamEvent::Reset { stream },
            CREDIT => {
                let more = payload.try_into().map(u32::from_be_bytes).map_err(|_| Fault::ContentLengthInvalid)?;
                let more = usize::try_from(more).map_err(|_| Fault::ContentLengthInvalid)?;
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.window = known.window.saturating_add(more);
                }
                StreamEvent::Credit { stream }
            }
            _ => return Err(Fault::MethodInvalid),
        };
        Ok((length, event))
    }

    fn forget(&mut self) {}

    fn unread_terms(&self) -> IsHead {
        IsHead(false)
    }

    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        IsHead(is_head): IsHead,
        length: Option<u64>,
        _stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> FrameSender {
        let mut head = draft.status().to_string().into_bytes();
        for (name, value) in draft.fields() {
            head.extend_from_slice(&[b"\n", name, b": ", value].concat());
        }
        frame(HEAD_ONLY, stream, &head, out);
        let is_bodiless = is_head || matches!(draft.status(), 204 | 304);
        let declared = if is_bodiless { None } else { draft.content_length().or(length) };
        FrameSender { declared, is_bodiless, ..FrameSender::default() }
    }

    fn window(&self, stream: StreamId) -> usize {
        self.streams.get(&stream).map_or(0, |known| known.window)
    }

    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(known) = self.streams.get_mut(&stream) {
            assert!(bytes.len() <= known.window, "the engine keeps to the window");
            known.window -= bytes.len();
        }
        frame(DATA, stream, bytes, out);
    }

    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        frame(END, stream, b"", out);
    }

    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let why = match reset {
            Reset::Refused => b"r",
            Reset::Complete => b"c",
            Reset::Cut => b"x",
        };
        frame(RESET, stream, why, out);
        match (reset, self.streams.get_mut(&stream)) {
            // The response continues.
            (Reset::Complete, Some(known)) => known.is_unwanted = true,
            _ => self.forget_stream(stream),
        }
    }

    fn forget_stream(&mut self, stream: StreamId) {
        let was_known = self.streams.remove(&stream).is_some();
        self.is_ending |= was_known && self.is_draining && !SAYS_GOODBYE;
    }

    fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        if let Some(known) = self.streams.get_mut(&stream)
            && !known.has_ended
            && !known.is_unwanted
        {
            known.credit += bytes;
            frame(CREDIT, stream, &u32::try_from(bytes).expect("it fits into a frame").to_be_bytes(), out);
        }
    }

    fn announces_end(&self) -> bool {
        SAYS_GOODBYE
    }

    fn is_ending(&self, may_have_arrived: bool) -> bool {
        self.is_ending && !may_have_arrived
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        self.is_draining = true;
        if SAYS_GOODBYE {
            frame(GOAWAY, 0, b"", out);
        }
    }

    fn open(&mut self, exchanges: usize, _limits: &Limits) {
        self.settings = Some(u16::try_from(exchanges).unwrap_or(u16::MAX));
    }

    fn write_control(&mut self, out: &mut Vec<u8>) {
        if let Some(exchanges) = self.settings.take() {
            frame(SETTINGS, 0, &exchanges.to_be_bytes(), out);
        }
    }
}

/// The sender of a response, which enforces the declared length.
#[derive(Debug, Default)]
pub struct FrameSender {
    declared: Option<u64>,
    is_bodiless: bool,
    body_bytes: u64,
    rejected_bytes: u64,
    is_finished: bool,
}

impl ResponseSender for FrameSender {
    fn open(&mut self, length: u64, _out: &mut Vec<u8>) -> (u64, Result<(), Misuse>) {
        if self.is_bodiless {
            return (0, Ok(()));
        }
        if self.rejected_bytes > 0 || self.declared.is_some_and(|declared| self.body_bytes + length > declared) {
            self.rejected_bytes = length;
            return (0, Err(Misuse::BodyTooLong));
        }
        self.body_bytes += length;
        (length, Ok(()))
    }

    fn close(&self, _admitted: u64, _out: &mut Vec<u8>) {}

    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<(), Misuse> {
        if self.declared.is_some_and(|declared| self.body_bytes < declared) {
            return Err(Misuse::BodyTooShort);
        }
        self.is_finished = true;
        Ok(())
    }

    fn room(&self) -> Option<u64> {
        self.declared.map(|declared| declared - self.body_bytes)
    }

    fn offered_bytes(&self) -> u64 {
        self.body_bytes + self.rejected_bytes
    }

    fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    fn is_whole(&self) -> bool {
        self.is_finished
    }

    fn keeps_alive(&self) -> bool {
        true
    }

    fn is_bodiless(&self) -> bool {
        self.is_bodiless
    }

    fn needs_reset(&self) -> bool {
        false
    }
}
