//! The reading side of FastCGI: converts records to requests.

use super::record::{
    self, ABORT_REQUEST, BEGIN_REQUEST, GET_VALUES, GET_VALUES_RESULT, HEADER, Header, KEEP_CONN, PARAMS,
    ProtocolStatus, RESPONDER, RequestId, STDIN, UNKNOWN_TYPE, end,
};
use super::repeat::Repeat;
use crate::cgi::Variables;
use crate::message::{BodyLength, Fault, Field, Keeping, Limits, RequestHead};

/// The next event in the input.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i> {
    /// No event has occurred. More input is needed, unless some of it was left.
    More,
    /// The head of a request.
    Head {
        /// The request.
        id: RequestId,
        /// The head.
        head: RequestHead<'s>,
    },
    /// A part of a request's body, never empty.
    Data {
        /// The request.
        id: RequestId,
        /// The part.
        bytes: &'i [u8],
    },
    /// The end of a request body. It is not reported for a request whose head has no body.
    End {
        /// The request.
        id: RequestId,
    },
    /// The web server aborted a request whose head was reported. The abort has been acknowledged.
    Abort {
        /// The request.
        id: RequestId,
    },
    /// A request breaks a rule, but the connection can be used further.
    Broken {
        /// The request. Its head may have been reported before.
        id: RequestId,
        /// The rule.
        fault: Fault,
    },
}

/// A reader of a connection's records. The caller must [forget](Self::forget) each request that has been answered.
#[derive(Debug, Default)]
pub struct Receiver {
    requests: Vec<Incoming>,
    stage: Stage,
    /// The received part of the current record's header.
    header: [u8; HEADER],
    /// The received part of the content of a record that does not belong to a stream.
    content: Vec<u8>,
    /// The variables that were read last, and the serial number of the request that they belong to.
    variables: Variables,
    fields: Vec<Field>,
    prepared: u32,
    /// True if the variables equal those of the kept request, except for some values.
    is_like_kept: bool,
    kept: Option<Box<Repeat>>,
    /// An unused buffer for the PARAMS of the next request.
    spare: Vec<u8>,
    keeping: Keeping,
    /// Responses to records that belong to no request, until they are [taken](Self::take_answers).
    answers: Vec<u8>,
    /// The maximum number of concurrent requests.
    most: usize,
    serial: u32,
    is_ending: bool,
    /// True if a request ended before its STDIN did.
    is_unread: bool,
}

/// The maximum number of steps without an event in one call.
const STEPS_AT_MOST: usize = 64;

/// The bytes of unsent responses from which on no more input is read. One call of [`Receiver::next`] may add to them.
const ANSWERS_AT_MOST: usize = 1 << 10;

/// The result of one step of the receiver.
enum Step<'i> {
    Nothing,
    /// The variables of the request at this index have been read, and it is known whether it has a body.
    Head {
        at: usize,
        /// The content of PARAMS.
        pairs: Vec<u8>,
        declared: Option<u64>,
        has_body: bool,
    },
    /// Any other event.
    Event(Event<'i, 'i>),
}

/// A request in progress.
#[derive(Debug)]
struct Incoming {
    id: RequestId,
    keeps_connection: bool,
    phase: Phase,
}

/// The part of a request that is expected next.
#[derive(Debug)]
enum Phase {
    /// The received part of PARAMS.
    Params(Vec<u8>),
    /// The complete PARAMS of a request of which only STDIN will show whether it has a body.
    Undecided(Vec<u8>),
    /// STDIN: the declared length of the body, and the number of bytes received.
    Body { declared: Option<u64>, received: u64 },
    /// STDIN of a request without a body: only its end may follow.
    Bodiless,
    /// STDIN has ended.
    Over,
    /// The rest of the request is discarded.
    Unwanted,
}

/// The part of a record to which the next byte belongs.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// This many bytes of the record's header have been received.
    Header(usize),
    /// This many bytes of the record's content are missing, at least one.
    Content(usize),
    /// This many bytes of the record's padding are missing, at least one.
    Padding(usize),
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Header(0)
    }
}

