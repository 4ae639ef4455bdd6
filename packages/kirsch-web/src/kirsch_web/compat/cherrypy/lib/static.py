"""Files as responses: the tools ``staticdir`` and ``staticfile``."""

from __future__ import annotations

import mimetypes
import os
import re
import stat
import urllib.parse
from email.generator import _make_boundary as make_boundary  # type: ignore[attr-defined]
from typing import Any

from kirsch_web.compat.cherrypy._cperror import HTTPError, NotFound
from kirsch_web.compat.cherrypy._local import serving
from kirsch_web.compat.cherrypy.lib import cptools, file_generator_limited, httputil


def _content_type(path: str, known: dict[str, str] | None) -> str:
    extension = os.path.splitext(path)[1].lower()
    if known and extension.lstrip(".") in known:
        return known[extension.lstrip(".")]
    if known and extension in known:
        return known[extension]
    return mimetypes.types_map.get(extension) or _TYPES.get(extension) or "text/plain"


_TYPES = {".dwg": "image/x-dwg", ".ico": "image/x-icon", ".bz2": "application/x-bzip2", ".gz": "application/x-gzip"}


def _disposition(disposition: str, name: str) -> str:
    """A Content-Disposition with a name (RFC 6266): one in ASCII, and one in UTF-8 where that is another."""
    plain = re.sub(r'["\\\x00-\x1f\x7f]', "", name).encode("ascii", "ignore").decode()
    value = f'{disposition}; filename="{plain}"'
    return value if plain == name else f"{value}; filename*=UTF-8''{urllib.parse.quote(name)}"


def serve_file(
    path: Any, content_type: str | None = None, disposition: str | None = None, name: str | None = None,
    debug: bool = False,
) -> Any:  # fmt: skip
    """Make a file the response. Conditions and ranges of the request are answered.

    Args:
        path: absolute. The application chooses it; names that a client has chosen belong to ``staticdir``.
        content_type: default: by the extension.
        disposition: ``attachment`` lets browsers save the file.
        name: the name to save it as; default: the file's.
        debug: unused.
    """
    path = os.fspath(path)
    if not os.path.isabs(path):
        raise ValueError(f"'{path}' is not an absolute path.")
    response = serving.response
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # ValueError: a null byte
        raise NotFound from None
    if not stat.S_ISREG(status.st_mode):
        raise NotFound
    response.headers["Last-Modified"] = httputil.HTTPDate(status.st_mtime)
    cptools.validate_since()
    if content_type is None:
        content_type = _content_type(path, None)
    response.headers["Content-Type"] = content_type
    if disposition is not None:
        response.headers["Content-Disposition"] = _disposition(
            disposition, os.path.basename(path) if name is None else name
        )
    return _serve_fileobj(open(path, "rb"), content_type, status.st_size)


def serve_fileobj(
    fileobj: Any, content_type: str | None = None, disposition: str | None = None, name: str | None = None,
    debug: bool = False,
) -> Any:  # fmt: skip
    """Make an open file the response, from its position on. The arguments are those of :func:`serve_file`."""
    response = serving.response
    length: int | None
    try:
        status = os.fstat(fileobj.fileno())
    except (AttributeError, OSError):
        try:
            start = fileobj.tell()
            length = fileobj.seek(0, os.SEEK_END) - start
            fileobj.seek(start)
        except (AttributeError, OSError):
            length = None
    else:
        response.headers["Last-Modified"] = httputil.HTTPDate(status.st_mtime)
        cptools.validate_since()
        length = status.st_size if stat.S_ISREG(status.st_mode) else None
    if content_type is not None:
        response.headers["Content-Type"] = content_type
    if disposition is not None:
        response.headers["Content-Disposition"] = disposition if name is None else _disposition(disposition, name)
    return _serve_fileobj(fileobj, content_type or "", length)


