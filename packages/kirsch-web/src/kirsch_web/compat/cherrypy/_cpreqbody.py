"""The body of a request: forms, multipart bodies, files."""

from __future__ import annotations

import io
import math
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
    pairs = [pair.partition(b"=") for pair in entity.fp.read().split(b"&") if pair]
    for charset in entity.attempt_charsets:
        try:
            found = [(_text(name, charset), _text(value, charset)) for name, _, value in pairs]
        except (UnicodeDecodeError, LookupError):
            continue
        entity.charset = charset
        for name, value in found:
            httputil.add_param(entity.params, name, value)
        return
    raise _undecodable(entity.attempt_charsets)


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
        part.process()
        entity.parts.append(part)
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

    # What it is read from, and with.
    fp: Any = None
    processors: Any = {  # noqa: RUF012 - programs may change it
        "multipart": process_multipart,
        "multipart/form-data": process_multipart_form_data,
        "application/x-www-form-urlencoded": process_urlencoded,
    }
    part_class: Any = None
    attempt_charsets: Any = ["utf-8"]  # noqa: RUF012 - programs may change it
    default_content_type = "application/x-www-form-urlencoded"
    # What its header says.
    headers: Any = None
    content_type: Any = None
    length: int | None = None
    filename: str | None = None
    name: str | None = None
    # What was read.
    charset: str | None = None
    params: dict[str, Any]
    parts: Any = None
    file: Any = None
    value: Any = ""

    def __init__(self, fp: Any, headers: Any, params: Any = None, parts: Any = None) -> None:
        self.fp, self.headers = fp, headers
        self.processors = dict(self.processors)
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
        line: bytes = self.fp.readline(-1 if size is None else size)
        return line

    def readlines(self, sizehint: int | None = None) -> list[bytes]:
        """The lines that are left."""
        lines: list[bytes] = self.fp.readlines(-1 if sizehint is None else sizehint)
        return lines

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> bytes:
        if line := self.readline():
            return line
        raise StopIteration

    next = __next__

    def read_into_file(self, fp_out: Any = None) -> Any:
        """The whole body in a file, at its beginning."""
        file = self.make_file() if fp_out is None else fp_out
        self.read(fp_out=file)
        return file

    def make_file(self) -> Any:
        """A file for a body that is not kept in memory; subclasses may make another."""
        return tempfile.TemporaryFile()

    def fullvalue(self) -> Any:
        """The whole value as text."""
        if not self.file:
            return self.decode_entity(self.value)
        self.file.seek(0)
        text = self.decode_entity(self.file.read())
        self.file.seek(0)
        return text

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

    maxrambytes = 1000
    default_content_type = "text/plain"
    attempt_charsets: Any = ["us-ascii", "utf-8"]  # noqa: RUF012 - programs may change it
    boundary: bytes | None = None

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
        start = b""
        if fp_out is None:
            start = self.fp.read(self.maxrambytes + 1)
            if len(start) <= self.maxrambytes:
                return start
            fp_out = self.make_file()
        try:
            fp_out.write(start)
            self.fp.read(fp_out=fp_out)
        except BaseException:
            fp_out.close()
            raise
        fp_out.seek(0)
        return fp_out

    def default_proc(self) -> None:
        """Read a file into ``file``, and another part into ``value``, or ``file`` where it is long."""
        if self.filename is not None:
            self.file = self.read_lines_to_boundary(self.make_file())
            return
        found = self.read_lines_to_boundary()
        setattr(self, "value" if isinstance(found, bytes) else "file", found)

    def process(self) -> None:
        """As :meth:`Entity.process`; what a processor leaves is skipped, up to the delimiter."""
        super().process()
        while self.fp.read(_LINE):
            pass

    def read_into_file(self, fp_out: Any = None) -> Any:
        """The whole content in a file, at its beginning."""
        return self.read_lines_to_boundary(self.make_file() if fp_out is None else fp_out)


Entity.part_class = Part


