//! Field blocks: the lines after a request line or status line, up to and including the blank line. Client and server
//! read blocks alike, and determine from the fields how the message is framed.
//!
//! # The result does not depend on how the input is split
//!
//! However the bytes are split, a complete block gives the same fields or the same [`Fault`], for two reasons. Each
//! rule depends only on the bytes up to some position; while the byte there is missing, the line is incomplete. And
//! each limit is applied *before* parsing, so a line beyond the limit is too long whatever it contains.
//!
//! # Work is linear in the input
//!
//! [`Progress`] stores where the incomplete line begins. Bytes of that line are scanned for a line feed once. A line is
//! parsed when it is complete, and the whole block is parsed again when its blank line has arrived.

use super::fields::{Line, field_line};
use crate::grammar::{decimal, is_token, line_feed, list};
use crate::message::{Fault, Field, Limits, Version};

/// The facts that only one role (client or server) reads from a block, in addition to [`Facts`].
pub(super) trait Own: Copy + Default {
    fn learn(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault>;
}

/// The state of reading an incomplete head.
///
/// Lines before `line` are complete and valid; `block <= line <= seen`.
#[derive(Debug, Default)]
pub(super) struct Progress<O> {
    /// The number of bytes examined. If it is 0, the other fields have no meaning.
    seen: usize,
    /// The start of the block; 0 while the first line is incomplete.
    block: usize,
    /// The start of the first incomplete line.
    line: usize,
    /// Number of field lines before `line`.
    fields: usize,
    /// The facts from the field lines before `line`.
    facts: Facts<O>,
}

impl<O: Own> Progress<O> {
    /// Returns true if no byte of the head has been examined.
    pub(super) fn is_fresh(&self) -> bool {
        self.seen == 0
    }

    /// Prepares for the next head, after a complete one.
    pub(super) fn reset(&mut self) {
        self.seen = 0;
    }

    /// Records that the first line was examined and is incomplete.
    pub(super) fn wait_for_first_line(&mut self, input: &[u8]) {
        *self = Self { seen: input.len(), ..Self::default() };
    }

    /// Examines the new bytes. Returns true if the caller should now try to read the head. `first_line` is the maximum
    /// length of the first line.
    pub(super) fn advance(&mut self, input: &[u8], first_line: usize, limits: &Limits) -> Result<bool, Fault> {
        let has_line_end = line_feed(&input[self.seen..]).is_some();
        self.seen = input.len();
        if self.block == 0 {
            return Ok(has_line_end || input.len() > first_line + 2);
        }
        let block = &input[self.block..];
        let line_length = input.len() - self.line;
        if !has_line_end && line_length <= limits.field_line + 2 && block.len() <= limits.head {
            return Ok(false);
        }
        let bounded = &block[..block.len().min(limits.head)];
        loop {
            match field_line(bounded, self.line - self.block, limits.field_line)? {
                Line::Field(field, next) => {
                    if self.fields == limits.fields {
                        return Err(Fault::FieldsTooMany);
                    }
                    self.facts.learn(field.name(bounded), field.value(bounded))?;
                    self.line = self.block + next;
                    self.fields += 1;
                    debug_assert!(self.block <= self.line && self.line <= self.seen, "a line that was seen is parsed");
                }
                Line::End(_) => return Ok(true),
                Line::Partial if block.len() > limits.head => return Err(Fault::HeadTooLarge),
                Line::Partial => return Ok(false),
            }
        }
    }

    /// Reads the block that begins at `start` of `input`. Returns the facts of the block and its length; `None` if it
    /// is incomplete.
    #[inline]
    pub(super) fn scan(
        &mut self,
        input: &[u8],
        start: usize,
        fields: &mut Vec<Field>,
        limits: &Limits,
    ) -> Result<Option<(Facts<O>, usize)>, Fault> {
        let block = &input[start..];
        let bounded = &block[..block.len().min(limits.head)];
        fields.clear();
        let mut facts = Facts::default();
        let mut at = 0;
        loop {
            match field_line(bounded, at, limits.field_line)? {
                Line::Field(field, next) => {
                    if fields.len() == limits.fields {
                        return Err(Fault::FieldsTooMany);
                    }
                    facts.learn(field.name(bounded), field.value(bounded))?;
                    fields.push(field);
                    at = next;
                }
                Line::End(end) => return Ok(Some((facts, end))),
                Line::Partial if block.len() > limits.head => return Err(Fault::HeadTooLarge),
                Line::Partial => {
                    *self = Self { seen: input.len(), block: start, line: start + at, fields: fields.len(), facts };
                    debug_assert!(self.block <= self.line && self.line <= self.seen, "a line that was seen is parsed");
                    return Ok(None);
                }
            }
        }
    }
}

/// The facts in a block about the framing of its message and about the connection. Requests and responses share them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts<O> {
    pub(super) content_length: Option<u64>,
    pub(super) has_transfer_encoding: bool,
    pub(super) chunked: bool,
    unsupported_coding: bool,
    close: bool,
    keep_alive: bool,
    pub(super) own: O,
}

impl<O: Own> Facts<O> {
    #[inline]
    fn learn(&mut self, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for member in list(value) {
                    self.close |= member.eq_ignore_ascii_case(b"close");
                    self.keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = decimal(value).ok_or(Fault::ContentLengthInvalid)?;
                if self.content_length.replace(length).is_some() {
                    return Err(Fault::ContentLengthRepeated);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.learn_codings(value)?,
            _ => self.own.learn(name, value)?,
        }
        Ok(())
    }

    /// Learns from a line whose value differs from that in the kept block. Returns `None` if the effect of the former
    /// value cannot be undone.
    pub(super) fn relearn(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        if name.eq_ignore_ascii_case(b"content-length") {
            self.content_length = None;
            return self.learn(name, value).ok();
        }
        let is_lasting = [&b"host"[..], b"expect", b"connection", b"transfer-encoding", b"te"]
            .iter()
            .any(|lasting| name.eq_ignore_ascii_case(lasting));
        (!is_lasting).then_some(())
    }

    fn learn_codings(&mut self, value: &[u8]) -> Result<(), Fault> {
        self.has_transfer_encoding = true;
        let mut empty = true;
        for coding in list(value) {
            empty = false;
            // Chunked must be applied exactly once, and last (RFC 9112 section 6.1).
            if self.chunked {
                return Err(Fault::TransferEncodingInvalid);
            }
            if coding.eq_ignore_ascii_case(b"chunked") {
                self.chunked = true;
            } else if coding.split(|&b| b == b';').next().is_some_and(|name| is_token(name.trim_ascii_end())) {
                self.unsupported_coding = true;
            } else {
                return Err(Fault::TransferEncodingInvalid);
            }
        }
        if empty { Err(Fault::TransferEncodingInvalid) } else { Ok(()) }
    }

    /// Checks the rules of RFC 9112 section 6.1 that concern several fields.
    pub(super) fn check(&self, version: Version) -> Result<(), Fault> {
        if self.has_transfer_encoding {
            if version == Version::Http10 {
                return Err(Fault::TransferEncodingOnHttp10);
            }
            if self.content_length.is_some() {
                return Err(Fault::TransferEncodingWithContentLength);
            }
            if self.unsupported_coding {
                return Err(Fault::TransferEncodingUnsupported);
            }
        }
        Ok(())
    }

    /// Returns true if the connection stays open by RFC 9112 section 9.3.
    pub(super) fn keeps_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}
