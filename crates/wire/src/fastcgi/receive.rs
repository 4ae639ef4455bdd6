//! The reading half: records into requests.

use super::record::{
    self, ABORT_REQUEST, BEGIN_REQUEST, GET_VALUES, GET_VALUES_RESULT, HEADER, Header, KEEP_CONN, PARAMS,
    ProtocolStatus, RESPONDER, RequestId, STDIN, UNKNOWN_TYPE, end,
};
use super::repeat::Repeat;
use crate::cgi::Variables;
use crate::message::{BodyLength, Fault, Field, Keeping, Limits, RequestHead};

/// The next thing in the input.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s, 'i> {
    /// All of the input has been taken, and more is needed.
    More,
    /// A request.
    Head {
        /// Which one.
        id: RequestId,
        /// Its head.
        head: RequestHead<'s>,
    },
    /// A part of a request's body, never empty.
    Data {
        /// Which one's.
        id: RequestId,
        /// The part.
        bytes: &'i [u8],
    },
    /// The end of a request's body. There is none for a request whose head says that it has no body.
    End {
        /// Which one's.
        id: RequestId,
    },
    /// The web server has given up a request, of which a head has been reported. Its end has been acknowledged.
    Abort {
        /// Which one.
        id: RequestId,
    },
    /// A request breaks a rule, and the connection goes on.
    Broken {
        /// Which one, whose head has been reported or not.
        id: RequestId,
        /// The rule.
        fault: Fault,
    },
}

/// Reads the records of a connection. Requests that have been answered are to be [forgotten](Self::forget).
#[derive(Debug, Default)]
pub struct Receiver {
    requests: Vec<Incoming>,
    stage: Stage,
    /// The header of the record that is read, as far as it is here.
    header: [u8; HEADER],
    /// The content of a record that is no stream's, until it is whole.
    content: Vec<u8>,
    /// The variables that were read last, and the serial number of the request whose head they will make.
    variables: Variables,
    fields: Vec<Field>,
    prepared: u32,
    /// True if the variables are those of the request that was kept, except for some values.
    is_like_kept: bool,
    kept: Option<Box<Repeat>>,
    /// Memory for PARAMS.
    spare: Vec<u8>,
    keeping: Keeping,
    /// Answers to records that are no request's, until they are [taken](Self::take_answers).
    answers: Vec<u8>,
    /// The maximum number of concurrent requests.
    most: usize,
    serial: u32,
    is_ending: bool,
    /// A request was over before its STDIN was.
    is_unread: bool,
}

/// Steps through records that bring no event, taken at a time.
const STEPS_AT_MOST: usize = 64;

/// Bytes of answers that wait before nothing more is to be read. Those of one call of [`Receiver::next`] come on top.
const ANSWERS_AT_MOST: usize = 1 << 10;

/// The result of one step of the receiver.
enum Step<'i> {
    Nothing,
    /// The variables of the request at this place have been read, and what its body will be is known.
    Head {
        at: usize,
        /// PARAMS.
        pairs: Vec<u8>,
        declared: Option<u64>,
        has_body: bool,
    },
    /// Any other event.
    Event(Event<'i, 'i>),
}

/// A request that is under way.
#[derive(Debug)]
struct Incoming {
    id: RequestId,
    keeps_connection: bool,
    phase: Phase,
}

/// The part of a request that is read next.
#[derive(Debug)]
enum Phase {
    /// PARAMS, as far as they are here.
    Params(Vec<u8>),
    /// PARAMS are complete, and only STDIN tells whether there is a body.
    Undecided(Vec<u8>),
    /// STDIN: of how many bytes, if that was said, and how many have come.
    Body { declared: Option<u64>, received: u64 },
    /// There is no body: nothing but the end of STDIN may come.
    Bodiless,
    /// STDIN has ended.
    Over,
    /// Whatever comes is discarded.
    Unwanted,
}

/// The part of a record that the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// This many bytes of the record's header have been received.
    Header(usize),
    /// This many bytes of the record's content are missing, at least one.
    Content(usize),
    /// The same for its padding.
    Padding(usize),
}

impl Default for Stage {
    fn default() -> Self {
        Stage::Header(0)
    }
}

