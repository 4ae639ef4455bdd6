//! The Python class of a server: its engines, its application, and the threads or the loop that poll the engines.

use crate::asgi::concurrency::EventLoop as _;
use crate::asgi::{self, Asgi};
use crate::compat::check_signals;
use crate::config::NativeConfig;
use crate::host::{AnyEngines, Call, HostedJob, Iteration, RunJob, RunsIn, Stop};
use crate::mounted::{Application, Mounted, MountedRequests};
use crate::object::Object;
use crate::resources::{Built, Resources, duplicate};
use crate::wsgi::{ScriptName, ServerFacts, Wsgi};
use engine::{STOP_GRACE, Stage, Times};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The engines and the applications of one server on its listening sockets.
#[pyclass(frozen, module = "kirsch._native", name = "NativeServer")]
pub(crate) struct Server {
    engines: Box<dyn AnyEngines>,
    threads: usize,
    /// True once the server has been started, by `run` or by a hosting loop.
    begun: AtomicBool,
    poller: RawFd,
    engine_wakeup: RawFd,
    /// The data shared with each ASGI application; its event loop is attached there.
    event_loops: Vec<Arc<asgi::Shared>>,
    /// A Python function that makes a thread beside the loop run its argument.
    hand_over: Option<Py<PyAny>>,
    monitor: Monitor,
}

/// The engines of a server, and the shared data of its ASGI applications, to which event loops are attached.
type Made = (Built, Vec<Arc<asgi::Shared>>);

/// Builds a server of one ASGI application.
fn of_asgi(py: Python<'_>, resources: Resources, app: &Object) -> PyResult<Made> {
    let shared = Arc::new(asgi::Shared::default());
    let paths = resources.unix_paths();
    let built = resources.build(py, |listening| {
        let interface = Asgi::new(py, app.clone_ref(py), Arc::clone(&shared))?;
        Ok((interface, Asgi::requests(py, listening, &paths)?))
    })?;
    Ok((built, vec![shared]))
}

/// Builds a server of several mounted applications.
fn of_mounts(py: Python<'_>, mut resources: Resources, facts: &ServerFacts<'_>) -> PyResult<Made> {
    let mounts = std::mem::take(&mut resources.mounts);
    let places: Vec<_> = mounts.iter().map(|mount| (mount.host.clone(), mount.path.clone(), mount.is_wsgi)).collect();
    let paths = resources.unix_paths();
    let event_loops: Vec<Arc<asgi::Shared>> = mounts.iter().map(|_| Arc::default()).collect();
    let built = resources.build(py, |listening| {
        let environs = Wsgi::requests(py, listening, facts.clone())?;
        let requests = MountedRequests::new(&places, environs, Asgi::requests(py, listening, &paths)?);
        let applications = mounts.iter().zip(&event_loops).map(|(mount, event_loop)| {
            let app = mount.app.clone_ref(py);
            Ok(if mount.is_wsgi {
                Application::Wsgi(Wsgi::new(py, app, facts)?)
            } else {
                Application::Asgi(Asgi::new(py, app, Arc::clone(event_loop))?)
            })
        });
        Ok((Mounted::new(applications.collect::<PyResult<_>>()?), requests))
    })?;
    let of_asgi = event_loops.into_iter().zip(&mounts).filter(|(_, mount)| !mount.is_wsgi);
    Ok((built, of_asgi.map(|(event_loop, _)| event_loop).collect()))
}

/// The pipe on which the thread that called `run` waits while other threads serve. Signals and the last thread write to
/// it.
struct Monitor {
    reader: Mutex<PipeReader>,
    writer: PipeWriter,
}

/// The times of a request: nanoseconds in each stage, processor time of the application, and the number of clock
/// readings.
type RequestTimes = ([u64; Stage::ALL.len()], u64, u64);

#[pymethods]
impl Server {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn new(py: Python<'_>, app: Bound<'_, PyAny>, listeners: Vec<RawFd>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = NativeConfig::new(config)?;
        let resources = Resources::take(&given, listeners)?;
        if resources.mounts.is_empty() && !app.is_callable() {
            return Err(PyTypeError::new_err(format!("the application {app} is not callable")));
        }
        let hand_over = given.take("hand_over")?;
        let facts = ServerFacts {
            // Greenlets interleave like threads, so a hosted server counts as multithreaded.
            multithread: resources.threads > 1 || resources.is_hosted,
            multiprocess: given.take("multiprocess")?,
            errors: given.take::<Option<_>>("errors")?.map_or_else(|| py.import("sys")?.getattr("stderr"), Ok)?,
            passes_errors_on: given.take("fastcgi_stderr")?,
            script_name: ScriptName::parse(&given.take::<String>("fastcgi_script_name")?),
        };
        given.finish()?;
        let app: Object = app.unbind().into();
        let threads = resources.threads;
        let ((engines, (poller, engine_wakeup)), event_loops) = if !resources.mounts.is_empty() {
            of_mounts(py, resources, &facts)?
        } else if resources.is_asgi {
            of_asgi(py, resources, &app)?
        } else {
            let make = |listening: &[_]| {
                Ok((Wsgi::new(py, app.clone_ref(py), &facts)?, Wsgi::requests(py, listening, facts.clone())?))
            };
            (resources.build(py, make)?, Vec::new())
        };
        Ok(Self {
            engines,
            threads,
            begun: AtomicBool::new(false),
            poller,
            engine_wakeup,
            event_loops,
            hand_over,
            monitor: Monitor::new()?,
        })
    }

