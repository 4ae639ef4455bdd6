"""Over encrypted connections: WebSockets, static files, and applications that ask for the socket."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import urllib.request
from typing import TYPE_CHECKING

import pytest
from websockets.sync.client import connect as connect_websocket

from authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve

HERE = os.path.dirname(__file__)

SOCKET_APP = """
def app(environ, start_response):
    try:
        environ["werkzeug.socket"].recv(1)
    except OSError as error:
        body = repr(error).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority) -> list[str]:
    certificate, key = authority.issue("uses")
    return ["--certfile", certificate, "--keyfile", key]


@pytest.fixture
def context(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.certificate)


@pytest.mark.parametrize("app", ["websocket_app:app", "websocket_wsgi_app:app"])
def test_websocket_echoes_messages_longer_than_a_record(
    serve: Serve, files: list[str], context: ssl.SSLContext, app: str
) -> None:
    running = serve(app, *files, cwd=HERE)
    with connect_websocket(f"wss://localhost:{running.port}/echoes", ssl=context, max_size=None) as client:
        for message in ("short", b"\0" * 1_000_000, "ä" * 20_000):
            client.send(message)
            assert client.recv(timeout=20) == message


def test_static_file_is_served_whole_and_in_part(
    serve: Serve, files: list[str], context: ssl.SSLContext, tmp_path: Path
) -> None:
    content = os.urandom(3_000_001)
    (tmp_path / "large.bin").write_bytes(content)
    running = serve("wsgi_app:app", *files, "--static", f"/files={tmp_path}", cwd=HERE)
    url = f"https://localhost:{running.port}/files/large.bin"
    with urllib.request.urlopen(url, context=context, timeout=20) as response:
        assert response.read() == content
    part = urllib.request.Request(url, headers={"Range": "bytes=1000000-1999999"})
    with urllib.request.urlopen(part, context=context, timeout=20) as response:
        assert (response.status, response.read()) == (206, content[1_000_000:2_000_000])


def test_application_cannot_use_the_socket_and_is_given_the_reason(
    serve: Serve, files: list[str], context: ssl.SSLContext, tmp_path: Path
) -> None:
    (tmp_path / "socket_app.py").write_text(SOCKET_APP)
    running = serve("socket_app:app", *files, cwd=str(tmp_path))
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    # urllib would replace the field Connection.
    client = http.client.HTTPSConnection("localhost", running.port, timeout=20, context=context)
    with contextlib.closing(client):
        client.request("GET", "/", headers=upgrade)
        with client.getresponse() as response:
            assert b"the connection is encrypted, so its socket cannot be used" in response.read()
