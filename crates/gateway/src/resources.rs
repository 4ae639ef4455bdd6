//! Builds the parts of a server from its configuration, up to its engines, for any interface.

use crate::access_log::AccessLog;
use crate::certificates::Certificates;
use crate::clock;
use crate::config::{NativeConfig, seconds};
use crate::group;
use crate::host::{
    AnyEngines, AppParts, EngineIndex, Engines, Hooks, Host, Limits as TimeLimits, Plan, Replacement, ServerShared,
    share,
};
use crate::interface::{Interface, ListenerInfo};
use crate::limit::RequestLimit;
use crate::log_writer;
use crate::object::Object;
use crate::proxies;
use crate::quarantine::Quarantine;
use crate::rate_limit::RateLimits;
use crate::scoreboard::{Scoreboard, Stopwatch};
use engine::{
    App, BodyMemory, CompressionConfig, Config, ENGINES_MAX, EdgeConfig, Engine, EngineGroup, HANDSHAKES, Os,
    ProtocolKind, SharedRecords, StaticFiles, StaticOptions, WARM, WebSocketConfig,
};
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tls::{Acceptor, TlsListener, TlsNet};
use wire::files::Coding;
use wire::message::Limits;
use wire::websocket::DeflateSettings;

/// An application that is mounted at a host and a path.
pub(crate) struct Mount {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) is_wsgi: bool,
    pub(crate) app: Object,
}

/// The engines, and two descriptors of the first engine: that of its poller and that of its waker.
pub(crate) type Built = (Box<dyn AnyEngines>, (RawFd, RawFd));

/// The configured parts of a server, from which its engines are built.
pub(crate) struct Resources {
    listeners: Vec<RawFd>,
    /// The TLS acceptor of each listener; `None` for one without encryption. The list may be shorter than `listeners`.
    acceptors: Vec<Option<Arc<Acceptor>>>,
    config: Config,
    engines: usize,
    pub(crate) threads: usize,
    calls_at_most: Option<usize>,
    hooks: Hooks,
    limit: Option<Arc<RequestLimit>>,
    replacement: Option<Arc<Replacement>>,
    scoreboard: Option<Arc<Scoreboard>>,
    quarantine: Option<Arc<Quarantine>>,
    rate_limits: Option<Arc<RateLimits>>,
    access_log_handler: Option<Py<PyAny>>,
    access_logfile: PathBuf,
    access_logformat: String,
    report: Option<Py<PyAny>>,
    time_stages: usize,
    timeout: Option<Duration>,
    timeout_paths: Vec<(String, Option<Duration>)>,
    group: Option<SharedRecords>,
    /// True if an application is ASGI, so that an asyncio loop hosts the engine.
    pub(crate) is_asgi: bool,
    /// The mounted applications; empty if there is only one application.
    pub(crate) mounts: Vec<Mount>,
    /// True if a loop polls the engine. Then any number of calls may be in progress.
    pub(crate) is_hosted: bool,
}

