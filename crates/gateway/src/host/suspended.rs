//! The suspended calls of a hosting loop. There a call runs concurrently with others, writes its response part by part
//! through its exchange, and never blocks. It may continue after its response is complete.
//!
//! ```text
//!   call ── suspended ──▶ kept here ── concluded ──▶ over
//!     send … send(last)   the exchange is completed, the connection goes on
//!     conclude            the call is over: what it held is released
//! ```
//!
//! While the host itself works on a call, the call is not stored here. It leaves exactly once: it is concluded, or the
//! end of the server takes all that remain.

use super::job::InFlight;
use crate::guarded::Guarded;
use crate::interface::Interface;
use pyo3::prelude::*;

/// The suspended calls of one host.
pub(super) struct SuspendedCalls<I: Interface> {
    /// The calls, indexed by their keys.
    calls: Guarded<Vec<Option<InFlight<I>>>>,
}

impl<I: Interface> Default for SuspendedCalls<I> {
    fn default() -> Self {
        Self { calls: Guarded::new(Vec::new()) }
    }
}

impl<I: Interface> SuspendedCalls<I> {
    pub(super) fn keep(&self, py: Python<'_>, call: InFlight<I>) {
        let key = call.key();
        let before = self.calls.with(py, |calls| {
            if calls.len() <= key {
                calls.resize_with(key + 1, || None);
            }
            calls[key].replace(call)
        });
        debug_assert!(before.is_none(), "a call is suspended once");
    }

    /// Removes and returns the call with this key; `None` if the server has ended and taken all calls.
    pub(super) fn take(&self, py: Python<'_>, key: usize) -> Option<InFlight<I>> {
        self.calls.with(py, |calls| calls.get_mut(key).and_then(Option::take))
    }

    pub(super) fn take_all(&self, py: Python<'_>) -> Vec<InFlight<I>> {
        self.calls.with(py, std::mem::take).into_iter().flatten().collect()
    }
}
