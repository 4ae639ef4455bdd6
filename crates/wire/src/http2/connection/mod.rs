//! The server's side of a connection: reads frames, and keeps what they change. `responses` writes
//! responses.

use super::answering::Answering;
use super::error::{ErrorCode, Violation};
use super::frame::{self, FrameHeader, HEADER, MOST, PREFACE};
use super::hpack::Decoder;
use super::limits::{ANSWERS, Allowances, CONNECTION_WINDOW, STREAM_WINDOW, TINY_DATA};
use super::priority::Priority;
use super::request::{HeadScratch, KeptHead, RequestBuilder};
use super::settings::{DEFAULT_WINDOW, OwnSettings, PeerSettings};
use super::streams::{Ending, StreamTable, Usage};
use crate::message::{Fault, Limits, RequestHead};

mod requests;
mod responses;

/// The next thing in the input.
#[derive(Clone, Copy, Debug)]
pub enum Http2Event<'s, 'i> {
    /// More input is needed.
    More,
    /// Frames that concern the connection alone have been read.
    Nothing,
    /// A request.
    Head {
        /// Its stream.
        stream: u32,
        /// Its head.
        head: RequestHead<'s>,
        /// True if the client takes trailers after the response.
        takes_trailers: bool,
    },
    /// A part of a request's body, never empty.
    Data {
        /// Its stream.
        stream: u32,
        /// The part. The window is enlarged when [`ServerConnection::consumed`] is called.
        bytes: &'i [u8],
        /// True if it is the last part. Then no end follows.
        is_last: bool,
    },
    /// The end of a request's body.
    End {
        /// Its stream.
        stream: u32,
    },
    /// A stream is over: the client has reset it, or had to have it reset.
    Reset {
        /// Which one.
        stream: u32,
    },
    /// The client takes more of a response.
    Credit {
        /// Its stream.
        stream: u32,
    },
    /// A request breaks a rule that a status answers.
    Broken {
        /// Its stream, whose head has been reported or not.
        stream: u32,
        /// The rule.
        fault: Fault,
        /// True if its method is HEAD.
        is_head: bool,
    },
}

/// The part of the input that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStage {
    Preface,
    FirstSettings,
    Frame,
    /// The body of a DATA frame.
    Data {
        stream: u32,
        left: usize,
        padding: usize,
        ends: bool,
    },
    /// Bytes that mean nothing.
    Skip {
        left: usize,
    },
    /// The connection is broken, and the rest of the input cannot be read.
    Failed,
}

/// A header block that is not whole.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    stream: u32,
    ends: bool,
    frames: u32,
    purpose: Purpose,
}

/// The use of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Request,
    Trailers,
    /// It is decoded for the compression's sake, and its stream is reset for this reason.
    Reset(Violation),
    /// The same, without an answer.
    Nothing,
}

/// The progress of the connection's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GoingAway {
    #[default]
    No,
    /// The client has been asked to open no further stream. Those on their way are served.
    Announced,
    /// Streams with larger numbers than the last one are ignored.
    Final,
}

/// The payload of the PING that tells when the client has read the announcement of the end.
const DRAIN_PING: &[u8; 8] = b"kirsch/d";

/// The number of frames without an event that are read at a time.
const FRAMES_AT_MOST: usize = 32;

/// The step that one frame, or a part of it, makes.
enum FrameStep<'i> {
    Nothing,
    /// The head that has been built.
    Head {
        stream: u32,
        body: crate::message::BodyLength,
    },
    Event(Http2Event<'i, 'i>),
}

/// The server's side of a connection.
#[derive(Debug)]
pub struct ServerConnection {
    stage: ReadStage,
    decoder: Decoder,
    kept: KeptHead,
    open_block: Option<OpenBlock>,
    /// The fields of the open block so far, between two of its frames.
    open_request: Option<Box<RequestBuilder>>,
    /// True if an extended CONNECT may ask for a WebSocket.
    takes_websockets: bool,
    /// The start of a field whose rest is in the next fragment.
    fragment: Vec<u8>,
    pub(super) streams: StreamTable,
    pub(super) peer: PeerSettings,
    pub(super) answering: Answering,
    /// The bytes that the client may still send on all streams, and by how many that is to be enlarged.
    receive_window: i64,
    owed: u32,
    /// Frames of the connection that wait to be sent.
    pub(super) control: Vec<u8>,
    allowances: Allowances,
    /// The rule that is answered when the input is read next.
    overdue: Option<Violation>,
    most_streams: usize,
    going_away: GoingAway,
    has_client_left: bool,
    now: u64,
}

