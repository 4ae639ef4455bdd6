"""A ``kirsch._native.NativeServer`` of its own in a process of its own, for what no option of ``kirsch`` reaches yet.

Run as a program it serves ``waiting_app`` as the JSON object that is its argument says: ``driver``, ``threads``,
``scoreboard`` (a file to be mapped), ``certificate`` (the files of a certificate and its key), ``stop`` (the arguments
of ``stop()``), ``two_engines`` (as ``two_engines.py``), and further arguments of the constructor. TERM stops it, USR2
has it drain. It prints the same line as ``kirsch`` where it listens.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interpreter import needs_gevent, parametrize_drivers
from kirsch import _native
from kirsch.config.native import NativeConfig
from kirsch.config.schema import SETTINGS
from kirsch.drivers import choice
from kirsch.net.certificates import TlsFiles, new_secrets
from running import Running

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTED = re.compile(r"^on (?P<addresses>\S.*)$", re.MULTILINE)

DRIVERS: dict[str, dict[str, Any]] = {
    "threads": {"driver": "threads", "threads": 4},
    "one thread": {"driver": "threads", "threads": 1},
    "gevent": {"driver": "gevent"},
}
every_driver = parametrize_drivers(*DRIVERS)


@contextlib.contextmanager
def native_site(**options: Any) -> Iterator[Running]:
    """Such a process, until the end of the ``with`` block. Skips the test where its driver is not installed."""
    if options.get("driver") == "gevent":
        needs_gevent()
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=[options["limit_fd"]] if "limit_fd" in options else [],
    )
    site = Running("waiting_app", process, STARTED)
    try:
        yield site
    finally:
        complaints = site.finish()
        print(site.stderr)
    assert not complaints, complaints


class Board:
    """A scoreboard in a file, read from another process than the one that writes it."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "scoreboard")
        # Longer than it has to be, as a page is.
        Path(self.path).write_bytes(b"\xff" * 4096)
        with open(self.path, "r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")

    def __getitem__(self, name: str) -> int:
        return self._words[_native.SCOREBOARD_FIELDS.index(name)]

    def all(self) -> dict[str, int]:
        return dict(zip(_native.SCOREBOARD_FIELDS, self._words, strict=False))

    def buckets(self, name: str) -> list[int]:
        return [self[f"{name}_{index}"] for index in range(len(_native.SCOREBOARD_BOUNDS) + 1)]


class Fifo:
    """The gates at which the pages ``block`` and ``hold`` wait."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "fifo")
        os.mkfifo(self.path)
        # For writing too, so that opening it does not wait, and for as long as this object lives.
        self._descriptor = os.open(self.path, os.O_RDWR)

    def let_go(self, calls: int = 1) -> None:
        os.write(self._descriptor, bytes(calls))

    def __enter__(self) -> Fifo:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def serve(options: dict[str, Any]) -> None:
    name, threads = options.pop("driver"), options.pop("threads", 1)
    stop = options.pop("stop", {"graceful_timeout": 5.0})
    choice.prepare(name)
    if options.pop("two_engines", False):
        from kirsch.drivers import threads as threads_driver

        threads_driver.engines = lambda threads: 2
    from waiting_app import app

    if path := options.pop("scoreboard", None):
        with open(path, "r+b") as file:
            options["scoreboard"] = mmap.mmap(file.fileno(), 0)
    if files := options.pop("certificate", None):
        values = {each.name: each.default_value for each in SETTINGS}
        values.update(zip(("certfile", "keyfile"), files, strict=True))
        options["certificates"] = [_native.Certificates(TlsFiles(values).read(new_secrets()))]
    listener = socket.create_server(("127.0.0.1", 0))
    driver = choice.make(name, threads)
    driver.begin()
    config = NativeConfig(options)
    driver.configure(config)
    native = _native.NativeServer(app, [listener.fileno()], config)
    print(
        ("on https://{}:{}" if files else "on http://{}:{}").format(*listener.getsockname()),
        file=sys.stderr,
        flush=True,
    )
    listener.close()
    signal.signal(signal.SIGTERM, lambda *_: native.stop(**stop))
    signal.signal(signal.SIGUSR2, lambda *_: native.drain())
    signal.set_wakeup_fd(native.wakeup_fd(), warn_on_full_buffer=False)
    driver.run(native)
    driver.end()
    _native.flush_logs(5.0)  # as kirsch.Server does


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    serve(json.loads(sys.argv[1]))
