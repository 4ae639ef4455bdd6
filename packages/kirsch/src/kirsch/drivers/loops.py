"""Event loops that can replace CPython's own (``--loop``)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from typing import Any

MISSING = "--loop uvloop needs the package uvloop: pip install uvloop, or leave --loop out"


def check(name: str) -> None:
    """Raise ImportError, with advice in one line, if the package of the loop ``name`` is missing."""
    if name == "uvloop":
        _uvloop()


def new_uvloop() -> asyncio.AbstractEventLoop:
    """Return a new event loop of uvloop. Raises ImportError like :func:`check`."""
    loop: asyncio.AbstractEventLoop = _uvloop().new_event_loop()
    return loop


def _uvloop() -> Any:
    import importlib

    try:
        return importlib.import_module("uvloop")
    except ModuleNotFoundError as error:
        if error.name != "uvloop":
            raise
        raise ImportError(MISSING) from None
