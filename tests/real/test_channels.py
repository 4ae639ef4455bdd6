"""Django Channels without Daphne: rooms, sessions and synchronous consumers, and Django's pages beside them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

if TYPE_CHECKING:
    import requests
    from websockets.sync.connection import Connection

    from running import Running, Serve

HERE = Path(__file__).parent / "asgi"
ORIGIN = Origin("https://chat.example.org")


def join(site: Running, path: str, cookie: str = "", origin: Origin = ORIGIN) -> Connection:
    headers = {"Cookie": cookie} if cookie else {}
    url = f"ws://{site.host}:{site.port}{path}"
    return connect(
        url,
        origin=origin,
        additional_headers=headers,
        proxy=None,
        open_timeout=20,
        close_timeout=20,
        ping_interval=None,
    )


def heard(client: Connection) -> tuple[str, str]:
    message: dict[str, Any] = json.loads(client.recv(timeout=20))
    return message["user"], message["text"]


def test_channels_serves_rooms_with_the_session_of_a_page(serve: Serve, browser: requests.Session) -> None:
    site = serve("channels_chat:app", cwd=HERE)
    assert browser.get(f"{site.url}/sign-in/ann", timeout=20).text == "hello ann"
    assert browser.get(f"{site.url}/absent", timeout=20).status_code == 404
    assert browser.post(f"{site.url}/lines", data=b"x" * 300_000, timeout=20).text == "".join(
        f"{number} of 300000\n" for number in range(3)
    )
    cookie = "; ".join(f"{each.name}={each.value}" for each in browser.cookies)
    with join(site, "/rooms/cherry", cookie) as ann, join(site, "/rooms/plum") as elsewhere:
        assert heard(ann) == ("ann", "joined")
        assert heard(elsewhere) == ("nobody", "joined")
        others = [join(site, "/rooms/cherry") for _ in range(20)]
        for number, other in enumerate(others):
            for listener in (ann, *others[: number + 1]):
                assert heard(listener) == ("nobody", "joined")
            del other
        ann.send(json.dumps({"text": "héllo"}))
        for listener in (ann, *others):
            assert heard(listener) == ("ann", "héllo")
        for other in others:
            other.close(4001)
            assert heard(ann) == ("nobody", "left with 4001")
            for rest in others[others.index(other) + 1 :]:
                assert heard(rest) == ("nobody", "left with 4001")
        # The other room has heard nothing of it.
        with pytest.raises(TimeoutError):
            elsewhere.recv(timeout=0)


def test_channels_refuses_closes_and_runs_synchronous_consumers(serve: Serve) -> None:
    site = serve("channels_chat:app", cwd=HERE)
    for path, origin in (("/rooms/closed", ORIGIN), ("/rooms/cherry", Origin("https://evil.example.net"))):
        with pytest.raises(InvalidStatus) as raised:
            join(site, path, origin=origin)
        assert raised.value.response.status_code == 403
    with join(site, "/echo") as client:
        for number in range(20):
            client.send(f"message {number}")
            assert client.recv(timeout=20) == f"MESSAGE {number}"
        client.send(b"abc")
        assert client.recv(timeout=20) == b"cba"
        client.send("close")
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4000


def test_reload_closes_rooms_with_1012_and_clients_find_the_new_worker(serve: Serve) -> None:
    site = serve("channels_chat:app", cwd=HERE)
    with join(site, "/rooms/cherry") as client:
        assert heard(client) == ("nobody", "joined")
        before = site.wait_for_workers(1)
        site.send(signal.SIGHUP)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
    site.wait_for_workers(1, without=before, timeout=20)
    with join(site, "/rooms/cherry") as client:
        assert heard(client) == ("nobody", "joined")
    assert "Traceback" not in site.stderr
