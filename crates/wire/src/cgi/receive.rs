//! The reading half of uwsgi and SCGI: one request on a connection.

use super::variables::Variables;
use super::{scgi, uwsgi};
use crate::message::{BodyLength, Fault, Field, Limits, RequestHead};

/// The encoding of a request's variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As uwsgi does.
    Uwsgi,
    /// As SCGI does.
    Scgi,
}

/// Reads the request of a connection: [`head`](Self::head) until it is there, then [`body`](Self::body). It keeps no
/// input: what it could not use is to be offered again with more behind it.
#[derive(Debug)]
pub struct Receiver {
    framing: Framing,
    variables: Variables,
    /// A head has been read.
    has_begun: bool,
    /// Bytes of the body that are still to come.
    left: u64,
}

impl Receiver {
    /// Creates a receiver that has read nothing.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self { framing, variables: Variables::default(), has_begun: false, left: 0 }
    }

    /// Returns the encoding of variables that the receiver reads.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Reads the head, and how many bytes of `input` it takes; `None` until it is whole. `fields` is scratch.
    ///
    /// # Errors
    /// The rule that the web server or its client broke. Nothing more can be read.
    pub fn head<'a>(
        &'a mut self,
        input: &[u8],
        fields: &'a mut Vec<Field>,
        limits: &Limits,
    ) -> Result<Option<(usize, RequestHead<'a>)>, Fault> {
        let framed = match self.framing {
            Framing::Uwsgi => uwsgi::frame(input)?,
            Framing::Scgi => scgi::frame(input, limits)?,
        };
        let Some((start, end, used)) = framed else { return Ok(None) };
        fields.clear();
        self.variables.clear();
        let mut rest = &input[start..end];
        let mut is_first = true;
        let text = match self.framing {
            Framing::Uwsgi => uwsgi::text,
            Framing::Scgi => scgi::text,
        };
        while !rest.is_empty() {
            let (name, after) = text(rest)?;
            let (value, after) = text(after)?;
            rest = after;
            let is_length_first = name == b"CONTENT_LENGTH" && !value.is_empty();
            if std::mem::take(&mut is_first) && self.framing == Framing::Scgi && !is_length_first {
                return Err(Fault::VariablesMalformed);
            }
            if self.framing == Framing::Scgi || !uwsgi::is_ignored(name) {
                self.variables.push(name, value, fields, limits)?;
            }
        }
        let body = match self.variables.length(fields, limits)? {
            // The web server passes on a body whose end only the connection would tell, and it waits for the answer.
            (None, true) => return Err(Fault::LengthRequired),
            (None | Some(0), _) => BodyLength::None,
            (Some(length), _) => BodyLength::Known(length),
        };
        let head = self.variables.head(fields, limits, body)?;
        self.has_begun = true;
        self.left = if let BodyLength::Known(length) = head.body { length } else { 0 };
        Ok(Some((used, head)))
    }

    /// Returns the part of the body at the front of `input`, and whether it is the last one.
    pub fn body<'a>(&mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        self.left -= count as u64;
        (&input[..count], self.left == 0)
    }

    /// Returns true if bytes of a body are still to come.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        self.left > 0
    }

    /// Judges the end of the peer's bytes, `rest` being what no request has used.
    ///
    /// # Errors
    /// [`Fault::Truncated`] in the middle of a request.
    pub fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        if self.left > 0 || !self.has_begun && !rest.is_empty() { Err(Fault::Truncated) } else { Ok(()) }
    }
}
