"""Applications of ASGI frameworks as they are written, with the clients that they meet."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsers import chromium

from proc import descriptors, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import requests

    from running import Serve

HERE = Path(__file__).parent / "asgi"
PATIENCE = 20.0


def read_events(response: requests.Response, count: int) -> list[dict[str, str]]:
    """The first events of a stream (HTML, server-sent events), as dictionaries of their fields."""
    text = ""
    for piece in response.iter_content(1):
        text += piece.decode()
        # Lines end with LF or CRLF; an empty one ends an event.
        events = text.replace("\r", "").split("\n\n")
        if len(events) > count:
            return [dict(line.split(": ", 1) for line in event.split("\n")) for event in events[:count]]
    raise AssertionError(f"{text!r} ends before {count} events")


def test_fastapi_dependencies_are_cleaned_up_once_also_after_an_error(serve: Serve, browser: requests.Session) -> None:
    site = serve("fastapi_shop:app", cwd=HERE)

    def log(requests_made: int) -> list[str]:
        """Returns the log once the dependencies of all requests are closed: FastAPI closes them after the response."""
        wait_until(
            lambda: browser.get(f"{site.url}/log", timeout=PATIENCE).json().count("closed") == requests_made,
            f"the dependencies of {requests_made} requests are closed",
        )
        lines: list[str] = browser.get(f"{site.url}/log", timeout=PATIENCE).json()
        return lines

    found = browser.get(f"{site.url}/items/7", timeout=PATIENCE)
    assert (found.json(), found.headers["X-Path"]) == ({"item": 7, "cursor": "cursor of connection"}, "/items/7")
    assert log(1) == ["opened", "cursor closed", "closed"]
    # FastAPI opens the connection for this one too before it answers 422.
    assert browser.get(f"{site.url}/items/x", timeout=PATIENCE).status_code == 422
    assert log(2)[3:] == ["opened", "closed"]
    refused = browser.get(f"{site.url}/items/13", timeout=PATIENCE)
    assert (refused.status_code, refused.json()) == (409, {"detail": "unlucky"})
    assert log(3)[5:] == ["opened", "rolled back: unlucky", "closed"]


def test_fastapi_answers_before_its_background_tasks_run(serve: Serve, browser: requests.Session) -> None:
    site = serve("fastapi_shop:app", cwd=HERE)
    assert browser.post(f"{site.url}/mail/ann", timeout=PATIENCE).json() == "accepted"
    # The same connection is served while the task waits.
    assert browser.get(f"{site.url}/log", timeout=PATIENCE).json() == []
    browser.post(f"{site.url}/gate", timeout=PATIENCE)
    wait_until(
        lambda: browser.get(f"{site.url}/log", timeout=PATIENCE).json() == ["sent to ann", "counted ann"],
        "both tasks have run",
    )


def test_fastapi_closes_a_stream_whose_client_leaves(serve: Serve, browser: requests.Session) -> None:
    site = serve("fastapi_shop:app", cwd=HERE)
    with browser.get(f"{site.url}/endless", stream=True, timeout=PATIENCE) as endless:
        assert len(endless.raw.read(5000, decode_content=True)) == 5000
    assert browser.get(f"{site.url}/closed", timeout=PATIENCE).json() == "closed"
    assert "Traceback" not in site.stderr


def test_httpx_and_aiohttp_upload_and_stream_at_the_same_time(serve: Serve) -> None:
    httpx, aiohttp = pytest.importorskip("httpx"), pytest.importorskip("aiohttp")
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    site = serve("fastapi_shop:app", cwd=HERE)
    bodies = [chance.randbytes(chance.choice([0, 1, 65536, 300_000])) for _ in range(20)]

    async def pieces(body: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(body), 40_000):
            yield body[start : start + 40_000]
            await asyncio.sleep(0)

    async def by_httpx(client: Any, body: bytes) -> None:
        text = body.hex().encode()
        async with client.stream("POST", f"{site.url}/raw", content=pieces(text)) as response:
            assert b"".join([piece async for piece in response.aiter_bytes()]) == text.upper()
        digest = await client.post(f"{site.url}/digest?note=n", files={"file": ("b.bin", body)})
        assert digest.json() == {"name": "b.bin", "note": "n", "sha256": hashlib.sha256(body).hexdigest()}

    async def by_aiohttp(session: Any, body: bytes) -> None:
        text = body.hex().encode()
        async with session.post(f"{site.url}/raw", data=pieces(text)) as response:
            assert await response.read() == text.upper()
        async with session.get(f"{site.url}/through", params={"path": "/items/5"}) as response:
            assert (await response.json())["item"] == 5

    async def everything() -> None:
        async with (
            httpx.AsyncClient(trust_env=False, timeout=60) as client,
            aiohttp.ClientSession(raise_for_status=True) as session,
        ):
            await asyncio.gather(
                *(by_httpx(client, body) for body in bodies), *(by_aiohttp(session, body) for body in bodies)
            )

    asyncio.run(everything())


def test_starlette_middleware_keeps_sessions_compresses_and_answers_preflights(
    serve: Serve, browser: requests.Session
) -> None:
    site = serve("starlette_stack:app", cwd=HERE)
    assert [browser.get(f"{site.url}/visits", timeout=PATIENCE).json()["visits"] for _ in range(3)] == [1, 2, 3]
    long = browser.get(f"{site.url}/long", timeout=PATIENCE)
    assert (long.headers["Content-Encoding"], long.headers["X-Seen"]) == ("gzip", "GET")
    assert long.text == "again and " * 10_000
    preflight = browser.options(
        f"{site.url}/long",
        headers={"Origin": "https://shop.example", "Access-Control-Request-Method": "PUT"},
        timeout=PATIENCE,
    )
    assert preflight.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    source = (HERE / "fastapi_shop.py").read_bytes()
    url = f"{site.url}/static/fastapi_shop.py"
    whole = browser.get(url, headers={"Accept-Encoding": "identity"}, timeout=PATIENCE)
    assert whole.content == source
    part = browser.get(url, headers={"Range": "bytes=3-9", "Accept-Encoding": "identity"}, timeout=PATIENCE)
    assert (part.status_code, part.content) == (206, source[3:10])
    fresh = browser.get(url, headers={"If-None-Match": whole.headers["ETag"]}, timeout=PATIENCE)
    assert (fresh.status_code, fresh.content) == (304, b"")


@pytest.mark.parametrize("name", ["library", "own"])
def test_server_sent_events_end_when_the_client_leaves(serve: Serve, browser: requests.Session, name: str) -> None:
    site = serve("starlette_stack:app", cwd=HERE)
    for _ in range(2):
        with browser.get(f"{site.url}/{name}", stream=True, timeout=PATIENCE) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            events = read_events(response, 3)
        assert events == [{"event": "tick", "id": str(number), "data": str(number)} for number in range(3)]
        assert browser.get(f"{site.url}/closed", timeout=PATIENCE).text == name
    assert "Traceback" not in site.stderr


def test_a_real_browser_takes_server_sent_events(
    serve: Serve, browser: requests.Session, program: Callable[[str], str], tmp_path: Path
) -> None:
    """Chromium's EventSource reads five events, closes, and posts what it has seen."""
    site = serve("starlette_stack:app", cwd=HERE)
    with chromium(program, f"{site.url}/page", tmp_path):
        wait_until(
            lambda: browser.get(f"{site.url}/reports", timeout=PATIENCE).json() == ["0 1 2 3 4"],
            "the browser has posted its report",
            60,
        )
    assert browser.get(f"{site.url}/closed", timeout=PATIENCE).text == "own"


