"""Request bodies: forms, multipart bodies and files."""

from __future__ import annotations

import io
import re
import shutil
import tempfile
import urllib.parse
from typing import Any

from kirsch_cherrypy._cperror import HTTPError
from kirsch_cherrypy._local import serving
from kirsch_cherrypy.lib import httputil
from kirsch_web.fields import content_length
from kirsch_web.forms import CHUNK, Limits

_LIMITS = Limits()
_LINE = 1 << 16
_DEPTH = 3  # limit of nested multipart bodies


def process_urlencoded(entity: Entity) -> None:
    """Parse a URL-encoded form into ``entity.params``, with the first charset that can decode it."""
    pairs = [pair.partition(b"=") for pair in entity.fp.read().split(b"&") if pair]

    def decoded(charset: str) -> list[tuple[str, str]]:
        return [(_text(name, charset), _text(value, charset)) for name, _, value in pairs]

    for name, value in entity._first_that_fits(decoded):
        httputil.add_param(entity.params, name, value)


def _text(data: bytes, charset: str) -> str:
    return urllib.parse.unquote_to_bytes(data.replace(b"+", b" ")).decode(charset)


def process_multipart(entity: Entity) -> None:
    """Read the parts of a multipart body into ``entity.parts``."""
    boundary = entity.content_type.params.get("boundary", "").strip('"')
    if not re.fullmatch(r"[ -~]{0,200}[!-~]", boundary):
        raise HTTPError(400, "The request entity has no boundary, or one that RFC 2046 does not allow.")
    if entity._depth == _DEPTH:
        raise HTTPError(413, f"The request entity has more than {_DEPTH} multipart bodies inside one another.")
    parts = _Parts(entity.fp, b"--" + boundary.encode("ascii"))
    if entity.length == 0:
        return
    for _ in parts.content():  # ignore the preamble
        pass
    while not parts.over:
        if len(entity.parts) >= _LIMITS.parts:
            raise HTTPError(413, f"The request entity has more than {_LIMITS.parts} parts.")
        fields = parts.fields()
        part = entity.part_class(parts.content(), fields)
        part._depth = entity._depth + 1
        part.process()
        entity.parts.append(part)


class _Parts:
    """Reads a multipart body by lines, whose ends may be LF: the core's parser accepts forms as browsers send them."""

    over = False

    def __init__(self, fp: Any, delimiter: bytes) -> None:
        self._fp = fp
        self._delimiters = delimiter, delimiter + b"--"

    def _line(self) -> bytes:
        line: bytes = self._fp.readline(_LINE)
        if not line:
            raise HTTPError(400, "The multipart body has no closing delimiter.")
        return line

    def content(self) -> Any:
        """Yield the content up to the next delimiter, without the line end before it. Set ``over`` after the last
        delimiter."""
        line_end, begins = b"", True
        while True:
            line = self._line()
            if begins and line.startswith(b"--") and (found := line.strip()) in self._delimiters:
                # Accept a body that is cut inside its last delimiter, because the part before it is complete.
                self.over = found == self._delimiters[1] or not line.endswith(b"\n")
                return
            begins = line.endswith(b"\n")
            data = line_end + line
            line_end = b"\r\n" if data.endswith(b"\r\n") else data[-1:] if data[-1:] in (b"\r", b"\n") else b""
            yield data[: len(data) - len(line_end)]

    def fields(self) -> httputil.HeaderMap:
        """Read the header fields of the next part, decoded as UTF-8 or else as Latin-1."""
        fields = httputil.HeaderMap()
        size, name = 0, ""
        while (line := self._line()).strip(b"\r\n"):
            size += len(line)
            if size > _LIMITS.part_headers:
                raise HTTPError(413, f"The header of a part has more than {_LIMITS.part_headers} bytes.")
            try:
                text = line.decode()
            except UnicodeDecodeError:
                text = line.decode("latin-1")
            if text[0] in " \t" and name:  # continues the previous line
                fields[name] += ", " + text.strip()
                continue
            name, colon, value = text.partition(":")
            if not colon or not text.endswith("\n"):
                raise HTTPError(400, "The header of a part has a line that is no field.")
            name, value = name.strip(), value.strip()
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
        return fields


