"""Heads of responses: one that is recognised by its objects is as the application gave it."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from raw import Peer, build_request
from response_heads_app import FIRST, GROWING, HEADS, PLAIN, SECOND

if TYPE_CHECKING:
    from running import Serve

HERE = os.path.dirname(__file__)
OWN = {"date", "server", "content-length", "transfer-encoding", "connection"}


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
@pytest.mark.parametrize("log", ["", "-"])
def test_each_response_has_the_head_that_the_application_gave(serve: Serve, interface: str, log: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    options = ["--access-logfile", log] if log else []
    site = serve("response_heads_app:app", *options, cwd=HERE, env={"RESPONSE_HEADS": interface})
    # The server's process begins with a new list.
    del GROWING[1:]
    odd = ["bad", "again", "replaced"]
    kind, kinds = "constant", [*HEADS] * 3 + ["constant"] * 10 + odd
    with Peer.connect(site.host, site.port) as peer:
        for number in range(400):
            # A head comes several times, and then another one.
            if number % 4 == 0:
                kind = choose.choice(kinds)
            peer.send(build_request("GET", f"/{kind}/{number}"))
            response = peer.read_response("GET")
            if kind in {"bad", "again"}:
                assert response.status == 500, (kind, number)
                continue
            if kind != "replaced":
                status, headers = HEADS[kind](number)
            elif interface == "wsgi":
                status, headers = "500 Oh", [PLAIN, SECOND]
            else:
                status, headers = "200 OK", [PLAIN, FIRST]
            found = [(name.lower(), value) for name, value in response.headers if name.lower() not in OWN]
            assert response.status == int(status[:3]), (kind, number)
            assert found == [(name.lower(), value) for name, value in headers], (kind, number)
            assert response.body == b"body", (kind, number)
