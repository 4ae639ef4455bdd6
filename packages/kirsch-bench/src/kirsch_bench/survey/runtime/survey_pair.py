"""Starts an application server and a web server in front of it: ``survey_pair.py FILE``.

FILE is JSON: ``back`` and ``front`` are commands, ``socket`` is the path of the Unix socket between them, ``processes``
how many of ``back`` there are, and with ``passed`` they get the listening socket as descriptor 0 (FastCGI 1.0, 2.2).
SIGTERM ends both. If one ends by itself, so does the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

BACKLOG = 1024
START_SECONDS = 30.0


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        pair = json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started: list[subprocess.Popen[bytes]] = []
    try:
        started += start_back(pair)
        started.append(subprocess.Popen(pair["front"], stdin=subprocess.DEVNULL))  # noqa: S603 - the survey's command
        # Any child: the one that ends first ends the pair.
        os.waitpid(-1, 0)
        return 1
    finally:
        for each in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                each.terminate()
        for each in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(2)


def start_back(pair: dict[str, Any]) -> list[subprocess.Popen[bytes]]:
    """Return the application's processes, once their socket takes connections."""
    address, command = pair["socket"], pair["back"]
    if pair["passed"]:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            os.chmod(address, 0o666)  # noqa: S103 - the web server is another user
            listener.listen(BACKLOG)
            return [
                subprocess.Popen(command, stdin=listener.fileno())  # noqa: S603 - the survey's command
                for _ in range(pair["processes"])
            ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the survey's command
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(address)
            return [process]
        time.sleep(0.005)
    process.kill()
    sys.exit(f"{command[0]} does not listen on {address}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
