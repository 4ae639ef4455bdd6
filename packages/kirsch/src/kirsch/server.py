"""The class :class:`Server`: one server in this process.

The native engine (``kirsch._native``) serves; this module opens its sockets and releases everything at the end.
``kirsch.serving`` connects signals to it. Which thread does what::

    the serving thread      start() ── listen, then the driver's run() ─────────────▶ sockets closed, paths removed
    any other thread        stop()  ── tells the engine, waits until start() is done
    a thread or greenlet    stop()  ── tells the engine; does not wait, because start() waits for it
     of the server itself
    a signal handler        tells the engine; does not wait, because it interrupts the serving thread

The serving thread is the one that calls start(). If the driver has one thread or a gevent hub, the application runs in
it too. If the driver has more threads, the serving thread only waits; so it can run signal handlers while all other
threads are busy.
"""

from __future__ import annotations

import _thread
import os
import signal
from time import monotonic

from kirsch import _native, drivers, reports, stopping
from kirsch.apps.mounted import Mounted, MountedApplication
from kirsch.apps.signature import direct_call, interface_of, interface_problem
from kirsch.config.native import NativeConfig
from kirsch.config.schema import BY_NAME, SETTINGS
from kirsch.config.setting import ENGINE
from kirsch.drivers import choice
from kirsch.net import inherited
from kirsch.net.addresses import HTTP, HTTP_VERSIONS, parse_bind
from kirsch.net.certificates import TlsFiles, new_secrets
from kirsch.net.sockets import discard, encrypt, exposure, https_port
from kirsch.net.sockets import listen as listen_on
from kirsch.process import forks
from kirsch.process.real_threads import original, start_thread, thread_starter
from kirsch.reports import WARNING, AccessThread, access_logger, report_to_logging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import TracebackType
    from typing import Any

    from typing_extensions import Self, Unpack

    from kirsch.apps.mounted import Application
    from kirsch.config.options import Options
    from kirsch.drivers import Driver
    from kirsch.drivers.asyncio import AsyncioDriver
    from kirsch.monitor.running_requests import RunningRequest, Statistics
    from kirsch.monitor.scoreboard import Slot
    from kirsch.net.addresses import Address
    from kirsch.net.certificates import Terms
    from kirsch.net.sockets import Listener

_OPTIONS = tuple(each for each in SETTINGS if each.in_programs)
DEFAULT_BIND = BY_NAME["bind"].default

# The engine cuts off late exchanges by itself, in coarse time steps, but it cannot end an application call. A call that
# still runs this many seconds after its time limit is stuck.
STUCK_AFTER = 2.0

EXIT_STUCK = 75
"""The exit status of a process that ended because a request did not end after its deadline: start it again. It is the
number of EX_TEMPFAIL in sysexits.h, and no other end of ours has it."""


