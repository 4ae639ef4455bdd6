//! The reading side of the server: heads here, bodies in [`super::body`].

use super::block::{Facts, Own, Progress};
use super::body::{BodyReader, BodyStep};
use super::limits;
use super::repeat::Repeat;
use super::version::version;
use crate::grammar::{line_feed, list, target_end, token_end};
use crate::message::{
    BodyLength, Fault, Field, Keeping, Limits, PartialRequestLine, RequestHead, Target, Version, is_host,
};
use crate::other_protocols;

/// The head of one request, borrowed from the input and the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The parts of the head that all protocols have.
    pub request: RequestHead<'a>,
    /// True if the peer allows further requests on this connection.
    pub keep_alive: bool,
    /// True if the peer waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// True if the peer accepts trailers after the body of the response (`TE: trailers`, RFC 9110 section 10.1.4).
    pub takes_trailers: bool,
    /// The length of the head in the input, in bytes.
    pub length: usize,
}

/// A reader of the requests of one connection. The calls follow the order *head, body until its end, head, …*.
///
/// It must not be called again after a [`Fault`]. It is small, because each of ten thousand idle connections has one.
/// For the same reason the caller owns the table of field positions and shares it among connections.
#[derive(Debug, Default)]
pub struct Receiver {
    body: BodyReader,
    progress: Progress<RequestFacts>,
    kept: Option<Box<Kept>>,
    keeping: Keeping,
    /// True if the method of the current request is HEAD.
    is_head: bool,
}

/// A kept head, with which the next one is compared.
#[derive(Debug)]
struct Kept {
    version: Version,
    repeat: Repeat<RequestFacts>,
}

/// The facts that only requests have.
#[derive(Clone, Copy, Debug, Default)]
struct RequestFacts {
    has_host: bool,
    expectation: Expectation,
    takes_trailers: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expectation {
    #[default]
    None,
    Continue,
    Unknown,
}

impl Receiver {
    /// Reads a head from the front of `input`. Returns `None` if it is incomplete.
    ///
    /// `input` must begin with the bytes of the last call, if that returned `None`. `fields` is scratch space.
    ///
    /// # Errors
    /// The rule that the peer broke, at the latest when the line that breaks it is complete.
    pub fn head<'a>(
        &'a mut self,
        input: &'a [u8],
        fields: &'a mut Vec<Field>,
        limits: &Limits,
    ) -> Result<Option<Head<'a>>, Fault> {
        if !self.progress.is_fresh() && !self.progress.advance(input, limits.request_line, limits)? {
            return Ok(None);
        }
        let Some(start) = skip_empty_lines(input)? else { return Ok(None) };
        let line = match request_line(&input[start..], limits) {
            Ok(Some(line)) => line,
            Ok(None) => {
                self.progress.wait_for_first_line(input);
                return Ok(None);
            }
            Err(fault) => return other_protocols::on_http(input, fault).map_or(Ok(None), Err),
        };
        self.is_head = line.method == b"HEAD";
        let block_start = start + line.length;
        let block = &input[block_start..];
        let known = self
            .kept
            .as_deref_mut()
            .filter(|kept| kept.version == line.version)
            .and_then(|kept| kept.repeat.compare(block, fields, limits));
        let is_like_kept = known.is_some();
        let is_repeated = is_like_kept && self.kept.as_deref().is_some_and(|kept| kept.repeat.changed().is_empty());
        let (facts, block_length) = if let Some(known) = known {
            known
        } else {
            let Some((facts, length)) = self.progress.scan(input, block_start, fields, limits)? else {
                return Ok(None);
            };
            check(&facts, line.version)?;
            (facts, length)
        };
        let retained = self.keeping.keeps(is_repeated);
        if retained {
            self.keep(line.version, &block[..block_length], fields, facts);
        }
        if line.method == b"CONNECT" {
            return Err(Fault::ConnectRefused);
        }
        let target = Target::read(line.target, line.method)?;
        let body = body_length(&facts, limits)?;
        self.body.begin(body);
        self.progress.reset();
        self.is_head = false;
        let (fields, changed): (&[Field], _) = match &self.kept {
            Some(kept) if is_repeated => (kept.repeat.fields(), Some(kept.repeat.changed())),
            Some(kept) if is_like_kept && !retained => (fields, Some(kept.repeat.changed())),
            _ => (fields, None),
        };
        Ok(Some(Head {
            request: RequestHead {
                stream: None,
                method: line.method,
                target,
                version: line.version,
                block: &block[..block_length],
                fields,
                body,
                is_cgi: false,
                is_websocket: false,
                is_https: None,
                takes_errors: false,
                changed,
                retained,
                kept: self.keeping.kept(),
                client: None,
            },
            keep_alive: facts.keeps_alive(line.version),
            expects_continue: facts.own.expectation == Expectation::Continue && line.version == Version::Http11,
            takes_trailers: facts.own.takes_trailers && line.version == Version::Http11,
            length: block_start + block_length,
        }))
    }

    /// Returns true if the current head, malformed or incomplete, has the method HEAD. Then the response to it must not
    /// have a body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// Takes the next step through the body of the last head. Returns the number of bytes used of `input`, and their
    /// meaning. The caller repeats this until [`BodyStep::End`]; [`BodyStep::More`] asks for more input.
    ///
    /// # Errors
    /// The rule that the peer broke.
    pub fn body<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(usize, BodyStep<'a>), Fault> {
        self.body.step(input, limits)
    }

    /// Returns true if the body of the last head has ended.
    #[must_use]
    pub fn is_body_over(&self) -> bool {
        self.body.is_over()
    }

    /// Handles the end of the input. `rest` is the bytes that belong to no complete message.
    ///
    /// # Errors
    /// [`Fault::Truncated`] within a message.
    pub fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        let between_messages = self.body.is_over() && rest.iter().all(|b| matches!(b, b'\r' | b'\n'));
        if between_messages { Ok(()) } else { Err(Fault::Truncated) }
    }

    /// Releases memory that only saves work. Called for idle connections; the next head is then parsed in full.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    fn keep(&mut self, version: Version, block: &[u8], fields: &[Field], facts: Facts<RequestFacts>) {
        self.kept = Some(Box::new(Kept { version, repeat: Repeat::new(block, fields, facts) }));
    }
}

