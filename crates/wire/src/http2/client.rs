//! The client side of a connection: writes requests, reads responses. It serves the load generator and simulated
//! clients, which decide when windows are enlarged.
//!
//! The client reads only complete frames, so its caller must buffer up to one frame: [`PAYLOAD`] bytes and a header. It
//! accepts no pushed streams. Any rule of RFC 9113 that the server breaks is a [`Violation`] that ends the connection,
//! even if it concerns one stream only: the callers have no use for a faulty server.

use super::error::{ErrorCode, Violation};
use super::frame::{self, END_STREAM, FrameHeader, HEADER, MOST, PAYLOAD, PREFACE};
use super::hpack::{Decoder, Encoder, Indexing, Literals};
use super::settings::{ClientSettings, DEFAULT_WINDOW, PeerSettings};
use crate::grammar::{decimal, is_token, is_value};

/// The maximum size of a decoded head by RFC 9113 section 10.5.1, in bytes. No correct server sends more.
const HEAD: usize = 256 << 10;
/// The size that is counted for each field in addition to its name and value.
const OVERHEAD: usize = 32;

/// The next event in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientEvent<'s, 'i> {
    /// More input is needed.
    More,
    /// A frame that concerns the whole connection. The server's settings may have changed.
    Nothing,
    /// The head of a final or interim response.
    Head {
        /// The stream of the response.
        stream: u32,
        /// The status, 100 to 999.
        status: u16,
        /// The fields without the status. Each is a line: the name in lower case, `: `, the value and a line feed.
        fields: &'s [u8],
        /// The declared length of the body, if there is one.
        length: Option<u64>,
        /// True if the head ends the stream.
        is_last: bool,
    },
    /// A part of a response's body.
    Data {
        /// The stream of the response.
        stream: u32,
        /// The part, which may be empty.
        bytes: &'i [u8],
        /// The bytes to subtract from the windows, including padding. The caller returns them with
        /// [`ClientConnection::consumed_by_connection`] and [`ClientConnection::enlarge`].
        flow: u32,
        /// True if the part ends the stream.
        is_last: bool,
    },
    /// The trailers of a response, which end it.
    Trailers {
        /// The stream of the response.
        stream: u32,
    },
    /// The server reset a stream.
    Reset {
        /// The stream.
        stream: u32,
        /// The error code (RFC 9113 section 7).
        code: u32,
    },
    /// The server may accept more bytes of request bodies.
    Credit {
        /// The stream; 0 means all streams.
        stream: u32,
    },
    /// The server processes no stream with a larger number than `last`.
    GoAway {
        /// The largest number that may be processed.
        last: u32,
        /// The error code (RFC 9113 section 7).
        code: u32,
    },
}

/// A stream that is not closed.
#[derive(Debug)]
struct ClientStream {
    id: u32,
    send_window: i64,
    receive_window: i64,
    /// True until the client has sent `END_STREAM`.
    is_request_open: bool,
    /// True once the final head has arrived.
    has_head: bool,
    is_head: bool,
    /// The declared length of the body, and the number of bytes received.
    declared: Option<u64>,
    received: u64,
}

/// An incomplete header block.
#[derive(Clone, Copy, Debug)]
struct OpenResponseBlock {
    stream: u32,
    ends: bool,
}

/// The head that is being decoded.
#[derive(Debug, Default)]
struct ResponseBuilder {
    status: Option<u16>,
    fields: Vec<u8>,
    length: Option<u64>,
    size: usize,
    has_regular: bool,
    is_malformed: bool,
}

/// The client side of a connection.
#[derive(Debug)]
pub struct ClientConnection {
    decoder: Decoder,
    literals: Literals,
    encoder: Encoder,
    head: ResponseBuilder,
    block: Vec<u8>,
    open_block: Option<OpenResponseBlock>,
    /// The fragments of the block so far.
    fragments: Vec<u8>,
    streams: Vec<ClientStream>,
    next: u32,
    peer: PeerSettings,
    has_settings: bool,
    send_window: i64,
    receive_window: i64,
    initial_receive_window: u32,
    /// Connection frames that have not been sent.
    control: Vec<u8>,
    /// The largest stream number in the server's GOAWAY.
    last: Option<u32>,
}

