"""multipart/form-data (RFC 7578), as browsers send it, within the limits of :class:`kirsch_web.forms.Limits`.

The body is searched for its delimiter with ``bytes.find``, so that the cost of a large file is that of copying it. A
file larger than ``spool`` bytes goes to an unnamed temporary file. A body that two programs could parse differently is
refused: one with a nested multipart, a transfer encoding, a part without a name, a header that is not UTF-8, bytes
after a delimiter or before the first one, or without its closing delimiter.
"""

from __future__ import annotations

import re

from kirsch_web.errors import HTTPError
from kirsch_web.forms import Form, Upload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from kirsch_web.forms import Limits

_BOUNDARY = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]").fullmatch
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)").fullmatch
_PLAIN = re.compile(rb'Content-Disposition: form-data; name="([^"\\%&;\r\n\x00\x80-\xff]*)"').fullmatch
# In a quoted string browsers send `%22` for a quote, and others `\"`. A lone backslash is kept.
_QUOTED = re.compile(r';[ \t]*([0-9A-Za-z_-]+\*?)=(?:"((?:[^"\\]|\\.)*)"|([^;"\s]*))[ \t]*')


def parse(chunks: Iterator[bytes], boundary: str, limits: Limits) -> Form:
    """Return the form of a multipart/form-data body that arrives in ``chunks``."""
    if not _BOUNDARY(boundary):
        raise HTTPError(400, "the boundary of the multipart body is missing or not one of RFC 2046")
    form = Form({}, {})
    try:
        _Parser(chunks, boundary.encode("ascii"), limits, form).run()
    except BaseException:
        form.close()
        raise
    return form


