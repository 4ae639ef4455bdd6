"""Requests to replay: from a HAR file of a browser, from an access log, or from a list."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

from kirsch.adopt.adoption import AdoptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Fields that belong to a connection, or that the client makes itself.
_OWN = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive", "upgrade"}

# The request within a line of an access log of Apache, nginx, gunicorn or uvicorn.
_LOGGED = re.compile(r'"([A-Z]+) (\S+) HTTP/[\d.]+"')

_LISTED = re.compile(r"(?:([A-Z]+)\s+)?(/\S*)(?:\s+(.*))?")

SAFE = ("GET", "HEAD", "OPTIONS")


class RecordedRequest:
    """One request: its method, its target, its header fields and its body."""

    __slots__ = ("body", "fields", "method", "target")

    def __init__(self, method: str, target: str, fields: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.method = method
        self.target = target
        self.fields = fields or {}
        self.body = body

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


def read(path: str) -> list[RecordedRequest]:
    """Return the requests of a file, each once, in their order. Raises AdoptError and OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    found = list(_of_har(text, path) if text.lstrip().startswith("{") else _of_lines(text))
    if not found:
        raise AdoptError(f"{path} has no request: write a HAR file, an access log, or lines such as GET /path")
    unique = {(str(each), each.body, tuple(each.fields.items())): each for each in found}
    return list(unique.values())


def _of_har(text: str, path: str) -> Iterator[RecordedRequest]:
    try:
        entries: list[dict[str, Any]] = json.loads(text)["log"]["entries"]
        for entry in entries:
            request = entry["request"]
            parts = urlsplit(request["url"])
            target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
            fields = {
                field["name"]: field["value"]
                for field in request.get("headers", [])
                if field["name"].lower() not in _OWN and not field["name"].startswith(":")
            }
            body = request.get("postData", {}).get("text", "").encode()
            yield RecordedRequest(request["method"], target, fields, body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AdoptError(f"{path} is not a HAR file: {type(error).__name__}: {error}") from None


def _of_lines(text: str) -> Iterator[RecordedRequest]:
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        logged = _LOGGED.search(line)
        if logged is not None:
            yield RecordedRequest(logged[1], logged[2])
            continue
        listed = _LISTED.fullmatch(line)
        if listed is not None:
            yield RecordedRequest(listed[1] or "GET", listed[2], body=(listed[3] or "").encode())
