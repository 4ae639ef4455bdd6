"""A worker: a process that imports the application and serves it on the sockets of its supervisor.

The supervisor sends a worker messages through the channel (``control_thread.py``). Signals have the same effect as
without a supervisor: TERM stops gracefully, INT and QUIT fast. The workers stay in the supervisor's process group, so
that job control works and a debugger in the application can read the terminal. Ctrl-C there signals the workers and the
supervisor at the same time; both stop, and only the supervisor reports it. A worker ignores signals that are only for
the supervisor, because ``pkill -HUP kirsch`` sends them to all processes.
"""

from __future__ import annotations

import errno
import os
import signal
from functools import partial

from kirsch import bootstrap, reports
from kirsch.apps.mounted import Mounted, MountedApplication
from kirsch.bootstrap import StartupError
from kirsch.hooks import Hooks
from kirsch.net import sockets
from kirsch.process import forks
from kirsch.process.signal_handlers import do_nothing, set_handlers
from kirsch.supervisor import control, process_exit
from kirsch.supervisor.control_thread import ControlThread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from kirsch.apps.mounted import Application
    from kirsch.config.schema import Settings
    from kirsch.groups.connector import Connector
    from kirsch.monitor.scoreboard import Scoreboard
    from kirsch.monitor.shared_value import SharedValue
    from kirsch.net.sockets import Listener
    from kirsch.reports import ErrorLog
    from kirsch.server import Server
    from kirsch.supervisor.control import Channel
    from kirsch.supervisor.engine_group import EngineGroup, GroupArguments
    from kirsch.supervisor.privileges import Identity

_REAL_TIME: int | None = getattr(signal, "SIGRTMIN", None)  # a real-time signal, which programs rarely use

DUMP_SIGNAL: int = signal.SIGXCPU if _REAL_TIME is None else _REAL_TIME
"""Writes the stacks of all threads to stderr. The handler is in C, and so runs even if no thread can take the GIL."""

DISMISS_SIGNAL: int = signal.SIGVTALRM if _REAL_TIME is None else _REAL_TIME + 1
"""Ends a child that serves nothing yet, at once and silently. A worker that serves ignores it."""

# The limit of a traceback in bytes, so that the rest of the message fits too.
_TRACEBACK_MAX = 48 << 10

_STUCK = "a request does not end after its deadline"
_BROKEN = "the application or a library has closed its listening socket"
_LOST = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EPERM)  # the errors of epoll_ctl and epoll_wait after that
_LOST_DESCRIPTORS = "the application or a library has closed descriptors of the server (os.close, os.closerange)"

_NOT_FOR_WORKERS = ("SIGHUP", "SIGTTIN", "SIGTTOU", "SIGUSR2", "SIGWINCH")
_OF_BEFORE = ("SIGTERM", "SIGCHLD", "SIGUSR1", "SIGPWR")


