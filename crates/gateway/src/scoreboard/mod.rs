//! The state of a server that others can see while it works: its counters, gauges and histograms, in memory that
//! another process has lent.
//!
//! The memory is read at any time, by any process, without a lock and without the server noticing. So each number is a
//! word of its own, stored as a whole (relaxed), and what is read is not of one moment. Counters and gauges are stored
//! now and then ([`Publisher::publish`]): when a thread is about to wait, when time has moved on, and by the ticker.
//! Histograms are counted where they lie.
//!
//! ```text
//!   0        FIELDS             then for each histogram
//!   ┌─────────┬─────┬───────────┬─────┬──────────┬─────┬───────────────┬─────┐
//!   │published│ ... │threads_.. │ sum │ up to .. │ ... │ beyond bounds │ ... │ handshakes
//!   └─────────┴─────┴───────────┴─────┴──────────┴─────┴───────────────┴─────┘
//! ```

mod layout;

pub(crate) use layout::{Histogram, SIZE, Snapshot, bounds, names};

use crate::clock;
use crate::compat;
use layout::{Values, Words};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tls::Acceptor;

/// The memory.
pub(crate) struct Scoreboard {
    /// In memory that `_view` keeps alive.
    words: &'static Words,
    _view: View,
}

/// Memory that Python has lent, which stays where it is and as large as it is while this exists.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: nothing of it is used but to release it, which its drop does attached.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl Scoreboard {
    /// Takes the memory of `buffer` and begins at zero.
    ///
    /// # Errors
    /// `TypeError` if it is none, `ValueError` if it is not fit for this.
    pub(crate) fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let view = View::of("scoreboard", buffer)?;
        let (start, length) = view.memory();
        if length < SIZE {
            return Err(PyValueError::new_err(format!(
                "scoreboard: {length} bytes are too few; SCOREBOARD_SIZE is {SIZE}"
            )));
        }
        if !start.addr().is_multiple_of(align_of::<AtomicU64>()) {
            return Err(PyValueError::new_err(format!(
                "scoreboard: its memory has to begin at a multiple of {}",
                align_of::<AtomicU64>()
            )));
        }
        // SAFETY: the memory is writable, large enough and aligned, and lies there until the view is released, which is
        // when the reference goes. All that is done with it here is atomic; what other processes do is not Rust's.
        let words = unsafe { &*start.cast::<Words>() };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        Ok(Self { words, _view: view })
    }

    /// Counts something that took so long; by any thread.
    pub(crate) fn count(&self, histogram: Histogram, nanos: u64) {
        layout::count(self.words, histogram, nanos);
    }
}

/// Stores on a scoreboard how an engine is.
pub(crate) struct Publisher {
    scoreboard: Arc<Scoreboard>,
    /// The values that this engine has published last, if it is one of several.
    published: Option<Box<Values>>,
    /// The handshakes of the process, if this engine publishes them, and the number of those published.
    handshakes: Option<(Arc<Acceptor>, u64)>,
}

impl Publisher {
    /// Creates the publisher of an engine. The handshakes are those of `acceptor`, which one engine of a process has.
    pub(crate) fn new(scoreboard: Arc<Scoreboard>, is_alone: bool, acceptor: Option<Arc<Acceptor>>) -> Self {
        let published = (!is_alone).then(|| Box::new([0; layout::VALUES]));
        Self { scoreboard, published, handshakes: acceptor.map(|acceptor| (acceptor, 0)) }
    }

    pub(crate) fn publish(&mut self, snapshot: &Snapshot) {
        layout::publish(self.scoreboard.words, snapshot, self.published.as_deref_mut());
        if let Some((acceptor, published)) = &mut self.handshakes {
            let total = acceptor.handshakes();
            if total != *published {
                *published = total;
                layout::publish_handshakes(self.scoreboard.words, &acceptor.counts());
            }
        }
    }
}

