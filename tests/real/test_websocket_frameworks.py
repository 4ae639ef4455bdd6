"""WebSockets of frameworks, by the client library ``websockets``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from running import Serve

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", ["starlette", "fastapi", "quart", "litestar"])
def test_framework_echoes_and_denies_other_paths(serve: Serve, name: str) -> None:
    site = serve(f"websocket_frameworks:{name}", cwd=HERE)
    address = f"ws://{site.host}:{site.port}"
    for _ in range(3):
        with connect(f"{address}/echo", proxy=None, open_timeout=20) as client:
            for text in ("one", "zwölf", "x" * 100_000):
                client.send(text)
                assert client.recv(timeout=20) == text.upper()
    with pytest.raises(InvalidStatus) as denied:
        connect(f"{address}/absent", proxy=None, open_timeout=20)
    assert denied.value.response.status_code in (403, 404)


def test_fastapi_denies_by_a_dependency_and_hears_of_the_end(serve: Serve) -> None:
    site = serve("websocket_frameworks:fastapi", cwd=HERE)
    address = f"ws://{site.host}:{site.port}/echo"
    with pytest.raises(InvalidStatus) as denied:
        connect(f"{address}?token=wrong", proxy=None, open_timeout=20)
    assert denied.value.response.status_code == 403
    with connect(address, proxy=None, open_timeout=20) as client:
        client.close(4242)
    site.wait_for_output("disconnected with 4242")