    fn run(&self, py: Python<'_>) -> PyResult<()> {
        if self.begun.swap(true, Ordering::Relaxed) {
            return Err(PyRuntimeError::new_err("the server is running already, or has been stopped"));
        }
        if self.threads == 1 {
            self.engines.work_alone(py);
        } else {
            self.engines.start_first(py)?;
            self.monitor.wait(py, &*self.engines);
        }
        self.engines.finish(py)?;
        self.engines.fail_if_failed(py)
    }

    fn work(&self, py: Python<'_>, index: usize) {
        self.engines.work(py, index);
        self.monitor.wake();
    }

    fn poll(slf: &Bound<'_, Self>) -> PyResult<(Vec<HostedExchange>, Vec<Py<PyAny>>)> {
        let this = slf.get();
        this.begun.store(true, Ordering::Relaxed);
        let (jobs, woken) = this.engines.poll(slf.py())?;
        let exchanges = jobs.into_iter().map(|job| HostedExchange::new(slf, job)).collect();
        Ok((exchanges, woken))
    }

    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn attach(&self, lent: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        if lent.len() != self.event_loops.len() {
            let applications = self.event_loops.len();
            return Err(PyTypeError::new_err(format!("a loop is attached to each ASGI application: {applications}")));
        }
        self.begun.store(true, Ordering::Relaxed);
        let beside: Option<RawFd> = lent.first().map_or(Ok(None), |lent| lent.getattr("beside")?.extract())?;
        self.event_loops.iter().zip(&lent).try_for_each(|(shared, lent)| shared.attach(lent))?;
        let Some((descriptor, lent)) = beside.zip(lent.first()) else { return Ok(()) };
        self.engines.watch_beside(lent.py(), duplicate("beside", descriptor)?)
    }

    fn select(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<(bool, bool)> {
        let (this, py) = (slf.get(), slf.py());
        let Some(shared) = this.event_loops.first() else { return Err(PyTypeError::new_err(NO_ASGI)) };
        let event_loop = shared.event_loop()?;
        // Like asyncio, limit a wait to one day: a wait that ends early does no harm.
        let seconds = |timeout: f64| Duration::try_from_secs_f64(timeout.clamp(0.0, 86_400.0)).unwrap_or_default();
        let mut patience = timeout.map(seconds);
        let until =
            patience.filter(|patience| !patience.is_zero()).and_then(|patience| Instant::now().checked_add(patience));
        let timers = event_loop.timers(py);
        loop {
            check_signals(py)?;
            let Iteration { has_run, is_beside_ready, is_over } = Self::run_once(slf, patience)?;
            // Return to the Python loop only if it has work: its own part of an iteration costs as much as a short
            // call.
            let is_done = is_beside_ready || is_over || has_run && event_loop.has_work(py, &timers);
            if is_done || timeout.is_some() && until.is_none() {
                return Ok((is_beside_ready, is_over));
            }
            if let Some(until) = until {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok((false, false));
                }
                patience = Some(left);
            }
        }
    }

    fn times(&self, py: Python<'_>) -> PyResult<(Vec<RequestTimes>, u64)> {
        let (times, dropped) = self.engines.times(py)?;
        let times = times.into_iter().map(|Times { spent, worked, stamps }| (spent, worked, stamps)).collect();
        Ok((times, dropped))
    }

    fn timeout(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        Ok(self.engines.timeout(py)?.map(|timeout| timeout.as_secs_f64()))
    }

    fn is_stopped(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.engines.is_stopped(py)?)
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.engines.finish(py)
    }

    #[pyo3(signature = (graceful_timeout = None, idle_timeout = None))]
    fn stop(&self, py: Python<'_>, graceful_timeout: Option<f64>, idle_timeout: Option<f64>) -> PyResult<()> {
        let time = |name: &str, seconds: Option<f64>| {
            seconds
                .map(Duration::try_from_secs_f64)
                .transpose()
                .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
        };
        let limit = time("graceful_timeout", graceful_timeout)?;
        let grace = time("idle_timeout", idle_timeout)?.unwrap_or(STOP_GRACE);
        self.engines.stop(py, Stop { limit, grace });
        Ok(())
    }

    fn drain(&self, py: Python<'_>) {
        self.engines.drain(py);
    }

    fn wake(&self, py: Python<'_>) {
        self.engines.wake(py);
    }

    fn reopen_logs(&self, py: Python<'_>) -> PyResult<()> {
        self.engines.reopen_logs(py)
    }

    fn log_counts(&self, py: Python<'_>) {
        self.engines.log_counts(py);
    }

    fn fileno(&self) -> RawFd {
        self.poller
    }

    fn wakeup_fd(&self) -> RawFd {
        // A signal must wake the thread that runs Python signal handlers, which is the main thread.
        if self.threads == 1 { self.engine_wakeup } else { self.monitor.writer.as_raw_fd() }
    }

    fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>> {
        self.engines.await_overdue(py)
    }

    fn calls(&self, py: Python<'_>) -> PyResult<Vec<Call>> {
        Ok(self.engines.calls(py)?)
    }

    fn queue_wait(&self, request: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        Ok(self.engines.queue_wait(request)?.map(|waited| waited.as_secs_f64()))
    }

    fn interrupt(&self, py: Python<'_>, call: u64) -> PyResult<bool> {
        Ok(self.engines.interrupt(py, call)?)
    }

    fn write_off(&self, py: Python<'_>, call: u64) -> PyResult<()> {
        Ok(self.engines.write_off(py, call)?)
    }

    fn statistics(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
        Ok(self.engines.statistics(py)?)
    }
}

