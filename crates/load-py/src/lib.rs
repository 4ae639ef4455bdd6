//! Python bindings of the load generator, its reader of responses and its histograms: the module
//! `kirsch_bench._native`, documented in `packages/kirsch-bench/src/kirsch_bench/_native.pyi`. Plans and results are
//! JSON, as documented in the crate `load`. This crate does not depend on the server, and `load` does not depend on
//! Python.

use ::load::histogram::Bucket;
use ::load::{Answer, Answers, Control, Plan, RunError, Wanted};
use pyo3::create_exception;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::http1::client::ServerFault;

/// Execute a plan in this thread, without the GIL.
#[pyfunction]
#[pyo3(signature = (plan, progress = None))]
#[allow(clippy::needless_pass_by_value, reason = "it is called as long as this runs")]
fn load(py: Python<'_>, plan: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let plan = Plan::read(plan).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let mut raised = None;
    let done = py.detach(|| {
        ::load::run(&plan, |stand| {
            Python::attach(|py| match tell(py, progress.as_ref(), stand) {
                Ok(true) => Control::GoOn,
                Ok(false) => Control::Stop,
                // Keep the values measured so far instead of raising KeyboardInterrupt. The result says that the run
                // was interrupted.
                Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => Control::Interrupt,
                Err(error) => {
                    raised = Some(error);
                    Control::Stop
                }
            })
        })
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let measured = done.map_err(|error| match error {
        RunError::Plan(error) => PyValueError::new_err(error.to_string()),
        RunError::System(error) => PyOSError::new_err(error),
    })?;
    serde_json::to_string(&measured).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// Send fixed bytes to every request at a listening socket, without the GIL, until a signal handler raises an
/// exception.
#[pyfunction]
fn serve_null(py: Python<'_>, listener: RawFd, answer: &[u8], last: &[u8]) -> PyResult<()> {
    let listener = duplicate(listener)?.into();
    let mut raised = None;
    let done = py.detach(|| {
        ::load::serve_null(&listener, answer, last, || {
            Python::attach(|py| py.check_signals()).map_err(|error| raised = Some(error)).is_ok()
        })
    });
    match raised {
        Some(error) => Err(error),
        None => done.map_err(PyOSError::new_err),
    }
}

/// Returns a duplicate of the caller's descriptor.
fn duplicate(descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!("listener: {descriptor} is no descriptor")));
    }
    // SAFETY: the caller owns the descriptor during this call; if it is not open, the duplication fails.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?)
}

/// Runs signal handlers and calls `progress`. Returns false if `progress` returned False, which stops the run.
fn tell(py: Python<'_>, progress: Option<&Py<PyAny>>, stand: &::load::Progress) -> PyResult<bool> {
    py.check_signals()?;
    let Some(progress) = progress else { return Ok(true) };
    let json = serde_json::to_string(stand).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let answer = progress.call1(py, (json,))?;
    Ok(!answer.bind(py).is(PyBool::new(py, false)))
}

create_exception!(kirsch_bench._native, ResponseFault, PyValueError, "A server broke a rule of HTTP.");

/// The reader of one connection's responses.
#[pyclass(module = "kirsch_bench._native")]
struct Responses {
    answers: Answers,
    /// Input that has not been parsed yet.
    rest: Vec<u8>,
    wanted: Wanted,
    /// True after the end of the connection or an error: no more responses can be read.
    is_over: bool,
}

/// Status, reason, fields, body, and true if the server keeps the connection open.
type Said<'py> = (u16, String, Vec<(String, String)>, Bound<'py, PyBytes>, bool);

#[pymethods]
impl Responses {
    #[new]
    fn new(limit_body: u64) -> Self {
        let wanted = Wanted { content: true, ..Wanted::default() };
        Self { answers: Answers::with_body_at_most(limit_body), rest: Vec::new(), wanted, is_over: false }
    }

    fn expect(&mut self, method: &str) {
        self.wanted.answers_head = method == "HEAD";
    }