def test_quart_streams_works_in_the_background_and_ends_in_order(serve: Serve, browser: requests.Session) -> None:
    site = serve("quart_site:app", cwd=HERE)
    stream = browser.get(f"{site.url}/stream", timeout=PATIENCE)
    assert stream.text == "".join(f"{number}\n" for number in range(1000))
    assert stream.headers["X-Begun"] == "True"
    body = os.urandom(1_000_000)
    assert browser.post(f"{site.url}/sum", data=body, timeout=PATIENCE).json() == {"total": sum(body), "many": True}
    assert [browser.get(f"{site.url}/visits", timeout=PATIENCE).json() for _ in range(2)] == [1, 2]
    assert browser.post(f"{site.url}/later", timeout=PATIENCE).status_code == 202
    assert browser.get(f"{site.url}/done", timeout=PATIENCE).text == "done"
    assert site.stop() == 0
    assert "served" in site.stdout


def test_litestar_streams_validates_and_works_in_the_background(serve: Serve, browser: requests.Session) -> None:
    site = serve("litestar_site:app", cwd=HERE)
    lines = [str(number) for number in range(100)]
    assert browser.get(f"{site.url}/stream", timeout=PATIENCE).text.split() == lines
    with browser.get(f"{site.url}/events", stream=True, timeout=PATIENCE) as response:
        assert [event["event"] for event in read_events(response, 3)] == ["tick"] * 3
    order = browser.post(f"{site.url}/order", json={"item": "tea", "count": 1}, timeout=PATIENCE)
    assert (order.status_code, order.json()) == (201, {"item": "TEA", "count": 2})
    assert browser.post(f"{site.url}/order", json={"item": "tea"}, timeout=PATIENCE).status_code == 400
    upload = browser.post(f"{site.url}/upload", files={"data": ("a.bin", b"x" * 300_000)}, timeout=PATIENCE)
    assert upload.json() == {"name": "a.bin", "bytes": 300_000}
    assert browser.post(f"{site.url}/later", timeout=PATIENCE).text == "accepted"
    assert browser.get(f"{site.url}/done", timeout=PATIENCE).text == "done"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with Django's tables."""
    path = tmp_path / "site.db"
    program = "import django_async; from django.core.management import call_command; call_command('migrate')"
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=HERE,
        env={**os.environ, "DATABASE": str(path)},
        check=True,
        capture_output=True,
        timeout=100,
    )
    return path


