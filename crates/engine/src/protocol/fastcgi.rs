//! FastCGI: many requests at a time, by the state machines of [`wire::fastcgi`].

use super::{Event, Reset, StreamId};
use wire::fastcgi::{self, ProtocolStatus, Receiver, RequestId};
use wire::http1::{Request, Sender};
use wire::message::{Draft, Fault, Limits, Version};

/// The maximum number of bytes of error messages that a connection holds back for responses that have not begun; a
/// message that would exceed it is left out.
const HELD_AT_MOST: usize = 128 << 10;

/// The application's side of a connection.
#[derive(Debug, Default)]
pub(super) struct FastCgi {
    receiver: Receiver,
    front: Front,
    drain: Drain,
    /// True if the last record has announced a byte of padding that was not written.
    owes_padding: bool,
    /// The reports for STDERR of requests whose responses have not begun, if the web server must receive the head
    /// first.
    held: Vec<(StreamId, Vec<u8>)>,
}

/// The kind of web server, as far as it matters to a connection that is to take no further request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Front {
    /// It has sent no request.
    #[default]
    Unknown,
    /// It closes a connection if anything follows `END_REQUEST`. Up to the head of a response it has one buffer of a
    /// page: if STDERR arrives before the head, and the buffer ends within the header of a record, the client gets 502.
    Nginx,
    /// It sends no further request after the server has asked it not to.
    HaProxy,
    /// It checks whether a connection has ended before it sends a further request, but not whether there is input.
    Apache,
    Other,
}

/// The progress of a connection that is to take no further request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Drain {
    #[default]
    No,
    /// The connection ends with the next response, unless the web server turns out to be one that can be informed.
    Begun,
    /// The web server has been informed, and closes the connection. Until it has read the message it may send requests.
    Told,
    /// A response has ended since, and the web server cannot be informed.
    Over,
}

impl FastCgi {
    pub(super) fn open(&mut self, exchanges: usize) {
        self.receiver = Receiver::new(exchanges);
    }

