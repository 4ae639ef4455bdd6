"""A value in memory that a process shares with its children: one process publishes it, the others read the newest."""

from __future__ import annotations

import marshal
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Where the value is, and its length. The value is written first and then this, and a value that is replaced stays in
# place until the next one after it, so that a reader sees one of the two.
_HEADER = struct.Struct("<QQ")
_BEGIN = 64

_ATTEMPTS = 1000


class SharedValue:
    """A value of Python's simplest types, in an unnamed file. Children inherit it, and can read it alone."""

    def __init__(self, fd: int | None = None) -> None:
        """``fd`` is the file of the previous image of this program. Raises OSError."""
        if fd is None:
            fd = os.memfd_create("kirsch-value", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else _temporary_file()
        os.set_inheritable(fd, False)
        self.fd = fd
        try:
            # Another view of the file, which cannot write.
            self._read_fd = os.open(f"/dev/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._read_fd = os.dup(fd)

    def publish(self, value: Any) -> None:
        """Replace the value. Raises OSError."""
        # The format 2 is the same in every version of Python.
        data = marshal.dumps(value, 2)
        at, length = self._place()
        place = _BEGIN if _BEGIN + len(data) <= at else max(at + length, _BEGIN)
        os.pwrite(self.fd, data, place)
        os.pwrite(self.fd, _HEADER.pack(place, len(data)), 0)

    def read(self) -> Any:
        """Return the newest value; None if there is none."""
        for _ in range(_ATTEMPTS):
            at, length = place = self._place()
            if not at:
                return None
            data = os.pread(self._read_fd, length, at)
            if self._place() == place and len(data) == length:
                return marshal.loads(data)  # noqa: S302 - this program has written it
        return None

    def keep_reading_only(self) -> None:
        """In a child: give up the right to publish."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """In a child that needs nothing of it: close it."""
        if self.fd >= 0:
            self.keep_reading_only()
        os.close(self._read_fd)

    def _place(self) -> tuple[int, int]:
        header = os.pread(self._read_fd, _HEADER.size, 0)
        return _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0)


def _temporary_file() -> int:
    import tempfile

    fd, path = tempfile.mkstemp(prefix="kirsch-")
    os.unlink(path)
    return fd
