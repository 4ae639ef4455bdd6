//! The engine group of all workers. Its records are in memory that the supervisor shares with the workers.

use crate::scoreboard::View;
use engine::{Bell, ProcessRecord, SharedRecords};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The size of a worker's record in bytes.
pub(crate) const SIZE: usize = size_of::<ProcessRecord>();

/// The setting `group` of the server: the shared memory, the distance of two records in bytes, the index of this
/// worker's record, and the event descriptors.
#[derive(FromPyObject)]
pub(crate) struct Arguments<'py>(Bound<'py, PyAny>, usize, usize, Vec<RawFd>);

impl Arguments<'_> {
    /// Takes ownership of the descriptors, and keeps the memory as long as the server exists.
    ///     ///
    /// # Errors
    /// `TypeError` if the first item is not a writable buffer, `ValueError` if the numbers do not fit its size.
    pub(crate) fn take(self) -> PyResult<SharedRecords> {
        let Self(memory, stride, own, descriptors) = self;
        // SAFETY: the caller passes ownership of the descriptors, and does not use them afterwards.
        let bells: Box<[_]> = descriptors.iter().map(|&fd| Bell::new(unsafe { OwnedFd::from_raw_fd(fd) })).collect();
        let view = View::of("group", &memory)?;
        let (start, length) = view.memory();
        let count = bells.len();
        let needed = count.saturating_sub(1).checked_mul(stride).and_then(|bytes| bytes.checked_add(SIZE));
        if own >= count || stride < SIZE || needed.is_none_or(|needed| length < needed) {
            return Err(PyValueError::new_err(format!(
                "group: {length} bytes with a record every {stride} bytes do not hold record {own} of {count}"
            )));
        }
        if [start.addr(), stride].iter().any(|&at| !at.is_multiple_of(align_of::<ProcessRecord>())) {
            return Err(PyValueError::new_err(format!(
                "group: records have to begin at multiples of {}",
                align_of::<ProcessRecord>()
            )));
        }
        let record = |index: usize| {
            // SAFETY: the memory is writable, large enough and aligned. It exists until the view is released, which
            // happens when the records are dropped. A record consists of atomics, for which any bytes are a valid
            // value, and all accesses are atomic; accesses of other processes are outside Rust's memory model.
            unsafe { &*start.byte_add(index * stride).cast::<ProcessRecord>() }
        };
        Ok(SharedRecords::new((0..count).map(record).collect(), bells, own, Box::new(view)))
    }
}

/// Creates an event descriptor that is non-blocking and closed on exec.
#[cfg(target_os = "linux")]
#[pyfunction]
pub(crate) fn eventfd() -> PyResult<RawFd> {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::IntoRawFd as _;

    let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    Ok(fd.into_raw_fd())
}
