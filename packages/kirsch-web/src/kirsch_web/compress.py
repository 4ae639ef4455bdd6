"""Compression of responses for the tool ``gzip``: with zstd (RFC 8878) if client and Python support it, else gzip.

Python includes zstd since 3.14; with older versions the package ``backports.zstd`` is used if it is installed.
"""

from __future__ import annotations

from kirsch_web.fields import media_type, qualities
from kirsch_web.response import NO_CONTENT, close

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from typing import Any

    from kirsch_web.request import Request


def compress_response(request: Request, level: int, least: int, types: tuple[str, ...]) -> None:
    """Compress a response of one of ``types`` with at least ``least`` bytes, if the client accepts gzip or zstd."""
    response = request.response
    if response.status == 304:
        _not_modified(request)
        return
    name = media_type(response.headers.get("Content-Type"))[0]
    fits = name in types or f"{name.partition('/')[0]}/*" in types
    # Events must not be delayed in the compressor's buffer.
    if not fits or name == "text/event-stream" or response.status in NO_CONTENT or response.status < 200:
        return
    if isinstance(response.body, bytes) and len(response.body) < least:
        return
    if "Content-Encoding" in response.headers or "no-transform" in response.headers.get("Cache-Control"):
        return
    response.headers.vary("Accept-Encoding")
    encoding = chosen_encoding(request.headers.get("Accept-Encoding"))
    if not encoding or response.status == 206:  # byte ranges refer to the uncompressed file
        return
    if not isinstance(response.body, bytes):
        kind = _CompressedLater if hasattr(response.body, "__aiter__") else Compressed
        response.body = kind(response.body, encoding, level)
    elif encoding == "zstd":
        response.body = zstd().compress(response.body, ZSTD_LEVEL)
    else:
        import gzip

        response.body = gzip.compress(response.body, level, mtime=0)
    response.headers["Content-Encoding"] = encoding
    response.headers.remove("Content-Length")
    etag = response.headers.get("ETag")
    if etag and not etag.startswith("W/"):  # a strong ETag names exact bytes, which differ now
        response.headers["ETag"] = "W/" + etag


def _not_modified(request: Request) -> None:
    """Set Vary and ETag of a 304 as the 200 has them (RFC 9110, 15.4.5); otherwise caches do not match the two."""
    headers = request.response.headers
    headers.vary("Accept-Encoding")
    etag = headers.get("ETag")
    if etag and f"W/{etag}" in request.headers.get("If-None-Match"):
        headers["ETag"] = f"W/{etag}"


ZSTD_LEVEL = 3
"""The compression level, 1 to 22. At 3, text becomes smaller than at gzip's default level, in less time."""

_zstd: list[Any] = []


def zstd() -> Any:
    """Return the module for zstd, or None if none is installed."""
    if not _zstd:
        from importlib import import_module

        for name in ("compression.zstd", "backports.zstd"):
            try:
                _zstd.append(import_module(name))
                break
            except ImportError:
                continue
        else:
            _zstd.append(None)
    return _zstd[0]


def chosen_encoding(value: str) -> str:
    """Return the coding to use for an Accept-Encoding field: the one with the higher quality; zstd if both are equal;
    an empty string if neither is accepted. ``*`` selects gzip, which every client that sends it can decode."""
    found = dict(qualities(value))
    gzip = found.get("gzip", found.get("x-gzip", found.get("*", 0.0)))
    if found.get("zstd", 0.0) > 0 and found["zstd"] >= gzip and zstd() is not None:
        return "zstd"
    return "gzip" if gzip > 0 else ""


class Compressed:
    """A compressed stream. The compressor is flushed after each part, so the client can decode each part at once."""

    def __init__(self, body: Any, encoding: str, level: int) -> None:
        self._body = body
        self._encoding = encoding
        self._level = level

    def _compressor(self) -> tuple[Callable[[bytes | str], bytes], Callable[[], bytes]]:
        """Return two functions: one compresses and flushes a part, and the other returns the end of the stream."""
        if self._encoding == "zstd":
            compressor: Any = zstd().ZstdCompressor(ZSTD_LEVEL)
            flush = compressor.FLUSH_BLOCK
        else:
            import zlib

            compressor = zlib.compressobj(self._level, zlib.DEFLATED, 31)
            flush = zlib.Z_SYNC_FLUSH

        def compress(part: bytes | str) -> bytes:
            data: bytes = compressor.compress(part.encode() if isinstance(part, str) else part)
            return data + compressor.flush(flush)  # type: ignore[no-any-return]

        return compress, compressor.flush

    def __iter__(self) -> Iterator[bytes]:
        compress, end = self._compressor()
        for part in self._body:
            yield compress(part)
        yield end()

    def close(self) -> None:
        """Close the body at the end of the response."""
        close(self._body)


class _CompressedLater(Compressed):
    """A compressed stream whose parts come from an asynchronous generator."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        compress, end = self._compressor()
        async for part in self._body:
            yield compress(part)
        yield end()

    async def aclose(self) -> None:
        """Close the body at the end of the response."""
        await self._body.aclose()
