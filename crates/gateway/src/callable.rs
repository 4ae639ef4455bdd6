//! Python types in C, for what an application calls in every request. PyO3's own classes make a tuple of the arguments
//! of each call, and these do not (vectorcall).

use crate::compat;
use crate::object::Object;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The beginning of an object of a type with vectorcall.
#[repr(C)]
pub(crate) struct CallableHead {
    pub(crate) head: ffi::PyObject,
    pub(crate) vectorcall: Option<ffi::vectorcallfunc>,
}

/// Makes a type without methods whose objects are called. They have a `T`, which begins with a [`CallableHead`];
/// `dealloc` drops the rest of it and then [frees](free) the object. `more` is a further slot.
///
/// # Errors
/// `MemoryError`.
pub(crate) fn callable_type<T>(
    py: Python<'_>,
    name: &'static CStr,
    dealloc: ffi::destructor,
    more: Option<ffi::PyType_Slot>,
) -> PyResult<Object> {
    const END: ffi::PyType_Slot = ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() };
    let mut members = [
        ffi::PyMemberDef {
            name: c"__vectorcalloffset__".as_ptr(),
            type_code: ffi::Py_T_PYSSIZET,
            offset: offset_of!(CallableHead, vectorcall).cast_signed(),
            flags: ffi::Py_READONLY,
            doc: ptr::null(),
        },
        ffi::PyMemberDef::default(),
    ];
    let slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_call, pfunc: ffi::PyVectorcall_Call as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_members, pfunc: members.as_mut_ptr().cast() },
        more.unwrap_or(END),
        END,
    ];
    make_type::<T, 5>(py, name, ffi::Py_TPFLAGS_HAVE_VECTORCALL, slots)
}

/// Makes a type of these slots, whose objects have a `T`.
///
/// # Errors
/// `MemoryError`.
pub(crate) fn make_type<T, const N: usize>(
    py: Python<'_>,
    name: &'static CStr,
    flags: std::ffi::c_ulong,
    mut slots: [ffi::PyType_Slot; N],
) -> PyResult<Object> {
    let flags =
        ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION | ffi::Py_TPFLAGS_IMMUTABLETYPE | flags;
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: c_int::try_from(size_of::<T>()).expect("a few words"),
        itemsize: 0,
        flags: u32::try_from(flags).expect("type flags have 32 bits"),
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the specification is complete and the interpreter copies what it keeps; the thread is attached.
    unsafe { Object::from_new_or_error(py, ffi::PyType_FromSpec(&raw mut spec)) }
}

/// Frees an object whose fields are gone.
///
/// # Safety
/// The interpreter deallocates `object`, an instance of a type of [`make_type`] without `Py_TPFLAGS_HAVE_GC`.
pub(crate) unsafe fn free(object: *mut ffi::PyObject) {
    // SAFETY: as the caller promises; an instance of a heap type holds a reference to it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// Frees an object whose fields are gone, of a type with `Py_TPFLAGS_HAVE_GC`.
///
/// # Safety
/// As for [`free`]; the garbage collector has been told that it tracks the object no longer.
pub(crate) unsafe fn free_tracked(object: *mut ffi::PyObject) {
    // SAFETY: as the caller promises; an instance of a heap type holds a reference to it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// A result as the C API has it: a new reference, or null with the exception set.
pub(crate) fn answer(py: Python<'_>, result: PyResult<Object>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// Runs what a function of ours does for the interpreter. A panic, which may not go on into it, becomes an exception.
pub(crate) fn caught<R>(act: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|_| Err(PyRuntimeError::new_err("this is a bug in kirsch, please report it: a panic")))
}

/// The only argument of a call, given by position or as `name`; `None` if it was not given, or more was.
///
/// # Safety
/// They are the arguments of a vectorcall that goes on for as long as the result is used.
pub(crate) unsafe fn only_argument(
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
    name: &[u8],
) -> Option<*mut ffi::PyObject> {
    // SAFETY: as the caller promises; a tuple of names has `Py_SIZE` items, which are strings.
    unsafe {
        let positional = ffi::PyVectorcall_NARGS(count);
        let named = if keywords.is_null() { 0 } else { ffi::Py_SIZE(keywords) };
        let is_given = positional + named == 1
            && (positional == 1 || crate::object::latin1_of(compat::PyTuple_GET_ITEM(keywords, 0)) == Some(name));
        is_given.then(|| *arguments)
    }
}
