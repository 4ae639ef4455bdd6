//! Thread names for the operating system. `ps -T`, `top -H`, debuggers and profilers show them.

use std::ffi::CString;

/// The number of bytes of a name that Linux keeps.
const LONGEST: usize = 15;

/// Names the calling thread, with a long name truncated. Does nothing on systems without thread names.
pub(crate) fn set(name: &str) {
    let name = &name.as_bytes()[..name.len().min(LONGEST)];
    let Ok(name) = CString::new(name) else { return };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: the call copies a C string that is live during the call, and changes only the calling thread's name.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    drop(name);
}
