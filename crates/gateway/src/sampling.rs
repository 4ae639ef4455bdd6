//! The decision whether a request is traced (`--otel`), before anything of Python runs for it.
//!
//! A [`Sampled`] is called in place of the application. It passes a call on to the tracing, which is written in Python,
//! if the request names a trace itself or if the draw says so, and to the application otherwise. The draw is that of
//! OpenTelemetry's `TraceIdRatioBased`: a number of 64 bits, which would be the lower half of the trace's id, is below a
//! bound. The tracing makes the ids of the requests that it gets in the same way. If the sampler follows the senders of
//! requests, a request of a trace that its sender does not sample has no span either: it only gets the ids of the trace.

use crate::access_log::samples_trace;
use crate::callable::{CallableHead, answer, callable_type, caught, free};
use crate::object::Object;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

#[repr(C)]
struct Sampled {
    callable: CallableHead,
    application: Object,
    traced: Object,
    /// Called for a request of a trace that its sender does not sample; `None`: `traced` is.
    followed: Option<Object>,
    /// The highest draw that is sampled; `None`: no draw is.
    highest: Option<u64>,
    /// The state of the generator of draws.
    state: AtomicU64,
    wsgi: Option<WsgiContext>,
}

/// The context of a thread or greenlet that calls a WSGI application.
struct WsgiContext {
    /// The `ContextVar` of the [`RequestCount`]; its default is `None`.
    variable: Object,
    /// A function that prepares a context whose variable is not set, and returns the value that it has set.
    enter: Object,
}

impl WsgiContext {
    /// Counts a request that is not sampled, in the context of this thread or greenlet.
    ///
    /// # Errors
    /// The exception of preparing the context.
    fn count(&self, py: Python<'_>) -> PyResult<()> {
        let mut count = self.variable.bind(py).call_method0(intern!(py, "get"))?;
        if count.is_none() {
            count = self.enter.bind(py).call0()?;
        }
        // Only the thread of this context counts here, so it need not be one operation.
        let number = &count.cast::<RequestCount>()?.get().number;
        number.store(number.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        Ok(())
    }
}

/// The sender's decision about a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SenderDecision {
    /// The request names no trace.
    Silent,
    /// The sender does not sample the trace.
    Unsampled,
    /// The sender samples the trace, or names none correctly. The tracing reads the fields.
    Named,
}

impl SenderDecision {
    /// Reads a field `traceparent`; `None` is one that is not ASCII.
    fn of(field: Option<&str>) -> Self {
        match field.and_then(|field| samples_trace(field.as_bytes())) {
            Some(false) => Self::Unsampled,
            _ => Self::Named,
        }
    }
}

/// Counts the WSGI requests of one context that were not sampled, so that the spans made later in that context differ.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct RequestCount {
    number: AtomicU64,
}

#[pymethods]
impl RequestCount {
    #[new]
    fn new() -> Self {
        Self { number: AtomicU64::new(0) }
    }

    /// Returns the count.
    #[getter]
    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

impl Sampled {
    /// Returns what to call for a request.
    ///
    /// # Errors
    /// The exception of preparing the context.
    fn target(&self, request: &Bound<'_, PyAny>) -> PyResult<&Object> {
        let Ok(request) = request.cast::<PyDict>() else { return Ok(&self.traced) };
        let sender = match &self.wsgi {
            Some(_) => {
                request.get_item(intern!(request.py(), "HTTP_TRACEPARENT"))?.map_or(SenderDecision::Silent, |field| {
                    SenderDecision::of(field.cast::<PyString>().ok().and_then(|it| it.to_str().ok()))
                })
            }
            None => sender_of_scope(request)?,
        };
        let target = match (sender, &self.followed) {
            (SenderDecision::Silent, _) if !self.is_drawn() => &self.application,
            (SenderDecision::Unsampled, Some(followed)) => followed,
            _ => return Ok(&self.traced),
        };
        if let Some(wsgi) = &self.wsgi {
            wsgi.count(request.py())?;
        }
        Ok(target)
    }