def process_multipart_form_data(entity: Entity, others: str | None = None) -> None:
    """Read the parts of a form. A part without a name becomes the parameter ``others``, if that is given."""
    process_multipart(entity)
    named = [(others if part.name is None else part.name, part) for part in entity.parts]
    entity.parts = [part for part in entity.parts if part.name is None or others]
    for name, part in named:
        if name is not None:
            httputil.add_param(entity.params, name, part._parameter())


class Entity:
    """A request body, or a part of one.

    :meth:`process` reads ``fp`` with the processor for the Content-Type; if there is none, it calls ``default_proc``.
    """

    processors: Any = {  # noqa: RUF012 - programs may change it
        "multipart": process_multipart,
        "multipart/form-data": process_multipart_form_data,
        "application/x-www-form-urlencoded": process_urlencoded,
    }
    part_class: Any = None
    attempt_charsets: Any = ["utf-8"]  # noqa: RUF012 - programs may change it
    default_content_type = "application/x-www-form-urlencoded"
    # From the header fields.
    length: int | None = None
    filename: str | None = None
    name: str | None = None
    # The content.
    charset: str | None = None
    file: Any = None
    value: Any = ""
    _depth = 0

    def __init__(self, fp: Any, headers: Any, params: Any = None, parts: Any = None) -> None:
        self.fp, self.headers = fp, headers
        self.processors = dict(self.processors)
        self.params: dict[str, Any] = {} if params is None else params
        self.parts: list[Any] = [] if parts is None else parts
        elements = headers.elements("Content-Type")
        self.content_type = elements[0] if elements else httputil.HeaderElement.from_str(self.default_content_type)
        said = self.content_type.params.get("charset")
        usual = self.attempt_charsets
        self.attempt_charsets = [said] + [each for each in usual if each != said] if said else usual[:]
        length = headers.get("Content-Length")
        # Transfer-Encoding overrides Content-Length (RFC 9112, 6.1).
        if length is not None and "chunked" not in headers.get("Transfer-Encoding", ""):
            self.length = content_length(str(length))
        for element in headers.elements("Content-Disposition")[:1]:
            self.name = element.params.get("name")
            self.filename = element.params.get("filename")
            if "filename*" in element.params:
                charset, _, rest = element.params["filename*"].partition("'")
                try:
                    self.filename = urllib.parse.unquote(rest.partition("'")[2], charset or "utf-8", "strict")
                except (LookupError, UnicodeDecodeError):
                    raise HTTPError(400, "The filename* of a part cannot be decoded.") from None

    @property
    def type(self) -> Any:
        """The value of Content-Type with its parameters."""
        return self.content_type

    def __getattr__(self, name: str) -> Any:
        if name in ("read", "readline", "readlines"):
            return getattr(self.fp, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Any:
        return iter(self.fp)

    def read_into_file(self, fp_out: Any = None) -> Any:
        """Copy the whole body to a file, and return the file, positioned at its end."""
        file = self.make_file() if fp_out is None else fp_out
        shutil.copyfileobj(self.fp, file, CHUNK)
        return file

    def make_file(self) -> Any:
        """Return a temporary file for a body that is not kept in memory. Subclasses may override this."""
        return tempfile.TemporaryFile()

    def fullvalue(self) -> Any:
        """Return the whole value as text."""
        if not self.file:
            return self.decode_entity(self.value)
        self.file.seek(0)
        text = self.decode_entity(self.file.read())
        self.file.seek(0)
        return text

    def _parameter(self) -> Any:
        """Return the value for a handler: text, or the part itself if it is a file."""
        return self.fullvalue() if self.filename is None else self

    def decode_entity(self, value: Any) -> str:
        """Decode bytes with the first charset that can decode them. Raises HTTPError 400 if none can."""
        return value if isinstance(value, str) else self._first_that_fits(value.decode)

    def _first_that_fits(self, decode: Any) -> Any:
        for charset in self.attempt_charsets:
            try:
                decoded = decode(charset)
            except (UnicodeDecodeError, LookupError):
                continue
            self.charset = charset
            return decoded
        tried = f"The following charsets were attempted: {self.attempt_charsets!r}"
        raise HTTPError(400, f"The request entity could not be decoded. {tried}")

    def process(self) -> None:
        """Run the processor for the media type, else the one for its top-level type, else :meth:`default_proc`."""
        kind = self.content_type.value
        processor = self.processors.get(kind) or self.processors.get(kind.split("/", 1)[0])
        if processor is None:
            self.default_proc()
        else:
            processor(self)

    def default_proc(self) -> None:
        """Leave the body unread, for the handler."""


class Part(Entity):
    """A part of a multipart body. Without a filename it is kept in memory, up to ``maxrambytes`` bytes.

    Args:
        content: the content as an iterable of bytes.
        headers: the header fields of the part.
    """

    maxrambytes = 1000
    default_content_type = "text/plain"
    attempt_charsets: Any = ["us-ascii", "utf-8"]  # noqa: RUF012 - programs may change it

    def __init__(self, content: Any, headers: Any) -> None:
        super().__init__(None, headers)
        memory = io.BytesIO()
        self.fp: Any = memory if self.filename is None else self.make_file()
        for piece in content:
            self.fp.write(piece)
            if self.fp is memory and memory.tell() > self.maxrambytes:
                self.fp = self.make_file()
                self.fp.write(memory.getbuffer())
        self.fp.seek(0)

    def default_proc(self) -> None:
        """Store an uploaded file in ``file``, and another part in ``value``, or in ``file`` if it is long."""
        if isinstance(self.fp, io.BytesIO):
            self.value = self.fp.getvalue()
        else:
            self.file = self.fp


Entity.part_class = Part


class SizedReader(io.RawIOBase):
    """Reads at most ``length`` bytes from the server's stream. Raises HTTPError 413 above ``maxbytes``."""

    def __init__(self, fp: Any, length: int | None, maxbytes: Any, has_trailers: bool = False) -> None:
        self._fp, self._length, self._maxbytes, self._has_trailers = fp, length, maxbytes, has_trailers
        self.bytes_read, self.done = 0, False

    def readable(self) -> bool:
        """Return True, as :class:`io.RawIOBase` requires."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into ``buffer``, and return the number of bytes; 0 at the end."""
        size = len(buffer) if self._length is None else min(len(buffer), self._length - self.bytes_read)
        try:
            data = self._fp.read(size) if size and not self.done else b""
        except Exception as error:
            # cheroot raises this for a chunked body above the server's limit
            if type(error).__name__ == "MaxSizeExceeded":
                raise HTTPError(413) from error
            raise
        buffer[: len(data)] = data
        self.bytes_read += len(data)
        if not data and not self.done:
            self._finish()
        if self._maxbytes and self.bytes_read > self._maxbytes:
            raise HTTPError(413)
        return len(data)

    def _finish(self) -> None:
        self.done = True
        if self._length is not None and self.bytes_read < self._length:
            raise HTTPError(400, "The request entity is shorter than its Content-Length.")
        if self._has_trailers and hasattr(self._fp, "read_trailer_lines"):
            # cheroot leaves the trailer fields unread; they would be parsed as the next request.
            for _ in self._fp.read_trailer_lines():
                pass


class RequestBody(Entity):
    """The body of a request."""

    maxbytes: Any = None
    default_content_type = ""

    def __init__(self, fp: Any, headers: Any, params: Any = None, request_params: Any = None) -> None:
        super().__init__(fp, headers, params)
        # ISO-8859-1 is the default of RFC 2616 for text without a charset, and some clients still use it.
        named = {each.lower() for each in self.attempt_charsets}
        if self.content_type.value.startswith("text/") and not named & {"iso-8859-1", "latin-1"}:
            self.attempt_charsets = [*self.attempt_charsets, "ISO-8859-1"]
        # In other multipart types, parts without a name become the parameter "parts".
        self.processors["multipart"] = lambda entity: process_multipart_form_data(entity, "parts")
        self.request_params = {} if request_params is None else request_params

    def process(self) -> None:
        """Read the body. Raises HTTPError 411 without a Content-Length or Transfer-Encoding field."""
        headers = serving.request.headers
        if "Content-Length" not in headers and "Transfer-Encoding" not in headers:
            raise HTTPError(411)
        self.fp = io.BufferedReader(SizedReader(self.fp, self.length, self.maxbytes, "Trailer" in headers), _LINE)
        super().process()
        target = self.request_params
        for name, value in self.params.items():
            for each in value if isinstance(value, list) else [value]:
                httputil.add_param(target, name, each)
