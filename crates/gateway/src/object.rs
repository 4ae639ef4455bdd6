//! References to Python objects on the hot path, and the blocks of a body.

pub(crate) use crate::compat::latin1_of;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString};
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// A strong reference, as PyO3's [`Py`] is. It costs less on the hot path: what was called with a token need not ask
/// whether the thread is attached ([`release`](Self::release)), and what drops one asks CPython, with one load.
///
/// Everything that touches the object takes a token, or is `unsafe` and says that the thread is attached.
#[derive(Debug)]
pub(crate) struct Object(NonNull<ffi::PyObject>);

// SAFETY: a reference may be used and dropped by any thread that is attached. Each use asks for that, and a drop sees
// to it.
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

    /// The object's address, which is valid as long as this reference.
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

    /// Drops the reference, by a thread that shows that it is attached.
    pub(crate) fn release(self, _py: Python<'_>) {
        // SAFETY: the reference is owned and given away, and the thread is attached.
        unsafe { ffi::Py_DECREF(self.into_ptr()) }
    }

    /// A copy of this dict; `None` with an exception set if memory is short, or if it is no dict.
    pub(crate) fn copy_dict(&self, _py: Python<'_>) -> Option<Self> {
        // SAFETY: the object is live and the thread attached; the call looks whether it is a dict.
        unsafe { Self::from_new(ffi::PyDict_Copy(self.as_ptr())) }
    }

    /// Sets an item of this dict; `None` with an exception set if that fails.
    pub(crate) fn set_item(&self, _py: Python<'_>, key: &Self, value: &Self) -> Option<()> {
        // SAFETY: all three are live and the thread is attached; the call looks whether the first is a dict.
        (unsafe { ffi::PyDict_SetItem(self.as_ptr(), key.as_ptr(), value.as_ptr()) } == 0).then_some(())
    }

    /// Removes an item of this dict; `None` with an exception set if it is not there.
    pub(crate) fn delete_item(&self, _py: Python<'_>, key: &Self) -> Option<()> {
        // SAFETY: as above.
        (unsafe { ffi::PyDict_DelItem(self.as_ptr(), key.as_ptr()) } == 0).then_some(())
    }

    /// Returns the number of entries of this dict; -1 with an exception set if it is no dict.
    pub(crate) fn dict_size(&self, _py: Python<'_>) -> isize {
        // SAFETY: as above.
        unsafe { ffi::PyDict_Size(self.as_ptr()) }
    }

    /// Whether this is a dict of `count` entries, each of which `is_right`: it is given the place of an entry, its key
    /// and its value, and runs nothing of Python's. Without the GIL the dict may change meanwhile, so the answer is no.
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

    /// Returns true if this dict has the key, and `is_right` says so of its value, which runs nothing of Python's.
    pub(crate) fn has_value(&self, _py: Python<'_>, key: &Self, is_right: impl FnOnce(&Self) -> bool) -> bool {
        if cfg!(Py_GIL_DISABLED) {
            return false;
        }
        // SAFETY: both objects are live and the thread attached; the call looks whether the first is a dict. It lends the
        // value, and with the GIL nothing changes the dict before it was looked at. A key that is text raises nothing.
        let value = unsafe { ffi::PyDict_GetItemWithError(self.as_ptr(), key.as_ptr()) };
        NonNull::new(value).is_some_and(|value| is_right(&ManuallyDrop::new(Self(value))))
    }

    /// Returns true if the next entry of this dict from `position` on has this key, and `is_right` says so of its value,
    /// which runs nothing of Python's. Moves `position` behind it.
    pub(crate) fn has_next_entry(
        &self,
        _py: Python<'_>,
        position: &mut isize,
        name: &Self,
        is_right: impl FnOnce(&Self) -> bool,
    ) -> bool {
        let (mut key, mut value) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the object is live and the thread attached; the call looks whether it is a dict, and whether it has
        // such a position. It lends the key and the value, and with the GIL nothing changes the dict before they were
        // looked at.
        unsafe {
            !cfg!(Py_GIL_DISABLED)
                && ffi::PyDict_Next(self.as_ptr(), position, &raw mut key, &raw mut value) != 0
                && key == name.as_ptr()
                && is_right(&ManuallyDrop::new(Self(NonNull::new_unchecked(value))))
        }
    }

    /// Returns true if this is a list with the very items of `other`, a list of ours.
    pub(crate) fn is_list_like(&self, _py: Python<'_>, other: &Self) -> bool {
        let (list, other) = (self.as_ptr(), other.as_ptr());
        // SAFETY: both are live, the thread is attached, and where there is a GIL nothing changes a list meanwhile.
        // Both are lists where items are read, within their lengths.
        unsafe {
            if cfg!(Py_GIL_DISABLED) || ffi::PyList_CheckExact(list) == 0 || ffi::PyList_Check(other) == 0 {
                return false;
            }
            let count = ffi::PyList_GET_SIZE(list);
            count == ffi::PyList_GET_SIZE(other)
                && (0..count).all(|index| ffi::PyList_GET_ITEM(list, index) == ffi::PyList_GET_ITEM(other, index))
        }
    }

    /// Returns the number of references to the object. Without a GIL the number means little.
    pub(crate) fn reference_count(&self, _py: Python<'_>) -> isize {
        // SAFETY: the object is live.
        unsafe { ffi::Py_REFCNT(self.as_ptr()) }
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// An item of this mapping as text, if it is there. It runs nothing of the application's: what is neither text nor
    /// a number is shown as the name of its class.
    pub(crate) fn item_text(&self, py: Python<'_>, name: &str) -> Option<String> {
        self.bind(py).get_item(name).ok().as_ref().map(text)
    }

    /// An attribute.
    ///
    /// # Errors
    /// The exception that the look-up raises.
    pub(crate) fn attribute(&self, py: Python<'_>, name: &Self) -> PyResult<Self> {
        // SAFETY: both are live and the thread is attached.
        unsafe { Self::from_new_or_error(py, ffi::PyObject_GetAttr(self.as_ptr(), name.as_ptr())) }
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
        // SAFETY: the call only reads which thread state this thread has.
        if unsafe { ffi::compat::PyThreadState_GetUnchecked() }.is_null() {
            self.drop_detached();
        } else {
            // SAFETY: the reference is owned, and the thread is attached.
            unsafe { ffi::Py_DECREF(self.as_ptr()) }
        }
    }
}

