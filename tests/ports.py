"""Ports for web servers that cannot choose one themselves, as Kirsch and our own listeners do with port 0."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_BELOW = 12_000
_CHOICE = random.SystemRandom()  # not the seeded one, which would choose the same port in two test processes


def free_port() -> int:
    """A TCP port that nothing uses, of no address of this machine.

    The kernel gives the ports of ``ip_local_port_range`` to clients. A port out of that range could belong to a client
    of another test by the time the web server listens, which then fails with "Address already in use". Nor may what
    waits for the web server connect to its own port (simultaneous open, RFC 9293 section 3.5). So this is one below.
    """
    first = int(_RANGE.read_text().split()[0])
    for _ in range(1000):
        # If the range begins so low that little is left below it, any port has to do.
        port = _CHOICE.randrange(first - _BELOW, first) if first > _BELOW + 1024 else 0
        with socket.socket() as sock:
            try:
                sock.bind(("", port))
            except OSError:
                continue
            taken: int = sock.getsockname()[1]
            return taken
    raise AssertionError("1,000 ports were tried, and all are in use")
