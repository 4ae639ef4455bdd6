//! Names of threads for the operating system: `ps -T`, `top -H`, debuggers and profilers show them.

use std::ffi::CString;

/// As much of a name as Linux keeps, in bytes.
const LONGEST: usize = 15;

/// Names the calling thread. What is too long is cut; a system that knows no such names is left alone.
pub(crate) fn set(name: &str) {
    let name = &name.as_bytes()[..name.len().min(LONGEST)];
    let Ok(name) = CString::new(name) else { return };
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: the call copies a C string that lives as long as it, and changes nothing but the calling thread's name.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    drop(name);
}