/// Returns whether the request at the front of `input` is a GET or HEAD of `path`, with any query; `None` if there are
/// too few bytes to decide. It validates nothing, which only [`Receiver::head`] does, and does not recognise a target
/// that is an absolute URI.
#[must_use]
pub fn glance(input: &[u8], path: &[u8]) -> Option<bool> {
    let fits = |method: &[u8]| {
        let known = input.len().min(method.len());
        if input[..known] != method[..known] {
            return Some(false);
        }
        let target = &input[known..];
        let known = target.len().min(path.len());
        if target[..known] != path[..known] {
            return Some(false);
        }
        target.get(path.len()).map(|&behind| matches!(behind, b' ' | b'?'))
    };
    Some(fits(b"GET ")? || fits(b"HEAD ")?)
}

/// Reads as much as possible of the request line at the front of `input`. Returns `None` if `input` does not begin with
/// a method.
#[must_use]
pub fn partial_request_line(input: &[u8]) -> Option<PartialRequestLine<'_>> {
    let line = &input[skip_empty_lines(input).ok()??..];
    let method_end = token_end(&line[..line.len().min(limits::METHOD + 1)], 0);
    if method_end == 0 || line.get(method_end) != Some(&b' ') {
        return None;
    }
    let target_start = method_end + 1;
    let stop = target_end(line, target_start);
    let behind = line.get(stop + 1..).and_then(|rest| rest.split_first_chunk::<10>());
    let version = behind.and_then(|(line, _)| line.strip_suffix(b"\r\n")).and_then(|text| version(text).ok());
    Some(PartialRequestLine {
        method: &line[..method_end],
        target: &line[target_start..stop],
        is_cut: line.get(stop) != Some(&b' '),
        version,
    })
}

/// Skips empty lines before a request line: a server ignores at least one (RFC 9112 section 2.2). Returns the position
/// after them; `None` if more of them may follow.
fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, Fault> {
    let mut at = 0;
    for _ in 0..=limits::EMPTY_LINES {
        match (input.get(at), input.get(at + 1)) {
            (Some(b'\n'), _) => return Err(Fault::BareLineFeed),
            (Some(b'\r'), Some(b'\n')) => at += 2,
            (Some(b'\r'), None) | (None, _) => return Ok(None),
            (Some(b'\r'), Some(_)) => return Err(Fault::BareCarriageReturn),
            (Some(_), _) => return Ok(Some(at)),
        }
    }
    Err(Fault::RequestLineMalformed)
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    version: Version,
    length: usize,
}

