"""Heads that the server keeps of a connection, to read the next one faster, never show in another request.

A web server in front sends the requests of many clients on one connection, and some are answered without the
application: files, health checks. The application must be given the fields of its own request all the same.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Serve

WSGI = """
import json

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    fields = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
    return [json.dumps([environ["REMOTE_ADDR"], environ["PATH_INFO"], fields]).encode()]
"""

ASGI = """
import json

async def app(scope, receive, send):
    fields = {name.decode(): value.decode() for name, value in scope["headers"]}
    body = json.dumps([scope["client"][0], scope["path"], fields]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
"""

# Targets, and whether the application answers.
TARGETS = {"/": True, "/page?a=1": True, "/files/a.txt": False, "/healthz": False}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("source", [WSGI, ASGI], ids=["wsgi", "asgi"])
def test_fields_are_those_of_their_request_between_files_and_health_checks(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path, source: str, trusted: bool
) -> None:
    (tmp_path / "a.txt").write_text("file")
    flags = ["--trusted-proxies", "127.0.0.1"] if trusted else []
    flags += ["--static", f"/files={tmp_path}", "--health-path", "/healthz", "--workers", "0"]
    site = serve(write_app(source), *flags)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    fields = {"cookie": "0", "x-a": "0"}
    for _ in range(20):
        with Peer.connect(site.host, site.port) as peer:
            for number in range(30):
                if rng.random() < 0.5:
                    fields[rng.choice(["cookie", "x-a", "authorization"])] = rng.choice(["0", "1", "22", str(number)])
                elif rng.random() < 0.1:
                    fields = {"cookie": str(number)}
                if trusted and rng.random() < 0.3:
                    fields["x-forwarded-for"] = rng.choice(["10.0.0.1", "10.0.0.2"])
                target = rng.choice(list(TARGETS))
                sent = {"host": "a", **fields}
                lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
                peer.send(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
                response = peer.read_response()
                assert response.status == 200
                if TARGETS[target]:
                    client = fields.get("x-forwarded-for", "127.0.0.1")
                    assert json.loads(response.body) == [client, target.partition("?")[0], sent]
                if ("Connection", "close") in response.headers:
                    break
