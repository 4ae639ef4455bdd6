"""Kirsch, as a user starts it, in each of its drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kirsch.survey.adapters.base import Adapter

if TYPE_CHECKING:
    from kirsch.survey.adapters.base import Place

_CPYTHON = frozenset({"cpython"})
_WHY_NOT = "Kirsch's engine is built on CPython's C interface, and there is no wheel for PyPy"


def _threads(place: Place) -> list[str]:
    return _command(place, *(["--threads", str(place.threads)] if place.threads else []))


def _driver(name: str, place: Place) -> list[str]:
    return _command(place, "--driver", name)


def _command(place: Place, *args: str) -> list[str]:
    workers = [] if place.workers == 1 else ["--workers", str(place.workers)]
    return [place.python, "-m", "kirsch", place.target, "--bind", place.address, *workers, *args, *place.extra]


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
        lambda place: _driver("gevent", place),
        requirements=("gevent",),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
    ),
    Adapter(
        "kirsch-asyncio",
        "a native loop in asyncio's",
        lambda place: _driver("asyncio", place),
        interpreters=_CPYTHON,
        why_not=_WHY_NOT,
        workers=True,
        absent=_driver_missing("asyncio"),
    ),
)
