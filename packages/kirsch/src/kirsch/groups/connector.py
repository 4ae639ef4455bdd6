"""The Unix datagram socket pair by which the processes of a server connect to the relay of its groups; it is inherited.

The supervisor makes the pair before it forks anything. A worker that connects to the relay creates a stream socket pair
and sends one end of it through the *worker end*; the relay receives it from the *relay end*. So nothing has a name in
the file system or the network, no other user can connect, and a request to connect waits in the socket while no relay
runs: the supervisor starts the relay when the relay end is readable.
"""

from __future__ import annotations

import os

# Bound here, because gevent replaces os.close by a function that closes later.
from os import close

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

# The descriptor of this process for messages to the relay; -1 if there is no relay.
_worker_end = -1

_has_history = False


class Connector:
    """Both ends of the socket pair, as descriptors. ``fds`` are the descriptors of the previous image of this
    program (USR2). Raises OSError."""

    def __init__(self, fds: Sequence[int] = ()) -> None:
        if not fds:
            import socket

            relay_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
            relay_end.setblocking(False)
            fds = (relay_end.detach(), worker_end.detach())
        self.relay_end, self.worker_end = fds
        self.set_inheritable(False)

    def set_inheritable(self, inheritable: bool) -> None:
        """Set whether the descriptors survive an exec."""
        for end in (self.relay_end, self.worker_end):
            os.set_inheritable(end, inheritable)

    def export(self) -> list[int]:
        """Return the descriptors for the next image of this program. They survive an exec from now on."""
        self.set_inheritable(True)
        return [self.relay_end, self.worker_end]

    def use(self, url: str) -> None:
        """In a worker: use this connector when the application uses a group. ``url`` is the broker's URL, or empty."""
        global _worker_end, _has_history
        _worker_end = self.worker_end
        _has_history = "history=" in url

    def close_relay_end(self) -> None:
        """Close the relay end, in a child that is not the relay. May be called again."""
        if self.relay_end >= 0:
            close(self.relay_end)
            self.relay_end = -1

    def close_worker_end(self) -> None:
        """Close the worker end, in a child that is no worker. May be called again."""
        global _worker_end
        if self.worker_end >= 0:
            close(self.worker_end)
            self.worker_end = _worker_end = -1


def can_connect() -> bool:
    """Return whether this process belongs to a server with a relay."""
    return _worker_end >= 0


def has_history() -> bool:
    """Return whether messages have an id, from which readers can continue. If so, a message reaches the peers in its
    sender's process through the relay too."""
    return _has_history


def connect() -> socket.socket:
    """Return a new connection to the relay, which may have to be started first. Raises OSError; BlockingIOError if
    too many processes are connecting."""
    import socket

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    to_relay = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, fileno=_worker_end)
    try:
        socket.send_fds(to_relay, [b"+"], [theirs.fileno()], getattr(socket, "MSG_DONTWAIT", 0))
    except OSError:
        ours.close()
        raise
    finally:
        to_relay.detach()
        theirs.close()
    ours.setblocking(False)
    return ours


def accept(relay_end: int) -> socket.socket | None:
    """In the relay: return the next connection, or None if there is none now. Raises OSError."""
    import socket

    from_workers = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, fileno=relay_end)
    from_workers.setblocking(False)  # PyPy has made it blocking
    try:
        _, fds, _, _ = socket.recv_fds(from_workers, 1, 1)
    except BlockingIOError:
        return None
    finally:
        from_workers.detach()
    return socket.socket(fileno=fds[0]) if fds else None