impl Object {
    /// The last use of a reference that a thread drops which is not attached. Where there is no interpreter any more,
    /// the object is gone with it.
    #[cold]
    fn drop_detached(&mut self) {
        // SAFETY: the reference is owned, and the closure runs attached.
        Python::try_attach(|_| unsafe { ffi::Py_DECREF(self.as_ptr()) });
    }
}

/// Calls `act` with the key and the value of each entry, in their order, for as long as it returns true. Whether it has
/// been called for all: where there is no GIL, which keeps the dict as it is meanwhile, it is called for none. It runs
/// nothing of Python's but to make references.
pub(crate) fn walk_dict(dict: &Bound<'_, PyDict>, mut act: impl FnMut(&Object, &Object) -> bool) -> bool {
    if cfg!(Py_GIL_DISABLED) {
        return false;
    }
    let (mut position, mut key, mut value) = (0, std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: a live dict, which nothing changes meanwhile: this thread has the GIL, and nothing of Python's runs.
    while unsafe { ffi::PyDict_Next(dict.as_ptr(), &raw mut position, &raw mut key, &raw mut value) } != 0 {
        // SAFETY: the dict keeps what it has said, so both are live until the next round, and no reference is dropped
        // here.
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

/// A value as text, without running anything of the application's.
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
    // SAFETY: the object is live and keeps its type; a type's name is a C string that lives as long as the type.
    let name = unsafe { CStr::from_ptr((*ffi::Py_TYPE(value.as_ptr())).tp_name) };
    format!("<{}>", name.to_string_lossy())
}

/// A message of a WebSocket.
pub(crate) enum Message {
    /// A `str`.
    Text(Object),
    /// A `bytes` object.
    Binary(Object),
}

/// A message of a WebSocket on its way out.
pub(crate) enum OutgoingMessage<'a> {
    Text(&'a str),
    Binary(Chunk),
}

/// A part of a body, or a message, on its way out: a `bytes` object, whose content never changes.
pub(crate) struct Chunk(Object);

impl Chunk {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    /// A block that the application produced. A subclass of `bytes` is copied: its content could be released by code of
    /// the application's, at a time that is ours.
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
        // SAFETY: a Chunk is made of live bytes objects only, and the reference it holds outlives the result.
        unsafe { bytes_of(self.0.as_ptr()) }
    }
}

/// An item of a list: borrowed where the GIL keeps the list as it is, a reference of its own where another thread may
/// change it meanwhile.
pub(crate) struct Item(#[cfg(Py_GIL_DISABLED)] Object, #[cfg(not(Py_GIL_DISABLED))] NonNull<ffi::PyObject>);

impl Item {
    /// The item of `list` at `index`; `None` if it has become shorter.
    ///
    /// # Safety
    /// The thread is attached, and `list` is a live list. Under the GIL the item is used only while nothing of Python
    /// runs, and `index` is within the list.
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
        // SAFETY: the item is live, as the caller of `of` promises.
        return unsafe { Object::from_borrowed(self.0.as_ptr()) };
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
