//! Frames of HTTP/2, compared with the server of the crate `h2`: both receive the same frames, one after the other, and
//! must treat each one alike. [`DIFFERENCES`] lists the cases in which they need not.
//!
//! Compared is what happens to requests: which heads the application sees, how many bytes of bodies, which streams are
//! reset, and the end of the connection. Error codes are not: `h2` sends `PROTOCOL_ERROR` for nearly all, and the tests of
//! `wire` compare ours with the RFC.

use crate::Random;
use bytes::Bytes;
use h2::{RecvStream, server};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::http2::{HeadScratch, Http2Event, PREFACE, ServerConnection};
use wire::message::Limits;

mod series;

use series::{
    ACK, CONTINUATION, DATA, END_HEADERS, Frame, GOAWAY, HEADERS, PRIORITY, PRIORITY_UPDATE, PUSH_PROMISE, RST_STREAM,
    SETTINGS, Series, WINDOW_UPDATE,
};

/// Streams that may be open at a time.
const STREAMS: u32 = 5;
/// The windows of a stream and of the connection, which `wire` announces.
const WINDOWS: (u32, u32) = (256 << 10, 1 << 20);
/// The frames of a series that is chosen by a seed.
const FRAMES: usize = 60;

/// The effect of one frame.
#[derive(Debug, Default, PartialEq, Eq)]
struct Effect {
    /// True if the connection ends with an error.
    is_fatal: bool,
    /// The streams that the server resets.
    resets: Vec<u32>,
    /// The streams whose heads the application sees.
    heads: Vec<u32>,
    /// The bytes of bodies that the application sees.
    body: usize,
}

impl Effect {
    /// Notes the frames that a server sends.
    fn take_sent(&mut self, mut sent: &[u8]) {
        while let Some(&[a, b, c, kind, _, stream @ ..]) = sent.first_chunk::<9>() {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            let payload = &sent[9..9 + length];
            match kind {
                RST_STREAM => self.resets.push(u32::from_be_bytes(stream)),
                GOAWAY => self.is_fatal |= payload[4..8] != [0; 4],
                _ => {}
            }
            sent = &sent[9 + length..];
        }
        assert!(sent.is_empty(), "a frame of the server is whole");
    }

    /// Returns one word for the whole effect.
    fn word(&self) -> &'static str {
        match self {
            Self { is_fatal: true, .. } => "end",
            Self { resets, .. } if !resets.is_empty() => "reset",
            Self { heads, .. } if !heads.is_empty() => "head",
            Self { body: 1.., .. } => "body",
            _ => "nothing",
        }
    }
}

/// The server of `wire`.
struct Ours {
    connection: ServerConnection,
    limits: Limits,
}

impl Ours {
    fn new() -> Self {
        let (mut connection, limits) = (ServerConnection::default(), Limits::default());
        connection.open(STREAMS as usize, &limits);
        Self { connection, limits }
    }

    fn take(&mut self, input: &[u8]) -> Effect {
        let (mut effect, mut at, mut sent) = (Effect::default(), 0, Vec::new());
        while at < input.len() && !effect.is_fatal {
            let mut consumed = None;
            match self.connection.next(&input[at..], &mut HeadScratch::default(), &self.limits) {
                Ok((0, _)) => panic!("a frame is whole"),
                Ok((used, event)) => {
                    at += used;
                    match event {
                        Http2Event::Head { stream, .. } => effect.heads.push(stream),
                        Http2Event::Data { stream, bytes, .. } => consumed = Some((stream, bytes.len())),
                        Http2Event::Broken { fault, .. } => {
                            panic!("{}: no request of these breaks a limit", fault.name())
                        }
                        _ => {}
                    }
                }
                Err(_) => effect.is_fatal = true,
            }
            if let Some((stream, count)) = consumed {
                effect.body += count;
                self.connection.consumed(stream, count);
            }
        }
        self.connection.write_control(&mut sent);
        effect.take_sent(&sent);
        effect
    }
}

/// The server of `h2`.
struct Theirs {
    wire: Wire,
    connection: server::Connection<Wire, Bytes>,
    bodies: Vec<RecvStream>,
    /// Unfinished responses: `h2` resets a stream whose response is dropped.
    responses: Vec<server::SendResponse<Bytes>>,
}