impl Receiver {
    /// Creates a receiver that accepts `most` requests at a time.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns the next event in `input`, and the number of bytes used. With [`Event::More`], bytes may be left: the
    /// caller limits the work, and records without content cost more than their length suggests.
    ///
    /// # Errors
    /// The rule that the peer broke. The connection cannot be read any further.
    pub fn next<'s, 'i: 's>(&'s mut self, input: &'i [u8], limits: &Limits) -> Result<(usize, Event<'s, 'i>), Fault> {
        let (mut used, mut steps) = (0, 0);
        while used < input.len() && steps < STEPS_AT_MOST {
            let (count, step) = self.advance(&input[used..], limits)?;
            used += count;
            steps += 1;
            match step {
                Step::Nothing => {}
                Step::Head { at, pairs, declared, has_body } => {
                    let end = if has_body { 0 } else { self.end_of_stdin(at, &input[used..]) };
                    let phase = match declared {
                        _ if has_body => Phase::Body { declared, received: 0 },
                        Some(_) if end == 0 => Phase::Bodiless,
                        // Without a declared length, it was the end of STDIN that showed that there is no body.
                        _ => Phase::Over,
                    };
                    return Ok((used + end, self.head(at, pairs, declared, phase, limits)));
                }
                Step::Event(event) => return Ok((used, event)),
            }
        }
        Ok((used, Event::More))
    }

    /// Reads a header, a part of the content, or padding. `input` must not be empty.
    fn advance<'i>(&mut self, input: &'i [u8], limits: &Limits) -> Result<(usize, Step<'i>), Fault> {
        debug_assert!(
            matches!(self.stage, Stage::Header(0..HEADER) | Stage::Content(1..) | Stage::Padding(1..)),
            "a part that is complete has been left: {:?}",
            self.stage
        );
        match self.stage {
            Stage::Header(have) => {
                let count = input.len().min(HEADER - have);
                if let (0, Some(whole)) = (have, input.first_chunk()) {
                    self.header = *whole;
                } else {
                    self.header[have..have + count].copy_from_slice(&input[..count]);
                }
                if have + count < HEADER {
                    self.stage = Stage::Header(have + count);
                    return Ok((count, Step::Nothing));
                }
                let header = Header::read(self.header)?;
                self.content.clear();
                self.stage = if header.content > 0 { Stage::Content(header.content) } else { behind_content(header) };
                Ok((count, self.opened(header, limits)?))
            }
            Stage::Content(left) => {
                let header = Header::read(self.header)?;
                let (part, is_whole) = (&input[..input.len().min(left)], input.len() >= left);
                self.stage = if is_whole { behind_content(header) } else { Stage::Content(left - part.len()) };
                let event = match header.kind {
                    STDIN => self.stdin(header.id, part, limits),
                    PARAMS => self.params(header.id, part, limits),
                    BEGIN_REQUEST | GET_VALUES => {
                        self.content.extend_from_slice(part);
                        if is_whole {
                            self.closed(header)?;
                        }
                        Step::Nothing
                    }
                    _ if is_whole => self.other(header),
                    _ => Step::Nothing,
                };
                Ok((part.len(), event))
            }
            Stage::Padding(left) => {
                let count = input.len().min(left);
                self.stage = if count < left { Stage::Padding(left - count) } else { Stage::Header(0) };
                Ok((count, Step::Nothing))
            }
        }
    }

    /// Handles the end of the input.
    ///
    /// # Errors
    /// [`Fault::Truncated`] in the middle of a record or a request.
    pub fn end_of_input(&self) -> Result<(), Fault> {
        let is_between = matches!(self.stage, Stage::Header(0)) && self.requests.is_empty();
        if is_between { Ok(()) } else { Err(Fault::Truncated) }
    }

    /// Returns true if the head of a request is incomplete, or if a record is incomplete that may begin a request.
    #[must_use]
    pub fn is_in_head(&self) -> bool {
        let is_head = |request: &Incoming| matches!(request.phase, Phase::Params(_) | Phase::Undecided(_));
        let is_in_record = match self.stage {
            Stage::Header(have) => have > 0,
            Stage::Content(_) => self.header[1] == BEGIN_REQUEST,
            Stage::Padding(_) => false,
        };
        is_in_record || self.requests.iter().any(is_head)
    }

    /// Returns true if the connection must close as soon as no request is in progress: the web server has asked for
    /// that, or the rest of the input cannot be trusted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns true if a request in progress is the connection's last one, because the web server asked to close it.
    #[must_use]
    pub fn has_last(&self) -> bool {
        self.is_ending || self.requests.iter().any(|request| !request.keeps_connection)
    }

    /// Returns true if exactly one request is in progress, is the connection's last, and has been read completely.
    #[must_use]
    pub fn has_read_all(&self) -> bool {
        let is_whole = |request: &Incoming| !request.keeps_connection && matches!(request.phase, Phase::Over);
        matches!(self.stage, Stage::Header(0)) && matches!(&self.requests[..], [only] if is_whole(only))
    }

    /// Returns true if the web server may still be sending when the connection closes. Caddy and Apache treat an error
    /// while sending as an error of the response.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Lets the connection close as soon as no request is in progress.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Releases memory that is kept for the next request.
    pub fn rest(&mut self) {
        self.variables = Variables::default();
        self.fields = Vec::new();
        self.prepared = 0;
        self.kept = None;
        self.spare = Vec::new();
        self.content = Vec::new();
        self.answers = Vec::new();
        self.requests.shrink_to_fit();
    }

    /// Returns true if no request is in progress.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.is_in_head()
    }

    /// Returns true if there are responses to [take](Self::take_answers).
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns true if the caller must [take the responses](Self::take_answers) before it reads more. This bounds them
    /// for a peer that does not read.
    #[must_use]
    pub fn has_many_answers(&self) -> bool {
        self.answers.len() >= ANSWERS_AT_MOST
    }

    /// Moves the responses to records that belong to no request to `out`.
    pub fn take_answers(&mut self, out: &mut Vec<u8>) {
        if !self.answers.is_empty() {
            out.append(&mut self.answers);
        }
    }

    /// Returns the identifier of the request with a serial number; `None` if it is not in progress.
    #[must_use]
    pub fn id(&self, serial: u32) -> Option<RequestId> {
        self.requests.iter().find(|request| request.id.serial == serial).map(|request| request.id)
    }

    /// Discards the rest of a request's body.
    pub fn discard_body(&mut self, serial: u32) {
        if let Some(request) = self.requests.iter_mut().find(|request| request.id.serial == serial) {
            request.phase = Phase::Unwanted;
        }
    }

    /// Removes a request that has ended. If the web server asked to close the connection after it, the connection ends
    /// too.
    pub fn forget(&mut self, serial: u32) {
        if let Some(at) = self.requests.iter().position(|request| request.id.serial == serial) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let request = self.requests.swap_remove(at);
        self.is_ending |= !request.keeps_connection;
        self.is_unread |= !matches!(request.phase, Phase::Over);
    }

    /// Returns the index of the request with this number of the peer.
    fn find(&self, number: u16) -> Option<usize> {
        self.requests.iter().position(|request| request.id.number == number)
    }

    /// Handles a header. A record without content is complete now.
    fn opened(&mut self, header: Header, limits: &Limits) -> Result<Step<'static>, Fault> {
        let is_empty = header.content == 0;
        match header.kind {
            BEGIN_REQUEST if header.content != 8 || header.id == 0 => Err(Fault::RecordMalformed),
            GET_VALUES if header.id != 0 => Err(Fault::RecordMalformed),
            STDIN | PARAMS => {
                let Some(at) = self.find(header.id) else { return Ok(Step::Nothing) };
                match (&mut self.requests[at].phase, header.kind) {
                    (Phase::Undecided(_), STDIN) => Ok(self.decide(at, !is_empty, limits)),
                    (Phase::Params(pairs), PARAMS) if is_empty => {
                        let pairs = std::mem::take(pairs);
                        Ok(self.params_ended(at, pairs, limits))
                    }
                    (_, STDIN) if is_empty => Ok(self.stdin_ended(at)),
                    _ => Ok(Step::Nothing),
                }
            }
            GET_VALUES if is_empty => {
                self.closed(header)?;
                Ok(Step::Nothing)
            }
            _ if is_empty => Ok(self.other(header)),
            _ => Ok(Step::Nothing),
        }
    }

    /// Handles the complete content of a record that belongs to no stream.
    fn closed(&mut self, header: Header) -> Result<(), Fault> {
        if header.kind == GET_VALUES {
            return self.answer_values();
        }
        let &[role1, role0, flags, ..] = &self.content[..] else { return Err(Fault::RecordMalformed) };
        // The number of a request in progress must not be reused.
        if self.find(header.id).is_some() {
            return Err(Fault::RecordMalformed);
        }
        let keeps_connection = flags & KEEP_CONN != 0;
        let refusal = if u16::from_be_bytes([role1, role0]) != RESPONDER {
            Some(ProtocolStatus::UnknownRole)
        } else if self.requests.len() >= self.most {
            Some(ProtocolStatus::Overloaded)
        } else {
            None
        };
        if let Some(status) = refusal {
            end(header.id, status, &mut self.answers);
            self.is_ending |= !keeps_connection;
            return Ok(());
        }
        // Serial numbers skip 0, which no request has. They cannot collide, because few requests are in progress at a
        // time.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let id = RequestId { serial: self.serial, number: header.id };
        self.requests.push(Incoming { id, keeps_connection, phase: Phase::Params(std::mem::take(&mut self.spare)) });
        Ok(())
    }

    /// Responds to the known names in `GET_VALUES` (FastCGI specification, section 4.1).
    fn answer_values(&mut self) -> Result<(), Fault> {
        let most = self.most.to_string();
        let mut result = Vec::new();
        let mut rest = &self.content[..];
        while let Some((name, _, after)) = record::pair(rest)? {
            rest = after;
            let value = match name {
                record::MAX_CONNS | record::MAX_REQS => &most[..],
                record::MPXS_CONNS => "1",
                _ => continue,
            };
            record::write_pair(name, value.as_bytes(), &mut result);
            // The response stays bounded if the peer repeats a name.
            if result.len() > 1024 {
                return Err(Fault::RecordMalformed);
            }
        }
        record::write(GET_VALUES_RESULT, 0, &result, &mut self.answers);
        Ok(())
    }

    /// Handles a complete record that neither belongs to a stream nor begins a request.
    fn other(&mut self, header: Header) -> Step<'static> {
        if header.kind == ABORT_REQUEST {
            let Some(at) = self.find(header.id) else { return Step::Nothing };
            let id = self.requests[at].id;
            end(header.id, ProtocolStatus::RequestComplete, &mut self.answers);
            let was_reported = !matches!(self.requests[at].phase, Phase::Params(_) | Phase::Undecided(_));
            self.remove(at);
            return if was_reported { Step::Event(Event::Abort { id }) } else { Step::Nothing };
        }
        if header.id == 0 {
            record::write(UNKNOWN_TYPE, 0, &[header.kind, 0, 0, 0, 0, 0, 0, 0], &mut self.answers);
        }
        // Streams of other roles are ignored.
        Step::Nothing
    }

    fn broken(&mut self, at: usize, fault: Fault) -> Step<'static> {
        let request = &mut self.requests[at];
        request.phase = Phase::Unwanted;
        // Without a valid length, the end of this request's body is uncertain.
        self.is_ending |= fault == Fault::ContentLengthInvalid;
        Step::Event(Event::Broken { id: self.requests[at].id, fault })
    }

    /// Handles a part of PARAMS.
    fn params(&mut self, number: u16, part: &[u8], limits: &Limits) -> Step<'static> {
        let Some(at) = self.find(number) else { return Step::Nothing };
        match &mut self.requests[at].phase {
            Phase::Unwanted => Step::Nothing,
            Phase::Params(pairs) => {
                pairs.extend_from_slice(part);
                let is_too_large = pairs.len() > crate::cgi::most_bytes(limits).saturating_mul(2);
                if is_too_large { self.broken(at, Fault::HeadTooLarge) } else { Step::Nothing }
            }
            _ => self.broken(at, Fault::RecordMalformed),
        }
    }

    /// Handles the end of PARAMS.
    fn params_ended(&mut self, at: usize, pairs: Vec<u8>, limits: &Limits) -> Step<'static> {
        match self.prepare(at, &pairs, limits) {
            Err(fault) => self.broken(at, fault),
            Ok(Some(length)) => Step::Head { at, pairs, declared: Some(length), has_body: length > 0 },
            // Only STDIN will show whether there is a body: Apache forwards chunked bodies without a length.
            Ok(None) => {
                self.requests[at].phase = Phase::Undecided(pairs);
                Step::Nothing
            }
        }
    }

    /// Decides whether a request without a declared length has a body, when STDIN begins.
    fn decide(&mut self, at: usize, has_body: bool, limits: &Limits) -> Step<'static> {
        let Phase::Undecided(pairs) = std::mem::replace(&mut self.requests[at].phase, Phase::Unwanted) else {
            return Step::Nothing;
        };
        // The variables of another request may have been read meanwhile.
        if self.prepared != self.requests[at].id.serial
            && let Err(fault) = self.prepare(at, &pairs, limits)
        {
            return self.broken(at, fault);
        }
        Step::Head { at, pairs, declared: None, has_body }
    }

    /// Reads the variables of a request. Returns the length that they declare.
    fn prepare(&mut self, at: usize, pairs: &[u8], limits: &Limits) -> Result<Option<u64>, Fault> {
        self.prepared = 0;
        let Self { kept, variables, fields, .. } = self;
        self.is_like_kept = kept.as_mut().is_some_and(|kept| kept.compare(pairs, variables, fields, limits));
        if self.is_like_kept {
            self.prepared = self.requests[at].id.serial;
            return Ok(self.kept.as_ref().and_then(|kept| kept.length()));
        }
        self.variables.clear();
        self.fields.clear();
        let mut rest = pairs;
        while let Some((name, value, after)) = record::pair(rest)? {
            rest = after;
            self.variables.push(name, value, &mut self.fields, limits)?;
        }
        self.prepared = self.requests[at].id.serial;
        self.variables.length(&self.fields, limits).map(|(length, _)| length)
    }

    /// Reports the head of the request whose variables have been read.
    fn head<'s, 'i>(
        &'s mut self,
        at: usize,
        pairs: Vec<u8>,
        declared: Option<u64>,
        phase: Phase,
        limits: &Limits,
    ) -> Event<'s, 'i> {
        let Self { requests, variables, fields, prepared, is_like_kept, kept, spare, keeping, .. } = self;
        *prepared = 0;
        let request = &mut requests[at];
        let id = request.id;
        let body = match (&phase, declared) {
            (Phase::Body { .. }, Some(length)) => BodyLength::Known(length),
            (Phase::Body { .. }, None) => BodyLength::Unknown,
            _ => BodyLength::None,
        };
        let is_repetition = *is_like_kept && kept.as_ref().is_some_and(|kept| kept.changed().is_empty());
        let retained = keeping.keeps(is_repetition);
        // A request that breaks a rule is not kept; `head` below returns its fault.
        if retained && variables.learn(fields).is_ok() {
            *kept = Some(Box::new(Repeat::new(pairs, variables, fields, declared)));
        } else {
            *spare = pairs;
            spare.clear();
        }
        let changed = kept.as_ref().filter(|_| *is_like_kept && !retained).map(|kept| kept.changed());
        // HAProxy 2.6 crashes (by its own check, ABORT_NOW) if STDERR arrives between the parts of a response. It would
        // discard the text anyway.
        let takes_errors = variables.learn(fields).is_ok_and(|known| !known.is_haproxy);
        match variables.head(fields, limits, body) {
            Ok(mut head) => {
                (head.changed, head.retained, head.kept) = (changed, retained, keeping.kept());
                head.takes_errors = takes_errors;
                request.phase = phase;
                Event::Head { id, head }
            }
            Err(fault) => {
                request.phase = Phase::Unwanted;
                Event::Broken { id, fault }
            }
        }
    }

    /// Handles a part of STDIN.
    fn stdin<'i>(&mut self, number: u16, part: &'i [u8], limits: &Limits) -> Step<'i> {
        let Some(at) = self.find(number) else { return Step::Nothing };
        let id = self.requests[at].id;
        match &mut self.requests[at].phase {
            Phase::Unwanted => Step::Nothing,
            Phase::Body { declared, received } => {
                *received += part.len() as u64;
                if declared.is_some_and(|declared| *received > declared) {
                    self.broken(at, Fault::BodyLengthWrong)
                } else if *received > limits.body {
                    self.broken(at, Fault::BodyTooLarge)
                } else {
                    Step::Event(Event::Data { id, bytes: part })
                }
            }
            Phase::Bodiless | Phase::Over => self.broken(at, Fault::BodyLengthWrong),
            Phase::Params(_) | Phase::Undecided(_) => self.broken(at, Fault::RecordMalformed),
        }
    }

    /// Returns the number of bytes of `input` that end STDIN of a request without a body; 0 if that end does not follow
    /// the head immediately. With the end, the whole request has been read and the connection can be closed with the
    /// response.
    fn end_of_stdin(&self, at: usize, input: &[u8]) -> usize {
        let [id1, id0] = self.requests[at].id.number.to_be_bytes();
        let is_end = input.starts_with(&[record::VERSION, STDIN, id1, id0, 0, 0, 0]) && input.len() >= HEADER;
        if is_end && matches!(self.stage, Stage::Header(0)) { HEADER } else { 0 }
    }

    /// Handles the end of STDIN.
    fn stdin_ended(&mut self, at: usize) -> Step<'static> {
        let request = &mut self.requests[at];
        match request.phase {
            Phase::Body { declared: Some(declared), received } if received < declared => {
                self.broken(at, Fault::Truncated)
            }
            Phase::Body { .. } => {
                request.phase = Phase::Over;
                Step::Event(Event::End { id: request.id })
            }
            Phase::Params(_) => self.broken(at, Fault::RecordMalformed),
            Phase::Undecided(_) | Phase::Bodiless | Phase::Over | Phase::Unwanted => {
                request.phase = Phase::Over;
                Step::Nothing
            }
        }
    }
}

/// Returns the stage after the content of a record.
fn behind_content(header: Header) -> Stage {
    if header.padding > 0 { Stage::Padding(header.padding) } else { Stage::Header(0) }
}
