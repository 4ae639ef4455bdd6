"""WebSockets of frameworks, with a browser, and with ten thousand clients."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsers import chromium
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from running import Serve

HERE = Path(__file__).parent / "asgi"
PATIENCE = 20.0


def test_fastapi_websocket_runs_dependencies_and_tells_the_close_code(serve: Serve, browser: requests.Session) -> None:
    site = serve("rooms:app", cwd=HERE)
    url = f"ws://{site.host}:{site.port}/rooms/tea"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, proxy=None).close()
    assert refused.value.response.status_code == 403
    with connect(f"{url}?token=secret", proxy=None) as client:
        client.send("hello")
        assert client.recv(timeout=PATIENCE) == "tea: hello"
        client.close(4000, "enough")
    wait_until(
        lambda: (
            browser.get(f"{site.url}/log", timeout=PATIENCE).json()
            == ["opened", "closed", "opened", "tea left: 4000 enough", "closed"]
        ),
        "both dependencies are closed",
    )
    assert "Traceback" not in site.stderr


def test_a_real_browser_speaks_over_a_websocket(
    serve: Serve, browser: requests.Session, program: Callable[[str], str], tmp_path: Path
) -> None:
    """Chromium compresses messages, and closes with a code and a reason of its own."""
    site = serve("rooms:app", cwd=HERE)
    with chromium(program, f"{site.url}/page", tmp_path):
        lengths = f"{len('browser: hello from the browser')} {len('browser: ') + 100_000}"
        wait_until(
            lambda: f"browser left: 4001 {lengths}" in browser.get(f"{site.url}/log", timeout=PATIENCE).json(),
            "the browser has closed",
            60,
        )


async def _enter(
    host: str, port: int, name: int, gate: asyncio.Semaphore
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that speaks as little of RFC 6455 as it needs: ten thousand of a library's would take the machine."""
    async with gate:
        reader, writer = await asyncio.open_connection(host, port, limit=1024)
        writer.write(
            f"GET /rooms/{name}?token=secret HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
        return reader, writer


@pytest.mark.timeout(400)  # half a minute on two busy processors
def test_a_room_of_ten_thousand_hears_each_message(serve: Serve, browser: requests.Session) -> None:
    count = 10_000
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + 200:
        pytest.skip(f"a process may open {most} files here, and {count + 200} are needed")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        # A client answers no pings here, so none may be sent.
        site = serve("rooms:app", "--ws-ping-interval", "0", cwd=HERE)
        asyncio.run(_fill_the_room(site.host, site.port, site.url, count, browser))
        wait_until(lambda: json.loads(site.page("/count")) == 0, "all have left", 60)
        assert "Traceback" not in site.stderr
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def _fill_the_room(host: str, port: int, url: str, count: int, browser: requests.Session) -> None:
    gate = asyncio.Semaphore(200)
    clients = await asyncio.gather(*(_enter(host, port, name, gate) for name in range(count)))

    async def hear(reader: asyncio.StreamReader, text: bytes) -> None:
        # One frame, whole and unmasked (RFC 6455 section 5.2).
        assert await reader.readexactly(2 + len(text)) == b"\x81" + bytes([len(text)]) + text

    for text in ("hello all", "once more"):
        heard = asyncio.gather(*(hear(reader, text.encode()) for reader, _ in clients))
        said = await asyncio.to_thread(browser.post, f"{url}/say", params={"text": text}, timeout=100)
        assert said.json() == count
        await heard
    for _, writer in clients:
        writer.close()
