//! Assembly of a request head from decoded fields, by the rules of RFC 9113 sections 8.2 and 8.3 and those that all
//! protocols share.
//!
//! The fields are written as lines in the format of HTTP/1, so that all later code reads a single format: `:authority`
//! becomes `host`, and the parts of the cookie become one line (section 8.2.3). A head that breaks a rule is decoded to
//! its end to keep the compression state in step, but the rest of it is not stored.

use super::hpack::Literals;
use super::limits::{CRUMBS, HEAD_EXCESS};
use super::priority::Priority;
use crate::grammar::{decimal, is_space, is_token, is_value, list, target_end};
use crate::http1::FORBIDDEN_TRAILERS;
use crate::message::{
    BodyLength, Fault, Field, Keeping, Limits, PartialRequestLine, RequestHead, Target, Version, is_host,
};

/// The size that is counted for each field in addition to its name and value (RFC 9113 section 10.5.1).
const OVERHEAD: usize = 32;
/// The maximum length of a method, as in HTTP/1.
const METHOD: usize = 32;

/// The rule that a head breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadError {
    /// The request is malformed, so its stream is reset.
    Malformed,
    /// The request gets a response with the status of this fault.
    Fault(Fault),
}

/// A range in a buffer.
type Range = (usize, usize);

/// Scratch memory for reading heads. Connections use it one after the other, so that idle ones hold none.
#[derive(Debug, Default)]
pub struct HeadScratch {
    /// The head that was read last.
    pub(super) builder: RequestBuilder,
    pub(super) literals: Literals,
}

impl HeadScratch {
    /// Returns the part of the request line that could be read from the last head, for a log entry.
    #[must_use]
    pub fn partial_line(&self) -> Option<PartialRequestLine<'_>> {
        self.builder.partial_line()
    }
}

/// The fields of one head, or of one trailer section, while they are collected.
#[derive(Debug, Default)]
pub(super) struct RequestBuilder {
    /// The values of the pseudo-fields.
    pseudo: Vec<u8>,
    method: Option<Range>,
    scheme: Option<Range>,
    authority: Option<Range>,
    path: Option<Range>,
    protocol: Option<Range>,
    /// The field lines, and the blank line once the head is complete.
    block: Vec<u8>,
    fields: Vec<Field>,
    cookie: Vec<u8>,
    crumbs: usize,
    /// The size by RFC 9113 section 10.5.1, including fields that are not stored.
    size: usize,
    /// True if a field other than a pseudo-field has been read.
    has_regular: bool,
    has_host: bool,
    is_trailer: bool,
    /// True if the block is that of the kept head.
    is_repeated: bool,
    facts: HeadFacts,
    error: Option<HeadError>,
}

/// The facts that HTTP/2 itself needs from the fields.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadFacts {
    pub(super) content_length: Option<u64>,
    pub(super) expects_continue: bool,
    pub(super) takes_trailers: bool,
    pub(super) priority: Option<Priority>,
    pub(super) is_head: bool,
    /// True if the request is an extended CONNECT for a WebSocket.
    pub(super) is_websocket: bool,
}

/// The last kept head of a connection, with which later ones are compared.
#[derive(Debug, Default)]
pub(super) struct KeptHead {
    /// The block of the head; empty if none is kept.
    block: Vec<u8>,
    keeping: Keeping,
}

impl KeptHead {
    /// Releases the memory.
    pub(super) fn forget(&mut self) {
        self.block = Vec::new();
    }
}

impl RequestBuilder {
    /// Begins a head, or a trailer section.
    pub(super) fn begin(&mut self, is_trailer: bool) {
        for buffer in [&mut self.pseudo, &mut self.block, &mut self.cookie] {
            buffer.clear();
        }
        self.fields.clear();
        (self.method, self.scheme, self.authority, self.path, self.protocol) = (None, None, None, None, None);
        (self.crumbs, self.size, self.has_regular, self.has_host) = (0, 0, false, false);
        (self.is_trailer, self.is_repeated) = (is_trailer, false);
        (self.facts, self.error) = (HeadFacts::default(), None);
    }

