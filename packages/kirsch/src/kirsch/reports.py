"""The error log: reports of the server to stderr, a file or ``logging``; and access lines for ``logging``.

The engine reports through a callable ``report(level, message, exception)``, with ``level`` as in ``logging``. In a
program that embeds the server, :func:`report_to_logging` reports to the logger ``kirsch``, which the program
configures. The command line uses an :class:`ErrorLog`. Neither changes the root logger, and both import ``logging``
only for the first report: the import takes a quarter of the start-up of an empty interpreter.

A log pipe that is not read, or a full disk, must not block the server. So an ErrorLog, :func:`write_stderr` in a
process that serves, and ``wsgi.errors`` write through ``_native.LogWriter``: a thread without the GIL writes, and lines
that do not fit in its buffer are dropped and counted.
"""

from __future__ import annotations

import io
import os
import sys
from _thread import allocate_lock, get_ident
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    from kirsch._native import LogWriter

    Report = Callable[[int, str, BaseException | None], None]

INFO, WARNING, ERROR, CRITICAL = 20, 30, 40, 50
LEVELS = {"debug": 10, "info": INFO, "warning": WARNING, "error": ERROR, "critical": CRITICAL}

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_FOLDERS = (
    *("adopt", "apps", "commands", "config", "django", "drivers", "groups", "monitor", "net", "process", "supervisor"),
)
OWN_DIRECTORIES = frozenset({_PACKAGE, *(os.path.join(_PACKAGE, name) for name in _FOLDERS)})
"""The directories of the server's own modules. kirsch.web and kirsch.query count as part of the application."""


def application_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of ``error`` from the application's first frame on.

    None if no frame belongs to the application: then the error was raised while it was looked up or called, not inside
    it.
    """
    trace = error.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


# Frames of asyncio, and of the import system, lie between the server's frames and those of the application.
_ASYNCIO = os.path.join(os.path.dirname(os.__file__), "asyncio")


def _is_ours(filename: str) -> bool:
    directory = os.path.dirname(filename)
    return filename.startswith("<frozen importlib") or directory in OWN_DIRECTORIES or directory == _ASYNCIO


PATIENCE = 0.1
"""The seconds that a report waits until its line is written, so that a crash soon afterwards does not lose it. After a
wait that was in vain, further reports do not wait."""

END_PATIENCE = 2.0
"""The seconds that a process waits at its exit until its last lines are written. It waits only briefly for a log that
has accepted nothing for a while."""

# A logging handler that has processed one line for this many seconds is stuck.
_STUCK_SECONDS = 0.5

_standard_error: _StandardError | None = None


class _StandardError:
    """The standard error stream of a process that serves."""

    def __init__(self, writer: LogWriter, json: bool) -> None:
        self.writer = writer
        self.json = json


def write_stderr(text: str, level: int = INFO) -> None:
    """Write ``text`` and a line end to stderr, if there is one. If stderr is the error log in JSON of a process that
    serves, each line becomes a record of ``level``."""
    own = _standard_error
    if own is not None:
        data = "".join(json_record(level, line) for line in text.splitlines()) if own.json else f"{text}\n"
        own.writer.write(_encode(data), PATIENCE)
    elif sys.stderr is not None:
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except OSError:
            pass  # a closed pipe: the message cannot be delivered


def write_failure(text: str, traceback: str = "") -> None:
    """Write the reason why the server does not start to stderr, after the application's traceback if there is one."""
    own = _standard_error
    if own is not None and own.json:
        own.writer.write(_encode(json_record(ERROR, text, traceback=traceback or None)), PATIENCE)
    else:
        lines = "\n".join(f"kirsch: {line}" for line in text.splitlines())
        write_stderr(f"{traceback}\n{lines}" if traceback else lines)


def write_dump(text: str) -> None:
    """Write ``text`` to descriptor 2 without using ``sys.stderr``, because a stuck thread may hold the lock of that."""
    own = _standard_error
    if own is not None:
        write_stderr(text.rstrip("\n"))
        return
    data = _encode(text)
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass  # a closed pipe: the message cannot be delivered


