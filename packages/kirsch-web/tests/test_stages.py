"""Stages that a request tells a profiler of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kirsch_web as web
from kirsch_web.testing import Client

ORDER: list[str] = []


class Root:
    def index(self) -> str:
        ORDER.append("handler runs")
        return "Hello"

    @web.post
    def add(self, title: str) -> dict[str, str]:
        ORDER.append("handler runs")
        return {"title": title}

    def stream(self) -> Iterator[str]:
        ORDER.append("first step")
        yield "a"
        ORDER.append("second step")
        yield "b"

    def away(self) -> None:
        raise web.InternalRedirect("/")

    def wrong(self) -> None:
        raise web.HTTPError(409)


def profiled(method: str, path: str, **options: Any) -> tuple[Any, list[str]]:
    """The reply, and stages and events in their order."""
    ORDER.clear()
    app = web.App(Root(), tools=[web.Tool("before_handler", lambda _: ORDER.append("tool runs"), "note")])
    stage = [""]

    def mark(name: str) -> str:
        before, stage[0] = stage[0], name
        if name != before:
            ORDER.append(f"[{name}]")
        return before

    def with_stages(environ: dict[str, Any], start_response: Any) -> Any:
        environ["kirsch.stage"] = mark
        return app(environ, start_response)

    reply = Client(with_stages).request(method, path, **options)
    return reply, list(ORDER)


def test_stages_follow_a_request_through_tool_handler_and_finalization() -> None:
    reply, order = profiled("GET", "/")
    assert reply.text == "Hello"
    assert order == [
        "[dispatch]", "[tools]", "tool runs", "[dispatch]", "[handler]", "handler runs", "[finalize]",
    ]  # fmt: skip


def test_reading_a_form_is_the_stage_body() -> None:
    reply, order = profiled("POST", "/add", form={"title": "Emma"})
    assert reply.json() == {"title": "Emma"}
    assert order[4:] == ["[handler]", "[body]", "[handler]", "handler runs", "[finalize]"]


def test_steps_of_a_stream_are_the_stage_handler() -> None:
    reply, order = profiled("GET", "/stream")
    assert reply.text == "ab"
    for step in ("first step", "second step"):
        before = [each for each in order[: order.index(step)] if each.startswith("[")]
        assert before[-1] == "[handler]"


def test_an_internal_redirect_and_an_error_keep_their_stages() -> None:
    reply, order = profiled("GET", "/away")
    assert reply.text == "Hello"
    assert order.count("[handler]") == 2
    reply, order = profiled("GET", "/wrong")
    assert reply.status == 409
    assert order[-1] == "[finalize]"


@pytest.mark.parametrize("path", ["/", "/stream", "/away", "/wrong", "/nothing"])
def test_a_profiled_request_has_the_response_of_any_other(path: str) -> None:
    reply, _ = profiled("GET", path)
    plain = Client(web.App(Root(), tools=[web.Tool("before_handler", lambda _: None, "note")])).get(path)
    assert (reply.status, reply.body, list(reply.headers)) == (plain.status, plain.body, list(plain.headers))
