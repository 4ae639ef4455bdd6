"""Steps from the settings to a server, in every process that serves: import path, driver, application, options."""

from __future__ import annotations

import errno
import os
import sys

from kirsch import drivers, reports
from kirsch.apps import loading
from kirsch.apps.mounted import Mounted
from kirsch.apps.signature import interface_of
from kirsch.config import log_config, sources
from kirsch.config.schema import SETTINGS
from kirsch.config.setting import UsageError
from kirsch.drivers import choice, loops
from kirsch.process.real_threads import thread_starter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kirsch.apps.mounted import Application
    from kirsch.config.arguments import Arguments
    from kirsch.config.options import Options
    from kirsch.config.schema import Settings
    from kirsch.server import Server
    from kirsch.serving import Signals
    from kirsch.tracing import Tracing

# The highest limit of descriptors for a worker. With more, programs that close every possible descriptor become slow.
_DESCRIPTORS_MAX = 1 << 20

EXIT_FAILED = 1
"""An address, a file or a driver is not available."""

EXIT_USAGE = 2
"""The command line, the environment or the settings file is wrong."""

EXIT_NOT_LOADED = 3
"""The application cannot be loaded. A supervisor that exits with it has never served; later failures do not end it."""


class StartupError(Exception):
    """A reason not to start: one line for stderr, an exit status, and the application's exception if there is one."""

    def __init__(self, status: int, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause


def change_directory(chosen: Settings) -> None:
    """Change to the directory of ``--chdir``, before any relative path is used. Raises UsageError."""
    if chosen.chdir:
        try:
            os.chdir(os.path.join(chosen.directory, chosen.chdir))
        except OSError as error:
            origin = chosen.origins["chdir"]
            raise UsageError(f"{origin}: cannot change to {chosen.chdir!r}: {error.strerror}") from None


def extend_path(chosen: Settings) -> None:
    """Add the current directory and those of ``--pythonpath`` to the front of ``sys.path``."""
    try:
        paths = [os.getcwd(), *(os.path.abspath(path) for path in chosen.pythonpath)]
    except OSError:
        # The current directory has been removed. An application that is installed elsewhere can still be served.
        paths = [path for path in chosen.pythonpath if os.path.isabs(path)]
    sys.path[:0] = paths


def missing_directories(chosen: Settings) -> list[str]:
    """Return the directories of ``--pythonpath`` that do not exist, which Python ignores without a message."""
    return [path for path in chosen.pythonpath if not os.path.exists(path)]


def load_application(chosen: Settings) -> tuple[Application, str]:
    """Prepare the process for the driver, extend ``sys.path``, configure logging, and import the application.

    Raises StartupError.
    """
    extend_path(chosen)
    try:
        choice.prepare(chosen.driver)
    except ImportError as error:
        raise StartupError(EXIT_FAILED, str(error)) from None
    try:
        log_config.apply(chosen)
    except UsageError as error:
        raise StartupError(EXIT_USAGE, str(error)) from None
    try:
        app, name = loading.load_all(
            chosen.target, factory=chosen.factory, mounts=chosen.mounts, interface=chosen.interface
        )
        called_by = interface(app, chosen)
        try:
            choice.choose_driver(chosen.driver, called_by)
            if called_by == "asgi":
                loops.check(chosen.loop)
        except ValueError as error:
            raise StartupError(EXIT_USAGE, f"{name}: {error}") from None
        except ImportError as error:
            raise StartupError(EXIT_FAILED, str(error)) from None
        return app, name
    except loading.LoadError as error:
        text = str(error)
        if missing := missing_directories(chosen):
            text += f"; {chosen.origins['pythonpath']}: there is no {', '.join(missing)}"
        raise StartupError(EXIT_NOT_LOADED, text, error.cause) from None


def prepare_for(app: Callable[..., Any], chosen: Settings) -> str:
    """Configure logging for an application object of a program; return its name. Raises StartupError."""
    try:
        log_config.apply(chosen)
        choice.choose_driver(chosen.driver, interface(app, chosen))
    except (UsageError, ValueError) as error:
        raise StartupError(EXIT_USAGE, str(error)) from None
    except ImportError as error:
        raise StartupError(EXIT_FAILED, str(error)) from None
    return f"{getattr(app, '__module__', '')}:{getattr(app, '__qualname__', type(app).__name__)}".lstrip(":")


def find_import_problems(settings: Settings, arguments: Arguments) -> list[str]:
    """Return why the application cannot be imported, if ``settings`` are wrong. Runs none of its code."""
    if settings.target is None and not settings.mounts and not arguments.words:
        # A settings file that could not be read may name the application.
        is_unread = not settings.file and (
            settings.config or os.path.exists(os.path.join(settings.directory, sources.FILE))
        )
        return [] if is_unread else [sources.NO_APPLICATION]
    base = os.path.join(settings.directory, settings.chdir)
    if not os.path.isdir(base):
        return []  # the check of --chdir reports it
    if os.path.realpath(base) != os.path.realpath(settings.directory) or len(arguments.targets) > 1:
        return []  # names are relative to another directory, or it is unclear which application is meant
    places = [base, *settings.pythonpath]
    named = []
    if settings.target is not None and (settings.origins["app"] != sources.COMMAND_LINE or arguments.certain_targets):
        named = [("", settings.target)]
    named += [(f"{mount.origin}: ", mount.app) for mount in settings.mounts]
    return [f"{where}{trouble}" for where, app in named if (trouble := loading.find_import_problem(app, places))]


def interface(app: Application, chosen: Settings) -> str:
    """Return the interface of the application: ``wsgi``, or ``asgi``, also if only one mounted application is ASGI."""
    if isinstance(app, Mounted):
        return app.interface
    return interface_of(app) if chosen.interface == "auto" else chosen.interface


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit: each connection is a file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # then fewer connections can be served, and the engine reports it when they are exhausted


def open_logs(chosen: Settings) -> reports.ErrorLog:
    """Open the error log, and try to open the access log. Raises StartupError."""
    try:
        errors = reports.ErrorLog(
            chosen.error_logfile, reports.LEVELS[chosen.log_level], json=chosen.error_logformat == "json"
        )
        if chosen.access_logfile not in ("", "-"):
            # The engine opens the access log after the sockets. Try it now, to report an error with the name of the
            # file.
            from kirsch._native import LogWriter

            LogWriter(os.path.abspath(chosen.access_logfile))
    except OSError as error:
        raise _log_trouble(error) from None
    return errors


def check_log(path: str) -> None:
    """Check that the log at ``path`` can be written, without creating it. Raises StartupError if not."""
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
        if error.errno != errno.ENXIO:  # ENXIO: a FIFO that has no reader yet
            raise _log_trouble(error) from None


def _log_trouble(error: OSError) -> StartupError:
    hint = "; create the directory first" if error.errno == errno.ENOENT else ""
    return StartupError(EXIT_FAILED, f"cannot write the log {error.filename}: {error.strerror}{hint}")


def make_server(app: Application, chosen: Settings, report: reports.Report) -> Server:
    """Return the server. The caller passes it its sockets with :meth:`Server.adopt`. If ``report`` is an error log, it
    is also the application's ``wsgi.errors``."""
    from kirsch.server import Server

    is_buffering_asked_for = chosen.request_buffering and chosen.origins["request_buffering"] != "default"
    if is_buffering_asked_for and interface(app, chosen) == "asgi":
        origin = chosen.origins["request_buffering"]
        report(reports.WARNING, f"{origin} has no effect: an ASGI application receives a body as it arrives", None)
    tracing = _make_tracing(report) if chosen.otel else None
    if tracing is not None:
        called_by = interface(app, chosen)
        app = app.wrapped(tracing.wrapped) if isinstance(app, Mounted) else tracing.wrapped(app, called_by)
    server = Server(app, chosen.bind, **_options(chosen, report))
    if tracing is not None:
        server.at_end = tracing.shutdown
        tracing.queue_wait = server.queue_wait
    if isinstance(report, reports.ErrorLog):
        server.config.errors = report.stream()
    return server


def _make_tracing(report: reports.Report) -> Tracing:
    """Return the tracing of this process. Raises StartupError if a package is missing or a variable is wrong."""
    try:
        from kirsch.tracing import Tracing

        return Tracing(report)
    except ImportError as error:
        text = f"--otel: {error}: install kirsch[otel], which brings opentelemetry-sdk and the exporter for OTLP"
        raise StartupError(EXIT_FAILED, text) from None
    except ValueError as error:
        raise StartupError(EXIT_USAGE, str(error)) from None


def serve(signals: Signals, ready: Callable[[], None]) -> int:
    """Call :func:`kirsch.serving.serve_with`. Raises StartupError for an error before the server is ready."""
    from kirsch.serving import serve_with

    is_ready = False

    def announce() -> None:
        nonlocal is_ready
        is_ready = True
        ready()

    try:
        return serve_with(signals, announce)
    except (OSError, ValueError) as error:
        if is_ready:
            raise  # a bug of the server, which needs a traceback
        if isinstance(error, OSError):
            raise StartupError(EXIT_FAILED, reason(error)) from None
        raise StartupError(EXIT_USAGE, str(error)) from None
    except drivers.NotStartedError as error:
        raise StartupError(EXIT_NOT_LOADED, f"the application cannot start: {error}", error.cause) from None
    finally:
        if signals.server.at_end is not None:
            signals.server.at_end()


def reason(error: OSError) -> str:
    """Return the text of an OSError as one line for people, with advice."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{os.strerror(error.errno)}: raise the limit, which `ulimit -n` shows (LimitNOFILE= in a systemd unit)"
    if not error.strerror:
        return str(error)
    text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if error.errno == errno.EFBIG:
        return f"{text}: raise the limit, which `ulimit -f` shows (LimitFSIZE= in a systemd unit)"
    return text


def _options(chosen: Settings, report: reports.Report) -> Options:
    """Return the settings that are also options of ``Server``, with the command line's error log and access logger."""
    values = {each.name: getattr(chosen, each.name) for each in SETTINGS if each.in_programs}
    values["report"] = report
    if chosen.mounts:
        values["interface"] = "auto"
    if chosen.access_logger:
        values["access_logger"] = reports.access_logger(
            stdout_by_default=True, start_thread=thread_starter(chosen.driver)
        )
    options: Options = values  # type: ignore[assignment]  # it is made from the same schema
    return options
