"""Readers of recorded requests that are sent again: HAR files of browsers and proxies, and access logs.

A HAR file (version 1.2) has whole requests with their times in milliseconds. An access log, in the common or combined
format or in Kirsch's JSON, has the request line, the status, and usually Referer and User-Agent. Requests that cannot
be repeated, for example because their body is not recorded, are omitted and counted.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Fields = tuple[tuple[str, str], ...]

HAR = "HAR file"

_ENTRIES_MAX = 1_000_000
_BYTES_MAX = 1 << 28  # the limit for a HAR file, which is read as a whole

_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})

# Hop-by-hop header fields, and fields that the load generator writes itself. They are not repeated.
_OWN_FIELDS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer", "expect",
     "proxy-connection", "http2-settings"}
)  # fmt: skip

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_TARGET = re.compile(r"/[!-\"$-~]*")

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LOGGED = re.compile(rf"\S+ \S+ .*?\[([^\]]+)\] {_QUOTED} (\d{{3}}) \S+(?: {_QUOTED} {_QUOTED})?")
_LINE = re.compile(r"([A-Z]+) (\S+)(?: HTTP/\d(?:\.\d)?)?")
_ESCAPED = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|(.))")


class Recorded(NamedTuple):
    """One recorded request. ``at`` is in seconds since 1970; ``status`` is the recorded response's, or None."""

    at: float
    method: str
    target: str
    fields: Fields
    body: bytes | None
    status: int | None


@dataclass
class Recording:
    """Requests in the order of their times, and the number of omitted requests by reason."""

    path: str
    kind: str
    requests: list[Recorded] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count requests that are omitted."""
        self.left_out[reason] += count


class RecordingError(Exception):
    """Raised for a file without requests to send. The message names the file."""


class _Unusable(Exception):
    """Raised for a request that cannot be sent. ``args`` is the reason, for reports."""


def read(path: str, authority: str, host: str | None = None) -> Recording:
    """Read a file of one of the formats, or such a file compressed with gzip (``.gz``).

    ``authority`` is the server to which the requests will be sent. ``host`` selects requests by their recorded host;
    None means the host of the first request in a HAR file. Raises RecordingError.
    """
    try:
        with opened(path) as file:
            first = file.readline().lstrip()
            if first.startswith("{") and '"time"' in first:
                recording = Recording(path, "Kirsch's JSON access log")
                _read_lines(recording, _chain(first, file), lambda line: _of_json_line(line, host))
            elif first.startswith("{"):
                recording = Recording(path, HAR)
                _read_har(recording, first + file.read(_BYTES_MAX), authority, host)
            else:
                recording = Recording(path, "access log")
                _read_lines(recording, _chain(first, file), _of_log_line)
                _spread(recording)
    except (OSError, EOFError) as error:
        raise RecordingError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    recording.requests.sort(key=lambda request: request.at)
    if not recording.requests:
        left_out = "; ".join(f"{count:,} {reason}" for reason, count in recording.left_out.items())
        raise RecordingError(f"{path} has no request to send ({left_out or 'it is empty'})")
    return recording


def opened(path: str) -> IO[str]:
    """Open a text file, or one compressed with gzip (``.gz``). Raises OSError."""
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="surrogateescape")
    return open(path, encoding="utf-8", errors="surrogateescape")


def _chain(first: str, file: IO[str]) -> Iterator[str]:
    yield first
    yield from file


# ------------------------------------------------------------------------------------------------------- access logs


def _read_lines(recording: Recording, lines: Iterable[str], parse: Any) -> None:
    for line in lines:
        if not line.strip():
            continue
        try:
            recording.requests.append(parse(line))
        except _Unusable as reason:
            recording.leave_out(str(reason))
        if len(recording.requests) > _ENTRIES_MAX:
            raise RecordingError(f"{recording.path} has more than {_ENTRIES_MAX:,} requests; give a part of it")


def _of_log_line(line: str) -> Recorded:
    match = _LOGGED.match(line)
    if match is None:
        raise _Unusable("line not of the common or combined format")
    time, request, status, referer, agent = match.groups()
    parts = _LINE.fullmatch(_unescaped(request))
    if parts is None:
        raise _Unusable("no request line")
    at = _log_time(time)
    if at is None:
        raise _Unusable("no time such as 10/Oct/2026:13:55:36 +0000")
    fields = (("Referer", referer), ("User-Agent", agent))
    return _logged(at, parts[1], parts[2], int(status), fields)


@functools.lru_cache(maxsize=1024)
def _log_time(text: str) -> float | None:
    """Return a log's time in seconds since 1970; None if it is no time. Cached, because many lines have the same
    time."""
    try:
        return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z").timestamp()
    except ValueError:
        return None


def _of_json_line(line: str, host: str | None) -> Recorded:
    try:
        entry = json.loads(line)
        at = _timestamp(entry["time"])
        query = entry["query"]
        target = entry["path"] + (f"?{query}" if query else "")
        status, method = int(entry["status"]), str(entry["method"])
    except (ValueError, KeyError, TypeError):
        raise _Unusable("line not of Kirsch's JSON format") from None
    if host is not None and entry.get("host") != host:
        raise _Unusable("for another host")
    fields = (("Referer", entry.get("referer")), ("User-Agent", entry.get("user_agent")))
    return _logged(at, method, target, status, fields)


def _logged(at: float, method: str, target: str, status: int, fields: Iterable[tuple[str, str | None]]) -> Recorded:
    """Return a request from a log, which has no bodies. Raises _Unusable."""
    if method in _WITH_BODY:
        raise _Unusable(f"{method}, whose body a log does not have")
    _check(method, target, status)
    given = ((name, _unescaped(value)) for name, value in fields if value and value != "-")
    return Recorded(at, method, target, tuple(each for each in given if _VALUE.fullmatch(each[1])), None, status)


def _check(method: str, target: str, status: int | None) -> None:
    if status == 101:
        raise _Unusable("WebSocket")
    if not _TARGET.fullmatch(target) or not _NAME.fullmatch(method):
        raise _Unusable("target that is no path")


def _unescaped(text: str) -> str:
    """Decode the escapes of logs: a backslash before a quote or a backslash, and the letter x with two hex digits."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[2], text)


