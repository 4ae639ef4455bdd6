//! The server that Python sees: engines, their application, and the threads or the loop that poll them.

use crate::access_log::AccessLog;
use crate::asgi::{self, Asgi};
use crate::clock;
use crate::config::{NativeConfig, seconds};
use crate::group;
use crate::host::{
    AnyEngines, AppParts, Call, EngineIndex, Engines, Hooks, Host, HostedJob, Limits as TimeLimits, Plan, Replacement,
    RunJob, RunsIn, ServerShared, Stop, share,
};
use crate::interface::{Interface, Local};
use crate::limit::RequestLimit;
use crate::log_writer;
use crate::mounted::{Application, Mounted, MountedRequests};
use crate::object::Object;
use crate::proxies;
use crate::scoreboard::{Scoreboard, Stopwatch};
use crate::wsgi::{ScriptName, ServerFacts, Wsgi};
use engine::{
    BodyMemory, Config, ENGINES_MAX, Engine, EngineGroup, Os, ProtocolKind, STOP_GRACE, SharedRecords, Stage,
    StaticFiles, StaticOptions, Times, WebSocketConfig,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::message::Limits;
use wire::websocket::DeflateSettings;

/// One engine and one application on listening sockets.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Server {
    engines: Box<dyn AnyEngines>,
    threads: usize,
    /// It has been run, or is hosted by a loop.
    begun: AtomicBool,
    poller: RawFd,
    engine_wakeup: RawFd,
    /// Of each ASGI application: where its loop is attached.
    event_loops: Vec<Arc<asgi::Shared>>,
    /// Has a thread beside the loop run what it is called with.
    hand_over: Option<Py<PyAny>>,
    monitor: Monitor,
}

/// What the engines of a server are made of, whichever interface calls the application.
struct Resources {
    listeners: Vec<RawFd>,
    config: Config,
    engines: usize,
    threads: usize,
    calls_at_most: Option<usize>,
    hooks: Hooks,
    limit: Option<Arc<RequestLimit>>,
    replacement: Option<Arc<Replacement>>,
    scoreboard: Option<Arc<Scoreboard>>,
    access_log_handler: Option<Py<PyAny>>,
    access_logfile: String,
    access_logformat: String,
    report: Option<Py<PyAny>>,
    time_stages: usize,
    timeout: Option<Duration>,
    timeout_paths: Vec<(String, Option<Duration>)>,
    group: Option<SharedRecords>,
    /// A loop polls the engine, and begins any number of calls.
    is_hosted: bool,
}

