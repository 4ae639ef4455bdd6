"""Stacks of single application calls: taken quickly, without the server's own frames, and written out later."""

from __future__ import annotations

import os

from kirsch.reports import OWN_DIRECTORIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType
    from typing import TypeVar

    Function = TypeVar("Function", bound=Callable[..., object])

    # (frame, line number), the outermost first.
    Stack = list[tuple[FrameType, int]]

# The inner end of a deep stack tells what it does.
FRAMES_MAX = 100

_entries: set[CodeType] = set()


def entry(function: Function) -> Function:
    """Decorate a function through which every call of the application goes: a stack begins behind its frame."""
    _entries.add(function.__code__)
    return function


def take(frame: FrameType | None) -> Stack:
    """The application's frames among those that end in ``frame``; none where no call of the application is among them.

    Another thread may run on meanwhile, so line numbers are noted at once.
    """
    found: Stack = []
    while frame is not None:
        if frame.f_code in _entries:
            found.reverse()
            for index, (each, _) in enumerate(found):
                if os.path.dirname(each.f_code.co_filename) in OWN_DIRECTORIES:
                    return found[:index]  # the application has called us: to wait for its peer, or to look at itself
            return found
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return []


def lines(stack: Stack) -> list[str]:
    """A stack as a traceback shows it, a line of text each, without line ends."""
    if not stack:
        return []
    import traceback

    left_out = len(stack) - FRAMES_MAX
    summary = traceback.StackSummary.extract(iter(stack[-FRAMES_MAX:]))
    text = [line for item in summary.format() for line in item.rstrip("\n").split("\n")]
    return [f"  ... {left_out} more frames ...", *text] if left_out > 0 else text