    fn feed<'py>(&mut self, py: Python<'py>, data: &[u8]) -> PyResult<Option<Said<'py>>> {
        self.go_on()?;
        self.rest.extend_from_slice(data);
        match self.answers.next(&self.rest, self.wanted) {
            Ok((used, answer)) => {
                self.rest.drain(..used);
                Ok(answer.and_then(|answer| said(py, answer)))
            }
            Err(fault) => self.fail(fault),
        }
    }

    fn end<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Said<'py>>> {
        self.go_on()?;
        match self.answers.end(&self.rest) {
            Ok(answer) => {
                self.is_over = true;
                Ok(answer.and_then(|answer| said(py, answer)))
            }
            Err(fault) => self.fail(fault),
        }
    }

    #[getter]
    fn unused<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.rest)
    }
}

impl Responses {
    fn go_on(&self) -> PyResult<()> {
        if self.is_over { Err(PyValueError::new_err("nothing more can be read of this connection")) } else { Ok(()) }
    }

    fn fail<T>(&mut self, fault: ServerFault) -> PyResult<T> {
        self.is_over = true;
        Err(ResponseFault::new_err((fault.name(), fault.explanation())))
    }
}

/// Converts a response for Python. Each byte of the fields becomes one character, as in `http.client`.
fn said(py: Python<'_>, answer: Answer) -> Option<Said<'_>> {
    let text = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect::<String>();
    let content = answer.content?;
    let fields = content.fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
    Some((answer.status, text(content.reason), fields, PyBytes::new(py, &content.body), answer.keep_alive))
}

/// A histogram of times in nanoseconds.
#[pyclass(frozen, module = "kirsch_bench._native")]
struct Histogram {
    /// No Python code runs while this lock is held.
    times: Mutex<::load::Histogram>,
}

impl Histogram {
    fn times(&self) -> MutexGuard<'_, ::load::Histogram> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value, its count and its quantile.
type Point = (u64, u64, f64);

fn point(bucket: Bucket) -> Point {
    (bucket.value, bucket.count, bucket.quantile)
}

#[pymethods]
impl Histogram {
    #[new]
    #[pyo3(signature = (encoded = None))]
    fn new(encoded: Option<&str>) -> PyResult<Self> {
        let times = match encoded {
            None => ::load::Histogram::new(),
            Some(text) => ::load::Histogram::decode(text).map_err(|error| PyValueError::new_err(error.to_string()))?,
        };
        Ok(Self { times: Mutex::new(times) })
    }

    fn encode(&self) -> String {
        self.times().encode()
    }

    #[pyo3(signature = (value, count = 1))]
    fn record(&self, value: u64, count: u64) {
        self.times().record_many(value, count);
    }

    fn merge(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) {
        // Copy first: `other` may be this object, and two threads may merge two histograms with each other.
        let other = other.get().times().clone();
        slf.get().times().merge(&other);
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.times().len())?)
    }

    #[getter]
    fn min(&self) -> Option<u64> {
        self.times().min()
    }

    #[getter]
    fn max(&self) -> Option<u64> {
        self.times().max()
    }

    #[getter]
    fn mean(&self) -> Option<f64> {
        self.times().mean()
    }

    #[getter]
    fn deviation(&self) -> Option<f64> {
        self.times().deviation()
    }

    fn quantile(&self, quantile: f64) -> PyResult<Option<u64>> {
        if !(0.0..=1.0).contains(&quantile) {
            return Err(PyValueError::new_err(format!("{quantile} is no quantile: from 0 to 1")));
        }
        Ok(self.times().quantile(quantile))
    }

    fn count_up_to(&self, value: u64) -> u64 {
        self.times().count_up_to(value)
    }

    fn recorded(&self) -> Vec<Point> {
        self.times().recorded().map(point).collect()
    }

    #[pyo3(signature = (steps = 5))]
    fn spectrum(&self, steps: u32) -> Vec<Point> {
        self.times().spectrum(steps).map(point).collect()
    }

    #[staticmethod]
    #[pyo3(signature = (start, comments = None))]
    #[allow(clippy::needless_pass_by_value, reason = "it is Python's argument")]
    fn log_head(start: f64, comments: Option<Vec<String>>) -> String {
        let comments = comments.unwrap_or_default();
        ::load::Histogram::log_head(start, &comments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[pyo3(signature = (at, seconds, tag = None))]
    fn log_line(&self, at: f64, seconds: f64, tag: Option<&str>) -> String {
        self.times().log_line(at, seconds, tag)
    }
}

/// The native part of kirsch-bench.
///
/// Nothing here relies on the GIL, so a free-threaded interpreter that imports it stays without one.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::{Histogram, ResponseFault, Responses, load, serve_null};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
