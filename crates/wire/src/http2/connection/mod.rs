//! The server side of a connection: reads frames and stores the resulting state. `responses` writes responses.

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

/// The next event in the input.
#[derive(Clone, Copy, Debug)]
pub enum Http2Event<'s, 'i> {
    /// More input is needed.
    More,
    /// Only frames that concern the whole connection were read.
    Nothing,
    /// The head of a request.
    Head {
        /// The stream of the request.
        stream: u32,
        /// The head.
        head: RequestHead<'s>,
        /// True if the client accepts trailers after the response.
        takes_trailers: bool,
    },
    /// A part of a request body, never empty.
    Data {
        /// The stream of the request.
        stream: u32,
        /// The part. Its bytes stay subtracted from the window until [`ServerConnection::consumed`] is called.
        bytes: &'i [u8],
        /// True if this is the last part. Then no `End` follows.
        is_last: bool,
    },
    /// The end of a request's body.
    End {
        /// The stream of the request.
        stream: u32,
    },
    /// A stream was reset, by the client or because of its error.
    Reset {
        /// The stream.
        stream: u32,
    },
    /// The client accepts more bytes of a response.
    Credit {
        /// The stream of the response.
        stream: u32,
    },
    /// A request breaks a rule that has an HTTP status.
    Broken {
        /// The stream of the request. Its head may have been reported before.
        stream: u32,
        /// The rule.
        fault: Fault,
        /// True if the method is HEAD.
        is_head: bool,
    },
}

/// The part of the input that is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStage {
    Preface,
    FirstSettings,
    Frame,
    /// The data of a DATA frame.
    Data {
        stream: u32,
        left: usize,
        padding: usize,
        ends: bool,
    },
    /// Bytes that are ignored.
    Skip {
        left: usize,
    },
    /// The connection has failed, and the rest of the input is ignored.
    Failed,
}

/// An incomplete header block.
#[derive(Clone, Copy, Debug)]
struct OpenBlock {
    stream: u32,
    ends: bool,
    frames: u32,
    purpose: Purpose,
}

/// The purpose of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Request,
    Trailers,
    /// The block is decoded only to keep the compression state in step, and its stream is reset for this violation.
    Reset(Violation),
    /// The block is decoded only to keep the compression state in step, and ignored.
    Nothing,
}

/// The state of the connection's shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GoingAway {
    #[default]
    No,
    /// The client was asked to open no more streams. Streams that it opened before it knew are served.
    Announced,
    /// New streams are ignored.
    Final,
}

/// The payload of the PING whose acknowledgement shows that the client has read the announced shutdown.
const DRAIN_PING: &[u8; 8] = b"kirsch/d";

/// The maximum number of frames that one call reads if none of them causes an event.
const FRAMES_AT_MOST: usize = 32;

/// The result of one frame, or of a part of one.
enum FrameStep<'i> {
    Nothing,
    /// The head in the builder is complete.
    Head {
        stream: u32,
        body: crate::message::BodyLength,
    },
    Event(Http2Event<'i, 'i>),
}

/// The server side of a connection.
#[derive(Debug)]
pub struct ServerConnection {
    stage: ReadStage,
    decoder: Decoder,
    kept: KeptHead,
    open_block: Option<OpenBlock>,
    /// The fields of the incomplete block, stored between two of its frames.
    open_request: Option<Box<RequestBuilder>>,
    /// True if an extended CONNECT may ask for a WebSocket.
    takes_websockets: bool,
    /// The start of a field that continues in the next fragment.
    fragment: Vec<u8>,
    pub(super) streams: StreamTable,
    pub(super) peer: PeerSettings,
    pub(super) answering: Answering,
    /// The bytes that the client may still send on all streams, and the bytes by which this window will be enlarged.
    receive_window: i64,
    owed: u32,
    /// Connection frames that have not been sent.
    pub(super) control: Vec<u8>,
    allowances: Allowances,
    /// A violation that the next call of [`next`](Self::next) returns.
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
    /// Allows WebSockets by an extended CONNECT (RFC 8441). Call this before the connection begins.
    pub fn take_websockets(&mut self) {
        self.takes_websockets = true;
    }

