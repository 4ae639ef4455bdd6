"""A load test as a class: the same code is a functional test, a benchmark, and a series of cycles.

    class Shop(kirsch_bench.LoadTest):
        url = "http://127.0.0.1:8000"

        def test_simple(self, http):
            page = http.get("/")
            self.assertIn("Hello", page.text)

``python -m unittest`` and ``pytest`` run it once; ``kirsch bench shop.py:Shop.test_simple -c 20`` runs it for twenty
virtual users, and ``--cycles 1:10:20:50`` for one, ten, twenty and fifty.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
import unittest
from typing import TYPE_CHECKING, Any

from kirsch_bench import target as targets
from kirsch_bench.errors import UsageError
from kirsch_bench.http_client import Http

if TYPE_CHECKING:
    from collections.abc import Callable

URL_VARIABLE = "KIRSCH_BENCH_URL"
"""Goes before ``LoadTest.url``, so that one file tests the machine at hand and the one beside it."""


class LoadTest(unittest.TestCase):
    """A ``unittest.TestCase`` whose tests can take an argument ``http``, a visitor of the server at ``url``. ``setUp``
    and ``tearDown`` run around each test, under load too; ``setUpCycle`` and ``tearDownCycle`` run once in each process
    before and after a cycle, with its number of users.
    """

    url = "http://127.0.0.1:8000"
    """The server's; what a test asks for is joined to it."""

    timeout = 30.0
    """Seconds that a page may take, all in all."""

    keep_alive = True
    """True if a connection is used for more than one request."""

    headers = "chrome"
    """Whose header fields are sent: one of kirsch_bench.profiles.PROFILES."""

    returning = False
    """True if a virtual user keeps cookies and connection from one run of its test to the next. Otherwise each run
    is a new visitor."""

    def __init__(self, methodName: str = "runTest", *, http: Http | None = None) -> None:
        super().__init__(methodName)
        self._http = http
        method = getattr(self, methodName, None)
        if method is not None and "http" in inspect.signature(method).parameters:
            # unittest and pytest get the test from the instance and call it without arguments. It must be a method,
            # because unittest takes a function for a static method.
            setattr(self, methodName, types.MethodType(_with_http(method), self))

    @classmethod
    def setUpCycle(cls, users: int) -> None:  # the spelling of unittest and FunkLoad
        """Called before the users of a cycle start."""

    @classmethod
    def tearDownCycle(cls, users: int) -> None:
        """Called after the users of a cycle have ended."""

    @property
    def http(self) -> Http:
        """The visitor. In a functional test, each test has a new one, which is closed at its end."""
        if self._http is None:
            self._http = self.visitor(resolve(type(self)))
            self.addCleanup(self._leave)
        return self._http

    @classmethod
    def visitor(cls, target: targets.Target, **options: Any) -> Http:
        """Return a visitor with the settings of the class."""
        return Http(target, timeout=cls.timeout, keep_alive=cls.keep_alive, profile=cls.headers, **options)

    def _leave(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None


def _with_http(method: Callable[..., object]) -> Callable[[LoadTest], object]:
    @functools.wraps(method)
    def test(self: LoadTest) -> object:
        return method(self.http)

    return test


def resolve(test: type[LoadTest], url: str = "", *, own: bool = False) -> targets.Target:
    """Return the server of a load test: ``url``, the environment variable, or the class's URL. Raises Failure."""
    target = targets.parse(url or os.environ.get(URL_VARIABLE) or test.url, own=own)
    if target.tls:
        raise UsageError(f"{target.url!r}: load tests in Python do not speak https; use the plain port behind it")
    return target
