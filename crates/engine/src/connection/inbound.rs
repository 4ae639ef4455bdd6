//! Input of a connection that has not been used.

/// What the transport may still give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The transport may have bytes: the poller has reported it since it was drained.
    Readable,
    /// The transport has none until the poller reports it.
    Drained,
    /// The end of input has been read.
    Ended,
}

/// What has been received and not used.
pub(super) struct Inbound {
    pub(super) bytes: Vec<u8>,
    /// Of `bytes`, so much is used.
    pub(super) used: usize,
    /// `bytes` has been looked at and is not enough.
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

    /// Whether there are bytes that have not been looked at.
    pub(super) fn has_unseen(&self) -> bool {
        !self.is_exhausted && !self.is_empty()
    }

    /// Keeps `bytes` from `used` on, to be looked at later.
    pub(super) fn keep(&mut self, bytes: Vec<u8>, used: usize) {
        self.is_exhausted = used == bytes.len();
        (self.bytes, self.used) = if self.is_exhausted { (Vec::new(), 0) } else { (bytes, used) };
    }

    /// Forgets what is here, and looks at no more of it.
    pub(super) fn discard(&mut self) {
        self.bytes = Vec::new();
        self.used = 0;
        self.is_exhausted = true;
    }

    /// Whether the transport may have bytes.
    pub(super) fn is_readable(&self) -> bool {
        self.source == Source::Readable
    }

    /// The poller has reported the transport.
    pub(super) fn note_readable(&mut self) {
        if self.source == Source::Drained {
            self.source = Source::Readable;
        }
    }

    /// The transport has no more bytes for now, or they are not wanted.
    pub(super) fn note_drained(&mut self) {
        if self.source == Source::Readable {
            self.source = Source::Drained;
        }
    }

    /// Whether the end of input has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.source == Source::Ended
    }

    /// The end of input has been read.
    pub(super) fn end(&mut self) {
        self.source = Source::Ended;
    }
}
