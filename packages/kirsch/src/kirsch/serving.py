"""Serving until a signal stops it: ``serve``, ``listen`` (as in picows), and signal handlers of the command line."""

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

# The seconds that SIGINT and SIGQUIT leave to requests in flight: enough for most, and short for a person who waits.
FAST_TIMEOUT = 1.0

# The seconds that a second signal leaves to application calls.
_STUCK_AFTER_SECOND = 0.5

# The signal for a dump: SIGINFO if the system has it, else SIGPWR, its synonym on Linux. gunicorn uses neither.
_SIGNAL_DUMP = getattr(signal, "SIGINFO", None) or getattr(signal, "SIGPWR", None)

# The seconds after which a stop is reported. Closing idle connections properly takes the engine half a second.
_SILENCE = 1.0


def serve(app: Callable[..., Any], bind: str | Iterable[str] | None = None, **options: Unpack[Options]) -> None:
    """Serve ``app`` until a signal ends it. Arguments and exceptions are those of :class:`Server`.

    In the main thread: TERM stops gracefully, INT and QUIT fast, and a second of these signals at once. USR1 reopens
    the access log. PWR (INFO if the system has that signal) writes :meth:`Server.dump` to stderr. The previous signal
    handlers are restored at the end.
    """
    serve_until_signal(Server(app, bind, **options))


def serve_until_signal(
    server: Server,
    *,
    ready: Callable[[], None] | None = None,
    reopen: Callable[[], None] | None = None,
    owns_process: bool = False,
) -> int:
    """Call ``server.start()``, with signal handlers if this is the main thread.

    ``ready`` is passed to :meth:`Server.start`; ``reopen`` is called at USR1 too. ``owns_process``: the process exists
    only for this server. Then it exits with status 1 if an application call does not return within the time that the
    signal left, and with EXIT_STUCK if a call does not return after its deadline; signals during the exit are ignored.

    Returns the exit status for the process: 0 or EXIT_STUCK.
    """
    return serve_with(Signals(server, reopen, owns_process), ready)


def serve_with(signals: Signals, ready: Callable[[], None] | None) -> int:
    """Serve like :func:`serve_until_signal`, with signal handlers of the caller, who can call :meth:`Signals.end`."""
    server = signals.server
    server.owns_process = signals.owns_process
    with signals:
        server.start(ready)
        status = EXIT_STUCK if server.is_stuck else 0
        if signals.owns_process and server.calls_remaining:
            # The thread of the call may hold any lock, so the normal exit of the interpreter might block for ever.
            _give_up_process(server, status or 1)
    return status


_DOES_NOT_RETURN = "an application call does not return; ending the process under it"


def _give_up_process(server: Server, status: int) -> None:
    """Exit although a call is running. Report it in another thread: the call may hold a lock that ``logging`` needs."""
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
    """A context manager that sets signal handlers during its ``with`` block; outside of the main thread it sets none.

    A handler can interrupt the main thread anywhere, even during a report or an import. So it only starts the stop, and
    another thread writes the reports. In a supervised process that thread calls ``on_stop_signal`` with the name of the
    signal, and the supervisor reports it. The process may exit before that thread runs, so ``ended_by`` keeps the name
    too.
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
            return  # not the main thread: only the first signal() call can fail so
        forks.add(self._restore_in_child)

    def _restore_in_child(self) -> None:
        forks.restore_signals(self._handlers, self._previous)

    def __exit__(self, *_: object) -> None:
        forks.discard(self._restore_in_child)
        for number, handler in self._previous.items():
            if self._ending and self.owns_process:
                signal.signal(number, signal.SIG_IGN)
            else:
                # The previous handler is None if it was not installed from Python; it cannot be restored.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @property
    def should_exit(self) -> bool:
        """True if the server stops. sse-starlette reads it on the object that has the SIGTERM handler (uvicorn's
        server)."""
        return self.server.is_stopping

    def end(self, why: str, timeout: float, idle_timeout: float | None = None) -> None:
        """Stop the server, or shorten the time of a stop that has begun. ``timeout`` and ``idle_timeout`` are passed to
        :meth:`Server.begin_stop`; ``why`` is a text for the log. May be called in any thread; returns at once."""
        patience = timeout + (_STUCK_AFTER_SECOND if self._ending else STUCK_AFTER)
        self._ending = True
        try:
            _start_thread(self._watch_end, (why, timeout, patience))
        finally:
            self.server.begin_stop(timeout, idle_timeout)  # the process may exit before this returns

    def _on_end(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        # Ctrl-C, Heroku and others signal the supervisor and its workers at the same time. If the supervisor's message
        # arrives first, this signal is not a second one.
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
        # A program that embeds the server continues after it, so its idle connections are closed at once.
        self.end(name, timeout, None if self.owns_process else 0.0)

    def _watch_end(self, why: str, timeout: float, patience: float) -> None:
        """Report a stop that takes long, and force one that does not finish."""
        silence = min(_SILENCE, patience)
        if self.server.wait(silence):
            return
        if self._on_stop_signal is None:
            how = f"up to {timeout:g} s for the requests in flight" if timeout else "at once"
            # In another thread, because a logging handler of the application may block, and the stop must not.
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
    """Listen on one more address for the next :func:`kirsch.run`; return the bound addresses. Port 0 means a free port.

    An empty host means all addresses of the machine. Raises OSError like :meth:`Server.listen`.
    """
    listeners = listen_on([f"[{host}]:{port}" if ":" in host else f"{host}:{port}"], default("backlog"))
    _pending.extend(listeners)
    return tuple(listener.address for listener in listeners)


def take_listeners() -> list[Listener]:
    """Remove and return the listeners that :func:`listen` has opened. The caller owns them."""
    taken = _pending.copy()
    _pending.clear()
    return taken
