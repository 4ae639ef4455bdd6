//! A request body that the application reads as it arrives.
//!
//! A bounded buffer holds a part of the body. While the buffer is full, the engine does not read from the socket, and
//! the peer has to wait.

use crate::app::Refusal;
use crate::config::{LEAST_AHEAD, READ_AHEAD};
use crate::deadline::Millis;
use crate::memory::{BodyMemory, Reservation};
use crate::meter::{self, Meter};
use crate::protocol::{Event, SerialProtocol};
use wire::message::{Field, Limits};

/// The result of reading a request body.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// The number of bytes read.
    Bytes(usize),
    /// All bytes that have arrived were read: wait ([`Engine::wait_for_input`](crate::Engine::wait_for_input)).
    Pending,
    /// The end of the body.
    End,
    /// The rest of the body will not arrive. Holds the refusal, with the status for the peer if it is still connected.
    Broken(Refusal),
}

#[derive(Debug)]
pub(crate) struct Incoming {
    decoded: Vec<u8>,
    /// The reservation of memory for the capacity of `decoded`.
    reserved: Reservation,
    /// The number of bytes of `decoded` that the application has read.
    read: usize,
    end: Option<Result<(), Refusal>>,
    /// True if the peer waits for 100 (Continue) before it sends its body (RFC 9110 section 10.1.1).
    expects_continue: bool,
    /// The total number of bytes of the body that have arrived.
    pub(crate) arrived: u64,
    /// The time for which the engine has waited for these bytes, without the current wait.
    pub(crate) waited: Millis,
}

impl Incoming {
    pub(crate) fn new(expects_continue: bool, reserved: Reservation) -> Self {
        Self { decoded: Vec::new(), reserved, read: 0, end: None, expects_continue, arrived: 0, waited: 0 }
    }

    /// Decodes the received part of the body, up to the bound. For serial protocols, where only this body can arrive on
    /// the connection. Returns the number of bytes used.
    pub(crate) fn take<P: SerialProtocol>(
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
                        Event::Data { bytes, is_last } => self.push(bytes, is_last),
                        Event::End => self.finish(),
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

    /// Appends a part of the body, without a check for room: the engine checks that before it receives more.
    pub(crate) fn push(&mut self, bytes: &[u8], is_last: bool) {
        // Bytes that have been read are removed only if there are enough of them to be worth moving the rest.
        if self.read >= READ_AHEAD {
            self.decoded.drain(..std::mem::take(&mut self.read));
        }
        // A peer that sends the body no longer waits for 100 (RFC 9110 section 10.1.1).
        self.expects_continue = false;
        self.arrived += bytes.len() as u64;
        self.decoded.extend_from_slice(bytes);
        self.reserved.force(self.decoded.capacity());
        if is_last {
            self.finish();
        }
    }

    /// Records that the whole body has arrived.
    pub(crate) fn finish(&mut self) {
        self.end = Some(Ok(()));
    }

    /// Records that the rest of the body will not arrive.
    pub(crate) fn end(&mut self, refusal: Refusal) {
        if self.end.is_none() {
            self.end = Some(Err(refusal));
        }
    }

    /// Returns true, once, if the peer waits for 100 (Continue) and there is nothing else to read.
    pub(crate) fn take_expectation(&mut self) -> bool {
        !self.has_something() && std::mem::take(&mut self.expects_continue)
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.end.is_none() && self.decoded.len() - self.read < READ_AHEAD
    }

    /// Returns true if there is no room for more input before the application has read some.
    pub(crate) fn is_full(&self) -> bool {
        self.end.is_none() && !self.wants_more()
    }

    /// Returns the number of bytes that may be received now. Returns 0 while less than half of the buffer is free, so
    /// that many bytes are received at a time.
    pub(crate) fn room(&self, memory: &BodyMemory) -> usize {
        let unread = self.decoded.len() - self.read;
        if self.end.is_some() {
            return 0;
        }
        match READ_AHEAD - unread.min(READ_AHEAD) {
            room if room < READ_AHEAD / 2 => 0,
            // Memory that is already reserved may be reused.
            room if memory.has_room((unread + room).saturating_sub(self.reserved.bytes())) => room,
            _ => LEAST_AHEAD - unread.min(LEAST_AHEAD),
        }
    }

    /// Returns true if the whole body has arrived, whether or not the application has read it.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    /// Returns true if a read would not have to wait.
    pub(crate) fn has_something(&self) -> bool {
        self.read < self.decoded.len() || self.end.is_some()
    }

    /// Appends at most `most` of the unread bytes to `bytes`, without removing them.
    pub(crate) fn copy(&self, most: usize, bytes: &mut Vec<u8>) {
        let left = &self.decoded[self.read..];
        bytes.extend_from_slice(&left[..left.len().min(most)]);
    }

    /// Removes the first `count` unread bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.read += count;
        if self.read == self.decoded.len() {
            self.decoded = Vec::new();
            self.reserved.force(0);
            self.read = 0;
        }
    }

    /// Returns true if no bytes are left to read, and none will arrive.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() && self.read == self.decoded.len()
    }

    /// Reads into `buffer` from the part of the body that has arrived.
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
            // It may take long until more arrives, so the memory is freed.
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

    /// Returns a protocol that has read the head of a request with a body of this length.
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
            // The buffer is never empty, so only moving its bytes makes room.
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
