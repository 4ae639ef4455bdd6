//! The engine group of all workers: its records lie in memory that the supervisor shares with them.

use crate::scoreboard::View;
use engine::{Bell, ProcessRecord, SharedRecords};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Bytes of a worker's record.
pub(crate) const SIZE: usize = size_of::<ProcessRecord>();

/// `group` of the server's arguments.
#[derive(FromPyObject)]
pub(crate) struct Arguments<'py>(Bound<'py, PyAny>, usize, usize, Vec<RawFd>);

impl Arguments<'_> {
    /// Takes over the descriptors, and keeps the memory for as long as there is a server.
    ///
    /// # Errors
    /// `TypeError` if the memory is none, `ValueError` if something does not fit.
    pub(crate) fn take(self) -> PyResult<SharedRecords> {
        let Self(memory, stride, own, descriptors) = self;
        // SAFETY: the caller hands them over and does nothing with them any more.
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
            // SAFETY: the memory is writable, large enough and aligned, and lies there until the view is released,
            // which is when the records go. A record is made of atomics, for which any bytes are a value, and all that
            // is done with it here is atomic; what other processes do is not Rust's.
            unsafe { &*start.byte_add(index * stride).cast::<ProcessRecord>() }
        };
        Ok(SharedRecords::new((0..count).map(record).collect(), bells, own, Box::new(view)))
    }
}

/// See the stub.
#[cfg(target_os = "linux")]
#[pyfunction]
pub(crate) fn eventfd() -> PyResult<RawFd> {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::IntoRawFd as _;

    let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(std::io::Error::from)?;
    Ok(fd.into_raw_fd())
}