def test_django_async_views_leave_no_database_connection_open(
    serve: Serve, browser: requests.Session, database: Path
) -> None:
    site = serve("django_async:app", cwd=HERE, env={"DATABASE": str(database)})

    def connections() -> int:
        return list(descriptors(site.server_pid).values()).count(str(database))

    names = [f"user{number:02}" for number in range(20)]
    for number, name in enumerate(names):
        added = browser.get(f"{site.url}/add", params={"name": name}, timeout=PATIENCE).json()
        assert added["count"] == number + 1
    assert browser.get(f"{site.url}/names", timeout=PATIENCE).json() == names
    assert browser.get(f"{site.url}/stream", timeout=PATIENCE).text.split() == names
    assert browser.post(f"{site.url}/body", data=b"x" * 200_000, timeout=PATIENCE).text == "200000"
    wait_until(lambda: connections() == 0, "no connection is open")
    # Clients that leave: Django cancels the views that wait, and closes what they have opened.
    clients = [socket.create_connection((site.host, site.port), PATIENCE) for _ in range(20)]
    for client in clients:
        client.sendall(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
    wait_until(lambda: json.loads(site.page("/waiting")) == 20, "all views wait")
    for client in clients:
        client.close()
    wait_until(lambda: json.loads(site.page("/waiting")) == 0, "all views are cancelled")
    wait_until(lambda: connections() == 0, "no connection is open")
    assert "Traceback" not in site.stderr


@pytest.mark.parametrize("name", ["falcon", "sanic"])
def test_framework_takes_json_and_streams(serve: Serve, browser: requests.Session, name: str) -> None:
    pytest.importorskip(name)
    site = serve(f"{name}_site:app", cwd=HERE)
    item = browser.post(f"{site.url}/items", json={"item": "tea"}, timeout=PATIENCE)
    assert item.json() == {"item": "tea", **({"length": 15} if name == "falcon" else {"begun": True})}
    stream = browser.get(f"{site.url}/stream", timeout=PATIENCE)
    assert stream.text.split() == [str(number) for number in range(100)]
    if name == "falcon":
        with browser.get(f"{site.url}/events", stream=True, timeout=PATIENCE) as response:
            assert [event["data"] for event in read_events(response, 3)] == ["0", "1", "2"]