def flush(patience: float = END_PATIENCE) -> None:
    """Wait up to ``patience`` seconds until all log lines of this process are written, before it exits."""
    if "kirsch._native" in sys.modules:
        from kirsch import _native

        _native.flush_logs(patience)


def flush_streams() -> None:
    """Flush ``sys.stdout`` and ``sys.stderr`` before this process exits; ignore errors."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001, S110 - it is the application's, or there is none
            pass


def prepare_fork() -> None:
    """Flush the logs before a fork, and stop the writing threads. A child has none of its parent's threads, and must
    not write the lines that its parent has queued."""
    if "kirsch._native" in sys.modules:
        from kirsch import _native

        _native.flush_logs(PATIENCE, settle=True)


class Seldom:
    """A rate limit for reports of frequent events: at most one in a number of seconds."""

    __slots__ = ("_next", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def is_due(self) -> bool:
        """Return whether a report is due now. If true, the caller makes the report, and the interval starts again."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def dropped_lines() -> int:
    """Return the number of log lines that this process has dropped since it began, including access lines."""
    from kirsch import _native

    return _native.dropped_lines()


def json_record(level: int, message: str, *, created: float | None = None, traceback: str | None = None) -> str:
    """Return a record of the error log as a line of JSON in ASCII, which cannot contain a terminal's control
    sequences."""
    import json
    import time

    created = time.time() if created is None else created
    seconds, fraction = divmod(created, 1)
    scoreboard = sys.modules.get("kirsch.monitor.scoreboard")
    number = None if scoreboard is None else scoreboard.worker_number()
    record = {
        "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(fraction * 1e6):06}Z",
        "level": level_name(level),
        "pid": os.getpid(),
        "worker": None if number is None else number + 1,  # the number in the process title
        "message": message,
        "traceback": traceback,
    }
    return json.dumps(record) + "\n"


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def level_name(level: int) -> str:
    """Return the name that the settings use for a level of ``logging``."""
    return next((name for name, number in LEVELS.items() if number == level), str(level))


def traceback_text(error: BaseException) -> str:
    """Return the application's part of the traceback as text, without a final line end."""
    import traceback

    return "".join(traceback.format_exception(type(error), error, application_traceback(error))).rstrip("\n")


def summary(error: BaseException) -> str:
    """Return ``file: type: message``: the traceback's innermost file of the application, and the exception."""
    import traceback

    text = " ".join(traceback.format_exception_only(type(error), error)[-1].split())
    frames = traceback.extract_tb(application_traceback(error))
    if isinstance(error, SyntaxError) and error.filename:
        return f"{short_path(error.filename)}: {text}"
    return f"{short_path(frames[-1].filename)}: {text}" if frames else text


def short_path(path: str) -> str:
    """Return ``path`` relative to the current directory if it is inside of that, else unchanged."""
    try:
        relative = os.path.relpath(path)
    except OSError:
        return path  # the current directory has been removed
    return path if relative.startswith(os.pardir) else relative


def write_traceback(error: BaseException) -> None:
    """Write the application's part of the traceback to stderr."""
    write_stderr(traceback_text(error))


def report_to_logging(level: int, message: str, error: BaseException | None) -> None:
    """Report to the logger ``kirsch``."""
    if level < WARNING and "logging" not in sys.modules:
        return  # without configuration, logging drops records below WARNING
    import logging

    logging.getLogger("kirsch").log(level, message, exc_info=_exc_info(error))


def _exc_info(error: BaseException | None) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    return None if error is None else (type(error), error, application_traceback(error))


