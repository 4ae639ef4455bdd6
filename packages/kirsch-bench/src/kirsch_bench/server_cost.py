"""CPU time of the measured server, if it runs on this machine and this user may inspect it.

The server is found by its listening socket: its number is in ``/proc/net``, and the descriptors of each process name
the sockets that it holds (proc(5)). Their processes and descendants are the server. Nothing is found on other systems,
on other machines, or of other users' processes; a result then has no such figure.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from typing import TYPE_CHECKING

from kirsch_bench.processes import Usage, family, usage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kirsch_bench.target import Target

_LISTENING = "0A"
"""The state of a TCP socket that listens, in /proc/net/tcp."""

_LISTENING_UNIX = 0x10000
"""The flag of a Unix socket that listens, in /proc/net/unix."""


class ListeningServer:
    """The processes that listen at a target, and their descendants."""

    def __init__(self, roots: Iterable[int]) -> None:
        self._roots = frozenset(roots)

    def pids(self) -> list[int]:
        """Return the pids of the living processes."""
        return family(self._roots)

    def usage(self) -> Usage:
        """Return the usage so far."""
        return usage_of(self.pids())

    def usage_of(self, pids: Sequence[int]) -> Usage:
        """Return the usage of some of the server's processes so far."""
        return usage_of(pids)


def find(target: Target) -> ListeningServer | None:
    """Return the server that listens at ``target``; None if it is not found."""
    inodes = _unix_inodes(target.unix) if target.unix else _tcp_inodes(target)
    roots = _holders(inodes) - {os.getpid()} if inodes else set()
    return ListeningServer(roots) if roots else None


def _tcp_inodes(target: Target) -> set[str]:
    found: set[str] = set()
    own = [ip for ip in target.ips if _is_of_this_machine(ip)]
    for name in ("tcp", "tcp6") if own else ():
        for fields in _rows(f"/proc/net/{name}"):
            address, _, port = fields[1].partition(":")
            if fields[3] != _LISTENING or int(port, 16) != target.port:
                continue
            if not address.strip("0") or any(address == _as_in_proc(ip) for ip in own):
                found.add(fields[9])
    return found


def _unix_inodes(path: str) -> set[str]:
    return {
        fields[6]
        for fields in _rows("/proc/net/unix")
        if len(fields) > 7 and fields[7] == path and int(fields[3], 16) & _LISTENING_UNIX
    }


def _rows(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return [line.split() for line in file][1:]
    except OSError:
        return []


def _is_of_this_machine(ip: str) -> bool:
    """Return whether the address belongs to this machine: a socket can bind to it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET) as probe:
            probe.bind((ip.partition("%")[0], 0))
    except OSError:
        return False
    return True


def _as_in_proc(ip: str) -> str:
    """Return an address in the format of /proc/net/tcp: 32-bit words in this machine's byte order."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip.partition("%")[0])
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{memoryview(word).cast('I')[0]:08X}" for word in words)


def _holders(inodes: set[str]) -> set[int]:
    """Return the pids of processes that have one of these sockets open."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if re.fullmatch(r"\d+", name):
            with contextlib.suppress(OSError):
                folder = f"/proc/{name}/fd"
                for fd in os.listdir(folder):
                    with contextlib.suppress(OSError):
                        if os.readlink(f"{folder}/{fd}") in wanted:
                            found.add(int(name))
                            break
    return found