impl Resources {
    /// The engines, and the descriptors of the first one's poller and of its waker. `make` makes an interface for each,
    /// and what makes requests that come in at these addresses.
    fn build<I: Interface>(
        self,
        py: Python<'_>,
        make: impl Fn(&[Local]) -> PyResult<(I, I::Requests)>,
    ) -> PyResult<(Box<dyn AnyEngines>, (RawFd, RawFd))> {
        let engines = self.engines;
        let shared = Arc::new(ServerShared::<Host<I>>::default());
        let mut systems = (0..engines).map(|_| Os::new()).collect::<io::Result<Vec<_>>>()?;
        if let Some(group) = &self.group {
            systems.iter_mut().try_for_each(|(net, ..)| net.watch_bell(group.own_bell(), group.processes()))?;
        }
        let (_, poller, waker) = &systems[0];
        let descriptors = (poller.as_raw_fd(), waker.as_fd().as_raw_fd());
        let wakers = systems.iter().map(|(.., waker)| waker.clone()).collect();
        let group = (engines > 1 || self.group.is_some()).then(|| EngineGroup::new(wakers, self.group));
        // One for all engines, whose lines it keeps whole.
        let writes_access_log = self.access_log_handler.is_none() && !self.access_logfile.is_empty();
        let access_log = writes_access_log.then(|| log_writer::access_log(&self.access_logfile)).transpose()?;
        if let Some(log) = &access_log {
            log.set_waker(waker.clone());
        }
        let mut hosts: Vec<Arc<Host<I>>> = Vec::new();
        for (index, (net, poller, waker)) in systems.into_iter().enumerate() {
            let next = |host: &Arc<Host<I>>| host.engine_index().next(host.thread_count());
            let engine_index = hosts.last().map_or_else(|| EngineIndex::first(engines), next);
            let sockets =
                self.listeners.iter().map(|&listener| duplicate("listeners", listener)).collect::<PyResult<_>>()?;
            let config = Config {
                connections: share(self.config.connections, index, engines),
                queue: share(self.config.queue, index, engines),
                ..self.config.clone()
            };
            let answers_health = !config.health_path.is_empty();
            let buffers_bodies = config.buffer_bodies;
            let mut engine = Engine::new(net, sockets, config, clock::now())?;
            let own_threads = share(self.threads, index, engines);
            if let Some(group) = &group {
                // Calls of a loop are not counted: however many there are, it can begin another.
                let calls = if self.is_hosted { usize::MAX } else { own_threads };
                engine.join_group(group.membership(index, calls));
            }
            if self.time_stages > 0 {
                engine.take_times(Box::new(clock::Fine), self.time_stages);
            }
            let (interface, requests) = make(engine.locals())?;
            let scoreboard = self.scoreboard.clone();
            let app_parts = AppParts {
                requests,
                access_log: AccessLog::new(
                    access_log.clone(),
                    &self.access_logformat,
                    self.access_log_handler.as_ref().map(|handler| handler.clone_ref(py)),
                )?,
                limits: TimeLimits::new(self.timeout, self.timeout_paths.clone()),
                buffers_bodies,
                multithread: self.threads > 1 || self.is_hosted,
                stopwatch: scoreboard.clone().map(|scoreboard| Stopwatch::new(scoreboard, engines == 1)),
                is_hosted: self.is_hosted,
            };
            let plan = Plan {
                interface,
                app: app_parts,
                engine,
                poller,
                waker,
                report: self.report.as_ref().map(|report| report.clone_ref(py)),
                hooks: self.hooks.clone_ref(py),
                threads: own_threads,
                calls_at_most: self.calls_at_most.map_or(usize::MAX, |most| share(most, index, engines)),
                limit: self.limit.clone(),
                scoreboard,
                engine_index,
                shared: Arc::clone(&shared),
                answers_health,
                times_stages: self.time_stages > 0,
                replacement: self.replacement.clone(),
            };
            hosts.push(Host::new(plan));
        }
        Ok((Box::new(Engines::new(hosts, shared)), descriptors))
    }
}

/// Where the thread that called `run` waits while others serve: signals, and the last thread, write to it.
struct Monitor {
    reader: Mutex<PipeReader>,
    writer: PipeWriter,
}

/// Nanoseconds in each stage, processor time of the application, and readings of the clock.
type RequestTimes = ([u64; Stage::ALL.len()], u64, u64);

