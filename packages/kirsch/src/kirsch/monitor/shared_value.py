"""A value in memory shared with child processes: one process publishes it, the others read the newest version."""

from __future__ import annotations

import marshal
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The offset of the value and its length. A new value is written before this header, and the replaced value stays in
# place until the next publication, so that a reader sees a complete one.
_HEADER = struct.Struct("<QQ")
_BEGIN = 64

_ATTEMPTS = 1000


class SharedValue:
    """A value of types that ``marshal`` supports, in an unnamed file. Children inherit it, and can restrict
    themselves to reading."""

    def __init__(self, fd: int | None = None) -> None:
        """Open the value. ``fd`` is the file of the previous image of this program, or None for a new one. Raises
        OSError."""
        if fd is None:
            fd = os.memfd_create("kirsch-value", os.MFD_CLOEXEC) if hasattr(os, "memfd_create") else _temporary_file()
        os.set_inheritable(fd, False)
        self.fd = fd
        try:
            # A separate read-only descriptor of the file.
            self._read_fd = os.open(f"/dev/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._read_fd = os.dup(fd)

    def publish(self, value: Any) -> None:
        """Replace the value. Raises OSError."""
        # Format 2 of marshal is the same in every version of Python.
        data = marshal.dumps(value, 2)
        at, length = self._place()
        place = _BEGIN if _BEGIN + len(data) <= at else max(at + length, _BEGIN)
        os.pwrite(self.fd, data, place)
        os.pwrite(self.fd, _HEADER.pack(place, len(data)), 0)

    def read(self) -> Any:
        """Return the newest value; None if none was published."""
        for _ in range(_ATTEMPTS):
            at, length = place = self._place()
            if not at:
                return None
            data = os.pread(self._read_fd, length, at)
            if self._place() == place and len(data) == length:
                return marshal.loads(data)  # noqa: S302 - this program has written it
        return None

    def keep_reading_only(self) -> None:
        """In a child: close the descriptor for writing."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        """In a child that does not need the value: close it."""
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