class ErrorLog:
    """The error log of the command line: a ``Report`` that writes to ``path``, or to stderr if ``path`` is empty or
    ``-``.

    With ``json`` each record is a line of JSON, see :func:`json_record`. If the application has added handlers to the
    logger ``kirsch`` and no path is set, those handlers are used. Raises OSError if the file cannot be opened.
    """

    def __init__(self, path: str = "", level: int = INFO, *, json: bool = False) -> None:
        from kirsch._native import LogWriter

        self._path = "" if path in ("", "-") else os.path.abspath(path)
        self._level = level
        self._json = json
        self._handler: logging.Handler | None = None
        # If there was no stderr at the start, descriptor 2 may belong to any other file, such as a client's connection.
        self._writer = LogWriter(self._path or ("" if sys.stderr is not None else os.devnull), json=json)

    def __call__(self, level: int, message: str, error: BaseException | None = None) -> None:
        if level < self._level:
            return
        logger = self._logger()
        # dictConfig(disable_existing_loggers=True), the default and Django's choice, must not disable this logger.
        logger.disabled = False
        try:
            if self._handler is None:
                logger.log(level, message, exc_info=_exc_info(error))
            elif level >= logger.level:
                # A record that is handled directly is not suppressed by logging.disable().
                logger.handle(logger.makeRecord(logger.name, level, "", 0, message, (), _exc_info(error)))
        except (Exception, SystemExit) as failure:  # noqa: BLE001 - of a handler, of changes to logging, of the error
            self._write_plainly(level, message, error, failure)

    def _write_plainly(self, level: int, message: str, error: BaseException | None, failure: BaseException) -> None:
        """Write a report without ``logging``, which has raised ``failure``, and without the text of ``error``."""
        text = f"{message} (logging it failed: {type(failure).__name__})"
        trace = None if error is None else type(error).__name__
        if self._json:
            self._writer.write(_encode(json_record(level, text, traceback=trace)), PATIENCE)
        else:
            name = level_name(level).upper()
            line = f"[{os.getpid()}] [{name}] {text}\n" + ("" if trace is None else f"{trace}\n")
            self._writer.write(_encode(line), PATIENCE)

    def redirect_stderr(self) -> None:
        """Make :func:`write_stderr` use the writer of this log, if it is on stderr. Then it never blocks on stderr."""
        import atexit

        from kirsch._native import LogWriter

        global _standard_error
        if sys.stderr is not None:
            _standard_error = (
                _StandardError(LogWriter(), False) if self._path else _StandardError(self._writer, self._json)
            )
        atexit.unregister(flush)
        atexit.register(flush)

    def stream(self) -> ErrorStream:
        """Return a stream for the ``wsgi.errors`` of an application."""
        return ErrorStream(self._writer, json=self._json)

    def set_level(self, level: int) -> None:
        """Set the least level that is reported from now on."""
        self._level = level
        if self._handler is not None:
            self._logger().setLevel(level)

    def reopen(self) -> None:
        """Reopen the log file after a rotation. Raises OSError, and keeps the old file, if that fails."""
        self._writer.reopen()

    def _logger(self) -> logging.Logger:
        import logging

        logger = logging.getLogger("kirsch")
        if self._handler is None and (self._path or not logger.handlers):
            self._handler = _writer_handler(self._writer, json=self._json)
            logger.addHandler(self._handler)
            logger.propagate = False
            logger.setLevel(self._level)
        return logger


def _writer_handler(writer: LogWriter, *, json: bool) -> logging.Handler:
    """Return a handler that writes each record at once.

    It has no buffer, because a report may come from a signal handler that interrupted another report, and Python's
    buffered streams do not allow reentrant calls.
    """
    import logging

    class JsonFormatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            trace = self.formatException(record.exc_info) if record.exc_info else None
            return json_record(record.levelno, record.getMessage(), created=record.created, traceback=trace)[:-1]

    class WriterHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            writer.write(_encode(self.format(record) + "\n"), PATIENCE)

    text = logging.Formatter("[%(asctime)s] [%(process)d] [%(levelname)s] %(message)s", "%Y-%m-%d %H:%M:%S %z")
    handler = WriterHandler()
    handler.setFormatter(JsonFormatter() if json else text)
    # Access lines have a format and a destination of their own.
    handler.addFilter(lambda record: not record.name.startswith("kirsch.access"))
    return handler


# The length in characters at which a line without an end is split.
_PARTIAL_MAX = 1 << 16


