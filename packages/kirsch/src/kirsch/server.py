"""The server as an object: ``Server``, ``serve``, and picows's ``listen`` and ``run``.

The native engine (``kirsch._native``) serves; this module gives it sockets, connects signals to it, and lets go of
everything when it is done. Which thread does what::

    the serving thread      start() ── listen, then the driver's run() ─────────────▶ sockets closed, paths removed
    any other thread        stop()  ── tells the engine, waits until start() is done
    a thread or greenlet    stop()  ── tells the engine; does not wait, for the end waits for it
     of the server itself
    a signal handler        tells the engine; does not wait, for it interrupts the serving thread itself

The serving thread is the one that calls start(). Where the driver has one thread, or a hub, the application runs in it
too; where it has more, the serving thread only waits, and signal handlers run there while every other thread is busy.

It is a long module because all of it is one object's life: what starts, watches and ends a server shares its state.
"""

from __future__ import annotations

import _thread
import os
import signal

from kirsch import _native, drivers, reports
from kirsch.calling import interface_of
from kirsch.config.native import NativeConfig
from kirsch.config.schema import BY_NAME, ENGINE, SETTINGS, default
from kirsch.drivers import choice
from kirsch.handlers import handle
from kirsch.reports import CRITICAL, ERROR, INFO, WARNING, AccessThread, access_logger, report_to_logging, write_dump
from kirsch.sockets import discard, parse_bind
from kirsch.sockets import listen as listen_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import FrameType, TracebackType
    from typing import Any

    from typing_extensions import Self, Unpack

    from kirsch.config.options import Options
    from kirsch.drivers import Driver
    from kirsch.drivers.asyncio import AsyncioDriver
    from kirsch.requests import RunningRequest, Statistics
    from kirsch.scoreboard import Slot
    from kirsch.sockets import Address, Listener

    Application = Callable[..., Any]

_OPTIONS = tuple(each for each in SETTINGS if each.in_programs)
_DEFAULT_BIND = BY_NAME["bind"].default

# What SIGINT and SIGQUIT leave to requests in flight, in seconds: enough for an answer, too short to annoy.
FAST_TIMEOUT = 1.0

# The engine cuts what is late by itself, in coarse steps; an application call that does not return it cannot cut.
_STUCK_AFTER = 2.0
_STUCK_AFTER_SECOND = 0.5

EXIT_STUCK = 75
"""The exit status of a process that ended because a request did not end after its deadline: start it again. It is the
number of EX_TEMPFAIL in sysexits.h, and no other end of ours has it."""

# The signal for a dump: SIGINFO where there is one, on Linux its namesake SIGPWR. gunicorn has a use for neither.
_SIGNAL_DUMP = getattr(signal, "SIGINFO", None) or getattr(signal, "SIGPWR", None)

# An end that comes sooner needs no explanation. Closing idle connections properly takes the engine half a second.
_SILENCE = 1.0


