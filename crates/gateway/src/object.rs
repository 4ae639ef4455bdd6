//! References to Python objects on the hot path, and the chunks of a body.

pub(crate) use crate::compat::latin1_of;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A strong reference to a Python object, like PyO3's [`Py`], but cheaper on the hot path. A function that has a token
/// need not check whether the thread is attached ([`release`](Self::release)); a plain drop checks it with one load of
/// CPython's thread state.
///
/// Every method that touches the object takes a token, or is `unsafe` and requires that the thread is attached.
#[derive(Debug)]
pub(crate) struct Object(NonNull<ffi::PyObject>);

// SAFETY: any attached thread may use and drop a reference. Each use requires a token, and a drop checks whether the
// thread is attached.
unsafe impl Send for Object {}
// SAFETY: as above; through a shared reference only calls are possible that the C API allows any attached thread.
unsafe impl Sync for Object {}

impl Object {
    /// Takes over a new reference; `None` if it is null, because the interpreter has set an exception.
    ///
    /// # Safety
    /// The thread is attached; `pointer` is null or a reference that the caller owns.
    pub(crate) unsafe fn from_new(pointer: *mut ffi::PyObject) -> Option<Self> {
        NonNull::new(pointer).map(Self)
    }

    /// Does the same as [`from_new`](Self::from_new), but returns the interpreter's exception as an error.
    ///
    /// # Safety
    /// As for [`from_new`](Self::from_new).
    pub(crate) unsafe fn from_new_or_error(py: Python<'_>, pointer: *mut ffi::PyObject) -> PyResult<Self> {
        // SAFETY: the caller guarantees that the pointer is null or an owned reference.
        unsafe { Self::from_new(pointer) }.ok_or_else(|| PyErr::fetch(py))
    }

    /// Makes a new reference to a borrowed object.
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

