//! Output of a connection that has not been sent.

use crate::compose::Composer;
use crate::deadline::Millis;
use crate::in_flight::Ending;
use crate::output::Output;

/// Output of a connection, and the measurements of how fast its peer takes it.
pub(super) struct Outbound<C> {
    /// Output being composed; bytes that could not be sent are in `waiting`.
    pub(super) composer: Option<Box<Composer<C>>>,
    pub(super) waiting: Output<C>,
    /// Bytes sent since the last head, and for how long that had to wait, up to the wait that is under way.
    pub(super) moved: u64,
    pub(super) waited: Millis,
    /// The way in which the last response in parts ended.
    pub(super) ending: Ending,
}

impl<C: AsRef<[u8]>> Outbound<C> {
    pub(super) fn new() -> Self {
        Self { composer: None, waiting: Output::new(), moved: 0, waited: 0, ending: Ending::Unknown }
    }

    pub(super) fn discard(&mut self) {
        if let Some(composer) = &mut self.composer {
            composer.clear();
        }
        self.waiting.clear();
    }
}
