//! What others can see of a server while it works: its counters, gauges and histograms, in memory that another process
//! has lent.
//!
//! The memory is read at any time, by anybody, without a lock and without the server noticing. So each number is a word
//! of its own, stored as a whole (relaxed), and what is read is not of one moment. Counters and gauges are told now and
//! then ([`Publisher::publish`]): when a thread is about to wait, when time has moved on, and by the ticker.
//! Histograms are counted where they lie.
//!
//! ```text
//!   0        FIELDS             then for each histogram
//!   ┌─────────┬─────┬──────────┬─────┬──────────┬─────┬───────────────┐
//!   │published│ ... │threads_.. │ sum │ up to .. │ ... │ beyond bounds │ ...
//!   └─────────┴─────┴──────────┴─────┴──────────┴─────┴───────────────┘
//! ```

use crate::clock;
use engine::Statistics;
use engine::scheduler::PoolStatistics;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How things are now.
pub(crate) struct Snapshot {
    /// When it was taken; as coarse as the clock is.
    pub(crate) at: Duration,
    pub(crate) engine: Statistics,
    pub(crate) is_draining: bool,
    pub(crate) is_stalled: bool,
    /// Calls that wait in the middle for their peers to read, of those that the engine knows to be out.
    pub(crate) blocked: u64,
    pub(crate) overdue: u64,
    pub(crate) pool_statistics: PoolStatistics,
    /// Log lines that the process has dropped.
    pub(crate) log_lines_dropped: u64,
}

/// The one table of what is counted: names, in the order in which they lie in the memory, and where each comes from.
macro_rules! fields {
    ($snapshot:ident => $($name:literal: $value:expr,)*) => {
        const FIELDS: &[&str] = &[$($name),*];

        impl Snapshot {
            /// The values of [`FIELDS`].
            fn values(&self) -> Values {
                let $snapshot = self;
                [$($value),*]
            }
        }
    };
}

fields! { snapshot =>
    "published": nanos(snapshot.at),
    "draining": snapshot.is_draining.into(),
    "stalled": snapshot.is_stalled.into(),
    "accepted": snapshot.engine.accepted,
    "requests": snapshot.engine.requests,
    "queue_timeouts": snapshot.engine.queue_timeouts,
    "left": snapshot.engine.left,
    "refused": snapshot.engine.refused,
    "timeouts": snapshot.engine.timeouts,
    "cut": snapshot.engine.cut,
    "health_checks": snapshot.engine.health_checks,
    "accept_pauses": snapshot.engine.accept_pauses,
    "panics": snapshot.engine.panics,
    "log_lines_dropped": snapshot.log_lines_dropped,
    "bytes_in": snapshot.engine.bytes_in,
    "bytes_out": snapshot.engine.bytes_out,
    "overdue": snapshot.overdue,
    "handovers": snapshot.pool_statistics.handovers,
    "status_1xx": snapshot.engine.statuses[0],
    "status_2xx": snapshot.engine.statuses[1],
    "status_3xx": snapshot.engine.statuses[2],
    "status_4xx": snapshot.engine.statuses[3],
    "status_5xx": snapshot.engine.statuses[4],
    "connections": snapshot.engine.connections,
    // The engine does not know a greenlet that waits for its peer from one that works.
    "running": snapshot.engine.running.saturating_sub(snapshot.blocked),
    "queued": snapshot.engine.queued,
    "suspended": snapshot.engine.suspended + snapshot.blocked,
    "threads": snapshot.pool_statistics.threads as u64,
    "threads_idle": snapshot.pool_statistics.idle as u64,
    "threads_most": snapshot.pool_statistics.max_calls as u64,
}

/// The values of [`FIELDS`], each a word.
type Values = [u64; FIELDS.len()];

/// Fields that say whether something is the case.
const FLAGS: [&str; 2] = ["draining", "stalled"];