    /// Draws, and returns true if the request is sampled.
    fn is_drawn(&self) -> bool {
        let state = self.state.fetch_add(STEP, Ordering::Relaxed);
        self.highest.is_some_and(|highest| mixed(state) <= highest)
    }
}

/// The step of splitmix64 (Steele, Lea and Flood, 2014): it visits every state.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the output of splitmix64 for a state.
fn mixed(state: u64) -> u64 {
    let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the sender's decision about a request of ASGI; [`SenderDecision::Named`] for a scope that is not one of HTTP.
fn sender_of_scope(scope: &Bound<'_, PyDict>) -> PyResult<SenderDecision> {
    let py = scope.py();
    let kind = scope.get_item(intern!(py, "type"))?;
    if !kind
        .is_some_and(|kind| kind.cast::<PyString>().is_ok_and(|kind| kind.to_str().is_ok_and(|kind| kind == "http")))
    {
        return Ok(SenderDecision::Named);
    }
    let Some(headers) = scope.get_item(intern!(py, "headers"))? else { return Ok(SenderDecision::Named) };
    let mut sender = SenderDecision::Silent;
    for field in headers.cast::<PyList>()? {
        let Ok(field) = field.cast_into::<PyTuple>() else { return Ok(SenderDecision::Named) };
        if !field.get_item(0)?.cast::<PyBytes>().is_ok_and(|name| name.as_bytes() == b"traceparent") {
            continue;
        }
        if sender != SenderDecision::Silent {
            return Ok(SenderDecision::Named);
        }
        let value = field.get_item(1)?;
        sender = SenderDecision::of(
            value.cast::<PyBytes>().ok().and_then(|value| std::str::from_utf8(value.as_bytes()).ok()),
        );
    }
    Ok(sender)
}

/// Returns a callable that passes each call on to `traced`, `followed` or `application`.
/// `_native.pyi` describes the arguments.
#[pyfunction]
#[pyo3(signature = (application, traced, followed, bound, seed, context = None, /))]
pub(crate) fn sampled(
    py: Python<'_>,
    application: Py<PyAny>,
    traced: Py<PyAny>,
    followed: Option<Py<PyAny>>,
    bound: u128,
    seed: u64,
    context: Option<(Py<PyAny>, Py<PyAny>)>,
) -> PyResult<Py<PyAny>> {
    // The interpreter keeps the address for as long as the type lives.
    static mut ATTRIBUTES: [ffi::PyGetSetDef; 2] = [
        ffi::PyGetSetDef {
            name: c"traced".as_ptr(),
            get: Some(get_traced),
            set: None,
            doc: ptr::null(),
            closure: ptr::null_mut(),
        },
        ffi::PyGetSetDef { name: ptr::null(), get: None, set: None, doc: ptr::null(), closure: ptr::null_mut() },
    ];
    let attributes = ffi::PyType_Slot { slot: ffi::Py_tp_getset, pfunc: (&raw mut ATTRIBUTES).cast() };
    let kind = callable_type::<Sampled>(py, c"kirsch._native.Sampled", drop_sampled, Some(attributes))?;
    let highest = bound.checked_sub(1).map(|highest| u64::try_from(highest).unwrap_or(u64::MAX));
    let wsgi = context.map(|(variable, enter)| WsgiContext { variable: variable.into(), enter: enter.into() });
    // SAFETY: the type was made from the structure that is initialised here, all fields of it before anything else
    // refers to the object, or drops it; the thread is attached.
    unsafe {
        let it = ffi::PyObject_New::<Sampled>(kind.as_ptr().cast());
        let object = Object::from_new_or_error(py, it.cast())?;
        (&raw mut (*it).callable.vectorcall).write(Some(call_sampled));
        (&raw mut (*it).application).write(application.into());
        (&raw mut (*it).traced).write(traced.into());
        (&raw mut (*it).followed).write(followed.map(Into::into));
        (&raw mut (*it).highest).write(highest);
        (&raw mut (*it).state).write(AtomicU64::new(seed));
        (&raw mut (*it).wsgi).write(wsgi);
        Ok(object.bind(py).unbind())
    }
}

/// `application(request, ...)`
unsafe extern "C" fn call_sampled(
    callable: *mut ffi::PyObject,
    arguments: *const *mut ffi::PyObject,
    count: usize,
    keywords: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `sampled` and arguments that live as long as the
    // call.
    let (py, it, request) = unsafe {
        let py = Python::assume_attached();
        let is_given = ffi::PyVectorcall_NARGS(count) > 0;
        let request = is_given.then(|| Bound::from_borrowed_ptr(py, *arguments));
        (py, &*callable.cast::<Sampled>(), request)
    };
    match caught(|| request.map_or(Ok(&it.traced), |request| it.target(&request))) {
        Err(error) => answer(py, Err(error)),
        // SAFETY: the object is live, and the arguments are passed on as they came.
        Ok(target) => unsafe { ffi::PyObject_Vectorcall(target.as_ptr(), arguments, count, keywords) },
    }
}

/// `traced`, by which Python knows the interface and that a call returns a coroutine.
unsafe extern "C" fn get_traced(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an object of `sampled`.
    let (py, it) = unsafe { (Python::assume_attached(), &*object.cast::<Sampled>()) };
    it.traced.clone_ref(py).into_ptr()
}

unsafe extern "C" fn drop_sampled(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, for an object of `sampled` to which nothing refers any more.
    unsafe {
        let it = object.cast::<Sampled>();
        ptr::drop_in_place(&raw mut (*it).application);
        ptr::drop_in_place(&raw mut (*it).traced);
        ptr::drop_in_place(&raw mut (*it).followed);
        ptr::drop_in_place(&raw mut (*it).wsgi);
        free(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_draws_are_those_of_splitmix64() {
        // The first outputs of the reference implementation for the seed 1234567.
        let states = (1..=3u64).map(|number| 1_234_567u64.wrapping_add(STEP.wrapping_mul(number)));
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(states.map(mixed).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn test_only_a_valid_traceparent_without_the_sampled_flag_is_unsampled() {
        let field =
            |version: &str, flags: &str| format!("{version}-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        for flags in ["00", "02", "0a", "fe"] {
            assert_eq!(SenderDecision::of(Some(&field("00", flags))), SenderDecision::Unsampled, "{flags}");
        }
        assert_eq!(SenderDecision::of(Some(&field("01", "00-later"))), SenderDecision::Unsampled);
        for flags in ["01", "03", "0b", "ff", "0", "000", "0A", "00-later"] {
            assert_eq!(SenderDecision::of(Some(&field("00", flags))), SenderDecision::Named, "{flags}");
        }
        assert_eq!(SenderDecision::of(Some(&field("ff", "00"))), SenderDecision::Named);
        assert_eq!(SenderDecision::of(Some("")), SenderDecision::Named);
        assert_eq!(SenderDecision::of(None), SenderDecision::Named);
    }
}
