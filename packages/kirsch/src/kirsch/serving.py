"""Serving until a signal ends it: ``serve``, picows's ``listen``, and the signal handlers of the command line."""

from __future__ import annotations

import os
import signal

from kirsch import _native, reports
from kirsch.config.schema import default
from kirsch.net.sockets import listen as listen_on
from kirsch.process import forks
from kirsch.process.real_threads import original, start_thread
from kirsch.process.signal_handlers import set_handlers
from kirsch.reports import CRITICAL, ERROR, INFO, write_dump
from kirsch.server import EXIT_STUCK, STUCK_AFTER, Server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType
    from typing import Any

    from typing_extensions import Unpack

    from kirsch.config.options import Options
    from kirsch.net.addresses import Address
    from kirsch.net.sockets import Listener

# The time that SIGINT and SIGQUIT leave to requests in flight, in seconds: enough for an answer, too short to annoy.
FAST_TIMEOUT = 1.0

# The time that a second signal leaves to an application call, in seconds.
_STUCK_AFTER_SECOND = 0.5

# The signal for a dump: SIGINFO where there is one, on Linux its namesake SIGPWR. gunicorn has a use for neither.
_SIGNAL_DUMP = getattr(signal, "SIGINFO", None) or getattr(signal, "SIGPWR", None)

# An end that comes sooner needs no explanation. Closing idle connections properly takes the engine half a second.
_SILENCE = 1.0


def serve(app: Callable[..., Any], bind: str | Iterable[str] | None = None, **options: Unpack[Options]) -> None:
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
    """Serve as :func:`serve_until_signal`, with handlers of the caller, who may also :meth:`Signals.end` it."""
    server = signals.server
    server.owns_process = signals.owns_process
    with signals:
        server.start(ready)
        status = EXIT_STUCK if server.is_stuck else 0
        if signals.owns_process and server.calls_remaining:
            # Its thread may hold any lock, so the interpreter's own way out might not end.
            _give_up_process(server, status or 1)
    return status


_DOES_NOT_RETURN = "an application call does not return; ending the process under it"


def _give_up_process(server: Server, status: int) -> None:
    """End the process while a call is running. What it holds may be a lock that a handler of ``logging`` waits for."""
    done = original("allocate_lock")()
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
        self._handlers: dict[int, Any] = {}
        self._previous: dict[int, Any] = {}
        self._ending = False
        self._signalled = False

    def __enter__(self) -> None:
        handlers = {
            signal.SIGTERM: self._on_end,
            signal.SIGINT: self._on_end,
            signal.SIGQUIT: self._on_end,
            signal.SIGUSR1: self._on_reopen,
        }
        if _SIGNAL_DUMP is not None:
            handlers[_SIGNAL_DUMP] = self._on_dump
        self._handlers = {int(number): _native.SignalHandler(handler) for number, handler in handlers.items()}
        try:
            self._previous = set_handlers(self._handlers)
        except ValueError:
            return  # not the main thread, and the first call has told us so
        forks.add(self._restore_in_child)

    def _restore_in_child(self) -> None:
        forks.restore_signals(self._handlers, self._previous)

    def __exit__(self, *_: object) -> None:
        forks.discard(self._restore_in_child)
        for number, handler in self._previous.items():
            if self._ending and self.owns_process:
                signal.signal(number, signal.SIG_IGN)
            else:
                # None is a handler that Python did not install and cannot restore.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @property
    def should_exit(self) -> bool:
        """True if the server stops. sse-starlette asks the object whose method handles SIGTERM, as uvicorn's server."""
        return self.server.is_stopping

    def end(self, why: str, timeout: float, idle_timeout: float | None = None) -> None:
        """Begin the end, or hasten it: ``timeout`` and ``idle_timeout`` are those of :meth:`Server.begin_stop`, and
        ``why`` is for people. From any thread; returns at once."""
        patience = timeout + (_STUCK_AFTER_SECOND if self._ending else STUCK_AFTER)
        self._ending = True
        try:
            _start_thread(self._watch_end, (why, timeout, patience))
        finally:
            self.server.begin_stop(timeout, idle_timeout)  # the process may be over before this returns

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        # Ctrl-C, Heroku and others signal the supervisor and its workers at once. The supervisor's message may come
        # first; the signal is then not a second one.
        is_second, self._signalled = self._signalled, True
        if is_second:
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
            _give_up_process(self.server, EXIT_STUCK if self.server.is_stuck else 1)

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
    start_thread("kirsch-signal", target, arguments)


_pending: list[Listener] = []


def listen(host: str, port: int) -> tuple[Address, ...]:
    """Listen on one more address, for the next :func:`kirsch.run`, and return where: port 0 takes a free one.

    An empty host means every address of the machine. Raises OSError like :meth:`Server.listen`.
    """
    listeners = listen_on([f"[{host}]:{port}" if ":" in host else f"{host}:{port}"], default("backlog"))
    _pending.extend(listeners)
    return tuple(listener.address for listener in listeners)


def take_listeners() -> list[Listener]:
    """Return the listeners of :func:`listen`, which are the caller's from now on."""
    taken = _pending.copy()
    _pending.clear()
    return taken
