"""WebSockets in the views of WSGI frameworks, by the client library ``websockets``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

if TYPE_CHECKING:
    from running import Serve

HERE = Path(__file__).parent


@pytest.mark.parametrize("driver", [("--threads", "4"), ("--driver", "gevent")], ids=" ".join)
@pytest.mark.parametrize("name", ["flask", "django", "cherrypy"])
def test_views_use_websockets_and_answer_ordinary_requests(serve: Serve, name: str, driver: tuple[str, str]) -> None:
    site = serve(f"websocket_wsgi_frameworks:{name}", *driver, cwd=HERE)
    address = f"ws://{site.host}:{site.port}"
    for path in ("/handled", "/taken"):
        with connect(f"{address}{path}?name=ann", proxy=None, open_timeout=20) as client:
            assert client.recv(timeout=20) == "hello, ann"
            for text in ("one", "zwölf", "x" * 100_000):
                client.send(text)
                assert client.recv(timeout=20) == text.upper()
            client.close(4242)
        site.wait_for_output(f"{path} closed with 4242")
    with pytest.raises(InvalidStatus) as denied:
        connect(f"{address}/absent", proxy=None, open_timeout=20)
    assert denied.value.response.status_code == 404
    with connect(f"{address}/fails", proxy=None, open_timeout=20) as client:
        with pytest.raises(ConnectionClosed) as ended:
            client.recv(timeout=20)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1011
    assert site.page("/page") == "a page"
