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

/// The input of a request without a body: a stream at its end. It has no state, so all requests share one.
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

/// Makes the inputs for request bodies. They are streams of the standard library, so they have all methods that
/// applications expect.
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

    /// Sets `kirsch.disconnected` to the function that asks whether the client has left.
    pub(crate) fn set_disconnected(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        assign(py, environ, &self.disconnected, handles.disconnected())
    }

    /// Sets `wsgi.errors` to an object that writes to `log` and to the web server.
    pub(crate) fn set_errors(
        &self,
        py: Python<'_>,
        environ: &Object,
        handles: &WsgiHandles,
        log: &Object,
    ) -> PyResult<()> {
        assign(py, environ, &self.errors, RequestErrors::of(py, handles, log)?)
    }

    /// Sets `wsgi.websocket`, and `werkzeug.socket` for applications that implement WebSocket themselves. An object
    /// that is not used costs little.
    pub(crate) fn set_websocket(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        let hijack = Py::new(py, Hijack::new(handles.keep(py)))?;
        // Imported here and not at start-up: the process must be set up before (gevent patches sockets), and few need
        // the module.
        let module = py.import(intern!(py, "kirsch.net.client_socket"))?;
        let socket = module.getattr(intern!(py, "ClientSocket"))?.call1((hijack,))?;
        assign(py, environ, &self.socket, &socket.unbind().into())?;
        let websocket = Py::new(py, WebSocket::new(py, handles.keep(py), environ))?;
        assign(py, environ, &self.websocket, &websocket.into_any().into())
    }

    /// Sets the length of a chunked body. The application receives it decoded, so `CONTENT_LENGTH` replaces
    /// Transfer-Encoding (RFC 9112 section 7.1.3).
    pub(crate) fn set_length(&self, py: Python<'_>, environ: &Object, length: u64) -> PyResult<()> {
        let text = Object::latin1(py, length.to_string().as_bytes()).ok_or_else(|| PyErr::fetch(py))?;
        assign(py, environ, &self.content_length, &text)
    }

    /// Sets the input to a stream over `bytes`, and returns the length. `BytesIO` shares the object until the
    /// application writes, and `read()` of the whole body returns the same object.
    pub(crate) fn set_bytes(&self, py: Python<'_>, environ: &Object, bytes: &Object) -> PyResult<u64> {
        let stream: Object = self.bytes_io.call1(py, (bytes.bind(py),))?.into();
        assign(py, environ, &self.wsgi_input, &stream)?;
        // SAFETY: `bytes` is a live bytes object.
        Ok(unsafe { bytes_of(bytes.as_ptr()) }.len() as u64)
    }

    /// Sets the input to a stream over `file`. The caller must close it when the response has ended.
    pub(crate) fn set_file(&self, py: Python<'_>, environ: &Object, file: File) -> PyResult<Object> {
        let stream: Object = self.open.call1(py, (file.into_raw_fd(), "rb"))?.into();
        assign(py, environ, &self.wsgi_input, &stream)?;
        Ok(stream)
    }

    /// Sets the input to a stream that passes the body on as it arrives.
    pub(crate) fn set_arriving(&self, py: Python<'_>, environ: &Object, handles: &WsgiHandles) -> PyResult<()> {
        let reader = BodyReader { start_response: handles.keep(py), closed: AtomicBool::new(false) };
        let stream: Object = self.buffered_reader.call1(py, (reader, READ_SIZE))?.into();
        assign(py, environ, &self.wsgi_input, &stream)
    }
}

fn assign(py: Python<'_>, environ: &Object, key: &Object, value: &Object) -> PyResult<()> {
    environ.set_item(py, key, value).ok_or_else(|| PyErr::fetch(py))
}

/// The maximum number of bytes of one read from the engine. The engine buffers about as many.
const READ_SIZE: usize = 64 << 10;

/// A streamed body, which `io.BufferedReader` turns into a complete stream. A Rust class cannot extend `io.RawIOBase`,
/// but this has all methods that `BufferedReader` calls, so tracebacks have no frame of the server.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct BodyReader {
    /// The owner of the exchange to which the body belongs.
    start_response: StartResponseRef,
    closed: AtomicBool,
}

#[pymethods]
#[allow(clippy::unused_self, reason = "Python calls them as methods")]
impl BodyReader {
    /// Reads into a writable buffer, and blocks until at least one byte has arrived. Returns the number of bytes; 0 at
    /// the end.
    fn readinto(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let buffer = PyBuffer::<u8>::get(buffer)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("the buffer must be writable and contiguous"));
        }
        // SAFETY: the buffer is writable, contiguous and of this length, and does not move while it is held here. The
        // caller, who lends it, does not use it until this returns.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.buf_ptr().cast::<u8>(), buffer.item_count()) };
        self.read_some(py, bytes)
    }

    /// Reads at most `size` bytes, or everything if `size` is negative: PyPy's `BufferedReader` does not call
    /// `readall`.
    #[pyo3(signature = (size = -1, /))]
    fn read<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyBytes>> {
        let Ok(size) = usize::try_from(size) else { return self.readall(py) };
        let mut bytes = vec![0; size.min(READ_SIZE)];
        let count = self.read_some(py, &mut bytes)?;
        Ok(PyBytes::new(py, &bytes[..count]))
    }

    /// Reads until the end of the body.
    fn readall<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let (mut all, mut end) = (Vec::new(), 0);
        loop {
            // A body may arrive byte by byte, so the buffer does not grow for every read.
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
    /// Reads the bytes that have arrived, and blocks if there are none. Returns 0 at the end of the body.
    fn read_some(&self, py: Python<'_>, buffer: &mut [u8]) -> PyResult<usize> {
        let read = self.start_response.exchange().read(py, buffer)?;
        read.ok_or_else(|| PyRuntimeError::new_err("wsgi.input was read after the response had ended"))
    }
}
