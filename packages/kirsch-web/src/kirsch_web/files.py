"""Files as responses, with validators and ranges; and static files, which cannot lie outside of their directory."""

from __future__ import annotations

import errno
import os
import re
import stat

from kirsch_web.errors import HTTPError, NotFound
from kirsch_web.fields import http_date, parse_http_date
from kirsch_web.publishing import SAFE
from kirsch_web.response import BYTES, FileBody, Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kirsch_web.request import Request

_TYPES = {
    ".avif": "image/avif", ".bin": BYTES, ".css": "text/css; charset=utf-8", ".csv": "text/csv; charset=utf-8",
    ".gif": "image/gif", ".htm": "text/html; charset=utf-8", ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "text/javascript; charset=utf-8",
    ".json": "application/json", ".map": "application/json", ".mjs": "text/javascript; charset=utf-8",
    ".mp3": "audio/mpeg", ".mp4": "video/mp4", ".pdf": "application/pdf", ".png": "image/png",
    ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8", ".wasm": "application/wasm",
    ".webm": "video/webm", ".webp": "image/webp", ".woff2": "font/woff2", ".xml": "application/xml",
    ".zip": "application/zip",
}  # fmt: skip


def content_type_of(name: str) -> str:
    """Return the Content-Type of a file by its name."""
    return _TYPES.get(os.path.splitext(name)[1].lower(), BYTES)


def file(path: str, *, request: Request | None = None, type: str = "", download: str = "") -> Response:  # noqa: A002 - as Response has it
    """Return a response with the content of a file. Raises 404 if there is no such file.

    For safe methods, conditions (If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since) are evaluated, and a
    single range (Range, If-Range) is answered.

    Args:
        path: the path, chosen by the application. Use :class:`StaticFiles` for names that a client has chosen.
        request: the request; default: the current one.
        type: the Content-Type; default: the one for the extension of the file's name.
        download: the name under which a browser saves the file instead of showing it.
    """
    from kirsch_web.request import current

    request = current() if request is None else request
    try:
        # Open with O_NONBLOCK, because opening a named pipe would block until another process writes to it.
        opened = open(path, "rb", opener=_open)  # noqa: SIM115 - the response closes it
    except OSError as error:
        if error.errno in _ABSENT:
            raise NotFound from None
        raise
    try:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotFound
        return _response(request, opened, status, type or content_type_of(path), download)
    except BaseException:
        opened.close()
        raise


_ABSENT = {
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO,
}  # fmt: skip
"""The errors of opening a file that are answered with 404, so that a client cannot distinguish them."""
_MOST = 4096
"""The maximum length of a path below a directory. Linux has no longer paths, and resolving their links takes long."""


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _response(request: Request, opened: object, status: os.stat_result, content_type: str, download: str) -> Response:
    from kirsch_web.conditions import Validators, failed

    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    response = Response(
        headers=[("ETag", etag), ("Last-Modified", http_date(status.st_mtime)), ("Accept-Ranges", "bytes")]
    )
    close = opened.close  # type: ignore[attr-defined]
    # The conditions of an unsafe request are about the resource that it changes, not about the file in its response.
    answer = failed(request, Validators(etag, status.st_mtime)) if request.method in SAFE else None
    if answer == 412:
        raise HTTPError(412, "the file is not the one that the client means")
    if answer == 304:
        close()
        response.status = 304
        return response
    response.headers["Content-Type"] = content_type
    if download:
        response.headers["Content-Disposition"] = _disposition(download)
    size = status.st_size
    part = _range(request, etag, status.st_mtime, size)
    if part is None:
        body = FileBody(opened, size)
        response.headers["Content-Length"] = str(size)
    else:
        first, end = part
        opened.seek(first)  # type: ignore[attr-defined]
        body = FileBody(opened, end - first)
        response.status = 206
        response.headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        response.headers["Content-Length"] = str(end - first)
    response.body = body
    return response


_RANGE = re.compile(r"[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.ASCII).fullmatch


def byte_ranges(value: str | None, size: int) -> list[tuple[int, int]] | None:
    """Return the byte ranges of a Range field (RFC 9110, 14.1.2), each as its first byte and the one after its last.

    The list is empty if no range lies within ``size`` bytes. Returns None if the field must be ignored, because it has
    another unit, breaks the grammar, or has so many or overlapping ranges that they multiply the body (CVE-2011-3192).
    """
    unit, equals, members = (value or "").partition("=")
    if not equals or unit.strip().lower() != "bytes":
        return None
    found: list[tuple[int, int]] = []
    for member in members.split(","):
        match = _RANGE(member)
        if match is None or not (match[1] or match[2]):
            return None
        if not match[1]:
            first, end = max(0, size - int(match[2])), size
        else:
            first, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
            if match[2] and int(match[2]) < first:
                return None
        if first < end:
            found.append((first, end))
    if len(found) > 10 or (len(found) > 1 and sum(end - first for first, end in found) > 2 * size):
        return None
    return found


def _range(request: Request, etag: str, modified: float, size: int) -> tuple[int, int] | None:
    """Return the range to answer, as :func:`byte_ranges` does; None for the whole file. Raises 416 if no byte of the
    file is in the range.

    Several ranges are answered with the whole file, which RFC 9110 allows and which avoids the attacks on ranges.
    """
    if request.method != "GET":
        return None
    unless = request.headers.get("If-Range")
    if unless and unless != etag and parse_http_date(unless) != int(modified):
        return None
    found = byte_ranges(request.headers.get("Range"), size)
    if found == []:
        raise HTTPError(416, "the file has no such bytes", headers=[("Content-Range", f"bytes */{size}")])
    return found[0] if found is not None and len(found) == 1 else None


def _disposition(name: str) -> str:
    """Return a Content-Disposition that makes a browser save a file as ``name`` (RFC 6266)."""
    from kirsch_web.percent import quote_field

    plain = re.sub(r'[^\x20-\x7e]|["\\%/]', "_", name)
    value = f'attachment; filename="{plain}"'
    return value if plain == name else f"{value}; filename*=UTF-8''{quote_field(name)}"


class StaticFiles:
    """Publishes the files of a directory: ``static = web.StaticFiles("public")`` in the body of a class.

    Names that begin with a dot are not found, nor are files that lie outside of the directory after links are
    resolved. If the server can serve static files, as Kirsch can, let the server do so.

    Args:
        directory: the directory.
        index: the name of the file that answers the path of a directory; empty: none.
        max_age: the seconds for which a client may use a file without a new request.
    """

    def __init__(self, directory: str, *, index: str = "", max_age: int = 0) -> None:
        self._directory = os.path.realpath(directory)
        self._index = index
        self._max_age = max_age

    def default(self, *path: str) -> Response:
        """Return the response with the file at a path. Raises 404 if there is none."""
        if sum(map(len, path)) > _MOST:
            raise NotFound
        for part in path:
            if not part or part.startswith(".") or "/" in part or "\\" in part or "\0" in part:
                raise NotFound
        found = os.path.realpath(os.path.join(self._directory, *path))
        # Compare with a separator, because /x/public2 is not below /x/public.
        if found != self._directory and not found.startswith(self._directory.rstrip(os.sep) + os.sep):
            raise NotFound
        if os.path.isdir(found):
            if not self._index:
                raise NotFound
            found = os.path.join(found, self._index)
        response = file(found)
        response.headers["Cache-Control"] = f"max-age={self._max_age}" if self._max_age else "no-cache"
        return response
