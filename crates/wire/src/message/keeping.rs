//! The decision which heads a reader keeps, to compare later heads with them.

/// Decides for each head of a connection whether it is kept. The first head never is, because many connections have
/// only one request. If kept heads are not repeated, heads are kept more and more rarely.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The number of heads that have been kept so far, including those that were discarded later.
    kept: u32,
    /// The number of heads to skip before one is kept. `backoff` is its next start value: each kept head about doubles
    /// it, up to 63, and a repetition sets it to 0. So one head in about 64 is kept even if none has been repeated yet.
    patience: u8,
    backoff: u8,
    heads_seen: bool,
}

impl Keeping {
    /// Returns [`RequestHead::kept`](super::RequestHead::kept).
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Records a head. `is_repetition` is true if it equals the head that was kept last. Returns true if this head is
    /// to be kept.
    pub(crate) fn keeps(&mut self, is_repetition: bool) -> bool {
        if is_repetition {
            self.backoff = 0;
            return false;
        }
        if !std::mem::replace(&mut self.heads_seen, true) {
            return false;
        }
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        self.backoff = (self.backoff * 2 + 1).min(63);
        self.patience = self.backoff - 1;
        self.kept = self.kept.wrapping_add(1);
        true
    }
}
