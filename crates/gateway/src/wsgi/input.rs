//! `wsgi.input` (PEP 3333, "Input and Error Streams").

use super::errors::RequestErrors;
use super::hijack::Hijack;
use super::start_response::{StartResponseRef, WsgiHandles};
use super::websocket::WebSocket;
use crate::object::{Object, bytes_of};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyStopIteration, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

pyo3::import_exception!(io, UnsupportedOperation);

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
    buffered_reader: Py<PyAny>,
    wsgi_input: Object,
    content_length: Object,
    disconnected: Object,
    errors: Object,
    websocket: Object,
    socket: Object,
}

impl Inputs {
    pub(crate) fn new(py: Python<'_>) -> PyResult<Self> {
        let io = py.import("io")?;
        Ok(Self {
            bytes_io: io.getattr("BytesIO")?.unbind(),
            open: io.getattr("open")?.unbind(),
            buffered_reader: io.getattr("BufferedReader")?.unbind(),
            wsgi_input: Object::interned(py, c"wsgi.input")?,
            content_length: Object::interned(py, c"CONTENT_LENGTH")?,
            disconnected: Object::interned(py, c"kirsch.disconnected")?,
            errors: Object::interned(py, c"wsgi.errors")?,
            websocket: Object::interned(py, c"wsgi.websocket")?,
            socket: Object::interned(py, c"werkzeug.socket")?,
        })
    }

    /// Sets `kirsch.disconnected`.
    pub(crate) fn set_disconnected(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        assign(py, environ, &self.disconnected, handles.disconnected())
    }

    /// Sets `wsgi.errors` to one that writes to `log` and to the web server.
    pub(crate) fn set_errors(
        &self,
        py: Python<'_>,
        environ: &Object,
        handles: &WsgiHandles,
        log: &Object,
    ) -> PyResult<()> {
        assign(py, environ, &self.errors, RequestErrors::of(py, handles, log)?)
    }

    /// Sets `wsgi.websocket`, and `werkzeug.socket` for applications that speak WebSocket themselves. Either costs
    /// little until it is used.
    pub(crate) fn set_websocket(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        let hijack = Py::new(py, Hijack::new(handles.keep(py)))?;
        // Imported when the process is as its driver wants it, and only where it is needed.
        let module = py.import(intern!(py, "kirsch.net.client_socket"))?;
        let socket = module.getattr(intern!(py, "ClientSocket"))?.call1((hijack,))?;
        assign(py, environ, &self.socket, &socket.unbind().into())?;
        let websocket = Py::new(py, WebSocket::new(py, handles.keep(py), environ))?;
        assign(py, environ, &self.websocket, &websocket.into_any().into())
    }

    /// Says how long a body is that came in chunks: it arrives decoded, so its length takes the place of
    /// Transfer-Encoding, as RFC 9112 section 7.1.3 has it.
    pub(crate) fn set_length(&self, py: Python<'_>, environ: &Object, length: u64) -> PyResult<()> {
        let text = Object::latin1(py, length.to_string().as_bytes()).ok_or_else(|| PyErr::fetch(py))?;
        assign(py, environ, &self.content_length, &text)
    }

    /// Sets the input to one that reads `bytes`, and returns how many they are. `BytesIO` shares them until the
    /// application writes, and `read()` of all of it returns that very object.
    pub(crate) fn set_bytes(&self, py: Python<'_>, environ: &Object, bytes: &Object) -> PyResult<u64> {
        let stream: Object = self.bytes_io.call1(py, (bytes.bind(py),))?.into();
        assign(py, environ, &self.wsgi_input, &stream)?;
        // SAFETY: `bytes` is a live bytes object.
        Ok(unsafe { bytes_of(bytes.as_ptr()) }.len() as u64)
    }

    /// Sets the input to one that reads `file`. It is to be closed when the request is over.
    pub(crate) fn set_file(&self, py: Python<'_>, environ: &Object, file: File) -> PyResult<Object> {
        let stream: Object = self.open.call1(py, (file.into_raw_fd(), "rb"))?.into();
        assign(py, environ, &self.wsgi_input, &stream)?;
        Ok(stream)
    }

    /// Sets the input to one that hands the body on as it arrives.
    pub(crate) fn set_arriving(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        let reader = BodyReader { start_response: handles.keep(py), closed: AtomicBool::new(false) };
        let stream: Object = self.buffered_reader.call1(py, (reader, READ_SIZE))?.into();
        assign(py, environ, &self.wsgi_input, &stream)
    }
}

fn assign(py: Python<'_>, environ: &Object, key: &Object, value: &Object) -> PyResult<()> {
    environ.set_item(py, key, value).ok_or_else(|| PyErr::fetch(py))
}

/// The maximum number of bytes that one read asks the engine for; about as many are ready.
const READ_SIZE: usize = 64 << 10;

/// A body as it arrives: what `io.BufferedReader` makes a whole stream of. It is no `io.RawIOBase`, which a class of
/// ours cannot extend, but has all of its methods that are asked for, so that no frame of ours stands in a traceback.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct BodyReader {
    /// Whose exchange the body belongs to.
    start_response: StartResponseRef,
    closed: AtomicBool,
}

#[pymethods]
#[allow(clippy::unused_self, reason = "Python calls them as methods")]
impl BodyReader {
    /// Fills a writable buffer with what is here, waits if nothing is, and returns how many bytes; 0 is the end.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = PyBuffer::<u8>::get(buffer)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("the buffer must be writable and contiguous"));
        }
        // SAFETY: the buffer is writable, contiguous and of so many bytes, and stays where it is while it is held here.
        // The caller, who lends it, leaves it alone until this returns.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<u8>(), buffer.item_count()) };
        self.read_some(py, bytes)
    }

    /// Returns what is here, `size` bytes at most, or with a negative size all that is left: PyPy's `BufferedReader`
    /// has no use for `readall`.
    #[pyo3(signature = (size = -1, /))]
    fn read<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let Ok(size) = usize::try_from(size) else { return self.readall(py) };
        let mut bytes = vec![0; size.min(READ_SIZE)];
        let count = self.read_some(py, &mut bytes)?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }

    /// All that is left.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (mut all, mut end) = (Vec::new(), 0);
        loop {
            // A body may come byte by byte: room for a whole read is not made each time.
            if all.len() - end < READ_SIZE / 2 {
                all.resize(end + READ_SIZE, 0);
            }
            let count = self.read_some(py, &mut all[end..])?;
            end += count;
            if count == 0 {
                return Ok(PyBytes::new(py, &all[..end]));
            }
        }
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

    fn isatty(&self) -> bool {
        false
    }

    fn fileno(&self) -> PyResult<i32> {
        Err(UnsupportedOperation::new_err("fileno"))
    }

    fn tell(&self) -> PyResult<u64> {
        Err(UnsupportedOperation::new_err("tell"))
    }

    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek(&self, offset: i64, whence: i32) -> PyResult<u64> {
        let _ = (offset, whence);
        Err(UnsupportedOperation::new_err("seek"))
    }

    fn flush(&self) {}

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

impl BodyReader {
    /// Reads what is here, and waits if nothing is. 0 bytes are the end.
    fn read_some(&self, py: Python<'_>, buffer: &mut [u8]) -> PyResult<usize> {
        let read = self.start_response.exchange().read(py, buffer)?;
        read.ok_or_else(|| PyRuntimeError::new_err("wsgi.input was read after the response had ended"))
    }
}
