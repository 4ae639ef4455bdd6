"""A worker: a process that imports the application and serves it on the sockets of its supervisor.

What it hears comes from two sides. The supervisor speaks through the channel (``attendant.py``). Signals mean what
they mean without a supervisor: TERM is graceful, INT and QUIT are fast. The workers stay in the supervisor's process
group, so that job control works and a debugger in the application may read the terminal; a Ctrl-C there reaches them
and the supervisor at once, both mean the same, and only the supervisor talks about it. Signals that mean something to
the supervisor alone do nothing here, because ``pkill -HUP kirsch`` sends them to everybody.
"""

from __future__ import annotations

import os
import signal

from kirsch import assembly, reports, sockets
from kirsch.assembly import AssemblyError
from kirsch.handlers import do_nothing, handle
from kirsch.hooks import Hooks
from kirsch.supervisor import control
from kirsch.supervisor.attendant import Attendant

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

    from kirsch.reports import ErrorLog
    from kirsch.scoreboard import Scoreboard
    from kirsch.settings import Settings
    from kirsch.sockets import Listener
    from kirsch.supervisor.control import Channel
    from kirsch.supervisor.engine_group import Arguments, EngineGroup
    from kirsch.supervisor.privileges import Identity

    Application = Callable[..., Any]

_REAL_TIME: int | None = getattr(signal, "SIGRTMIN", None)  # whose signals no program has a use for

DUMP_SIGNAL: int = signal.SIGXCPU if _REAL_TIME is None else _REAL_TIME
"""Writes the stacks of all threads to stderr, also when none of them can get the interpreter: a handler in C."""

DISMISS_SIGNAL: int = signal.SIGVTALRM if _REAL_TIME is None else _REAL_TIME + 1
"""Ends a child that has served nothing yet, at once and silently; means nothing to one that serves."""

# No more than fits into a message with the rest of it.
_TRACEBACK_MAX = 48 << 10

_STUCK = "a request does not end after its deadline"

_NOT_FOR_WORKERS = ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR2", "SIGWINCH")
_OF_BEFORE = ("SIGTERM", "SIGCHLD", "SIGUSR1", "SIGPWR")


class Outfit:
    """What all workers of one generation are given, and a zygote passes on to those that it forks.

    ``directories`` are descriptors that the supervisor has open: the first is that of the generation, and all are to be
    closed.
    """

    def __init__(
        self,
        chosen: Settings,
        directories: tuple[int, ...],
        errors: ErrorLog,
        identity: Identity | None,
        listeners: list[Listener],
        board: Scoreboard,
        group: EngineGroup,
    ) -> None:
        self.chosen = chosen
        self.directories = directories
        self.errors = errors
        self.identity = identity
        self.listeners = listeners
        self.board = board
        self.group = group


class Loaded:
    """What is imported of the application: itself, its name, its hooks."""

    def __init__(self, app: Application, name: str, hooks: Hooks) -> None:
        self.app = app
        self.name = name
        self.hooks = hooks


class Post:
    """What one worker is given: all that is left to it of the supervisor. ``seat`` is one of ``seats``, from 0;
    ``slot`` is its number on the scoreboard."""

    def __init__(
        self, outfit: Outfit, channel: Channel, *, seat: int, seats: int, slot: int, request_limit: int
    ) -> None:
        self.outfit = outfit
        self.channel = channel
        self.index = seat
        self.slot = outfit.board.slot(slot)
        self.listeners = sockets.share(outfit.listeners, seat, seats)
        self.request_limit = request_limit
        self.multiprocess = seats > 1 or outfit.chosen.max_workers > 1

    def join_group(self) -> Arguments | None:
        """What the native server needs to share new connections with other workers; None where it does not."""
        group = self.outfit.group
        if any(listener.set is not None for listener in self.listeners):
            group.close()  # the kernel has chosen the worker before anybody could look
            return None
        return group.hand_over(self.slot.index)


def main(post: Post, loaded: Loaded | None = None) -> int:
    """Serve; ``loaded`` is what a zygote has loaded, if that forked this worker. Returns the exit status."""
    post.slot.occupy()
    post.channel.send("hello", pid=os.getpid())
    try:
        if loaded is None:
            loaded = load(post.outfit)
        else:
            loaded.hooks.call("after_fork", post.index)
        loaded.hooks.call("worker_start", post.index)
        try:
            return _serve(post, loaded.app, loaded.name)
        finally:
            loaded.hooks.stop(post.index, post.outfit.errors)
    except AssemblyError as error:
        return tell_failure(post.channel, error)


