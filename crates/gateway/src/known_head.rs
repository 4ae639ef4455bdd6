//! The response head that an application gives again and again, recognised by its objects.
//!
//! Where an application's status and header tuples are constants of its code, each response has the very same objects.
//! They cannot change, so the head that was checked and written for them before is good for them again. Nothing is
//! recognised on builds without a GIL, where another thread may change the list of headers meanwhile.

use crate::compat;
use crate::object::Object;
use pyo3::ffi;
use pyo3::prelude::*;
use wire::message::Draft;

/// The maximum numbers of headers and of bytes of a head that is kept.
const HEADERS: usize = 32;
const BYTES: usize = 2048;

/// The maximum number of heads in a row that are not kept.
const MISSES: u32 = 256;

/// A memory for one head.
#[derive(Default)]
pub(crate) struct KnownHead {
    head: Option<Head>,
    /// The number of responses before the next head is kept, and the number with which that count last began. It grows
    /// while no head that is kept comes again.
    wait: u32,
    last_wait: u32,
}

/// A head, and the objects from which it was made.
pub(crate) struct Head {
    status: Object,
    headers: Vec<Object>,
    draft: Draft,
    /// True once the head came again.
    came_again: bool,
}

impl KnownHead {
    /// Returns the head that was made from these objects, if it is kept.
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
        // SAFETY: the object is a list where items are read, within its length, and with a GIL nothing changes it
        // meanwhile. No head is kept without.
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

    /// Keeps a head that was just made from these objects, if they may come again and cannot change. Returns the head
    /// that was kept before, to be dropped where code of the interpreter may run.
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
        // SAFETY: as the caller promises; nothing of Python runs meanwhile.
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

/// Returns the headers if they and the status cannot change and something else than their list refers to each.
///
/// # Safety
/// Both are live objects, and the thread is attached.
unsafe fn constants(status: *mut ffi::PyObject, headers: *mut ffi::PyObject) -> Option<Vec<Object>> {
    // SAFETY: as the caller promises; items are read within the lengths of a list and of tuples, which nothing changes
    // meanwhile.
    unsafe {
        if cfg!(Py_GIL_DISABLED) || ffi::PyList_CheckExact(headers) == 0 || !is_constant(status) {
            return None;
        }
        let count = ffi::PyList_GET_SIZE(headers);
        if count > HEADERS.cast_signed() {
            return None;
        }
        let items = (0..count).map(|index| ffi::PyList_GET_ITEM(headers, index));
        // A tuple that only this list refers to is not a constant.
        let are_constant = items.clone().all(|header| {
            ffi::Py_REFCNT(header) > 1
                && ffi::PyTuple_CheckExact(header) != 0
                && (0..ffi::Py_SIZE(header)).all(|index| is_constant(compat::PyTuple_GET_ITEM(header, index)))
        });
        are_constant.then(|| items.map(|header| Object::from_borrowed(header)).collect())
    }
}

/// Returns true for an object that cannot change, and of which nothing can notice the end.
///
/// # Safety
/// The object is live.
unsafe fn is_constant(object: *mut ffi::PyObject) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        ffi::PyBytes_CheckExact(object) != 0
            || ffi::PyUnicode_CheckExact(object) != 0
            || ffi::PyLong_CheckExact(object) != 0
    }
}
