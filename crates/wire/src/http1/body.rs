//! Bodies of requests and responses (RFC 9112 sections 6 and 7).

use super::fields::{Line, field_line};
use super::limits;
use crate::grammar::{is_space, is_token_byte, line_feed};
use crate::message::{BodyLength, Fault, Limits};

/// The result of one step through a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStep<'a> {
    /// Decoded bytes of the body, never empty.
    Data(&'a [u8]),
    /// A trailer field, checked like a field of a head.
    Trailer {
        /// The name as received.
        name: &'a [u8],
        /// The value without white space around it.
        value: &'a [u8],
    },
    /// The body has ended; the next byte belongs to the next message.
    End,
    /// More input is needed. The caller must pass the unused bytes again, followed by new ones.
    More,
}

/// A reader that removes the framing of one body after another.
#[derive(Debug, Default)]
pub(super) struct BodyReader {
    state: State,
    /// Data bytes so far: the sum of the chunk sizes, or the length received of a body that ends with the connection.
    received: u64,
    /// Bytes of chunk extensions, or of trailer lines, so far.
    overhead: usize,
    trailers: usize,
    /// The number of bytes at the front of the input that are known to contain no line feed and belong to an incomplete
    /// line.
    seen: usize,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Over,
    /// The number of bytes that remain of the Content-Length.
    Length(u64),
    ChunkSize,
    /// The number of bytes that remain of a chunk.
    Chunk(u64),
    /// The CRLF after a chunk's data.
    ChunkEnd,
    Trailers,
    /// The body of a response without a length: it ends when the connection closes.
    UntilClose,
}

/// Trailers that would change framing or routing if they were obeyed (RFC 9110 section 6.5.1).
pub(crate) const FORBIDDEN_TRAILERS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];

impl BodyReader {
    /// Starts reading the body of a request. A body of unknown length is chunked.
    pub(super) fn begin(&mut self, length: BodyLength) {
        *self = Self::default();
        self.state = match length {
            BodyLength::None | BodyLength::Known(0) => State::Over,
            BodyLength::Known(length) => State::Length(length),
            BodyLength::Unknown => State::ChunkSize,
        };
    }

    pub(super) fn begin_until_close(&mut self) {
        *self = Self { state: State::UntilClose, ..Self::default() };
    }

    pub(super) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Handles the end of the connection. Returns true if the body is complete.
    pub(super) fn end_of_input(&mut self) -> bool {
        if self.state == State::UntilClose {
            self.state = State::Over;
        }
        self.is_over()
    }

