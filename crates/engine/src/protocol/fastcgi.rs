//! FastCGI, with many requests at a time, based on the state machines of [`wire::fastcgi`].

use super::{MultiplexedProtocol, Reset, StreamEvent, StreamId};
use wire::fastcgi::{self, ProtocolStatus, Receiver, RequestId};
use wire::http1::{Request, Sender};
use wire::http2::HeadScratch;
use wire::message::{Draft, Fault, Limits, Stamp, Version};

/// The maximum number of bytes of error messages that a connection holds back for responses that have not begun. A
/// message that would exceed it is dropped.
const HELD_AT_MOST: usize = 128 << 10;

/// The application's side of a FastCGI connection.
#[derive(Debug, Default)]
pub struct FastCgi {
    receiver: Receiver,
    front: WebServer,
    drain: Drain,
    /// True if the last record has announced a byte of padding that has not been written.
    owes_padding: bool,
    /// The error messages (STDERR) of requests whose responses have not begun, if the web server must receive the head
    /// first.
    held: Vec<(StreamId, Vec<u8>)>,
}

/// The kind of web server, as far as it matters for the end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WebServer {
    /// The web server has sent no request.
    #[default]
    Unknown,
    /// nginx closes a connection if any byte follows `END_REQUEST`. Until it has read the head of a response, it uses a
    /// single buffer of one page: if STDERR arrives before the head, and the buffer ends within the header of a record,
    /// the client receives 502.
    Nginx,
    /// HAProxy sends no further request after the server has asked it not to.
    HaProxy,
    /// Apache checks whether a connection has ended before it sends a further request, but not whether there is input.
    Apache,
    Other,
}

/// The progress of a connection to its end, after which it accepts no request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Drain {
    #[default]
    No,
    /// The connection ends with the next response, unless the web server turns out to be one that can be told.
    Begun,
    /// The web server has been told, and will close the connection. Until it has read the message it may send requests.
    Told,
    /// A response has ended since the drain began, and the web server cannot be told. The connection ends when idle.
    Over,
}

impl MultiplexedProtocol for FastCgi {
    type Terms = Request;
    type Sender = Sender;

    fn fresh(&self) -> Self {
        Self::default()
    }

    fn open(&mut self, exchanges: usize, _limits: &Limits) {
        self.receiver = Receiver::new(exchanges);
    }

