"""Memory that several processes share without locks: words, texts and records in it, and the order of stores. On x86,
stores become visible in program order; on other processors :func:`fence` enforces that. Each word is loaded and stored
atomically, because a memoryview of format ``Q`` copies eight aligned bytes.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from mmap import mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WORD = 8
RECORD_HEAD = 16
"""The bytes of a record before its text: its number, which is written last, and its length."""


class SharedMemory:
    """A mapped file. ``words`` and ``bytes`` are two views of it; an argument ``at`` is an offset in bytes."""

    def __init__(self, fd: int, size: int) -> None:
        # Since Python 3.13, mmap need not duplicate the descriptor, which every child would inherit.
        only: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        self._map = mmap(fd, size, **only)
        self.bytes = memoryview(self._map)
        self.words = self.bytes.cast("Q")

    def record(self, at: int, size: int) -> tuple[int, bytes]:
        """Return the number and the bytes of a record. The number is 0 if there is no record, or it is being
        written."""
        words = self.words
        number = words[at // WORD]
        fence()
        length = min(words[at // WORD + 1], size)
        record = bytes(self.bytes[at + RECORD_HEAD : at + RECORD_HEAD + length])
        fence()
        return (number, record) if words[at // WORD] == number else (0, b"")

    def set_record(self, at: int, number: int, record: bytes) -> None:
        """Write a record. Its number is written last, so that no reader gets part of it."""
        words = self.words
        words[at // WORD] = 0
        fence()
        words[at // WORD + 1] = len(record)
        self.bytes[at + RECORD_HEAD : at + RECORD_HEAD + len(record)] = record
        fence()
        words[at // WORD] = number

    def text(self, at: int, size: int) -> bytes:
        """Return a text. A reader may get part of a text that is being written, which is harmless."""
        length = min(self.words[at // WORD], size - WORD)
        return bytes(self.bytes[at + WORD : at + WORD + length])

    def set_text(self, at: int, size: int, text: bytes) -> None:
        """Write a text: a word with its length, then its bytes, truncated to ``size`` bytes in total."""
        text = text[: size - WORD]
        self.words[at // WORD] = 0
        fence()
        self.bytes[at + WORD : at + WORD + len(text)] = text
        fence()
        self.words[at // WORD] = len(text)


def fence() -> None:
    """Make earlier stores visible before later ones, and earlier loads happen before later ones.

    Releasing and acquiring a lock orders all accesses around it. On x86 no fence is needed; on other processors Python
    has no other way.
    """
    lock = allocate_lock()
    lock.acquire()
    lock.release()
    lock.acquire()


def anonymous_file() -> int:
    """Create an unnamed file, in memory if the system has such files. Raises OSError."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kirsch-scoreboard", os.MFD_CLOEXEC)
    import tempfile

    fd, path = tempfile.mkstemp(prefix="kirsch-")
    os.unlink(path)
    return fd
