"""Servers of the founding documents that run nowhere any more. They keep their rows, with the reason."""

from __future__ import annotations

from kirsch.survey.adapters.base import Adapter


def _gone(name: str, about: str, why: str) -> Adapter:
    return Adapter(name, about, lambda _: [], absent=why)


ADAPTERS = (
    _gone("cyclone", "Tornado's interface on Twisted", "its last release, 1.3 of 2017, is for Python 2 only"),
    _gone("fapws3", "C on libev", "its last release, 0.12 of 2014, is C for Python 2 only"),
    _gone(
        "picows", "C on picoev", "the name is a WebSocket library today; the server became meinheld, dead since 2020"
    ),
    _gone("meinheld", "C on picoev", "its last release, 1.0.2 of 2020, does not build for CPython later than 3.9"),
    _gone("mod_python", "an interpreter inside Apache", "given up in 2013; it builds for Python 2 only"),
    _gone("python-fastcgi", "FastCGI by the C development kit", "its last release, 1.1 of 2007, is for Python 2 only"),
)
