//! A minimal server. A run against it measures the limits of the generator, the kernel and the machine.
//!
//! Every request gets the same response. The server parses only those parts of a head that determine the end of the
//! request and of its connection: the version, `Connection` and `Content-Length`. It does not support chunked bodies.
//! It is for local measurements, so it has no time limits; it closes a connection whose head does not end.

use engine::{Accepted, EngineSocket, Moved, Net as _, Os, Readiness, Socket as _};
use memchr::memmem;
use slab::Slab;
use std::io::{self, IoSlice};
use std::time::Duration;

/// The size of a receive buffer, in bytes.
const READ: usize = 64 * 1024;

/// The maximum size of a head, in bytes.
const HEAD_MAX: usize = 256 * 1024;

/// The longest wait between two calls of `observe`.
const NAP: Duration = Duration::from_millis(200);

/// Sends `answer` to each request on the connections of `listener`, or `last` if the connection closes after it, until
/// `observe` returns false.
///
/// # Errors
/// If the system cannot create a poller, or the socket does not listen.
pub fn serve(listener: &EngineSocket, answer: &[u8], last: &[u8], mut observe: impl FnMut() -> bool) -> io::Result<()> {
    let (mut os, mut poller, _waker) = Os::new()?;
    os.listen(listener, 0)?;
    let mut server = Null { os, peers: Slab::new(), answer, last, input: vec![0; READ] };
    server.accept(listener)?;
    let mut ready = Vec::new();
    while observe() {
        poller.wait(Some(NAP), &mut ready)?;
        for readiness in ready.drain(..) {
            match readiness {
                Readiness::Woken => {}
                Readiness::Listener(_) => server.accept(listener)?,
                Readiness::Connection { slot, .. } => server.drive(slot),
            }
        }
    }
    Ok(())
}

struct Null<'answers> {
    os: Os,
    peers: Slab<Peer>,
    answer: &'answers [u8],
    last: &'answers [u8],
    input: Vec<u8>,
}

struct Peer {
    socket: EngineSocket,
    /// The received part of an incomplete head.
    head: Vec<u8>,
    /// Set while the body of a request is awaited; true if the request is the last of its connection.
    asked: Option<bool>,
    /// The number of body bytes that have not arrived.
    body: u64,
    /// The bytes that the socket has not accepted yet.
    output: Vec<u8>,
    /// True once `output` contains the connection's last response.
    is_last: bool,
    /// True once the poller watches for space for output.
    awaits_room: bool,
}

impl Null<'_> {
    fn accept(&mut self, listener: &EngineSocket) -> io::Result<()> {
        loop {
            match self.os.accept(listener)? {
                Accepted::Connection(transport, _) => {
                    let socket = transport.into_socket();
                    let entry = self.peers.vacant_entry();
                    let slot = entry.key();
                    if self.os.watch_descriptor(&socket, slot, false, false).is_ok() {
                        entry.insert(Peer::new(socket));
                        self.drive(slot);
                    }
                }
                Accepted::Failed(_) => {}
                Accepted::None | Accepted::Exhausted(_) => return Ok(()),
            }
        }
    }

    /// Receives and answers all requests that have arrived.
    fn drive(&mut self, slot: usize) {
        let Some(peer) = self.peers.get_mut(slot) else { return };
        let goes_on = peer.turn(&mut self.input, self.answer, self.last)
            && (peer.output.is_empty() || peer.awaits_room || {
                peer.awaits_room = true;
                self.os.watch_descriptor(&peer.socket, slot, true, true).is_ok()
            });
        if !goes_on {
            self.peers.remove(slot);
        }
    }
}

impl Peer {
    fn new(socket: EngineSocket) -> Self {
        let (head, output) = (Vec::new(), Vec::new());
        Self { socket, head, asked: None, body: 0, output, is_last: false, awaits_room: false }
    }

    /// Receives and answers requests until the socket would block. Returns false if the connection must be closed.
    fn turn(&mut self, input: &mut [u8], answer: &[u8], last: &[u8]) -> bool {
        loop {
            if !self.flush() {
                return false;
            }
            // No more requests are read before all responses are sent.
            if self.is_last || !self.output.is_empty() {
                return !(self.is_last && self.output.is_empty());
            }
            match self.socket.receive(input) {
                Ok(Moved::Bytes(0)) | Err(_) => return false,
                Ok(Moved::WouldBlock) => return true,
                Ok(Moved::Bytes(count)) => {
                    if !self.take(&input[..count], answer, last) {
                        return false;
                    }
                    // A short read means that the socket has no more data.
                    if count < input.len() {
                        return self.flush() && !(self.is_last && self.output.is_empty());
                    }
                }
            }
        }
    }

    /// Parses requests and appends the responses to `output`. Returns false if a request is malformed.
    fn take(&mut self, input: &[u8], answer: &[u8], last: &[u8]) -> bool {
        let mut begun = std::mem::take(&mut self.head);
        let mut rest = input;
        if !begun.is_empty() {
            begun.extend_from_slice(input);
            rest = &begun;
        }
        loop {
            let skipped = rest.len().min(usize::try_from(self.body).unwrap_or(usize::MAX));
            self.body -= skipped as u64;
            rest = &rest[skipped..];
            if self.body > 0 {
                return true;
            }
            if let Some(is_last) = self.asked.take() {
                self.output.extend_from_slice(if is_last { last } else { answer });
                self.is_last = is_last;
                if is_last {
                    return true;
                }
            }
            let Some(end) = memmem::find(rest, b"\r\n\r\n") else {
                self.head = rest.to_vec();
                return rest.len() <= HEAD_MAX;
            };
            let (head, behind) = rest.split_at(end + 4);
            let (is_last, body) = read(head);
            self.asked = Some(is_last);
            self.body = body;
            rest = behind;
        }
    }

    /// Sends `output` as far as the socket accepts it. Returns false on an error.
    fn flush(&mut self) -> bool {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.socket.send(&[IoSlice::new(&self.output[sent..])], false) {
                Ok(Moved::Bytes(count)) => sent += count,
                Ok(Moved::WouldBlock) => break,
                Err(_) => return false,
            }
        }
        self.output.drain(..sent);
        true
    }
}

/// Parses a head. Returns true if the request is the last one of its connection (RFC 9112 section 9.3), and the length
/// of its body.
fn read(head: &[u8]) -> (bool, u64) {
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
    let mut is_last = lines.next().is_some_and(|line| line.ends_with(b"HTTP/1.0"));
    let mut body = 0;
    for line in lines {
        if let Some(value) = value(line, b"connection:") {
            is_last = value.eq_ignore_ascii_case(b"close") || (is_last && !value.eq_ignore_ascii_case(b"keep-alive"));
        } else if let Some(value) = value(line, b"content-length:") {
            body = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        }
    }
    (is_last, body)
}

fn value<'line>(line: &'line [u8], name: &[u8]) -> Option<&'line [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}
