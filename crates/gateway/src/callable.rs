//! Python types, made with the C API, for objects that an application calls in every request. They use vectorcall, so a
//! call needs no tuple of arguments, unlike a call of a PyO3 class.

use crate::compat;
use crate::object::Object;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int, c_void};
use std::mem::offset_of;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The first fields of an object whose type uses vectorcall.
#[repr(C)]
pub(crate) struct CallableHead {
    pub(crate) head: ffi::PyObject,
    pub(crate) vectorcall: Option<ffi::vectorcallfunc>,
}

/// Creates a type without methods whose instances are callable. An instance is a `T`, which begins with a
/// [`CallableHead`]. `dealloc` must drop the other fields and then [`free`] the object. `more` is one further slot.
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

/// Creates a type with these slots, whose instances are a `T`.
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

/// Frees the memory of an object whose fields have been dropped.
///
/// # Safety
/// The interpreter deallocates `object`, an instance of a type of [`make_type`] without `Py_TPFLAGS_HAVE_GC`.
pub(crate) unsafe fn free(object: *mut ffi::PyObject) {
    // SAFETY: guaranteed by the caller. An instance of a heap type owns a reference to its type, released here.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// Frees the memory of an object whose fields have been dropped, and whose type has `Py_TPFLAGS_HAVE_GC`.
///
/// # Safety
/// As for [`free`]; the garbage collector no longer tracks the object.
pub(crate) unsafe fn free_tracked(object: *mut ffi::PyObject) {
    // SAFETY: guaranteed by the caller. An instance of a heap type owns a reference to its type, released here.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        ffi::PyObject_GC_Del(object.cast());
        ffi::Py_DECREF(kind.cast());
    }
}

/// Converts a result for the C API: a new reference, or null with the Python exception set.
pub(crate) fn answer(py: Python<'_>, result: PyResult<Object>) -> *mut ffi::PyObject {
    match result {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// Runs `act`, the body of a function that the interpreter calls. Turns a panic into an exception, because a panic must
/// not unwind into C code.
pub(crate) fn caught<R>(act: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|_| Err(PyRuntimeError::new_err("this is a bug in kirsch, please report it: a panic")))
}

/// Returns the only argument of a call, given by position or as `name`; `None` if the arguments differ from that.
///
/// # Safety
/// The arguments are those of a vectorcall that is in progress as long as the result is used.
pub(crate) unsafe fn only_argument(
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
    name: &[u8],
) -> Option<*mut ffi::PyObject> {
    // SAFETY: the caller guarantees the arguments; a tuple of names has `Py_SIZE` items, which are strings.
    unsafe {
        let positional = ffi::PyVectorcall_NARGS(count);
        let named = if keywords.is_null() { 0 } else { ffi::Py_SIZE(keywords) };
        let is_given = positional + named == 1
            && (positional == 1 || crate::object::latin1_of(compat::PyTuple_GET_ITEM(keywords, 0)) == Some(name));
        is_given.then(|| *arguments)
    }
}