impl Default for ServerConnection {
    fn default() -> Self {
        Self {
            stage: ReadStage::Preface,
            decoder: Decoder::default(),
            kept: KeptHead::default(),
            open_block: None,
            open_request: None,
            takes_websockets: false,
            fragment: Vec::new(),
            streams: StreamTable::default(),
            peer: PeerSettings::default(),
            answering: Answering::default(),
            receive_window: i64::from(CONNECTION_WINDOW),
            owed: 0,
            control: Vec::new(),
            allowances: Allowances::default(),
            overdue: None,
            most_streams: 0,
            going_away: GoingAway::No,
            has_client_left: false,
            now: 0,
        }
    }
}

impl ServerConnection {
    /// Lets clients ask for WebSockets by an extended CONNECT (RFC 8441), on a connection that has not begun.
    pub fn take_websockets(&mut self) {
        self.takes_websockets = true;
    }

    /// Begins the connection: `most` streams may be under way at a time.
    pub fn open(&mut self, most: usize, limits: &Limits) {
        self.most_streams = most;
        let takes_websockets = self.takes_websockets;
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let own =
            OwnSettings { streams: number(most), window: STREAM_WINDOW, head: number(limits.head), takes_websockets };
        own.write(&mut self.control);
        frame::write_window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW, &mut self.control);
    }

    /// Takes the time, in milliseconds since any moment, with which allowances are refilled.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Returns the next event in `input`, and the number of bytes that it uses. After [`Http2Event::More`], or if no
    /// byte was used, the caller offers the rest again with more bytes behind it. `scratch` is any connection's.
    ///
    /// # Errors
    /// The rule that the peer broke. GOAWAY has been written, and the rest of the input is ignored; streams under way
    /// may still be answered.
    pub fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, Http2Event<'s, 'i>), Violation> {
        if let Some(violation) = self.overdue.take() {
            return Err(self.fail(violation));
        }
        let mut used = 0;
        for _ in 0..FRAMES_AT_MOST {
            match self.advance(&input[used..], scratch, limits) {
                Err(violation) => return Err(self.fail(violation)),
                Ok(None) if used == 0 => return Ok((0, Http2Event::More)),
                Ok(None) => break,
                Ok(Some((count, step))) => {
                    used += count;
                    match step {
                        FrameStep::Nothing => {}
                        FrameStep::Event(event) => return Ok((used, event)),
                        FrameStep::Head { stream, body } => {
                            let takes_trailers = scratch.builder.facts().takes_trailers;
                            let head = scratch.builder.head(stream, body, &mut self.kept);
                            return Ok((used, Http2Event::Head { stream, head, takes_trailers }));
                        }
                    }
                }
            }
            if self.control.len() >= ANSWERS {
                break;
            }
        }
        Ok((used, Http2Event::Nothing))
    }

    /// Ends the connection because of a broken rule.
    fn fail(&mut self, violation: Violation) -> Violation {
        if self.stage != ReadStage::Failed {
            self.stage = ReadStage::Failed;
            let (last, control) = (self.streams.last(), &mut self.control);
            frame::write_go_away(last, violation.code(), violation.explanation(), control);
        }
        violation
    }

    /// Reads one frame, or a part of one. `None`: more input is needed.
    fn advance<'i>(
        &mut self,
        input: &'i [u8],
        scratch: &mut HeadScratch,
        limits: &Limits,
    ) -> Result<Option<(usize, FrameStep<'i>)>, Violation> {
        match self.stage {
            ReadStage::Failed => return Ok((!input.is_empty()).then_some((input.len(), FrameStep::Nothing))),
            ReadStage::Preface => {
                let count = input.len().min(PREFACE.len());
                if input[..count] != PREFACE[..count] {
                    return Err(Violation::PrefaceInvalid);
                }
                if count < PREFACE.len() {
                    return Ok(None);
                }
                self.stage = ReadStage::FirstSettings;
                return Ok(Some((count, FrameStep::Nothing)));
            }
            _ if input.is_empty() => return Ok(None),
            ReadStage::Skip { left } => {
                let count = left.min(input.len());
                self.stage = skip(left - count);
                return Ok(Some((count, FrameStep::Nothing)));
            }
            ReadStage::Data { .. } => return self.data_part(input, limits).map(Some),
            ReadStage::FirstSettings | ReadStage::Frame => {}
        }
        let Some(header) = FrameHeader::read(input) else { return Ok(None) };
        self.check_header(header)?;
        if header.kind == frame::DATA {
            return self.data(header, &input[HEADER..]);
        }
        if !is_known(header.kind) {
            self.charge()?;
            self.stage = skip(header.length);
            return Ok(Some((HEADER, FrameStep::Nothing)));
        }
        let Some(payload) = input[HEADER..].get(..header.length) else { return Ok(None) };
        self.stage = ReadStage::Frame;
        let step = self.whole_frame(header, payload, scratch, limits)?;
        Ok(Some((HEADER + header.length, step)))
    }

    /// Checks the rules of a frame that need its header alone.
    fn check_header(&self, header: FrameHeader) -> Result<(), Violation> {
        let awaits_settings = self.stage == ReadStage::FirstSettings;
        if header.check_order(awaits_settings, self.open_block.map(|block| block.stream))? {
            return Ok(());
        }
        let is_of_stream = match header.kind {
            frame::DATA | frame::HEADERS | frame::PRIORITY | frame::RST_STREAM => true,
            frame::PUSH_PROMISE => return Err(Violation::PushFromClient),
            frame::SETTINGS | frame::PING | frame::GOAWAY | frame::PRIORITY_UPDATE => false,
            _ => return Ok(()),
        };
        if is_of_stream == (header.stream == 0) { Err(Violation::StreamZeroMisused) } else { Ok(()) }
    }

    /// Handles a frame whose payload is here, other than DATA.
    fn whole_frame<'i>(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut HeadScratch,
        limits: &Limits,
    ) -> Result<FrameStep<'i>, Violation> {
        match header.kind {
            frame::HEADERS => self.headers(header, payload, scratch, limits),
            frame::CONTINUATION => self.continuation(header, payload, scratch, limits),
            frame::PRIORITY => self.priority(header, payload),
            frame::RST_STREAM => self.rst_stream(header, payload),
            frame::SETTINGS => self.settings(header, payload),
            frame::PING => self.ping(header, payload),
            frame::GOAWAY if payload.len() < 8 => Err(Violation::FrameLengthInvalid),
            frame::GOAWAY => {
                self.has_client_left = true;
                Ok(FrameStep::Nothing)
            }
            frame::WINDOW_UPDATE => self.window_update(header, payload),
            _ => self.priority_update(payload),
        }
    }

    /// RFC 9113 section 6.3; RFC 7540 section 5.3.1. The priority itself means nothing any more.
    fn priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        let violation = match frame::number(payload) {
            Some(parent) if payload.len() == 5 && parent != header.stream => return Ok(FrameStep::Nothing),
            Some(_) if payload.len() == 5 => Violation::PriorityInvalid,
            _ => Violation::FrameLengthInvalid,
        };
        match self.streams.usage(header.stream) {
            // An idle stream cannot be reset.
            Usage::Idle | Usage::LeftOut => Err(violation),
            // PRIORITY is allowed on a stream that is over, so its length is judged there too (RFC 9113 section 6.3).
            Usage::UnderWay | Usage::Closed(_) | Usage::Forgotten => self.break_stream(header.stream, violation),
        }
    }

    fn rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        if payload.len() != 4 {
            return Err(Violation::FrameLengthInvalid);
        }
        match self.streams.usage(header.stream) {
            Usage::Idle | Usage::LeftOut => Err(Violation::IdleStream),
            Usage::Closed(_) | Usage::Forgotten => {
                self.charge()?;
                Ok(FrameStep::Nothing)
            }
            Usage::UnderWay => {
                if !self.allowances.resets.take(self.now) {
                    return Err(Violation::ResetsTooMany);
                }
                self.remove(header.stream, Ending::ResetByClient);
                Ok(FrameStep::Event(Http2Event::Reset { stream: header.stream }))
            }
        }
    }

    fn settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        if header.has(frame::ACK) {
            return if payload.is_empty() { Ok(FrameStep::Nothing) } else { Err(Violation::FrameLengthInvalid) };
        }
        let before = self.peer.initial_window;
        self.peer.take(payload)?;
        self.answering.allow_table(self.peer.header_table);
        let change = i64::from(self.peer.initial_window) - i64::from(before);
        for stream in self.streams.iter_mut() {
            stream.send_window += change;
            if stream.send_window > i64::from(MOST) {
                return Err(Violation::WindowTooLarge);
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, b"", &mut self.control);
        Ok(FrameStep::Nothing)
    }

    fn ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        if payload.len() != 8 {
            return Err(Violation::FrameLengthInvalid);
        }
        if !header.has(frame::ACK) {
            frame::write(frame::PING, frame::ACK, 0, payload, &mut self.control);
        } else if payload == DRAIN_PING && self.going_away == GoingAway::Announced {
            self.going_away = GoingAway::Final;
            frame::write_go_away(self.streams.last(), ErrorCode::NoError, "", &mut self.control);
        }
        Ok(FrameStep::Nothing)
    }

    fn window_update(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        let (Some(increment), 4) = (frame::number(payload), payload.len()) else {
            return Err(Violation::FrameLengthInvalid);
        };
        if header.stream == 0 {
            if increment == 0 {
                return Err(Violation::WindowUpdateEmpty);
            }
            self.answering.window += i64::from(increment);
            let is_valid = self.answering.window <= i64::from(MOST);
            return if is_valid { Ok(FrameStep::Nothing) } else { Err(Violation::WindowTooLarge) };
        }
        let Some(stream) = self.streams.get_mut(header.stream) else {
            return match self.streams.usage(header.stream) {
                Usage::Idle | Usage::LeftOut => Err(Violation::IdleStream),
                _ => Ok(FrameStep::Nothing),
            };
        };
        if increment == 0 {
            return self.break_stream(header.stream, Violation::WindowUpdateEmpty);
        }
        stream.send_window += i64::from(increment);
        if stream.send_window > i64::from(MOST) {
            return self.break_stream(header.stream, Violation::WindowTooLarge);
        }
        Ok(FrameStep::Event(Http2Event::Credit { stream: header.stream }))
    }

    /// RFC 9218 section 7.1.
    fn priority_update(&mut self, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        let Some(stream) = frame::number(payload) else { return Err(Violation::FrameLengthInvalid) };
        // A server that does not push has no streams of even numbers.
        if stream.is_multiple_of(2) {
            return Err(Violation::PriorityInvalid);
        }
        self.streams.prioritize(stream, Priority::read(&payload[4..]));
        Ok(FrameStep::Nothing)
    }

    /// Counts a frame that costs work and carries nothing.
    fn charge(&mut self) -> Result<(), Violation> {
        if self.allowances.idle_frames.take(self.now) { Ok(()) } else { Err(Violation::FramesTooMany) }
    }

    // ---------------------------------------------------------------------------------------------- ends of streams

    /// Resets a stream of which the client broke a rule.
    fn break_stream(&mut self, stream: u32, violation: Violation) -> Result<FrameStep<'static>, Violation> {
        if !self.allowances.provoked_resets.take(self.now) {
            return Err(Violation::ProvokedResetsTooMany);
        }
        let is_known = self.remove(stream, Ending::ResetByServer);
        frame::write_reset(stream, violation.code(), &mut self.control);
        Ok(if is_known { FrameStep::Event(Http2Event::Reset { stream }) } else { FrameStep::Nothing })
    }

    /// Resets a stream, if it is under way.
    pub(super) fn reset_stream(&mut self, stream: u32, code: ErrorCode) {
        if self.remove(stream, Ending::ResetByServer) {
            frame::write_reset(stream, code, &mut self.control);
            if code == ErrorCode::RefusedStream && !self.allowances.provoked_resets.take(self.now) {
                self.overdue = Some(Violation::ProvokedResetsTooMany);
            }
        }
    }

    /// Removes a stream by a reset. The bytes of its body that were not consumed do not matter any more. Returns false
    /// if it is not under way.
    fn remove(&mut self, id: u32, ending: Ending) -> bool {
        let Some(mut stream) = self.streams.remove(id, ending) else { return false };
        // A stream that both sides have ended is kept while its call runs.
        if stream.is_request_open() || stream.is_response_open() {
            stream.reset();
        }
        self.give_back(stream.unconsumed);
        true
    }

    /// Removes a stream whose exchange is over. One whose request has not ended is reset.
    pub fn forget_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        match (stream.is_request_open(), stream.is_response_open()) {
            (false, false) => {
                let stream = self.streams.remove(id, Ending::Complete);
                self.give_back(stream.map_or(0, |stream| stream.unconsumed));
                // A response is worth the frames that a client sends around its request.
                self.allowances.idle_frames.give_back(4);
            }
            // RFC 9113 section 8.1: the response is complete, and the rest of the request is not needed.
            (true, false) => self.reset_stream(id, ErrorCode::NoError),
            (_, true) => self.reset_stream(id, ErrorCode::Cancel),
        }
    }

    /// Refuses a request that has not been processed.
    pub fn refuse(&mut self, id: u32) {
        self.reset_stream(id, ErrorCode::RefusedStream);
    }

    /// Breaks a response off.
    pub fn cut(&mut self, id: u32) {
        self.reset_stream(id, ErrorCode::InternalError);
    }

    /// Counts a DATA frame of a response, for which the client may enlarge two windows.
    pub(super) fn note_data(&mut self) {
        self.allowances.idle_frames.give_back(2);
    }

    // -------------------------------------------------------------------------------------------- end of connection

    /// Asks the client to open no further stream, and finds out when it knows (RFC 9113 section 6.8).
    pub fn drain(&mut self) {
        if self.going_away == GoingAway::No && self.stage != ReadStage::Failed {
            self.going_away = GoingAway::Announced;
            frame::write_go_away(MOST, ErrorCode::NoError, "", &mut self.control);
            frame::write(frame::PING, 0, 0, DRAIN_PING, &mut self.control);
        }
    }

    /// Tells the client that the connection ends now, and which streams have been processed.
    pub fn leave(&mut self) {
        if self.going_away != GoingAway::Final && self.stage != ReadStage::Failed {
            self.going_away = GoingAway::Final;
            frame::write_go_away(self.streams.last(), ErrorCode::NoError, "", &mut self.control);
        }
    }

    /// Returns true if the client knows that no further stream may be opened: none can be on its way.
    #[must_use]
    pub fn is_end_agreed(&self) -> bool {
        self.going_away == GoingAway::Final || self.is_ending()
    }

    /// Returns true if the connection is to be closed once no stream is under way.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.stage == ReadStage::Failed || self.has_client_left || self.going_away == GoingAway::Final
    }

    /// Records that the application accepts the WebSocket that a request asks for. Its response follows.
    pub fn accept_websocket(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_refused = false;
        }
    }

    /// Returns true if a header block has begun, or the connection itself has.
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        self.open_block.is_some() || self.stage == ReadStage::FirstSettings
    }

    // ------------------------------------------------------------------------------------------------------ control

    /// Returns true if frames of the connection wait to be sent.
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Returns true if they have to be sent before more is read.
    #[must_use]
    pub fn must_write_control(&self) -> bool {
        self.control.len() >= ANSWERS
    }

    /// Appends the frames of the connection that wait to be sent.
    pub fn write_control(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.control);
    }

    /// Gives the memory back that is kept for the next request.
    pub fn rest(&mut self) {
        self.decoder.shrink();
        self.kept.forget();
        self.answering.rest();
        self.streams.shrink();
        self.fragment = Vec::new();
        self.control.shrink_to_fit();
    }
}

fn is_known(kind: u8) -> bool {
    matches!(kind, frame::DATA..=frame::CONTINUATION | frame::PRIORITY_UPDATE)
}

/// Returns the stage in which `left` bytes are skipped.
fn skip(left: usize) -> ReadStage {
    if left == 0 { ReadStage::Frame } else { ReadStage::Skip { left } }
}

/// Returns true if a DATA frame of `length` bytes carries so little that it counts as carrying nothing.
fn is_tiny(length: usize, ends: bool) -> bool {
    length < TINY_DATA && !ends
}