impl Snapshot {
    /// Each counter and gauge of several engines together with its name.
    pub(crate) fn entries(engines: &[Self]) -> impl Iterator<Item = (&'static str, u64)> {
        let mut sum: Values = [0; FIELDS.len()];
        for engine in engines {
            for (sum, value) in sum.iter_mut().zip(engine.values()) {
                *sum = sum.wrapping_add(value);
            }
        }
        let entries = FIELDS.iter().copied().zip(sum).filter(|(name, _)| *name != "published");
        entries.map(|(name, value)| (name, if FLAGS.contains(&name) { value.min(1) } else { value }))
    }
}

/// What is counted by how long it took.
#[derive(Clone, Copy)]
pub(crate) enum Histogram {
    /// From the moment at which a request is whole until the application is called; 0 if it did not have to wait.
    QueueWait,
    /// From the call of the application to the end of its response.
    ServiceTime,
    /// How long a thread that has waited for the engine waits for the interpreter.
    InterpreterWait,
}

const HISTOGRAMS: [&str; 3] = ["queue_wait", "service_time", "interpreter_wait"];

/// What the buckets hold at most, in nanoseconds. One more has no bound.
const BOUNDS: [u64; 17] = {
    const MICRO: u64 = 1_000;
    const MILLI: u64 = 1_000 * MICRO;
    const SECOND: u64 = 1_000 * MILLI;
    [
        100 * MICRO,
        250 * MICRO,
        500 * MICRO,
        MILLI,
        2_500 * MICRO,
        5 * MILLI,
        10 * MILLI,
        25 * MILLI,
        50 * MILLI,
        100 * MILLI,
        250 * MILLI,
        500 * MILLI,
        SECOND,
        2_500 * MILLI,
        5 * SECOND,
        10 * SECOND,
        30 * SECOND,
    ]
};

/// Words of a histogram: the sum, and the buckets.
const HISTOGRAM: usize = 1 + BOUNDS.len() + 1;
const WORDS: usize = FIELDS.len() + HISTOGRAMS.len() * HISTOGRAM;

/// Bytes of all of it.
pub(crate) const SIZE: usize = WORDS * size_of::<AtomicU64>();

/// The names of all words, in their order.
pub(crate) fn names() -> Vec<String> {
    let buckets = |name: &'static str| (0..=BOUNDS.len()).map(move |bucket| format!("{name}_{bucket}"));
    let of = |name| std::iter::once(format!("{name}_sum")).chain(buckets(name));
    FIELDS.iter().map(|&name| name.to_owned()).chain(HISTOGRAMS.into_iter().flat_map(of)).collect()
}

/// The bounds of the buckets in seconds.
#[allow(clippy::cast_precision_loss, reason = "they are far below the 52 bits of a float")]
pub(crate) fn bounds() -> Vec<f64> {
    BOUNDS.iter().map(|&bound| bound as f64 / 1e9).collect()
}

/// The memory.
pub(crate) struct Scoreboard {
    /// In memory that `_view` keeps alive.
    words: &'static [AtomicU64; WORDS],
    _view: View,
}

