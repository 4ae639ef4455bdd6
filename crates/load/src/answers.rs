//! A strict parser for consecutive responses, whose bytes may arrive in any pieces.

use sha2::{Digest as _, Sha256};
use wire::http1::BodyStep;
use wire::http1::client::{Body, Receiver, Reply, ServerFault};
use wire::message::{Field, Limits};

/// A SHA-256 hash of a body.
pub type Hash = [u8; 32];

/// The parts of the next response that the reader must return, and the property of the request that it must know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// True if the method of the request is HEAD.
    pub answers_head: bool,
    /// True to compute the hash of the body.
    pub hash: bool,
    /// True to return the head.
    pub head: bool,
    /// True to return the fields and the body.
    pub content: bool,
}

/// A whole response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The number of bytes of its head and of the preceding interim responses.
    pub heads: u64,
    /// The number of bytes of its decoded body.
    pub length: u64,
    /// The hash of the body, if requested.
    pub hash: Option<Hash>,
    /// The head, if requested.
    pub head: Option<Vec<u8>>,
    /// The content, if requested.
    pub content: Option<Content>,
    /// True if the server keeps the connection open.
    pub keep_alive: bool,
}

/// The content of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The reason phrase.
    pub reason: Vec<u8>,
    /// The names and values of the fields, in order.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The decoded body.
    pub body: Vec<u8>,
}

/// The reader of one connection's responses.
#[derive(Debug)]
pub struct Answers {
    receiver: Receiver,
    limits: Limits,
    fields: Vec<Field>,
    /// The number of bytes of heads since the last final response.
    heads: u64,
    /// The response whose final head has been read and whose body has not ended.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    answer: Answer,
    hash: Option<Sha256>,
    until_close: bool,
    expected: Option<u64>,
}

impl Content {
    fn of(reply: &Reply<'_>) -> Self {
        let field = |field: &Field| (field.name(reply.block).to_vec(), field.value(reply.block).to_vec());
        Self { reason: reply.reason.to_vec(), fields: reply.fields.iter().map(field).collect(), body: Vec::new() }
    }
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            receiver: Receiver::default(),
            // A caller that requests bodies wants all of them. An endless body runs into the time limit instead.
            limits: Limits { body: u64::MAX, ..Limits::default() },
            fields: Vec::new(),
            heads: 0,
            open: None,
        }
    }
}

impl Answers {
    /// Creates a reader that accepts bodies of at most `bytes` bytes.
    pub fn with_body_at_most(bytes: u64) -> Self {
        let mut answers = Self::default();
        answers.limits.body = bytes;
        answers
    }

    /// Parses `input` until a response is complete or more input is needed. Returns the number of bytes consumed, and
    /// the response. The caller must pass the remaining bytes again, with more after them.
    ///
    /// # Errors
    /// The rule that the server violated. The reader must not be used afterwards.
    pub fn next(&mut self, input: &[u8], wanted: Wanted) -> Result<(usize, Option<Answer>), ServerFault> {
        let mut used = 0;
        while self.open.is_none() {
            let Some(reply) =
                self.receiver.head(&input[used..], wanted.answers_head, &mut self.fields, &self.limits)?
            else {
                return Ok((used, None));
            };
            let head = &input[used..used + reply.length];
            used += reply.length;
            self.heads += reply.length as u64;
            if reply.is_interim {
                continue;
            }
            self.open = Some(Open {
                answer: Answer {
                    status: reply.status,
                    heads: std::mem::take(&mut self.heads),
                    length: 0,
                    hash: None,
                    head: wanted.head.then(|| head.to_vec()),
                    content: wanted.content.then(|| Content::of(&reply)),
                    keep_alive: reply.keep_alive,
                },
                hash: wanted.hash.then(Sha256::new),
                until_close: reply.body == Body::UntilClose,
                expected: match reply.body {
                    Body::Length(length) => Some(length),
                    _ => None,
                },
            });
        }
        let Some(open) = &mut self.open else { return Ok((used, None)) };
        loop {
            let (step, found) = self.receiver.body(&input[used..], &self.limits)?;
            used += step;
            match found {
                BodyStep::Data(data) => {
                    open.answer.length += data.len() as u64;
                    if let Some(hash) = &mut open.hash {
                        hash.update(data);
                    }
                    if let Some(content) = &mut open.answer.content {
                        content.body.extend_from_slice(data);
                    }
                }
                BodyStep::Trailer { .. } => {}
                BodyStep::End => return Ok((used, self.finish())),
                BodyStep::More => return Ok((used, None)),
            }
        }
    }

    /// Handles the end of the connection; `rest` is the remaining input. Returns the response that this end completes,
    /// if there is one.
    ///
    /// # Errors
    /// If the connection ended in the middle of a response.
    pub fn end(&mut self, rest: &[u8]) -> Result<Option<Answer>, ServerFault> {
        self.receiver.end_of_input(rest)?;
        Ok(self.finish())
    }

    fn finish(&mut self) -> Option<Answer> {
        let Open { mut answer, hash, .. } = self.open.take()?;
        answer.hash = hash.map(|hash| hash.finalize().into());
        Some(answer)
    }

    /// Returns the number of body bytes received so far, and the declared length if there is one; `None` if no body is
    /// incomplete.
    pub(crate) fn under_way(&self) -> Option<(u64, Option<u64>)> {
        self.open.as_ref().map(|open| (open.answer.length, open.expected))
    }

    /// Returns true if the end of the connection ends the current response.
    pub fn is_until_close(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.until_close)
    }

    /// Returns true if no bytes of the next response have been parsed.
    pub(crate) fn is_fresh(&self) -> bool {
        self.open.is_none() && self.heads == 0
    }
}