class Server:
    """One WSGI or ASGI application, or several that are mounted at paths, on one or several addresses.

    ``start()`` serves in the calling thread until another thread calls ``stop()``::

        server = kirsch.Server(app, bind="127.0.0.1:0")
        with server:  # listens; stops the server at the end of the block
            threading.Thread(target=server.start).start()
            urlopen(server.urls[0])

    With ``driver="gevent"`` the server runs in a greenlet of the calling thread's hub, as in
    ``gevent.spawn(server.start)``.

    ``mounts`` maps paths and hosts to applications, as ``{"/shop": shop, "api.example.org/v1": api}``; WSGI and ASGI
    can be mixed. ``app`` gets all other requests, and may be omitted if there are mounts.

    ``bind`` is one address or several, each ``host:port``, ``:port``, ``[ipv6]:port`` or ``unix:path``; port 0 means a
    free port. Without ``bind``, the server uses the sockets that systemd has passed, or speaks FastCGI on descriptor 0
    if a web server has started the process for that, or else serves 127.0.0.1:8000. A server can be started once.
    Raises TypeError for an unknown or mistyped option, ValueError for a bad value, and ImportError if the driver needs
    a package that is not installed.
    """

    def __init__(
        self,
        app: Application | None = None,
        bind: str | Iterable[str] | None = None,
        *,
        mounts: Mapping[str, Callable[..., Any]] | None = None,
        **options: Unpack[Options],
    ) -> None:
        checked, report = _checked(options)
        if mounts:
            app = _combined(app, mounts, checked["interface"])
        if isinstance(app, Mounted):
            interface = app.interface
        else:
            app = _callable(app)
            _check_interface(app, checked["interface"])
            interface = interface_of(app) if checked["interface"] == "auto" else checked["interface"]
        self._app: Application = app
        self._binds = None if bind is None else (bind,) if isinstance(bind, str) else tuple(bind)
        for text in self._binds or ():
            parse_bind(text)
        self._options = checked
        self.graceful_timeout: float = checked["graceful_timeout"]
        self._driver_name: str = choice.choose_driver(checked["driver"], interface)
        self._driver: Driver
        if interface == "asgi":
            self._driver, self._app = choice.make_asyncio(app, checked, report)
        else:
            self._driver = choice.make(self._driver_name, checked["threads"])
        # For an ASGI application: a coroutine function that runs after the lifespan startup, before the first request.
        self.check_ready: Callable[[], Coroutine[Any, Any, None]] | None = None
        # The configuration of the native server. A worker sets its shared resources here before start().
        self.config = NativeConfig({each.name: checked[each.name] for each in _OPTIONS if each.scope == ENGINE})
        self.config.report = self._report = report
        self._listeners: list[Listener] = []
        self._tls_files = TlsFiles(checked)
        self._ticket_secrets = new_secrets()
        # The contents of the TLS files, if they have been read already. Set before start().
        self.tls_terms: Terms | None = None
        self._certificates: _native.Certificates | None = None
        self.slot: Slot | None = None  # the worker's slot on the scoreboard; set before start()
        self._native: _native.NativeServer | None = None
        self._left_to_parent: _native.NativeServer | None = None
        # Held while start() runs. A bare lock, because Event would import threading; and a real one even if gevent has
        # patched the process, because other threads wait for it.
        self._busy = original("allocate_lock")()
        self._started = False
        # Protects `_stop_requested` and `_native`, which begin_stop() and start() exchange. Reentrant, because a signal
        # handler may interrupt the thread that holds it.
        self._order = original("RLock")()
        self._stop_requested = False
        # The time of monotonic() until which calls may run after the stop has begun.
        self.stop_due = float("inf")
        # True if application calls still run after the server has ended. Set when start() returns.
        self.calls_remaining = False
        self._stuck = False
        # True if the process exists only for this server.
        self.owns_process = False
        # Asks the supervisor to replace this worker by a new one. Set before start().
        self.request_replacement: Callable[[], None] | None = None
        # Called after the server has ended and before its process exits.
        self.at_end: Callable[[], None] | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses of the listening sockets: ``(host, port)`` with the real port, or the path of a Unix socket."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def urls(self) -> tuple[str, ...]:
        """The same addresses in the form ``http://host:port`` or ``unix:path``."""
        return tuple(listener.url for listener in self._listeners)

    def listen(self) -> None:
        """Bind and listen now, so that ``addresses`` are known and clients can connect; otherwise start() does so.

        Raises OSError, with one line that says what is wrong and how to correct it.
        """
        if not self._listeners:
            binds = self._binds
            if binds is None:
                binds, _ = inherited.choose_binds(DEFAULT_BIND, explicit=False)
            self._listeners = listen_on(binds, self._options["backlog"])
            try:
                encrypt(self._listeners, with_certificates=bool(self._tls_files))
            except ValueError:
                discard(self._listeners)
                self._listeners = []
                raise
            for listener in self._listeners:
                if warning := exposure(listener, self._options["trusted_proxies"], self._options["proxy_from"]):
                    self.report(WARNING, warning)

    def adopt(self, listeners: list[Listener]) -> None:
        """Serve on ``listeners`` instead of ``bind``. The server owns them from now on, and closes them."""
        self._listeners = listeners

    def start(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop` is called; return at once if it has been called already.

        ``ready`` is called just before serving begins, when no error of the configuration can occur any more.

        Raises OSError like :meth:`listen`, and RuntimeError if this server runs or has run already.
        """
        self._occupy()
        try:
            self._driver.begin()
            if not self._stop_requested:
                self.listen()
                forks.call(self._serve, ready)
        finally:
            self._vacate()

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve an ASGI application in the running event loop, of any implementation, until :meth:`stop`.

        Cancelling this task stops gracefully: requests in flight have ``graceful_timeout`` seconds; a second
        cancellation ends them at once. The program itself handles signals and its other tasks. Otherwise like
        :meth:`start`. Raises TypeError for a WSGI application.
        """
        import asyncio

        from kirsch.drivers.asyncio import AsyncioDriver

        driver = self._driver
        if not isinstance(driver, AsyncioDriver):
            raise TypeError(
                "serve() serves an ASGI application, and this is a WSGI application: call start() in a thread"
            )
        self._occupy()
        try:
            driver.join()
            if self._stop_requested:
                return
            self.listen()
            serving = asyncio.ensure_future(self._serve_in_loop(driver, ready))
            cancelled: asyncio.CancelledError | None = None
            while not serving.done():
                try:
                    await asyncio.wait({serving})
                except asyncio.CancelledError as error:
                    self.begin_stop(0.0 if cancelled else self.graceful_timeout, 0.0)
                    cancelled = error
            if cancelled is not None:
                serving.exception()  # the caller needs the cancellation, not this exception
                raise cancelled
            serving.result()
        finally:
            self._vacate()

    async def _serve_in_loop(self, driver: AsyncioDriver, ready: Callable[[], None] | None) -> None:
        try:
            await driver.start_up_in_loop()
            run = self._prepare()
            if run is not None:
                with run as native:
                    self._begin(native, ready)
                    await driver.serve(native)
        finally:
            await driver.shut_down_in_loop()

    def _occupy(self) -> None:
        """Mark the server as running. Raises RuntimeError if it runs or has run already."""
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("this server is running already")
        if self._started:
            self._busy.release()
            raise RuntimeError("this server has served already; make a new one")
        forks.add(self._leave_in_child)
        stopping.add(self)

    def _vacate(self) -> None:
        """Release what :meth:`_occupy` and :meth:`start` have acquired."""
        forks.discard(self._leave_in_child)
        stopping.discard(self)
        self._native = None
        discard(self._listeners)
        if not self._started:
            self._listeners = []  # closed, and not usable for another attempt
        self._busy.release()
        self._driver.end()

    def _leave_in_child(self) -> None:
        """Make the server unusable in a child that the application has forked: it belongs to the parent."""
        self._driver.leave_in_child()
        self._left_to_parent, self._native = self._native, None  # dropping it here would end the server
        self._stop_requested = True
        self._busy = original("allocate_lock")()
        for listener in self._listeners:
            listener.close()

    def stop(self, graceful_timeout: float | None = None) -> bool:
        """Stop accepting, let requests in flight finish for ``graceful_timeout`` seconds, and end the rest.

        None means the option ``graceful_timeout``; 0 ends requests at once. Called from outside the server, it waits,
        and returns whether all has ended: False means that an application call still runs after that time. Called from
        inside (the application in any thread or greenlet, a signal handler in the serving thread), it returns False at
        once. May be called again, with less time.
        """
        timeout = self.graceful_timeout if graceful_timeout is None else graceful_timeout
        # No other process listens on these sockets and could serve a later request: do not wait for idle connections.
        self.begin_stop(timeout, 0.0)
        if self._driver.is_inside():
            return False
        return self.wait(timeout + STUCK_AFTER) and not self.calls_remaining

    def begin_stop(self, timeout: float, idle_timeout: float | None = None) -> None:
        """Tell the engine to stop, as :meth:`stop` does, but return at once in any thread.

        Within ``idle_timeout`` seconds an idle connection may send one more request; None means half a second. With 0
        the engine closes an idle connection at once, unless a request has already arrived on it.
        """
        # Set `_stop_requested`, then read `_native`; _run() does the reverse: the second thread sees the first one's
        # value.
        with self._order:
            self._stop_requested = True
            native = self._native
        self.stop_due = min(self.stop_due, monotonic() + timeout)
        self._driver.begin_stop(timeout)
        stopping.announce()
        if native is not None:
            native.stop(timeout, idle_timeout)
        del native  # the engine closes its sockets with the last reference, which must be start()'s

    @property
    def is_stopping(self) -> bool:
        """True if the server has begun to stop."""
        return self._stop_requested

    @property
    def is_stuck(self) -> bool:
        """Return whether an application call is stuck: it has not ended long after its deadline."""
        return self._stuck

    def drain(self) -> None:
        """Continue to serve, but tell load balancers and clients to go elsewhere: :meth:`stop` will be called soon."""
        native = self._native
        if native is not None:
            native.drain()
        del native

    def reopen_logs(self) -> None:
        """Reopen the access log after a rotation. Raises OSError, and keeps the old file, if that fails."""
        native = self._native
        if native is not None:
            native.reopen_logs()
        del native

    def statistics(self, *, exchanges: bool = True) -> Statistics:
        """Return the engine's counters and gauges, and as ``exchanges`` the running requests; empty if not running.

        Each running request is a dict: ``number``, ``id``, ``method``, ``path``, ``age`` and ``limit`` (seconds),
        ``state``, ``thread`` and ``stack`` (:class:`kirsch.monitor.running_requests.RunningRequest`). Taking a stack
        costs tens of microseconds; ``exchanges=False`` omits the list.
        """
        native = self._native
        if native is None:
            return {}
        found: Statistics = native.statistics()  # type: ignore[assignment]  # names are held together by test_settings
        if exchanges:
            from kirsch.monitor.running_requests import running

            found["exchanges"] = running(native, self._driver)
        return found

    def queue_wait(self, request: object) -> float | None:
        """Return how many seconds the request of a running call has waited in the queue; None if not measured."""
        native = self._native
        return None if native is None else native.queue_wait(request)

    def stage_times(self) -> tuple[list[tuple[list[int], int, int]], int]:
        """Return the times of the stages of requests, if ``config.time_stages`` is set; see
        ``NativeServer.times``. Empty if the server does not run."""
        native = self._native
        return ([], 0) if native is None else native.times()

    def running(self, most: int) -> list[RunningRequest]:
        """Return the oldest running requests, at most ``most``, in the form of :meth:`statistics`."""
        native = self._native
        if native is None:
            return []
        from kirsch.monitor.running_requests import running

        return running(native, self._driver, most)

    def dump(self) -> str:
        """Return the running requests as text for people, with their ages and stacks. May be called in any thread."""
        native = self._native
        if native is None:
            return "the server does not run\n"
        from kirsch.monitor.running_requests import dump

        return dump(native, self._driver, self._driver_name)

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if not self._started:
            discard(self._listeners)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for ``start()`` to return; return whether it has returned, or was never called."""
        ended = self._driver.wait(seconds)
        if ended is not None:
            return ended
        done: bool = self._busy.acquire(timeout=min(seconds, _thread.TIMEOUT_MAX))
        if done:
            self._busy.release()
        return done

    def check(self) -> None:
        """Raise what :meth:`start` would raise for the options, without opening sockets or the access log."""
        if self._tls_files:
            _native.Certificates(self._read_terms())
        self._make_native([], self.config.but(access_logfile=""))

    def _make_native(self, listeners: list[int], config: NativeConfig) -> _native.NativeServer:
        if self._options["timeout"] or self._options["timeout_paths"]:
            config.timeout_exception = drivers.RequestTimeout
        if self.slot is not None:
            config.scoreboard = self.slot.native
            config.quarantine = (self.slot.board.quarantine_list, self.slot.route_table)
        if self._options["rate_limit"]:
            config.rate_limit_memory = self._rate_limit_memory()
        self._driver.configure(config)
        if isinstance(self._app, Mounted):
            config.mounts = self._app.for_native()
            return _native.NativeServer(None, listeners, config)
        return _native.NativeServer(direct_call(self._app), listeners, config)

    def _rate_limit_memory(self) -> Any:
        """Return the buffer of the rate limits: the one that all workers share, or a new one for this process alone."""
        if self.slot is not None:
            return self.slot.board.rate_limits
        from mmap import mmap

        return mmap(-1, _native.RATE_LIMIT_SIZE)

    def _access_log_handler(self) -> Callable[[str, dict[str, str]], None] | None:
        handler: Any = self._options["access_logger"]
        if handler is True:
            start_thread = thread_starter(self._driver_name)
            return access_logger(stdout_by_default=False, start_thread=start_thread)
        return handler or None

    def _serve(self, ready: Callable[[], None] | None) -> None:
        try:
            self._driver.start_up()
            if self.check_ready is not None and not self._stop_requested:
                self._driver.complete(self.check_ready())  # type: ignore[attr-defined]  # that of an ASGI application
            run = self._prepare()
            if run is not None:
                with run as native, _Wakeup(native.wakeup_fd()):
                    self._begin(native, ready)
                    self._driver.run(native)
        finally:
            self._driver.shut_down()

    def _prepare(self) -> _Run | None:
        """Create the native server and open what it needs; return None if the server was stopped before."""
        if self.is_stopping:
            return None
        for complaint in self._driver.warnings():
            self.report(WARNING, complaint)
        handler = self._access_log_handler()
        if any(listener.is_encrypted for listener in self._listeners):
            self._certificates = self._make_certificates()
        config = self.config.but(
            access_log_handler=handler,
            certificates=[self._certificates if listener.is_encrypted else None for listener in self._listeners],
            protocols=[self._protocol_of(listener) for listener in self._listeners],
            proxy_listeners=[listener.proxy for listener in self._listeners],
            edge=self._certificates,
            redirect_listeners=[self._redirects(listener) for listener in self._listeners],
            redirect_port=self._options["https_port"] or https_port(self._listeners),
        )
        native = self._make_native([listener.socket.fileno() for listener in self._listeners], config)
        # From here on only the engine has the sockets. So when it stops accepting, the kernel refuses new connections
        # instead of queueing them without a server.
        for listener in self._listeners:
            listener.close()
        self._started = True
        with self._order:
            self._native = native
            return None if self._stop_requested else _Run(self, native, handler)

    def _protocol_of(self, listener: Listener) -> str:
        is_http = listener.protocol == HTTP
        return HTTP_VERSIONS[self._options["http"]] if is_http else listener.protocol

    def _redirects(self, listener: Listener) -> bool:
        """Return whether the listener redirects clients to https."""
        is_plain = listener.protocol == HTTP and not listener.is_encrypted
        return bool(self._options["redirect_http"]) and is_plain and not isinstance(listener.address, str)

    def _make_certificates(self) -> _native.Certificates:
        """Return the certificates of the settings. Raises ValueError, with one line for each mistake."""
        certificates = _native.Certificates(self._read_terms())
        if self.slot is None:  # the supervisor reports the warnings for its workers
            for warning in certificates.warnings():
                self.report(WARNING, warning)
        return certificates

    def _read_terms(self) -> Terms:
        return self._tls_files.read(self._ticket_secrets) if self.tls_terms is None else self.tls_terms

    def reload_certificates(self, terms: Terms | None = None) -> None:
        """Reread the TLS files, or use ``terms`` as their contents; new connections use the result.

        Raises ValueError, with one line for each mistake; then the old certificates stay in use.
        """
        if self._certificates is not None:
            self._certificates.replace(self._tls_files.read(self._ticket_secrets) if terms is None else terms)

    def _begin(self, native: _native.NativeServer, ready: Callable[[], None] | None) -> None:
        if self._driver_name == "gevent":
            # dump() runs in another thread, which must not import anything.
            import kirsch.monitor.running_requests  # noqa: F401
        if self._options["timeout"] or self._options["timeout_paths"]:
            self._watch_deadlines(native)
        if self._options["slow_request"]:
            self._watch_slow_requests()
        if ready is not None:
            ready()

    def note_calls(self, native: _native.NativeServer) -> None:
        """Record which application calls have not ended although the native server has."""
        calls = native.calls()
        self.calls_remaining = bool(calls)
        # A call that was abandoned only now is as stuck as one that was abandoned at its deadline.
        self._stuck |= any(call.outcome for call in calls)

    def _watch_deadlines(self, native: _native.NativeServer) -> None:
        # Up to Python 3.12, threading takes the thread that first imports it for the main thread, and a report would.
        import threading  # noqa: F401

        from kirsch.monitor.deadlines import DeadlineMonitor

        monitor = DeadlineMonitor(
            native,
            self._driver,
            report=self.report,
            graceful_timeout=self.graceful_timeout,
            wait=self.wait,
            give_up=self._give_up,
            consequence="this worker is replaced" if self.request_replacement else "the server is stopped",
        )
        monitor.start()

    def _watch_slow_requests(self) -> None:
        import threading  # noqa: F401 - as above

        from kirsch.monitor.slow_requests import SlowRequestMonitor

        monitor = SlowRequestMonitor(
            lambda: self._native,
            self._driver,
            limit=self._options["slow_request"],
            report=self.report,
            wait=self.wait,
            slot=self.slot,
        )
        monitor.start()

    def _give_up(self) -> None:
        """Ask for a replacement of this worker, in which a call is stuck; else stop. In the watch thread."""
        self._stuck = True
        if self.request_replacement is not None:
            self.request_replacement()
            return
        try:
            if self.owns_process:
                start_thread("kirsch-signal", self._end_process)
        finally:
            self.begin_stop(self.graceful_timeout)

    def _end_process(self) -> None:
        if not self.wait(self.graceful_timeout + STUCK_AFTER) or self.calls_remaining:
            reports.flush()
            os._exit(EXIT_STUCK)

    def report(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Write a report, like the engine; ``level`` is a level of ``logging``."""
        self._report(level, message, error)


class _Run:
    """A native server that serves, with the handler of its access log. Used as a context manager."""

    def __init__(self, server: Server, native: _native.NativeServer, handler: object) -> None:
        self._server = server
        self._native = native
        self._handler = handler

    def __enter__(self) -> _native.NativeServer:
        return self._native

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        """Record the calls that have not ended, and flush the logs."""
        try:
            if kind is None:
                self._server.note_calls(self._native)
        finally:
            if isinstance(self._handler, AccessThread):
                self._handler.flush(reports.END_PATIENCE)
            reports.flush()
            self._native.log_counts()
        # Expected if stop() came after the check and before the engine's start, which then refuses to run.
        return kind is not None and issubclass(kind, RuntimeError) and self._server.is_stopping


class _Wakeup:
    """A descriptor to which signals write, if this is the main thread. Other threads handle no signals."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._previous: int | None = None

    def __enter__(self) -> None:
        try:
            self._previous = signal.set_wakeup_fd(self._descriptor, warn_on_full_buffer=False)
        except ValueError:
            pass

    def __exit__(self, *_: object) -> None:
        if self._previous is not None:
            signal.set_wakeup_fd(self._previous)


def _checked(options: Options) -> tuple[dict[str, Any], reports.Report]:
    """Return the values of all settings of a program (``options``, else the defaults), and the callable for reports.

    Raises TypeError and ValueError, whose messages name the option.
    """
    given: dict[str, Any] = dict(options)
    report = given.pop("report", report_to_logging)
    for name in given:
        if name not in BY_NAME or not BY_NAME[name].in_programs:
            raise TypeError(f"there is no option {name!r}{_option_hint(name)}")
    values = {
        each.name: each.program_value(given[each.name]) if each.name in given else each.default_value
        for each in _OPTIONS
    }
    return values, report


def _combined(app: Application | None, mounts: Mapping[str, Callable[..., Any]], interface: str) -> Mounted:
    """Combine several applications into one. Raises TypeError for no application, ValueError for a wrong place."""
    from kirsch.config.mounts import parse_mount

    applications = []
    for place, mounted in mounts.items():
        if not callable(mounted):
            raise TypeError(f"mounts: what is at {place!r} must be callable, and {mounted!r} is not")
        mount = parse_mount(place, "")
        applications.append((mount.host, mount.path, mounted))
    if app is not None:
        app = _callable(app)
        if any(not (host or path) for host, path, _ in applications):
            raise ValueError("mounts: '/' is for every request, and so is the application; omit one of them")
        applications.append(("", "", app))
    for _, _, each in applications:
        _check_interface(each, interface)
    return Mounted(
        [
            MountedApplication(
                each,
                interface_of(each) if interface == "auto" else interface,
                host=host,
                path=path,
                name=_name(each),
            )
            for host, path, each in applications
        ]
    )


def _callable(app: object) -> Callable[..., Any]:
    """Return ``app``. Raises TypeError if it is not callable."""
    if not callable(app):
        raise TypeError(f"the application must be callable, and {type(app).__name__!r} objects are not")
    return app


def _check_interface(app: Callable[..., Any], interface: str) -> None:
    """Check an application against ``interface``. Raises TypeError if it certainly has the other one."""
    if interface != "auto" and (why := interface_problem(app, interface)):
        raise TypeError(f"{_name(app)} {why}")


def _name(app: Callable[..., Any]) -> str:
    return getattr(app, "__qualname__", None) or type(app).__name__


def _option_hint(name: str) -> str:
    from kirsch.suggest import nearest

    near = nearest(name, [*(each.name for each in _OPTIONS), "report"])
    if near:
        return f"; did you mean {near!r}?"
    return (
        "; a Server is one process, and `kirsch --workers` starts several" if name in ("workers", "processes") else ""
    )
