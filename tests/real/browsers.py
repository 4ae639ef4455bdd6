"""A real browser as a client."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextlib.contextmanager
def chromium(program: Callable[[str], str], url: str, folder: Path) -> Iterator[None]:
    """A page in a browser without a window, ended with all of its processes."""
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    flags += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0", "--no-proxy-server"]
    with open(folder / "chromium.log", "wb") as log:
        process = subprocess.Popen(
            [program("chromium"), *flags, url], stdout=log, stderr=log, env={**os.environ, "HOME": str(folder)},
            start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        print((folder / "chromium.log").read_text(errors="replace"))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
