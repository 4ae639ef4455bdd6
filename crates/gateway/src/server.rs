//! The server that Python sees: engines, their application, and the threads or the loop that poll them.

use crate::access_log::AccessLog;
use crate::clock;
use crate::config::{NativeConfig, seconds};
use crate::group;
use crate::host::{
    AppParts, Call, EngineIndex, Engines, Hooks, Host, Job, Limits as TimeLimits, Plan, Polled, Replacement,
    ServerShared, Stop, share,
};
use crate::limit::RequestLimit;
use crate::log_writer;
use crate::object::Object;
use crate::proxies;
use crate::scoreboard::{Scoreboard, Stopwatch};
use crate::wsgi::{ScriptName, ServerFacts, Wsgi};
use engine::{
    BodyMemory, Config, ENGINES_MAX, Engine, EngineGroup, Os, ProtocolKind, STOP_GRACE, Stage, StaticFiles,
    StaticOptions, Times,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use wire::message::Limits;

/// One engine and one WSGI application on listening sockets.
#[pyclass(frozen, module = "kirsch._native")]
pub(crate) struct Server {
    engines: Engines<Wsgi>,
    threads: usize,
    /// It has been run, or is hosted by a loop.
    begun: AtomicBool,
    poller: RawFd,
    engine_wakeup: RawFd,
    monitor: Monitor,
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
        // Each has threads of its own, so that a long call keeps no other connection of its engine waiting, and a share of
        // each bound.
        let engines: usize = given.take("engines")?;
        let engines =
            if hooks.waiter.is_some() { 1 } else { engines.min(threads / 2).min(config.connections).min(config.queue) };
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
        let shared = Arc::new(ServerShared::<Host<Wsgi>>::default());
        let mut systems = (0..engines).map(|_| Os::new()).collect::<io::Result<Vec<_>>>()?;
        if let Some(group) = &group {
            systems.iter_mut().try_for_each(|(net, ..)| net.watch_bell(group.own_bell(), group.processes()))?;
        }
        let (_, poller, waker) = &systems[0];
        let (poller_fd, engine_wakeup) = (poller.as_raw_fd(), waker.as_fd().as_raw_fd());
        let wakers = systems.iter().map(|(.., waker)| waker.clone()).collect();
        let group = (engines > 1 || group.is_some()).then(|| EngineGroup::new(wakers, group));
        // One for all engines, whose lines it keeps whole.
        let writes_access_log = access_log_handler.is_none() && !access_logfile.is_empty();
        let access_log = writes_access_log.then(|| log_writer::access_log(&access_logfile)).transpose()?;
        if let Some(log) = &access_log {
            log.set_waker(waker.clone());
        }
        let mut hosts: Vec<Arc<Host<Wsgi>>> = Vec::new();
        for (index, (net, poller, waker)) in systems.into_iter().enumerate() {
            let next = |host: &Arc<Host<Wsgi>>| host.engine_index().next(host.thread_count());
            let engine_index = hosts.last().map_or_else(|| EngineIndex::first(engines), next);
            let sockets =
                listeners.iter().map(|&listener| duplicate("listeners", listener)).collect::<PyResult<_>>()?;
            let config = Config {
                connections: share(config.connections, index, engines),
                queue: share(config.queue, index, engines),
                ..config.clone()
            };
            let answers_health = !config.health_path.is_empty();
            let buffers_bodies = config.buffer_bodies;
            let mut engine = Engine::new(net, sockets, config, clock::now())?;
            let own_threads = share(threads, index, engines);
            if let Some(group) = &group {
                // Greenlets are not counted: however many there are, the hub can begin another.
                let calls = if hooks.waiter.is_some() { usize::MAX } else { own_threads };
                engine.join_group(group.membership(index, calls));
            }
            if time_stages > 0 {
                engine.take_times(Box::new(clock::Fine), time_stages);
            }
            let is_hosted = hooks.waiter.is_some();
            // Greenlets come in between each other as threads do.
            let multithread = threads > 1 || is_hosted;
            let script_name = script_name.clone();
            let facts = ServerFacts { multithread, multiprocess, errors: errors.clone(), script_name };
            let app_parts = AppParts {
                requests: Wsgi::requests(py, engine.locals(), facts)?,
                access_log: AccessLog::new(
                    access_log.clone(),
                    &access_logformat,
                    access_log_handler.as_ref().map(|handler| handler.clone_ref(py)),
                )?,
                limits: TimeLimits::new(timeout, timeout_paths.clone()),
                buffers_bodies,
                multithread,
                stopwatch: scoreboard.clone().map(|scoreboard| Stopwatch::new(scoreboard, engines == 1)),
                is_hosted,
            };
            let plan = Plan {
                interface: Wsgi::new(py, app.clone_ref(py))?,
                app: app_parts,
                engine,
                poller,
                waker,
                report: report.as_ref().map(|report| report.clone_ref(py)),
                hooks: hooks.clone_ref(py),
                threads: own_threads,
                limit: limit.clone(),
                scoreboard: scoreboard.clone(),
                engine_index,
                shared: Arc::clone(&shared),
                answers_health,
                times_stages: time_stages > 0,
                replacement: replacement.clone(),
            };
            hosts.push(Host::new(plan));
        }
        Ok(Self {
            engines: Engines::new(hosts, shared),
            threads,
            begun: AtomicBool::new(false),
            poller: poller_fd,
            engine_wakeup,
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
            self.monitor.wait(py, &self.engines);
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
        let Polled { jobs, woken } = this.engines.poll(slf.py())?;
        let exchanges = jobs
            .into_iter()
            .map(|(number, job)| HostedExchange { number, job: Mutex::new(Some(job)), server: slf.clone().unbind() })
            .collect();
        Ok((exchanges, woken))
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

/// A request that a loop which hosts the engine can run, once.
#[pyclass(frozen, module = "kirsch._native", name = "Exchange")]
pub(crate) struct HostedExchange {
    #[pyo3(get)]
    number: u64,
    job: Mutex<Option<Job<Wsgi>>>,
    /// It keeps the engine alive.
    server: Py<Server>,
}

#[pymethods]
impl HostedExchange {
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(job) = job else { return Err(PyRuntimeError::new_err("an exchange is run once")) };
        self.server.get().engines.run_whole(py, job);
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
    fn wait(&self, py: Python<'_>, engines: &Engines<Wsgi>) {
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