    /// Returns the facts of the complete head.
    pub(super) fn facts(&self) -> HeadFacts {
        self.facts
    }

    /// Returns true if the head exceeds its limit so far that it is not decoded any further.
    pub(super) fn is_excessive(&self, limits: &Limits) -> bool {
        self.size > limits.head.saturating_mul(HEAD_EXCESS)
    }

    /// Adds a field.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8], limits: &Limits) {
        self.size += name.len() + value.len() + OVERHEAD;
        if self.error.is_some() {
            return;
        }
        if self.size > limits.head {
            let fault = if self.is_trailer { Fault::TrailersTooLarge } else { Fault::HeadTooLarge };
            self.error = Some(HeadError::Fault(fault));
        } else if let Err(error) = self.add(name, value, limits) {
            self.error = Some(error);
        }
    }

    fn add(&mut self, name: &[u8], value: &[u8], limits: &Limits) -> Result<(), HeadError> {
        if let [b':', ..] = name {
            return self.add_pseudo(name, value);
        }
        self.has_regular = true;
        // RFC 9113 section 8.2.1: a name is a token without upper-case letters.
        if !is_token(name) || name.iter().any(u8::is_ascii_uppercase) || !is_value(value) {
            return Err(HeadError::Malformed);
        }
        if value.first().is_some_and(|&byte| is_space(byte)) || value.last().is_some_and(|&byte| is_space(byte)) {
            return Err(HeadError::Malformed);
        }
        if name.len() + value.len() + 2 > limits.field_line {
            return Err(HeadError::Fault(Fault::FieldLineTooLong));
        }
        if name == b"cookie" && !self.is_trailer {
            return self.add_crumb(value, limits);
        }
        if self.fields.len() >= limits.fields {
            return Err(HeadError::Fault(Fault::FieldsTooMany));
        }
        if self.note(name, value)? {
            self.line(name, value);
        }
        Ok(())
    }

    /// Adds a part of the cookie (section 8.2.3).
    fn add_crumb(&mut self, value: &[u8], limits: &Limits) -> Result<(), HeadError> {
        self.crumbs += 1;
        if self.crumbs > CRUMBS {
            return Err(HeadError::Fault(Fault::FieldsTooMany));
        }
        if !self.cookie.is_empty() {
            self.cookie.extend_from_slice(b"; ");
        }
        self.cookie.extend_from_slice(value);
        let length = b"cookie: ".len() + self.cookie.len();
        if length > limits.field_line { Err(HeadError::Fault(Fault::FieldLineTooLong)) } else { Ok(()) }
    }

    /// Adds a pseudo-field (section 8.3.1): it must be known, not repeated, and before all other fields. Trailers have
    /// none.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), HeadError> {
        let place = match name {
            _ if self.has_regular || self.is_trailer => return Err(HeadError::Malformed),
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":authority" => &mut self.authority,
            b":path" => &mut self.path,
            b":protocol" => &mut self.protocol,
            _ => return Err(HeadError::Malformed),
        };
        let start = self.pseudo.len();
        self.pseudo.extend_from_slice(value);
        let is_repeated = place.replace((start, self.pseudo.len())).is_some();
        if is_repeated || !is_value(value) {
            return Err(HeadError::Malformed);
        }
        if name == b":authority" {
            self.has_host = true;
            self.line(b"host", value);
        }
        Ok(())
    }

    /// Evaluates a field that the protocol may need. Returns true if the field becomes a line of the head.
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<bool, HeadError> {
        match name {
            // Connection-specific fields are forbidden (section 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return Err(HeadError::Malformed);
            }
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => return Err(HeadError::Malformed),
            _ if self.is_trailer && FORBIDDEN_TRAILERS.contains(&name) => {
                return Err(HeadError::Fault(Fault::TrailerForbidden));
            }
            _ if self.is_trailer => {}
            b"te" => self.facts.takes_trailers = true,
            b"content-length" => {
                let length = decimal(value).ok_or(HeadError::Malformed)?;
                if self.facts.content_length.replace(length).is_some() {
                    return Err(HeadError::Malformed);
                }
            }
            b"host" => return self.note_host(value),
            b"expect" => {
                for member in list(value) {
                    if !member.eq_ignore_ascii_case(b"100-continue") {
                        return Err(HeadError::Fault(Fault::ExpectationUnknown));
                    }
                    self.facts.expects_continue = true;
                }
            }
            b"priority" => self.facts.priority = Some(Priority::read(value)),
            _ => {}
        }
        Ok(true)
    }

    /// Evaluates the field `host`. It may only repeat `:authority`; each of them must be a valid host (section 8.3.1).
    fn note_host(&mut self, value: &[u8]) -> Result<bool, HeadError> {
        match self.authority {
            Some((start, end)) if self.pseudo[start..end].eq_ignore_ascii_case(value) => Ok(false),
            Some(_) => Err(HeadError::Malformed),
            None if std::mem::replace(&mut self.has_host, true) => Err(HeadError::Fault(Fault::HostRepeated)),
            None if is_host(value) => Ok(true),
            None => Err(HeadError::Fault(Fault::HostInvalid)),
        }
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        let line = offset(self.block.len());
        self.block.extend_from_slice(name);
        let name_end = offset(self.block.len());
        self.block.extend_from_slice(b": ");
        let start = offset(self.block.len());
        self.block.extend_from_slice(value);
        self.fields.push(Field { line, name_end, value: start, value_end: offset(self.block.len()) });
        self.block.extend_from_slice(b"\r\n");
    }

    /// Ends a trailer section.
    ///
    /// # Errors
    /// The rule that the section breaks.
    pub(super) fn finish_trailers(&self) -> Result<(), HeadError> {
        self.error.map_or(Ok(()), Err)
    }

    /// Ends a head, and checks the rules that concern all of it. `is_whole`: no body follows; `takes_websockets`: an
    /// extended CONNECT may ask for a WebSocket; `kept`: a valid head, whose host is not checked again.
    ///
    /// # Errors
    /// The rule that the head breaks.
    pub(super) fn finish(
        &mut self,
        is_whole: bool,
        takes_websockets: bool,
        kept: &KeptHead,
        limits: &Limits,
    ) -> Result<BodyLength, HeadError> {
        if !self.cookie.is_empty() {
            let cookie = std::mem::take(&mut self.cookie);
            self.line(b"cookie", &cookie);
            self.cookie = cookie;
        }
        self.block.extend_from_slice(b"\r\n");
        self.is_repeated = kept.block == self.block;
        self.facts.is_head = self.method.is_some_and(|range| self.part(range) == b"HEAD");
        if let Some(error) = self.error {
            return Err(error);
        }
        let (Some(method), path, scheme) = (self.method, self.path, self.scheme) else {
            return Err(HeadError::Malformed);
        };
        let method = self.part(method);
        if !is_token(method) {
            return Err(HeadError::Malformed);
        }
        if method.len() > METHOD {
            return Err(HeadError::Fault(Fault::MethodTooLong));
        }
        if method == b"CONNECT" && self.protocol.is_none() {
            // CONNECT has neither `:scheme` nor `:path` (section 8.5).
            let is_malformed = path.is_some() || scheme.is_some() || self.authority.is_none();
            return Err(if is_malformed { HeadError::Malformed } else { HeadError::Fault(Fault::ConnectRefused) });
        }
        let (Some(path), Some(scheme)) = (path, scheme) else { return Err(HeadError::Malformed) };
        // `:protocol` is allowed only with CONNECT, and only if this server's settings allow it (RFC 8441 sections 3
        // and 4).
        let is_websocket = match self.protocol.map(|range| self.part(range)) {
            None => false,
            Some(_) if !takes_websockets || method != b"CONNECT" => return Err(HeadError::Malformed),
            Some(protocol) if !protocol.eq_ignore_ascii_case(b"websocket") => {
                return Err(HeadError::Fault(Fault::ConnectRefused));
            }
            Some(_) => true,
        };
        // The path of a WebSocket request is checked like that of a GET.
        let target_method: &[u8] = if is_websocket { b"GET" } else { method };
        let (path, scheme) = (self.part(path), self.part(scheme));
        if path.is_empty() {
            return Err(HeadError::Malformed);
        }
        if !matches!(path, b"*" | [b'/', ..]) {
            return Err(HeadError::Malformed);
        }
        if method.len() + path.len() + b"  HTTP/2.0".len() > limits.request_line {
            return Err(HeadError::Fault(Fault::RequestLineTooLong));
        }
        if target_end(path, 0) < path.len() {
            return Err(HeadError::Malformed);
        }
        if !(scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https")) {
            return Err(HeadError::Fault(Fault::TargetFormInvalid));
        }
        Target::read(path, target_method).map_err(HeadError::Fault)?;
        self.check_authority()?;
        self.facts.is_websocket = is_websocket;
        self.body_length(is_whole, limits)
    }

    fn check_authority(&self) -> Result<(), HeadError> {
        match self.authority {
            None if self.has_host => Ok(()),
            None => Err(HeadError::Fault(Fault::HostMissing)),
            Some(range) => match self.part(range) {
                // A request for http or https has a non-empty host and no user name (section 8.3.1).
                authority if authority.is_empty() || authority.contains(&b'@') => Err(HeadError::Malformed),
                authority if !self.is_repeated && !is_host(authority) => Err(HeadError::Fault(Fault::HostInvalid)),
                _ => Ok(()),
            },
        }
    }

    fn body_length(&self, is_whole: bool, limits: &Limits) -> Result<BodyLength, HeadError> {
        match self.facts.content_length {
            Some(0) | None if is_whole => Ok(BodyLength::None),
            // Section 8.1.1: the declared length does not match the missing body.
            Some(_) if is_whole => Err(HeadError::Malformed),
            Some(length) if length > limits.body => Err(HeadError::Fault(Fault::BodyTooLarge)),
            Some(length) => Ok(BodyLength::Known(length)),
            None => Ok(BodyLength::Unknown),
        }
    }

    /// See [`HeadScratch::partial_line`].
    fn partial_line(&self) -> Option<PartialRequestLine<'_>> {
        let method = self.method.map(|range| self.part(range)).filter(|method| is_token(method))?;
        let path = self.path.map_or(&b""[..], |range| self.part(range));
        let end = target_end(path, 0);
        let (target, is_cut) = (&path[..end], end < path.len());
        Some(PartialRequestLine { method, target, is_cut, version: Some(Version::Http2) })
    }

    fn part(&self, (start, end): Range) -> &[u8] {
        &self.pseudo[start..end]
    }

    /// Returns the head after [`finish`](Self::finish) has checked it. `stream` is its stream.
    pub(super) fn head(&self, stream: u32, body: BodyLength, kept: &mut KeptHead) -> RequestHead<'_> {
        let is_repeated = self.is_repeated;
        let retained = kept.keeping.keeps(is_repeated);
        if retained {
            kept.block.clone_from(&self.block);
        }
        let part = |range: Option<Range>| range.map_or(&b""[..], |(start, end)| &self.pseudo[start..end]);
        let method = part(self.method);
        let path = part(self.path);
        let is_websocket = self.facts.is_websocket;
        let target_method: &[u8] = if is_websocket { b"GET" } else { method };
        let target = Target::read(path, target_method).expect("the path has been checked");
        RequestHead {
            stream: Some(stream),
            method,
            target,
            version: Version::Http2,
            block: &self.block,
            fields: &self.fields,
            body,
            is_cgi: false,
            is_websocket,
            is_https: Some(part(self.scheme).eq_ignore_ascii_case(b"https")),
            takes_errors: false,
            changed: is_repeated.then_some(&[]),
            retained,
            kept: kept.keeping.kept(),
            client: None,
        }
    }
}

/// Converts an offset in a block. The limits keep a block far below 4 GiB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).expect("a head is bounded")
}
