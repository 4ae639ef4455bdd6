"""kirsch-bench: a load generator that can be trusted, surveys of servers, and profiles of requests.

The public interface is the names in ``__all__``, and the commands ``kirsch bench``, ``kirsch survey`` and ``kirsch
profile``. Names are imported at their first use (PEP 562), so that importing this package is fast::

    *.py        the load generator and its command
    survey/     the command that measures servers side by side
    profile/    the command that shows where the time of one request goes
    _native     the generator's loop, histograms and reader of responses: crates/load by crates/load-py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kirsch_bench._native import __version__
    from kirsch_bench.ab import ABSession, print_report, size_report, thread_report
    from kirsch_bench.http_client import Http, RequestFailure, Response
    from kirsch_bench.loadtest import LoadTest

__all__ = [
    "ABSession",
    "Http",
    "LoadTest",
    "RequestFailure",
    "Response",
    "__version__",
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
    "__version__": "_native",
    "print_report": "ab",
    "size_report": "ab",
    "thread_report": "ab",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``kirsch bench`` with ``argv`` (default: the arguments of the process); return its exit status."""
    from kirsch_bench import command

    return command.main(argv)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kirsch_bench' has no attribute {name!r}")
    value: object = getattr(__import__(f"kirsch_bench.{home}", fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
