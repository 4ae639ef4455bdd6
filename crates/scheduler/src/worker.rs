//! A thread of the pool, as the rules see it.

use crate::state::ThreadState;
use std::collections::VecDeque;
use transitions::State;

#[derive(Debug)]
pub(crate) struct Worker<W> {
    pub(crate) state: State<ThreadState>,
    /// Work that only this thread may run.
    pub(crate) inbox: VecDeque<W>,
    /// True if the thread was notified to run its inbox. It then already counts as a running call.
    pub(crate) has_call_slot: bool,
    /// True once the event for which the thread waits within its call has occurred.
    pub(crate) woken: bool,
    /// True once the remains of the last work have been released. This is done without the lock.
    pub(crate) is_cleaned_up: bool,
}

impl<W> Worker<W> {
    pub(crate) fn new() -> Self {
        Self { state: State::new(), inbox: VecDeque::new(), has_call_slot: false, woken: false, is_cleaned_up: true }
    }

    /// Returns true if the thread was never started or has exited, and no work waits for it.
    #[cfg(all(test, loom))]
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state.get(), ThreadState::Absent | ThreadState::Exited)
            && self.inbox.is_empty()
            && !self.has_call_slot
    }
}
