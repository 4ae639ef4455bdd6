//! References to Python objects on the hot path.

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A strong reference whose every use needs an attached thread, as PyO3's [`Py`] does, but without asking for it at
/// run time.
///
/// Invariant: it is made, used and dropped only by threads that are attached to the interpreter. All of them live in
/// a [`Host`](crate::host::Host) or in calls that are out for it, whose threads let go of the interpreter only to wait;
/// the ticker, which is never attached, sends what others made and drops nothing.
#[derive(Debug)]
pub(crate) struct Object(NonNull<ffi::PyObject>);

// SAFETY: a reference may be used from any thread that is attached, which the type's invariant demands of every use.
unsafe impl Send for Object {}
// SAFETY: as above; what can be done with a shared reference to it is what the C API admits any attached thread to do.
unsafe impl Sync for Object {}

impl Object {
    /// Takes over a new reference; `None` if it is null, when the interpreter has an exception set.
    ///
    /// # Safety
    /// The thread is attached; `pointer` is null or a reference that the caller owns.
    pub(crate) unsafe fn from_new(pointer: *mut ffi::PyObject) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    /// Like [`from_new`](Self::from_new), with the interpreter's exception as an error.
    ///
    /// # Safety
    /// As for [`from_new`](Self::from_new).
    pub(crate) unsafe fn from_new_or_error(py: Python<'_>, pointer: *mut ffi::PyObject) -> PyResult<Self> {
        // SAFETY: as the caller promises.
        unsafe { Self::from_new(pointer) }.ok_or_else(|| PyErr::fetch(py))
    }

    /// Makes a reference of its own to a borrowed object.
    ///
    /// # Safety
    /// The thread is attached; `pointer` is a live object.
    pub(crate) unsafe fn from_borrowed(pointer: *mut ffi::PyObject) -> Self {
        // SAFETY: the object is live and the thread attached.
        unsafe {
            ffi::Py_INCREF(pointer);
            Self(NonNull::new_unchecked(pointer))
        }
    }

    /// The object's address, valid as long as this reference.
    pub(crate) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Gives the reference away.
    pub(crate) fn into_ptr(self) -> *mut ffi::PyObject {
        ManuallyDrop::new(self).as_ptr()
    }

    pub(crate) fn clone_ref(&self, _py: Python<'_>) -> Self {
        // SAFETY: `_py` shows that the thread is attached, and this reference keeps the object alive.
        unsafe { Self::from_borrowed(self.as_ptr()) }
    }

    pub(crate) fn bind<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        // SAFETY: this reference keeps the object alive while PyO3 makes its own.
        unsafe { Bound::from_borrowed_ptr(py, self.as_ptr()) }
    }

    /// A string of the latin-1 text `bytes`, which is how PEP 3333 carries what HTTP says.
    pub(crate) fn latin1(_py: Python<'_>, bytes: &[u8]) -> Option<Self> {
        // A slice is never longer than isize::MAX.
        let length = bytes.len().cast_signed();
        // SAFETY: the thread is attached; pointer and length are a slice's; the call copies.
        unsafe { Self::from_new(ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), length, std::ptr::null())) }
    }

    /// An interned string: dictionary look-ups find it by address.
    pub(crate) fn interned(py: Python<'_>, text: &CStr) -> PyResult<Self> {
        // SAFETY: the thread is attached and `text` is a C string.
        unsafe { Self::from_new_or_error(py, ffi::PyUnicode_InternFromString(text.as_ptr())) }
    }
}

impl From<Py<PyAny>> for Object {
    fn from(object: Py<PyAny>) -> Self {
        Self(NonNull::new(object.into_ptr()).expect("a Py is never null"))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the reference is owned, and by the type's invariant the thread is attached.
        unsafe { ffi::Py_DECREF(self.as_ptr()) }
    }
}

/// An item of a list: borrowed where the interpreter's lock keeps the list as it is, a reference of its own where
/// another thread may change it meanwhile.
pub(crate) struct Item(#[cfg(Py_GIL_DISABLED)] Object, #[cfg(not(Py_GIL_DISABLED))] NonNull<ffi::PyObject>);

impl Item {
    /// The item of `list` at `index`; `None` if it has become shorter.
    ///
    /// # Safety
    /// The thread is attached, and `list` is a live list. Under the interpreter's lock the item is used only while
    /// nothing of Python runs, and `index` is within the list.
    pub(crate) unsafe fn of(list: *mut ffi::PyObject, index: ffi::Py_ssize_t) -> Option<Self> {
        #[cfg(not(Py_GIL_DISABLED))]
        // SAFETY: as the caller promises.
        let item = NonNull::new(unsafe { ffi::PyList_GET_ITEM(list, index) }).map(Self);
        #[cfg(Py_GIL_DISABLED)]
        // SAFETY: as the caller promises; the call looks at the index itself, and sets an exception if it is beyond.
        let item = unsafe {
            let item = Object::from_new(ffi::PyList_GetItemRef(list, index));
            if item.is_none() {
                ffi::PyErr_Clear();
            }
            item.map(Self)
        };
        item
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// A reference that lasts.
    pub(crate) fn keep(self) -> Object {
        #[cfg(Py_GIL_DISABLED)]
        return self.0;
        #[cfg(not(Py_GIL_DISABLED))]
        // SAFETY: the item is live, as whoever took it promises.
        return unsafe { Object::from_borrowed(self.0.as_ptr()) };
    }
}

/// The latin-1 bytes of a `str`, borrowed from it: `None` if a character lies beyond latin-1.
///
/// # Safety
/// The thread is attached, `string` is a live `str`, and the result is not used beyond its life.
pub(crate) unsafe fn latin1_of<'a>(string: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: `string` is a live str; a ready one of kind 1 holds its length in latin-1 bytes at DATA.
    unsafe {
        if ffi::PyUnicode_READY(string) != 0 || ffi::PyUnicode_KIND(string) != ffi::PyUnicode_1BYTE_KIND {
            return None;
        }
        let length = ffi::PyUnicode_GET_LENGTH(string).cast_unsigned();
        Some(std::slice::from_raw_parts(ffi::PyUnicode_DATA(string).cast::<u8>(), length))
    }
}

/// The content of a `bytes` object, borrowed from it.
///
/// # Safety
/// `bytes` is a live `bytes` object, and the result is not used beyond its life.
pub(crate) unsafe fn bytes_of<'a>(bytes: *mut ffi::PyObject) -> &'a [u8] {
    // SAFETY: `bytes` is a live bytes object, whose content never changes.
    unsafe {
        let length = ffi::Py_SIZE(bytes).cast_unsigned();
        std::slice::from_raw_parts(ffi::PyBytes_AS_STRING(bytes).cast::<u8>(), length)
    }
}