class _Parser:
    """The parser of one body. ``_buffer`` from ``_at`` on are the bytes that are received and not yet parsed."""

    def __init__(self, chunks: Iterator[bytes], boundary: bytes, limits: Limits, form: Form) -> None:
        self._chunks = chunks
        self._delimiter = b"\r\n--" + boundary
        self._limits = limits
        self._form = form
        self._buffer = b""
        self._at = 0
        self._memory = 0

    def run(self) -> None:
        delimiter = self._delimiter
        self._skip_preamble()
        parts = 0
        while True:
            # A delimiter was read. Two dashes end the body; white space may follow each (RFC 2046, 5.1.1).
            while len(self._buffer) - self._at < 2:
                self._more()
            buffer, at = self._buffer, self._at
            if buffer.startswith(b"--", at):
                return  # the epilogue, if any, is ignored
            if not buffer.startswith(b"\r\n", at):
                self._skip_padding()
            else:
                self._at = at + 2
            parts += 1
            if parts > self._limits.parts:
                raise HTTPError(413, f"the form has more than {self._limits.parts} parts")
            name, filename, content_type = self._header()
            if filename is None:
                value = self._text(delimiter)
                present = self._form.fields.get(name)
                if present is None:
                    self._form.fields[name] = [value]
                else:
                    present.append(value)
            else:
                upload = self._file(delimiter, filename, content_type)
                self._form.files.setdefault(name, []).append(upload)

    def _more(self) -> None:
        """Append the next chunk to the bytes that are not yet parsed."""
        self._buffer = self._buffer[self._at :] + self._chunk()
        self._at = 0

    def _chunk(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        raise HTTPError(400, "the multipart body has no closing delimiter")

    def _skip_preamble(self) -> None:
        """Read the first delimiter; an empty line may precede it. RFC 2046 allows other text; no browser sends it."""
        length = len(self._delimiter)
        while len(self._buffer) < length:
            self._more()
        if self._buffer.startswith(self._delimiter):
            self._at = length
        elif self._buffer.startswith(self._delimiter[2:]):
            self._at = length - 2
        else:
            raise HTTPError(400, "the multipart body does not begin with its delimiter")

    def _skip_padding(self) -> None:
        """Skip the white space that RFC 2046 lets follow a delimiter."""
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            if len(self._buffer) - self._at > 200:
                break
            self._more()
        if end < 0 or self._buffer[self._at : end].strip(b" \t"):
            raise HTTPError(400, "a delimiter of the multipart body is followed by other bytes")
        self._at = end + 2

    def _header(self) -> tuple[str, str | None, str]:
        """Return name, filename and type of the part. The filename is None for a field."""
        limit = self._limits.part_headers
        start = 0
        while (end := self._buffer.find(b"\r\n\r\n", self._at + start)) < 0:
            start = max(0, len(self._buffer) - self._at - 3)
            if start > limit:
                break
            self._more()
        if end < 0 or end - self._at > limit:
            raise HTTPError(413, f"the header of a part has more than {limit} bytes")
        data = self._buffer[self._at : end]
        self._at = end + 4
        if plain := _PLAIN(data):
            return plain[1].decode("ascii"), None, ""
        return _read_header(data)

    def _text(self, delimiter: bytes) -> str:
        pieces: list[bytes] = []
        for piece in self._content(delimiter):
            self._memory += len(piece)
            if self._memory > self._limits.memory:
                raise HTTPError(413, f"the fields of the form have more than {self._limits.memory} bytes")
            pieces.append(bytes(piece))
        try:
            return (pieces[0] if len(pieces) == 1 else b"".join(pieces)).decode()
        except UnicodeDecodeError:
            raise HTTPError(400, "a field of the form is not UTF-8") from None

    def _file(self, delimiter: bytes, filename: str, content_type: str) -> Upload:
        import io
        import tempfile
        from typing import cast

        spool = self._limits.spool
        file: BinaryIO = io.BytesIO()
        on_disk = False
        size = 0
        try:
            for piece in self._content(delimiter):
                size += len(piece)
                if not on_disk and size > spool:
                    # Unbuffered: each piece is one write, and other threads run meanwhile.
                    spooled = cast("BinaryIO", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115
                    file, earlier, on_disk = spooled, file, True
                    _write(file, cast("io.BytesIO", earlier).getbuffer())
                _write(file, piece)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return Upload(filename, content_type or "application/octet-stream", file, size)

    def _content(self, delimiter: bytes) -> Iterator[memoryview]:
        """Yield the content of the part, and consume the next delimiter. The pieces are views, so that bytes are copied
        only once."""
        # A delimiter that uses the CR LF of the empty line: RFC 2046 allows it and programs differ.
        while len(self._buffer) - self._at < len(delimiter) - 2:
            self._more()
        if self._buffer.startswith(delimiter[2:], self._at):
            raise HTTPError(400, "a part of the multipart body has no content, not even an empty one")
        while (found := self._buffer.find(delimiter, self._at)) < 0:
            # Everything except a tail that may be the beginning of a delimiter.
            safe = len(self._buffer) - len(delimiter) + 1
            if safe > self._at:
                piece = memoryview(self._buffer)[self._at : safe]
                self._at = safe
                yield piece
            # Only what is left may begin a delimiter. Where it does not, the chunk is not copied to its end.
            left, chunk = self._buffer[self._at :], self._chunk()
            if len(chunk) > len(delimiter) and delimiter not in left + chunk[: len(delimiter) - 1]:
                yield memoryview(left)
                self._buffer = chunk
            else:
                self._buffer = left + chunk
            self._at = 0
        piece = memoryview(self._buffer)[self._at : max(found, self._at)]
        self._at = found + len(delimiter)
        yield piece


def _write(file: BinaryIO, data: memoryview) -> None:
    """Write all of ``data``, because an unbuffered file may write only a part at once."""
    written = file.write(data)
    while written < len(data):
        written += file.write(data[written:])


def _read_header(data: bytes) -> tuple[str, str | None, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise HTTPError(400, "the header of a part is not UTF-8") from None
    disposition, content_type = None, ""
    for line in text.split("\r\n"):
        match = _FIELD(line)
        if match is None:
            raise HTTPError(400, "the header of a part has a line that is no field")
        name, value = match[1].lower(), match[2].strip(" \t")
        if name == "content-disposition":
            if disposition is not None:
                raise HTTPError(400, "a part has two Content-Dispositions")
            disposition = value
        elif name == "content-type":
            if value.lower().startswith("multipart/"):
                raise HTTPError(400, "a multipart inside a multipart is refused")
            content_type = value
        elif name == "content-transfer-encoding" and value.lower() not in ("7bit", "8bit", "binary"):
            raise HTTPError(400, "a part has a Content-Transfer-Encoding, which RFC 7578 does not allow")
    if disposition is None:
        raise HTTPError(400, "a part has no Content-Disposition")
    return *_disposition(disposition), content_type


def _disposition(value: str) -> tuple[str, str | None]:
    kind, semicolon, rest = value.partition(";")
    if kind.strip().lower() != "form-data":
        raise HTTPError(400, "the Content-Disposition of a part is not form-data")
    parameters: dict[str, str] = {}
    text, position = semicolon + rest, 0
    while position < len(text):
        match = _QUOTED.match(text, position)
        if match is None:
            if text[position:].strip(" \t;"):
                raise HTTPError(400, "the Content-Disposition of a part breaks its grammar")
            break
        name = match[1].lower()
        if name in parameters:
            raise HTTPError(400, f"the Content-Disposition of a part has two parameters {name}")
        parameters[name] = match[3] if match[2] is None else _unescape(match[2])
        position = match.end()
    if "name" not in parameters:
        raise HTTPError(400, "a part has no name")
    # `filename*` is not allowed in forms (RFC 7578, 4.2), and no browser sends it: a filter in front may not know it.
    if "filename*" in parameters or "name*" in parameters:
        raise HTTPError(400, "the Content-Disposition of a part has an extended parameter")
    return parameters["name"], parameters.get("filename")


def _unescape(text: str) -> str:
    text = text.replace('\\"', '"').replace("\\\\", "\\") if "\\" in text else text
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n") if "%" in text else text
