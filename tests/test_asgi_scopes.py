"""The scope of an ASGI request. One that is used again is as a new one, whatever the request before has done."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from asgi_scope_app import CHANGES
from raw import Peer, build_request

if TYPE_CHECKING:
    from running import Serve

HERE = os.path.dirname(__file__)

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()


def ask(peer: Peer) -> dict[str, Any]:
    peer.send(build_request("GET", "/scope"))
    answer = peer.read_response("GET")
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_request_finds_nothing_that_another_has_done_to_its_scope(serve: Serve) -> None:
    site = serve("asgi_scope_app:app", cwd=HERE)
    with Peer.connect(site.host, site.port) as peer:
        expected = ask(peer)["scope"]
        for change in CHANGES:
            assert ask(peer)["scope"] == expected, f"before a request that {change}"
            found = ask(peer)
            assert (found["scope"], found["left"], found["kept"]) == (expected, False, False), (
                f"after one that {change}"
            )


@pytest.mark.skipif(not HAS_GIL, reason="without the GIL another thread may refer to a scope at any time")
def test_scope_that_nobody_has_touched_is_used_again(serve: Serve) -> None:
    site = serve("asgi_scope_app:untouching", cwd=HERE)
    with Peer.connect(site.host, site.port) as peer, Peer.connect(site.host, site.port) as other:
        # The server knows a header block from its second time on.
        ask(peer), ask(other), ask(peer), ask(other)
        ids = [ask(peer)["ids"], ask(other)["ids"]]
        for _ in range(5):
            assert [ask(peer)["ids"], ask(other)["ids"]] == ids