class _Reader(io.BufferedReader):
    """Reads as files do; :meth:`read` can also write what it reads to ``fp_out``."""

    def read(self, size: int | None = None, fp_out: Any = None) -> Any:
        if fp_out is None:
            return super().read(-1 if size is None else size)
        left = math.inf if size is None or size < 0 else size
        while left > 0 and (data := super().read(int(min(left, _LINE)))):
            fp_out.write(data)
            left -= len(data)
        return None


class _Raw(io.RawIOBase):
    """What a :class:`_Reader` buffers: bytes that come in pieces of any size."""

    _left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._left or self.piece(len(buffer))
        count = min(len(buffer), len(data))
        buffer[:count], self._left = data[:count], data[count:]
        return count

    def piece(self, size: int) -> bytes:
        """The next bytes, about ``size`` of them; empty at the end."""
        return b""


class _PartContent(_Raw):
    """The content of a part: what ``fp`` has up to the delimiter. The line end before that belongs to the delimiter."""

    def __init__(self, fp: Any, boundary: bytes) -> None:
        self._fp = fp
        self._boundary = boundary
        self._end = b""  # a line end that is content only if no delimiter follows
        self._whole = True  # the next line begins a line
        self.over = False
        self.done = False

    def piece(self, size: int) -> bytes:
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


class _PartReader(_Reader):
    """The content of a part, as a file."""

    def __init__(self, fp: Any, boundary: bytes) -> None:
        self._content = _PartContent(fp, boundary)
        super().__init__(self._content, 2048)  # a body may have many parts, and each keeps its buffer

    @property
    def done(self) -> bool:
        """Whether the part was the last one."""
        return self._content.done


class _SizedContent(_Raw):
    def __init__(self, fp: Any, length: int | None, maxbytes: Any, has_trailers: bool) -> None:
        self._fp, self._length, self._maxbytes, self._has_trailers = fp, length, maxbytes, has_trailers
        self.bytes_read, self.done = 0, False

    def piece(self, size: int) -> bytes:
        if self.done:
            return b""
        if self._length is not None:
            size = min(size, self._length - self.bytes_read)
        try:
            data = self._fp.read(size) if size else b""
        except Exception as error:
            # cheroot's, for a chunked body above the server's own limit
            if type(error).__name__ == "MaxSizeExceeded":
                raise HTTPError(413) from error
            raise
        self.bytes_read += len(data)
        if not data:
            self._finish()
        if self._maxbytes and self.bytes_read > self._maxbytes:
            raise HTTPError(413)
        return bytes(data)

    def _finish(self) -> None:
        self.done = True
        if self._length is not None and self.bytes_read < self._length:
            raise HTTPError(400, "The request entity is shorter than its Content-Length.")
        if self._has_trailers and hasattr(self._fp, "read_trailer_lines"):
            # cheroot leaves the trailer fields to the reader; unread they would begin the next request.
            for _ in self._fp.read_trailer_lines():
                pass


class SizedReader(_Reader):
    """The body as the server gives it: no more than ``length`` bytes are read, and 413 above ``maxbytes``."""

    def __init__(
        self, fp: Any, length: int | None, maxbytes: Any, bufsize: int = _LINE, has_trailers: bool = False
    ) -> None:
        self._content = _SizedContent(fp, length, maxbytes, has_trailers)
        super().__init__(self._content, bufsize)

    @property
    def bytes_read(self) -> int:
        """How many bytes the server has given."""
        return self._content.bytes_read

    @property
    def done(self) -> bool:
        """Whether the body is at its end."""
        return self._content.done

    def finish(self) -> None:
        """Note the end."""
        self._content.done = True


class RequestBody(Entity):
    """The body of a request."""

    maxbytes: Any = None
    default_content_type = ""
    bufsize = 8 * 1024

    def __init__(self, fp: Any, headers: Any, params: Any = None, request_params: Any = None) -> None:
        super().__init__(fp, headers, params)
        # RFC 2616's default for text without a charset, which clients still send.
        if self.content_type.value.startswith("text/"):
            named = {each.lower() for each in self.attempt_charsets}
            if not named & {"iso-8859-1", "latin-1"}:
                self.attempt_charsets = [*self.attempt_charsets, "ISO-8859-1"]
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
