//! The input of a connection: bytes that have been received but not used, and whether the transport may have more.

/// The state of the transport's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readability {
    /// The transport may have bytes: the poller has reported it since it was drained.
    Readable,
    /// The transport has no bytes until the poller reports it.
    Drained,
    /// The end of input has been read.
    Ended,
}

/// The input that has been received but not used.
///
/// Invariant: `used <= bytes.len()`.
#[derive(Debug)]
pub(super) struct InputBuffer {
    bytes: Vec<u8>,
    /// The number of bytes at the beginning of `bytes` that have been used.
    used: usize,
    /// True if `bytes` has been parsed and is too short for a message.
    is_exhausted: bool,
    source: Readability,
}

/// Input that was taken out of the buffer to be parsed.
#[derive(Debug)]
pub(super) struct Taken {
    bytes: Vec<u8>,
    used: usize,
}

impl Taken {
    /// Returns the bytes that have not been used.
    pub(super) fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    pub(super) fn unused_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used..]
    }
}

impl InputBuffer {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), used: 0, is_exhausted: true, source: Readability::Readable }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }

    pub(super) fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Marks `count` more bytes as used.
    pub(super) fn advance(&mut self, count: usize) {
        self.used += count;
        debug_assert!(self.used <= self.bytes.len(), "only received bytes are used");
    }

    /// Returns true if there are bytes that have not been parsed.
    #[inline]
    pub(super) fn has_unseen(&self) -> bool {
        !self.is_exhausted && !self.is_empty()
    }

    /// Returns true if all bytes have been parsed and are not enough for a message.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Records whether all bytes have been parsed and are not enough for a message.
    #[inline]
    pub(super) fn set_exhausted(&mut self, is_exhausted: bool) {
        self.is_exhausted = is_exhausted;
    }

    /// Takes the bytes out, to be parsed. [`put_back`](Self::put_back) has to follow, unless the bytes are discarded.
    pub(super) fn take(&mut self) -> Taken {
        Taken { bytes: std::mem::take(&mut self.bytes), used: std::mem::take(&mut self.used) }
    }

    /// Puts back the bytes that were taken out, without the next `used` bytes.
    pub(super) fn put_back(&mut self, taken: Taken, used: usize) {
        let Taken { bytes, used: before } = taken;
        let used = before + used;
        debug_assert!(used <= bytes.len() && self.bytes.is_empty(), "input is put back once");
        let left = bytes.len() - used;
        if left > 0 && left < bytes.capacity() / 4 {
            // A small part of a large buffer is left, and it may take long until more arrives: free the large buffer.
            (self.bytes, self.used) = (bytes[used..].to_vec(), 0);
        } else if left > 0 {
            (self.bytes, self.used) = (bytes, used);
        }
    }

    /// Puts back the bytes that were taken out, without the next `used` bytes, to be parsed later.
    pub(super) fn keep(&mut self, taken: Taken, used: usize) {
        let Taken { bytes, used: before } = taken;
        self.is_exhausted = before + used == bytes.len();
        (self.bytes, self.used) = if self.is_exhausted { (Vec::new(), 0) } else { (bytes, before + used) };
    }

    /// Keeps `rest`, the unparsed end of received bytes. The buffer must be empty.
    pub(super) fn keep_unseen(&mut self, rest: &[u8]) {
        self.is_exhausted = rest.is_empty();
        (self.bytes, self.used) = (rest.to_vec(), 0);
    }

    /// Appends received bytes to the kept ones.
    pub(super) fn append(&mut self, received: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.used));
        self.bytes.extend_from_slice(received);
    }

    /// Appends received bytes that have not been parsed.
    pub(super) fn append_unseen(&mut self, received: &[u8]) {
        self.bytes.extend_from_slice(received);
        self.is_exhausted = false;
    }

    /// Keeps `rest`, the unused end of received bytes. The buffer must be empty.
    #[inline]
    pub(super) fn keep_rest(&mut self, rest: &[u8]) {
        self.used = 0;
        if !rest.is_empty() {
            self.bytes.clear();
            self.bytes.extend_from_slice(rest);
        } else if self.bytes.capacity() > 0 {
            self.bytes = Vec::new();
        }
    }

    /// Returns the number of kept bytes, used or not.
    pub(super) fn kept(&self) -> usize {
        self.bytes.len()
    }

    /// Drops the kept input.
    pub(super) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.used = 0;
        self.is_exhausted = true;
    }

    /// Returns true if the transport may have bytes.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.source == Readability::Readable
    }

    /// Records that the poller has reported the transport as readable.
    pub(super) fn note_readable(&mut self) {
        if self.source == Readability::Drained {
            self.source = Readability::Readable;
        }
    }

    /// Records that the transport has no more bytes for now, or that they are not wanted.
    pub(super) fn note_drained(&mut self) {
        if self.source == Readability::Readable {
            self.source = Readability::Drained;
        }
    }

    /// Returns true if the end of input has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.source == Readability::Ended
    }

    /// Records that the end of input has been read.
    pub(super) fn end(&mut self) {
        self.source = Readability::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_bytes_stay_in_order_however_they_are_used() {
        let mut input = InputBuffer::new();
        assert!(input.is_empty() && !input.has_unseen());
        input.keep_rest(b"abc");
        input.set_exhausted(true);
        input.append(b"def");
        input.set_exhausted(false);
        assert!(input.has_unseen());
        let taken = input.take();
        assert_eq!(taken.unused(), b"abcdef");
        input.put_back(taken, 2);
        assert_eq!(input.unused(), b"cdef");
        input.advance(1);
        input.append(b"g");
        assert_eq!((input.unused(), input.kept()), (&b"defg"[..], 4));
        let taken = input.take();
        assert!(input.is_empty());
        input.put_back(taken, 4);
        assert!(input.is_empty() && input.kept() == 0);
    }

    #[test]
    fn small_rest_does_not_hold_a_large_buffer() {
        let mut input = InputBuffer::new();
        input.append_unseen(&[b'x'; 10_000]);
        let taken = input.take();
        input.put_back(taken, 9_990);
        assert_eq!(input.unused(), [b'x'; 10]);
        assert!(input.bytes.capacity() < 100, "{}", input.bytes.capacity());
    }

    #[test]
    fn end_of_input_is_final() {
        let mut input = InputBuffer::new();
        input.note_drained();
        assert!(!input.is_readable());
        input.note_readable();
        assert!(input.is_readable());
        input.end();
        input.note_readable();
        input.note_drained();
        assert!(input.has_ended() && !input.is_readable());
    }
}
