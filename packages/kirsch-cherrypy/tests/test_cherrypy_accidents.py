"""kirsch_cherrypy: what one client could make slow, or make grow without end."""

# mypy: disable-error-code="untyped-decorator, no-any-return, unused-ignore"

from __future__ import annotations

import threading
import time
from typing import Any

import kirsch_cherrypy as cherrypy
from cherrypy_calls import ask, fresh  # noqa: F401 - fresh is a fixture of each test


class Root:
    def __init__(self) -> None:
        self.visits = 0
        self.gate = threading.Event()
        self.gate.set()

    @cherrypy.expose
    def index(self, **_: str) -> str:
        self.visits += 1
        number = self.visits
        assert self.gate.wait(60)
        return f"visit {number}"

    @cherrypy.expose
    @cherrypy.tools.response_headers(headers=[("Vary", "X-Kind")])
    def kinds(self, **_: str) -> str:
        return self.index()


def cost(path: str) -> float:
    """Seconds of processor time of one request."""
    begin = time.process_time()
    ask(path)
    return time.process_time() - begin


def test_a_path_of_many_segments_takes_time_by_its_length() -> None:
    """If each segment copies the path before it, this one takes half a minute."""
    cherrypy.tree.mount(Root(), "/app", {"/": {}, "/a/a": {"k": 1}})
    assert cost("/app" + "/a" * 100_000) < 3


CACHED: dict[str, Any] = {"tools.caching.on": True, "tools.caching.antistampede_timeout": 60}


def kept() -> int:
    """Return the number of entries of the cache, responses and others."""
    cache = cherrypy._cache
    found = [each for each in vars(cache).values() if isinstance(each, dict)]
    return sum(len(each) for each in found) + sum(len(each) for each in cache.store.values())


def test_a_response_that_is_not_kept_lets_the_next_request_go_on_and_leaves_nothing() -> None:
    root = Root()
    cherrypy.tree.mount(root, "/", {"/": CACHED})
    assert ask("/kinds", HTTP_X_KIND="first").text == "visit 1"
    before = kept()
    for number in range(50):
        assert ask("/kinds", "HEAD", HTTP_X_KIND=str(number)).status == 200
        assert ask("/kinds", HTTP_X_KIND=str(number), HTTP_CACHE_CONTROL="no-store").status == 200
    assert kept() == before
    begin = time.monotonic()
    assert ask("/kinds", HTTP_X_KIND="7").text == "visit 102"
    assert time.monotonic() - begin < 30, "it waited for a request that has ended"
    assert ask("/kinds", HTTP_X_KIND="first").text == "visit 1"


def test_urls_that_have_expired_leave_nothing_in_the_cache() -> None:
    cherrypy.tree.mount(Root(), "/", {"/": {**CACHED, "tools.caching.delay": -1}})
    for number in range(50):
        ask(f"/?number={number}")
    assert kept() <= 3


def test_requests_for_one_missing_response_wait_for_the_first() -> None:
    root = Root()
    cherrypy.tree.mount(root, "/", {"/": CACHED})
    assert ask("/").text == "visit 1"
    for variants in cherrypy._cache.store.values():
        variants.clear()
    root.gate.clear()
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(ask("/").text)) for _ in range(5)]
    for thread in threads:
        thread.start()
    root.gate.set()
    for thread in threads:
        thread.join(120)
    assert answers == ["visit 2"] * 5


def test_a_response_that_varies_by_everything_is_not_kept() -> None:
    class Varying:
        @cherrypy.expose
        @cherrypy.tools.response_headers(headers=[("Vary", "*")])
        def index(self) -> str:
            return str(cherrypy.request.remote.ip)

    cherrypy.tree.mount(Varying(), "/", {"/": CACHED})
    assert ask("/", REMOTE_ADDR="192.0.2.1").text == "192.0.2.1"
    assert ask("/", REMOTE_ADDR="192.0.2.2").text == "192.0.2.2"


def test_a_parameter_named_self_is_no_error_of_the_server() -> None:
    class Taking:
        @cherrypy.expose
        def index(self, **params: str) -> str:
            return str(params)

    cherrypy.tree.mount(Taking())
    assert ask("/?self=1").status == 404
    assert ask("/?other=1").text == "{'other': '1'}"