impl Resources {
    /// Takes all settings that do not depend on the interface.
    ///
    /// # Errors
    /// Those of [`NativeConfig::take`], with the name of the setting.
    pub(crate) fn take(given: &NativeConfig<'_>, listeners: Vec<RawFd>) -> PyResult<Self> {
        // Taken first, because it takes ownership of descriptors.
        let group = given.take::<Option<group::Arguments<'_>>>("group")?;
        let group = group.map(group::Arguments::take).transpose()?;
        let threads: usize = given.take("threads")?;
        let mounts = mounts(given)?;
        let is_asgi = !is_wsgi(&given.take::<String>("interface")?)? || mounts.iter().any(|mount| !mount.is_wsgi);
        let hooks = hooks(given, threads)?;
        let is_hosted = hooks.waiter.is_some() || is_asgi;
        let calls_at_most = Some(given.take("limit_concurrency")?).filter(|&most| most > 0);
        let mut config = engine_config(given)?;
        if is_asgi {
            if mounts.is_empty() {
                // The application receives bodies as streams, and its loop runs other tasks meanwhile.
                config.buffer_bodies = false;
            }
            if config.protocols.iter().any(|protocol| protocol.is_for_web_servers()) {
                return Err(PyValueError::new_err(
                    "fastcgi:, uwsgi: and scgi: addresses serve WSGI applications; an ASGI application is served over HTTP",
                ));
            }
        } else if let Some(websocket) = &mut config.websocket {
            // A WSGI application that does not support WebSockets decides itself how to answer a malformed WebSocket
            // request.
            websocket.refuses_broken = false;
        }
        // Each engine has its own threads (at least two, so that a long call does not block its other connections), and
        // a share of each limit.
        let engines = given.take::<usize>("engines")?.min(calls_at_most.unwrap_or(usize::MAX));
        let engines = if is_hosted { 1 } else { engines.min(threads / 2).min(config.connections).min(config.queue) };
        config.engines = engines.clamp(1, ENGINES_MAX);
        let scoreboard: Option<Bound<'_, PyAny>> = given.take("scoreboard")?;
        Ok(Self {
            listeners,
            acceptors: acceptors(given)?,
            engines: config.engines,
            config,
            threads,
            calls_at_most,
            hooks,
            limit: request_limit(given)?,
            replacement: replacement(given)?,
            scoreboard: scoreboard.as_ref().map(Scoreboard::new).transpose()?.map(Arc::new),
            quarantine: quarantine(given)?,
            rate_limits: rate_limits(given)?,
            access_log_handler: given.take("access_log_handler")?,
            access_logfile: given.take("access_logfile")?,
            access_logformat: given.take("access_logformat")?,
            report: given.take("report")?,
            time_stages: given.take("time_stages")?,
            timeout: given.take_seconds("timeout")?,
            timeout_paths: timeout_paths(given)?,
            group,
            is_asgi,
            mounts,
            is_hosted,
        })
    }

    /// Returns the path of each listener's Unix socket; `None` for other listeners.
    pub(crate) fn unix_paths(&self) -> Vec<Option<PathBuf>> {
        let path = |listener| {
            let listener = UnixListener::from(duplicate("listeners", listener).ok()?);
            listener.local_addr().ok()?.as_pathname().map(Path::to_owned)
        };
        self.listeners.iter().map(|&listener| path(listener)).collect()
    }

    /// Builds the engines. `make` creates for each engine the interface, and the factory of its request objects for
    /// these listeners.
    pub(crate) fn build<I: Interface>(
        mut self,
        py: Python<'_>,
        make: impl Fn(&[ListenerInfo]) -> PyResult<(I, I::Requests)>,
    ) -> PyResult<Built> {
        let engines = self.engines;
        let shared = Arc::new(ServerShared::<Host<I>>::default());
        let mut systems = (0..engines).map(|_| Os::new()).collect::<io::Result<Vec<_>>>()?;
        if let Some(group) = &self.group {
            systems.iter_mut().try_for_each(|(net, ..)| net.watch_bell(group.own_bell(), group.processes()))?;
        }
        let (_, poller, waker) = &systems[0];
        let descriptors = (poller.as_raw_fd(), waker.as_fd().as_raw_fd());
        let wakers = systems.iter().map(|(.., waker)| waker.clone()).collect();
        let group = (engines > 1 || self.group.is_some()).then(|| EngineGroup::new(wakers, self.group.take()));
        // All engines write to one log, which keeps their lines whole.
        let writes_access_log = self.access_log_handler.is_none() && !self.access_logfile.as_os_str().is_empty();
        let access_log = writes_access_log.then(|| log_writer::access_log(&self.access_logfile)).transpose()?;
        if let Some(log) = &access_log {
            log.set_waker(waker.clone());
        }
        let mut hosts: Vec<Arc<Host<I>>> = Vec::new();
        for (index, (net, poller, waker)) in systems.into_iter().enumerate() {
            let next = |host: &Arc<Host<I>>| host.next_index();
            let engine_index = hosts.last().map_or_else(|| EngineIndex::first(engines), next);
            let mut engine = self.engine(net, index)?;
            let own_threads = share(self.threads, index, engines);
            if let Some(group) = &group {
                // The calls of a hosting loop are not limited: the loop can always start another one.
                let calls = if self.is_hosted { usize::MAX } else { own_threads };
                engine.join_group(group.membership(index, calls));
            }
            let of_listener = |(index, local): (usize, &engine::Local)| ListenerInfo {
                local: local.clone(),
                is_encrypted: self.acceptor(index).is_some(),
            };
            let listening: Vec<_> = engine.locals().iter().enumerate().map(of_listener).collect();
            let (interface, requests) = make(&listening)?;
            let scoreboard = self.scoreboard.clone();
            let app_parts = AppParts {
                requests,
                access_log: AccessLog::new(
                    access_log.clone(),
                    &self.access_logformat,
                    self.access_log_handler.as_ref().map(|handler| handler.clone_ref(py)),
                )?,
                limits: TimeLimits::new(self.timeout, self.timeout_paths.clone()),
                buffers_bodies: self.config.buffer_bodies,
                quarantine: self.quarantine.clone(),
                rate_limits: self.rate_limits.clone(),
                multithread: self.threads > 1 || self.is_hosted,
                stopwatch: scoreboard.clone().map(|scoreboard| Stopwatch::new(scoreboard, engines == 1)),
                is_hosted: self.is_hosted,
                memories: self.config.memories().cloned().collect(),
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
                // All encrypted listeners share one handshake counter, so any acceptor will do.
                acceptor: self.acceptors.iter().flatten().next().cloned(),
                engine_index,
                shared: Arc::clone(&shared),
                answers_health: !self.config.health_path.is_empty(),
                times_stages: self.time_stages > 0,
                compresses: self.config.compression.is_some(),
                replacement: self.replacement.clone(),
            };
            hosts.push(Host::new(plan));
        }
        Ok((Box::new(Engines::new(hosts, shared)), descriptors))
    }

