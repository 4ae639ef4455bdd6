//! A request's body that is handed on as it arrives.
//!
//! A bounded part of it lies here; while that is full the socket is not read, and the peer has to wait.

use super::{Awaited, Connection, EngineContext};
use crate::app::{App, Refusal};
use crate::config::{LEAST_AHEAD, READ_AHEAD};
use crate::deadline::Millis;
use crate::memory::{BodyMemory, Reservation};
use crate::meter::{self, Meter};
use wire::http1::{BodyStep, Limits, Receiver};

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
pub(super) struct Incoming {
    decoded: Vec<u8>,
    /// Covers the capacity of `decoded`.
    reserved: Reservation,
    /// Of `decoded`, so much has been read.
    read: usize,
    end: Option<Result<(), Refusal>>,
    /// The peer waits to be told that its body is wanted (RFC 9110 section 10.1.1).
    expects_continue: bool,
    /// Bytes that have arrived in all.
    pub(super) arrived: u64,
    /// For how long somebody has waited for them, up to the wait that is under way.
    pub(super) waited: Millis,
}

impl Incoming {
    pub(super) fn new(expects_continue: bool, reserved: Reservation) -> Self {
        Self { decoded: Vec::new(), reserved, read: 0, end: None, expects_continue, arrived: 0, waited: 0 }
    }

    /// Decodes what is here of the body, up to the bound. Returns the bytes used.
    pub(super) fn take(&mut self, receiver: &mut Receiver, input: &[u8], limits: &Limits, meter: &mut Meter) -> usize {
        let (mut used, mut steps) = (0, 0);
        // What has been read goes before more comes, if that is worth moving the rest.
        if self.read >= READ_AHEAD {
            self.decoded.drain(..std::mem::take(&mut self.read));
        }
        while self.wants_more() {
            steps += 1;
            match receiver.body(&input[used..], limits) {
                Ok((count, step)) => {
                    used += count;
                    match step {
                        BodyStep::Data(data) => {
                            self.arrived += data.len() as u64;
                            self.decoded.extend_from_slice(data);
                        }
                        BodyStep::Trailer { .. } => {}
                        BodyStep::More => break,
                        BodyStep::End => self.end = Some(Ok(())),
                    }
                }
                Err(fault) => {
                    self.end = Some(Err(fault.into()));
                    return input.len();
                }
            }
        }
        // What has come is here already: whether there is room for more is asked before more is received.
        self.reserved.force(self.decoded.capacity());
        meter.charge(meter::CHUNK * steps);
        // It may have ended with the bytes that were taken last.
        if self.end.is_none() && matches!(receiver.body(&[], limits), Ok((_, BodyStep::End))) {
            self.end = Some(Ok(()));
        }
        if self.arrived > 0 {
            // A peer that sends does not wait (RFC 9110 section 10.1.1).
            self.expects_continue = false;
        }
        used
    }

    pub(super) fn wants_more(&self) -> bool {
        self.end.is_none() && self.decoded.len() - self.read < READ_AHEAD
    }

    /// How many bytes may be received now. While much is here none are, so that they come many at a time.
    pub(super) fn room(&self, memory: &BodyMemory) -> usize {
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
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    /// Whether reading would not wait.
    pub(super) fn has_something(&self) -> bool {
        self.read < self.decoded.len() || self.end.is_some()
    }

    fn read(&mut self, buffer: &mut [u8]) -> Input {
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

impl<A: App> Connection<A> {
    /// Takes a part of the body of the request that is answered.
    pub(super) fn take_in(&mut self, input: &[u8], context: &mut EngineContext<A>, app: &mut A) -> usize {
        let Some(incoming) = &mut self.incoming else { return 0 };
        let used = incoming.take(&mut self.receiver, input, &context.config.limits, &mut context.meter);
        if incoming.has_something() {
            self.wake(Awaited::Input, app);
        }
        used
    }

    /// The rest of the body will not come.
    pub(super) fn break_incoming(&mut self, refusal: Refusal, app: &mut A) {
        self.end_incoming(refusal);
        self.wake(Awaited::Input, app);
    }

    /// The same, where nobody can be waiting for it.
    pub(super) fn end_incoming(&mut self, refusal: Refusal) {
        if let Some(incoming) = &mut self.incoming
            && incoming.end.is_none()
        {
            incoming.end = Some(Err(refusal));
        }
    }

    /// Reads what has arrived of the body. Afterwards there may be room for more: the connection has to be driven.
    pub(crate) fn read(&mut self, buffer: &mut [u8], context: &mut EngineContext<A>) -> Input {
        let Some(incoming) = &mut self.incoming else { return Input::End };
        if !incoming.has_something() && std::mem::take(&mut incoming.expects_continue) && self.in_flight.is_none() {
            self.tell_to_continue(context);
        }
        self.incoming.as_mut().map_or(Input::End, |incoming| incoming.read(buffer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::http1::Field;

    /// A receiver that has read the head of a request with a body so long.
    fn receiver(length: usize) -> Receiver {
        let mut receiver = Receiver::default();
        let mut fields: Vec<Field> = Vec::new();
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        assert!(receiver.head(head.as_bytes(), &mut fields, &Limits::default()).unwrap().is_some());
        receiver
    }

    #[test]
    fn what_has_been_read_takes_no_room() {
        let (length, mut taken, mut read) = (20 << 20, 0, 0);
        let (mut receiver, limits, memory) = (receiver(length), Limits::default(), BodyMemory::new(usize::MAX));
        let mut incoming = Incoming::new(false, memory.reservation());
        let mut buffer = [0; 1000];
        while read < length {
            let input = vec![b'x'; (length - taken).min(5000)];
            taken += incoming.take(&mut receiver, &input, &limits, &mut Meter::default());
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
            let (mut receiver, limits, memory) = (receiver(length), Limits::default(), BodyMemory::new(0));
            let mut incoming = Incoming::new(false, memory.reservation());
            let body = vec![b'x'; length];
            assert_eq!(incoming.take(&mut receiver, &body, &limits, &mut Meter::default()), length);
            assert!(incoming.has_ended(), "of {length} bytes");
        }
    }
}
