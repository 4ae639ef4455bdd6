//! The protocol of a client with many exchanges at a time: that of [`crate::frames`], or HTTP/2.

use crate::frames::{self, CREDIT, DATA, END, GOAWAY, HEAD, HEAD_ONLY, RESET, SETTINGS, WINDOW, frame};
use crate::plan::RequestPlan;
use wire::http2::{ClientConnection, ClientEvent, ErrorCode};

/// The initial window of each HTTP/2 exchange, the same as [`WINDOW`]; the next constant is the window of the
/// connection. The server may send the latter on all exchanges together before the client reads.
const STREAM_WINDOW: u32 = 32 << 10;
const CONNECTION_WINDOW: u32 = 150_000;

/// An HTTP/2 frame that is answered with the same payload and a flag (RFC 9113 section 6.7).
const PING: u8 = 6;
const ACK: u8 = 1;

/// The client's side of a connection's protocol. It identifies an exchange by its index; the exchanges begin in this
/// order.
#[derive(Debug)]
pub(crate) enum Dialect {
    Frames { has_settings: bool },
    Http2(Box<ClientConnection>),
}

/// A message from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerMessage<'a> {
    /// The number of exchanges that may be under way at a time.
    Settings(u32),
    /// The server begins no further exchange. It has begun none of those from the index `from` on.
    GoAway { from: usize },
    /// The server ends the connection because the client broke a rule.
    Broken { code: u32 },
    /// The server accepts `more` further bytes of an exchange's request body.
    Credit { index: usize, more: usize },
    /// The windows of all exchanges may have changed.
    Windows,
    /// The server does not want the rest of a request.
    Unwanted { index: usize },
    /// The head of a response. `answered` is the request that the response names in a field.
    Head { index: usize, status: u16, answered: Option<usize> },
    /// A part of a response's body.
    Data { index: usize, bytes: &'a [u8] },
    /// The end of a response.
    End { index: usize },
    /// The server has reset an exchange. `is_refused`: the server has not begun it.
    Reset { index: usize, is_refused: bool },
    /// The server has read everything up to the client's reset of an exchange.
    ResetSeen { index: usize },
}

impl Dialect {
    pub(crate) fn new(is_http2: bool) -> Self {
        if is_http2 {
            Self::Http2(Box::new(ClientConnection::new(STREAM_WINDOW, CONNECTION_WINDOW)))
        } else {
            Self::Frames { has_settings: false }
        }
    }

    // -------------------------------------------------------------------------------------------------------- writing

    /// Appends messages of the protocol itself.
    pub(crate) fn write_control(&mut self, out: &mut Vec<u8>) {
        if let Self::Http2(client) = self {
            client.write_control(out);
        }
    }

    /// Returns true if the client knows of no reason why the server would refuse another exchange.
    pub(crate) fn may_begin(&self) -> bool {
        match self {
            Self::Frames { .. } => true,
            Self::Http2(client) => client.may_open(),
        }
    }

    /// Begins the exchange at `index`.
    pub(crate) fn begin(&mut self, index: usize, request: &RequestPlan, out: &mut Vec<u8>) {
        let has_body = request.body > 0;
        let client = match self {
            Self::Frames { .. } => {
                return frame(if has_body { HEAD } else { HEAD_ONLY }, number(index), &request.bytes, out);
            }
            Self::Http2(client) => client,
        };
        let lines = request.bytes.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut lines = lines.filter(|line| !line.is_empty());
        let mut words = lines.next().unwrap_or_default().split(|&byte| byte == b' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let pseudo: [(&[u8], &[u8]); 3] = [(b":method", method), (b":scheme", b"http"), (b":path", path)];
        let fields: Vec<(Vec<u8>, &[u8])> = lines
            .map(|line| {
                let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
                (line[..colon].to_ascii_lowercase(), line.get(colon + 2..).unwrap_or_default())
            })
            .collect();
        let fields = fields.iter().map(|(name, value)| (&name[..], *value));
        let stream = client.begin(pseudo.into_iter().chain(fields), !has_body, out);
        assert_eq!(stream, stream_of(index), "exchanges begin in their order");
    }

    /// Appends a part of a request's body to `out`.
    pub(crate) fn data(&mut self, index: usize, part: &[u8], is_last: bool, out: &mut Vec<u8>) {
        match self {
            Self::Frames { .. } => frame(if is_last { END } else { DATA }, number(index), part, out),
            Self::Http2(client) => client.data(stream_of(index), part, is_last, out),
        }
    }

    /// Returns the number of bytes that the server accepts now; `None` if the client itself counts the credits.
    pub(crate) fn window(&self, index: usize) -> Option<usize> {
        match self {
            Self::Frames { .. } => None,
            Self::Http2(client) => Some(client.window(stream_of(index))),
        }
    }

    /// Resets an exchange.
    pub(crate) fn reset(&mut self, index: usize, out: &mut Vec<u8>) {
        match self {
            Self::Frames { .. } => frame(RESET, number(index), b"", out),
            Self::Http2(client) => {
                client.reset(stream_of(index), ErrorCode::Cancel, out);
                // The answer tells that the server has read the reset.
                out.extend_from_slice(&[0, 0, 8, PING, 0, 0, 0, 0, 0]);
                out.extend_from_slice(&u64::from(number(index)).to_be_bytes());
            }
        }
    }

    /// Allows the server to send `count` more bytes of a response.
    pub(crate) fn grant(&mut self, index: usize, count: usize, out: &mut Vec<u8>) {
        let count = u32::try_from(count).expect("it fits");
        match self {
            Self::Frames { .. } => frame(CREDIT, number(index), &count.to_be_bytes(), out),
            Self::Http2(client) => {
                client.enlarge(stream_of(index), count);
                client.write_control(out);
            }
        }
    }

    // -------------------------------------------------------------------------------------------------------- reading

    /// Reads the complete messages in `input`, and passes each to `take`. Returns the number of bytes used.
    ///
    /// # Errors
    /// The rule that the server broke, or the error of `take`.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        mut take: impl FnMut(&Self, ServerMessage<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let mut used = 0;
        loop {
            let count = match self {
                Self::Frames { .. } => self.read_frame(&input[used..], &mut take),
                Self::Http2(_) => self.read_http2(&input[used..], &mut take),
            }?;
            used += count;
            if count == 0 {
                return Ok(used);
            }
        }
    }

