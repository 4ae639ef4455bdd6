"""Signal handlers are set here, and nowhere else in a process that serves: with them comes room to run them in.

CPython runs handlers on the alternate stack where faulthandler has made one, which every worker has for its dumps, and
any process under ``PYTHONFAULTHANDLER``. It has room for a few signals at once; a process that was stopped for a
moment, or waited for a processor, gets more of them together than that, and would die of SIGSEGV
(``crates/gateway/src/signals.rs`` tells how).
"""

from __future__ import annotations

import signal

from kirsch import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def handle(handlers: Mapping[Any, Any]) -> dict[int, Any]:
    """Set a handler for each signal; returns those of before, None for one that Python had not installed.

    To be called behind whatever enables faulthandler. Raises ValueError, before anything is set, where this is not the
    main thread.
    """
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    _native.make_room_for_signals()
    return previous


def do_nothing(_number: int, _frame: object) -> None:
    """A handler unlike SIG_IGN, which programs that this process starts would inherit."""