impl ClientConnection {
    /// Creates a connection. Each stream may first receive `window` bytes, and all streams together
    /// `connection_window`, which is at least 65,535.
    #[must_use]
    pub fn new(window: u32, connection_window: u32) -> Self {
        let mut control = PREFACE.to_vec();
        ClientSettings { window }.write(&mut control);
        if let Some(more @ 1..) = connection_window.checked_sub(DEFAULT_WINDOW) {
            frame::write_window_update(0, more, &mut control);
        }
        Self {
            decoder: Decoder::default(),
            literals: Literals::default(),
            encoder: Encoder::default(),
            head: ResponseBuilder::default(),
            block: Vec::new(),
            open_block: None,
            fragments: Vec::new(),
            streams: Vec::new(),
            next: 1,
            peer: PeerSettings::default(),
            has_settings: false,
            send_window: i64::from(DEFAULT_WINDOW),
            receive_window: i64::from(connection_window.max(DEFAULT_WINDOW)),
            initial_receive_window: window,
            control,
            last: None,
        }
    }

    // ------------------------------------------------------------------------------------------------------ questions

    /// Returns the number of streams that the server allows at a time; `None` before its settings have arrived.
    #[must_use]
    pub fn most_streams(&self) -> Option<u32> {
        self.has_settings.then_some(self.peer.most_streams)
    }

    /// Returns true if a stream may be opened: the server has sent no GOAWAY, and its limit is not reached.
    #[must_use]
    pub fn may_open(&self) -> bool {
        // Until the settings arrive, the number of streams is unlimited (RFC 9113 section 6.5.2).
        self.last.is_none() && self.next <= MOST && self.streams.len() < self.peer.most_streams as usize
    }

    /// Returns the number of bytes of the request body that the server accepts now.
    #[must_use]
    pub fn window(&self, stream: u32) -> usize {
        let own = self.find(stream).map_or(0, |at| self.streams[at].send_window);
        usize::try_from(own.min(self.send_window)).unwrap_or(0)
    }

    fn find(&self, stream: u32) -> Option<usize> {
        self.streams.binary_search_by_key(&stream, |exchange| exchange.id).ok()
    }

    // -------------------------------------------------------------------------------------------------------- writing

