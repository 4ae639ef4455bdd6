"""The channel between the supervisor and one child: a pair of SOCK_SEQPACKET sockets, a JSON object for each message.

A child that reads the end of the channel has lost its supervisor and stops gracefully; a supervisor that reads it has
lost the child. A supervisor and a worker may be of different versions after an upgrade, so each ignores what it does
not know.

From a worker:

    hello    pid                       it lives; the supervisor cannot know the pid of one that a zygote has forked
    ready    name                      about to accept; name is the application's
    failed   text, traceback, status    it cannot serve, and ends; the supervisor says why, once for all workers
    leaving  reason, text              it serves on, and wants to be replaced
    left                               it was told to stop, and accepts no more
    stopping reason, why                      a signal has ended it: it accepts no more

To a worker:

    stop     graceful_timeout, idle_timeout (None: idle connections have half a second), why
    drain                              serve on, but let the health path fail and responses say Connection: close

A zygote says hello, ready and failed, and is told ``fork`` with a worker's channel (:meth:`Channel.send` with a
descriptor).
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

# A traceback is cut to less; everything else is short. The kernel's default buffer is three times this.
MESSAGE_MAX = 65536


class Channel:
    """One end. Nothing here waits, and nothing raises because the other end is gone."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fd))

    @classmethod
    def adopt(cls, fd: int) -> Channel:
        """One that an image before this one has left open; -1: it had ended."""
        channel = cls(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) if fd < 0 else cls.from_fd(fd)
        if fd < 0:
            channel.close()
        else:
            channel.socket.set_inheritable(False)
        return channel

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: str, *, fd: int | None = None, **fields: object) -> bool:
        """Say ``message`` with its fields, and hand a descriptor over; False where nobody listens any more."""
        data = encode(message, **fields)
        try:
            if fd is None:
                self.socket.send(data)
            else:
                socket.send_fds(self.socket, [data], [fd])
        except OSError:
            return False  # gone, or so stuck that its buffer is full: its deadline will tell
        return True

    def receive(self) -> Message | None:
        """The next message; ``{}`` where there is none now, None where there will be none any more."""
        return self.receive_with_fd()[0]

    def receive_with_fd(self) -> tuple[Message | None, int | None]:
        """The same with the descriptor that came along."""
        import json

        try:
            data, fds, _flags, _address = socket.recv_fds(self.socket, MESSAGE_MAX + 4096, 1)
        except (BlockingIOError, InterruptedError):
            return {}, None
        except OSError:
            return None, None
        if not data:
            return None, None
        fd = fds[0] if fds else None
        try:
            message = json.loads(data)
        except ValueError:
            return {"message": ""}, fd
        return (message if isinstance(message, dict) else {"message": ""}), fd

    def close(self) -> None:
        self.socket.close()


def encode(message: str, **fields: object) -> bytes:
    """``message`` with its fields as it is sent."""
    import json

    return json.dumps({"message": message, **fields}).encode()


def pair() -> tuple[Channel, Channel]:
    """The supervisor's end and the child's. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)
