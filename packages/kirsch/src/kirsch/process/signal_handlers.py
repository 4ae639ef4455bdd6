"""Setting of signal handlers. A process that serves sets them only here, because this also enlarges the signal stack.

CPython runs handlers on the alternate stack if faulthandler has created one. Every worker has one, for its dumps, and
so has any process with ``PYTHONFAULTHANDLER``. It has room for only a few signals at once. A process that was stopped,
or waited for a processor, may get more signals at once, and would die of SIGSEGV (``crates/gateway/src/signals.rs``
explains how).
"""

from __future__ import annotations

import signal

from kirsch import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def set_handlers(handlers: Mapping[Any, Any]) -> dict[int, Any]:
    """Set a handler for each signal; return the previous handlers, None for one that was not installed from Python.
    Call this after faulthandler was enabled. Outside of the main thread it raises ValueError and sets nothing.
    """
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    _native.make_room_for_signals()
    return previous


def do_nothing(_number: int, _frame: object) -> None:
    """Ignore a signal. Unlike SIG_IGN, this is not inherited by programs that this process starts."""