#[pymethods]
impl Server {
    #[new]
    #[allow(clippy::needless_pass_by_value, reason = "they are Python's arguments")]
    fn new(py: Python<'_>, app: Bound<'_, PyAny>, listeners: Vec<RawFd>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let given = NativeConfig::new(config)?;
        // First, because it owns descriptors.
        let group = given.take::<Option<group::Arguments<'_>>>("group")?;
        let group = group.map(group::Arguments::take).transpose()?;
        if !app.is_callable() {
            return Err(PyTypeError::new_err(format!("the application {app} is not callable")));
        }
        let threads: usize = given.take("threads")?;
        let interface: String = given.take("interface")?;
        let is_wsgi = |interface: &str| match interface {
            "wsgi" => Ok(true),
            "asgi" => Ok(false),
            other => Err(PyValueError::new_err(format!("interface: {other:?} is none of wsgi, asgi"))),
        };
        let mounts: Vec<(String, String, String, Object)> = given
            .take::<Vec<(String, String, String, Py<PyAny>)>>("mounts")?
            .into_iter()
            .map(|(host, path, interface, app)| (host, path, interface, app.into()))
            .collect();
        let hand_over: Option<Py<PyAny>> = given.take("hand_over")?;
        // A loop hosts the engine where any application is ASGI.
        let is_asgi = !is_wsgi(&interface)? || !mounts.is_empty();
        let hooks = Hooks {
            spawn: given.take("spawn")?,
            waiter: given.take("waiter")?,
            wait: given.take("wait")?,
            timeout_exception: given.take("timeout_exception")?,
        };
        if threads == 0 {
            return Err(PyValueError::new_err("threads: at least one has to run the application"));
        }
        if threads > 1 && hooks.spawn.is_none() {
            return Err(PyTypeError::new_err("threads: more than one need `spawn`, which starts them"));
        }
        if hooks.waiter.is_some() != hooks.wait.is_some() {
            return Err(PyTypeError::new_err("waiter and wait belong together"));
        }
        let mut config = engine_config(&given)?;
        if !is_asgi {
            config.websocket = None;
        }
        if is_asgi {
            if mounts.is_empty() {
                // The application receives a body as it arrives, and its loop does something else meanwhile.
                config.buffer_bodies = false;
            }
            if config.protocols.iter().any(|protocol| *protocol != ProtocolKind::Http) {
                return Err(PyValueError::new_err(
                    "fastcgi:, uwsgi: and scgi: addresses serve WSGI applications; an ASGI application is served over HTTP",
                ));
            }
        }
        // Each has threads of its own, so that a long call keeps no other connection of its engine waiting, and a share of
        // each bound.
        let engines: usize = given.take("engines")?;
        let is_hosted = hooks.waiter.is_some() || is_asgi;
        let calls_at_most = Some(given.take("limit_concurrency")?).filter(|&most| most > 0);
        let engines = engines.min(calls_at_most.unwrap_or(usize::MAX));
        let engines = if is_hosted { 1 } else { engines.min(threads / 2).min(config.connections).min(config.queue) };
        let engines = engines.clamp(1, ENGINES_MAX);
        config.engines = engines;
        let timeout = given.take_seconds("timeout")?;
        let timeout_paths = given
            .take::<Vec<(String, f64)>>("timeout_paths")?
            .into_iter()
            .map(|(prefix, limit)| Ok((prefix, seconds("timeout_paths", limit)?)))
            .collect::<PyResult<Vec<_>>>()?;
        let limit_fd: Option<RawFd> = given.take("limit_fd")?;
        let limit = match given.take("request_limit")? {
            0 => None,
            requests => Some(Arc::new(RequestLimit::new(requests, duplicate("limit_fd", limit_fd.unwrap_or(-1))?))),
        };
        let replacement = given
            .take::<Option<(RawFd, Vec<u8>)>>("replacement")?
            .map(|(channel, message)| PyResult::Ok(Replacement::new(duplicate("replacement", channel)?, &message)))
            .transpose()?
            .map(Arc::new);
        let scoreboard: Option<Bound<'_, PyAny>> = given.take("scoreboard")?;
        let scoreboard = scoreboard.as_ref().map(Scoreboard::new).transpose()?.map(Arc::new);
        let access_log_handler: Option<Py<PyAny>> = given.take("access_log_handler")?;
        let access_logfile: String = given.take("access_logfile")?;
        let access_logformat: String = given.take("access_logformat")?;
        let report: Option<Py<PyAny>> = given.take("report")?;
        let errors: Option<Bound<'_, PyAny>> = given.take("errors")?;
        let multiprocess: bool = given.take("multiprocess")?;
        let time_stages: usize = given.take("time_stages")?;
        let script_name = ScriptName::parse(&given.take::<String>("fastcgi_script_name")?);
        given.finish()?;
        let app: Object = app.unbind().into();
        let resources = Resources {
            listeners,
            config,
            engines,
            threads,
            calls_at_most,
            hooks,
            limit,
            replacement,
            scoreboard,
            access_log_handler,
            access_logfile,
            access_logformat,
            report,
            time_stages,
            timeout,
            timeout_paths,
            group,
            is_hosted,
        };
        let (engines, descriptors, event_loops) = if !mounts.is_empty() {
            let places = mounts
                .iter()
                .map(|(host, path, interface, _)| Ok((host.clone(), path.clone(), is_wsgi(interface)?)))
                .collect::<PyResult<Vec<_>>>()?;
            let paths = resources.listeners.iter().map(|&listener| unix_path(listener)).collect::<Vec<_>>();
            let event_loops: Vec<Arc<asgi::Shared>> = places.iter().map(|_| Arc::default()).collect();
            let (engines, descriptors) = resources.build(py, |locals| {
                let script_name = script_name.clone();
                let facts = ServerFacts { multithread: true, multiprocess, errors: errors.clone(), script_name };
                let requests = MountedRequests::new(
                    &places,
                    Wsgi::requests(py, locals, facts)?,
                    Asgi::requests(py, locals, &paths)?,
                );
                let applications = mounts.iter().zip(&places).zip(&event_loops).map(|((mount, place), event_loop)| {
                    let app = mount.3.clone_ref(py);
                    Ok(if place.2 {
                        Application::Wsgi(Wsgi::new(py, app)?)
                    } else {
                        Application::Asgi(Asgi::new(app, Arc::clone(event_loop)))
                    })
                });
                Ok((Mounted::new(applications.collect::<PyResult<_>>()?), requests))
            })?;
            let of_asgi = event_loops.into_iter().zip(&places).filter(|(_, (.., is_wsgi))| !is_wsgi);
            (engines, descriptors, of_asgi.map(|(event_loop, _)| event_loop).collect())
        } else if is_asgi {
            let shared = Arc::new(asgi::Shared::default());
            let paths = resources.listeners.iter().map(|&listener| unix_path(listener)).collect::<Vec<_>>();
            let (engines, descriptors) = resources.build(py, |locals| {
                let interface = Asgi::new(app.clone_ref(py), Arc::clone(&shared));
                Ok((interface, Asgi::requests(py, locals, &paths)?))
            })?;
            (engines, descriptors, vec![shared])
        } else {
            // Greenlets come in between each other as threads do.
            let multithread = threads > 1 || is_hosted;
            let (engines, descriptors) = resources.build(py, |locals| {
                let script_name = script_name.clone();
                let facts = ServerFacts { multithread, multiprocess, errors: errors.clone(), script_name };
                Ok((Wsgi::new(py, app.clone_ref(py))?, Wsgi::requests(py, locals, facts)?))
            })?;
            (engines, descriptors, Vec::new())
        };
        let (poller, engine_wakeup) = descriptors;
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
        self.event_loops.iter().zip(&lent).try_for_each(|(shared, lent)| shared.attach(asgi::EventLoop::new(lent)?))
    }

