"""What the server has to say: reports of the engine on stderr, in a file or in ``logging``, and access lines.

The engine reports through a callable ``report(level, message, exception)``, with ``level`` as in ``logging``. Inside
somebody's program that is :func:`report_to_logging`: logger ``kirsch``, and what becomes of it is the program's
affair. The command line uses an :class:`ErrorLog`. Neither touches the root logger, and both load ``logging`` only
when there is something to say: it is a quarter of an empty interpreter's start-up.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from types import TracebackType

    Report = Callable[[int, str, BaseException | None], None]

INFO, WARNING, ERROR, CRITICAL = 20, 30, 40, 50
LEVELS = {"debug": 10, "info": INFO, "warning": WARNING, "error": ERROR, "critical": CRITICAL}

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
OWN_DIRECTORIES = frozenset({_PACKAGE, os.path.join(_PACKAGE, "drivers"), os.path.join(_PACKAGE, "supervisor")})
"""Where the server's own modules are. kirsch.web and its sisters are part of the application."""


def application_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` from the application's first frame on.

    None where no frame is the application's: then the error arose in calling or finding it, not inside it.
    """
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _is_ours(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or os.path.dirname(filename) in OWN_DIRECTORIES


def say(text: str) -> None:
    """One line to stderr, if there is one, in a single write."""
    if sys.stderr is not None:
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except OSError:
            pass  # a closed pipe; there is nobody left to tell


def say_dump(text: str) -> None:
    """``text`` to descriptor 2, past ``sys.stderr``, whose lock a thread that is stuck may hold."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass  # a closed pipe; there is nobody left to tell


def traceback_text(error: BaseException) -> str:
    """The application's part of the traceback, without a line end."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, application_traceback(error))).rstrip("\n")


def summary(error: BaseException) -> str:
    """``file: type: message``: the file of the application's that was last in it, and the exception in one line."""
    import traceback

    told = " ".join(traceback.format_exception_only(type(error), error)[-1].split())
    frames = traceback.extract_tb(application_traceback(error))
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short_path(error.filename)}: {told}"
    return f"{_short_path(frames[-1].filename)}: {told}" if frames else told


def _short_path(path: str) -> str:
    """Relative to the current directory where it lies below that."""
    try:
        relative = os.path.relpath(path)
    except OSError:
        return path  # the directory has been removed
    return path if relative.startswith(os.pardir) else relative


def say_traceback(error: BaseException) -> None:
    """The application's part of the traceback to stderr."""
    say(traceback_text(error))


def report_to_logging(level: int, message: str, error: BaseException | None) -> None:
    """Hand a report to logger ``kirsch``."""
    if level < WARNING and "logging" not in sys.modules:
        return  # nobody can have asked for it: unconfigured, logging drops what is below a warning
    import logging

    logging.getLogger("kirsch").log(level, message, exc_info=_exc_info(error))


def _exc_info(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if error is None else (type(error), error, application_traceback(error))


class ErrorLog:
    """Reports of the command line: a ``Report`` that writes to ``path``, or to stderr where that is empty or ``-``.

    Where the application has given logger ``kirsch`` handlers of its own and no path was asked for, those are used.
    Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: str = "", level: int = INFO) -> None:
        self._path = "" if path in ("", "-") else os.path.abspath(path)
        self._level = level
        self._handler: logging.Handler | None = None
        self._fd = _open_log(self._path) if self._path else 2

    def __call__(self, level: int, message: str, error: BaseException | None = None) -> None:
        if level < self._level:
            return
        logger = self._logger()
        # dictConfig(disable_existing_loggers=True), the default and Django's, must not silence the server's errors.
        logger.disabled = False
        logger.log(level, message, exc_info=_exc_info(error))

    def set_level(self, level: int) -> None:
        """Report what is at least so grave from now on."""
        self._level = level
        if self._handler is not None:
            self._logger().setLevel(level)

    def reopen(self) -> None:
        """Open the path again after a rotation. Raises OSError, and keeps the old file, if it cannot."""
        if self._path:
            fd = _open_log(self._path)
            os.dup2(fd, self._fd, inheritable=False)
            os.close(fd)

    def _logger(self) -> logging.Logger:
        import logging

        logger = logging.getLogger("kirsch")
        if self._handler is None and (self._path or not logger.handlers):
            self._handler = _descriptor_handler(self._fd)
            logger.addHandler(self._handler)
            logger.propagate = False
            logger.setLevel(self._level)
        return logger


def _open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _descriptor_handler(fd: int) -> logging.Handler:
    """A handler that writes each record whole to ``fd``.

    Unbuffered, because a report may come from a signal handler that interrupted another report, and Python's buffered
    streams refuse to be entered twice.
    """
    import logging

    class DescriptorHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            data = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
            try:
                while data:
                    data = data[os.write(fd, data) :]
            except OSError:
                pass  # a full disc or a closed pipe must not become the application's trouble

    handler = DescriptorHandler()
    handler.setFormatter(
        logging.Formatter("[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S %z")
    )
    # Access lines have a form and a place of their own.
    handler.addFilter(lambda record: not record.name.startswith("kirsch.access"))
    return handler


def access_logger(*, stdout_by_default: bool) -> Callable[[str, dict[str, str]], None]:
    """A callable ``(line, atoms)`` for the engine: each access line becomes an INFO record of ``kirsch.access``.

    ``atoms`` is the record's attribute ``kirsch``. Handlers belong to the user; with ``stdout_by_default`` bare lines
    go to stdout while there are none. A level is set only where none was: logging's own default is to drop INFO.
    """
    import logging

    logger = logging.getLogger("kirsch.access")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if stdout_by_default and not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler(sys.stdout))
        logger.propagate = False

    def log_access(line: str, atoms: dict[str, str]) -> None:
        logger.info(line, extra={"kirsch": atoms})

    return log_access
