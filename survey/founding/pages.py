"""The applications of the founding documents, as they stand there but for what Python 3 asks for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    StartResponse = Callable[..., Any]


def simple_app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """Simplest possible application object (S0.1: 19 bytes)."""
    status = "200 OK"
    response_headers = [("Content-type", "text/plain"), ("Content-Length", "19")]
    start_response(status, response_headers)
    return [b"My Own Hello World!"]


def hello_world(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
    """The page that picows was measured with (S2.4: 13 bytes, of a length that is not told)."""
    start_response("200 OK", [("Content-type", "text/plain")])
    return [b"Hello world!\n"]


class Yielding:
    """An application that is a class: called, it is an iterable, which begins its response when it is iterated (S1.3).
    Between its two parts it sleeps."""

    seconds = 0.1

    def __init__(self, environ: dict[str, Any], start_response: StartResponse) -> None:
        self.environ = environ
        self.start_response = start_response

    def __iter__(self) -> Iterator[bytes]:
        self.start_response("200 OK", [("Content-type", "text/plain"), ("X-paul", "pbrian")])
        yield b"Hello"
        time.sleep(self.seconds)
        yield b"World"


class YieldingSoon(Yielding):
    """The same, answered within 0.01 s."""

    seconds = 0.005
