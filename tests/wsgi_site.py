"""The server of the tests of WSGI, which runs ``wsgi_app.py``, and requests to it."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any

from proc import wait_until
from raw import Peer, Response, build_request, exchange
from running import Running, start

if TYPE_CHECKING:
    from collections.abc import Iterator


SEED = 20_261_120
MIB = 1 << 20
SECRET = "never-in-an-environ"


def served() -> Iterator[Running]:
    """Yield one server for all tests of a file, so that each test meets what the requests before it have left.

    A test file makes a fixture of it: ``site = pytest.fixture(scope="module")(served)``.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    site = start(
        "wsgi_app:app",
        ["--write-timeout", "20s"],
        env={"PYTHONPATH": path, "KIRSCH_TEST_SECRET": SECRET},
    )
    yield site
    complaints = site.finish()
    print(f"---- standard error ----\n{site.stderr}")
    assert complaints == []


def get(site: Running, target: str, **options: Any) -> Response:
    """Return the response to a GET on a connection of its own. ``options`` are those of ``build_request``."""
    return exchange(site.host, site.port, build_request(options.pop("method", "GET"), target, **options))


def get_json(site: Running, target: str, **options: Any) -> Any:
    response = get(site, target, **options)
    assert response.status == 200, response
    return json.loads(response.body)


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port)


def count(site: Running, what: str, name: str) -> int:
    """Return how often close() was called (``closed``) or a block requested (``produced``) under ``name``."""
    return int(get_json(site, "/counts")[what].get(name, 0))


def assert_closed_once(site: Running, name: str) -> None:
    wait_until(lambda: count(site, "closed", name) > 0, f"close() of {name} is called")
    assert count(site, "closed", name) == 1


def chunked(body: bytes, seed: int = SEED) -> bytes:
    """Return ``body`` in chunks of random sizes from ``seed``; some have an extension, and a trailer follows."""
    sizes = random.Random(seed)
    wire, at = bytearray(), 0
    most = max(8, len(body) // 40)
    while at < len(body):
        chunk = body[at : at + sizes.randint(1, most)]
        extension = b";name=value" if sizes.random() < 0.1 else b""
        wire += b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk)
        at += len(chunk)
    return bytes(wire) + b"0\r\nX-Trailer: dropped\r\n\r\n"


def post(target: str, body: bytes, framing: str = "length") -> bytes:
    if framing == "length":
        return build_request("POST", target, body=body)
    return build_request("POST", target, headers={"Transfer-Encoding": "chunked"}) + chunked(body)