/// Reads method SP request-target SP HTTP-version CRLF (RFC 9112 section 3).
fn request_line<'a>(input: &'a [u8], limits: &Limits) -> Result<Option<RequestLine<'a>>, Fault> {
    let partial = || {
        if input.len() > limits.request_line + 1 { Err(Fault::RequestLineTooLong) } else { Ok(None) }
    };
    let method_end = token_end(&input[..input.len().min(limits::METHOD + 1)], 0);
    if method_end > limits::METHOD {
        return Err(Fault::MethodTooLong);
    }
    match input.get(method_end) {
        Some(b' ') if method_end > 0 => {}
        Some(b' ' | b'\r' | b'\n') => return Err(Fault::RequestLineMalformed),
        Some(_) => return Err(Fault::MethodInvalid),
        None => return partial(),
    }
    let target_start = method_end + 1;
    let stop = target_end(input, target_start);
    if stop > limits.request_line {
        return Err(Fault::RequestLineTooLong);
    }
    match input.get(stop) {
        Some(b' ') if stop > target_start => {}
        Some(b' ' | b'\r' | b'\n') => return Err(Fault::RequestLineMalformed),
        Some(_) => return Err(Fault::TargetInvalid),
        None => return partial(),
    }
    let version_start = stop + 1;
    let (version, length) = match input.get(version_start..).and_then(|rest| rest.first_chunk::<10>()) {
        Some(b"HTTP/1.1\r\n") => (Version::Http11, version_start + 10),
        Some(b"HTTP/1.0\r\n") => (Version::Http10, version_start + 10),
        _ => match unusual_version(&input[version_start..], (limits.request_line + 2).saturating_sub(version_start))? {
            Some((version, length)) => (version, version_start + length),
            None => return partial(),
        },
    };
    if length - 2 > limits.request_line {
        return Err(Fault::RequestLineTooLong);
    }
    Ok(Some(RequestLine { method: &input[..method_end], target: &input[target_start..stop], version, length }))
}

/// Reads the rest of the request line after the target, if its version is neither of the two usual ones. Returns `None`
/// if the line is incomplete. `most` is the maximum length of this part; a longer one never counts as complete.
fn unusual_version(rest: &[u8], most: usize) -> Result<Option<(Version, usize)>, Fault> {
    let rest = &rest[..rest.len().min(most)];
    let Some(feed) = line_feed(rest) else { return Ok(None) };
    let [line @ .., b'\r'] = &rest[..feed] else { return Err(Fault::BareLineFeed) };
    match version(line) {
        Ok(version) => Ok(Some((version, feed + 1))),
        Err(Fault::VersionMalformed) if line.contains(&b'\r') => Err(Fault::BareCarriageReturn),
        Err(Fault::VersionMalformed) if line.contains(&b' ') => Err(Fault::RequestLineMalformed),
        Err(fault) => Err(fault),
    }
}

impl Own for RequestFacts {
    #[inline]
    fn learn(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => {
                self.takes_trailers |= list(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            }
            4 if name.eq_ignore_ascii_case(b"host") => {
                if std::mem::replace(&mut self.has_host, true) {
                    return Err(Fault::HostRepeated);
                }
                if !is_host(value) {
                    return Err(Fault::HostInvalid);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                for member in list(value) {
                    self.expectation = match self.expectation {
                        Expectation::Unknown => Expectation::Unknown,
                        _ if member.eq_ignore_ascii_case(b"100-continue") => Expectation::Continue,
                        _ => Expectation::Unknown,
                    };
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Checks the rules that concern the whole block.
fn check(facts: &Facts<RequestFacts>, version: Version) -> Result<(), Fault> {
    if version == Version::Http11 && !facts.own.has_host {
        return Err(Fault::HostMissing);
    }
    facts.check(version)?;
    // The expectation of an HTTP/1.0 peer is ignored (RFC 9110 section 10.1.1).
    if facts.own.expectation == Expectation::Unknown && version == Version::Http11 {
        return Err(Fault::ExpectationUnknown);
    }
    Ok(())
}

/// Returns the length of the body by RFC 9112 section 6.
fn body_length(facts: &Facts<RequestFacts>, limits: &Limits) -> Result<BodyLength, Fault> {
    match facts.content_length {
        _ if facts.chunked => Ok(BodyLength::Unknown),
        Some(length) if length > limits.body => Err(Fault::BodyTooLarge),
        Some(length) => Ok(BodyLength::Known(length)),
        None => Ok(BodyLength::None),
    }
}