class SpawnContext:
    """The context that all workers of one generation receive. A zygote passes it to the workers that it forks.
    ``directories`` are open descriptors of the supervisor, first that of this generation. The child closes all of them.
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
        certificates: SharedValue | None,
        connector: Connector,
    ) -> None:
        self.chosen = chosen
        self.directories = directories
        self.errors = errors
        self.identity = identity
        self.listeners = listeners
        self.board = board
        self.group = group
        self.certificates = certificates
        self.connector = connector


class Loaded:
    """The imported application with its name and hooks."""

    def __init__(self, app: Application, name: str, hooks: Hooks) -> None:
        self.app = app
        self.name = name
        self.hooks = hooks


class WorkerArguments:
    """The arguments of one worker. ``index`` counts from 0 and is below ``workers``; ``slot`` is its slot on the
    scoreboard."""

    def __init__(
        self, context: SpawnContext, channel: Channel, *, index: int, workers: int, slot: int, request_limit: int
    ) -> None:
        self.context = context
        self.channel = channel
        self.index = index
        self.slot = context.board.slot(slot)
        self.listeners = sockets.share(context.listeners, index, workers)
        self.request_limit = request_limit
        self.multiprocess = workers > 1 or context.chosen.max_workers > 1

    def join_group(self) -> GroupArguments | None:
        """Return the argument by which the native server balances connections with other workers; None if it does
        not."""
        group = self.context.group
        if any(listener.set is not None for listener in self.listeners):
            group.close()  # with --reuse-port the kernel chooses the worker
            return None
        return group.hand_over(self.slot.index)


def main(arguments: WorkerArguments, loaded: Loaded | None = None) -> int:
    """Run a worker; return the exit status. ``loaded`` is the application, if a zygote has loaded it."""
    arguments.slot.occupy()
    arguments.context.connector.use(arguments.context.chosen.groups)
    arguments.channel.send("hello", pid=os.getpid())
    forks.add(partial(_leave_in_child, arguments))
    try:
        if loaded is None:
            loaded = forks.call(load, arguments.context)
        else:
            forks.call(loaded.hooks.call, "after_fork", arguments.index, arguments.slot.index)
        forks.call(loaded.hooks.call, "worker_start", arguments.index, arguments.slot.index)
        try:
            status, server = _serve(arguments, loaded.app, loaded.name)
        finally:
            loaded.hooks.stop(arguments.index, arguments.slot.index, arguments.context.errors)
        process_exit.limit_exit(server, status, arguments.context.chosen.shutdown_timeout)
        return status
    except StartupError as error:
        return report_failure(arguments.channel, error)


def report_failure(channel: Channel, error: StartupError) -> int:
    """Report to the supervisor why this child cannot serve. Return the exit status."""
    text = "" if error.cause is None else reports.traceback_text(error.cause)
    summary = "" if error.cause is None else reports.summary(error.cause)
    if len(text) > _TRACEBACK_MAX:
        text = f"{text[: _TRACEBACK_MAX // 2]}\n  ...\n{text[-_TRACEBACK_MAX // 2 :]}"
    channel.send("failed", status=error.status, text=str(error), summary=summary, traceback=text)
    return error.status


def set_signals() -> None:
    """Set the signal dispositions of a child that does not serve yet: a stop signal ends it at once and silently."""
    signal.set_wakeup_fd(-1)
    for name in _OF_BEFORE:
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import faulthandler

    faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True)
    # SIGQUIT has a handler, because its default action writes a core file.
    set_handlers({**{getattr(signal, name): do_nothing for name in _NOT_FOR_WORKERS}, signal.SIGQUIT: _leave})


def _leave_in_child(arguments: WorkerArguments) -> None:
    """Restore default signals and close the worker's resources, in a child that the application has forked."""
    from kirsch.supervisor import titles

    restore_signals()
    arguments.channel.close()
    arguments.context.connector.close_worker_end()
    for listener in arguments.context.listeners:
        listener.close()
    titles.child(arguments.slot.index)


def restore_signals() -> None:
    """Restore the default dispositions of the signals that a child of the supervisor handles, unless the application
    has set other handlers."""
    handlers = dict.fromkeys((*(getattr(signal, name) for name in _NOT_FOR_WORKERS), DISMISS_SIGNAL), do_nothing)
    forks.restore_signals({**handlers, signal.SIGQUIT: _leave}, {})


