//! A response that is produced bit by bit.
//!
//! The iterable is asked for its next block only when the peer has taken the one before, so a slow peer holds one
//! block, not the response. No block waits for the next (PEP 3333, "Buffering and Streaming"): `Reply::send_soon` sees to
//! it that it leaves within a tick, and the first at once.

use super::{Call, Chunk, FileWrapper, Wsgi, chunk_of};
use crate::object::Object;
use engine::Reply;
use pyo3::exceptions::PyAssertionError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use wire::http1::Misuse;

/// Empty blocks that an iterable may yield in a turn: they mean "not yet", and others may go on meanwhile.
const EMPTY_PER_TURN: usize = 64;

/// An iterable under way.
pub(crate) struct Stream {
    call: Call,
    iterable: Object,
    /// `None` once the iterable has ended or a file has taken its place.
    iterator: Option<Object>,
    body_bytes: u64,
    misuse: Option<Misuse>,
}

/// Why pumping stopped.
pub(crate) enum Pumped {
    /// The peer has not taken the last block yet.
    Blocked,
    /// Others should have their turn.
    Due,
    /// The iterable has ended, or nothing more of it is wanted; the response has begun.
    Ended,
    /// The peer has left.
    Gone,
}

impl Stream {
    /// Prepares to send what the application returned. A regular file behind `wsgi.file_wrapper` is sent at once.
    pub(super) fn open(
        py: Python<'_>,
        call: Call,
        returned: Object,
        is_file: bool,
        reply: &mut Reply<'_, Wsgi>,
    ) -> Result<Self, (Call, PyErr)> {
        let mut stream = Self { call, iterable: returned, iterator: None, body_bytes: 0, misuse: None };
        if is_file && stream.send_file(py, reply) {
            return Ok(stream);
        }
        // SAFETY: the iterable is live and the thread attached. An application may call start_response in __iter__
        // or in the first __next__, where write() must work too.
        let iterator = stream.call.pair.with_reply(reply, || unsafe {
            Object::from_new_or_error(py, ffi::PyObject_GetIter(stream.iterable.as_ptr()))
        });
        match iterator {
            Ok(iterator) => {
                stream.iterator = Some(iterator);
                Ok(stream)
            }
            Err(error) => {
                let (call, closed) = stream.close(py);
                // What went wrong first is what is reported.
                drop(closed);
                Err((call, error))
            }
        }
    }

    /// Hands a regular file to the engine; false if it has to be read instead.
    fn send_file(&mut self, py: Python<'_>, reply: &mut Reply<'_, Wsgi>) -> bool {
        let draft = &self.call.pair.exchange().draft;
        if draft.is_empty() || reply.is_begun() {
            return false;
        }
        let wrapper = self.iterable.bind(py);
        let Ok(wrapper) = wrapper.cast::<FileWrapper>() else { return false };
        let Some((file, offset, left)) = wrapper.get().regular_file(py) else { return false };
        let length = draft.content_length().map_or(left, |declared| declared.min(left));
        reply.begin(draft, Some(left));
        // The length is at most what was declared.
        self.misuse = reply.write_file(file, offset, length).err();
        self.body_bytes = reply.body_bytes();
        true
    }

    /// Sends blocks until one has to wait, or the iterable ends.
    ///
    /// # Errors
    /// What the iterable raised, or what was wrong with what it yielded.
    pub(super) fn pump(&mut self, py: Python<'_>, reply: &mut Reply<'_, Wsgi>) -> PyResult<Pumped> {
        let mut empty = 0;
        while let Some(iterator) = &self.iterator {
            let iterator = iterator.as_ptr();
            // SAFETY: the iterator is live and the thread attached.
            let next = self.call.pair.with_reply(reply, || unsafe { Object::from_new(ffi::PyIter_Next(iterator)) });
            let Some(item) = next else {
                if let Some(error) = PyErr::take(py) {
                    return Err(error);
                }
                self.iterator = None;
                break;
            };
            let chunk = chunk_of(py, item)?;
            if chunk.as_ref().is_empty() {
                empty += 1;
                if empty == EMPTY_PER_TURN {
                    return Ok(Pumped::Due);
                }
                continue;
            }
            self.begin(None, reply)?;
            if let Some(stop) = self.send(chunk, reply) {
                return Ok(stop);
            }
        }
        if let Some(misuse) = self.call.pair.exchange().misuse.take() {
            self.misuse = Some(misuse);
        }
        // An iterable that yields nothing has a body of known length.
        self.begin(Some(0), reply)?;
        self.body_bytes = reply.body_bytes();
        Ok(Pumped::Ended)
    }

    fn send(&mut self, chunk: Chunk, reply: &mut Reply<'_, Wsgi>) -> Option<Pumped> {
        let written = reply.write(chunk);
        reply.send_soon();
        self.body_bytes = reply.body_bytes();
        if let Err(misuse) = written {
            self.misuse = Some(misuse);
            self.iterator = None;
        } else if reply.is_gone() {
            return Some(Pumped::Gone);
        } else if reply.is_bodiless() {
            // HEAD, 204, 304: the peer gets the head alone, and what would follow could be endless.
            self.iterator = None;
        } else if reply.is_full() {
            return Some(Pumped::Blocked);
        } else if reply.is_due() {
            return Some(Pumped::Due);
        }
        None
    }

    fn begin(&self, length: Option<u64>, reply: &mut Reply<'_, Wsgi>) -> PyResult<()> {
        if reply.is_begun() {
            return Ok(());
        }
        let draft = &self.call.pair.exchange().draft;
        if draft.is_empty() {
            return Err(PyAssertionError::new_err(
                "start_response was not called before the first block of the response (PEP 3333)",
            ));
        }
        reply.begin(draft, length);
        Ok(())
    }

    pub(super) fn misuse(&self) -> Option<Misuse> {
        self.misuse
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