    /// Returns the acceptor of a listener; `None` if its connections are not encrypted.
    fn acceptor(&self, listener: usize) -> Option<&Arc<Acceptor>> {
        self.acceptors.get(listener)?.as_ref()
    }

    /// Builds the engine with this index, with its share of each limit.
    fn engine<A: App<Net = TlsNet>>(&self, net: Os, index: usize) -> PyResult<Engine<A>> {
        let of_listener = |(index, &listener): (usize, &RawFd)| {
            Ok(TlsListener {
                socket: duplicate("listeners", listener)?.into(),
                acceptor: self.acceptor(index).map(Arc::clone),
                has_proxy_header: self.config.proxy_listeners.get(index).copied().unwrap_or(false),
            })
        };
        let sockets = self.listeners.iter().enumerate().map(of_listener).collect::<PyResult<_>>()?;
        let config = Config {
            connections: share(self.config.connections, index, self.engines),
            queue: share(self.config.queue, index, self.engines),
            // The calls of one connection may occupy three quarters of the threads, so that others find a free one.
            calls: if self.is_hosted { usize::MAX } else { (share(self.threads, index, self.engines) * 3 / 4).max(1) },
            ..self.config.clone()
        };
        let mut engine = Engine::new(TlsNet(net), sockets, config, clock::now())?;
        if self.time_stages > 0 {
            engine.take_times(Box::new(clock::Fine), self.time_stages);
        }
        Ok(engine)
    }
}

/// Parses the name of an interface. Returns true for WSGI.
fn is_wsgi(interface: &str) -> PyResult<bool> {
    match interface {
        "wsgi" => Ok(true),
        "asgi" => Ok(false),
        other => Err(PyValueError::new_err(format!("interface: {other:?} is none of wsgi, asgi"))),
    }
}

/// Takes the mounted applications.
fn mounts(given: &NativeConfig<'_>) -> PyResult<Vec<Mount>> {
    let mounts: Vec<(String, String, String, Py<PyAny>)> = given.take("mounts")?;
    let mount = |(host, path, interface, app): (_, _, String, Py<PyAny>)| {
        Ok(Mount { host, path, is_wsgi: is_wsgi(&interface)?, app: app.into() })
    };
    mounts.into_iter().map(mount).collect()
}

/// Takes the Python functions that the host calls.
fn hooks(given: &NativeConfig<'_>, threads: usize) -> PyResult<Hooks> {
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
    Ok(hooks)
}

