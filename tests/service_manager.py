"""Acts as systemd does for a service: receives its notifications, and opens its sockets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

_LAUNCHER = """
import os, sys
first, *command = sys.argv[1:]
descriptors, names = eval(first)
# Out of the way of the numbers that are wanted, then into them: sd_listen_fds(3) has them begin at 3.
high = [os.dup2(fd, 100 + index, inheritable=False) for index, fd in enumerate(descriptors)]
for fd in descriptors:
    os.close(fd)
for index, fd in enumerate(high):
    os.dup2(fd, 3 + index, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)))
if names:
    os.environ["LISTEN_FDNAMES"] = ":".join(names)
os.execvp(command[0], command)
"""


def activated(command: Sequence[str], sockets: Sequence[socket.socket], names: Sequence[str] = ()) -> list[str]:
    """``command`` with ``sockets`` as descriptors 3 and up, as socket activation passes them. Start it with
    ``pass_fds``; ``systemd-socket-activate`` would bind addresses of its own."""
    descriptors = [sock.fileno() for sock in sockets]
    return [sys.executable, "-c", _LAUNCHER, repr((descriptors, list(names))), *command]


class ServiceManager:
    """The end of ``NOTIFY_SOCKET`` that hears: every message, in order, as the assignments that it consists of."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.setblocking(False)
        self.heard: list[dict[str, str]] = []

    def wait_for(self, *assignments: str, timeout: float = 20.0, after: int = 0) -> dict[str, str]:
        """The first message from number ``after`` on with all ``assignments`` (``READY=1``, or just a name)."""
        deadline = time.monotonic() + timeout
        while True:
            for message in self.listen()[after:]:
                if all(_holds(message, assignment) for assignment in assignments):
                    return message
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise AssertionError(f"{timeout} s passed without {assignments}; heard: {self.heard}")
            select.select([self._socket], [], [], remaining)

    def listen(self) -> list[dict[str, str]]:
        """All that was said until now."""
        with contextlib.suppress(BlockingIOError):
            while True:
                lines = self._socket.recv(65536).decode().split("\n")
                self.heard.append(dict(line.split("=", 1) for line in lines))
        return self.heard

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        if not self.address.startswith("@"):
            os.unlink(self.address)


def _holds(message: dict[str, str], assignment: str) -> bool:
    name, equals, value = assignment.partition("=")
    return name in message and (not equals or message[name] == value)