class ErrorStream(io.TextIOBase):
    """``environ["wsgi.errors"]``: a text stream whose lines go to the error log, as they are or as JSON.

    The text of a thread is buffered until the line ends or the thread calls ``flush()``, so lines of concurrent
    requests do not mix. Writing never blocks for long, and raises nothing if the log cannot be written.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, writer: LogWriter, *, json: bool) -> None:
        self._writer = writer
        self._json = json
        self._partial: dict[int, str] = {}

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"wsgi.errors takes str, and not {type(text).__name__}")
        thread = get_ident()
        before = self._partial.pop(thread, "")
        lines, end, rest = (before + text).rpartition("\n")
        if len(rest) > _PARTIAL_MAX:
            lines, end, rest = lines + end + rest, "\n", ""
        if rest:
            self._partial[thread] = rest
        if end:
            self._put(lines)
        return len(text)

    def writelines(self, lines: Any) -> None:
        self.write("".join(lines))

    def flush(self) -> None:
        rest = self._partial.pop(get_ident(), "")
        if rest:
            # End the line, so that the output of another process does not continue it.
            self._put(rest)

    def close(self) -> None:
        """Flush; do not close the server's log."""
        self.flush()

    def _put(self, lines: str) -> None:
        records = (json_record(ERROR, line) for line in lines.split("\n"))
        self._writer.write(_encode("".join(records) if self._json else f"{lines}\n"), PATIENCE)


def access_logger(
    *, stdout_by_default: bool, start_thread: Callable[[Callable[[], None], tuple[()]], object] | None
) -> Callable[[str, dict[str, str]], None]:
    """Return a callable ``(line, atoms)`` for the engine: each access line becomes an INFO record of ``kirsch.access``.

    ``atoms`` is the record's attribute ``kirsch``. The user configures the handlers; with ``stdout_by_default``, plain
    lines go to stdout if there is no handler. The level is set to INFO only if it is unset, because logging drops INFO
    by default. With ``start_thread`` the handlers run in a separate thread, so that a slow handler does not delay
    requests.
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

    return log_access if start_thread is None else AccessThread(log_access, start_thread)


class AccessThread:
    """A thread that calls ``log_access`` for each access line. It starts with the first line.

    If ``MOST`` lines are queued, further lines are dropped and counted.
    """

    MOST = 10_000

    def __init__(
        self,
        log_access: Callable[[str, dict[str, str]], None],
        start_thread: Callable[[Callable[[], None], tuple[()]], object],
    ) -> None:
        from _queue import SimpleQueue

        self._log_access = log_access
        self._start_thread = start_thread
        self._lines: SimpleQueue[tuple[str, dict[str, str]] | Callable[[], None]] = SimpleQueue()
        self._started = False
        self._busy_since: float | None = None
        self.dropped = 0

    def __call__(self, line: str, atoms: dict[str, str]) -> None:
        if self._lines.qsize() >= self.MOST:
            self.dropped += 1
            _count_dropped()
            return
        self._lines.put((line, atoms))
        if not self._started:
            self._started = True
            self._start_thread(self._run, ())

    def flush(self, patience: float) -> bool:
        """Wait up to ``patience`` seconds until the handlers have processed all lines; return whether they have."""
        if not self._started:
            return True
        busy_since = self._busy_since
        if busy_since is not None and monotonic() - busy_since > _STUCK_SECONDS:
            patience = min(patience, PATIENCE)
        done = allocate_lock()
        done.acquire()
        self._lines.put(done.release)
        return done.acquire(timeout=patience)

    def _run(self) -> None:
        while True:
            item = self._lines.get()
            if callable(item):
                item()
                continue
            dropped, self.dropped = self.dropped, 0
            self._busy_since = monotonic()
            try:
                if dropped:
                    report_to_logging(
                        WARNING, f"{dropped} access lines were dropped: logger kirsch.access is too slow", None
                    )
                self._log_access(*item)
            except Exception as error:  # noqa: BLE001 - handlers are the user's, and the next line may be luckier
                write_traceback(error)
            self._busy_since = None


def _count_dropped() -> None:
    from kirsch import _native

    _native.count_dropped_line()