def _serve_fileobj(fileobj: Any, content_type: str, content_length: int | None) -> Any:
    """Make the file, or the ranges that are asked for, the body."""
    request, response = serving.request, serving.response
    headers = response.headers
    ranges = None
    if content_length is not None:
        if request.protocol >= (1, 1) and request.method in ("GET", "HEAD"):
            headers["Accept-Ranges"] = "bytes"
            unless = request.headers.get("If-Range")
            if not unless or unless in (headers.get("ETag"), headers.get("Last-Modified")):
                ranges = httputil.get_ranges(request.headers.get("Range"), content_length)
        headers["Content-Length"] = content_length
    if ranges is None:
        response.body = fileobj
        return response.body
    if not ranges:
        fileobj.close()
        headers["Content-Range"] = f"bytes */{content_length}"
        raise HTTPError(416, f"The file has {content_length} bytes: no part of the Range lies inside.")
    response.status = "206 Partial Content"
    if len(ranges) == 1:
        start, stop = ranges[0]
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{content_length}"
        response.headers["Content-Length"] = stop - start
        fileobj.seek(start)
        response.body = _closing(fileobj, file_generator_limited(fileobj, stop - start))
        return response.body
    boundary = make_boundary()
    response.headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
    response.headers.pop("Content-Length", None)

    def parts() -> Any:
        yield b"\r\n"
        for start, stop in ranges:
            yield (
                f"--{boundary}\r\nContent-type: {content_type}\r\n"
                f"Content-range: bytes {start}-{stop - 1}/{content_length}\r\n\r\n"
            ).encode()
            fileobj.seek(start)
            yield from file_generator_limited(fileobj, stop - start)
            yield b"\r\n"
        yield f"--{boundary}--".encode()
        yield b"\r\n"

    response.body = _closing(fileobj, parts())
    return response.body


def _closing(fileobj: Any, chunks: Any) -> Any:
    try:
        yield from chunks
    finally:
        fileobj.close()


def serve_download(path: str, name: str | None = None) -> Any:
    """Make a file the response, to be saved."""
    return serve_file(path, "application/x-download", "attachment", name)


def _attempt(filename: str, content_types: dict[str, str] | None) -> bool:
    try:
        serve_file(filename, _content_type(filename, content_types) if content_types else None)
    except NotFound:
        return False
    return True


def staticdir(
    section: str, dir: Any, root: Any = "", match: str = "", content_types: Any = None, index: str = "",
    debug: bool = False,
) -> bool:  # fmt: skip
    """Serve the files of a directory below ``section``.

    Args:
        section: the path of the configuration section, which is cut from the request's.
        dir: the directory; relative to ``root``.
        root: an absolute directory.
        match: a pattern that the path must contain.
        content_types: types by extension, before those of the system.
        index: the file that stands for a directory.
        debug: unused.
    """
    request = serving.request
    if request.method not in ("GET", "HEAD"):
        return False
    if match and not re.search(match, request.path_info):
        return False
    directory = os.path.expanduser(os.fspath(dir))
    if not os.path.isabs(directory):
        if not root:
            raise ValueError(
                f"tools.staticdir.dir {directory!r} is relative: make it absolute, or set tools.staticdir.root"
            )
        directory = os.path.join(os.fspath(root), directory)
    above = "" if section == "global" else section.rstrip("/\\")
    branch = urllib.parse.unquote(request.path_info[len(above) + 1 :].lstrip("/\\"))
    branch = branch.replace("/", os.sep)
    if "\0" in branch:
        return False
    filename = os.path.join(directory, branch)
    # With a separator: /x/public is the beginning of /x/public2, and does not contain it.
    inside = os.path.normpath(directory)
    found = os.path.normpath(filename)
    if found != inside and not found.startswith(inside.rstrip(os.sep) + os.sep):
        raise HTTPError(403)
    if _attempt(filename, content_types):
        return True
    if index and _attempt(os.path.join(filename, index), content_types):
        request.is_index = filename.endswith(("\\", "/"))
        return True
    return False


def staticfile(
    filename: Any, root: Any = None, match: str = "", content_types: Any = None, debug: bool = False
) -> bool:
    """Serve one file; the arguments are those of :func:`staticdir`."""
    request = serving.request
    if request.method not in ("GET", "HEAD"):
        return False
    if match and not re.search(match, request.path_info):
        return False
    filename = os.fspath(filename)
    if not os.path.isabs(filename):
        if not root:
            raise ValueError(
                f"tools.staticfile.filename {filename!r} is relative: make it absolute, or set tools.staticfile.root"
            )
        filename = os.path.join(os.fspath(root), filename)
    return _attempt(filename, content_types)
