//! A cache of the response head that an application gives again and again, recognized by its Python objects.
//!
//! If an application's status and header tuples are constants in its code, every response has the same objects. They
//! are immutable, so the head that was checked and written for them once can be reused. Builds without a GIL do not use
//! the cache, because another thread could change the list of headers during the comparison.

use crate::compat;
use crate::object::Object;
use pyo3::ffi;
use pyo3::prelude::*;
use wire::message::Draft;

/// The maximum numbers of headers and of bytes of a cached head.
const HEADERS: usize = 32;
const BYTES: usize = 2048;

/// The maximum number of consecutive heads that are not cached.
const MISSES: u32 = 256;

/// A cache for one head.
#[derive(Default)]
pub(crate) struct KnownHead {
    head: Option<Head>,
    /// The number of responses until the next head is cached, and the initial value of that count. The initial value
    /// doubles each time a cached head was not used again.
    wait: u32,
    last_wait: u32,
}

/// A head, and the objects from which it was made.
pub(crate) struct Head {
    status: Object,
    headers: Vec<Object>,
    draft: Draft,
    /// True once the head has been used again.
    came_again: bool,
}

impl KnownHead {
    /// Returns the cached head if it was made from these objects.
    ///
    /// # Safety
    /// `status` and `headers` are live objects.
    pub(crate) unsafe fn find(
        &mut self,
        _py: Python<'_>,
        status: *mut ffi::PyObject,
        headers: *mut ffi::PyObject,
    ) -> Option<&Draft> {
        let head = self.head.as_mut()?;
        // SAFETY: items are read only from a list and within its length; with a GIL nothing changes it meanwhile, and
        // without a GIL no head is cached.
        let is_same = head.status.as_ptr() == status
            && unsafe {
                ffi::PyList_CheckExact(headers) != 0
                    && ffi::PyList_GET_SIZE(headers) == head.headers.len().cast_signed()
                    && (0..)
                        .zip(&head.headers)
                        .all(|(index, header)| ffi::PyList_GET_ITEM(headers, index) == header.as_ptr())
            };
        head.came_again |= is_same;
        is_same.then_some(&head.draft)
    }

    /// Caches a head that was just made from these objects, if they are immutable and likely to be used again. Returns
    /// the head that was cached before; the caller must drop it where Python code may run.
    ///
    /// # Safety
    /// As for [`find`](Self::find).
    #[must_use]
    pub(crate) unsafe fn keep(
        &mut self,
        _py: Python<'_>,
        status: *mut ffi::PyObject,
        headers: *mut ffi::PyObject,
        draft: &Draft,
    ) -> Option<Head> {
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        // SAFETY: the caller guarantees that both are live; no Python code runs meanwhile.
        let headers = unsafe { constants(status, headers) }?;
        if draft.len() > BYTES {
            return None;
        }
        self.last_wait = match &self.head {
            Some(head) if !head.came_again => (self.last_wait * 2).clamp(1, MISSES),
            _ => 0,
        };
        self.wait = self.last_wait;
        // SAFETY: the object is live, and the thread attached.
        let status = unsafe { Object::from_borrowed(status) };
        self.head.replace(Head { status, headers, draft: draft.clone(), came_again: false })
    }
}

/// Returns the headers if the status and all of them are immutable, and each is referenced by more than the list.
///
/// # Safety
/// Both are live objects, and the thread is attached.
unsafe fn constants(status: *mut ffi::PyObject, headers: *mut ffi::PyObject) -> Option<Vec<Object>> {
    // SAFETY: the caller guarantees live objects; items are read within the lengths of a list and of tuples, which
    // nothing changes meanwhile.
    unsafe {
        if cfg!(Py_GIL_DISABLED) || ffi::PyList_CheckExact(headers) == 0 || !is_constant(status) {
            return None;
        }
        let count = ffi::PyList_GET_SIZE(headers);
        if count > HEADERS.cast_signed() {
            return None;
        }
        let items = (0..count).map(|index| ffi::PyList_GET_ITEM(headers, index));
        // A tuple that only this list references was made for this response, and is not a constant.
        let are_constant = items.clone().all(|header| {
            ffi::Py_REFCNT(header) > 1
                && ffi::PyTuple_CheckExact(header) != 0
                && (0..ffi::Py_SIZE(header)).all(|index| is_constant(compat::PyTuple_GET_ITEM(header, index)))
        });
        are_constant.then(|| items.map(|header| Object::from_borrowed(header)).collect())
    }
}

/// Returns true if the object is immutable and its destructor runs no Python code.
///
/// # Safety
/// The object is live.
unsafe fn is_constant(object: *mut ffi::PyObject) -> bool {
    // SAFETY: the caller guarantees that the object is live.
    unsafe {
        ffi::PyBytes_CheckExact(object) != 0
            || ffi::PyUnicode_CheckExact(object) != 0
            || ffi::PyLong_CheckExact(object) != 0
    }
}
