//! A response that is produced bit by bit.
//!
//! The iterable is asked for its next block only when the peer has taken the one before, so a slow peer holds one
//! block, not the response, and no thread: meanwhile the stream lies in the engine. It goes on in the thread where it
//! began, because that is where the application keeps what it needs. No block waits for the next (PEP 3333, "Buffering
//! and Streaming"): `Reply::send_soon` sees to it that it leaves within a tick, and the first at once.

use super::call::{Call, Mismatch, unstarted};
use super::{FileWrapper, chunk_of};
use crate::host::Host;
use crate::object::Object;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use wire::http1::Misuse;

/// Empty blocks that an iterable may yield in a turn: they mean "not yet", and others may go on meanwhile.
const EMPTY_PER_POLL: usize = 64;

/// An iterable under way.
pub(crate) struct Stream {
    call: Call,
    iterable: Object,
    /// `None` once the iterable has ended, and before it is started.
    iterator: Option<Object>,
    body_bytes: u64,
    /// The crew's thread that it belongs to; `None` where a loop hosts the engine.
    worker: Option<usize>,
}

/// Why pumping stopped.
pub(crate) enum Pumped {
    /// The peer has not taken the last block yet.
    Blocked,
    /// Others should have their turn.
    Due,
    /// The iterable has ended, or nothing more of it is wanted; the response has begun. Perhaps the application was told
    /// in `write` that there was too much.
    Ended(Option<Misuse>),
    /// Its body is longer than was declared.
    TooLong(Mismatch),
    /// The peer has left.
    Gone,
}

impl Stream {
    /// What the application returned.
    pub(super) fn new(call: Call, iterable: Object, worker: Option<usize>) -> Self {
        Self { call, iterable, iterator: None, body_bytes: 0, worker }
    }

    /// Takes the iterator. An application may call `start_response` in `__iter__` or in the first `__next__`.
    pub(super) fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        // SAFETY: the iterable is live and the thread attached.
        let iterator = unsafe { Object::from_new_or_error(py, ffi::PyObject_GetIter(self.iterable.as_ptr())) };
        self.iterator = Some(iterator?);
        Ok(())
    }

    /// Sends blocks until one has to wait, or the iterable ends.
    ///
    /// # Errors
    /// What the iterable raised, or what was wrong with what it yielded.
    pub(super) fn pump(&mut self, py: Python<'_>, host: &Host) -> PyResult<Pumped> {
        let mut empty = 0;
        let is_file = self.iterable.bind(py).is_exact_instance_of::<FileWrapper>();
        while let Some(iterator) = &self.iterator {
            // SAFETY: the iterator is live and the thread attached.
            let Some(item) = (unsafe { Object::from_new(ffi::PyIter_Next(iterator.as_ptr())) }) else {
                if let Some(error) = PyErr::take(py) {
                    return Err(error);
                }
                self.iterator = None;
                break;
            };
            let chunk = chunk_of(py, item)?;
            if chunk.as_ref().is_empty() {
                empty += 1;
                if empty == EMPTY_PER_POLL {
                    return Ok(Pumped::Due);
                }
                continue;
            }
            let (stop, body_bytes) = host.write(py, &self.call, |reply, draft| {
                if !reply.is_begun() {
                    if draft.is_empty() {
                        return Err(unstarted());
                    }
                    reply.begin(draft, None);
                }
                // A file ends where its length says (PEP 3333), a response must.
                let is_whole = if is_file {
                    reply.write_fitting(chunk)
                } else if let Err(misuse) = reply.write(chunk) {
                    return Ok((Some(Pumped::TooLong(Mismatch::of(misuse, draft, reply.offered_bytes()))), 0));
                } else {
                    false
                };
                reply.send_soon();
                let stop = if is_whole || reply.is_bodiless() {
                    // HEAD, 204, 304: the peer gets the head alone, and what would follow could be endless.
                    Some(Pumped::Ended(None))
                } else if reply.is_gone() {
                    Some(Pumped::Gone)
                } else if reply.is_full() {
                    Some(Pumped::Blocked)
                } else if reply.is_due() {
                    Some(Pumped::Due)
                } else {
                    None
                };
                Ok((stop, reply.body_bytes()))
            })??;
            self.body_bytes = body_bytes;
            match stop {
                Some(stop @ (Pumped::Ended(_) | Pumped::TooLong(_))) => {
                    self.iterator = None;
                    return Ok(stop);
                }
                Some(stop) => return Ok(stop),
                None => {}
            }
        }
        if !self.call.handles.exchange().with(py, |exchange| exchange.begun) {
            host.write(py, &self.call, |reply, draft| {
                if reply.is_begun() {
                    return Ok(());
                }
                if draft.is_empty() {
                    return Err(unstarted());
                }
                // An iterable that yields nothing has a body of known length.
                reply.begin(draft, Some(0));
                Ok(())
            })??;
        }
        let misuse = self.call.handles.exchange().with(py, |exchange| exchange.misuse.take());
        Ok(Pumped::Ended(misuse))
    }

    pub(super) fn call(&self) -> &Call {
        &self.call
    }

    pub(super) fn iterable(&self) -> &Object {
        &self.iterable
    }

    /// The key of its call.
    pub(super) fn key(&self) -> usize {
        self.call.key
    }

    pub(super) fn worker(&self) -> Option<usize> {
        self.worker
    }

    pub(super) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Calls the iterable's `close`, if it has one: once, whatever happened before.
    pub(super) fn close(self, py: Python<'_>) -> (Call, PyResult<()>) {
        let closed = match self.iterable.bind(py).getattr_opt(intern!(py, "close")) {
            Ok(Some(close)) => close.call0().map(drop),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        (self.call, closed)
    }
}
