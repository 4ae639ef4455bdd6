"""The dict of a request. One that is used again is as a new one, whatever the request before has done."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from changed_request_app import CHANGED_AT, ENVIRON_CHANGES, SCOPE_CHANGES
from raw import Peer, build_request

if TYPE_CHECKING:
    from running import Serve

HERE = os.path.dirname(__file__)

HAS_GIL = getattr(sys, "_is_gil_enabled", lambda: True)()
IS_PYPY = sys.implementation.name == "pypy"
# A scope is compared with a new one where CPython does not say whether it has changed. An environ is not.
REUSES = {
    "untouching": HAS_GIL and not IS_PYPY,
    "untouching_wsgi": HAS_GIL and not IS_PYPY and sys.version_info >= (3, 12),
}


def ask(peer: Peer) -> dict[str, Any]:
    peer.send(build_request("GET", "/request"))
    answer = peer.read_response("GET")
    assert answer.status == 200
    found: dict[str, Any] = json.loads(answer.body)
    return found


@pytest.mark.parametrize(("app", "changes"), [("app", SCOPE_CHANGES), ("wsgi", ENVIRON_CHANGES)])
def test_request_finds_nothing_that_another_has_done_to_its_dict(
    serve: Serve, app: str, changes: dict[str, Any]
) -> None:
    site = serve(f"changed_request_app:{app}", cwd=HERE)
    for change in changes:
        with Peer.connect(site.host, site.port) as peer:
            expected = ask(peer)["request"]
            for number in range(2, CHANGED_AT + 4):
                found = ask(peer)
                assert found["request"] == expected, f"request {number} after one that {change}"
                assert (found["left"], found["kept"]) == (False, False), f"request {number} after one that {change}"


@pytest.mark.parametrize("app", REUSES)
def test_dict_that_nobody_has_touched_is_used_again(serve: Serve, app: str) -> None:
    if not REUSES[app]:
        pytest.skip("this Python does not say whether anybody has touched it")
    site = serve(f"changed_request_app:{app}", cwd=HERE)
    with Peer.connect(site.host, site.port) as peer, Peer.connect(site.host, site.port) as other:
        # The server knows a header block from its second time on.
        ask(peer), ask(other), ask(peer), ask(other)
        ids = [ask(peer)["ids"], ask(other)["ids"]]
        for _ in range(5):
            assert [ask(peer)["ids"], ask(other)["ids"]] == ids