/// Somebody's memory, which stays where it is and as large as it is while this exists.
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
        let words = unsafe { &*start.cast::<[AtomicU64; WORDS]>() };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        Ok(Self { words, _view: view })
    }

    fn histogram(&self, histogram: Histogram) -> &[AtomicU64] {
        &self.words[FIELDS.len() + histogram as usize * HISTOGRAM..][..HISTOGRAM]
    }

    /// Counts something that took so long; by any thread.
    pub(crate) fn count(&self, histogram: Histogram, nanos: u64) {
        let words = self.histogram(histogram);
        words[0].fetch_add(nanos, Ordering::Relaxed);
        words[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// The same, by threads of which no two do so at a time: that is cheaper.
    fn count_alone(&self, histogram: Histogram, nanos: u64) {
        let words = self.histogram(histogram);
        for (word, more) in [(&words[0], nanos), (&words[bucket(nanos)], 1)] {
            word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}

/// Tells a scoreboard how an engine is, perhaps one of several: then each adds to a word by how much its own value has
/// changed, so that the word is the sum of all, and nobody waits for anybody.
pub(crate) struct Publisher {
    scoreboard: Arc<Scoreboard>,
    /// What this engine has told last, if it is one of several.
    told: Option<Box<Values>>,
}

impl Publisher {
    pub(crate) fn new(scoreboard: Arc<Scoreboard>, is_alone: bool) -> Self {
        Self { scoreboard, told: (!is_alone).then(|| Box::new([0; FIELDS.len()])) }
    }

    /// Tells how things are.
    pub(crate) fn publish(&mut self, snapshot: &Snapshot) {
        let words = self.scoreboard.words.iter().zip(snapshot.values());
        let Some(told) = &mut self.told else {
            for (word, value) in words {
                word.store(value, Ordering::Relaxed);
            }
            return;
        };
        for ((place, (word, value)), told) in words.enumerate().zip(told.iter_mut()) {
            if place == PUBLISHED {
                word.fetch_max(value, Ordering::Relaxed);
            } else if value != *told {
                word.fetch_add(value.wrapping_sub(*told), Ordering::Relaxed);
                *told = value;
            }
        }
    }
}

/// The word that says when.
const PUBLISHED: usize = 0;

/// The word of the bucket that this is counted in. Most is short.
fn bucket(nanos: u64) -> usize {
    1 + BOUNDS.iter().position(|&bound| nanos <= bound).unwrap_or(BOUNDS.len())
}

impl View {
    /// The memory of `buffer`, which is the argument `name`.
    ///
    /// # Errors
    /// `TypeError` if it is none, `ValueError` if it cannot be written.
    pub(crate) fn of(name: &str, buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = buffer.py();
        // SAFETY: the object is live and the thread attached.
        if unsafe { ffi::PyObject_CheckBuffer(buffer.as_ptr()) } == 0 {
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

    /// Where it begins, and how many bytes it has.
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

/// Takes the time of calls, by whoever holds the engine.
pub(crate) struct Stopwatch {
    scoreboard: Arc<Scoreboard>,
    /// No other engine counts there.
    is_alone: bool,
    /// When each call began, by its key.
    began: Vec<u64>,
}

impl Stopwatch {
    pub(crate) fn new(scoreboard: Arc<Scoreboard>, is_alone: bool) -> Self {
        Self { scoreboard, is_alone, began: Vec::new() }
    }

    fn count(&self, histogram: Histogram, nanos: u64) {
        if self.is_alone {
            self.scoreboard.count_alone(histogram, nanos);
        } else {
            self.scoreboard.count(histogram, nanos);
        }
    }

    /// A request has to wait.
    pub(crate) fn queue() -> Moment {
        Moment::of(clock::fine())
    }

    /// A call begins. Its request has waited in the queue since then, if it has.
    pub(crate) fn begin(&mut self, key: usize, queued_at: Option<Moment>) {
        let now = clock::fine();
        let waited = queued_at.map_or(0, |queued_at| now.saturating_sub(queued_at.0.get()));
        self.count(Histogram::QueueWait, waited);
        self.set(key, now);
    }

    /// A call is handed out, and somebody [`takes it up`](Self::take_up) later.
    pub(crate) fn dispatch(&mut self, key: usize) {
        self.set(key, clock::fine());
    }

    /// A call that was handed out begins.
    pub(crate) fn take_up(&mut self, key: usize) {
        let handed_out = Moment::of(self.began[key]);
        self.begin(key, Some(handed_out));
    }

    /// Its response has come to its end.
    pub(crate) fn end(&mut self, key: usize) {
        let took = clock::fine().saturating_sub(self.began[key]);
        self.count(Histogram::ServiceTime, took);
    }

    fn set(&mut self, key: usize, now: u64) {
        if self.began.len() <= key {
            self.began.resize(key + 1, 0);
        }
        self.began[key] = now;
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

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
