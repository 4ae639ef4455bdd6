//! Signal handlers: no exception of another's in them ([`SignalHandler`]), and room for them ([`make_room`]).
//!
//! CPython runs every handler on the alternate stack of the thread, where that has one (`SA_ONSTACK`, since 3.10), and
//! faulthandler gives the main thread one that has room for a signal or two. Signals that are pending together are
//! delivered into each other: the kernel lays the frame of the next upon that of the one before, before the first
//! handler has begun, and each frame holds all registers, which are about 3 KiB with AVX-512 and 11 with AMX. So a
//! handful of different signals, as a process gets them that was stopped for a moment, runs over the end of that stack
//! (or, worse, nearly), and the process dies of SIGSEGV. Here is a stack that has room for every signal there is.

use crate::interrupt::uninterrupted;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::io;
use std::ptr;

/// A signal handler in which no `RequestTimeout` is raised.
///
/// Where the thread that handles signals calls the application too, an exception that is to be raised in the call could
/// be raised in the first instruction of a handler that is a Python function: the signal would be lost. So the
/// exception is taken back before, and raised behind the handler.
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

    /// The object whose method the handler is, as of a bound method.
    #[getter(__self__)]
    fn bound_to(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.handler.getattr(py, "__self__")
    }

    #[pyo3(signature = (*arguments))]
    fn __call__(&self, py: Python<'_>, arguments: Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        uninterrupted(py, || self.handler.call1(py, arguments))
    }
}

/// The maximum number of signals within each other: each blocks itself while its handler runs. The kernel has 64.
const SIGNALS: usize = 64;

/// The number of bytes that a handler uses beyond its frame. CPython's notes the number and writes a byte; it needs a
/// few hundred bytes.
const HANDLER: usize = 4096;

/// faulthandler's writes the stacks of all threads.
const DUMP: usize = 64 << 10;

/// Where this thread has an alternate stack for signal handlers that is too small for all of them at once, replace it.
///
/// The new one is never given back: a handler may be on its way there at any time. It costs addresses, and memory only
/// as far down as signals have ever been within each other. Children have it too, new threads have none.
pub(crate) fn make_room() -> io::Result<()> {
    let size = SIGNALS * (frame() + HANDLER) + DUMP;
    // SAFETY: all zeros is a valid value of this structure, and the call fills it.
    let now = unsafe {
        let mut now: libc::stack_t = std::mem::zeroed();
        check(libc::sigaltstack(ptr::null(), &raw mut now))?;
        now
    };
    if now.ss_flags & libc::SS_DISABLE != 0 || now.ss_size >= size {
        return Ok(()); // handlers run on the thread's own stack, which is large; or it is done
    }
    // Below it lies a page without access, so that what runs over its end does not write elsewhere.
    // SAFETY: asks for one page; the system tells.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let size = size.next_multiple_of(page);
    // SAFETY: new memory, to which nothing else refers.
    let base = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANON | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), page + size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the page and the stack lie in what was mapped, which is never unmapped once it is in use. The call fails
    // where this thread is on its alternate stack now, and then changes nothing.
    let outcome = unsafe {
        let room = libc::stack_t { ss_sp: base.byte_add(page), ss_flags: 0, ss_size: size };
        check(libc::mprotect(base, page, libc::PROT_NONE))
            .and_then(|()| check(libc::sigaltstack(&raw const room, ptr::null_mut())))
    };
    if outcome.is_err() {
        // SAFETY: it was mapped above, and nothing uses it.
        unsafe { libc::munmap(base, page + size) };
    }
    outcome
}

/// The size of a signal's frame on this processor, in bytes.
fn frame() -> usize {
    #[cfg(target_os = "linux")]
    // SAFETY: reads what the kernel passed to the process at its start; 0 where it did not (before Linux 5.14).
    let size = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) };
    #[cfg(not(target_os = "linux"))]
    let size = 0;
    usize::try_from(size).unwrap_or(0).max(libc::MINSIGSTKSZ).max(4096)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
