"""Applications that misbehave while they are imported: MATRIX_IMPORT names the behaviour."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

from matrix.process import KEPT
from matrix.table import Table

IMPORTS = Table()
at_import = IMPORTS.group("import", alone=True)


@at_import(cause="ValueError|in the import")
def raises() -> None:
    raise ValueError("in the import")


@at_import(cause="SystemExit|exit|status|code")
def exits() -> None:
    sys.exit(3)


@at_import(cause="SystemExit|exit|status|code")
def os_exits() -> None:
    os._exit(3)


@at_import(cause="KeyboardInterrupt|SIGINT|Error")
def interrupts() -> None:
    raise KeyboardInterrupt


@at_import(cause=r"SIGSEGV|signal 11|[Ss]egmentation|-11|code")
def segfaults() -> None:
    ctypes.string_at(0)


@at_import(cause="RecursionError")
def recurses() -> None:
    recurses()


@at_import
def thread_left() -> None:
    threading.Thread(target=time.sleep, args=(600,)).start()


@at_import
def daemon_thread_left() -> None:
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()


@at_import
def forks_and_exits() -> None:
    if not os.fork():
        os._exit(0)


@at_import
def child_goes_on() -> None:
    os.fork()


@at_import
def loop_left() -> None:
    import asyncio

    KEPT.append(asyncio.new_event_loop())


@at_import
def slow() -> None:
    time.sleep(1)


@at_import
def closes_standard_streams() -> None:
    for stream in (sys.stdin, sys.stdout):
        if stream is not None:
            stream.close()


@at_import
def ignores_signals() -> None:
    import signal

    for name in ("SIGTERM", "SIGINT", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


@at_import(cause="callable|app|Error")
def no_application() -> None:
    globals()["app"] = 5


@at_import
def changes_directory() -> None:
    os.chdir("/")
    os.umask(0o777)


def app(environ: Any, start_response: Any) -> Any:
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "5")])
    return [b"hello"]


if "MATRIX_IMPORT" in os.environ:
    IMPORTS[os.environ["MATRIX_IMPORT"]].act()