    fn next<'s, 'i: 's>(
        &'s mut self,
        input: &'i [u8],
        _scratch: &'s mut HeadScratch,
        limits: &Limits,
    ) -> Result<(usize, StreamEvent<'s, 'i, Request>), Fault> {
        let (used, event) = self.receiver.next(input, limits)?;
        let event = match event {
            fastcgi::Event::More => StreamEvent::More,
            fastcgi::Event::Head { id, head } => {
                if self.front == WebServer::Unknown {
                    self.front = match head.variable(b"SERVER_SOFTWARE") {
                        Some(software) if software.starts_with(b"nginx/") => WebServer::Nginx,
                        Some(software) if software.starts_with(b"HAProxy ") => WebServer::HaProxy,
                        Some(software) if software.starts_with(b"Apache") => WebServer::Apache,
                        _ => WebServer::Other,
                    };
                }
                let terms = Request { is_head: head.method == b"HEAD", ..unread() };
                StreamEvent::Head { stream: id.serial, head, terms }
            }
            fastcgi::Event::Data { id, bytes } => StreamEvent::Data { stream: id.serial, bytes, is_last: false },
            fastcgi::Event::End { id } => StreamEvent::End { stream: id.serial },
            fastcgi::Event::Abort { id } => StreamEvent::Reset { stream: id.serial },
            fastcgi::Event::Broken { id, fault } => StreamEvent::Broken { stream: id.serial, fault },
        };
        Ok((used, event))
    }

    fn forget(&mut self) {
        self.receiver.rest();
    }

    fn unread_terms(&self) -> Request {
        unread()
    }

    fn serves_one(&self) -> bool {
        self.receiver.has_last()
    }

    fn has_windows(&self) -> bool {
        false
    }

    fn is_of_web_server(&self) -> bool {
        true
    }

    fn can_refuse(&self) -> bool {
        false
    }

    fn announces_end(&self) -> bool {
        false
    }

    fn is_ending(&self, may_have_arrived: bool) -> bool {
        let may_go_on = may_have_arrived || self.receiver.is_in_head();
        self.receiver.is_ending() || self.drain == Drain::Over && !may_go_on
    }

    fn is_unread(&self) -> bool {
        self.receiver.is_unread() || self.drain == Drain::Over
    }

    fn has_read_all(&self) -> bool {
        self.receiver.has_read_all()
    }

    fn is_in_head(&self) -> bool {
        self.receiver.is_in_head()
    }

    fn begin(
        &mut self,
        stream: StreamId,
        draft: &Draft,
        terms: Request,
        length: Option<u64>,
        _stamp: &Stamp,
        out: &mut Vec<u8>,
    ) -> Sender {
        match self.id(stream) {
            Some(id) => {
                self.pad(out);
                let sender = fastcgi::begin(id, draft, terms, length, out);
                if let Some(held) = self.take_held(stream) {
                    fastcgi::stderr(id, &held, out);
                }
                sender
            }
            // The web server has aborted the request, so the output is discarded.
            None => wire::cgi::begin(draft, terms, length, wire::cgi::StatusLine::Cgi, &mut Vec::new()),
        }
    }

    fn frame(&mut self, stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::stdout(id, bytes, out);
        }
    }

    fn write_errors(&mut self, stream: StreamId, text: &[u8], is_begun: bool, out: &mut Vec<u8>) {
        // No record may follow `END_REQUEST`.
        let Some(id) = self.id(stream) else { return };
        if is_begun || self.front != WebServer::Nginx {
            fastcgi::stderr(id, text, out);
        } else if self.held.iter().map(|(_, held)| held.len()).sum::<usize>() + text.len() <= HELD_AT_MOST {
            match self.held.iter_mut().find(|(of, _)| *of == stream) {
                Some((_, held)) => held.extend_from_slice(text),
                None => self.held.push((stream, text.to_vec())),
            }
        }
    }

    fn end_response(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if let Some(id) = self.id(stream) {
            fastcgi::end_stdout(id, out);
            self.end(id, ProtocolStatus::RequestComplete, out);
        }
    }

    fn reset(&mut self, stream: StreamId, reset: Reset, out: &mut Vec<u8>) {
        let Some(id) = self.id(stream) else { return };
        match reset {
            Reset::Complete => self.receiver.discard_body(stream),
            Reset::Refused => self.end(id, ProtocolStatus::Overloaded, out),
            // END_REQUEST would mean that the response is complete. Web servers detect a cut if the connection ends
            // without it. The other requests of the connection finish first.
            Reset::Cut => {
                self.receiver.end();
                self.receiver.forget(stream);
            }
        }
    }

    fn forget_stream(&mut self, stream: StreamId) {
        self.take_held(stream);
        if self.drain == Drain::Begun && self.front != WebServer::HaProxy && self.id(stream).is_some() {
            self.drain = Drain::Over;
        }
        self.receiver.forget(stream);
    }

    fn drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Begun;
        }
        self.tell(out);
    }

    fn stay(&mut self, out: &mut Vec<u8>) {
        self.pad(out);
    }

    fn has_control(&self) -> bool {
        self.receiver.has_answers()
    }

    fn must_write_control(&self) -> bool {
        self.receiver.has_many_answers()
    }

    fn write_control(&mut self, out: &mut Vec<u8>) {
        if self.receiver.has_answers() {
            self.pad(out);
            self.receiver.take_answers(out);
        }
    }
}

impl FastCgi {
    fn id(&self, stream: StreamId) -> Option<RequestId> {
        self.receiver.id(stream)
    }

    fn take_held(&mut self, stream: StreamId) -> Option<Vec<u8>> {
        let index = self.held.iter().position(|(of, _)| *of == stream)?;
        Some(self.held.swap_remove(index).1)
    }

    fn end(&mut self, id: RequestId, status: ProtocolStatus, out: &mut Vec<u8>) {
        self.pad(out);
        self.forget_stream(id.serial);
        // The web server must not send another request before it sees that the connection ends, because it could not
        // repeat a POST. Web servers that let the application close the connection send none.
        let is_last = self.drain == Drain::Over && !self.receiver.is_ending();
        if is_last && self.front == WebServer::Apache && self.receiver.is_idle() {
            fastcgi::end_request_and_connection(id, status, out);
            self.owes_padding = true;
        } else {
            fastcgi::end_request(id, status, out);
        }
        if self.drain == Drain::Over && self.front == WebServer::Nginx {
            fastcgi::excess(out);
        }
        self.tell(out);
    }

    /// Tells the web server that the connection accepts no further request, if it understands such a message.
    fn tell(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::Begun && self.front == WebServer::HaProxy {
            fastcgi::take_no_more(out);
            self.drain = Drain::Told;
        }
    }

    /// Writes the announced byte of padding, because the connection continues instead of ending.
    fn pad(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_padding) {
            out.push(0);
        }
    }
}

/// Returns the properties that determine the form of a response, for a request that could not be read.
fn unread() -> Request {
    Request { version: Version::Http11, is_head: false, keep_alive: true, takes_trailers: false }
}
