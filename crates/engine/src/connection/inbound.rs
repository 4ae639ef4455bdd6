//! Input of a connection that has not been used.

/// The input that the transport may still have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The transport may have bytes: the poller has reported it since it was drained.
    Readable,
    /// The transport has none until the poller reports it.
    Drained,
    /// The end of input has been read.
    Ended,
}

/// The input that has been received and not used.
pub(super) struct Inbound {
    pub(super) bytes: Vec<u8>,
    /// The number of bytes at the beginning of `bytes` that have been used.
    pub(super) used: usize,
    /// True if `bytes` has been parsed and is not enough.
    pub(super) is_exhausted: bool,
    source: Source,
}

impl Inbound {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::new(), used: 0, is_exhausted: true, source: Source::Readable }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }

    pub(super) fn unused(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Returns true if there are bytes that have not been parsed.
    pub(super) fn has_unseen(&self) -> bool {
        !self.is_exhausted && !self.is_empty()
    }

    /// Keeps `bytes` from `used` on, to be parsed later.
    pub(super) fn keep(&mut self, bytes: Vec<u8>, used: usize) {
        self.is_exhausted = used == bytes.len();
        (self.bytes, self.used) = if self.is_exhausted { (Vec::new(), 0) } else { (bytes, used) };
    }

    /// Drops the kept input.
    pub(super) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.used = 0;
        self.is_exhausted = true;
    }

    /// Returns true if the transport may have bytes.
    pub(super) fn is_readable(&self) -> bool {
        self.source == Source::Readable
    }

    /// Records that the poller has reported the transport as readable.
    pub(super) fn note_readable(&mut self) {
        if self.source == Source::Drained {
            self.source = Source::Readable;
        }
    }

    /// Records that the transport has no more bytes for now, or that they are not wanted.
    pub(super) fn note_drained(&mut self) {
        if self.source == Source::Readable {
            self.source = Source::Drained;
        }
    }

    /// Returns true if the end of input has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.source == Source::Ended
    }

    /// Records that the end of input has been read.
    pub(super) fn end(&mut self) {
        self.source = Source::Ended;
    }
}