def _leave(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


def load(context: SpawnContext) -> Loaded:
    """Switch to the directory, user and environment of the application, and import it. Raises StartupError."""
    from kirsch.supervisor import notify, privileges

    _enter_directory(context)
    notify.leave_environment()
    privileges.become(context.identity, context.chosen.env)
    app, name = bootstrap.load_application(context.chosen)
    return Loaded(app, name, Hooks(context.chosen))


def _enter_directory(context: SpawnContext) -> None:
    try:
        os.fchdir(context.directories[0])
    except OSError as error:
        text = f"cannot change to the directory of the application: {error.strerror}"
        raise StartupError(bootstrap.EXIT_FAILED, text) from None
    finally:
        for fd in context.directories:
            os.close(fd)


def _serve(arguments: WorkerArguments, app: Application, name: str) -> tuple[int, Server]:
    from kirsch.serving import Signals
    from kirsch.supervisor import titles

    chosen, errors = arguments.context.chosen, arguments.context.errors
    titles.worker(arguments.slot.index, chosen.process_name or name)
    is_asgi = bootstrap.interface(app, chosen) == "asgi"
    if chosen.ready_path and not is_asgi:
        _check_ready(arguments, app)
    server = bootstrap.make_server(app, chosen, errors)
    if chosen.ready_path and is_asgi:
        server.check_ready = lambda: _check_asgi_ready(arguments, app)
    server.adopt(arguments.listeners)
    certificates = arguments.context.certificates
    if certificates is not None:
        server.tls_terms = certificates.read()
    server.slot = arguments.slot
    server.config.multiprocess = arguments.multiprocess
    server.config.group = arguments.join_group()
    limit_fd = -1
    if arguments.request_limit:
        limit_fd, write_fd = os.pipe()
        os.set_blocking(write_fd, False)
        server.config.request_limit = arguments.request_limit
        server.config.limit_fd = write_fd

    # The engine itself sends these messages, because a call may keep the GIL, so that no Python thread could.
    stuck = control.encode("leaving", reason="stuck", text=_STUCK)
    broken = control.encode("leaving", reason="broken", text=_BROKEN)
    server.config.replacement = (arguments.channel.fileno(), stuck, broken)

    def request_replacement() -> None:
        control_thread.request_replacement("stuck", _STUCK)

    server.request_replacement = request_replacement

    def report_stop_signal(why: str) -> None:
        control_thread.report_stopping("signal", why)

    signals = Signals(server, errors.reopen, owns_process=True, on_stop_signal=report_stop_signal)
    control_thread = ControlThread(
        arguments.channel,
        arguments.slot,
        server,
        signals,
        certificates,
        max_memory=chosen.max_memory,
        limit_fd=limit_fd,
    )

    def ready() -> None:
        set_handlers({DISMISS_SIGNAL: do_nothing})
        control_thread.start()
        if not arguments.channel.send("ready", name=name):
            signals.end("the supervisor has gone", 0.0)

    try:
        status = bootstrap.serve(signals, ready)
    except StartupError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        if not _report_broken(server, error):
            raise
        status = bootstrap.EXIT_FAILED
    if signals.ended_by:
        # The thread of the signal may not have sent this message yet, and the exit would look like a crash. Sending it
        # twice is harmless.
        report_stop_signal(signals.ended_by)
    return status, server


def _report_broken(server: Server, error: BaseException) -> bool:
    """Report how code of the application outside of requests has ended the server. Returns False for a bug of the
    server itself, which needs its whole traceback.
    """
    if isinstance(error, OSError) and any(os.strerror(number) in str(error) for number in _LOST):
        server.report(reports.CRITICAL, f"the worker ends: {error}: {_LOST_DESCRIPTORS}")
        return True
    if reports.application_traceback(error) is None and isinstance(error, Exception):
        return False
    while error.__context__ is not None:
        error = error.__context__  # what failed first; the end of the server may have failed in the same way
    server.report(reports.CRITICAL, "the worker ends: an exception outside of a request", error)
    return True


async def _check_asgi_ready(arguments: WorkerArguments, app: Application) -> None:
    """Do the same as the check of a WSGI application, in the event loop after the lifespan startup."""
    from kirsch.drivers import NotStartedError
    from kirsch.supervisor import readiness

    path, address = arguments.context.chosen.ready_path, _own_address(arguments)
    found = _application_at(path, arguments, app)
    try:
        if found.interface == "wsgi":
            import asyncio

            await asyncio.to_thread(readiness.check, found, path, *address, arguments.context.errors.stream())
        else:
            await readiness.check_asgi(found, path, *address)
    except readiness.NotReadyError as error:
        raise NotStartedError(str(error), error.cause) from None


def _own_address(arguments: WorkerArguments) -> tuple[str, str]:
    address = arguments.listeners[0].address
    return ("localhost", "80") if isinstance(address, str) else (str(address[0]), str(address[1]))


def _application_at(path: str, arguments: WorkerArguments, app: Application) -> MountedApplication:
    """Return the application, with its place, for ``path`` at the worker's own address."""
    if isinstance(app, Mounted):
        return app.find(_own_address(arguments)[0], path)
    return MountedApplication(app, bootstrap.interface(app, arguments.context.chosen), host="", path="", name="")


def _check_ready(arguments: WorkerArguments, app: Application) -> None:
    from kirsch.supervisor import readiness

    path, address = arguments.context.chosen.ready_path, _own_address(arguments)
    found = _application_at(path, arguments, app)
    try:
        readiness.check(found, path, *address, arguments.context.errors.stream())
    except readiness.NotReadyError as error:
        raise StartupError(
            bootstrap.EXIT_NOT_LOADED, f"{arguments.context.chosen.target}: {error}", error.cause
        ) from None
