"""Requests for comparing servers: from a recording (``kirsch.adopt.recording``), any access log, or a list."""

from __future__ import annotations

import re

from kirsch.adopt import recording
from kirsch.adopt.adoption import AdoptError
from kirsch.adopt.recording import Recorded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The request in a line of an access log. Times are not needed, and uvicorn's log has none.
_LOGGED = re.compile(r'"([A-Z]+) (\S+) HTTP/[\d.]+"')

_LISTED = re.compile(r"(?:([A-Z]+)\s+)?(/\S*)(?:\s+(.*))?")

SAFE = ("GET", "HEAD", "OPTIONS")

HOST = "localhost"
"""The Host of the requests."""


def request(method: str, target: str, body: bytes = b"") -> Recorded:
    """Return a request without header fields or time."""
    return Recorded(0.0, method, target, (), body, None)


def read(path: str) -> list[Recorded]:
    """Return the distinct requests of a file, in order. Raises AdoptError and OSError."""
    try:
        with recording.opened(path) as file:
            first = file.readline()
            is_record = first.lstrip().startswith("{")
            found = [] if is_record else list(_of_lines([first, *file]))
        if is_record:
            found = recording.read(path, HOST).requests
    except recording.RecordingError as error:
        raise AdoptError(str(error)) from None
    if not found:
        raise AdoptError(f"{path} has no request: write a HAR file, an access log, or lines such as GET /path")
    return list(dict.fromkeys(each._replace(at=0.0, status=None) for each in found))


def _of_lines(lines: Iterable[str]) -> Iterator[Recorded]:
    for line in map(str.strip, lines):
        if not line or line.startswith("#"):
            continue
        logged = _LOGGED.search(line)
        if logged is not None:
            yield request(logged[1], logged[2])
            continue
        listed = _LISTED.fullmatch(line)
        if listed is not None:
            yield request(listed[1] or "GET", listed[2], (listed[3] or "").encode())
