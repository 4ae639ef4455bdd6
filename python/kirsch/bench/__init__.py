"""``kirsch bench``: a load generator that can be trusted, and load tests in Python.

Nothing of the server imports this, and importing it loads nothing but what is asked for (PEP 562).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch.bench.ab import ABSession, print_report, size_report, thread_report
    from kirsch.bench.http_client import Http, RequestFailure, Response
    from kirsch.bench.loadtest import LoadTest

__all__ = [
    "ABSession",
    "Http",
    "LoadTest",
    "RequestFailure",
    "Response",
    "main",
    "print_report",
    "size_report",
    "thread_report",
]

_HOMES = {
    "ABSession": "ab",
    "Http": "http_client",
    "LoadTest": "loadtest",
    "RequestFailure": "http_client",
    "Response": "http_client",
    "print_report": "ab",
    "size_report": "ab",
    "thread_report": "ab",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``kirsch bench`` with ``argv`` (default: the process's) and return its exit status."""
    from kirsch.bench import command

    return command.main(argv)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kirsch.bench' has no attribute {name!r}")
    value: object = getattr(__import__(f"kirsch.bench.{home}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
