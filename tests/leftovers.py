"""A pytest plugin: what a failed test has left open is closed before the next test starts.

A traceback holds the variables of every frame in it, so that the sockets, files and processes of a failed test live
until a garbage collection comes by, in some later test. Python then warns that they were not closed, and the suite
turns each warning into a failure: of the wrong test. Here they are closed at the end of the test that they belong to,
and without a warning, because that test has failed already.
"""

from __future__ import annotations

import gc
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

ERRORS = pytest.StashKey[list[BaseException]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo is not None:
        item.stash.setdefault(ERRORS, []).append(call.excinfo.value)
    return report


# Outermost, so that reports, debuggers and fixtures are done with the frames.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    errors = item.stash.get(ERRORS, [])
    if errors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            clear_frames(errors)
            gc.collect()
    return result


def clear_frames(errors: list[BaseException]) -> None:
    """Drop the variables of all frames that ``errors``, and those that led to them, have gone through."""
    seen: set[int] = set()
    while errors:
        error = errors.pop()
        if id(error) in seen:
            continue
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        errors += [each for each in (error.__cause__, error.__context__) if each is not None]
        errors += getattr(error, "exceptions", ())  # of a group
