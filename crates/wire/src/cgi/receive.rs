//! The reading side of uwsgi and SCGI, which have one request for each connection.

use super::variables::Variables;
use super::{scgi, uwsgi};
use crate::message::{BodyLength, Fault, Field, Limits, RequestHead};

/// The encoding of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The uwsgi protocol.
    Uwsgi,
    /// SCGI.
    Scgi,
}

/// A reader of a connection's request. Call [`head`](Self::head) until it returns the head, then [`body`](Self::body).
/// It stores no input: the caller keeps the unused bytes and passes them again, followed by new ones.
#[derive(Debug)]
pub struct Receiver {
    framing: Framing,
    variables: Variables,
    /// True once a head has been read.
    has_begun: bool,
    /// The number of body bytes that have not arrived.
    left: u64,
}

impl Receiver {
    /// Creates a receiver for a new connection.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self { framing, variables: Variables::default(), has_begun: false, left: 0 }
    }

    /// Returns the encoding that the receiver reads.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// Reads the head. Returns its length in `input` and the head; `None` if it is incomplete. `fields` is scratch
    /// space.
    ///
    /// # Errors
    /// The rule that the web server or its client broke. The connection cannot be read any further.
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
            // The web server forwards a body whose end only the end of the connection would show, but it waits for the
            // response.
            (None, true) => return Err(Fault::LengthRequired),
            (None | Some(0), _) => BodyLength::None,
            (Some(length), _) => BodyLength::Known(length),
        };
        let head = self.variables.head(fields, limits, body)?;
        self.has_begun = true;
        self.left = if let BodyLength::Known(length) = head.body { length } else { 0 };
        Ok(Some((used, head)))
    }

    /// Returns the part of the body at the front of `input`, and true if it is the last part.
    pub fn body<'a>(&mut self, input: &'a [u8]) -> (&'a [u8], bool) {
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(input.len());
        self.left -= count as u64;
        (&input[..count], self.left == 0)
    }

    /// Returns true if the body is incomplete.
    #[must_use]
    pub fn is_in_body(&self) -> bool {
        self.left > 0
    }

    /// Handles the end of the input. `rest` is the bytes that belong to no complete request.
    ///
    /// # Errors
    /// [`Fault::Truncated`] in the middle of a request.
    pub fn end_of_input(&self, rest: &[u8]) -> Result<(), Fault> {
        if self.left > 0 || !self.has_begun && !rest.is_empty() { Err(Fault::Truncated) } else { Ok(()) }
    }
}
