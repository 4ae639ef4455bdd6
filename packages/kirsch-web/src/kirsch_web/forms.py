"""The fields and files of a form, and the limits of request bodies."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

CHUNK = 112 * 1024
"""The number of bytes read from a body at once: the largest buffer for which glibc maps no new pages."""


class Limits(NamedTuple):
    """The limits of one request body, by the names of the settings ``body.*``. Sizes are in bytes."""

    limit: int = 1 << 20
    """A body that is read as a whole: JSON, an urlencoded form, ``request.body()``."""
    upload_limit: int = 64 << 20
    """A whole multipart body, files included."""
    memory: int = 1 << 20
    """All fields of a multipart body that are no files, together."""
    fields: int = 1000
    """The number of fields in a query string or an urlencoded form."""
    parts: int = 1000
    """The number of parts in a multipart body."""
    part_headers: int = 8 << 10
    """The header of one part."""
    spool: int = 256 << 10
    """A file of a multipart body that is larger goes to a temporary file."""


class Upload:
    """A file of a form.

    The client chooses ``filename``: show it, but never use it as a path to write to.
    """

    __slots__ = ("_file", "content_type", "filename", "size")

    def __init__(self, filename: str, content_type: str, file: BinaryIO, size: int) -> None:
        self.filename = filename
        self.content_type = content_type
        self.size = size
        self._file = file

    @property
    def file(self) -> BinaryIO:
        """The content, as a file at its beginning; a temporary file if the content is large."""
        return self._file

    def read(self) -> bytes:
        """Return the whole content."""
        self._file.seek(0)
        return self._file.read()

    def save(self, path: str) -> None:
        """Write the content to a new file. Raises FileExistsError if the file exists."""
        self._file.seek(0)
        with open(path, "xb") as target:
            copy(self._file, target)

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def __repr__(self) -> str:
        return f"<Upload {self.filename!r} {self.content_type} {self.size} bytes>"


class Form:
    """The fields and files of a form. A field may have several values, a file input several files."""

    __slots__ = ("fields", "files")

    def __init__(self, fields: dict[str, list[str]], files: dict[str, list[Upload]]) -> None:
        self.fields = fields
        self.files = files

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of a field, or ``default`` if the form does not have it."""
        values = self.fields.get(name)
        return values[0] if values else default

    def __getitem__(self, name: str) -> str:
        return self.fields[name][0]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def keys(self) -> Iterable[str]:
        """Return the names of the fields. ``dict(form)`` uses them, and gets the first value of each."""
        return self.fields.keys()

    def items(self) -> Iterable[tuple[str, str]]:
        """Return the name and the first value of each field."""
        return [(name, values[0]) for name, values in self.fields.items()]

    def __bool__(self) -> bool:
        return bool(self.fields or self.files)

    def close(self) -> None:
        """Remove the temporary files."""
        for uploads in self.files.values():
            for upload in uploads:
                upload.close()


def copy(source: BinaryIO, target: BinaryIO) -> int:
    """Copy all bytes. Return their number."""
    total = 0
    while block := source.read(CHUNK):
        target.write(block)
        total += len(block)
    return total