    pub(super) fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        limits: &Limits,
    ) -> Result<(usize, Event<'s, 'i, Request>), Fault> {
        let (used, event) = self.receiver.next(input, limits)?;
        let event = match event {
            fastcgi::Event::More => Event::More,
            fastcgi::Event::Head { id, head } => {
                if self.front == Front::Unknown {
                    self.front = match head.variable(b"SERVER_SOFTWARE") {
                        Some(software) if software.starts_with(b"nginx/") => Front::Nginx,
                        Some(software) if software.starts_with(b"HAProxy ") => Front::HaProxy,
                        Some(software) if software.starts_with(b"Apache") => Front::Apache,
                        _ => Front::Other,
                    };
                }
                let request = Request { is_head: head.method == b"HEAD", ..request() };
                Event::Head { stream: id.serial, head, request, expects_continue: false }
            }
            fastcgi::Event::Data { id, bytes } => Event::Data { stream: id.serial, bytes, is_last: false },
            fastcgi::Event::End { id } => Event::End { stream: id.serial },
            fastcgi::Event::Abort { id } => Event::Reset { stream: id.serial },
            fastcgi::Event::Broken { id, fault } => Event::Broken { stream: id.serial, fault },
        };
        Ok((used, event))
    }

    pub(super) fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    pub(super) fn forget(&mut self) {
        self.receiver.rest();
    }

    fn id(&self, stream: StreamId) -> Option<RequestId> {
        self.receiver.id(stream)
    }

    pub(super) fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        request: Request,
        length: Option<u64>,
        out: &mut Vec<u8>,
    ) -> Sender {
        match self.id(stream) {
            Some(id) => {
                self.pad(out);
                let sender = fastcgi::begin(id, draft, request, length, out);
                if let Some(held) = self.take_held(stream) {
                    fastcgi::stderr(id, &held, out);
                }
                sender
            }
            // The web server has aborted the request: the output is discarded.
            None => wire::cgi::begin(draft, request, length, wire::cgi::StatusLine::Cgi, &mut Vec::new()),
        }
    }

    pub(super) fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::stdout(id, bytes, out);
        }
    }

    pub(super) fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        // No record may follow the end of a request.
        let Some(id) = self.id(stream) else { return };
        if is_begun || self.front != Front::Nginx {
            fastcgi::stderr(id, text, out);
        } else if self.held.iter().map(|(_, held)| held.len()).sum::<usize>() + text.len() <= HELD_AT_MOST {
            match self.held.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, held)) => held.extend_from_slice(text),
                None => self.held.push((stream, text.to_vec())),
            }
        }
    }

    fn take_held(&mut self, stream: StreamId) -> Option<Vec<u8>> {
        let index = self.held.iter().position(|(of, _)| *of == stream)?;
        Some(self.held.swap_remove(index).1)
    }

    pub(super) fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::end_stdout(id, out);
            self.end(id, ProtocolStatus::RequestComplete, out);
        }
    }

    pub(super) fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let Some(id) = self.id(stream) else { return };
        match reset {
            Reset::Complete => self.receiver.discard_body(stream),
            Reset::Refused => self.end(id, ProtocolStatus::Overloaded, out),
            // END_REQUEST would mean that the response is complete. Web servers see a cut if the connection ends
            // without it; other requests of the connection finish before that.
            Reset::Cut => {
                self.receiver.end();
                self.receiver.forget(stream);
            }
        }
    }

    fn end(&mut self, id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
        self.pad(out);
        self.forget_stream(id.serial);
        // The web server must not send a request before it sees that the connection ends: it could not send it again if
        // it is a POST. A web server that leaves closing to us sends none.
        let is_last = self.drain == Drain::Over && !self.receiver.is_ending();
        if is_last && self.front == Front::Apache && self.receiver.is_idle() {
            fastcgi::end_request_and_connection(id, status, out);
            self.owes_padding = true;
        } else {
            fastcgi::end_request(id, status, out);
        }
        if self.drain == Drain::Over && self.front == Front::Nginx {
            fastcgi::excess(out);
        }
        self.tell(out);
    }

    /// Writes the owed byte of padding, because the connection continues instead of ending.
    pub(super) fn pad(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_padding) {
            out.push(0);
        }
    }

    pub(super) fn forget_stream(&mut self, stream: StreamId) {
        self.take_held(stream);
        if self.drain == Drain::Begun && self.front != Front::HaProxy && self.id(stream).is_some() {
            self.drain = Drain::Over;
        }
        self.receiver.forget(stream);
    }

    pub(super) fn drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Begun;
        }
        self.tell(out);
    }

    /// Tells the web server that the connection takes no further request, if it understands that.
    fn tell(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::Begun && self.front == Front::HaProxy {
            fastcgi::take_no_more(out);
            self.drain = Drain::Told;
        }
    }

    /// See [`Protocol::is_ending`](super::Protocol::is_ending).
    pub(super) fn is_ending(&self, may_have_arrived: bool) -> bool {
        let may_go_on = may_have_arrived || self.receiver.is_in_head();
        self.receiver.is_ending() || self.drain == Drain::Over && !may_go_on
    }

    /// See [`Protocol::serves_one`](super::Protocol::serves_one).
    pub(super) fn has_last(&self) -> bool {
        self.receiver.has_last()
    }

    /// See [`Protocol::is_unread`](super::Protocol::is_unread).
    pub(super) fn is_unread(&self) -> bool {
        self.receiver.is_unread() || self.drain == Drain::Over
    }

    pub(super) fn write_control(&mut self, out: &mut Vec<u8>) {
        if self.receiver.has_answers() {
            self.pad(out);
            self.receiver.take_answers(out);
        }
    }
}

/// Returns the properties on which a response depends, for a request of which nothing is known.
pub(super) fn request() -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers: false }
}
