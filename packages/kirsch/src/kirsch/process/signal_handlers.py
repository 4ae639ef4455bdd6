"""Sets signal handlers. A process that serves must set them here only, because this also makes room to run them in.

CPython runs handlers on the alternate stack if faulthandler has created one. Every worker has one, for its dumps, and
so has any process under ``PYTHONFAULTHANDLER``. It has room for a few signals at once. A process that was stopped, or
that waited for a processor, may get more signals at once than that, and would die of SIGSEGV
(``crates/gateway/src/signals.rs`` explains how).
"""

from __future__ import annotations

import signal

from kirsch import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def set_handlers(handlers: Mapping[Any, Any]) -> dict[int, Any]:
    """Set a handler for each signal; return the previous ones, None for one that Python had not installed.

    To be called after faulthandler was enabled. Raises ValueError, before anything is set, outside of the main thread.
    """
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    _native.make_room_for_signals()
    return previous


def do_nothing(_number: int, _frame: object) -> None:
    """Ignore a signal, unlike SIG_IGN, which programs that this process starts would inherit."""
