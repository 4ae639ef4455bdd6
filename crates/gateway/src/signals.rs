//! Signal handlers: protection from asynchronous exceptions ([`SignalHandler`]), and stack space for them
//! ([`make_room`]).
//!
//! CPython runs every handler on the thread's alternate stack if it has one (`SA_ONSTACK`, since 3.10), and
//! faulthandler gives the main thread such a stack with space for one or two signals. The kernel delivers several
//! pending signals nested: it pushes the frame of the next signal before the handler of the first has begun. Each frame
//! holds all registers, about 3 KiB with AVX-512 and 11 KiB with AMX. So a few different signals that arrive together,
//! for example after a process was stopped for a moment, overflow that stack, and the process dies of SIGSEGV. This
//! module installs a stack that is large enough for all signals at once.

use crate::interrupt::uninterrupted;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::io;
use std::ptr;

/// A signal handler during which no `RequestTimeout` is raised.
///
/// If the thread that handles signals also calls the application, an exception for the call could be raised in the
/// first instruction of a handler that is a Python function, and the signal would be lost. So a pending exception is
/// cancelled before the handler, and set again after it.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct SignalHandler {
    handler: Py<PyAny>,
}

#[pymethods]
impl SignalHandler {
    #[new]
    fn new(handler: Py<PyAny>) -> Self {
        Self { handler }
    }

    /// The object to which the wrapped handler is bound, like the attribute of a bound method.
    #[getter(__self__)]
    fn bound_to(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.handler.getattr(py, "__self__")
    }

    #[pyo3(signature = (*arguments))]
    fn __call__(&self, py: Python<'_>, arguments: Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        uninterrupted(py, || self.handler.call1(py, arguments))
    }
}

/// The maximum number of nested signals. Each blocks itself while its handler runs, and the kernel has 64.
const SIGNALS: usize = 64;

/// The number of bytes that a handler needs besides its frame. CPython's handler stores the signal number and writes a
/// byte, which takes a few hundred bytes.
const HANDLER: usize = 4096;

/// The number of bytes for faulthandler's handler, which writes the stacks of all threads.
const DUMP: usize = 64 << 10;

/// Replaces the alternate signal stack of this thread, if it has one that is too small for all signals at once.
///
/// The new stack is never freed, because a handler may start on it at any time. It reserves addresses, but uses memory
/// only as deep as signals have ever nested. Forked children inherit it; new threads have none.
pub(crate) fn make_room() -> io::Result<()> {
    let size = SIGNALS * (frame() + HANDLER) + DUMP;
    // SAFETY: all zeros is a valid value of this structure, and the call fills it.
    let now = unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        check(libc::sigaltstack(ptr::null(), &raw mut now))?;
        now
    };
    if now.ss_flags & libc::SS_DISABLE != 0 || now.ss_size >= size {
        return Ok(()); // handlers run on the thread's own stack, which is large, or the stack is already large enough
    }
    // The page below the stack is made inaccessible, so that an overflow does not overwrite other memory.
    // SAFETY: the call only returns the size of a page.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let size = size.next_multiple_of(page);
    // SAFETY: the call creates new memory, to which nothing else refers.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), page + size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page and the stack are within the mapping, which is never unmapped once it is in use. The call fails
    // and changes nothing if this thread is on its alternate stack now.
    let outcome = unsafe {
        let room = libc::stack_t { ss_sp: base.byte_add(page), ss_flags: 0, ss_size: size };
        check(libc::mprotect(base, page, libc::PROT_NONE))
            .and_then(|()| check(libc::sigaltstack(&raw const room, ptr::null_mut())))
    };
    if outcome.is_err() {
        // SAFETY: the memory was mapped above, and nothing uses it.
        unsafe { libc::munmap(base, page + size) };
    }
    outcome
}

/// Returns the size of a signal's frame on this processor, in bytes.
fn frame() -> usize {
    #[cfg(target_os = "linux")]
    // SAFETY: the call reads a value that the kernel passed to the process at its start; 0 before Linux 5.14.
    let size = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    #[cfg(not(target_os = "linux"))]
    let size = 0;
    usize::try_from(size).unwrap_or(0).max(libc::MINSIGSTKSZ).max(4096)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
