"""Visits ``examples/rooms.py`` behind any server of ASGI."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kirsch_web.testing import Client

if TYPE_CHECKING:
    from collections.abc import Callable


def until(condition: Callable[[], Any]) -> Any:
    """Return the first true result of ``condition``; AssertionError after a minute."""
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end, "it does not become true"
        time.sleep(0.01)
    return found


def visit(base: str) -> None:
    """Talk, listen, wait and leave."""
    client = Client(server=base)

    def said(room: str, text: str) -> int:
        reply = client.post(f"/say/{room}", json={"text": text})
        assert reply.status == 200, reply
        return int(reply.json()["listeners"])

    assert client.post("/say/lobby", json={"text": 7}).status == 422
    assert client.post("/say/lobby", form={"text": "x" * 200_000}).json() == {"listeners": 0}
    assert client.post("/say/lobby", form={"text": "x" * 2_000_000}).status == 413
    assert client.get("/say/lobby").status == 405
    assert client.get("/%FF").status == 400
    _listen(base, said)
    _talk(base)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(client.get, "/wait/quiet") for _ in range(20)]
        until(lambda: said("quiet", "at last") == 20 or all(each.done() for each in waiting))
        assert {each.result().text for each in waiting} == {"at last"}


def _listen(base: str, said: Any) -> None:
    parts = urlsplit(base)
    connection = HTTPConnection(parts.hostname or "", parts.port or 80, timeout=60)
    connection.request("GET", "/listen/lobby")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream"
    assert response.readline() == b": stream\n"
    until(lambda: said("lobby", "hello") == 1)
    lines = [response.readline() for _ in range(3)]
    assert lines == [b"\n", b"event: said\n", b"data: hello\n"]
    response.close()
    connection.close()
    until(lambda: said("lobby", "is anyone here?") == 0)


def _talk(base: str) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    url = base.replace("http", "ws", 1)
    with connect(f"{url}/talk/lobby") as one, connect(f"{url}/talk/lobby") as other:
        for text in ("hello", "", "é" * 50_000):
            one.send(text)
            assert one.recv(timeout=60) == "0"
        other.send(b"bytes are ignored")
        other.send("text is not")
        assert other.recv(timeout=60) == "0"
    for path, origin, statuses in (
        ("/nothing/here", None, (403, 404)),
        ("/say/lobby", None, (403, 404, 405)),
        ("/talk/lobby", "https://evil.example", (403,)),
    ):
        try:
            with connect(url + path, origin=origin):  # type: ignore[arg-type]
                raise AssertionError(f"{path} was accepted")
        except InvalidStatus as error:
            assert error.response.status_code in statuses, path
