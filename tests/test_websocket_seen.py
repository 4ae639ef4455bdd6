"""WebSockets as operators see them: metrics, ``kirsch top``, the access log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from test_websocket import connect

if TYPE_CHECKING:
    from running import Serve

HERE = os.path.dirname(__file__)


def test_open_websockets_and_their_messages_are_counted_and_shown(serve: Serve) -> None:
    site = serve("websocket_app:app", "--workers", "2", "--metrics-bind", "127.0.0.1:0", cwd=HERE)
    address = site.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def metric(name: str) -> float:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None, name
        return float(found.group(1))

    def top() -> str:
        command = [sys.executable, "-m", "kirsch", "top", "--once", address]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    assert metric("kirsch_websockets") == 0
    assert "WebSockets" not in top()
    clients = [connect(site, "/echoes") for _ in range(3)]
    for client in clients:
        for message in ("one", b"two"):
            client.send(message)
            assert client.recv(timeout=20) == message
        client.ping().wait(20)  # no message
    wait_until(lambda: metric("kirsch_websocket_messages_sent_total") == 6, "messages are counted", 20)
    assert metric("kirsch_websocket_messages_received_total") == 6
    assert metric("kirsch_websockets") == 3
    assert "WebSockets 3   messages 6 in, 6 out" in top()
    with urllib.request.urlopen(f"http://{address}/status.json", timeout=20) as answer:
        assert json.load(answer)["gauges"]["websockets"] == 3
    for client in clients:
        client.close()
    wait_until(lambda: metric("kirsch_websockets") == 0, "none is open", 20)
    assert metric("kirsch_websocket_messages_sent_total") == 6


@pytest.mark.parametrize("app", ["websocket_app:app", "websocket_wsgi_app:app"])
def test_time_of_a_websocket_ends_in_the_metrics_when_it_is_accepted(serve: Serve, app: str) -> None:
    site = serve(app, "--metrics-bind", "127.0.0.1:0", cwd=HERE)
    address = site.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def counted() -> list[int]:
        """How many times there are in the two histograms of requests."""
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            found = answer.read().decode()
        names = ("kirsch_request_service_seconds_count", "kirsch_request_queue_seconds_count")
        return [int(re.search(rf"^{name} (\d+)$", found, re.MULTILINE).group(1)) for name in names]  # type: ignore[union-attr]

    path = "/handles" if "wsgi" in app else "/echoes"
    clients = [connect(site, path) for _ in range(3)]
    for number in range(10):
        for client in clients:
            client.send(f"{number}")
            assert client.recv(timeout=20) == f"{number}"
    wait_until(lambda: counted() == [3, 3], "the requests are counted", 20)
    for client in clients:
        client.close()
    wait_until(lambda: len(re.findall(r"disconnect 1000|close  1000", site.stderr)) == 3, "all calls have ended", 20)
    assert site.page() == "hello"
    wait_until(lambda: counted() == [4, 4], "one request more, and nothing else, is counted", 20)


def test_access_log_has_the_close_code_and_the_time_of_a_websocket(serve: Serve) -> None:
    log = ("--access-logfile", "-", "--access-logformat")
    site = serve("websocket_app:app", *log, "json", cwd=HERE)
    with connect(site, "/echoes") as client:
        client.send("four")
        client.recv(timeout=20)
        client.close(4001)
    found = json.loads(site.wait_for_output(r'^\{.*"websocket_close_code".*\}$', timeout=20).group())
    assert (found["status"], found["path"], found["websocket_close_code"]) == (101, "/echoes", 4001)
    assert (found["response_bytes"], found["duration_us"] > 0) == (4, True)
    urllib.request.urlopen(site.url, timeout=20).close()
    plain = json.loads(site.wait_for_output(r'^\{.*"path":"/",.*\}$', timeout=20).group())
    assert "websocket_close_code" not in plain
    site = serve("websocket_app:app", *log, "%(m)s %(U)s %(s)s %(W)s %(D)s", cwd=HERE)
    with connect(site, "/returns"):
        pass
    assert site.wait_for_output(r"^GET /returns 101 (\d+) \d+$", timeout=20).group(1) == "1000"
    urllib.request.urlopen(site.url, timeout=20).close()
    site.wait_for_output(r"^GET / 200 - \d+$", timeout=20)
