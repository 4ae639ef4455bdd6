//! The server that Python sees: an engine, its application, and the loop that turns it.

use crate::access_log::AccessLog;
use crate::wsgi::{ERROR, Parts, WARNING, Wsgi};
use engine::{Config, Engine, Now, Statistics, Waker};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::http1::Limits;

/// One engine and one WSGI application on listening sockets, turned by the thread that calls `run`.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Server {
    /// What `run` takes and does not give back.
    idle: Mutex<Option<(Engine<Wsgi>, Wsgi)>>,
    control: Mutex<Control>,
    waker: Waker,
    poller: RawFd,
}

/// What other threads ask of a running server, and what it tells them.
#[derive(Default)]
struct Control {
    stop: Option<Stop>,
    reopen_logs: bool,
    statistics: Statistics,
}

/// Stop, and cut what is left after `limit`, if there is one.
#[derive(Clone, Copy)]
struct Stop {
    limit: Option<Duration>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (
        app,
        listeners,
        *,
        keep_alive = 75.0,
        header_timeout = 15.0,
        body_timeout = 30.0,
        write_timeout = 30.0,
        min_rate = 500,
        limit_request_line = 8190,
        limit_request_fields = 100,
        limit_request_field_size = 8190,
        limit_request_head = 65536,
        limit_request_body = 1_073_741_824,
        body_memory = 262_144,
        worker_connections = 65536,
        server_header = "kirsch",
        multiprocess = false,
        access_log = None,
        access_log_format = "combined",
        access_logger = None,
        report = None,
    ))]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "they are Python's keyword arguments")]
    fn new(
        py: Python<'_>,
        app: Bound<'_, PyAny>,
        listeners: Vec<RawFd>,
        keep_alive: f64,
        header_timeout: f64,
        body_timeout: f64,
        write_timeout: f64,
        min_rate: u64,
        limit_request_line: usize,
        limit_request_fields: usize,
        limit_request_field_size: usize,
        limit_request_head: usize,
        limit_request_body: u64,
        body_memory: usize,
        worker_connections: usize,
        server_header: &str,
        multiprocess: bool,
        access_log: Option<&str>,
        access_log_format: &str,
        access_logger: Option<Py<PyAny>>,
        report: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        if !app.is_callable() {
            return Err(PyTypeError::new_err(format!("the application {app} is not callable")));
        }
        let config = Config {
            limits: Limits {
                request_line: limit_request_line,
                fields: limit_request_fields,
                field_line: limit_request_field_size,
                head: limit_request_head,
                body: limit_request_body,
            },
            connections: worker_connections,
            keep_alive: timeout("keep_alive", keep_alive)?,
            header_timeout: timeout("header_timeout", header_timeout)?,
            body_timeout: timeout("body_timeout", body_timeout)?,
            write_timeout: timeout("write_timeout", write_timeout)?,
            min_rate,
            body_memory,
            server: server_header.to_owned(),
        };
        let sockets = listeners
            .iter()
            .map(|&descriptor| {
                if descriptor < 0 {
                    return Err(PyValueError::new_err("a listener's descriptor is negative"));
                }
                // SAFETY: the caller owns the descriptor during this call; if it does not exist, duplicating fails.
                Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?)
            })
            .collect::<PyResult<_>>()?;
        let engine = Engine::new(sockets, config, Now::read())?;
        let parts = Parts {
            application: app,
            multiprocess,
            software: format!("kirsch/{}", env!("CARGO_PKG_VERSION")),
            access_log: AccessLog::new(access_log, access_log_format, access_logger)?,
            report,
        };
        let wsgi = Wsgi::new(py, engine.locals(), parts)?;
        Ok(Self {
            waker: engine.waker(),
            poller: engine.as_raw_fd(),
            idle: Mutex::new(Some((engine, wsgi))),
            control: Mutex::default(),
        })
    }

    fn run(&self, py: Python<'_>) -> PyResult<()> {
        let taken = lock(&self.idle).take();
        let (mut engine, mut wsgi) =
            taken.ok_or_else(|| PyRuntimeError::new_err("the server is running already, or has been stopped"))?;
        let result = self.turn_until_stopped(py, &mut engine, &mut wsgi);
        if result.is_err() {
            // An exception ends the loop at once; what is open is cut, so that no peer waits for an answer.
            engine.stop(Now::read(), Some(Duration::ZERO));
            engine.turn(Now::read(), &mut wsgi);
        }
        lock(&self.control).statistics = engine.statistics();
        flush(py, &mut wsgi);
        result
    }

    #[pyo3(signature = (graceful_timeout = None))]
    fn stop(&self, graceful_timeout: Option<f64>) -> PyResult<()> {
        let limit = match graceful_timeout {
            None => None,
            Some(seconds) => Some(
                Duration::try_from_secs_f64(seconds)
                    .map_err(|error| PyValueError::new_err(format!("graceful_timeout: {error}")))?,
            ),
        };
        let mut control = lock(&self.control);
        // A limit that has been set can only become shorter.
        let earlier = control.stop.and_then(|stop| stop.limit);
        control.stop = Some(Stop { limit: limit.into_iter().chain(earlier).min() });
        drop(control);
        self.waker.announce_stop();
        Ok(())
    }

    fn wake(&self) {
        self.waker.wake();
    }

    fn reopen_logs(&self) -> PyResult<()> {
        if let Some((_, wsgi)) = lock(&self.idle).as_mut() {
            return match &mut wsgi.access_log {
                Some(log) => log.reopen(),
                None => Ok(()),
            };
        }
        lock(&self.control).reopen_logs = true;
        self.waker.wake();
        Ok(())
    }

    fn fileno(&self) -> RawFd {
        self.poller
    }

    fn wakeup_fd(&self) -> RawFd {
        self.waker.as_fd().as_raw_fd()
    }

    fn statistics(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.control).statistics.entries().into_iter().collect()
    }
}

