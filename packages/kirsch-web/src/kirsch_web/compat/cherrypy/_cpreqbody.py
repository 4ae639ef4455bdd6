"""The body of a request: forms, multipart bodies, files."""

from __future__ import annotations

import io
import re
import tempfile
import urllib.parse
from typing import Any

from kirsch_web.compat.cherrypy._cperror import HTTPError
from kirsch_web.compat.cherrypy._local import serving
from kirsch_web.compat.cherrypy.lib import httputil
from kirsch_web.forms import Limits

_LIMITS = Limits()
_LINE = 64 * 1024


def process_urlencoded(entity: Entity) -> None:
    """Read a form of names and values into ``entity.params``, in the first charset that fits."""
    data = entity.fp.read()
    for charset in entity.attempt_charsets:
        try:
            params: dict[str, Any] = {}
            for pair in data.split(b"&"):
                if pair:
                    name, _, value = pair.partition(b"=")
                    httputil.add_param(params, _text(name, charset), _text(value, charset))
        except (UnicodeDecodeError, LookupError):
            continue
        entity.charset = charset
        break
    else:
        raise _undecodable(entity.attempt_charsets)
    for key, value in params.items():
        for each in value if isinstance(value, list) else [value]:
            httputil.add_param(entity.params, key, each)


def _text(data: bytes, charset: str) -> str:
    return urllib.parse.unquote_to_bytes(data.replace(b"+", b" ")).decode(charset)


def _undecodable(charsets: Any) -> HTTPError:
    return HTTPError(
        400, f"The request entity could not be decoded. The following charsets were attempted: {charsets!r}"
    )


def process_multipart(entity: Entity) -> None:
    """Read the parts of a multipart body into ``entity.parts``."""
    boundary = entity.content_type.params.get("boundary", "").strip('"')
    if not re.fullmatch(r"[ -~]{0,200}[!-~]", boundary):
        raise HTTPError(400, "The request entity has no boundary, or one that RFC 2046 does not allow.")
    delimiter = b"--" + boundary.encode("ascii")
    # The text before the first delimiter means nothing.
    while True:
        line = entity.fp.readline(_LINE)
        if not line:
            return
        if line.strip() == delimiter:
            break
        if line.strip() == delimiter + b"--":
            return
    depth = getattr(entity, "_depth", 0) + 1
    if depth > 3:
        raise HTTPError(413, "The request entity has more than three multipart bodies inside one another.")
    while True:
        if len(entity.parts) >= _LIMITS.parts:
            raise HTTPError(413, f"The request entity has more than {_LIMITS.parts} parts.")
        part = entity.part_class.from_fp(entity.fp, delimiter)
        part._depth = depth
        entity.parts.append(part)
        part.process()
        if part.fp.done:
            return


def process_multipart_form_data(entity: Entity) -> None:
    """Read the parts of a form; those with a name become parameters."""
    process_multipart(entity)
    rest = []
    for part in entity.parts:
        if part.name is None:
            rest.append(part)
            continue
        value = part.fullvalue() if part.filename is None else part
        httputil.add_param(entity.params, part.name, value)
    entity.parts = rest


def _old_process_multipart(entity: Entity) -> None:
    """Read a multipart body that is no form: its unnamed parts become the parameter ``parts``."""
    process_multipart(entity)
    for part in entity.parts:
        value = part.fullvalue() if part.filename is None else part
        httputil.add_param(entity.params, "parts" if part.name is None else part.name, value)