    /// Moves the unsent connection frames to `out`: settings, acknowledgements, window updates.
    pub fn write_control(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.control);
    }

    /// Appends the head of a request: pseudo-fields, and fields with names in lower case. Returns its stream. `ends` is
    /// true if the request has no body. The caller must have checked [`may_open`](Self::may_open).
    pub fn begin<'f>(
        &mut self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
        out: &mut Vec<u8>,
    ) -> u32 {
        self.write_control(out);
        let id = self.next;
        self.next += 2;
        self.block.clear();
        self.encoder.begin(&mut self.block);
        let mut is_head = false;
        for (name, value) in fields {
            is_head |= (name, value) == (b":method", b"HEAD");
            self.encoder.field(name, value, indexing(name), &mut self.block);
        }
        frame::write_headers(id, &self.block, ends, out);
        self.streams.push(ClientStream {
            id,
            send_window: i64::from(self.peer.initial_window),
            receive_window: i64::from(self.initial_receive_window),
            is_request_open: !ends,
            has_head: false,
            is_head,
            declared: None,
            received: 0,
        });
        id
    }

    /// Appends a part of a request body, which must fit into the window.
    pub fn data(&mut self, stream: u32, bytes: &[u8], ends: bool, out: &mut Vec<u8>) {
        let Some(at) = self.find(stream) else { return };
        let exchange = &mut self.streams[at];
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        exchange.send_window -= length;
        exchange.is_request_open &= !ends;
        self.send_window -= length;
        if bytes.is_empty() {
            return frame::write(frame::DATA, if ends { END_STREAM } else { 0 }, stream, b"", out);
        }
        let mut parts = bytes.chunks(PAYLOAD).peekable();
        while let Some(part) = parts.next() {
            let flags = if ends && parts.peek().is_none() { END_STREAM } else { 0 };
            frame::write(frame::DATA, flags, stream, part, out);
        }
    }

    /// Appends a reset of a stream, and removes the stream.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(at) = self.find(stream) {
            self.streams.remove(at);
            frame::write_reset(stream, code, out);
        }
    }

    /// Enlarges the window of the connection by `bytes`.
    pub fn consumed_by_connection(&mut self, bytes: u32) {
        self.receive_window += i64::from(bytes);
        frame::write_window_update(0, bytes, &mut self.control);
    }

    /// Enlarges the window of a stream by `bytes`, if the stream is open.
    pub fn enlarge(&mut self, stream: u32, bytes: u32) {
        if let Some(at) = self.find(stream) {
            self.streams[at].receive_window += i64::from(bytes);
            frame::write_window_update(stream, bytes, &mut self.control);
        }
    }

    // -------------------------------------------------------------------------------------------------------- reading

    /// Returns the next event in `input`, and the number of bytes used. After [`ClientEvent::More`] the caller passes
    /// the rest again, followed by new bytes.
    ///
    /// # Errors
    /// The rule that the server broke. The connection cannot be used any more.
    pub fn next<'s, 'i: 's>(&'s mut self, input: &'i [u8]) -> Result<(usize, ClientEvent<'s, 'i>), Violation> {
        let Some(header) = FrameHeader::read(input) else { return Ok((0, ClientEvent::More)) };
        self.check_header(header)?;
        let Some(payload) = input[HEADER..].get(..header.length) else { return Ok((0, ClientEvent::More)) };
        let used = HEADER + header.length;
        let event = match header.kind {
            frame::DATA => self.take_data(header, payload)?,
            frame::HEADERS | frame::CONTINUATION => return Ok((used, self.take_headers(header, payload)?)),
            frame::RST_STREAM => self.take_reset(header.stream, payload)?,
            frame::SETTINGS => self.take_settings(header, payload)?,
            frame::PING => self.take_ping(header, payload)?,
            frame::GOAWAY => self.take_go_away(payload)?,
            frame::WINDOW_UPDATE => self.take_window_update(header.stream, payload)?,
            _ => ClientEvent::Nothing,
        };
        Ok((used, event))
    }

    fn check_header(&self, header: FrameHeader) -> Result<(), Violation> {
        if header.check_order(!self.has_settings, self.open_block.map(|block| block.stream))? {
            return Ok(());
        }
        let is_of_stream = match header.kind {
            frame::DATA | frame::HEADERS | frame::RST_STREAM => true,
            // This client has disabled push.
            frame::PUSH_PROMISE => return Err(Violation::StreamIdInvalid),
            frame::SETTINGS | frame::PING | frame::GOAWAY => false,
            _ => return Ok(()),
        };
        if is_of_stream == (header.stream == 0) {
            return Err(Violation::StreamZeroMisused);
        }
        let is_idle = is_of_stream && (header.stream >= self.next || header.stream.is_multiple_of(2));
        if is_idle { Err(Violation::IdleStream) } else { Ok(()) }
    }

    fn take_data<'i>(&mut self, header: FrameHeader, payload: &'i [u8]) -> Result<ClientEvent<'static, 'i>, Violation> {
        let stream = header.stream;
        let bytes = unpadded(header, payload)?;
        let flow = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let is_last = header.has(END_STREAM);
        self.receive_window -= i64::from(flow);
        if self.receive_window < 0 {
            return Err(Violation::WindowExceeded);
        }
        let Some(at) = self.find(stream) else {
            // The server sent the frame before it received the client's reset.
            return Ok(ClientEvent::Data { stream, bytes: &[], flow, is_last: false });
        };
        let exchange = &mut self.streams[at];
        exchange.receive_window -= i64::from(flow);
        exchange.received += bytes.len() as u64;
        if exchange.receive_window < 0 {
            return Err(Violation::WindowExceeded);
        }
        if !exchange.has_head {
            return Err(Violation::HeadMalformed);
        }
        let is_wrong = match exchange.declared {
            Some(declared) if is_last => declared != exchange.received,
            Some(declared) => exchange.received > declared,
            None => false,
        };
        if is_wrong {
            return Err(Violation::ContentLengthWrong);
        }
        if is_last {
            self.end(at);
        }
        Ok(ClientEvent::Data { stream, bytes, flow, is_last })
    }

    /// Removes a stream whose response is complete. If the request is incomplete, the stream is reset.
    fn end(&mut self, at: usize) {
        let exchange = self.streams.remove(at);
        if exchange.is_request_open {
            frame::write_reset(exchange.id, ErrorCode::NoError, &mut self.control);
        }
    }

    fn take_headers<'s>(
        &'s mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<ClientEvent<'s, 'static>, Violation> {
        let fragment = if header.kind == frame::HEADERS {
            self.fragments.clear();
            self.open_block = Some(OpenResponseBlock { stream: header.stream, ends: header.has(END_STREAM) });
            let rest = unpadded(header, payload)?;
            let skipped = if header.has(frame::HAS_PRIORITY) { 5 } else { 0 };
            rest.get(skipped..).ok_or(Violation::FrameLengthInvalid)?
        } else {
            payload
        };
        if self.fragments.len() + fragment.len() > HEAD {
            return Err(Violation::HeadTooLarge);
        }
        self.fragments.extend_from_slice(fragment);
        if !header.has(frame::END_HEADERS) {
            return Ok(ClientEvent::Nothing);
        }
        let Some(OpenResponseBlock { stream, ends }) = self.open_block.take() else {
            return Err(Violation::ContinuationUnexpected);
        };
        self.head.begin();
        let Self { decoder, literals, head, fragments, .. } = self;
        let decoded = decoder.decode(fragments, literals, |name, value| head.push(name, value));
        let rest = fragments.len() - decoded.map_err(|_| Violation::CompressionInvalid)?.used;
        self.decoder.end_block(rest).map_err(|_| Violation::CompressionInvalid)?;
        if self.head.size > HEAD {
            return Err(Violation::HeadTooLarge);
        }
        self.whole_head(stream, ends)
    }

    fn whole_head(&mut self, stream: u32, ends: bool) -> Result<ClientEvent<'_, 'static>, Violation> {
        // The client has reset the stream.
        let Some(at) = self.find(stream) else { return Ok(ClientEvent::Nothing) };
        let exchange = &mut self.streams[at];
        let head = &self.head;
        if head.is_malformed {
            return Err(Violation::HeadMalformed);
        }
        if exchange.has_head {
            // Trailers must end the stream (RFC 9113 section 8.1).
            if head.status.is_some() || !ends {
                return Err(Violation::HeadMalformed);
            }
            if exchange.declared.is_some_and(|declared| declared != exchange.received) {
                return Err(Violation::ContentLengthWrong);
            }
            self.end(at);
            return Ok(ClientEvent::Trailers { stream });
        }
        let Some(status) = head.status else { return Err(Violation::HeadMalformed) };
        let is_interim = status < 200;
        // 101 is not used in HTTP/2 (RFC 9113 section 8.6), and an interim response must not end the stream.
        if status == 101 || is_interim && ends {
            return Err(Violation::HeadMalformed);
        }
        let length = head.length;
        if !is_interim {
            exchange.has_head = true;
            let is_bodiless = exchange.is_head || matches!(status, 204 | 304);
            exchange.declared = if is_bodiless { Some(0) } else { length };
            if ends && exchange.declared.is_some_and(|declared| declared > 0) {
                return Err(Violation::ContentLengthWrong);
            }
            if ends {
                self.end(at);
            }
        }
        Ok(ClientEvent::Head { stream, status, fields: &self.head.fields, length, is_last: ends })
    }

    fn take_reset(&mut self, stream: u32, payload: &[u8]) -> Result<ClientEvent<'static, 'static>, Violation> {
        let &[a, b, c, d] = payload else { return Err(Violation::FrameLengthInvalid) };
        let Some(at) = self.find(stream) else { return Ok(ClientEvent::Nothing) };
        self.streams.remove(at);
        Ok(ClientEvent::Reset { stream, code: u32::from_be_bytes([a, b, c, d]) })
    }

    fn take_settings(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<ClientEvent<'static, 'static>, Violation> {
        if header.has(frame::ACK) {
            return if payload.is_empty() { Ok(ClientEvent::Nothing) } else { Err(Violation::FrameLengthInvalid) };
        }
        let before = self.peer.initial_window;
        self.peer.take(payload)?;
        if self.peer.allows_push == Some(true) {
            // A server must not enable push (RFC 9113 section 6.5.2).
            return Err(Violation::SettingInvalid);
        }
        self.has_settings = true;
        self.encoder.allow(self.peer.header_table);
        let change = i64::from(self.peer.initial_window) - i64::from(before);
        for exchange in &mut self.streams {
            exchange.send_window += change;
            if exchange.send_window > i64::from(MOST) {
                return Err(Violation::WindowTooLarge);
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, b"", &mut self.control);
        Ok(ClientEvent::Credit { stream: 0 })
    }

    fn take_ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<ClientEvent<'static, 'static>, Violation> {
        if payload.len() != 8 {
            return Err(Violation::FrameLengthInvalid);
        }
        if !header.has(frame::ACK) {
            frame::write(frame::PING, frame::ACK, 0, payload, &mut self.control);
        }
        Ok(ClientEvent::Nothing)
    }

    fn take_go_away(&mut self, payload: &[u8]) -> Result<ClientEvent<'static, 'static>, Violation> {
        let (Some(last), Some(code)) = (frame::number(payload), payload.get(4..8)) else {
            return Err(Violation::FrameLengthInvalid);
        };
        // The number must not increase (RFC 9113 section 6.8).
        if self.last.is_some_and(|before| last > before) {
            return Err(Violation::StreamIdInvalid);
        }
        self.last = Some(last);
        let code = code.iter().fold(0, |code, &byte| code << 8 | u32::from(byte));
        Ok(ClientEvent::GoAway { last, code })
    }

    fn take_window_update(&mut self, stream: u32, payload: &[u8]) -> Result<ClientEvent<'static, 'static>, Violation> {
        let (Some(increment), 4) = (frame::number(payload), payload.len()) else {
            return Err(Violation::FrameLengthInvalid);
        };
        if increment == 0 {
            return Err(Violation::WindowUpdateEmpty);
        }
        let window = match self.find(stream) {
            Some(at) => &mut self.streams[at].send_window,
            None if stream == 0 => &mut self.send_window,
            None if stream >= self.next => return Err(Violation::IdleStream),
            None => return Ok(ClientEvent::Nothing),
        };
        *window += i64::from(increment);
        if *window > i64::from(MOST) { Err(Violation::WindowTooLarge) } else { Ok(ClientEvent::Credit { stream }) }
    }
}

impl ResponseBuilder {
    fn begin(&mut self) {
        let mut fields = std::mem::take(&mut self.fields);
        fields.clear();
        *self = Self { fields, ..Self::default() };
    }

    /// Adds a field, by the rules of RFC 9113 sections 8.2 and 8.3.2.
    fn push(&mut self, name: &[u8], value: &[u8]) {
        self.size += name.len() + value.len() + OVERHEAD;
        if self.size > HEAD || self.is_malformed {
            return;
        }
        if let [b':', ..] = name {
            let status = match value {
                [b'1'..=b'9', b'0'..=b'9', b'0'..=b'9'] => decimal(value).and_then(|status| u16::try_from(status).ok()),
                _ => None,
            };
            self.is_malformed |= name != b":status" || self.has_regular || self.status.is_some() || status.is_none();
            self.status = status;
            return;
        }
        self.has_regular = true;
        let is_name = is_token(name) && !name.iter().any(u8::is_ascii_uppercase);
        self.is_malformed |=
            !is_name || is_connection_specific(name) || !is_value(value) || value.trim_ascii().len() < value.len();
        if name == b"content-length" {
            let length = decimal(value);
            self.is_malformed |= length.is_none() || self.length.is_some();
            self.length = length;
        }
        for part in [name, b": ", value, b"\n"] {
            self.fields.extend_from_slice(part);
        }
    }
}

/// Returns true if `name`, in lower case, is a connection-specific field, which HTTP/2 forbids (RFC 9113 section
/// 8.2.2).
#[must_use]
pub fn is_connection_specific(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade")
}

/// Returns the payload of a frame without its padding.
fn unpadded(header: FrameHeader, payload: &[u8]) -> Result<&[u8], Violation> {
    if !header.has(frame::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(Violation::FrameLengthInvalid)?;
    let end = rest.len().checked_sub(usize::from(padding)).ok_or(Violation::PaddingInvalid)?;
    Ok(&rest[..end])
}

/// Returns how a request field is encoded. Values that repeat are indexed.
fn indexing(name: &[u8]) -> Indexing {
    match name {
        b":path" | b"content-length" => Indexing::Without,
        b"authorization" | b"proxy-authorization" => Indexing::Never,
        _ => Indexing::Incremental,
    }
}