impl Receiver {
    /// Creates a receiver that takes `most` requests at a time.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns the next event in `input`, and the number of bytes that it takes. [`Event::More`] may leave some bytes:
    /// the caller measures the work, and records without content cost more than their bytes.
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
                        // Without a declared length, it is the end of STDIN that has shown that there is no body.
                        _ => Phase::Over,
                    };
                    return Ok((used + end, self.head(at, pairs, declared, phase, limits)));
                }
                Step::Event(event) => return Ok((used, event)),
            }
        }
        Ok((used, Event::More))
    }

    /// Reads one step: a header, a part of the content, or padding. `input` is not empty.
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

    /// Judges the end of the peer's bytes.
    ///
    /// # Errors
    /// [`Fault::Truncated`] in the middle of a record or a request.
    pub fn end_of_input(&self) -> Result<(), Fault> {
        let is_between = matches!(self.stage, Stage::Header(0)) && self.requests.is_empty();
        if is_between { Ok(()) } else { Err(Fault::Truncated) }
    }

    /// Returns true if a request has begun whose head is not whole, or a record in which one may begin.
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

    /// Returns true if the connection is to be closed once no request is under way: the web server leaves closing to
    /// us, or the rest of the input cannot be trusted.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Returns true if a request that has begun is the connection's last, because the web server leaves closing to us.
    #[must_use]
    pub fn has_last(&self) -> bool {
        self.is_ending || self.requests.iter().any(|request| !request.keeps_connection)
    }

    /// Returns true if one request is under way, which is the connection's last and has been read as a whole.
    #[must_use]
    pub fn has_read_all(&self) -> bool {
        let is_whole = |request: &Incoming| !request.keeps_connection && matches!(request.phase, Phase::Over);
        matches!(self.stage, Stage::Header(0)) && matches!(&self.requests[..], [only] if is_whole(only))
    }

    /// Returns true if the web server may still be sending when the connection is closed. Caddy and Apache take an
    /// error of that sending for an error of the response.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// Closes the connection once no request is under way.
    pub fn end(&mut self) {
        self.is_ending = true;
    }

    /// Gives the memory back that is kept for the next request.
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

    /// Returns true if no request is under way, and none has begun.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.is_in_head()
    }

    /// Returns true if there are answers to [take](Self::take_answers).
    #[must_use]
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns true if the caller has to [take the answers](Self::take_answers) before it reads more: the answers must
    /// not grow for a client that does not read them.
    #[must_use]
    pub fn has_many_answers(&self) -> bool {
        self.answers.len() >= ANSWERS_AT_MOST
    }

    /// Takes the answers to what was no request, if there are any.
    pub fn take_answers(&mut self, out: &mut Vec<u8>) {
        if !self.answers.is_empty() {
            out.append(&mut self.answers);
        }
    }

    /// Returns the id on the wire of a request that is under way.
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

    /// Forgets a request that has ended. If the connection was kept for it alone, the connection ends too.
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

    /// Returns the place of the request with this number of the peer's.
    fn find(&self, number: u16) -> Option<usize> {
        self.requests.iter().position(|request| request.id.number == number)
    }

    /// Handles a header. A record without content is handled as a whole now.
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

    /// Handles the whole content of a record that belongs to no stream.
    fn closed(&mut self, header: Header) -> Result<(), Fault> {
        if header.kind == GET_VALUES {
            return self.answer_values();
        }
        let &[role1, role0, flags, ..] = &self.content[..] else { return Err(Fault::RecordMalformed) };
        // The number of a request that is under way is not free.
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
        // Not 0, which no request has; what is under way is far fewer than there are numbers.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        let id = RequestId { serial: self.serial, number: header.id };
        self.requests.push(Incoming { id, keeps_connection, phase: Phase::Params(std::mem::take(&mut self.spare)) });
        Ok(())
    }

    /// Answers the names of `GET_VALUES` that are known (FastCGI specification, section 4.1).
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
            // A peer that repeats a name is not answered without bound.
            if result.len() > 1024 {
                return Err(Fault::RecordMalformed);
            }
        }
        record::write(GET_VALUES_RESULT, 0, &result, &mut self.answers);
        Ok(())
    }

    /// Handles a whole record that neither belongs to a stream nor begins a request.
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
        // A stream of another role is skipped.
        Step::Nothing
    }

    fn broken(&mut self, at: usize, fault: Fault) -> Step<'static> {
        let request = &mut self.requests[at];
        request.phase = Phase::Unwanted;
        // Without a valid length, the rest of the connection could be read as anything.
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
            // Only STDIN tells whether there is a body (Apache passes chunked bodies on so).
            Ok(None) => {
                self.requests[at].phase = Phase::Undecided(pairs);
                Step::Nothing
            }
        }
    }

    /// Decides about the body of a request whose head declares none, now that STDIN has begun.
    fn decide(&mut self, at: usize, has_body: bool, limits: &Limits) -> Step<'static> {
        let Phase::Undecided(pairs) = std::mem::replace(&mut self.requests[at].phase, Phase::Unwanted) else {
            return Step::Nothing;
        };
        // Another request's variables may have come in between.
        if self.prepared != self.requests[at].id.serial
            && let Err(fault) = self.prepare(at, &pairs, limits)
        {
            return self.broken(at, fault);
        }
        Step::Head { at, pairs, declared: None, has_body }
    }

    /// Reads the variables of a request, and returns the length that they declare.
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
        // A request that breaks a rule is not kept; `head` below returns the rule.
        if retained && variables.learn(fields).is_ok() {
            *kept = Some(Box::new(Repeat::new(pairs, variables, fields, declared)));
        } else {
            *spare = pairs;
            spare.clear();
        }
        let changed = kept.as_ref().filter(|_| *is_like_kept && !retained).map(|kept| kept.changed());
        // HAProxy 2.6 crashes (a check of its own, ABORT_NOW) when STDERR comes among the parts of a response. It would
        // ignore the lines anyway.
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

    /// Returns the number of bytes of `input` that end STDIN of a request without a body, if that end follows the head
    /// at once. Then the connection can be closed with the response: no part of the request is unread.
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

/// Returns the stage of a record whose content has ended.
fn behind_content(header: Header) -> Stage {
    if header.padding > 0 { Stage::Padding(header.padding) } else { Stage::Header(0) }
}