def tell_failure(channel: Channel, error: AssemblyError) -> int:
    """Leave it to the supervisor to say why this child cannot do what it is there for; returns the exit status."""
    text = "" if error.cause is None else reports.traceback_text(error.cause)
    summary = "" if error.cause is None else reports.summary(error.cause)
    if len(text) > _TRACEBACK_MAX:
        text = f"{text[: _TRACEBACK_MAX // 2]}\n  ...\n{text[-_TRACEBACK_MAX // 2 :]}"
    channel.send("failed", status=error.status, text=str(error), summary=summary, traceback=text)
    return error.status


def set_signals() -> None:
    """The dispositions of a child that does not serve yet: what ends it does so at once and silently."""
    signal.set_wakeup_fd(-1)
    for name in _OF_BEFORE:
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import faulthandler

    faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True)
    # SIGQUIT, because its default disposition writes a core file.
    handle({**{getattr(signal, name): do_nothing for name in _NOT_FOR_WORKERS}, signal.SIGQUIT: _leave})


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def load(outfit: Outfit) -> Loaded:
    """Become who the application is to find, and import it. Raises AssemblyError."""
    from kirsch.supervisor import notify, privileges

    _enter_directory(outfit)
    notify.leave_environment()
    privileges.become(outfit.identity, outfit.chosen.env)
    app, name = assembly.load_application(outfit.chosen)
    return Loaded(app, name, Hooks(outfit.chosen))


def _enter_directory(outfit: Outfit) -> None:
    try:
        os.fchdir(outfit.directories[0])
    except OSError as error:
        text = f"cannot change to the directory of the application: {error.strerror}"
        raise AssemblyError(assembly.EXIT_FAILED, text) from None
    finally:
        for fd in outfit.directories:
            os.close(fd)


def _serve(post: Post, app: Application, name: str) -> int:
    from kirsch.server import Signals
    from kirsch.supervisor import titles

    chosen, errors = post.outfit.chosen, post.outfit.errors
    titles.worker(post.slot.index + 1, chosen.process_name or name)
    if chosen.ready_path:
        _check_ready(post, app)
    server = assembly.make_server(app, chosen, errors)
    server.adopt(post.listeners)
    server.slot = post.slot
    server.engine_options.update(multiprocess=post.multiprocess, group=post.join_group())
    limit_fd = -1
    if post.request_limit:
        limit_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        server.engine_options.update(request_limit=post.request_limit, limit_fd=write_fd)

    # The engine's watchdog sends it where a call keeps the GIL, so that no thread of Python's can.
    stuck = control.encode("leaving", reason="stuck", text=_STUCK)
    server.engine_options["replacement"] = (post.channel.fileno(), stuck)

    def ask_replacement() -> None:
        attendant.leave("stuck", _STUCK)

    server.ask_replacement = ask_replacement

    def tell(why: str) -> None:
        attendant.tell("signal", why)

    signals = Signals(server, errors.reopen, owns_process=True, told=tell)
    attendant = Attendant(post.channel, post.slot, server, signals, max_memory=chosen.max_memory, limit_fd=limit_fd)

    def ready() -> None:
        handle({DISMISS_SIGNAL: do_nothing})
        attendant.start()
        if not post.channel.send("ready", name=name):
            signals.end("the supervisor has gone", 0.0)

    status = assembly.serve(signals, ready)
    if signals.ended_by:
        # Else it would look like a crash where the thread that was to say so has not come to it. Twice does no harm.
        tell(signals.ended_by)
    return status


def _check_ready(post: Post, app: Application) -> None:
    from kirsch.supervisor import readiness

    address = post.listeners[0].address
    host, port = ("localhost", "80") if isinstance(address, str) else (str(address[0]), str(address[1]))
    try:
        readiness.check(app, post.outfit.chosen.ready_path, host, port, post.outfit.errors.stream())
    except readiness.NotReadyError as error:
        raise AssemblyError(assembly.EXIT_NOT_LOADED, f"{post.outfit.chosen.target}: {error}", error.cause) from None
