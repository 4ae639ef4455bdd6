"""Kirsch, as a user starts it, in each of its drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch_bench.survey.adapters.base import Adapter

if TYPE_CHECKING:
    from kirsch_bench.survey.adapters.base import Launch

_CPYTHON = frozenset({"cpython"})
_WHY_NOT = "Kirsch's engine is built on CPython's C interface, and there is no wheel for PyPy"


def _threads(launch: Launch) -> list[str]:
    return _command(launch, *(["--threads", str(launch.threads)] if launch.threads else []))


def _command(launch: Launch, *args: str) -> list[str]:
    workers = [] if launch.workers == 1 else ["--workers", str(launch.workers)]
    return [launch.python, "-m", "kirsch", launch.target, "--bind", launch.address, *workers, *args, *launch.extra]


ADAPTERS = (
    Adapter(
        "kirsch",
        "a native event loop, polled by its threads",
        _threads,
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
    ),
    Adapter(
        "kirsch-gevent",
        "a native event loop in gevent's hub, a greenlet for each request",
        lambda launch: _command(launch, "--driver", "gevent"),
        requirements=("gevent",),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
    ),
    Adapter(
        "kirsch-asgi",
        "a native event loop inside asyncio's, ASGI",
        lambda launch: _command(launch, "--interface", "asgi"),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
        speaks="asgi",
    ),
)
