"""Files as responses: the tools ``staticdir`` and ``staticfile``."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import re
import stat
import urllib.parse
from email.generator import _make_boundary as make_boundary  # type: ignore[attr-defined]
from typing import Any

from kirsch_cherrypy._cperror import HTTPError, NotFound
from kirsch_cherrypy._local import serving
from kirsch_cherrypy.lib import cptools, httputil
from kirsch_web.response import FileBody

# Reset the global media types like CherryPy; programs may add others afterwards.
mimetypes.init()
mimetypes.types_map.update(
    {".dwg": "image/x-dwg", ".ico": "image/x-icon", ".bz2": "application/x-bzip2", ".gz": "application/x-gzip"}
)


def _content_type(path: str, known: dict[str, str] | None = None) -> str:
    own = {f".{name.lstrip('.')}": kind for name, kind in (known or {}).items()}
    return {**mimetypes.types_map, **own}.get(os.path.splitext(path)[1].lower(), "text/plain")


def _disposition(disposition: str, name: str) -> str:
    """Return a Content-Disposition field (RFC 6266) with an ASCII name, and a UTF-8 name if that differs."""
    plain = re.sub(r'["\\\x00-\x1f\x7f]', "", name).encode("ascii", "ignore").decode()
    value = f'{disposition}; filename="{plain}"'
    return value if plain == name else f"{value}; filename*=UTF-8''{urllib.parse.quote(name)}"


def serve_file(
    path: Any, content_type: str | None = None, disposition: str | None = None, name: str | None = None,
    debug: bool = False,
) -> Any:  # fmt: skip
    """Respond with a file. Handles conditional requests and ranges.

    Args:
        path: an absolute path, chosen by the application. For names that clients choose, use ``staticdir``.
        content_type: the media type; default: by the extension.
        disposition: ``attachment`` makes browsers save the file.
        name: the name under which to save it; default: the name of the file.
        debug: unused.
    """
    path = os.fspath(path)
    if not os.path.isabs(path):
        raise ValueError(f"'{path}' is not an absolute path.")
    if not os.path.isfile(path):
        raise NotFound
    if disposition is not None and name is None:
        name = os.path.basename(path)
    file = open(path, "rb")  # noqa: SIM115 - the response closes it
    try:
        return serve_fileobj(file, content_type or _content_type(path), disposition, name)
    except BaseException:
        file.close()
        raise


def serve_fileobj(
    fileobj: Any, content_type: str | None = None, disposition: str | None = None, name: str | None = None,
    debug: bool = False,
) -> Any:  # fmt: skip
    """Respond with an open file, from its current position. The arguments are those of :func:`serve_file`."""
    response = serving.response
    length: int | None = None
    try:
        status = os.fstat(fileobj.fileno())
    except (AttributeError, OSError):
        with contextlib.suppress(AttributeError, OSError):  # stream objects of unknown length
            start = fileobj.tell()
            length = fileobj.seek(0, os.SEEK_END) - start
            fileobj.seek(start)
    else:
        response.headers["Last-Modified"] = httputil.HTTPDate(status.st_mtime)
        cptools.validate_since()
        length = status.st_size if stat.S_ISREG(status.st_mode) else None
    if content_type is not None:
        response.headers["Content-Type"] = content_type
    if disposition is not None:
        response.headers["Content-Disposition"] = disposition if name is None else _disposition(disposition, name)
    response.body = _ranged(fileobj, content_type or "", length)
    return response.body


def _ranged(fileobj: Any, content_type: str, length: int | None) -> Any:
    """Return the body: the file, or the requested ranges of it. Sets status and fields for ranges."""
    request, response = serving.request, serving.response
    headers = response.headers
    if length is None:
        return fileobj
    headers["Content-Length"] = length
    ranges = None
    if request.protocol >= (1, 1) and request.method in ("GET", "HEAD"):
        headers["Accept-Ranges"] = "bytes"
        unless = request.headers.get("If-Range")
        if not unless or unless in (headers.get("ETag"), headers.get("Last-Modified")):
            ranges = httputil.get_ranges(request.headers.get("Range"), length)
    if ranges is None:
        return fileobj
    if not ranges:
        fileobj.close()
        headers["Content-Range"] = f"bytes */{length}"
        raise HTTPError(416, f"The file has {length} bytes: no part of the Range lies inside.")
    response.status = "206 Partial Content"
    boundary = make_boundary() if len(ranges) > 1 else ""
    if boundary:
        headers["Content-Type"] = f"multipart/byteranges; boundary={boundary}"
        headers.pop("Content-Length", None)
    else:
        start, stop = ranges[0]
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{length}"
        headers["Content-Length"] = stop - start

    def parts() -> Any:
        with contextlib.closing(fileobj):
            for start, stop in ranges:
                if boundary:
                    fields = f"Content-type: {content_type}\r\nContent-range: bytes {start}-{stop - 1}/{length}\r\n"
                    yield f"\r\n--{boundary}\r\n{fields}\r\n".encode()
                fileobj.seek(start)
                yield from FileBody(fileobj, stop - start)
            if boundary:
                yield f"\r\n--{boundary}--\r\n".encode()

    return parts()


def serve_download(path: str, name: str | None = None) -> Any:
    """Respond with a file that browsers save."""
    return serve_file(path, "application/x-download", "attachment", name)


def _attempt(filename: str, content_types: dict[str, str] | None) -> bool:
    try:
        serve_file(filename, _content_type(filename, content_types))
    except NotFound:
        return False
    return True


def _serves(match: str) -> bool:
    """Return whether the method is GET or HEAD and the path contains the pattern ``match``."""
    return serving.request.method in ("GET", "HEAD") and bool(re.search(match, serving.request.path_info))


def _absolute(path: Any, root: Any, option: str) -> str:
    name: str = os.fspath(path)
    if not os.path.isabs(name):
        if not root:
            tool = option.partition(".")[0]
            raise ValueError(f"tools.{option} {name!r} is relative: make it absolute, or set tools.{tool}.root")
        name = os.path.join(os.fspath(root), name)
    return name


def staticdir(
    section: str, dir: Any, root: Any = "", match: str = "", content_types: Any = None, index: str = "",
    debug: bool = False,
) -> bool:  # fmt: skip
    """Serve the files of a directory below ``section``.

    Args:
        section: the path of the configuration section, which is removed from the request's path.
        dir: the directory, absolute or relative to ``root``.
        root: an absolute directory.
        match: a regular expression that the path must contain.
        content_types: media types by extension, which override those of the system.
        index: the file to serve for a directory.
        debug: unused.
    """
    request = serving.request
    if not _serves(match):
        return False
    directory = _absolute(os.path.expanduser(dir), root, "staticdir.dir")
    above = "" if section == "global" else section.rstrip("/\\")
    branch = urllib.parse.unquote(request.path_info[len(above) + 1 :].lstrip("/\\"))
    if "\0" in branch:
        return False
    filename = os.path.join(directory, branch)
    # Compare with a separator: /x/public is a prefix of /x/public2, but does not contain it.
    inside, found = os.path.normpath(directory), os.path.normpath(filename)
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
    return _serves(match) and _attempt(_absolute(filename, root, "staticfile.filename"), content_types)