impl Server {
    fn turn_until_stopped(&self, py: Python<'_>, engine: &mut Engine<Wsgi>, wsgi: &mut Wsgi) -> PyResult<()> {
        loop {
            // Work that is there already is done without letting go of the interpreter.
            if !engine.poll(Some(Duration::ZERO))? {
                let timeout = engine.timeout(Now::read());
                if timeout != Some(Duration::ZERO) {
                    flush(py, wsgi);
                    wsgi.return_memory();
                    detached(py, || engine.poll(timeout))?;
                }
            }
            engine.turn(Now::read(), wsgi);
            py.check_signals()?;
            if let Some(interrupt) = wsgi.interrupt.take() {
                return Err(interrupt);
            }
            self.exchange_words(py, engine, wsgi);
            if engine.is_stopped() {
                return Ok(());
            }
        }
    }

    /// Tells other threads what has been counted, and does what they have asked for.
    fn exchange_words(&self, py: Python<'_>, engine: &mut Engine<Wsgi>, wsgi: &mut Wsgi) {
        let mut control = lock(&self.control);
        control.statistics = engine.statistics();
        let stop = control.stop.take();
        let reopen = std::mem::take(&mut control.reopen_logs);
        drop(control);
        if let Some(Stop { limit }) = stop {
            let now = Now::read();
            engine.stop(now, limit);
            engine.turn(now, wsgi);
        }
        if reopen
            && let Some(log) = &mut wsgi.access_log
            && let Err(error) = log.reopen()
        {
            wsgi.tell(py, ERROR, &format!("the access log could not be opened again: {error}"), None);
        }
    }
}

/// Runs `wait` without the interpreter.
fn detached<R>(_py: Python<'_>, wait: impl FnOnce() -> R) -> R {
    // SAFETY: the thread is attached, as `_py` shows, and is again when this returns. `wait` is only ever
    // `Engine::poll`, which touches nothing of Python; PyO3's own `detach` cannot know that, because the engine also
    // holds objects.
    unsafe {
        let state = ffi::PyEval_SaveThread();
        let result = wait();
        ffi::PyEval_RestoreThread(state);
        result
    }
}

fn flush(py: Python<'_>, wsgi: &mut Wsgi) {
    if let Some(log) = &mut wsgi.access_log
        && let Err(error) = log.flush()
    {
        wsgi.tell(py, WARNING, &format!("access log lines were lost: {error}"), None);
    }
}

/// Nothing panics while it holds one of these locks, and the data are whole at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds as a limit; 0 is none.
fn timeout(name: &str, seconds: f64) -> PyResult<Option<Duration>> {
    let duration = Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{name}: {seconds} seconds: {error}")))?;
    Ok((!duration.is_zero()).then_some(duration))
}