impl View {
    /// The memory of `buffer`, which is the argument `name`.
    ///
    /// # Errors
    /// `TypeError` if it is none, `ValueError` if it cannot be written.
    pub(crate) fn of(name: &str, buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = buffer.py();
        // SAFETY: the object is live and the thread attached.
        if unsafe { compat::PyObject_CheckBuffer(buffer.as_ptr()) } == 0 {
            let kind = buffer.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name}: a buffer is wanted, such as an mmap, not {kind}")));
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: as above; the view is ours to be filled, and does not move. Without further flags it is one piece.
        if unsafe { ffi::PyObject_GetBuffer(buffer.as_ptr(), &raw mut *view, ffi::PyBUF_WRITABLE) } != 0 {
            let error = PyErr::fetch(py);
            let refusal = PyValueError::new_err(format!("{name}: its memory is not to be used: {}", error.value(py)));
            refusal.set_cause(py, Some(error));
            return Err(refusal);
        }
        Ok(Self(view))
    }

    /// Returns memory that has room for a `T`, which is made of words, and the view that keeps it.
    ///
    /// # Errors
    /// `TypeError` if it is none, `ValueError` if it is too small or not aligned.
    pub(crate) fn lend<T>(name: &str, buffer: &Bound<'_, PyAny>) -> PyResult<(Self, *mut T)> {
        let view = Self::of(name, buffer)?;
        let (start, length) = view.memory();
        if length < size_of::<T>() || !start.addr().is_multiple_of(align_of::<AtomicU64>()) {
            return Err(PyValueError::new_err(format!(
                "{name}: {} bytes at a multiple of {} are wanted, not {length} at {start:p}",
                size_of::<T>(),
                align_of::<AtomicU64>()
            )));
        }
        Ok((view, start.cast()))
    }

    /// Returns the address and the number of bytes of the memory.
    pub(crate) fn memory(&self) -> (*mut std::ffi::c_void, usize) {
        (self.0.buf, self.0.len.cast_unsigned())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the view was filled and is released once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// Measures calls, with the engine locked.
pub(crate) struct Stopwatch {
    scoreboard: Arc<Scoreboard>,
    /// No other engine counts there.
    is_alone: bool,
    /// The times of each call, by its key.
    times: Vec<CallTimes>,
}

/// When a call began, and for how long its request had waited in the queue, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct CallTimes {
    /// 0: its response has ended.
    began: u64,
    waited: u64,
}

impl Stopwatch {
    pub(crate) fn new(scoreboard: Arc<Scoreboard>, is_alone: bool) -> Self {
        Self { scoreboard, is_alone, times: Vec::new() }
    }

    fn count(&self, histogram: Histogram, nanos: u64) {
        if self.is_alone {
            layout::count_alone(self.scoreboard.words, histogram, nanos);
        } else {
            self.scoreboard.count(histogram, nanos);
        }
    }

    /// Returns the time at which a request is put into the queue.
    pub(crate) fn queue() -> Moment {
        Moment::of(clock::fine())
    }

    /// A call begins. Its request has waited in the queue since then, if it has.
    pub(crate) fn begin(&mut self, key: usize, queued_at: Option<Moment>) {
        let now = clock::fine();
        let waited = queued_at.map_or(0, |queued_at| now.saturating_sub(queued_at.0.get()));
        self.count(Histogram::QueueWait, waited);
        self.set(key, CallTimes { began: now, waited });
    }

    /// Returns for how long the request of a call that has begun had waited in the queue.
    pub(crate) fn queue_wait(&self, key: usize) -> Duration {
        Duration::from_nanos(self.times[key].waited)
    }

    /// A call is dispatched, and [`taken up`](Self::take_up) later.
    pub(crate) fn dispatch(&mut self, key: usize) {
        self.set(key, CallTimes { began: clock::fine(), waited: 0 });
    }

    /// A call that was dispatched begins.
    pub(crate) fn take_up(&mut self, key: usize) {
        let dispatched = Moment::of(self.times[key].began);
        self.begin(key, Some(dispatched));
    }

    /// Its response has come to its end, or the request has become a WebSocket, which may be open for days. Only the
    /// first end counts.
    pub(crate) fn end(&mut self, key: usize) {
        let began = std::mem::take(&mut self.times[key].began);
        if began != 0 {
            self.count(Histogram::ServiceTime, clock::fine().saturating_sub(began));
        }
    }

    fn set(&mut self, key: usize, times: CallTimes) {
        if self.times.len() <= key {
            self.times.resize(key + 1, CallTimes::default());
        }
        self.times[key] = times;
    }
}

/// A moment of [`clock::fine`], which is never that long ago.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    fn of(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}