impl Theirs {
    fn new(opening: &[u8]) -> Self {
        let wire = Wire::default();
        wire.0.borrow_mut().0.extend(opening);
        // None of its own allowances ends a connection.
        let handshake = server::Builder::new()
            .max_concurrent_streams(STREAMS)
            .initial_window_size(WINDOWS.0)
            .initial_connection_window_size(WINDOWS.1)
            .max_concurrent_reset_streams(1000)
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(1000)
            .data_frame_budget(1 << 30)
            .handshake(wire.clone());
        let Poll::Ready(Ok(connection)) = pin!(handshake).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the preface has arrived");
        };
        let mut opened = Self { wire, connection, bodies: Vec::new(), responses: Vec::new() };
        assert_eq!(opened.take(&[]), Effect::default());
        opened
    }

    fn take(&mut self, input: &[u8]) -> Effect {
        let (mut effect, mut context) = (Effect::default(), Context::from_waker(Waker::noop()));
        self.wire.0.borrow_mut().0.extend(input);
        self.accept(&mut context, &mut effect);
        for body in &mut self.bodies {
            while let Poll::Ready(Some(Ok(bytes))) = body.poll_data(&mut context) {
                effect.body += bytes.len();
                // Refused if the stream has been reset, as it should be.
                body.flow_control().release_capacity(bytes.len()).ok();
            }
        }
        // Sends the frames that this has caused.
        self.accept(&mut context, &mut effect);
        effect.take_sent(&std::mem::take(&mut self.wire.0.borrow_mut().1));
        effect
    }

    fn accept(&mut self, context: &mut Context<'_>, effect: &mut Effect) {
        while !effect.is_fatal {
            match self.connection.poll_accept(context) {
                Poll::Ready(Some(Ok((request, response)))) => {
                    effect.heads.push(response.stream_id().into());
                    self.bodies.push(request.into_body());
                    self.responses.push(response);
                }
                Poll::Ready(Some(Err(_)) | None) => effect.is_fatal = true,
                Poll::Pending => return,
            }
        }
    }
}

/// Both directions of a connection in memory: the bytes from the client, and those from the server.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<(VecDeque<u8>, Vec<u8>)>>);

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let input = &mut self.0.borrow_mut().0;
        if input.is_empty() {
            return Poll::Pending;
        }
        let count = buffer.remaining().min(input.len());
        let bytes: Vec<u8> = input.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().1.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Compares the two on a series of frames that `data` chooses, and on one of which it is the seed.
pub fn check_frames(data: &[u8]) {
    compare(&mut Series::new(data.iter().copied()));
    let mut random = Random::of(data, 0);
    let mut series = Series::new(std::iter::repeat_with(move || random.next().to_le_bytes()[0]));
    series.most = FRAMES;
    compare(&mut series);
}

fn compare<I: Iterator<Item = u8>>(series: &mut Series<I>) {
    let opening = [&PREFACE[..], &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0], &[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]].concat();
    let mut ours = Ours::new();
    assert_eq!(ours.take(&opening), Effect::default());
    let mut theirs = Theirs::new(&opening);
    let mut before = Vec::new();
    while let Some(frame) = series.next() {
        let bytes = frame.bytes();
        let effects = (ours.take(&bytes), theirs.take(&bytes));
        if effects.0 != effects.1 {
            let words = (effects.0.word(), effects.1.word());
            let is_listed = DIFFERENCES.iter().any(|listed| listed.words.contains(&words) && (listed.is_case)(&frame));
            assert!(is_listed, "ours: {:?}, theirs: {:?}, of {frame:?} after {before:#?}", effects.0, effects.1);
            return;
        }
        // h2 drops a block whose priority is wrong, and takes its rest for a frame of its own.
        if effects.0.is_fatal || (frame.depends_on_itself() && !frame.has(END_HEADERS)) {
            return;
        }
        before.push(frame);
    }
}

/// A frame that the two may treat differently. After one, a series ends.
struct Difference {
    /// Our effect and theirs.
    words: &'static [(&'static str, &'static str)],
    is_case: fn(&Frame) -> bool,
}