    /// Returns the object's address, which is valid as long as this reference exists.
    pub(crate) fn as_ptr(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    /// Gives up the ownership of the reference, and returns the pointer.
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

    /// Makes a string from Latin-1 bytes, the encoding in which PEP 3333 passes HTTP text.
    pub(crate) fn latin1(_py: Python<'_>, bytes: &[u8]) -> Option<Self> {
        // A slice is never longer than isize::MAX.
        let length = bytes.len().cast_signed();
        // SAFETY: the thread is attached; pointer and length are those of a slice; the call copies the bytes.
        unsafe { Self::from_new(ffi::PyUnicode_DecodeLatin1(bytes.as_ptr().cast(), length, std::ptr::null())) }
    }

    /// Drops the reference without a check, because the token shows that the thread is attached.
    pub(crate) fn release(self, _py: Python<'_>) {
        // SAFETY: this reference is owned and given up here, and the thread is attached.
        unsafe { ffi::Py_DECREF(self.into_ptr()) }
    }

    /// Copies this dict. Returns `None` with an exception set if an allocation fails or this is not a dict.
    pub(crate) fn copy_dict(&self, _py: Python<'_>) -> Option<Self> {
        // SAFETY: the object is live and the thread is attached; the call checks that the object is a dict.
        unsafe { Self::from_new(ffi::PyDict_Copy(self.as_ptr())) }
    }

    /// Sets an item of this dict. Returns `None` with an exception set on failure.
    pub(crate) fn set_item(&self, _py: Python<'_>, key: &Self, value: &Self) -> Option<()> {
        // SAFETY: all three are live and the thread is attached; `PyDict_SetItem` checks that the first is a dict.
        (unsafe { ffi::PyDict_SetItem(self.as_ptr(), key.as_ptr(), value.as_ptr()) } == 0).then_some(())
    }

    /// Removes an item of this dict. Returns `None` with an exception set if the key is missing.
    pub(crate) fn delete_item(&self, _py: Python<'_>, key: &Self) -> Option<()> {
        // SAFETY: as above.
        (unsafe { ffi::PyDict_DelItem(self.as_ptr(), key.as_ptr()) } == 0).then_some(())
    }

    /// Returns the number of entries of this dict; -1 with an exception set if this is not a dict.
    pub(crate) fn dict_size(&self, _py: Python<'_>) -> isize {
        // SAFETY: as above.
        unsafe { ffi::PyDict_Size(self.as_ptr()) }
    }

    /// Returns true if this is a dict of `count` entries and `is_right` returns true for each index, key and value.
    /// `is_right` must not run Python code. Returns false on builds without a GIL, where another thread may change the
    /// dict meanwhile.
    pub(crate) fn has_entries(
        &self,
        py: Python<'_>,
        count: usize,
        mut is_right: impl FnMut(usize, &Self, &Self) -> bool,
    ) -> bool {
        let object = self.bind(py);
        let Ok(dict) = object.cast_exact::<PyDict>() else { return false };
        if cfg!(Py_GIL_DISABLED) || dict.len() != count {
            return false;
        }
        let mut right = 0;
        walk_dict(dict, |key, value| {
            let is_right = is_right(right, key, value);
            right += usize::from(is_right);
            is_right && right < count
        });
        right == count
    }

    /// Returns true if this dict has the key and `is_right` returns true for its value. `is_right` must not run Python
    /// code.
    pub(crate) fn has_value(&self, _py: Python<'_>, key: &Self, is_right: impl FnOnce(&Self) -> bool) -> bool {
        if cfg!(Py_GIL_DISABLED) {
            return false;
        }
        // SAFETY: both objects are live and the thread is attached; the call checks that the first is a dict. The value
        // is borrowed, and with the GIL nothing changes the dict before `is_right` returns. A look-up of a string
        // raises nothing.
        let value = unsafe { ffi::PyDict_GetItemWithError(self.as_ptr(), key.as_ptr()) };
        NonNull::new(value).is_some_and(|value| is_right(&ManuallyDrop::new(Self(value))))
    }

    /// Returns true if the next entry of this dict from `position` on has this key, and `is_right` returns true for its
    /// value. `is_right` must not run Python code. Advances `position` past the entry.
    pub(crate) fn has_next_entry(
        &self,
        _py: Python<'_>,
        position: &mut isize,
        name: &Self,
        is_right: impl FnOnce(&Self) -> bool,
    ) -> bool {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the object is live and the thread is attached; the call checks that it is a dict and that the
        // position is valid. Key and value are borrowed, and with the GIL nothing changes the dict before `is_right`
        // returns.
        unsafe {
            !cfg!(Py_GIL_DISABLED)
                && ffi::PyDict_Next(self.as_ptr(), position, &raw mut key, &raw mut value) != 0
                && key == name.as_ptr()
                && is_right(&ManuallyDrop::new(Self(NonNull::new_unchecked(value))))
        }
    }

    /// Returns true if this is a list with the same objects as `other`, a list that only the server uses.
    pub(crate) fn is_list_like(&self, _py: Python<'_>, other: &Self) -> bool {
        let (list, other) = (self.as_ptr(), other.as_ptr());
        // SAFETY: both are live, the thread is attached, and with a GIL nothing changes the lists meanwhile. Items are
        // read only from lists, and within their lengths.
        unsafe {
            if cfg!(Py_GIL_DISABLED) || ffi::PyList_CheckExact(list) == 0 || ffi::PyList_Check(other) == 0 {
                return false;
            }
            let count = ffi::PyList_GET_SIZE(list);
            count == ffi::PyList_GET_SIZE(other)
                && (0..count).all(|index| ffi::PyList_GET_ITEM(list, index) == ffi::PyList_GET_ITEM(other, index))
        }
    }

    /// Returns the number of references to the object. On builds without a GIL the number is not exact.
    pub(crate) fn reference_count(&self, _py: Python<'_>) -> isize {
        // SAFETY: the object is live.
        unsafe { ffi::Py_REFCNT(self.as_ptr()) }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Returns an item of this mapping as text; `None` if it is missing. Runs no application code: a value that is
    /// neither text nor a number is shown as the name of its class.
    pub(crate) fn item_text(&self, py: Python<'_>, name: &str) -> Option<String> {
        self.bind(py).get_item(name).ok().as_ref().map(text)
    }

    /// Returns the attribute `name`.
    ///     ///
    /// # Errors
    /// The exception that the look-up raises.
    pub(crate) fn attribute(&self, py: Python<'_>, name: &Self) -> PyResult<Self> {
        // SAFETY: both are live and the thread is attached.
        unsafe { Self::from_new_or_error(py, ffi::PyObject_GetAttr(self.as_ptr(), name.as_ptr())) }
    }

    /// Makes an interned string, which dictionary look-ups find by its address.
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
        // SAFETY: the call only reads the thread state of this thread.
        if unsafe { ffi::compat::PyThreadState_GetUnchecked() }.is_null() {
            self.drop_detached();
        } else {
            // SAFETY: the reference is owned, and the thread is attached.
            unsafe { ffi::Py_DECREF(self.as_ptr()) }
        }
    }
}

impl Object {
    /// Drops the reference in a thread that is not attached, after attaching. If the interpreter has been finalized,
    /// the object no longer exists, and nothing is done.
    #[cold]
    fn drop_detached(&mut self) {
        // SAFETY: the reference is owned, and the closure runs attached.
        Python::try_attach(|_| unsafe { ffi::Py_DECREF(self.as_ptr()) });
    }
}

/// Calls `act` with the key and the value of each entry, in order, as long as it returns true. Returns true if `act`
/// returned true for all of them. On builds without a GIL, where the dict could change meanwhile, calls it for none and
/// returns false. `act` must not run Python code, and may only create references.
pub(crate) fn walk_dict(dict: &Bound<'_, PyDict>, mut act: impl FnMut(&Object, &Object) -> bool) -> bool {
    if cfg!(Py_GIL_DISABLED) {
        return false;
    }
    let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a live dict that nothing changes meanwhile: this thread has the GIL, and no Python code runs.
    while unsafe { ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value) } != 0 {
        // SAFETY: the dict owns both objects, so they are live until the next iteration. `ManuallyDrop` keeps their
        // borrowed references from being released.
        let (key, value) = unsafe {
            (
                ManuallyDrop::new(Object(NonNull::new_unchecked(key))),
                ManuallyDrop::new(Object(NonNull::new_unchecked(value))),
            )
        };
        if !act(&key, &value) {
            return false;
        }
    }
    true
}

