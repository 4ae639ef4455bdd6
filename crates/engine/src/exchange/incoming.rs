//! A request's body that is handed on as it arrives.
//!
//! A bounded part of it lies here; while that is full the socket is not read, and the peer has to wait.

use crate::app::Refusal;
use crate::config::{LEAST_AHEAD, READ_AHEAD};
use crate::deadline::Millis;
use crate::memory::{BodyMemory, Reservation};
use crate::meter::{self, Meter};
use crate::protocol::{Event, Protocol};
use wire::message::{Field, Limits};

/// What reading a body has given.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// So many bytes.
    Bytes(usize),
    /// Nothing has arrived that was not read: wait ([`Engine::wait_for_input`](crate::Engine::wait_for_input)).
    Pending,
    /// The body is over.
    End,
    /// The rest will not come. The status is what the peer should be told, if it is still there.
    Broken(Refusal),
}

#[derive(Debug)]
pub(crate) struct Incoming {
    decoded: Vec<u8>,
    /// Covers the capacity of `decoded`.
    reserved: Reservation,
    /// Of `decoded`, so much has been read.
    read: usize,
    end: Option<Result<(), Refusal>>,
    /// The peer waits to be told that its body is wanted (RFC 9110 section 10.1.1).
    expects_continue: bool,
    /// Bytes that have arrived in all.
    pub(crate) arrived: u64,
    /// How long the engine has waited for them, up to the wait that is under way.
    pub(crate) waited: Millis,
}

impl Incoming {
    pub(crate) fn new(expects_continue: bool, reserved: Reservation) -> Self {
        Self { decoded: Vec::new(), reserved, read: 0, end: None, expects_continue, arrived: 0, waited: 0 }
    }

    /// Decodes what is here of the body, up to the bound, where nothing else can come. Returns the bytes used.
    pub(crate) fn take<P: Protocol>(
        &mut self,
        protocol: &mut P,
        input: &[u8],
        fields: &mut Vec<Field>,
        limits: &Limits,
        meter: &mut Meter,
    ) -> usize {
        let mut used = 0;
        while self.wants_more() {
            meter.charge(meter::CHUNK);
            match protocol.next(&input[used..], fields, limits) {
                Ok((count, event)) => {
                    used += count;
                    match event {
                        Event::Data { bytes, is_last, .. } => self.push(bytes, is_last),
                        Event::End { .. } => self.finish(),
                        _ => break,
                    }
                }
                Err(fault) => {
                    self.end(fault.into());
                    return input.len();
                }
            }
        }
        used
    }

    /// Takes a part of the body. What has come is here already: whether there is room for more is asked before more is
    /// received.
    pub(crate) fn push(&mut self, bytes: &[u8], is_last: bool) {
        // What has been read goes before more comes, if that is worth moving the rest.
        if self.read >= READ_AHEAD {
            self.decoded.drain(..std::mem::take(&mut self.read));
        }
        // A peer that sends does not wait (RFC 9110 section 10.1.1).
        self.expects_continue = false;
        self.arrived += bytes.len() as u64;
        self.decoded.extend_from_slice(bytes);
        self.reserved.force(self.decoded.capacity());
        if is_last {
            self.finish();
        }
    }

    /// All of it has arrived.
    pub(crate) fn finish(&mut self) {
        self.end = Some(Ok(()));
    }

    /// The rest will not come.
    pub(crate) fn end(&mut self, refusal: Refusal) {
        if self.end.is_none() {
            self.end = Some(Err(refusal));
        }
    }

    /// Whether the peer waits to be told that its body is wanted, and there is nothing else to be read. It is told once.
    pub(crate) fn take_expectation(&mut self) -> bool {
        !self.has_something() && std::mem::take(&mut self.expects_continue)
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.end.is_none() && self.decoded.len() - self.read < READ_AHEAD
    }

    /// Whether there is no room for more before the application has read some.
    pub(crate) fn is_full(&self) -> bool {
        self.end.is_none() && !self.wants_more()
    }

    /// How many bytes may be received now. While much is here none are, so that they come many at a time.
    pub(crate) fn room(&self, memory: &BodyMemory) -> usize {
        let unread = self.decoded.len() - self.read;
        if self.end.is_some() {
            return 0;
        }
        match READ_AHEAD - unread.min(READ_AHEAD) {
            room if room < READ_AHEAD / 2 => 0,
            // What is reserved may be used again.
            room if memory.has_room((unread + room).saturating_sub(self.reserved.bytes())) => room,
            _ => LEAST_AHEAD - unread.min(LEAST_AHEAD),
        }
    }

    /// Whether all of it has arrived, read or not.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    /// Whether reading would not wait.
    pub(crate) fn has_something(&self) -> bool {
        self.read < self.decoded.len() || self.end.is_some()
    }

    /// Reads what has arrived.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Input {
        let left = &self.decoded[self.read..];
        if left.is_empty() {
            return match self.end {
                None => Input::Pending,
                Some(Ok(())) => Input::End,
                Some(Err(refusal)) => Input::Broken(refusal),
            };
        }
        let count = left.len().min(buffer.len());
        buffer[..count].copy_from_slice(&left[..count]);
        self.read += count;
        if self.read == self.decoded.len() {
            // It may be long until more comes.
            self.decoded = Vec::new();
            self.reserved.force(0);
            self.read = 0;
        }
        Input::Bytes(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Http1;

    /// A protocol that has read the head of a request with a body so long.
    fn protocol(length: usize) -> Http1 {
        let mut protocol = Http1::default();
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let mut fields = Vec::new();
        let event = protocol.next(head.as_bytes(), &mut fields, &Limits::default());
        assert!(matches!(event, Ok((used, Event::Head { .. })) if used == head.len()));
        protocol
    }

    #[test]
    fn what_has_been_read_takes_no_room() {
        let (length, mut taken, mut read) = (20 << 20, 0, 0);
        let (mut protocol, limits, memory) = (protocol(length), Limits::default(), BodyMemory::new(usize::MAX));
        let mut incoming = Incoming::new(false, memory.reservation());
        let mut buffer = [0; 1000];
        while read < length {
            let input = vec![b'x'; (length - taken).min(5000)];
            taken += incoming.take(&mut protocol, &input, &mut Vec::new(), &limits, &mut Meter::default());
            match incoming.read(&mut buffer) {
                Input::Bytes(count) => read += count,
                other => panic!("{other:?} after {read} bytes"),
            }
            // Never empty, so that only the moving makes room.
            assert!(incoming.has_something());
            assert!(incoming.decoded.capacity() <= 8 * READ_AHEAD, "{} bytes", incoming.decoded.capacity());
            assert_eq!(memory.used(), incoming.decoded.capacity());
        }
        assert!(matches!(incoming.read(&mut buffer), Input::End));
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn the_end_is_known_with_the_last_byte_however_much_is_here() {
        for length in [1, READ_AHEAD - 1, READ_AHEAD, READ_AHEAD + 1, 3 * READ_AHEAD] {
            let (mut protocol, limits, memory) = (protocol(length), Limits::default(), BodyMemory::new(0));
            let mut incoming = Incoming::new(false, memory.reservation());
            let body = vec![b'x'; length];
            assert_eq!(incoming.take(&mut protocol, &body, &mut Vec::new(), &limits, &mut Meter::default()), length);
            assert!(incoming.has_ended(), "of {length} bytes");
        }
    }
}
