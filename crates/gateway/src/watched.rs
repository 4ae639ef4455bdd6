//! Counts the changes of the server's own dicts, which CPython reports (`PyDict_Watch`, since 3.12).
//!
//! So one comparison shows that a dict is unchanged, instead of one for each entry. PyPy and older versions have no
//! such reports. Without a GIL no dict is watched, because another thread may be in the middle of a change.

pub(crate) use imp::{changes, do_not_count, watch};

/// True if dicts can be watched.
pub(crate) const CAN_WATCH: bool = cfg!(all(Py_3_12, not(any(PyPy, Py_GIL_DISABLED))));

#[cfg(all(Py_3_12, not(any(PyPy, Py_GIL_DISABLED))))]
mod imp {
    use crate::object::Object;
    use pyo3::ffi::PyObject;
    use pyo3::prelude::*;
    use std::ffi::c_int;
    use std::ptr;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    type WatchCallback =
        extern "C" fn(event: c_int, dict: *mut PyObject, key: *mut PyObject, value: *mut PyObject) -> c_int;

    /// The event that an entry gets another value (`PyDict_EVENT_MODIFIED`).
    const MODIFIED: c_int = 1;

    // PyO3 does not declare these functions.
    unsafe extern "C" {
        fn PyDict_AddWatcher(callback: WatchCallback) -> c_int;
        fn PyDict_Watch(watcher: c_int, dict: *mut PyObject) -> c_int;
    }

    /// The number of changes of all watched dicts. It is written only with the GIL held.
    static CHANGES: AtomicU64 = AtomicU64::new(0);

    /// A key whose new values are not counted. The reference is never released.
    static UNCOUNTED: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());

    /// Counts a change. CPython calls this before it changes or frees a watched dict.
    extern "C" fn count(event: c_int, _: *mut PyObject, key: *mut PyObject, _: *mut PyObject) -> c_int {
        if event != MODIFIED || key != UNCOUNTED.load(Ordering::Relaxed) {
            CHANGES.store(CHANGES.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        0
    }

    /// Excludes this key from the count, because the server sets its value for each request.
    pub(crate) fn do_not_count(_: Python<'_>, key: Object) {
        UNCOUNTED.store(key.into_ptr(), Ordering::Relaxed);
    }

    /// Returns how often watched dicts have been changed or freed so far.
    pub(crate) fn changes(_: Python<'_>) -> u64 {
        CHANGES.load(Ordering::Relaxed)
    }

    /// Counts the changes of a dict from now on. Returns false if that is not possible.
    pub(crate) fn watch(py: Python<'_>, dict: &Object) -> bool {
        /// The number of this module's watcher. An interpreter has eight; `None` means that none was left.
        static WATCHER: OnceLock<Option<c_int>> = OnceLock::new();
        let watcher = *WATCHER.get_or_init(|| {
            // SAFETY: the thread is attached, and `count` has the signature of such a callback.
            let number = unsafe { PyDict_AddWatcher(count) };
            if number < 0 {
                drop(PyErr::take(py));
            }
            (number >= 0).then_some(number)
        });
        let Some(watcher) = watcher else { return false };
        // SAFETY: the object is live and the thread is attached; the call checks that the object is a dict.
        let is_watched = unsafe { PyDict_Watch(watcher, dict.as_ptr()) } == 0;
        if !is_watched {
            drop(PyErr::take(py));
        }
        is_watched
    }
}

#[cfg(not(all(Py_3_12, not(any(PyPy, Py_GIL_DISABLED)))))]
mod imp {
    use crate::object::Object;
    use pyo3::prelude::*;

    pub(crate) fn do_not_count(_: Python<'_>, _: Object) {}

    pub(crate) fn changes(_: Python<'_>) -> u64 {
        0
    }

    pub(crate) fn watch(_: Python<'_>, _: &Object) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;
    use pyo3::prelude::*;
    use pyo3::types::{PyDict, PyDictMethods};

    #[test]
    fn test_each_change_of_a_watched_dict_is_counted_and_no_other() {
        Python::attach(|py| {
            let (dict, other) = (PyDict::new(py), PyDict::new(py));
            dict.set_item("a", 1).unwrap();
            let object: Object = dict.clone().into_any().unbind().into();
            assert_eq!(watch(py, &object), CAN_WATCH);
            if !CAN_WATCH {
                return;
            }
            let mut seen = changes(py);
            let mut is_changed_by = |act: &dyn Fn()| {
                act();
                std::mem::replace(&mut seen, changes(py)) != changes(py)
            };
            assert!(!is_changed_by(&|| other.set_item("a", 1).unwrap()));
            assert!(!is_changed_by(&|| drop(dict.copy().unwrap())));
            assert!(is_changed_by(&|| dict.set_item("b", 1).unwrap()));
            assert!(is_changed_by(&|| dict.set_item("b", 2).unwrap()));
            assert!(is_changed_by(&|| dict.del_item("b").unwrap()));
            do_not_count(py, Object::interned(py, c"ours").unwrap());
            let ours = pyo3::intern!(py, "ours");
            assert!(is_changed_by(&|| dict.set_item(ours, 1).unwrap()), "it is added");
            assert!(!is_changed_by(&|| dict.set_item(ours, 2).unwrap()));
            assert!(is_changed_by(&|| dict.del_item(ours).unwrap()));
            assert!(is_changed_by(&|| dict.clear()));
            assert!(!watch(py, &py.None().into()), "None is no dict");
        });
    }
}