    /// Begins the connection. At most `most` streams may be open at a time.
    pub fn open(&mut self, most: usize, limits: &Limits) {
        self.most_streams = most;
        let takes_websockets = self.takes_websockets;
        let number = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
        let own =
            OwnSettings { streams: number(most), window: STREAM_WINDOW, head: number(limits.head), takes_websockets };
        own.write(&mut self.control);
        frame::write_window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW, &mut self.control);
    }

    /// Sets the time, in milliseconds since an arbitrary moment. It determines how far allowances are refilled.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Returns the next event in `input`, and the number of bytes used. After [`Http2Event::More`], or if no byte was
    /// used, the caller passes the rest again, followed by new bytes. `scratch` may be shared among connections.
    ///
    /// # Errors
    /// The rule that the peer broke. GOAWAY has been written, and the rest of the input is ignored. Open streams may
    /// still be answered.
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

    /// Ends the connection because of a violation.
    fn fail(&mut self, violation: Violation) -> Violation {
        if self.stage != ReadStage::Failed {
            self.stage = ReadStage::Failed;
            let (last, control) = (self.streams.last(), &mut self.control);
            frame::write_go_away(last, violation.code(), violation.explanation(), control);
        }
        violation
    }

    /// Reads one frame, or a part of one. Returns `None` if more input is needed.
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

    /// Checks the rules that depend only on the header of a frame.
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

    /// Handles a complete frame other than DATA.
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

    /// Checks a PRIORITY frame, whose content is ignored (RFC 9113 section 6.3, RFC 7540 section 5.3.1).
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
            // PRIORITY is allowed on a closed stream, so its length is checked there too (RFC 9113 section 6.3).
            Usage::UnderWay | Usage::Closed(_) | Usage::Forgotten => self.break_stream(header.stream, violation),
        }
    }

    fn rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        if payload.len() != 4 {
            return Err(Violation::FrameLengthInvalid);
        }
        match self.streams.usage(header.stream) {
            Usage::Idle => Err(Violation::IdleStream),
            Usage::Closed(_) | Usage::Forgotten | Usage::LeftOut => {
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
                Usage::Idle => Err(Violation::IdleStream),
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

    /// Handles `PRIORITY_UPDATE` (RFC 9218 section 7.1).
    fn priority_update(&mut self, payload: &[u8]) -> Result<FrameStep<'static>, Violation> {
        self.charge()?;
        let Some(stream) = frame::number(payload) else { return Err(Violation::FrameLengthInvalid) };
        // Even numbers belong to pushed streams, and this server does not push.
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

    /// Resets a stream on which the client broke a rule.
    fn break_stream(&mut self, stream: u32, violation: Violation) -> Result<FrameStep<'static>, Violation> {
        if !self.allowances.provoked_resets.take(self.now) {
            return Err(Violation::ProvokedResetsTooMany);
        }
        let is_known = self.remove(stream, Ending::ResetByServer);
        if !is_known {
            // Further frames on a closed stream are ignored, because it is reset once (RFC 9113 section 5.4.2).
            self.streams.note_end(stream, Ending::ResetByServer);
        }
        frame::write_reset(stream, violation.code(), &mut self.control);
        Ok(if is_known { FrameStep::Event(Http2Event::Reset { stream }) } else { FrameStep::Nothing })
    }

    /// Resets a stream if it is open.
    pub(super) fn reset_stream(&mut self, stream: u32, code: ErrorCode) {
        if self.remove(stream, Ending::ResetByServer) {
            frame::write_reset(stream, code, &mut self.control);
            if code == ErrorCode::RefusedStream && !self.allowances.provoked_resets.take(self.now) {
                self.overdue = Some(Violation::ProvokedResetsTooMany);
            }
        }
    }

    /// Removes a stream because of a reset. Its unconsumed body bytes are returned to the connection's window. Returns
    /// false if the stream is not open.
    fn remove(&mut self, id: u32, ending: Ending) -> bool {
        let Some(mut stream) = self.streams.remove(id, ending) else { return false };
        // A stream that both sides have ended is stored until its call ends.
        if stream.is_request_open() || stream.is_response_open() {
            stream.reset();
        }
        self.give_back(stream.unconsumed);
        true
    }

    /// Removes a stream whose exchange has ended. If its request or its response is incomplete, the stream is reset.
    pub fn forget_stream(&mut self, id: u32) {
        let Some(stream) = self.streams.get(id) else { return };
        match (stream.is_request_open(), stream.is_response_open()) {
            (false, false) => {
                let stream = self.streams.remove(id, Ending::Complete);
                self.give_back(stream.map_or(0, |stream| stream.unconsumed));
                // A response makes up for the frames that a client sends around its request.
                self.allowances.idle_frames.give_back(4);
            }
            // The response is complete, and the rest of the request is not needed (RFC 9113 section 8.1).
            (true, false) => self.reset_stream(id, ErrorCode::NoError),
            (_, true) => self.reset_stream(id, ErrorCode::Cancel),
        }
    }

    /// Refuses a request that was not processed.
    pub fn refuse(&mut self, id: u32) {
        self.reset_stream(id, ErrorCode::RefusedStream);
    }

    /// Aborts a response.
    pub fn cut(&mut self, id: u32) {
        self.reset_stream(id, ErrorCode::InternalError);
    }

    /// Restores allowance for a DATA frame of a response, because the client may enlarge two windows for it.
    pub(super) fn note_data(&mut self) {
        self.allowances.idle_frames.give_back(2);
    }

    // -------------------------------------------------------------------------------------------- end of connection

    /// Asks the client to open no more streams. A PING tells when the client knows (RFC 9113 section 6.8).
    pub fn drain(&mut self) {
        if self.going_away == GoingAway::No && self.stage != ReadStage::Failed {
            self.going_away = GoingAway::Announced;
            frame::write_go_away(MOST, ErrorCode::NoError, "", &mut self.control);
            frame::write(frame::PING, 0, 0, DRAIN_PING, &mut self.control);
        }
    }

    /// Announces to the client that the connection ends now, and which streams were processed.
    pub fn leave(&mut self) {
        if self.going_away != GoingAway::Final && self.stage != ReadStage::Failed {
            self.going_away = GoingAway::Final;
            frame::write_go_away(self.streams.last(), ErrorCode::NoError, "", &mut self.control);
        }
    }

    /// Returns true if no new stream can arrive: the client has acknowledged the shutdown, or the connection is ending.
    #[must_use]
    pub fn is_end_agreed(&self) -> bool {
        self.going_away == GoingAway::Final || self.is_ending()
    }

    /// Returns true if the connection must close as soon as no stream is open.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.stage == ReadStage::Failed || self.has_client_left || self.going_away == GoingAway::Final
    }

    /// Records that the application accepts the WebSocket of a request. Its response must follow.
    pub fn accept_websocket(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.is_refused = false;
        }
    }

    /// Returns true if a header block is incomplete, or if the first SETTINGS frame is still missing after the preface.
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        self.open_block.is_some() || self.stage == ReadStage::FirstSettings
    }

    // ------------------------------------------------------------------------------------------------------ control

    /// Returns true if there are unsent connection frames.
    #[must_use]
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Returns true if the unsent connection frames must be sent before more input is read.
    #[must_use]
    pub fn must_write_control(&self) -> bool {
        self.control.len() >= ANSWERS
    }

    /// Moves the unsent connection frames to `out`.
    pub fn write_control(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.control);
    }

    /// Releases memory that is kept for the next request.
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

/// Returns the stage that skips `left` bytes.
fn skip(left: usize) -> ReadStage {
    if left == 0 { ReadStage::Frame } else { ReadStage::Skip { left } }
}

/// Returns true if a DATA frame of `length` bytes counts as carrying nothing.
fn is_tiny(length: usize, ends: bool) -> bool {
    length < TINY_DATA && !ends
}
