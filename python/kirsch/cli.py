"""The command ``kirsch``: read settings, load the application, listen, say so in three lines, serve.

Exit status: 0 when it served or did what was asked, 1 when the application or an address cannot be had, 2 when the
command line or the environment is wrong, 75 (``kirsch.server.EXIT_STUCK``) when the server ended because a request was
stuck. Each failure is one line on stderr; a traceback is the application's or none.
"""

from __future__ import annotations

import os
import sys

from kirsch import drivers, loading, reports, settings
from kirsch.options import OPTION_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from kirsch.options import Options
    from kirsch.settings import Settings

# More descriptors than this no worker uses, and programs that an application starts may close each possible one.
_DESCRIPTORS_MAX = 1 << 20


class _Exit(Exception):
    """One line for stderr and an exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (default: the process's) and return its exit status."""
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except settings.UsageError as error:
        reports.say(f"kirsch: {error}")
        return 2
    except loading.LoadError as error:
        if error.cause is not None:
            reports.say_traceback(error.cause)
        reports.say(f"kirsch: {error}")
        return 1
    except _Exit as error:
        reports.say(f"kirsch: {error}")
        return error.status
    except KeyboardInterrupt:
        return 130  # during start-up: as the shell has it, 128 + SIGINT


def _main(argv: Sequence[str]) -> int:
    flags = argv[: list(argv).index("--")] if "--" in argv else argv
    if "-h" in flags or "--help" in flags:
        _answer(settings.help_text())
        return 0
    if "--version" in flags:
        _answer(f"{_version()})")
        return 0
    chosen = settings.read(argv)
    if chosen.print_config:
        _answer(chosen.table())
        return 0
    if chosen.target is None:
        raise settings.UsageError("which application? Name it, as in `kirsch hello:app`; kirsch --help tells more")
    _prepare_path(chosen)
    if not chosen.check_config:
        _raise_descriptor_limit()
    try:
        drivers.prepare(chosen.driver)
    except ImportError as error:
        raise _Exit(1, str(error)) from None
    app, name = loading.load(chosen.target, factory=chosen.factory)
    if chosen.check_config:
        _answer(f"{name} is ok")
        return 0
    return _serve(app, name, chosen)


def _answer(text: str) -> None:
    """``text`` to stdout. A reader that has gone (``kirsch --help | head -1``) has seen what it wanted."""
    try:
        print(text, flush=True)
    except OSError as error:
        # What is left in the buffer would be tried again, and complained about, at the interpreter's end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise _Exit(1, f"cannot write to standard output: {error.strerror}") from None


def _version() -> str:
    version = _import_native().__version__
    implementation = {"cpython": "CPython", "pypy": "PyPy"}.get(sys.implementation.name, sys.implementation.name)
    return f"kirsch {version} ({implementation} {sys.version.split()[0]}"


def _import_native() -> Any:
    try:
        from kirsch import _native
    except ImportError as error:
        raise _Exit(1, f"the compiled part of Kirsch is missing ({error}); install it again for this Python") from None
    return _native


def _prepare_path(chosen: Settings) -> None:
    if chosen.chdir:
        try:
            os.chdir(chosen.chdir)
        except OSError as error:
            origin = chosen.origins["chdir"]
            raise settings.UsageError(f"{origin}: cannot change to {chosen.chdir!r}: {error.strerror}") from None
    # The current directory first, whichever way the command was started; what is asked for next to it.
    sys.path[:0] = [os.getcwd(), *(os.path.abspath(path) for path in chosen.pythonpath)]


def _raise_descriptor_limit() -> None:
    """Let the soft limit on open files be the hard one: each connection is a file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            pass  # then fewer connections are served; the engine reports it if it comes to that


def _serve(app: Callable[..., Any], name: str, chosen: Settings) -> int:
    version = f"{_version()}, pid {os.getpid()})"
    from kirsch.server import Server, serve_until_signal

    try:
        errors = reports.ErrorLog(chosen.error_logfile, reports.LEVELS[chosen.log_level])
        if chosen.access_logfile not in ("", "-"):
            # The engine opens it for itself, after the sockets; a path that cannot be is better told now, by name.
            with open(chosen.access_logfile, "ab"):
                pass
    except OSError as error:
        raise _Exit(1, f"cannot write {error.filename}: {error.strerror}") from None
    server = Server(app, chosen.bind, **_options(chosen, errors))
    announced = False

    def announce() -> None:
        nonlocal announced
        announced = True
        reports.say(f"{version}\nserving {name}\non {', '.join(server.urls)}")

    try:
        return serve_until_signal(server, ready=announce, reopen=errors.reopen, owns_process=True)
    except (OSError, ValueError) as error:
        if announced:
            raise  # an error of ours, and worth a traceback
        if isinstance(error, OSError):
            raise _Exit(1, _reason(error)) from None
        raise settings.UsageError(str(error)) from None


def _reason(error: OSError) -> str:
    if not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _options(chosen: Settings, report: reports.Report) -> Options:
    """The settings that are options of ``Server`` too, with the command line's ways to report and to log."""
    values = {each.name: getattr(chosen, each.name) for each in settings.SETTINGS if each.name in OPTION_NAMES}
    values["report"] = report
    if chosen.access_logger:
        values["access_logger"] = reports.access_logger(stdout_by_default=True)
    options: Options = values  # type: ignore[assignment]  # names and types are held together by test_settings
    return options