/// Takes the number of requests after which the process is replaced; `None`: it is not replaced.
fn request_limit(given: &NativeConfig<'_>) -> PyResult<Option<Arc<RequestLimit>>> {
    let descriptor = given.take::<Option<RawFd>>("limit_fd")?.unwrap_or(-1);
    Ok(match given.take("request_limit")? {
        0 => None,
        requests => Some(Arc::new(RequestLimit::new(requests, duplicate("limit_fd", descriptor)?))),
    })
}

/// Takes the memory of the quarantine, which the supervisor shares with the workers.
fn quarantine(given: &NativeConfig<'_>) -> PyResult<Option<Arc<Quarantine>>> {
    let given = given.take::<Option<(Bound<'_, PyAny>, Bound<'_, PyAny>)>>("quarantine")?;
    given.map(|(list, table)| Quarantine::new(&list, &table)).transpose().map(|quarantine| quarantine.map(Arc::new))
}

/// Takes the rate limits and their memory, which the supervisor shares with the workers.
fn rate_limits(given: &NativeConfig<'_>) -> PyResult<Option<Arc<RateLimits>>> {
    let memory = given.take::<Option<Bound<'_, PyAny>>>("rate_limit_memory")?;
    RateLimits::new(given.take("rate_limit")?, memory.as_ref()).map(|limits| limits.map(Arc::new))
}

/// Takes the channel on which this process asks for its replacement.
fn replacement(given: &NativeConfig<'_>) -> PyResult<Option<Arc<Replacement>>> {
    let given = given.take::<Option<(RawFd, Vec<u8>, Vec<u8>)>>("replacement")?;
    let Some((channel, stuck, broken)) = given else { return Ok(None) };
    Ok(Some(Arc::new(Replacement::new(duplicate("replacement", channel)?, &stuck, &broken))))
}

/// Takes the time limits of calls by path prefix.
fn timeout_paths(given: &NativeConfig<'_>) -> PyResult<Vec<(String, Option<Duration>)>> {
    let limits: Vec<(String, f64)> = given.take("timeout_paths")?;
    limits.into_iter().map(|(prefix, limit)| Ok((prefix, seconds("timeout_paths", limit)?))).collect()
}

/// Checks a path that must have the form of a request target; an empty one means none.
fn path(name: &str, path: String) -> PyResult<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    let is_path = path.starts_with('/') && path.bytes().all(is_plain);
    if !is_path && !path.is_empty() {
        return Err(PyValueError::new_err(format!("{name}: {path:?} is no path of a request, such as \"/healthz\"")));
    }
    Ok(path)
}

/// Takes the settings of an engine. The limits are those of the whole server.
fn engine_config(given: &NativeConfig<'_>) -> PyResult<Config> {
    let memory_total = given.take("body_memory_total")?;
    Ok(Config {
        limits: Limits {
            request_line: given.take("limit_request_line")?,
            fields: given.take("limit_request_fields")?,
            field_line: given.take("limit_request_field_size")?,
            head: given.take("limit_request_head")?,
            body: given.take("limit_request_body")?,
        },
        connections: given.take("worker_connections")?,
        handshakes: HANDSHAKES,
        warm: WARM,
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
        // For HTTP/2 and FastCGI; a connection of HTTP/1 has one request at a time.
        exchanges: Config::default().exchanges,
        calls: usize::MAX,
        keep_alive: given.take_seconds("keep_alive")?,
        header_timeout: given.take_seconds("header_timeout")?,
        body_timeout: given.take_seconds("body_timeout")?,
        write_timeout: given.take_seconds("write_timeout")?,
        min_rate: given.take("min_rate")?,
        body_memory: given.take("body_memory")?,
        // All engines share this account.
        body_memory_total: BodyMemory::new(memory_total),
        buffer_bodies: given.take("request_buffering")?,
        queue: given.take("queue")?,
        queue_timeout: given.take_seconds("queue_timeout")?,
        server: given.take("server_header")?,
        edge: edge(given)?,
        transport_security: transport_security(given)?,
        health_path: path("health_path", given.take("health_path")?)?,
        static_files: static_files(given)?,
        stalled_after: given.take_seconds("stall_timeout")?,
        websocket: Some(WebSocketConfig {
            message: given.take("ws_max_size")?,
            memory: BodyMemory::new(memory_total),
            queue: given.take("ws_max_queue")?,
            deflate: given.take::<bool>("ws_compression")?.then(DeflateSettings::default),
            ping_interval: given.take_seconds("ws_ping_interval")?,
            ping_timeout: given.take_seconds("ws_ping_timeout")?,
            refuses_broken: true,
        }),
        compression: compression(given)?,
    })
}