class Entity:
    """A body or a part of one.

    ``fp`` is read by :meth:`process` with the processor for its Content-Type; without one it is kept as a file.
    """

    attempt_charsets: Any = ["utf-8"]  # noqa: RUF012 - programs may change it
    charset: str | None = None
    content_type: Any = None
    default_content_type = "application/x-www-form-urlencoded"
    filename: str | None = None
    fp: Any = None
    headers: Any = None
    length: int | None = None
    name: str | None = None
    params: dict[str, Any]
    processors: Any = {  # noqa: RUF012 - programs may change it
        "application/x-www-form-urlencoded": process_urlencoded,
        "multipart/form-data": process_multipart_form_data,
        "multipart": process_multipart,
    }
    parts: Any = None
    part_class: Any = None

    def __init__(self, fp: Any, headers: Any, params: Any = None, parts: Any = None) -> None:
        self.processors = self.processors.copy()
        self.fp = fp
        self.headers = headers
        self.params = {} if params is None else params
        self.parts = [] if parts is None else parts
        elements = headers.elements("Content-Type")
        self.content_type = elements[0] if elements else httputil.HeaderElement.from_str(self.default_content_type)
        charset = self.content_type.params.get("charset")
        if charset:
            self.attempt_charsets = [charset] + [each for each in self.attempt_charsets if each != charset]
        else:
            self.attempt_charsets = self.attempt_charsets[:]
        length = headers.get("Content-Length")
        # With a Transfer-Encoding the length counts for nothing (RFC 9112, 6.1).
        if length is not None and "chunked" not in headers.get("Transfer-Encoding", ""):
            if not (str(length).isascii() and str(length).isdigit()):
                raise HTTPError(400, f"The Content-Length {length!r} is not a number.")
            self.length = int(length)
        disposition = headers.elements("Content-Disposition")
        if disposition:
            params = disposition[0].params
            self.name = params.get("name")
            self.filename = params.get("filename")
            if "filename*" in params:
                charset, _, rest = params["filename*"].partition("'")
                _, _, encoded = rest.partition("'")
                try:
                    self.filename = urllib.parse.unquote(encoded, charset or "utf-8", "strict")
                except (LookupError, UnicodeDecodeError):
                    raise HTTPError(400, "The filename* of a part cannot be decoded.") from None

    @property
    def type(self) -> Any:
        """The content type."""
        return self.content_type

    def read(self, size: int | None = None, fp_out: Any = None) -> Any:
        """The next bytes, or written to ``fp_out``."""
        return self.fp.read(size, fp_out)

    def readline(self, size: int | None = None) -> bytes:
        """The next line."""
        line: bytes = self.fp.readline(size)
        return line

    def readlines(self, sizehint: int | None = None) -> list[bytes]:
        """The lines that are left."""
        lines: list[bytes] = self.fp.readlines(sizehint)
        return lines

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> bytes:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__

    def read_into_file(self, fp_out: Any = None) -> Any:
        """The whole body in a file, at its beginning."""
        if fp_out is None:
            fp_out = self.make_file()
        self.read(fp_out=fp_out)
        return fp_out

    def make_file(self) -> Any:
        """A file for a body that is not kept in memory; subclasses may make another."""
        return tempfile.TemporaryFile()

    def fullvalue(self) -> Any:
        """The whole value as text."""
        value: Any
        if self.file:
            self.file.seek(0)
            value = self.file.read()
            self.file.seek(0)
        else:
            value = self.value
        return self.decode_entity(value)

    file: Any = None
    value: Any = ""

    def decode_entity(self, value: Any) -> str:
        """The text of bytes, in the first charset that fits; 400 where none does."""
        if isinstance(value, str):
            return value
        for charset in self.attempt_charsets:
            try:
                text: str = value.decode(charset)
            except (UnicodeDecodeError, LookupError):
                continue
            self.charset = charset
            return text
        raise _undecodable(self.attempt_charsets)

    def process(self) -> None:
        """Run the processor for the whole content type, else for its first half, else :meth:`default_proc`."""
        kind = self.content_type.value
        processor = self.processors.get(kind) or self.processors.get(kind.split("/", 1)[0])
        if processor is None:
            self.default_proc()
        else:
            processor(self)

    def default_proc(self) -> None:
        """Keep the body for the handler to read."""