    fn read_frame(
        &mut self,
        input: &[u8],
        take: &mut impl FnMut(&Self, ServerMessage<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let Self::Frames { has_settings } = self else { return Ok(0) };
        let Some(frame) = frames::read(input) else { return Ok(0) };
        let wrong = |what: &str| Err(format!("{what}: {:?} of {}", frame.kind as char, frame.stream));
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte));
        let index = (frame.stream as usize).wrapping_sub(1);
        let message = match (frame.kind, frame.payload) {
            (SETTINGS, payload @ [_, _]) if !*has_settings => {
                *has_settings = true;
                ServerMessage::Settings(number(payload))
            }
            _ if !*has_settings => return wrong("the settings do not come first"),
            (GOAWAY, b"") => ServerMessage::GoAway { from: usize::MAX },
            (CREDIT, payload @ [_, _, _, _]) => ServerMessage::Credit { index, more: number(payload) as usize },
            (RESET, b"c") => ServerMessage::Unwanted { index },
            (RESET, why @ (b"r" | b"x")) => ServerMessage::Reset { index, is_refused: why == b"r" },
            (HEAD_ONLY, payload) => {
                let head = str::from_utf8(payload).map_err(|_| "a head is no text")?;
                let status = head.get(..3).and_then(|text| text.parse().ok()).ok_or("a head without a status")?;
                ServerMessage::Head { index, status, answered: answered(head, "X-Id: ") }
            }
            (DATA, bytes) => ServerMessage::Data { index, bytes },
            (END, b"") => ServerMessage::End { index },
            _ => return wrong("an unknown frame"),
        };
        take(self, message)?;
        Ok(frame.length)
    }

    fn read_http2(
        &mut self,
        input: &[u8],
        take: &mut impl FnMut(&Self, ServerMessage<'_>) -> Result<(), String>,
    ) -> Result<usize, String> {
        let Self::Http2(client) = self else { return Ok(0) };
        let had_settings = client.most_streams().is_some();
        let (used, event) =
            client.next(input).map_err(|violation| format!("the server breaks a rule: {violation:?}"))?;
        let index = |stream: u32| stream as usize / 2;
        let mut flowed = 0;
        if let [_, _, 8, PING, ACK, _, _, _, _, payload @ ..] = &input[..used] {
            let seen = payload.iter().fold(0, |number, &byte| number << 8 | usize::from(byte)) - 1;
            take(self, ServerMessage::ResetSeen { index: seen })?;
            return Ok(used);
        }
        let (first, second) = match event {
            ClientEvent::More => return Ok(0),
            // This client ignores interim responses.
            ClientEvent::Nothing | ClientEvent::Head { status: 100..200, .. } => (None, None),
            ClientEvent::Head { stream, status, fields, is_last, .. } => {
                let head = str::from_utf8(fields).map_err(|_| "a head is no text")?;
                let answered = answered(head, "x-id: ");
                let end = is_last.then_some(ServerMessage::End { index: index(stream) });
                (Some(ServerMessage::Head { index: index(stream), status, answered }), end)
            }
            ClientEvent::Data { stream, bytes, flow, is_last } => {
                flowed = flow;
                let end = is_last.then_some(ServerMessage::End { index: index(stream) });
                (Some(ServerMessage::Data { index: index(stream), bytes }).filter(|_| !bytes.is_empty()), end)
            }
            ClientEvent::Trailers { stream } => (Some(ServerMessage::End { index: index(stream) }), None),
            ClientEvent::Reset { stream, code } => {
                let is_refused = code == ErrorCode::RefusedStream as u32;
                (Some(ServerMessage::Reset { index: index(stream), is_refused }), None)
            }
            ClientEvent::Credit { .. } => (Some(ServerMessage::Windows), None),
            ClientEvent::GoAway { code: 0, last } => {
                (Some(ServerMessage::GoAway { from: (last as usize).div_ceil(2) }), None)
            }
            ClientEvent::GoAway { code, .. } => (Some(ServerMessage::Broken { code }), None),
        };
        // The server may send as many further bytes, on any exchange.
        if flowed > 0 {
            client.consumed_by_connection(flowed);
        }
        if !had_settings && let Some(most) = client.most_streams() {
            take(self, ServerMessage::Settings(most))?;
        }
        for message in [first, second].into_iter().flatten() {
            take(self, message)?;
        }
        Ok(used)
    }
}

/// Returns the request that a response names in a field, whose line begins with `name`.
fn answered(head: &str, name: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix(name)?.parse().ok())
}

/// Returns the number of an exchange in the protocol of [`crate::frames`].
fn number(index: usize) -> u32 {
    u32::try_from(index + 1).expect("a peer has few exchanges")
}

/// Returns the stream number of an HTTP/2 exchange.
fn stream_of(index: usize) -> u32 {
    2 * number(index) - 1
}

const _: () = assert!(WINDOW == STREAM_WINDOW as usize);