/// Takes the settings of content coding; `None` if no bodies are compressed.
fn compression(given: &NativeConfig<'_>) -> PyResult<Option<CompressionConfig>> {
    let names: Vec<String> = given.take("compress")?;
    let coding = |name: &String| {
        let coding = Coding::ALL.into_iter().find(|coding| coding.token() == name && *coding != Coding::Identity);
        coding.ok_or_else(|| PyValueError::new_err(format!("compress: {name:?} is none of zstd, br, gzip")))
    };
    let config = CompressionConfig {
        codings: names.iter().map(coding).collect::<PyResult<_>>()?,
        types: given.take("compress_types")?,
        min_size: given.take("compress_min_size")?,
        encodes_private: given.take("compress_private")?,
        memory: BodyMemory::new(given.take("compress_memory")?),
    };
    Ok((!config.codings.is_empty()).then_some(config))
}

/// Takes the settings of the responder for certificate authorities and for clients without https; `None` without
/// certificates.
fn edge(given: &NativeConfig<'_>) -> PyResult<Option<EdgeConfig>> {
    let names: Option<Py<Certificates>> = given.take("edge")?;
    let redirects = given.take("redirect_listeners")?;
    let https_port = given.take("redirect_port")?;
    Ok(names.map(|names| EdgeConfig { names: names.get().edge_names(), redirects, https_port }))
}

/// Takes the time for which browsers must use only https, and true if that includes subdomains.
fn transport_security(given: &NativeConfig<'_>) -> PyResult<Option<(Duration, bool)>> {
    let with_subdomains = given.take("hsts_subdomains")?;
    Ok(given.take_seconds("hsts")?.map(|time| (time, with_subdomains)))
}

/// Takes the TLS acceptor of each listener; `None` for listeners without encryption.
fn acceptors(given: &NativeConfig<'_>) -> PyResult<Vec<Option<Arc<Acceptor>>>> {
    let certificates: Vec<Option<Py<Certificates>>> = given.take("certificates")?;
    Ok(certificates.iter().map(|one| one.as_ref().map(|one| one.get().acceptor())).collect())
}

/// Parses the name of a listener's protocol.
fn protocol(name: &str) -> PyResult<ProtocolKind> {
    ProtocolKind::named(name).ok_or_else(|| {
        let names = ProtocolKind::ALL.map(|(_, name)| name).join(", ");
        PyValueError::new_err(format!("protocols: {name:?} is none of {names}"))
    })
}

/// Takes and opens the directories of static files; `None` if there are none.
fn static_files(given: &NativeConfig<'_>) -> PyResult<Option<Arc<StaticFiles>>> {
    let directories: Vec<(String, PathBuf)> = given.take("static")?;
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
    let mappings = directories.iter().map(|(prefix, directory)| (prefix.as_str(), directory.as_path()));
    StaticFiles::open(mappings, &options).map(|files| Some(Arc::new(files))).map_err(|(at, error)| {
        let (prefix, directory) = &directories[at];
        let place = if prefix.is_empty() { "/" } else { prefix };
        let number = error.raw_os_error().unwrap_or_default();
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let message =
            format!("{text}; --static serves the files of this directory at {place}: create it, or correct the path");
        PyOSError::new_err((number, message, directory.as_os_str().to_owned()))
    })
}

/// Duplicates a descriptor that the caller owns.
pub(crate) fn duplicate(name: &str, descriptor: RawFd) -> PyResult<OwnedFd> {
    if descriptor < 0 {
        return Err(PyValueError::new_err(format!("{name}: {descriptor} is no descriptor")));
    }
    // SAFETY: the caller owns the descriptor during this call; if it is not open, the duplication fails.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?)
}
