"""The error log and the access log of an application, through the standard library's logging."""

from __future__ import annotations

import datetime
import logging
import os
import sys
from typing import Any

from kirsch_web.compat.cherrypy import _local

logfmt = logging.Formatter("%(message)s")


class NullHandler(logging.Handler):
    """Keeps the standard library from printing a message that no handler takes."""

    def handle(self, record: logging.LogRecord) -> bool:
        return False

    def emit(self, record: logging.LogRecord) -> None:
        """Do nothing."""

    def createLock(self) -> None:
        self.lock = None


class LogManager:
    """Two loggers, and where they write to: ``log.screen``, ``log.error_file``, ``log.access_file``.

    Calling it writes to the error log.
    """

    appid: Any = None
    access_log_format = '{h} {l} {u} {t} "{r}" {s} {b} "{f}" "{a}"'
    logger_root = ""

    def __init__(self, appid: Any = None, logger_root: str = "cherrypy") -> None:
        self.logger_root = logger_root
        self.appid = appid
        suffix = "" if appid is None else f".{appid}"
        self.error_log = logging.getLogger(f"{logger_root}.error{suffix}")
        self.access_log = logging.getLogger(f"{logger_root}.access{suffix}")
        for log in (self.error_log, self.access_log):
            log.setLevel(logging.INFO)
            if appid is None:
                log.addHandler(NullHandler())

    def reopen_files(self) -> None:
        """Close and open the files again, after they were renamed."""
        for log in (self.error_log, self.access_log):
            for handler in log.handlers:
                if isinstance(handler, logging.FileHandler):
                    handler.close()  # the next message opens it again

    def error(self, msg: str = "", context: str = "", severity: int = logging.INFO, traceback: bool = False) -> None:
        """Write to the error log, with the traceback of the current exception if asked."""
        exc_info = sys.exc_info() if traceback else None
        self.error_log.log(severity, f"{self.time()} {context} {msg}".rstrip(), exc_info=exc_info)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.error(*args, **kwargs)

    def access_if_listened(self) -> None:
        """Write the access line, if a handler takes it: making the line costs as much as a small response."""
        log: logging.Logger | None = self.access_log
        if not self.access_log.isEnabledFor(logging.INFO):
            return
        while log is not None:
            for handler in log.handlers:
                if type(handler).__name__ != "NullHandler":  # ours, logging's, or another library's
                    self.access()
                    return
            log = log.parent if log.propagate else None

    def access(self) -> None:
        """Write the access line of the current request."""
        try:
            self.access_log.log(logging.INFO, self.access_log_format.format_map(_Atoms(self)))
        except Exception:  # noqa: BLE001 - a format that fails must not fail the request
            self(traceback=True)

    @staticmethod
    def time() -> str:
        """The time as the access log has it."""
        return f"{datetime.datetime.now():[%d/%b/%Y:%H:%M:%S]}"

    def _file(self, log: logging.Logger, path: str) -> None:
        for handler in list(log.handlers):
            if getattr(handler, "_cpbuiltin", None) == "file":
                if path and os.path.abspath(path) == handler.baseFilename:  # type: ignore[attr-defined]
                    return
                handler.close()
                log.removeHandler(handler)
        if path:
            made = logging.FileHandler(path, encoding="utf-8")
            made.setFormatter(logfmt)
            made._cpbuiltin = "file"  # type: ignore[attr-defined]
            log.addHandler(made)

    def _path(self, log: logging.Logger) -> str:
        for handler in log.handlers:
            if getattr(handler, "_cpbuiltin", None) == "file":
                return handler.baseFilename  # type: ignore[attr-defined, no-any-return]
        return ""

    error_file = property(
        lambda self: self._path(self.error_log), lambda self, path: self._file(self.error_log, path and str(path)),
        doc="The file of the error log; empty: none.",
    )  # fmt: skip
    access_file = property(
        lambda self: self._path(self.access_log), lambda self, path: self._file(self.access_log, path and str(path)),
        doc="The file of the access log; empty: none.",
    )  # fmt: skip

    @property
    def screen(self) -> bool:
        """Whether errors go to stderr and accesses to stdout."""
        return any(getattr(handler, "_cpbuiltin", None) == "screen" for handler in self.error_log.handlers)

    @screen.setter
    def screen(self, on: bool) -> None:
        for log, stream in ((self.error_log, sys.stderr), (self.access_log, sys.stdout)):
            for handler in list(log.handlers):
                if getattr(handler, "_cpbuiltin", None) == "screen":
                    log.removeHandler(handler)
            if on:
                made = logging.StreamHandler(stream)
                made.setFormatter(logfmt)
                made._cpbuiltin = "screen"  # type: ignore[attr-defined]
                log.addHandler(made)

    @property
    def wsgi(self) -> bool:
        """Whether errors go to the server's ``wsgi.errors``."""
        return any(isinstance(handler, WSGIErrorHandler) for handler in self.error_log.handlers)

    @wsgi.setter
    def wsgi(self, on: bool) -> None:
        for handler in list(self.error_log.handlers):
            if isinstance(handler, WSGIErrorHandler):
                self.error_log.removeHandler(handler)
        if on:
            made = WSGIErrorHandler()
            made.setFormatter(logfmt)
            self.error_log.addHandler(made)


class _Atoms(dict[str, str]):
    """What a format of the access log may name, made when it is asked for."""

    def __init__(self, log: LogManager) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, name: str) -> str:
        frame = _local.current()
        request, response = frame.request, frame.response
        value: Any
        match name:
            case "h":
                value = request.remote.name or request.remote.ip
            case "l":
                value = "-"
            case "u":
                value = getattr(request, "login", None) or "-"
            case "t":
                value = self._log.time()
            case "r":
                value = request.request_line
            case "s":
                value = response.output_status.split(b" ", 1)[0].decode("latin-1") if response.output_status else "-"
            case "b":
                value = dict.get(response.headers, "Content-Length", "") or "-"
            case "f":
                value = request.headers.get("Referer", "")
            case "a":
                value = request.headers.get("User-Agent", "")
            case "o":
                value = request.headers.get("Host", "-")
            case "i":
                value = request.unique_id
            case "z":
                value = LazyRfc3339UtcTime()
            case _:
                raise KeyError(name)
        return _escaped(value)


def _escaped(value: Any) -> str:
    """A value that cannot begin a line or end a quoted string of the log: as Apache escapes it."""
    text = value if isinstance(value, str) else str(value)
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    # Bytes beyond ASCII as \xNN, control characters as \n; the backslash as it is.
    shown = repr(text.encode("utf-8", "surrogateescape"))[2:-1]
    return shown.replace("\\\\", "\\").replace("\\'", "'").replace('"', '\\"')


class WSGIErrorHandler(logging.Handler):
    """Writes to the ``wsgi.errors`` of the current request."""

    def emit(self, record: logging.LogRecord) -> None:
        stream = _local.current().request.wsgi_environ.get("wsgi.errors")
        if stream is not None:
            try:
                stream.write(self.format(record) + "\n")
                stream.flush()
            except Exception:  # noqa: BLE001 - logging's way
                self.handleError(record)


class LazyRfc3339UtcTime:
    """The time as RFC 3339 writes it, made when it is asked for."""

    def __str__(self) -> str:
        # A naive time is UTC's already.
        moment = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        return moment.isoformat("T", "seconds") + "Z"
