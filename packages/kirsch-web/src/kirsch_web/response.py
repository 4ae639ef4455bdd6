"""Responses, which a handler may return instead of plain data, and the conversion of both to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kirsch_web.errors import status_line
from kirsch_web.fields import Headers, set_cookie

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
BYTES = "application/octet-stream"

NO_CONTENT = frozenset((204, 205, 304))


class Response:
    """A status, header fields and a body. A handler returns one, or changes ``request.response``.

    Args:
        body: bytes, text (UTF-8), or an iterable of either, which is streamed. Anything else becomes JSON.
        status: 200 to 599.
        type: the Content-Type; default: the one that suits the body's Python type.
        headers: further header fields.
    """

    def __init__(
        self,
        body: object = b"",
        status: int = 200,
        *,
        type: str = "",  # noqa: A002 - the name that reads best where it is called
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        status_line(status)
        self.status = status
        self.headers = Headers(headers)
        self.body: bytes | Iterable[bytes | str] = b""
        if type:
            self.headers["Content-Type"] = type
        if body != b"":
            self.set_body(body)

    def set_body(self, body: object) -> None:
        """Set the body from a value that a handler may return, and the Content-Type unless it is already set."""
        content, content_type = to_body(body)
        self.body = content
        if content_type and "Content-Type" not in self.headers:
            self.headers.add("Content-Type", content_type)

    @property
    def streams(self) -> bool:
        """True if the body is sent part by part while it is made."""
        return not isinstance(self.body, bytes)

    def set_cookie(self, name: str, value: str, **options: Any) -> None:
        """Set a cookie. The options are those of :func:`kirsch_web.fields.set_cookie`; their defaults are safe."""
        self.headers.add("Set-Cookie", set_cookie(name, value, **options))

    def delete_cookie(self, name: str, **options: Any) -> None:
        """Make the client delete a cookie. ``path`` and ``domain`` must be those with which the cookie was set."""
        self.headers.add("Set-Cookie", set_cookie(name, "", max_age=0, **options))

    def collapse(self) -> bytes:
        """Return the whole body as bytes. A streamed body is read to its end and closed, and replaced by the bytes."""
        if not isinstance(self.body, bytes):
            iterable = self.body
            try:
                self.body = b"".join(part.encode() if isinstance(part, str) else part for part in iterable)
            finally:
                close(iterable)
        return self.body

    def __repr__(self) -> str:
        return f"<Response {status_line(self.status)}>"


def close(body: object) -> None:
    """Close a body, or what makes its parts, if it can be closed."""
    method = getattr(body, "close", None)
    if method is not None:
        method()


def to_body(value: object) -> tuple[bytes | Iterable[bytes | str], str]:
    """Return the body and the Content-Type for the value that a handler returned."""
    if isinstance(value, str):
        return value.encode(), HTML
    if isinstance(value, bytes):
        return value, BYTES
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value), BYTES
    if isinstance(value, StreamBody):
        return value, value.content_type
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return value, HTML  # type: ignore[return-value]
    return (FileBody(value), BYTES) if hasattr(value, "read") else (encode_json(value), JSON)


class StreamBody(ABC):
    """A streamed body that states its media type."""

    content_type = HTML

    @abstractmethod
    def __iter__(self) -> Iterator[bytes | str]:
        """Return the body, part by part."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Release what the body holds. The server calls it when it stops reading the body."""


class FileBody(StreamBody):
    """The content of a file as a body: from the file's current position, at most ``length`` bytes."""

    content_type = BYTES
    BLOCK = 256 * 1024

    def __init__(self, file: Any, length: int | None = None) -> None:
        self.file = file
        self.length = length

    def __iter__(self) -> FileBody:
        return self

    def __next__(self) -> bytes:
        size = self.BLOCK if self.length is None else min(self.BLOCK, self.length)
        block: bytes = self.file.read(size) if size else b""
        if not block:
            raise StopIteration
        if self.length is not None:
            self.length -= len(block)
        return block

    def close(self) -> None:
        """Close the file."""
        self.file.close()


lengths: dict[int, tuple[list[tuple[str, str]], list[tuple[bytes, bytes]]]] = {}
"""The Content-Length field of each length below 4096 that was used, for WSGI and for ASGI."""


def length_fields(length: int) -> tuple[list[tuple[str, str]], list[tuple[bytes, bytes]]]:
    """Return the Content-Length field for WSGI and for ASGI. A request looks into ``lengths`` first, without a call."""
    value = str(length)
    found = [("Content-Length", value)], [(b"content-length", value.encode())]
    if length < 4096:
        lengths[length] = found
    return found


_encode: Any = None


def encode_json(value: object) -> bytes:
    """Return ``value`` as JSON in UTF-8. Raises TypeError if it has no JSON form, ValueError for NaN and infinity."""
    encoded: str = (_encode or _make_encoder())(value)
    return encoded.encode()


def _make_encoder() -> Any:
    """Set and return ``_encode``, the standard library's encoder; in CPython with one C encoder for all values."""
    global _encode
    from json import encoder

    make = getattr(encoder, "c_make_encoder", None)
    if make is None:  # PyPy
        _encode = encoder.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain, check_circular=False
        ).encode
    else:
        inner = make(None, _plain, encoder.encode_basestring, None, ":", ",", False, False, False)
        _encode = lambda value: "".join(inner(value, 0))  # noqa: E731 - one of two ways to make it
    return _encode


def _plain(value: Any) -> Any:
    """Return an object in types that JSON has: the fields of a record, the text of a date, the items of a set."""
    from kirsch_web.convert import foreign_record, record_fields

    cls: Any = type(value)
    foreign = foreign_record(cls)
    if foreign is not None:  # the model's own rules decide on names, tags and fields to leave out
        return foreign.to_builtins(value, _plain)
    fields = record_fields(cls)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    name = type(value).__module__
    if name == "datetime" and hasattr(value, "isoformat"):
        return value.isoformat()
    if name in ("uuid", "decimal", "_decimal", "ipaddress"):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value) if all(isinstance(each, str) for each in value) else list(value)
    if hasattr(type(value), "__members__"):  # an enum that is no subclass of str, int or float
        return value.value
    if hasattr(value, "__json__"):
        return value.__json__()
    if hasattr(value, "__await__"):
        value.close()
        raise TypeError("an asynchronous handler needs ASGI: serve web.ASGI(app)")
    raise TypeError(f"a {type(value).__name__} has no JSON form; return a dict, a dataclass, or a Response")


def json(value: object, status: int = 200, *, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Return a response whose body is ``value`` as JSON. A str becomes a JSON string, not HTML."""
    return Response(encode_json(value), status, type=JSON, headers=headers)


def text(value: str, status: int = 200, *, headers: Iterable[tuple[str, str]] = ()) -> Response:
    """Return a response of plain text."""
    return Response(value, status, type=TEXT, headers=headers)


def created(value: object = None, *, at: str) -> Response:
    """Return a response 201 Created. ``at`` is the new resource's URL; ``value``, if given, becomes the body."""
    response = Response(b"", 201, headers=[("Location", at)])
    if value is not None:
        response.set_body(value)
    return response
