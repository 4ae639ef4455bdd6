//! The state of a running server for other processes: counters, gauges and histograms in memory that another process
//! has lent.
//!
//! Any process may read the memory at any time, without a lock and unnoticed by the server. So each number is one word,
//! stored atomically (relaxed), and the numbers read need not be of the same moment. Counters and gauges are stored
//! from time to time ([`Publisher::publish`]): before a thread waits, when the clock has advanced, and by the ticker.
//! Histograms are counted directly in the memory.
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

/// The memory in which a server publishes its state.
pub(crate) struct Scoreboard {
    /// The words, in memory that `_view` keeps alive.
    words: &'static Words,
    _view: View,
}

/// A buffer that Python has lent. Address and size of its memory do not change as long as this exists.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: the only use is its release, for which the drop attaches to the interpreter.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl Scoreboard {
    /// Takes the memory of `buffer` and sets it to zero.
    ///
    /// # Errors
    /// `TypeError` if it is not a buffer, `ValueError` if it is read-only, too small or not aligned.
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
        // SAFETY: the memory is writable, large enough and aligned, and exists until the view is released, which
        // happens when the reference is dropped. All accesses are atomic; those of other processes are outside Rust's
        // memory model.
        let words = unsafe { &*start.cast::<Words>() };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        Ok(Self { words, _view: view })
    }

    /// Counts a duration. Any thread may call this.
    pub(crate) fn count(&self, histogram: Histogram, nanos: u64) {
        layout::count(self.words, histogram, nanos);
    }
}

/// Publishes the values of one engine on a scoreboard.
pub(crate) struct Publisher {
    scoreboard: Arc<Scoreboard>,
    /// The values that this engine published last; `None` if the server has only this engine.
    published: Option<Box<Values>>,
    /// The acceptor whose handshakes this engine publishes, and the number of handshakes at the last publication.
    handshakes: Option<(Arc<Acceptor>, u64)>,
}

impl Publisher {
    /// Creates the publisher of an engine. `acceptor` counts the handshakes; only one engine of a process has it.
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
    /// Borrows the memory of `buffer`, which is the argument `name`.
    ///
    /// # Errors
    /// `TypeError` if it is not a buffer, `ValueError` if it is read-only.
    pub(crate) fn of(name: &str, buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = buffer.py();
        // SAFETY: the object is live and the thread attached.
        if unsafe { compat::PyObject_CheckBuffer(buffer.as_ptr()) } == 0 {
            let kind = buffer.get_type().name()?;
            return Err(PyTypeError::new_err(format!("{name}: a buffer is wanted, such as an mmap, not {kind}")));
        }
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: as above; the call fills the view, which does not move. Without further flags the memory is
        // contiguous.
        if unsafe { ffi::PyObject_GetBuffer(buffer.as_ptr(), &raw mut *view, ffi::PyBUF_WRITABLE) } != 0 {
            let error = PyErr::fetch(py);
            let refusal = PyValueError::new_err(format!("{name}: its memory is not to be used: {}", error.value(py)));
            refusal.set_cause(py, Some(error));
            return Err(refusal);
        }
        Ok(Self(view))
    }

    /// Borrows memory for a `T` that consists of words. Returns the view and the address.
    ///
    /// # Errors
    /// `TypeError` if it is not a buffer, `ValueError` if it is too small or not aligned.
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

    /// Returns the address of the memory and its size in bytes.
    pub(crate) fn memory(&self) -> (*mut std::ffi::c_void, usize) {
        (self.0.buf, self.0.len.cast_unsigned())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: the view was filled, and is released only once.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&raw mut *self.0) });
    }
}

/// Measures how long calls and their requests take. Used while the engine is locked.
pub(crate) struct Stopwatch {
    scoreboard: Arc<Scoreboard>,
    /// True if no other engine counts in this scoreboard.
    is_alone: bool,
    /// The times of each call, by its key.
    times: Vec<CallTimes>,
}

/// The start of a call, and the time for which its request waited in the queue, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct CallTimes {
    /// The start of the call; 0 once its response has ended.
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

    /// Returns the current time, at which a request enters the queue.
    pub(crate) fn queue() -> Moment {
        Moment::of(clock::fine())
    }

    /// Notes the start of a call. `queued_at` is the time at which its request entered the queue; `None` if it did not
    /// wait.
    pub(crate) fn begin(&mut self, key: usize, queued_at: Option<Moment>) {
        let now = clock::fine();
        let waited = queued_at.map_or(0, |queued_at| now.saturating_sub(queued_at.0.get()));
        self.count(Histogram::QueueWait, waited);
        self.set(key, CallTimes { began: now, waited });
    }

    /// Returns for how long the request of a running call waited in the queue.
    pub(crate) fn queue_wait(&self, key: usize) -> Duration {
        Duration::from_nanos(self.times[key].waited)
    }

    /// Notes that a call was dispatched. It begins later, with [`take_up`](Self::take_up).
    pub(crate) fn dispatch(&mut self, key: usize) {
        self.set(key, CallTimes { began: clock::fine(), waited: 0 });
    }

    /// Notes the start of a call that was dispatched.
    pub(crate) fn take_up(&mut self, key: usize) {
        let dispatched = Moment::of(self.times[key].began);
        self.begin(key, Some(dispatched));
    }

    /// Notes the end of a response, or that the request has become a WebSocket, which may be open for days. Only the
    /// first call for a key counts.
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

/// A time of [`clock::fine`], which is never 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    fn of(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }
}