impl Server {
    /// Waits for events, runs what is ready, and passes the jobs for threads beside the loop to `hand_over`.
    fn run_once(slf: &Bound<'_, Self>, patience: Option<Duration>) -> PyResult<Iteration> {
        let (this, py) = (slf.get(), slf.py());
        let (iteration, jobs) = this.engines.run_once(py, patience)?;
        for job in jobs {
            let exchange = Py::new(py, HostedExchange::new(slf, job))?;
            match &this.hand_over {
                Some(hand_over) => hand_over.call1(py, (exchange,)).map(drop)?,
                None => exchange.get().refuse(py)?,
            }
        }
        Ok(iteration)
    }
}

/// A request that a hosting loop, or a thread beside it, can run once.
#[pyclass(frozen, module = "kirsch._native", name = "Exchange")]
pub(crate) struct HostedExchange {
    #[pyo3(get)]
    number: u64,
    #[pyo3(get)]
    worker: Option<usize>,
    run: Mutex<Option<RunJob>>,
    /// A reference that keeps the engine alive.
    _server: Py<Server>,
}

#[pymethods]
impl HostedExchange {
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.run_in(py, RunsIn::Loop)
    }

    fn work(&self, py: Python<'_>, worker: usize) -> PyResult<()> {
        self.run_in(py, RunsIn::Thread(worker))
    }

    fn refuse(&self, py: Python<'_>) -> PyResult<()> {
        self.run_in(py, RunsIn::Nothing)
    }
}

impl HostedExchange {
    fn new(server: &Bound<'_, Server>, HostedJob { number, worker, run }: HostedJob) -> Self {
        Self { number, worker, run: Mutex::new(Some(run)), _server: server.clone().unbind() }
    }

    fn run_in(&self, py: Python<'_>, place: RunsIn) -> PyResult<()> {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(run) = run else { return Err(PyRuntimeError::new_err("an exchange is run once")) };
        run(py, place);
        Ok(())
    }
}

impl Monitor {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        // A full pipe must not block a signal handler.
        // SAFETY: the descriptor is open; the call sets one of its flags.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { reader: Mutex::new(reader), writer })
    }

    fn wake(&self) {
        // An error is ignored: a full pipe wakes the reader as well as another byte would.
        (&self.writer).write_all(&[0]).ok();
    }

    /// Blocks until no thread serves any more, and runs signal handlers meanwhile. Calls whose connections were cut
    /// have [`FAREWELL`] to end.
    fn wait(&self, py: Python<'_>, engines: &dyn AnyEngines) {
        let mut left_over_since = None;
        loop {
            // A signal interrupts the wait, or its handler writes to the pipe if the system delivered it to another
            // thread.
            let patience = left_over_since.map(|since: Instant| FAREWELL.saturating_sub(since.elapsed()));
            py.detach(|| self.sleep(patience));
            if let Err(error) = check_signals(py) {
                engines.fail_with(py, error);
            }
            match engines.threads_left(py) {
                Some(0) => return,
                Some(_) if left_over_since.get_or_insert_with(Instant::now).elapsed() >= FAREWELL => return,
                _ => {}
            }
        }
    }

    fn sleep(&self, patience: Option<Duration>) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(patience) = patience {
            let mut descriptor = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // Round up, because the rest of a millisecond must be waited for as well.
            let millis = i32::try_from(patience.as_millis() + 1).unwrap_or(i32::MAX);
            // SAFETY: the structure describes one descriptor, which is open.
            if unsafe { libc::poll(&raw mut descriptor, 1, millis) } != 1 {
                return;
            }
        }
        // An interrupted read ends the wait as well as a byte does.
        let _read = reader.read(&mut [0; 64]);
    }
}

/// The error message if an event loop is needed but the server has no ASGI application.
const NO_ASGI: &str = "a loop is attached to the server of an ASGI application";

/// The time that calls with cut connections have to end before the server ends without them.
const FAREWELL: Duration = Duration::from_secs(1);