/// Sections are those of RFC 9113. Where it leaves no choice, ours is right.
const DIFFERENCES: &[Difference] = &[
    // Section 5.1: a frame on a half-closed stream, or behind RST_STREAM, is an error of the stream.
    Difference { words: &[("reset", "end")], is_case: |frame| matches!(frame.kind, DATA | HEADERS | CONTINUATION) },
    // Section 5.1.1 closes a stream that was left out, and section 5.1 lets a server end the connection at a frame on a
    // closed stream, except if the server has ended the stream and the client may not know that.
    Difference { words: &[("end", "reset")], is_case: |frame| frame.kind == DATA },
    // Section 6.2 leaves open when the fields of an incomplete block are checked: h2 does so for each of its frames. Its
    // stream is checked first by ours, and last by h2.
    Difference {
        words: &[("nothing", "reset"), ("nothing", "end"), ("end", "nothing")],
        is_case: |frame| matches!(frame.kind, HEADERS | CONTINUATION) && !frame.has(END_HEADERS),
    },
    // Sections 8.1 and 8.3: trailers have no pseudo-fields, and a request has each once. h2 forgets what was wrong with a
    // block if CONTINUATION follows, and ignores the fields of trailers that it does not expect.
    Difference {
        words: &[("reset", "head"), ("reset", "nothing")],
        is_case: |frame| frame.kind == CONTINUATION || (frame.kind == HEADERS && frame.contains(b":")),
    },
    // Section 5.1: what arrives on a stream that the server has reset is ignored. h2 forgets a stream that it has refused,
    // and checks the fields on others.
    Difference {
        words: &[("nothing", "end")],
        is_case: |frame| {
            let is_strange = frame.payload.ends_with(&[0]) || frame.contains(b"X-A") || frame.contains(b"x-sum");
            frame.kind == CONTINUATION || (frame.kind == HEADERS && is_strange)
        },
    },
    // Section 5.4.2: a stream is reset once.
    Difference { words: &[("nothing", "reset")], is_case: |frame| frame.kind == DATA },
    // Sections 4.3 and 5.1.1: the compression is wrong, or a client cannot open this stream. h2 checks the fields first.
    Difference { words: &[("end", "reset")], is_case: |frame| matches!(frame.kind, HEADERS | CONTINUATION) },
    // Section 6.3: another length is an error of the stream.
    Difference { words: &[("reset", "end")], is_case: |frame| frame.kind == PRIORITY && frame.payload.len() != 5 },
    // Section 5.3.2 deprecates priorities, and with them the error of RFC 7540 section 5.3.1. h2 finds it before others,
    // and sends RST_STREAM on an idle stream, too, which section 6.4 forbids.
    Difference {
        words: &[("end", "reset"), ("end", "nothing"), ("nothing", "reset"), ("reset", "nothing")],
        is_case: Frame::depends_on_itself,
    },
    // Section 6.5.3 does not say that a superfluous acknowledgement is an error.
    Difference { words: &[("nothing", "end")], is_case: |frame| frame.kind == SETTINGS && frame.has(ACK) },
    // RFC 9218 section 2.1: SETTINGS_NO_RFC7540_PRIORITIES is 0 or 1. h2 does not know it.
    Difference {
        words: &[("end", "nothing")],
        is_case: |frame| frame.settings().any(|(id, value)| id == 9 && value > 1),
    },
    // Section 8.4: a client cannot push. h2 waits for the end of the block.
    Difference { words: &[("end", "nothing")], is_case: |frame| frame.kind == PUSH_PROMISE && !frame.has(END_HEADERS) },
    // Section 6.8: the last stream of a client's GOAWAY is one of those that the server opens. h2 checks that it opened so
    // many, and ends a connection without requests.
    Difference { words: &[("nothing", "end")], is_case: |frame| frame.kind == GOAWAY },
    // Section 6.9: an increment of 0 is an error of the stream, and section 5.1 lets a closed stream ignore it.
    Difference {
        words: &[("reset", "end"), ("nothing", "end")],
        is_case: |frame| frame.kind == WINDOW_UPDATE && matches!(frame.payload[..], [0 | 0x80, 0, 0, 0]),
    },
    // RFC 9218 section 7.1, which h2 does not know.
    Difference { words: &[("end", "nothing")], is_case: |frame| frame.kind == PRIORITY_UPDATE },
];
