"""Stacks of single application calls: captured quickly, without frames of the server, and formatted later."""

from __future__ import annotations

import os

from kirsch.reports import OWN_DIRECTORIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import CodeType, FrameType
    from typing import Any, TypeVar

    Entry = TypeVar("Entry", bound=Callable[..., object])

    # Pairs of frame and line number, the outermost first.
    Stack = list[tuple[FrameType | "FrameCopy", int]]

# The innermost frames of a deep stack show what the call is doing, so they are kept.
FRAMES_MAX = 100

_entries: set[CodeType] = set()


def entry(function: Entry) -> Entry:
    """Decorate a function through which the server calls the application: stacks begin after its frame."""
    _entries.add(function.__code__)
    return function


class FrameCopy:
    """A copy of a frame of another thread, where the frame may end at any time."""

    __slots__ = ("f_code", "f_globals")

    def __init__(self, code: CodeType, global_names: dict[str, Any]) -> None:
        self.f_code = code
        self.f_globals = global_names


def capture(frame: FrameType | None) -> Stack:
    """Return the application's frames of the stack that ends in ``frame``; empty if that is not in an application call.
    Another thread may continue meanwhile, so line numbers are read at once.
    """
    return _behind_entry(_links(frame))


def capture_detached(frame: FrameType | None, caller: CodeType | None = None) -> Stack:
    """Do the same as :func:`capture` for a frame of another thread without a GIL, where the frame may end at any
    time. ``caller`` is the code that has called the application, if it is not a function of this package."""
    if frame is None:
        return []
    from kirsch._native import follow_frames

    links = ((FrameCopy(code, names), line) for code, names, line in follow_frames(frame))
    return _behind_entry(links, caller)


def _links(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _behind_entry(links: Iterable[tuple[FrameType | FrameCopy, int]], caller: CodeType | None = None) -> Stack:
    found: Stack = []
    for frame, line in links:
        if frame.f_code in _entries or frame.f_code is caller:
            found.reverse()
            for index, (each, _) in enumerate(found):
                if os.path.dirname(each.f_code.co_filename) in OWN_DIRECTORIES:
                    return found[:index]  # the application has called the server, for example to wait for its client
            return found
        found.append((frame, line))
    return []


def lines(stack: Stack) -> list[str]:
    """Format a stack as in a traceback, one line of text each, without line ends."""
    if not stack:
        return []
    import traceback

    left_out = len(stack) - FRAMES_MAX
    shown: Iterator[Any] = iter(stack[-FRAMES_MAX:])
    summary = traceback.StackSummary.extract(shown)
    text = [line for item in summary.format() for line in item.rstrip("\n").split("\n")]
    return [f"  ... {left_out} more frames ...", *text] if left_out > 0 else text
