//! The streams of a connection: the open ones, and the numbers that have been used.

use super::limits::{CLOSED_STREAMS, EARLY_PRIORITIES};
use super::priority::Priority;
use super::stream::Stream;
use std::collections::VecDeque;

/// The streams of a connection.
#[derive(Debug, Default)]
pub(super) struct StreamTable {
    /// The open streams, ordered by number.
    open: Vec<Stream>,
    /// The largest number used, and the largest one that was left out; 0 for none.
    last: u32,
    left_out: u32,
    /// The streams that closed most recently, the oldest first.
    closed: VecDeque<(u32, Ending)>,
    /// The priorities received for streams that do not exist yet.
    early: VecDeque<(u32, Priority)>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides sent `END_STREAM`.
    Complete,
    ResetByClient,
    /// The server reset the stream. Frames that the client sent before it received the reset may still arrive.
    ResetByServer,
}

/// The state of a stream number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    /// No stream with this or a larger number has been opened.
    Idle,
    /// The stream is open.
    UnderWay,
    Closed(Ending),
    /// The stream closed too long ago for its ending to be remembered.
    Forgotten,
    /// The number was skipped, which closed it (RFC 9113 section 5.1.1), or the stream closed too long ago. The client may
    /// have sent `WINDOW_UPDATE` and `RST_STREAM` before it knew that the server had closed the stream (section 5.1).
    LeftOut,
}

impl StreamTable {
    /// Returns the number of open streams.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the largest number used.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.place(id).map(|at| &self.open[at])
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.place(id).map(|at| &mut self.open[at])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }

    /// Returns the state of the stream number `id`.
    pub(super) fn usage(&self, id: u32) -> Usage {
        // Streams of clients have odd numbers.
        if id > self.last || id.is_multiple_of(2) {
            return Usage::Idle;
        }
        if self.place(id).is_some() {
            return Usage::UnderWay;
        }
        if let Some((_, ending)) = self.closed.iter().rev().find(|(closed, _)| *closed == id) {
            return Usage::Closed(*ending);
        }
        // All odd numbers behind the last gap were opened. Firefox, for example, begins with 3.
        if id > self.left_out { Usage::Forgotten } else { Usage::LeftOut }
    }

    /// Marks a new number as used.
    pub(super) fn mark_used(&mut self, id: u32) {
        debug_assert!(id > self.last, "numbers grow");
        if id / 2 > self.last.div_ceil(2) {
            self.left_out = id - 2;
        }
        self.last = id;
    }

    /// Adds the stream whose number was marked as used last. Its priority is the one received earlier, else `field`.
    pub(super) fn insert(&mut self, mut stream: Stream, field: Option<Priority>) {
        debug_assert!(self.open.last().is_none_or(|last| last.id < stream.id), "numbers grow");
        let early = self.early.iter().position(|(id, _)| *id == stream.id);
        let early = early.and_then(|at| self.early.remove(at)).map(|(_, priority)| priority);
        // PRIORITY_UPDATE takes precedence over the field (RFC 9218 section 7).
        stream.priority = early.or(field).unwrap_or_default();
        self.open.push(stream);
    }

    /// Removes a closed stream.
    pub(super) fn remove(&mut self, id: u32, ending: Ending) -> Option<Stream> {
        let stream = self.open.remove(self.place(id)?);
        self.note_end(id, ending);
        Some(stream)
    }

    /// Records how a stream ended.
    pub(super) fn note_end(&mut self, id: u32, ending: Ending) {
        if self.closed.len() == CLOSED_STREAMS {
            self.closed.pop_front();
        }
        self.closed.push_back((id, ending));
    }

    /// Sets the priority of a stream, which may not exist yet.
    pub(super) fn prioritize(&mut self, id: u32, priority: Priority) {
        if let Some(stream) = self.get_mut(id) {
            stream.priority = priority;
        } else if id > self.last {
            self.early.retain(|(early, _)| *early != id && *early > self.last);
            if self.early.len() == EARLY_PRIORITIES {
                self.early.pop_front();
            }
            self.early.push_back((id, priority));
        }
    }

    /// Releases unused memory.
    pub(super) fn shrink(&mut self) {
        self.open.shrink_to_fit();
        self.closed.shrink_to_fit();
        self.early.shrink_to_fit();
    }
}