/// Returns a value as text, without running application code.
fn text(value: &Bound<'_, PyAny>) -> String {
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_string_lossy().into_owned();
    }
    let is_plain = value.is_none()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>();
    if is_plain {
        return value.to_string();
    }
    // SAFETY: the object is live and keeps its type; the type's name is a C string that lives as long as the type.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(value.as_ptr())).tp_name) };
    format!("<{}>", name.to_string_lossy())
}

/// A message that a WebSocket has received.
pub(crate) enum Message {
    /// A `str`.
    Text(Object),
    /// A `bytes` object.
    Binary(Object),
}

/// A message to be sent on a WebSocket.
pub(crate) enum OutgoingMessage<'a> {
    Text(&'a str),
    Binary(Chunk),
}

/// A part of a response body or a message to be sent: a `bytes` object, which is immutable.
pub(crate) struct Chunk(Object);

impl Chunk {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    /// Makes a chunk from an object that the application produced. Copies an instance of a subclass of `bytes`, because
    /// its destructor could run application code while the engine is locked.
    ///
    /// # Errors
    /// `TypeError` if it is not `bytes`.
    pub(crate) fn of(py: Python<'_>, item: Object) -> PyResult<Self> {
        // SAFETY: `item` is live and the thread attached.
        unsafe {
            if ffi::PyBytes_CheckExact(item.as_ptr()) != 0 {
                return Ok(Self(item));
            }
            if ffi::PyBytes_Check(item.as_ptr()) != 0 {
                let bytes = bytes_of(item.as_ptr());
                return Ok(Self(PyBytes::new(py, bytes).into_any().unbind().into()));
            }
        }
        let kind = item.bind(py).get_type();
        let name = kind.name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        Err(PyTypeError::new_err(format!("the response must consist of bytes (PEP 3333), not {name}")))
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: a Chunk is made only from live bytes objects, and holds a reference that outlives the result.
        unsafe { bytes_of(self.0.as_ptr()) }
    }
}