    fn select(slf: &Bound<'_, Self>, timeout: Option<f64>, others: RawFd) -> PyResult<bool> {
        let (this, py) = (slf.get(), slf.py());
        let seconds = |timeout: f64| Duration::try_from_secs_f64(timeout.max(0.0)).unwrap_or(Duration::MAX);
        let until = timeout.map(seconds).and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            this.engines.before_wait(py);
            if this.engines.is_stopped(py)? {
                // A call that the loop has run was the last thing that the stop waited for: no event follows.
                return Ok(false);
            }
            let patience = until.map(|until| until.saturating_duration_since(Instant::now()));
            let due = this.engines.timeout(py)?;
            let wait = patience.into_iter().chain(due).min();
            let [is_ready, has_others] = py.detach(|| wait_for_two([this.poller, others], wait));
            py.check_signals()?;
            let is_due = due.is_some_and(|due| patience.is_none_or(|patience| due <= patience));
            let has_run = (is_ready || is_due) && Self::turn(slf)?;
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if has_run || has_others || is_late || this.engines.is_stopped(py)? {
                return Ok(has_others);
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
        // It has to wake the thread that may run signal handlers.
        if self.threads == 1 { self.engine_wakeup } else { self.monitor.writer.as_raw_fd() }
    }

    fn await_overdue(&self, py: Python<'_>) -> PyResult<Option<Vec<Call>>> {
        self.engines.await_overdue(py)
    }

    fn calls(&self, py: Python<'_>) -> PyResult<Vec<Call>> {
        Ok(self.engines.calls(py)?)
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
    /// Does what is ready; whether anything of the application's may have run.
    fn turn(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (this, py) = (slf.get(), slf.py());
        let (has_run, jobs) = this.engines.turn(py)?;
        for job in jobs {
            let exchange = Py::new(py, HostedExchange::new(slf, job))?;
            match &this.hand_over {
                Some(hand_over) => hand_over.call1(py, (exchange,)).map(drop)?,
                None => exchange.get().refuse(py)?,
            }
        }
        Ok(has_run)
    }
}

/// A request that a loop which hosts the engine can run, or a thread beside it, once.
#[pyclass(frozen, module = "kirsch._native", name = "Exchange")]
pub(crate) struct HostedExchange {
    #[pyo3(get)]
    number: u64,
    #[pyo3(get)]
    worker: Option<usize>,
    run: Mutex<Option<RunJob>>,
    /// It keeps the engine alive.
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
        // A full pipe must not stop a signal handler.
        // SAFETY: the descriptor is open; the call sets a flag of it.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { reader: Mutex::new(reader), writer })
    }

    fn wake(&self) {
        // A full pipe wakes as well as another byte would.
        (&self.writer).write_all(&[0]).ok();
    }

    /// Waits until no thread serves any more, and runs signal handlers meanwhile. Calls that are cut get a moment to
    /// notice it.
    fn wait(&self, py: Python<'_>, engines: &dyn AnyEngines) {
        let mut left_over_since = None;
        loop {
            // A signal interrupts the wait or writes to the pipe, whichever thread the system chose for it.
            let patience = left_over_since.map(|since: Instant| FAREWELL.saturating_sub(since.elapsed()));
            py.detach(|| self.sleep(patience));
            if let Err(error) = py.check_signals() {
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
            // One more, because what is left of a millisecond is a wait too.
            let millis = i32::try_from(patience.as_millis() + 1).unwrap_or(i32::MAX);
            // SAFETY: the structure is one descriptor's, which is open.
            if unsafe { libc::poll(&raw mut descriptor, 1, millis) } != 1 {
                return;
            }
        }
        // Being interrupted is as good as a byte.
        let _read = reader.read(&mut [0; 64]);
    }
}

/// Waits until a descriptor is readable, at most for so long. Returns which are. An interruption by a signal ends the wait.
fn wait_for_two(descriptors: [RawFd; 2], timeout: Option<Duration>) -> [bool; 2] {
    let mut descriptors = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // What is left of a millisecond is waited for too.
    let millis =
        timeout.map_or(-1, |timeout| i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: the structures are those of two descriptors; one that is not open is reported as ready.
    if unsafe { libc::poll(descriptors.as_mut_ptr(), 2, millis) } <= 0 {
        return [false; 2];
    }
    descriptors.map(|descriptor| descriptor.revents != 0)
}

/// The path of a listening Unix socket; `None` for another one.
fn unix_path(listener: RawFd) -> Option<PathBuf> {
    let listener = UnixListener::from(duplicate("listeners", listener).ok()?);
    listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
}

/// How long calls whose peers were cut off may take to come back before the server ends without them.
const FAREWELL: Duration = Duration::from_secs(1);

/// A path as it stands in a request line; empty is none.
fn path(name: &str, path: String) -> PyResult<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    let is_path = path.starts_with('/') && path.bytes().all(is_plain);
    if !is_path && !path.is_empty() {
        return Err(PyValueError::new_err(format!("{name}: {path:?} is no path of a request, such as \"/healthz\"")));
    }
    Ok(path)
}

/// The settings of an engine, for one that serves alone.
fn engine_config(given: &NativeConfig<'_>) -> PyResult<Config> {
    Ok(Config {
        limits: Limits {
            request_line: given.take("limit_request_line")?,
            fields: given.take("limit_request_fields")?,
            field_line: given.take("limit_request_field_size")?,
            head: given.take("limit_request_head")?,
            body: given.take("limit_request_body")?,
        },
        connections: given.take("worker_connections")?,
        proxy_listeners: given.take("proxy_listeners")?,
        proxy_from: proxies::take_proxy_from(given)?,
        trust: proxies::take_trust(given)?,
        evicts_silent: given.take("evicts_silent")?,
        engines: 1,
        protocols: given
            .take::<Vec<String>>("protocols")?
            .iter()
            .map(|name| protocol(name))
            .collect::<PyResult<_>>()?,
        // Of FastCGI; HTTP/1 has one request at a time.
        exchanges: Config::default().exchanges,
        keep_alive: given.take_seconds("keep_alive")?,
        header_timeout: given.take_seconds("header_timeout")?,
        body_timeout: given.take_seconds("body_timeout")?,
        write_timeout: given.take_seconds("write_timeout")?,
        min_rate: given.take("min_rate")?,
        body_memory: given.take("body_memory")?,
        // The engines share it.
        body_memory_total: BodyMemory::new(given.take("body_memory_total")?),
        buffer_bodies: given.take("request_buffering")?,
        queue: given.take("queue")?,
        queue_timeout: given.take_seconds("queue_timeout")?,
        server: given.take("server_header")?,
        health_path: path("health_path", given.take("health_path")?)?,
        static_files: static_files(given)?,
        stalled_after: given.take_seconds("stall_timeout")?,
        websocket: Some(WebSocketConfig {
            message: given.take("ws_max_size")?,
            queue: given.take("ws_max_queue")?,
            deflate: given.take::<bool>("ws_compression")?.then(DeflateSettings::default),
            ping_interval: given.take_seconds("ws_ping_interval")?,
            ping_timeout: given.take_seconds("ws_ping_timeout")?,
        }),
    })
}

/// What a listener's connections speak.
fn protocol(name: &str) -> PyResult<ProtocolKind> {
    Ok(match name {
        "http" => ProtocolKind::Http,
        "fastcgi" => ProtocolKind::FastCgi,
        "uwsgi" => ProtocolKind::Uwsgi,
        "scgi" => ProtocolKind::Scgi,
        _ => return Err(PyValueError::new_err(format!("protocols: {name:?} is none of http, fastcgi, uwsgi, scgi"))),
    })
}

/// The directories of static files, opened; `None` if there are none.
fn static_files(given: &NativeConfig<'_>) -> PyResult<Option<Arc<StaticFiles>>> {
    let directories: Vec<(String, String)> = given.take("static")?;
    let max_age: f64 = given.take("static_max_age")?;
    let options = StaticOptions {
        max_age: Some(seconds("static_max_age", max_age)?.unwrap_or_default()),
        immutable: given.take("static_immutable")?,
        index: given.take("static_index")?,
        falls_through: given.take::<String>("static_missing")? == "app",
        follows_symlinks: given.take::<String>("static_symlinks")? == "anywhere",
    };
    if directories.is_empty() {
        return Ok(None);
    }
    let mappings = directories.iter().map(|(prefix, directory)| (prefix.as_str(), Path::new(directory)));
    StaticFiles::open(mappings, &options).map(|files| Some(Arc::new(files))).map_err(|(at, error)| {
        let (prefix, directory) = &directories[at];
        let place = if prefix.is_empty() { "/" } else { prefix };
        let number = error.raw_os_error().unwrap_or_default();
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let message =
            format!("{text}; --static serves the files of this directory at {place}: create it, or correct the path");
        PyOSError::new_err((number, message, directory.clone()))
    })
}

/// A descriptor of our own for what the caller's stands for.
fn duplicate(name: &str, descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!("{name}: {descriptor} is no descriptor")));
    }
    // SAFETY: the caller owns the descriptor during this call; if it does not exist, duplicating fails.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?)
}
