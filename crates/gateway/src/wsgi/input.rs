//! `wsgi.input` (PEP 3333, "Input and Error Streams").

use crate::object::Object;
use engine::Body;
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::os::fd::IntoRawFd;

/// The input of a request without a body: a stream at its end. It has no state, so that all requests share one.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct EmptyInput;

#[pymethods]
#[allow(clippy::unused_self, reason = "Python calls them as methods")]
impl EmptyInput {
    #[pyo3(signature = (size = None, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> Bound<'py, PyBytes> {
        let _ = size;
        PyBytes::new(py, b"")
    }

    #[pyo3(signature = (size = None, /))]
    fn read1<'py>(&self, py: Python<'py>, size: Option<isize>) -> Bound<'py, PyBytes> {
        self.read(py, size)
    }

    #[pyo3(signature = (size = None, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> Bound<'py, PyBytes> {
        self.read(py, size)
    }

    #[pyo3(signature = (hint = None, /))]
    fn readlines(&self, hint: Option<isize>) -> Vec<Py<PyBytes>> {
        let _ = hint;
        Vec::new()
    }

    #[pyo3(signature = (buffer, /))]
    fn readinto(&self, buffer: &Bound<'_, PyAny>) -> usize {
        let _ = buffer;
        0
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self) -> PyResult<Py<PyBytes>> {
        Err(PyStopIteration::new_err(()))
    }

    fn readable(&self) -> bool {
        true
    }

    fn writable(&self) -> bool {
        false
    }

    fn seekable(&self) -> bool {
        false
    }

    fn tell(&self) -> usize {
        0
    }

    fn isatty(&self) -> bool {
        false
    }

    fn flush(&self) {}

    fn close(&self) {}

    #[getter]
    fn closed(&self) -> bool {
        false
    }
}

/// Makes inputs of bodies: the standard library's own streams, so that every method is there and does what is
/// expected of it.
pub(crate) struct Inputs {
    bytes_io: Py<PyAny>,
    open: Py<PyAny>,
}

impl Inputs {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let io = py.import("io")?;
        Ok(Self { bytes_io: io.getattr("BytesIO")?.unbind(), open: io.getattr("open")?.unbind() })
    }

    /// The input of a body; `None` if the body is empty.
    pub(crate) fn make(&self, py: Python<'_>, body: Body<'_>) -> PyResult<Option<Input>> {
        let bytes = match &body {
            Body::Empty => return Ok(None),
            Body::Borrowed(bytes) => *bytes,
            Body::Memory(bytes) => bytes.as_slice(),
            Body::File(..) => {
                let Body::File(file, length) = body else { return Ok(None) };
                let stream = self.open.call1(py, (file.into_raw_fd(), "rb"))?;
                return Ok(Some(Input { stream: stream.into(), length, is_file: true }));
            }
        };
        // BytesIO shares the bytes object until somebody writes, and read() of all of it returns that very object.
        let stream = self.bytes_io.call1(py, (PyBytes::new(py, bytes),))?;
        Ok(Some(Input { stream: stream.into(), length: bytes.len() as u64, is_file: false }))
    }
}

/// A request's input stream.
pub(crate) struct Input {
    pub(crate) stream: Object,
    /// Bytes in it.
    pub(crate) length: u64,
    /// It holds a file, which is to be closed when the request is over.
    pub(crate) is_file: bool,
}
