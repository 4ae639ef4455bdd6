"""The error log and access log of an application, based on the standard library's logging."""

from __future__ import annotations

import datetime
import logging
import os
import sys
from typing import Any

from kirsch_cherrypy import _local


class WSGIErrorHandler(logging.Handler):
    """A logging handler that writes to ``wsgi.errors`` of the current request."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, if there is a current request."""
        stream = _local.current().request.wsgi_environ.get("wsgi.errors")
        if stream is not None:
            try:
                stream.write(self.format(record) + "\n")
                stream.flush()
            except Exception:  # noqa: BLE001 - as the handlers of logging do
                self.handleError(record)


class LogManager:
    """An error log and an access log. ``screen``, ``wsgi``, ``error_file`` and ``access_file`` set their targets.

    Calling the object writes to the error log.
    """

    access_log_format = '{h} {l} {u} {t} "{r}" {s} {b} "{f}" "{a}"'

    def __init__(self, appid: Any = None, logger_root: str = "cherrypy") -> None:
        self.logger_root, self.appid = logger_root, appid
        suffix = "" if appid is None else f".{appid}"
        self.error_log = logging.getLogger(f"{logger_root}.error{suffix}")
        self.access_log = logging.getLogger(f"{logger_root}.access{suffix}")
        for log in (self.error_log, self.access_log):
            log.setLevel(logging.INFO)
            if appid is None:
                log.addHandler(logging.NullHandler())

    def reopen_files(self) -> None:
        """Close the log files, for example after they were renamed. The next message reopens them."""
        for handler in (*self.error_log.handlers, *self.access_log.handlers):
            if isinstance(handler, logging.FileHandler):
                handler.close()

    def error(self, msg: str = "", context: str = "", severity: int = logging.INFO, traceback: bool = False) -> None:
        """Write to the error log, with the traceback of the current exception if ``traceback``."""
        exc_info = sys.exc_info() if traceback else None
        self.error_log.log(severity, f"{self.time()} {context} {msg}".rstrip(), exc_info=exc_info)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.error(*args, **kwargs)

    def access_if_listened(self) -> None:
        """Write the access log line if a handler is installed: formatting it costs as much as a small response."""
        log: logging.Logger | None = self.access_log if self.access_log.isEnabledFor(logging.INFO) else None
        while log is not None:
            for handler in log.handlers:
                if type(handler).__name__ != "NullHandler":  # of logging, or of another library
                    self.access()
                    return
            log = log.parent if log.propagate else None

    def access(self) -> None:
        """Write the access log line of the current request."""
        try:
            self.access_log.log(logging.INFO, self.access_log_format.format_map(_Atoms(self)))
        except Exception:  # noqa: BLE001 - a wrong format must not fail the request
            self(traceback=True)

    @staticmethod
    def time() -> str:
        """Return the local time in the format of the access log."""
        return f"{datetime.datetime.now():[%d/%b/%Y:%H:%M:%S]}"

    error_file = property(
        lambda self: getattr(_handler_of(self.error_log, "file"), "baseFilename", ""),
        lambda self, path: _write_to(self.error_log, "file", path),
        doc="The file of the error log; empty: none.",
    )
    access_file = property(
        lambda self: getattr(_handler_of(self.access_log, "file"), "baseFilename", ""),
        lambda self, path: _write_to(self.access_log, "file", path),
        doc="The file of the access log; empty: none.",
    )
    wsgi = property(
        lambda self: _handler_of(self.error_log, "wsgi") is not None,
        lambda self, on: _write_to(self.error_log, "wsgi", on),
        doc="Whether errors go to the server's ``wsgi.errors``.",
    )

    def _set_screen(self, on: bool) -> None:
        _write_to(self.error_log, "screen", on and sys.stderr)
        _write_to(self.access_log, "screen", on and sys.stdout)

    screen = property(
        lambda self: _handler_of(self.error_log, "screen") is not None,
        _set_screen,
        doc="Whether errors go to stderr and accesses to stdout.",
    )


_KINDS: dict[str, Any] = {
    "file": lambda path: logging.FileHandler(str(path), encoding="utf-8"),
    "screen": logging.StreamHandler,
    "wsgi": lambda _on: WSGIErrorHandler(),
}


def _handler_of(log: logging.Logger, kind: str) -> Any:
    """Return the handler of ``kind`` that the configuration added, or None."""
    return next((each for each in log.handlers if each.name == f"cherrypy.{kind}"), None)


def _write_to(log: logging.Logger, kind: str, target: Any) -> None:
    """Replace the handler of ``kind`` by one for ``target``. Only remove it if there is no target."""
    present = _handler_of(log, kind)
    if present:
        if target and getattr(present, "baseFilename", None) == os.path.abspath(str(target)):
            return
        log.removeHandler(present)
        present.close()  # leaves stdout and stderr open
    if target:
        handler = _KINDS[kind](target)
        handler.name = f"cherrypy.{kind}"
        log.addHandler(handler)


_ATOMS: dict[str, Any] = {
    "h": lambda request, _: request.remote.name or request.remote.ip,
    "l": lambda *_: "-",
    "u": lambda request, _: request.login or "-",
    "r": lambda request, _: request.request_line,
    "s": lambda _, response: response.output_status.partition(b" ")[0].decode("latin-1") or "-",
    "b": lambda _, response: response.headers.get("Content-Length") or "-",
    "f": lambda request, _: request.headers.get("Referer", ""),
    "a": lambda request, _: request.headers.get("User-Agent", ""),
    "o": lambda request, _: request.headers.get("Host", "-"),
    "i": lambda request, _: request.unique_id,
    "z": lambda *_: LazyRfc3339UtcTime(),
}
"""The names that the format of the access log may use."""


class _Atoms(dict[str, str]):
    """The values of the current request for the access log format, computed on demand."""

    def __init__(self, log: LogManager) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, name: str) -> str:
        if name == "t":
            return self._log.time()  # a program may override it
        frame = _local.current()
        return _escaped(str(_ATOMS[name](frame.request, frame.response)))


def _escaped(text: str) -> str:
    """Escape a text like Apache, so that it cannot start a new line or end a quoted string in the log."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
    # Bytes beyond ASCII as \xNN, control characters as \n; the backslash as it is.
    shown = repr(text.encode("utf-8", "surrogateescape"))[2:-1]
    return shown.replace("\\\\", "\\").replace("\\'", "'").replace('"', '\\"')


class LazyRfc3339UtcTime:
    """The current UTC time in the format of RFC 3339, computed by ``str()``."""

    def __str__(self) -> str:
        moment = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        return moment.isoformat("T", "seconds") + "Z"
