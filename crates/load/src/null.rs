//! A server that does next to nothing. A run against it measures the generator, the kernel and the machine.
//!
//! Every request gets the same bytes. The server reads only those parts of a head that decide the end of the request or
//! of its connection: the version, `Connection` and `Content-Length`. Chunked bodies are not supported. The server is
//! for local measurements, so there are no time limits, and a head that does not end is cut.

use engine::{Accepted, EngineSocket, Moved, Net as _, Os, Readiness, Socket as _};
use memchr::memmem;
use slab::Slab;
use std::io::{self, IoSlice};
use std::time::Duration;

/// Size of a receive, in bytes.
const READ: usize = 64 * 1024;

/// Limit of a head, in bytes.
const HEAD_MAX: usize = 256 * 1024;

/// The longest wait before `observe` is called.
const NAP: Duration = Duration::from_millis(200);

/// Answers each request on the connections of `listener` with `answer`, or with `last` if its connection closes
/// afterwards, until `observe` returns false.
///
/// # Errors
/// If the system refuses a poller, or the socket does not listen.
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
    /// The received part of a head.
    head: Vec<u8>,
    /// A request whose body may not have arrived; whether it is the connection's last one.
    asked: Option<bool>,
    /// Remaining bytes of a body.
    body: u64,
    /// Bytes that the socket has not accepted yet.
    output: Vec<u8>,
    /// True once the connection's last answer was put into `output`.
    is_last: bool,
    /// True once the poller was asked to report space for output.
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

    /// Receives everything there is, and answers it.
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

    /// Receives and answers requests until the socket would block. Returns false if the connection is to be closed.
    fn turn(&mut self, input: &mut [u8], answer: &[u8], last: &[u8]) -> bool {
        loop {
            if !self.flush() {
                return false;
            }
            // Nothing more is read before the answers are sent.
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
                    // A short read has drained the socket.
                    if count < input.len() {
                        return self.flush() && !(self.is_last && self.output.is_empty());
                    }
                }
            }
        }
    }

    /// Reads requests and appends their answers to `output`; returns false if they are malformed.
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

    /// Sends `output` as far as the socket accepts it. Returns false if sending failed.
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

/// Returns true if a request is the last one of its connection (RFC 9112 section 9.3), and the length of its body.
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