class Part(Entity):
    """A part of a multipart body. Without a filename it stays in memory, up to ``maxrambytes``."""

    attempt_charsets: Any = ["us-ascii", "utf-8"]  # noqa: RUF012 - programs may change it
    boundary: bytes | None = None
    default_content_type = "text/plain"
    maxrambytes = 1000

    def __init__(self, fp: Any, headers: Any, boundary: bytes) -> None:
        super().__init__(_PartReader(fp, boundary), headers)
        self.boundary = boundary
        self.file = None
        self.value = b""

    @classmethod
    def from_fp(cls, fp: Any, boundary: bytes) -> Part:
        """The next part of a body whose delimiter was read."""
        return cls(fp, cls.read_headers(fp), boundary)

    @classmethod
    def read_headers(cls, fp: Any) -> httputil.HeaderMap:
        """The header fields of a part, up to the empty line."""
        headers = httputil.HeaderMap()
        size, name = 0, ""
        while True:
            line = fp.readline(_LINE)
            size += len(line)
            if not line:
                raise HTTPError(400, "The multipart body ends inside the header of a part.")
            if size > _LIMITS.part_headers:
                raise HTTPError(413, f"The header of a part has more than {_LIMITS.part_headers} bytes.")
            if not line.endswith(b"\n"):
                raise HTTPError(400, "The header of a part has a line without an end.")
            if not line.strip(b"\r\n"):
                return headers
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                text = line.decode("latin-1").rstrip("\r\n")
            if text[0] in " \t" and name:
                headers[name] += ", " + text.strip()
                continue
            name, colon, value = text.partition(":")
            if not colon:
                raise HTTPError(400, "The header of a part has a line that is no field.")
            name, value = name.strip(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value

    def read_lines_to_boundary(self, fp_out: Any = None) -> Any:
        """The content, up to the delimiter: bytes, or a file where it is longer than ``maxrambytes``."""
        held: list[bytes] = []
        seen = 0
        try:
            for data in self.fp:
                if fp_out is None:
                    held.append(data)
                    seen += len(data)
                    if seen > self.maxrambytes:
                        fp_out = self.make_file()
                        fp_out.write(b"".join(held))
                else:
                    fp_out.write(data)
        except BaseException:
            if fp_out is not None:
                fp_out.close()
            raise
        if fp_out is None:
            return b"".join(held)
        fp_out.seek(0)
        return fp_out

    def default_proc(self) -> None:
        """Read a file into ``file``, and another part into ``value``, or ``file`` where it is long."""
        if self.filename is not None:
            self.file = self.read_lines_to_boundary(self.make_file())
            return
        result = self.read_lines_to_boundary()
        if isinstance(result, bytes):
            self.value = result
        else:
            self.file = result

    def process(self) -> None:
        """As :meth:`Entity.process`; what a processor leaves is skipped, up to the delimiter."""
        super().process()
        for _ in self.fp:
            pass

    def read_into_file(self, fp_out: Any = None) -> Any:
        """The whole content in a file, at its beginning."""
        return self.read_lines_to_boundary(self.make_file() if fp_out is None else fp_out)


Entity.part_class = Part


class _PartReader:
    """The content of a part: what ``fp`` has up to the delimiter. The line end before that belongs to the delimiter."""

    def __init__(self, fp: Any, boundary: bytes) -> None:
        self._fp = fp
        self._boundary = boundary
        self._end = b""  # a line end that is content only if no delimiter follows
        self._whole = True  # the next line begins a line
        self._ready = b""
        self.over = False
        self.done = False

    def __iter__(self) -> Any:
        while data := self._next():
            yield data

    def _next(self) -> bytes:
        """The next bytes of the content; empty at its end."""
        while not self.over:
            line = self._fp.readline(_LINE)
            if not line:
                raise HTTPError(400, "The multipart body has no closing delimiter.")
            if self._whole and line.startswith(b"--"):
                rest = line.strip()
                if rest == self._boundary or rest == self._boundary + b"--":
                    self.over = True
                    # A body may be cut inside its last delimiter: the part before it is whole.
                    self.done = rest != self._boundary or not line.endswith(b"\n")
                    break
            data: bytes = self._end + line
            self._end = b"\r\n" if data.endswith(b"\r\n") else data[-1:] if data[-1:] in b"\r\n" else b""
            self._whole = line.endswith(b"\n")
            data = data[: len(data) - len(self._end)]
            if data:
                return data
        return b""

    def read(self, size: int | None = None, fp_out: Any = None) -> Any:
        pieces = []
        left = -1 if size is None else size
        while left:
            data = self._ready or self._next()
            self._ready = b""
            if not data:
                break
            if 0 <= left < len(data):
                data, self._ready = data[:left], data[left:]
            if left > 0:
                left -= len(data)
            if fp_out is None:
                pieces.append(data)
            else:
                fp_out.write(data)
        return b"".join(pieces) if fp_out is None else None

    def readline(self, size: int | None = None) -> bytes:
        limit = _LINE if size is None else size
        data = self._ready
        while b"\n" not in data and len(data) < limit and (more := self._next()):
            data += more
        at = min(data.find(b"\n") + 1 or len(data), limit)
        data, self._ready = data[:at], data[at:]
        return data

    def readlines(self, sizehint: int | None = None) -> list[bytes]:
        return io.BytesIO(self.read(sizehint)).readlines()


class SizedReader:
    """The body as the server gives it: no more than ``length`` bytes are read, and 413 above ``maxbytes``."""

    def __init__(
        self, fp: Any, length: int | None, maxbytes: Any, bufsize: int = _LINE, has_trailers: bool = False
    ) -> None:
        self.fp = fp
        self.length = length
        self.maxbytes = maxbytes
        self.buffer = b""
        self.bufsize = bufsize
        self.bytes_read = 0
        self.done = False
        self.has_trailers = has_trailers

    def _fill(self, size: int) -> bytes:
        """The next at most ``size`` bytes; empty at the end."""
        if self.buffer:
            data, self.buffer = self.buffer[:size], self.buffer[size:]
            return data
        if self.done:
            return b""
        if self.length is not None:
            size = min(size, self.length - self.bytes_read)
        try:
            data = self.fp.read(size) if size else b""
        except Exception as error:
            # cheroot's, for a chunked body above the server's own limit
            if type(error).__name__ == "MaxSizeExceeded":
                raise HTTPError(413) from error
            raise
        if not data:
            self.done = True
            if self.length is not None and self.bytes_read < self.length:
                raise HTTPError(400, "The request entity is shorter than its Content-Length.")
            if self.has_trailers and hasattr(self.fp, "read_trailer_lines"):
                # cheroot leaves the trailer fields to the reader; unread they would begin the next request.
                for _ in self.fp.read_trailer_lines():
                    pass
            return b""
        self.bytes_read += len(data)
        if self.maxbytes and self.bytes_read > self.maxbytes:
            raise HTTPError(413)
        return bytes(data)

    def read(self, size: int | None = None, fp_out: Any = None) -> Any:
        """The next bytes, all that are left without a size; or written to ``fp_out``."""
        pieces = []
        left = -1 if size is None or size < 0 else size
        while left:
            data = self._fill(self.bufsize if left < 0 else min(left, self.bufsize))
            if not data:
                break
            if left > 0:
                left -= len(data)
            if fp_out is None:
                pieces.append(data)
            else:
                fp_out.write(data)
        return b"".join(pieces) if fp_out is None else None

    def readline(self, size: int | None = None) -> bytes:
        """The next line, or its first ``size`` bytes."""
        pieces = []
        left = -1 if size is None or size < 0 else size
        while left:
            data = self._fill(self.bufsize if left < 0 else min(left, self.bufsize))
            if not data:
                break
            at = data.find(b"\n") + 1
            if at:
                data, self.buffer = data[:at], data[at:] + self.buffer
            if left > 0:
                left -= len(data)
            pieces.append(data)
            if at:
                break
        return b"".join(pieces)

    def readlines(self, sizehint: int | None = None) -> list[bytes]:
        """The lines that are left."""
        lines, seen = [], 0
        while line := self.readline():
            lines.append(line)
            seen += len(line)
            if sizehint and seen >= sizehint:
                break
        return lines

    def finish(self) -> None:
        """Note the end."""
        self.done = True


class RequestBody(Entity):
    """The body of a request."""

    bufsize = 8 * 1024
    default_content_type = ""
    maxbytes: Any = None

    def __init__(self, fp: Any, headers: Any, params: Any = None, request_params: Any = None) -> None:
        super().__init__(fp, headers, params)
        # RFC 2616's default for text without a charset, which clients still send.
        if self.content_type.value.startswith("text/"):
            for each in ("ISO-8859-1", "iso-8859-1", "Latin-1", "latin-1"):
                if each in self.attempt_charsets:
                    break
            else:
                self.attempt_charsets.append("ISO-8859-1")
        self.processors["multipart"] = _old_process_multipart
        self.request_params = {} if request_params is None else request_params

    def process(self) -> None:
        """Read the body; 411 where neither a length nor a transfer coding says that there is one."""
        headers = serving.request.headers
        if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
            raise HTTPError(411)
        self.fp = SizedReader(self.fp, self.length, self.maxbytes, _LINE, has_trailers="Trailer" in headers)
        super().process()
        target = self.request_params
        for name, value in self.params.items():
            for each in value if isinstance(value, list) else [value]:
                httputil.add_param(target, name, each)
