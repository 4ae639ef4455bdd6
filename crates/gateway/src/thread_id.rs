//! Thread identifiers, equal to those in Python.

/// The identifier of a thread, as Python's `threading.get_ident` returns it.
pub(crate) type ThreadId = usize;

/// Returns the identifier of this thread.
pub(crate) fn this_thread() -> ThreadId {
    // SAFETY: the call has no arguments and cannot fail.
    let thread = unsafe { libc::pthread_self() };
    // The type is a pointer in musl, which could not be sent to another thread.
    #[cfg(target_env = "musl")]
    let thread = thread.addr();
    #[allow(
        clippy::cast_possible_truncation,
        reason = "as wide as a pointer, because it is the address of a structure"
    )]
    {
        thread as ThreadId
    }
}
