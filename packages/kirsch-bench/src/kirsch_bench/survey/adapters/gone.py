"""Servers of the founding documents that run nowhere any more. They keep their rows, with the reason."""

from __future__ import annotations

from kirsch_bench.survey.adapters.base import Adapter


def _gone(name: str, about: str, why: str) -> Adapter:
    return Adapter(name, about, lambda _: [], absent=why)


ADAPTERS = (
    _gone(
        "cyclone",
        "Tornado's interface on Twisted",
        "its last release, 1.3, asks for a Twisted that does not build for CPython 3.13",
    ),
    _gone("fapws3", "C on libev", "it is C and Python for Python 2, and the package index has it no more"),
    _gone("picows", "C on picoev", "the name is a WebSocket library's today; the server became meinheld"),
    _gone(
        "meinheld", "C on picoev", "its last release, 1.0.2 of 2020, does not compile for CPython 3.13 (its greenlet.c)"
    ),
    _gone(
        "mod_python",
        "an interpreter inside Apache",
        "it is a module for the system's own Python (libapache2-mod-python) and runs handlers of its own, no WSGI",
    ),
    _gone(
        "mod_fastcgi",
        "FastCGI in Apache by the development kit's authors",
        "its last release, 2.4.6 of 2007, does not build for Apache 2.4; Debian has removed it",
    ),
    _gone(
        "python-fastcgi", "FastCGI by the C development kit", "its last release, 1.1 of 2007, is written in Python 2"
    ),
)