class Server:
    """One WSGI or ASGI application, or several at paths of their own, on one or several addresses.

    ``start()`` serves in the calling thread until ``stop()`` is called from another one::

        server = kirsch.Server(app, bind="127.0.0.1:0")
        with server:  # listens, and stops at the end
            threading.Thread(target=server.start).start()
            urlopen(server.urls[0])

    With ``driver="gevent"`` it serves in a greenlet of the calling thread's hub, as in ``gevent.spawn(server.start)``.

    ``mounts`` are applications at paths and hosts, as ``{"/shop": shop, "api.example.org/v1": api}``, WSGI and ASGI
    ones side by side; ``app`` gets what is not for them, and may be left out then.

    ``bind`` is one address or several, each ``host:port``, ``:port``, ``[ipv6]:port`` or ``unix:path``; port 0 takes a
    free one. A server serves once. Raises TypeError for an unknown or mistyped option, ValueError for a bad value, and
    ImportError where the driver needs a package that is not installed.
    """

    def __init__(
        self,
        app: Application | None = None,
        bind: str | Iterable[str] = _DEFAULT_BIND,
        *,
        mounts: Mapping[str, Application] | None = None,
        **options: Unpack[Options],
    ) -> None:
        checked, report = _checked(options)
        if mounts:
            app = _combined(app, mounts, checked["interface"])
        if not callable(app):
            raise TypeError(f"the application must be callable, and {type(app).__name__!r} objects are not")
        self._app: Callable[..., Any] = app
        self._binds = (bind,) if isinstance(bind, str) else tuple(bind)
        for text in self._binds:
            parse_bind(text)
        self._options = checked
        self.graceful_timeout: float = checked["graceful_timeout"]
        interface = interface_of(app) if mounts or checked["interface"] == "auto" else checked["interface"]
        self._driver_name: str = choice.fitting(checked["driver"], interface)
        self._driver: Driver
        if interface == "asgi":
            self._driver, self._app = choice.make_asyncio(app, checked, report)
        else:
            self._driver = choice.make(self._driver_name, checked["threads"])
        # Of an ASGI application: a coroutine that is run between its start-up and the first request.
        self.check_ready: Callable[[], Coroutine[Any, Any, None]] | None = None
        # What the native server will be made with; a worker sets its resources here before start().
        self.config = NativeConfig({each.name: checked[each.name] for each in _OPTIONS if each.scope == ENGINE})
        self.config.report = self._report = report
        self._listeners: list[Listener] = []
        self.slot: Slot | None = None  # a worker's place on the scoreboard; set before start()
        self._native: _native.Server | None = None
        # Held while start() is at work. A bare lock, because Event comes with the import of threading; and a real one
        # in a process that gevent has patched, because other threads wait for it.
        self._busy = drivers.original("allocate_lock")()
        self._started = False
        # Held by begin_stop() and start() where each tells the other. Reentrant: a signal handler may interrupt the
        # thread that holds it.
        self._order = drivers.original("RLock")()
        self._stop_requested = False
        self._calls_remaining = False
        self._stuck = False
        self._owns_process = False
        # Asks the supervisor for another worker in this one's place; set before start().
        self.request_replacement: Callable[[], None] | None = None

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where it listens: ``(host, port)`` with the real port, or the path of a ``unix:`` socket. Empty before."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def urls(self) -> tuple[str, ...]:
        """The same as ``http://host:port`` or ``unix:path``."""
        return tuple(listener.url for listener in self._listeners)

    def listen(self) -> None:
        """Bind and listen now, so that ``addresses`` are known and clients may connect; start() does it otherwise.

        Raises OSError, with one line on what is wrong and how to mend it.
        """
        if not self._listeners:
            self._listeners = listen_on(self._binds, self._options["backlog"])

    def adopt(self, listeners: list[Listener]) -> None:
        """Serve on these instead of ``bind``; they are the server's to close from now on."""
        self._listeners = listeners

    def start(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop`, which may also have come first.

        ``ready`` is called just before, when all that can be refused has been accepted.

        Raises OSError like :meth:`listen`, and RuntimeError when it serves or has served already.
        """
        self._occupy()
        try:
            self._driver.begin()
            if not self._stop_requested:
                self.listen()
                self._serve(ready)
        finally:
            self._vacate()

    async def serve(self, ready: Callable[[], None] | None = None) -> None:
        """Serve an ASGI application in the event loop that runs here, whichever it is, until :meth:`stop`.

        A cancellation of this task is a graceful stop: requests in flight have ``graceful_timeout`` seconds, a second
        cancellation cuts them. Signals and other tasks are the program's. Otherwise as :meth:`start`; raises TypeError
        for a WSGI application.
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
                serving.exception()  # the cancellation is what the caller has to know
                raise cancelled
            serving.result()
        finally:
            self._vacate()

    async def _serve_in_loop(self, driver: AsyncioDriver, ready: Callable[[], None] | None) -> None:
        try:
            await driver.start_up_in_loop()
            if self._stop_requested:
                return
            run = self._prepare()
            if run is None:
                return
            try:
                self._begin(run.native, ready)
                await driver.serve(run.native)
                self._note_calls(run.native)
            except RuntimeError:
                if not self._stop_requested:
                    raise
            finally:
                run.end()
        finally:
            await driver.shut_down_in_loop()

    def _occupy(self) -> None:
        """Make sure that it serves once. Raises RuntimeError."""
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("this server is running already")
        if self._started:
            self._busy.release()
            raise RuntimeError("this server has served already; make a new one")

    def _vacate(self) -> None:
        """Let go of everything."""
        self._native = None
        discard(self._listeners)
        if not self._started:
            self._listeners = []  # closed, and of no use to another attempt
        self._busy.release()
        self._driver.end()

    def stop(self, graceful_timeout: float | None = None) -> bool:
        """Stop accepting, let requests in flight finish for ``graceful_timeout`` seconds, cut the rest.

        None takes the option ``graceful_timeout``; 0 cuts at once. From elsewhere in the program it waits and tells
        whether all is over: False means that an application call has outlasted the time and still runs. From inside
        the server (the application in whichever thread or greenlet it runs, a signal handler in the serving thread) it
        returns False at once. May be called again, with less time.
        """
        timeout = self.graceful_timeout if graceful_timeout is None else graceful_timeout
        # No successor listens here, so no process could serve a request that has not come yet: do not wait for idle
        # connections.
        self.begin_stop(timeout, 0.0)
        if self._driver.is_inside():
            return False
        return self.wait(timeout + _STUCK_AFTER) and not self._calls_remaining

    def begin_stop(self, timeout: float, idle_timeout: float | None = None) -> None:
        """Tell the engine to stop, as :meth:`stop` does, and return at once wherever this is called.

        Within ``idle_timeout`` seconds an idle connection may send one more request; None takes half a second. 0 closes
        it at once, unless a request has arrived on it already.
        """
        # This order, and the opposite one in _run: whichever thread comes second sees what the first one did.
        with self._order:
            self._stop_requested = True
            native = self._native
        self._driver.begin_stop(timeout)
        if native is not None:
            native.stop(timeout, idle_timeout)
        del native  # the engine closes its sockets when the last reference goes: that must be start()'s

    @property
    def is_stopping(self) -> bool:
        """Whether anybody has told it to stop."""
        return self._stop_requested

    @property
    def is_stuck(self) -> bool:
        """Whether a call is stuck: it has not ended long after its deadline."""
        return self._stuck

    def drain(self) -> None:
        """Serve on, but tell load balancers and peers to go elsewhere: :meth:`stop` is about to come."""
        native = self._native
        if native is not None:
            native.drain()
        del native

    def reopen_logs(self) -> None:
        """Open the access log again after a rotation. Raises OSError, and keeps the old file, if it cannot."""
        native = self._native
        if native is not None:
            native.reopen_logs()
        del native

    def statistics(self, *, exchanges: bool = True) -> Statistics:
        """The engine's counters and gauges, and as ``exchanges`` a list of what runs now; empty when it does not run.

        Each of the list is a dict: ``number``, ``id``, ``method``, ``path``, ``age`` and ``limit`` (seconds),
        ``state``, ``thread`` and ``stack``, as :class:`kirsch.requests.RunningRequest` has them. To take a stack
        costs tens of microseconds; with ``exchanges=False`` there are only numbers.
        """
        native = self._native
        if native is None:
            return {}
        found: Statistics = native.statistics()  # type: ignore[assignment]  # names are held together by test_settings
        if exchanges:
            from kirsch.requests import running

            found["exchanges"] = running(native, self._driver)
        return found

    def stage_times(self) -> tuple[list[tuple[list[int], int, int]], int]:
        """Where the time of requests went, if ``config.time_stages`` asks for it; see
        ``_native.Server.times``. Empty when it does not run."""
        native = self._native
        return ([], 0) if native is None else native.times()

    def running(self, most: int) -> list[RunningRequest]:
        """So many of the requests that run now, the oldest first, as :meth:`statistics` has them."""
        native = self._native
        if native is None:
            return []
        from kirsch.requests import running

        return running(native, self._driver, most)

    def dump(self) -> str:
        """The same as a text for people: a page of requests with their ages and stacks. From any thread."""
        native = self._native
        if native is None:
            return "the server does not run\n"
        from kirsch.requests import dump

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
        """Wait up to ``seconds`` for ``start()`` to be done, and tell whether it is; it is where it never began."""
        ended = self._driver.wait(seconds)
        if ended is not None:
            return ended
        done: bool = self._busy.acquire(timeout=min(seconds, _thread.TIMEOUT_MAX))
        if done:
            self._busy.release()
        return done

    def check(self) -> None:
        """Raise what :meth:`start` would raise for the options, without sockets and without opening the access log."""
        self._make_native([], self.config.but(access_logfile=""))

    def _make_native(self, listeners: list[int], config: NativeConfig) -> _native.Server:
        if self._options["timeout"] or self._options["timeout_paths"]:
            config.timeout_exception = drivers.RequestTimeout
        if self.slot is not None:
            config.scoreboard = self.slot.native
        self._driver.configure(config)
        return _native.Server(self._app, listeners, config)

    def _access_log_handler(self) -> Callable[[str, dict[str, str]], None] | None:
        handler: Any = self._options["access_logger"]
        if handler is True:
            start_thread = drivers.thread_starter(self._driver_name)
            return access_logger(stdout_by_default=False, start_thread=start_thread)
        return handler or None

    def _serve(self, ready: Callable[[], None] | None) -> None:
        try:
            self._driver.start_up()
            if self.check_ready is not None and not self._stop_requested:
                self._driver.complete(self.check_ready())  # type: ignore[attr-defined]  # that of an ASGI application
            if not self._stop_requested:
                self._run(ready)
        finally:
            self._driver.shut_down()

    def _run(self, ready: Callable[[], None] | None) -> None:
        run = self._prepare()
        if run is None:
            return
        try:
            previous = signal.set_wakeup_fd(run.native.wakeup_fd(), warn_on_full_buffer=False)
        except ValueError:
            previous = None  # not the main thread: no signal is handled here
        try:
            self._begin(run.native, ready)
            self._driver.run(run.native)
            self._note_calls(run.native)
        except RuntimeError:
            if not self._stop_requested:
                raise
            # stop() came between our look and the engine's start, which then refuses to run.
        finally:
            if previous is not None:
                signal.set_wakeup_fd(previous)
            run.end()

    def _prepare(self) -> _Run | None:
        """Make the native server; None where the end has come first."""
        for complaint in self._driver.warnings():
            self.report(WARNING, complaint)
        handler = self._access_log_handler()
        config = self.config.but(
            access_log_handler=handler,
            protocols=[listener.protocol for listener in self._listeners],
            proxy_listeners=[listener.proxy for listener in self._listeners],
        )
        native = self._make_native([listener.socket.fileno() for listener in self._listeners], config)
        # From here on only the engine holds the sockets: when it stops accepting, the kernel refuses newcomers
        # instead of letting them queue without a server.
        for listener in self._listeners:
            listener.close()
        self._started = True
        with self._order:
            self._native = native
            return None if self._stop_requested else _Run(native, handler)

    def _begin(self, native: _native.Server, ready: Callable[[], None] | None) -> None:
        if self._driver_name == "gevent":
            import kirsch.requests  # noqa: F401 - for dump() in another thread, which must not import there
        if self._options["timeout"] or self._options["timeout_paths"]:
            self._watch_deadlines(native)
        if self._options["slow_request"]:
            self._watch_slow_requests()
        if ready is not None:
            ready()

    def _note_calls(self, native: _native.Server) -> None:
        """Note the calls that the native server has left behind."""
        calls = native.calls()
        self._calls_remaining = bool(calls)
        # One that was cut off now is no less stuck than one that was given up before.
        self._stuck |= any(call.outcome for call in calls)

    def _watch_deadlines(self, native: _native.Server) -> None:
        # Up to 3.12 the thread that imports it first is taken for the main one, and a report would do so.
        import threading  # noqa: F401

        from kirsch.deadlines import DeadlineMonitor

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

        from kirsch.slow_requests import SlowRequestMonitor

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
        """A call is stuck: find a successor, or else stop. In a thread of the watch."""
        self._stuck = True
        if self.request_replacement is not None:
            self.request_replacement()
            return
        self.begin_stop(self.graceful_timeout)
        if self._owns_process:
            _start_thread(self._end_process, ())

    def _end_process(self) -> None:
        if not self.wait(self.graceful_timeout + _STUCK_AFTER) or self._calls_remaining:
            reports.flush()
            os._exit(EXIT_STUCK)

    def report(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Report as the engine does; ``level`` is that of ``logging``."""
        self._report(level, message, error)


class _Run:
    """The native server while it serves, and what its log goes through."""

    def __init__(self, native: _native.Server, handler: object) -> None:
        self.native = native
        self._handler = handler

    def end(self) -> None:
        """Write what is left in the logs."""
        if isinstance(self._handler, AccessThread):
            self._handler.flush(reports.END_PATIENCE)
        reports.flush()
        self.native.log_counts()


def serve(app: Application, bind: str | Iterable[str] = _DEFAULT_BIND, **options: Unpack[Options]) -> None:
    """Serve ``app`` until a signal ends it. Arguments and errors are those of :class:`Server`.

    In the main thread: TERM ends gracefully, INT and QUIT fast, a second one of them at once, USR1 reopens the access
    log, PWR (INFO where there is such a signal) writes :meth:`Server.dump` to stderr. The handlers that were there
    before are back when it returns.
    """
    serve_until_signal(Server(app, bind, **options))


def serve_until_signal(
    server: Server,
    *,
    ready: Callable[[], None] | None = None,
    reopen: Callable[[], None] | None = None,
    owns_process: bool = False,
) -> int:
    """``start()`` with signal handlers around it, where this is the main thread.

    ``ready`` is that of :meth:`Server.start`; ``reopen`` is called at USR1 too. With ``owns_process`` the process is
    there for this server alone: it ends with status 1 when an application call does not return within the time that
    the signal left it, with EXIT_STUCK when one does not return after its deadline, and signals that come while it is
    ending change nothing.

    Returns the exit status that fits: 0, or EXIT_STUCK.
    """
    return serve_with(Signals(server, reopen, owns_process), ready)


def serve_with(signals: Signals, ready: Callable[[], None] | None) -> int:
    """The same, with handlers that the caller has made, and may use to :meth:`Signals.end` it all."""
    server = signals.server
    server._owns_process = signals.owns_process
    with signals:
        server.start(ready)
        status = EXIT_STUCK if server._stuck else 0
        if signals.owns_process and server._calls_remaining:
            # Its thread may hold any lock, so the interpreter's own way out might not end.
            _give_up_process(server, status or 1)
    return status


_DOES_NOT_RETURN = "an application call does not return; ending the process under it"


def _give_up_process(server: Server, status: int) -> None:
    """End the process while a call is running. What it holds may be a lock that a handler of ``logging`` waits for."""
    done = drivers.original("allocate_lock")()
    done.acquire()

    def report() -> None:
        server.report(CRITICAL, _DOES_NOT_RETURN)
        done.release()

    _start_thread(report, ())
    done.acquire(timeout=reports.END_PATIENCE)
    reports.flush()
    os._exit(status)


class Signals:
    """Signal handlers for the time of a ``with`` block; none outside of the main thread.

    A handler interrupts the main thread anywhere, also in the middle of a report or of an import. So it only sets
    things going; what there is to say, another thread says. ``on_stop_signal``, of a supervised process, is called in
    such a thread with the name of a signal that begins the end, and then it is the supervisor who says so. An end may
    be over before such a thread gets on; ``ended_by`` is that name too, and stays.
    """

    def __init__(
        self,
        server: Server,
        reopen: Callable[[], None] | None,
        owns_process: bool,
        on_stop_signal: Callable[[str], None] | None = None,
    ) -> None:
        self.server = server
        self.owns_process = owns_process
        self.ended_by = ""
        self._reopen = reopen
        self._on_stop_signal = on_stop_signal
        self._previous: dict[int, Any] = {}
        self._ending = False

    def __enter__(self) -> None:
        handlers = {
            signal.SIGTERM: self._on_end,
            signal.SIGINT: self._on_end,
            signal.SIGQUIT: self._on_end,
            signal.SIGUSR1: self._on_reopen,
        }
        if _SIGNAL_DUMP is not None:
            handlers[_SIGNAL_DUMP] = self._on_dump
        try:
            self._previous = handle({number: _native.Handler(handler) for number, handler in handlers.items()})
        except ValueError:
            pass  # not the main thread, and the first call has told us so

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            if self._ending and self.owns_process:
                signal.signal(number, signal.SIG_IGN)
            else:
                # None is a handler that Python did not install and cannot put back.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def end(self, why: str, timeout: float, idle_timeout: float | None = None) -> None:
        """Begin the end, or hasten it: ``timeout`` and ``idle_timeout`` are those of :meth:`Server.begin_stop`, and
        ``why`` is for people. From any thread; returns at once."""
        patience = timeout + (_STUCK_AFTER_SECOND if self._ending else _STUCK_AFTER)
        self._ending = True
        self.server.begin_stop(timeout, idle_timeout)
        _start_thread(self._watch_end, (why, timeout, patience))

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._ending:
            timeout = 0.0
        elif number == signal.SIGTERM:
            timeout = self.server.graceful_timeout
        else:
            timeout = FAST_TIMEOUT
        if self._on_stop_signal is not None and not self._ending:
            self.ended_by = name
            _start_thread(self._on_stop_signal, (name,))
        # A program that embeds the server wants to go on; a process that is there for the server alone has the time.
        self.end(name, timeout, None if self.owns_process else 0.0)

    def _watch_end(self, why: str, timeout: float, patience: float) -> None:
        """Explain an end that takes its time; force one that does not come."""
        silence = min(_SILENCE, patience)
        if self.server.wait(silence):
            return
        if self._on_stop_signal is None:
            how = f"up to {timeout:g} s for the requests in flight" if timeout else "at once"
            # In a thread of its own: a handler of the application's may wait, and the end must not.
            _start_thread(self.server.report, (INFO, f"{why}: stopping, {how}"))
        if self.owns_process and not self.server.wait(patience - silence):
            _give_up_process(self.server, EXIT_STUCK if self.server._stuck else 1)

    def _on_reopen(self, _number: int, _frame: FrameType | None) -> None:
        for reopen in (self.server.reopen_logs, self._reopen):
            try:
                if reopen is not None:
                    reopen()
            except OSError as error:
                message = f"SIGUSR1: a log cannot be opened again, and the old file stays: {error}"
                _start_thread(self.server.report, (ERROR, message, None))

    def _on_dump(self, _number: int, _frame: FrameType | None) -> None:
        _start_thread(self._dump, ())

    def _dump(self) -> None:
        write_dump(self.server.dump())


def _start_thread(target: Callable[..., object], arguments: tuple[object, ...]) -> None:
    drivers.start_thread("kirsch-signal", target, arguments)


_pending: list[Listener] = []


def listen(host: str, port: int) -> tuple[Address, ...]:
    """Listen on one more address, for the next :func:`run`, and return where: port 0 takes a free one.

    An empty host means every address of the machine. Raises OSError like :meth:`Server.listen`.
    """
    listeners = listen_on([f"[{host}]:{port}" if ":" in host else f"{host}:{port}"], default("backlog"))
    _pending.extend(listeners)
    return tuple(listener.address for listener in listeners)


def run(app: Application, **options: Unpack[Options]) -> None:
    """Serve ``app`` on the addresses of :func:`listen` until a signal ends it, as :func:`serve` does.

    Options are those of :class:`Server`, but ``threads`` is 1 unless given: one call of ``app`` at a time, in the
    calling thread, as picows has it. Raises RuntimeError when there is no address.
    """
    if not _pending:
        raise RuntimeError("there is no address to serve on; call kirsch.listen(host, port) first")
    options.setdefault("threads", 1)
    server = Server(app, **options)
    server.adopt(_pending.copy())
    _pending.clear()
    serve_until_signal(server)


def _checked(options: Options) -> tuple[dict[str, Any], reports.Report]:
    """The values of all settings that a program has, of which ``options`` gives some, and what reports go to.

    Raises TypeError and ValueError, which name the option.
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


def _combined(app: Application | None, mounts: Mapping[str, Application], interface: str) -> Application:
    """Several applications as one. Raises TypeError for what is none, ValueError for a place that is none."""
    from kirsch.mounts import MountedApplication, combine_all, parse_mount

    applications = []
    for place, mounted in mounts.items():
        if not callable(mounted):
            raise TypeError(f"mounts: what is at {place!r} must be callable, and {mounted!r} is not")
        mount = parse_mount(place, "")
        applications.append((mount.host, mount.path, mounted))
    if app is not None:
        if not callable(app):
            raise TypeError(f"the application must be callable, and {type(app).__name__!r} objects are not")
        if any(not (host or path) for host, path, _ in applications):
            raise ValueError("mounts: '/' is for every request, and so is the application; omit one of them")
        applications.append(("", "", app))
    return combine_all(
        [
            MountedApplication(
                each,
                interface_of(each) if interface == "auto" else interface,
                host=host,
                path=path,
                name=getattr(each, "__qualname__", None) or type(each).__name__,
            )
            for host, path, each in applications
        ]
    )


def _option_hint(name: str) -> str:
    from kirsch.suggest import nearest

    near = nearest(name, [*(each.name for each in _OPTIONS), "report"])
    if near:
        return f"; did you mean {near!r}?"
    return (
        "; a Server is one process, and `kirsch --workers` starts several" if name in ("workers", "processes") else ""
    )
