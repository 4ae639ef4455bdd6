//! When a head is worth keeping, to compare the next ones with.

/// Says of each head of a connection whether it is to be kept. Never the first one, because many connections have one
/// request only; and ever more rarely where keeping did not pay.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The number of heads that have been kept, those that were forgotten included.
    kept: u32,
    /// Heads until the next one is worth keeping; `patience` is reset to `backoff`. While heads do repeat, both are 0.
    /// If they never do, one in 64 is kept in case they begin to.
    patience: u8,
    backoff: u8,
    heads_seen: bool,
}

impl Keeping {
    /// Returns [`RequestHead::kept`](super::RequestHead::kept).
    pub(crate) fn kept(&self) -> u32 {
        self.kept
    }

    /// Takes note of a head, which is or is not a repetition of the one that was kept last. Returns whether it is to be
    /// kept.
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
