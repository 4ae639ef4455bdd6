"""Output: standard output and the files of the reports.

A path that cannot be written is reported before anything is measured. A file replaces the one that was there as a
whole. One that could not be written (a full disk) is reported, and the others are written all the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from kirsch import reports
from kirsch_bench.errors import Failure, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


class Files:
    """The output files. ``paths`` are by flag; ``-`` is standard output, and the summary then goes to standard
    error."""

    def __init__(self, paths: dict[str, str]) -> None:
        self._paths = paths
        self.failed = False
        """True if a report could not be written."""
        if sum(path == "-" for path in paths.values()) > 1:
            raise UsageError("only one report fits standard output")
        for flag, path in paths.items():
            _require_writable(flag, path)

    def answer(self, text: str) -> None:
        """Print ``text`` to standard output, or to standard error if a report goes to standard output."""
        self._print(text, sys.stderr if "-" in self._paths.values() else sys.stdout)

    def write_json(self, document: dict[str, Any]) -> None:
        """Write the report of ``--json``, if that is given."""
        self.write("json", lambda: json.dumps(document, indent=1, ensure_ascii=False) + "\n")

    def write(self, flag: str, make: Callable[[], str]) -> None:
        """Write the report of a flag, if that is given; ``make`` returns its text."""
        path = self._paths.get(flag)
        if path is None:
            return
        if path == "-":
            self._print(make().rstrip("\n"), sys.stdout)
            return
        self.write_bytes(flag, lambda: make().encode("utf-8", "backslashreplace"))

    def write_bytes(self, flag: str, make: Callable[[], bytes]) -> None:
        """Write the binary file of a flag, if that is given. Never to standard output."""
        path = self._paths.get(flag)
        if path is None:
            return
        try:
            _replace(path, make())
        except OSError as error:
            self.failed = True
            reports.write_stderr(f"kirsch bench: cannot write {path}: {error.strerror}")

    def _print(self, text: str, stream: Any) -> None:
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:
            # The reader has closed the pipe. Discard the rest of the buffer, so that the exit does not try to write it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            raise Failure(f"cannot write to standard output: {error.strerror}") from None


def _require_writable(flag: str, path: str) -> None:
    if path == "-":
        return
    try:
        if _is_special(path):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        else:
            with tempfile.NamedTemporaryFile(dir=os.path.dirname(path) or "."):
                pass
            if os.path.exists(path) and not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise UsageError(f"--{flag}: cannot write {path}: {error.strerror}") from None


def _is_special(path: str) -> bool:
    """Return whether the path is not a regular file but a device, pipe or directory."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _replace(path: str, data: bytes) -> None:
    if _is_special(path):
        with open(path, "wb", buffering=0) as file:
            _write_all(file.fileno(), data)
        return
    path = os.path.realpath(path)
    fd, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            _write_all(fd, data)
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
