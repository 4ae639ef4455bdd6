"""Compressing a response with gzip, for the tool of that name."""

from __future__ import annotations

from kirsch_web.fields import media_type, qualities

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from kirsch_web.request import Request


def compress_response(request: Request, level: int, least: int, types: tuple[str, ...]) -> None:
    """Compress the response where it is of ``types``, ``least`` bytes or more, and the client takes gzip."""
    response = request.response
    name = media_type(response.headers.get("Content-Type"))[0]
    fits = name in types or f"{name.partition('/')[0]}/*" in types
    # Events must not wait in a compressor's window, and a part of a file is a part of what it was.
    if not fits or name == "text/event-stream" or response.status in (204, 206, 304) or response.status < 200:
        return
    if isinstance(response.body, bytes) and len(response.body) < least:
        return
    if "Content-Encoding" in response.headers or "no-transform" in response.headers.get("Cache-Control"):
        return
    response.headers.vary("Accept-Encoding")
    if not accepts_gzip(request.headers.get("Accept-Encoding")):
        return
    if isinstance(response.body, bytes):
        import gzip

        response.body = gzip.compress(response.body, level, mtime=0)
    else:
        response.body = _Compressed(response.body, level)
    response.headers["Content-Encoding"] = "gzip"
    response.headers.remove("Content-Length")
    etag = response.headers.get("ETag")
    if etag and not etag.startswith("W/"):  # the bytes are others now
        response.headers["ETag"] = "W/" + etag


def accepts_gzip(value: str) -> bool:
    """Whether an Accept-Encoding takes gzip."""
    found = dict(qualities(value))
    return found.get("gzip", found.get("x-gzip", found.get("*", 0.0))) > 0


class _Compressed:
    """A stream, compressed; each part can be read by the client when it is sent."""

    def __init__(self, body: Iterable[bytes | str], level: int) -> None:
        self._body = body
        self._level = level

    def __iter__(self) -> Iterator[bytes]:
        import zlib

        compressor: Any = zlib.compressobj(self._level, zlib.DEFLATED, 31)
        for part in self._body:
            data = compressor.compress(part.encode() if isinstance(part, str) else part)
            yield data + compressor.flush(zlib.Z_SYNC_FLUSH)
        yield compressor.flush()

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()
