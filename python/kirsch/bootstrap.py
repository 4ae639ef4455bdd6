"""From settings to a server: the path, the driver, the application, the options; in one process as in each worker."""

from __future__ import annotations

import errno
import os
import sys

from kirsch import drivers, loading, log_config, reports, settings
from kirsch.options import OPTION_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.options import Options
    from kirsch.server import Server, Signals
    from kirsch.settings import Settings

# More descriptors than this no worker uses, and programs that an application starts may close each possible one.
_DESCRIPTORS_MAX = 1 << 20

EXIT_FAILED = 1
"""An address, a file or a driver cannot be had."""

EXIT_USAGE = 2
"""The command line, the environment or the settings file is wrong."""

EXIT_NOT_LOADED = 3
"""The application cannot be had. A supervisor that ends so has never served; later failures do not end it."""


class StartupError(Exception):
    """One line for stderr and an exit status, with the application's own exception where there is one."""

    def __init__(self, status: int, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause


def change_directory(chosen: Settings) -> None:
    """``--chdir``, before anything with a relative path. Raises UsageError."""
    if chosen.chdir:
        try:
            os.chdir(os.path.join(chosen.directory, chosen.chdir))
        except OSError as error:
            origin = chosen.origins["chdir"]
            raise settings.UsageError(f"{origin}: cannot change to {chosen.chdir!r}: {error.strerror}") from None


def extend_path(chosen: Settings) -> None:
    """Let modules be found: in the current directory first, then in what ``--pythonpath`` names."""
    sys.path[:0] = [os.getcwd(), *(os.path.abspath(path) for path in chosen.pythonpath)]


def load_application(chosen: Settings) -> tuple[Callable[..., Any], str]:
    """Make the process fit for the driver, let modules be found, configure logging, and import the application.

    Raises StartupError.
    """
    extend_path(chosen)
    try:
        drivers.prepare(chosen.driver)
    except ImportError as error:
        raise StartupError(EXIT_FAILED, str(error)) from None
    try:
        log_config.apply(chosen)
    except settings.UsageError as error:
        raise StartupError(EXIT_USAGE, str(error)) from None
    try:
        return loading.load_all(chosen.target, factory=chosen.factory, mounts=chosen.mounts)
    except loading.LoadError as error:
        raise StartupError(EXIT_NOT_LOADED, str(error), error.cause) from None


def raise_descriptor_limit() -> None:
    """Let the soft limit on open files be the hard one: each connection is a file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # then fewer connections are served; the engine reports it if it comes to that


def open_logs(chosen: Settings) -> reports.ErrorLog:
    """The error log; and the access log is tried. Raises StartupError."""
    try:
        errors = reports.ErrorLog(
            chosen.error_logfile, reports.LEVELS[chosen.log_level], json=chosen.error_logformat == "json"
        )
        if chosen.access_logfile not in ("", "-"):
            # The engine opens it for itself, after the sockets; a path that cannot be is better told now, by name.
            from kirsch._native import LogWriter

            LogWriter(os.path.abspath(chosen.access_logfile))
    except OSError as error:
        raise _log_trouble(error) from None
    return errors


def check_log(path: str) -> None:
    """Raise the StartupError of :func:`open_logs` where the log at ``path`` cannot be written; make no file."""
    if path in ("", "-"):
        return
    path = os.path.abspath(path)
    try:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            folder = os.path.dirname(path)
            if not os.path.isdir(folder):
                raise
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path) from None
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe that nobody reads yet
            raise _log_trouble(error) from None


def _log_trouble(error: OSError) -> StartupError:
    hint = "; create the directory first" if error.errno == errno.ENOENT else ""
    return StartupError(EXIT_FAILED, f"cannot write the log {error.filename}: {error.strerror}{hint}")


def make_server(app: Callable[..., Any], chosen: Settings, report: reports.Report) -> Server:
    """The server; it has to :meth:`Server.adopt` its sockets. Its application's ``wsgi.errors`` is the error log, where
    ``report`` is one."""
    from kirsch.server import Server

    server = Server(app, chosen.bind, **_options(chosen, report))
    if isinstance(report, reports.ErrorLog):
        server.engine_options["errors"] = report.stream()
    return server


def serve(signals: Signals, ready: Callable[[], None]) -> int:
    """:func:`kirsch.server.serve_with`; what is refused before it is ready is an StartupError."""
    from kirsch.server import serve_with

    is_ready = False

    def announce() -> None:
        nonlocal is_ready
        is_ready = True
        ready()

    try:
        return serve_with(signals, announce)
    except (OSError, ValueError) as error:
        if is_ready:
            raise  # an error of ours, and worth a traceback
        if isinstance(error, OSError):
            raise StartupError(EXIT_FAILED, reason(error)) from None
        raise StartupError(EXIT_USAGE, str(error)) from None


# How long the exit functions of an application may take, and standard output may accept nothing, before the process
# ends without them.
_EXIT_SECONDS = 2.5
_OUTPUT_SECONDS = 0.5


def end_if_output_is_stuck(status: int) -> None:
    """End this process with ``status`` here if nobody reads its standard output or standard error.

    The interpreter's own way out flushes both and would wait for ever, for instance for what an application has printed
    into a full pipe. The application's exit functions run before.
    """
    if all(map(_is_writable, (1, 2))):
        return
    import atexit
    import time

    def end() -> None:
        time.sleep(_EXIT_SECONDS)
        os._exit(status)

    drivers.original("start_new_thread")(end, ())
    atexit._run_exitfuncs()  # what the interpreter calls too
    os._exit(status)


def _is_writable(fd: int) -> bool:
    import select

    try:
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        return bool(poll.poll(_OUTPUT_SECONDS * 1000))  # a closed descriptor and a closed pipe are events too
    except (AttributeError, OSError):
        return True


def reason(error: OSError) -> str:
    """What an OSError says, in one line for people."""
    if not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _options(chosen: Settings, report: reports.Report) -> Options:
    """The settings that are options of ``Server`` too, with the command line's ways to report and to log."""
    values = {each.name: getattr(chosen, each.name) for each in settings.SETTINGS if each.name in OPTION_NAMES}
    values["report"] = report
    if chosen.access_logger:
        values["access_logger"] = reports.access_logger(
            stdout_by_default=True, start_thread=drivers.thread_starter(chosen.driver)
        )
    options: Options = values  # type: ignore[assignment]  # names and types are held together by test_settings
    return options
