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


def _driver(name: str, launch: Launch) -> list[str]:
    return _command(launch, "--driver", name)


def _command(launch: Launch, *args: str) -> list[str]:
    workers = [] if launch.workers == 1 else ["--workers", str(launch.workers)]
    return [launch.python, "-m", "kirsch", launch.target, "--bind", launch.address, *workers, *args, *launch.extra]


def _driver_missing(name: str) -> str:
    from kirsch.driver_names import canonical_name

    try:
        canonical_name(name)
    except ValueError as error:
        return f"this Kirsch has no driver {name}: it {error}"
    return ""


ADAPTERS = (
    Adapter(
        "kirsch",
        "a native loop and threads that turn it",
        _threads,
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
    ),
    Adapter(
        "kirsch-gevent",
        "a native loop in gevent's hub, a greenlet for each request",
        lambda launch: _driver("gevent", launch),
        requirements=("gevent",),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
    ),
    Adapter(
        "kirsch-asyncio",
        "a native loop in asyncio's",
        lambda launch: _driver("asyncio", launch),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
        absent=_driver_missing("asyncio"),
    ),
)
