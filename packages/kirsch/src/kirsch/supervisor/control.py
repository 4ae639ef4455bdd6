"""The channel between the supervisor and one child: a pair of SOCK_SEQPACKET sockets, one JSON object per message.

A child that reads end-of-file has lost its supervisor, and stops gracefully. A supervisor that reads it has lost the
child. After an upgrade a supervisor and a worker may have different versions, so both ignore messages and fields that
they do not know.

From a worker:

    hello    pid                       it runs; the supervisor cannot know the pid of a worker that a zygote forked
    ready    name                      it is about to accept connections; name is the application's name
    failed   text, traceback, status   it cannot serve, and exits; the supervisor reports that once for all workers
    leaving  reason, text              it continues to serve, and asks for a successor
    left                               it stops by order of the supervisor: it accepts no more connections
    stopping reason, why               a signal has stopped it; it accepts no more connections

To a worker:

    stop     graceful_timeout, idle_timeout (None: idle connections have half a second), why
    certificates                       the certificates have changed: read them again (``certificates.py``)
    drain                              continue to serve, but fail health checks and send Connection: close

A zygote sends hello, ready and failed, and receives ``fork`` with a worker's end of its channel (:meth:`Channel.send`
with a descriptor).
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

# Tracebacks are truncated so that a message fits; all else is short. The kernel's default buffer is three times this
# size.
MESSAGE_MAX = 65536


class Channel:
    """One end of a channel. Its methods never block, and do not raise if the other end is closed."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=fd))

    @classmethod
    def adopt(cls, fd: int) -> Channel:
        """Return the channel of a descriptor from the previous image; -1 means a closed channel."""
        channel = cls(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) if fd < 0 else cls.from_fd(fd)
        if fd < 0:
            channel.close()
        else:
            channel.socket.set_inheritable(False)
        return channel

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: str, *, fd: int | None = None, **fields: object) -> bool:
        """Send a message with its fields and optionally a descriptor; return False if the other end is closed."""
        data = encode(message, **fields)
        try:
            if fd is None:
                self.socket.send(data)
            else:
                socket.send_fds(self.socket, [data], [fd])
        except OSError:
            return False  # the child has exited, or does not read, and then misses its deadline
        return True

    def receive(self) -> Message | None:
        """Return the next message; ``{}`` if none has arrived, None at the end of the channel."""
        return self.receive_with_fd()[0]

    def receive_with_fd(self) -> tuple[Message | None, int | None]:
        """Return the same as :meth:`receive`, with the descriptor that was sent with the message."""
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
    """Encode a message and its fields as bytes."""
    import json

    return json.dumps({"message": message, **fields}).encode()


def pair() -> tuple[Channel, Channel]:
    """Create a channel; return the supervisor's end and the child's end. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)