def _spread(recording: Recording) -> None:
    """Spread requests with the same time evenly over one second, because the log has only whole seconds."""
    recording.requests.sort(key=lambda request: request.at)
    spread: list[Recorded] = []
    for at, group in groupby(recording.requests, key=lambda request: request.at):
        same = list(group)
        spread += [each._replace(at=at + index / len(same)) for index, each in enumerate(same)]
    recording.requests = spread


# ----------------------------------------------------------------------------------------------------------------- HAR


def _read_har(recording: Recording, text: str, authority: str, host: str | None) -> None:
    try:
        entries = json.loads(text)["log"]["entries"]
        for entry in entries:
            url = urlsplit(entry["request"]["url"])
            if host is None and url.scheme in ("http", "https"):
                host = url.netloc
            try:
                recording.requests.append(_of_har(entry, authority, is_wanted=url.netloc == host))
            except _Unusable as reason:
                recording.leave_out(str(reason))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{recording.path} is no HAR file: {type(error).__name__}: {error}") from None


def _of_har(entry: dict[str, Any], authority: str, *, is_wanted: bool) -> Recorded:
    request = entry["request"]
    url = urlsplit(request["url"])
    if url.scheme in ("ws", "wss") or entry.get("_resourceType") == "websocket":
        raise _Unusable("WebSocket")
    if url.scheme not in ("http", "https"):
        raise _Unusable("URL other than http and https")
    if not is_wanted:
        raise _Unusable("for another host")
    if entry.get("_fromCache"):
        raise _Unusable("answered by the browser's cache")
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    status = entry.get("response", {}).get("status") or None
    _check(request["method"], target, status)
    fields = []
    origin = f"{url.scheme}://{url.netloc}"
    for each in request.get("headers", ()):
        name, value = each["name"], each["value"]
        if name.lower() in _OWN_FIELDS or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            continue
        if name.lower() in ("origin", "referer") and (value + "/").startswith(origin + "/"):
            # Applications compare these fields with Host.
            value = f"http://{authority}{value[len(origin) :]}"
        fields.append((name, value))
    at = _timestamp(entry["startedDateTime"])
    return Recorded(at, request["method"], target, tuple(fields), _body(request), status)


def _body(request: dict[str, Any]) -> bytes | None:
    posted = request.get("postData") or {}
    text = posted.get("text")
    if text:
        return base64.b64decode(text) if posted.get("encoding") == "base64" else str(text).encode("utf-8", "replace")
    if posted.get("params") and str(posted.get("mimeType", "")).startswith("application/x-www-form-urlencoded"):
        return urlencode([(each["name"], each.get("value", "")) for each in posted["params"]]).encode()
    length = next(
        (each["value"] for each in request.get("headers", ()) if each["name"].lower() == "content-length"), "0"
    )
    if posted.get("params") or (request.get("bodySize") or 0) > 0 or length not in ("", "0"):
        raise _Unusable("body that is not in the record")
    return b"" if request["method"] in _WITH_BODY else None


def _timestamp(text: str) -> float:
    """Convert a time of RFC 3339 to seconds since 1970. Raises ValueError."""
    # Python 3.10 cannot parse Z or fractions of any length.
    match = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    zone = "+00:00" if match[3] in "Zz" else match[3] if ":" in match[3] else f"{match[3][:3]}:{match[3][3:]}"
    return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)