    pub(super) fn step<'a>(&mut self, input: &'a [u8], limits: &Limits) -> Result<(usize, BodyStep<'a>), Fault> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match self.state {
                State::Over => return Ok((used, BodyStep::End)),
                _ if rest.is_empty() => return Ok((used, BodyStep::More)),
                State::Length(left) => {
                    let data = take(rest, left);
                    self.state = match left - data.len() as u64 {
                        0 => State::Over,
                        left => State::Length(left),
                    };
                    return Ok((used + data.len(), BodyStep::Data(data)));
                }
                State::Chunk(left) => {
                    let data = take(rest, left);
                    self.state = match left - data.len() as u64 {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    return Ok((used + data.len(), BodyStep::Data(data)));
                }
                State::ChunkEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        self.state = State::ChunkSize;
                        used += 2;
                    }
                    [b'\r'] => return Ok((used, BodyStep::More)),
                    _ => return Err(Fault::ChunkEndMissing),
                },
                State::UntilClose if self.received >= limits.body => return Err(Fault::BodyTooLarge),
                State::UntilClose => {
                    let data = take(rest, limits.body - self.received);
                    self.received += data.len() as u64;
                    return Ok((used + data.len(), BodyStep::Data(data)));
                }
                State::ChunkSize => match self.chunk_size(rest, limits)? {
                    Some((size, length)) => {
                        self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                        self.overhead = if size == 0 { 0 } else { self.overhead };
                        used += length;
                    }
                    None => return Ok((used, BodyStep::More)),
                },
                State::Trailers => return self.trailer(input, used, limits),
            }
        }
    }

    /// Returns true if the line at the front of `rest` is incomplete and not longer than `most`. Bytes without a line
    /// feed are examined only once.
    fn waits_for_line(&mut self, rest: &[u8], most: usize) -> bool {
        let seen = std::mem::take(&mut self.seen);
        let waits = seen > 0 && rest.len() <= most && line_feed(&rest[seen..]).is_none();
        if waits {
            self.seen = rest.len();
        }
        waits
    }

    /// Reads chunk-size [ chunk-ext ] CRLF. Returns the size and the length of the line; `None` if the line is
    /// incomplete.
    fn chunk_size(&mut self, input: &[u8], limits: &Limits) -> Result<Option<(u64, usize)>, Fault> {
        /// The maximum length of a chunk-size line with its CRLF.
        const CHUNK_LINE: usize = limits::CHUNK_LINE + 2;
        if self.waits_for_line(input, CHUNK_LINE - 1) {
            return Ok(None);
        }
        let digits = input.iter().take(17).take_while(|b| b.is_ascii_hexdigit()).count();
        #[cfg(test)]
        crate::grammar::examined::add(digits + 1);
        if digits == 0 {
            return Err(if input[0] == b'\n' { Fault::BareLineFeed } else { Fault::ChunkSizeInvalid });
        }
        if digits > 16 {
            return Err(Fault::ChunkSizeTooLarge);
        }
        let feed = if let [b'\r', b'\n', ..] = input[digits..] {
            // Nearly all chunk-size lines have no extension, and they make up most of a body in tiny chunks.
            #[cfg(test)]
            crate::grammar::examined::add(1);
            digits + 1
        } else {
            let Some(feed) = line_feed(&input[..input.len().min(CHUNK_LINE)]) else {
                self.seen = input.len();
                return if input.len() >= CHUNK_LINE { Err(Fault::ChunkLineTooLong) } else { Ok(None) };
            };
            let [extensions @ .., b'\r'] = &input[digits..feed] else { return Err(Fault::BareLineFeed) };
            if memchr::memchr(b'\r', extensions).is_some() {
                return Err(Fault::BareCarriageReturn);
            }
            check_extensions(extensions)?;
            self.overhead += extensions.len();
            if self.overhead > limits::CHUNK_OVERHEAD {
                return Err(Fault::ChunkLineTooLong);
            }
            feed
        };
        let size = input[..digits].iter().fold(0u64, |size, &digit| size << 4 | u64::from(hex_value(digit)));
        if size > limits.body {
            return Err(Fault::ChunkSizeTooLarge);
        }
        self.received = self.received.saturating_add(size);
        if self.received > limits.body {
            return Err(Fault::BodyTooLarge);
        }
        Ok(Some((size, feed + 1)))
    }

    fn trailer<'a>(&mut self, input: &'a [u8], used: usize, limits: &Limits) -> Result<(usize, BodyStep<'a>), Fault> {
        let block = &input[used..];
        // This cannot underflow: a line that exceeded the limit was refused while it was incomplete.
        let left = limits::TRAILERS - self.overhead;
        if self.waits_for_line(block, left.min(limits.field_line + 2)) {
            return Ok((used, BodyStep::More));
        }
        let bounded = &block[..block.len().min(left)];
        let line = field_line(bounded, 0, limits.field_line).map_err(|fault| match fault {
            Fault::SpaceBeforeFirstField if self.trailers > 0 => Fault::LineFolded,
            fault => fault,
        })?;
        match line {
            Line::Field(field, next) => {
                self.trailers += 1;
                self.overhead += next;
                if self.trailers > limits.fields {
                    return Err(Fault::FieldsTooMany);
                }
                if FORBIDDEN_TRAILERS.iter().any(|name| field.is(bounded, name)) {
                    return Err(Fault::TrailerForbidden);
                }
                Ok((used + next, BodyStep::Trailer { name: field.name(bounded), value: field.value(bounded) }))
            }
            Line::End(end) => {
                self.state = State::Over;
                Ok((used + end, BodyStep::End))
            }
            Line::Partial if block.len() > left => Err(Fault::TrailersTooLarge),
            Line::Partial => {
                self.seen = block.len();
                Ok((used, BodyStep::More))
            }
        }
    }
}

fn take(input: &[u8], most: u64) -> &[u8] {
    &input[..usize::try_from(most).map_or(input.len(), |most| most.min(input.len()))]
}

fn hex_value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Checks *( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] ) (RFC 9112 section 7.1.1). Extensions are
/// ignored, as the RFC asks, but must be well-formed, because request smuggling uses malformed ones.
fn check_extensions(mut rest: &[u8]) -> Result<(), Fault> {
    while !rest.is_empty() {
        rest = skip_space(rest).strip_prefix(b";").ok_or(Fault::ChunkExtensionInvalid)?;
        rest = skip_token(skip_space(rest))?;
        if let Some(value) = skip_space(rest).strip_prefix(b"=") {
            let value = skip_space(value);
            rest = match value.strip_prefix(b"\"") {
                Some(quoted) => skip_quoted(quoted)?,
                None => skip_token(value)?,
            };
        }
    }
    Ok(())
}

fn skip_space(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().take_while(|&&b| is_space(b)).count();
    &bytes[spaces..]
}

fn skip_token(bytes: &[u8]) -> Result<&[u8], Fault> {
    match bytes.iter().take_while(|&&b| is_token_byte(b)).count() {
        0 => Err(Fault::ChunkExtensionInvalid),
        length => Ok(&bytes[length..]),
    }
}

/// Returns the bytes after the closing quote of a quoted-string (RFC 9110 section 5.6.4). `rest` begins after the
/// opening quote.
fn skip_quoted(mut rest: &[u8]) -> Result<&[u8], Fault> {
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Ok(after),
            [b'\\', escaped, after @ ..] if crate::grammar::is_value(&[*escaped]) => after,
            [b'\\', ..] | [] => return Err(Fault::ChunkExtensionInvalid),
            [byte, after @ ..] if crate::grammar::is_value(&[*byte]) => after,
            _ => return Err(Fault::ChunkExtensionInvalid),
        };
    }
}
