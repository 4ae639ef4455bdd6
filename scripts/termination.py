"""The end of a script that has started servers."""

from __future__ import annotations

import signal
import sys


def end_servers_on_sigterm() -> None:
    """Let SIGTERM, which ``timeout`` sends, end the script like an exception, so that it ends its servers first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