/// An item of a list: borrowed with the GIL, which keeps the list unchanged; a reference of its own without a GIL,
/// where another thread may change the list.
pub(crate) struct Item(#[cfg(Py_GIL_DISABLED)] Object, #[cfg(not(Py_GIL_DISABLED))] NonNull<ffi::PyObject>);

impl Item {
    /// Returns the item of `list` at `index`; `None` if the list has become shorter.
    ///     ///
    /// # Safety
    /// The thread is attached, and `list` is a live list. With the GIL, `index` is within the list, and the item is
    /// used only as long as no Python code runs.
    pub(crate) unsafe fn of(list: *mut ffi::PyObject, index: ffi::Py_ssize_t) -> Option<Self> {
        #[cfg(not(Py_GIL_DISABLED))]
        // SAFETY: the caller guarantees a live list and, with the GIL, a valid index.
        let item = NonNull::new(unsafe { ffi::PyList_GET_ITEM(list, index) }).map(Self);
        #[cfg(Py_GIL_DISABLED)]
        // SAFETY: the caller guarantees a live list; the call checks the index itself, and sets an exception if it is
        // too large.
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

    /// Turns the item into a reference that may be kept.
    pub(crate) fn keep(self) -> Object {
        #[cfg(Py_GIL_DISABLED)]
        return self.0;
        #[cfg(not(Py_GIL_DISABLED))]
        // SAFETY: the item is live, as the caller of `of` promises.
        return unsafe { Object::from_borrowed(self.0.as_ptr()) };
    }
}

/// Returns the content of a `bytes` object.
///
/// # Safety
/// `bytes` is a live `bytes` object, and the result is not used after it is freed.
pub(crate) unsafe fn bytes_of<'a>(bytes: *mut ffi::PyObject) -> &'a [u8] {
    // SAFETY: `bytes` is a live bytes object, whose content never changes.
    unsafe {
        let length = ffi::Py_SIZE(bytes).cast_unsigned();
        std::slice::from_raw_parts(ffi::PyBytes_AS_STRING(bytes).cast::<u8>(), length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::attach;
    use pyo3::types::{IntoPyDict, PyDict};

    fn count(object: &Bound<'_, PyAny>) -> isize {
        object.py().import("sys").unwrap().call_method1("getrefcount", (object,)).unwrap().extract().unwrap()
    }

    #[test]
    fn test_reference_dropped_by_a_detached_thread_is_given_back() {
        attach(|py| {
            let list = py.eval(c"[]", None, None).unwrap();
            let before = count(&list);
            let object: Object = list.clone().unbind().into();
            assert_eq!(count(&list), before + 1);
            py.detach(|| drop(object));
            assert_eq!(count(&list), before);
            let object: Object = list.clone().unbind().into();
            py.detach(|| std::thread::spawn(|| drop(object)).join().unwrap());
            assert_eq!(count(&list), before);
        });
    }

    #[test]
    fn test_release_and_drop_give_one_reference_back() {
        attach(|py| {
            let list = py.eval(c"[]", None, None).unwrap();
            let before = count(&list);
            let object: Object = list.clone().unbind().into();
            let other = object.clone_ref(py);
            object.release(py);
            assert_eq!(count(&list), before + 1);
            drop(other);
            assert_eq!(count(&list), before);
        });
    }

    #[test]
    fn test_dict_operations_on_what_is_no_dict_raise() {
        attach(|py| {
            let list: Object = py.eval(c"[]", None, None).unwrap().unbind().into();
            let key = Object::interned(py, c"key").unwrap();
            assert!(list.copy_dict(py).is_none() && PyErr::take(py).is_some());
            assert!(list.set_item(py, &key, &key).is_none() && PyErr::take(py).is_some());
            assert!(list.delete_item(py, &key).is_none() && PyErr::take(py).is_some());
            assert!(list.dict_size(py) == -1 && PyErr::take(py).is_some());
        });
    }

    #[test]
    fn test_item_text_runs_no_code_of_the_value() {
        attach(|py| {
            let values = PyDict::new(py);
            py.run(
                c"class Loud:\n    def __str__(self): raise SystemExit\nvalues.update(loud=Loud(), text='a', number=1)",
                None,
                Some(&[("values", &values)].into_py_dict(py).unwrap()),
            )
            .unwrap();
            let values: Object = values.into_any().unbind().into();
            assert_eq!(values.item_text(py, "text").as_deref(), Some("a"));
            assert_eq!(values.item_text(py, "number").as_deref(), Some("1"));
            assert_eq!(values.item_text(py, "loud").as_deref(), Some("<Loud>"));
            assert_eq!(values.item_text(py, "absent"), None);
        });
    }

    #[test]
    fn test_chunk_copies_a_subclass_and_refuses_other_types() {
        attach(|py| {
            let item = |code| Object::from(py.eval(code, None, None).unwrap().unbind());
            let exact = item(c"b'exact'");
            let address = exact.as_ptr();
            assert_eq!(Chunk::of(py, exact).unwrap().0.as_ptr(), address);
            let other = item(c"type('Other', (bytes,), {})(b'other')");
            let address = other.as_ptr();
            let chunk = Chunk::of(py, other).unwrap();
            assert_eq!(chunk.as_ref(), b"other");
            assert_ne!(chunk.0.as_ptr(), address);
            let error = Chunk::of(py, item(c"'text'")).err().unwrap();
            assert_eq!(error.to_string(), "TypeError: the response must consist of bytes (PEP 3333), not str");
        });
    }

    #[test]
    fn test_latin1_of_reads_what_latin1_made() {
        attach(|py| {
            let text = Object::latin1(py, b"caf\xe9").unwrap();
            // SAFETY: the thread is attached, and the string is live.
            assert_eq!(unsafe { latin1_of(text.as_ptr()) }, Some(&b"caf\xe9"[..]));
            let wide: Object = py.eval(c"'\\u20ac'", None, None).unwrap().unbind().into();
            // SAFETY: as above.
            assert_eq!(unsafe { latin1_of(wide.as_ptr()) }, None);
        });
    }
}
