"""HTTP/2 as operators see it: metrics, ``kirsch top``, the dump of SIGPWR, the access log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

from http2_peer import Http2Peer
from proc import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve

HERE = os.path.dirname(__file__)


def test_connections_and_streams_are_counted_and_shown(serve: Serve, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    site = serve("waiting_app:app", "--threads", "8", "--metrics-bind", "127.0.0.1:0", cwd=HERE)
    address = site.wait_for(r"metrics on http://(\S+)", timeout=20).group(1)

    def metrics(*names: str) -> list[float]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
            text = answer.read().decode()
        found = [re.search(rf"^kirsch_{name} (\S+)$", text, re.MULTILINE) for name in names]
        return [float(each.group(1)) for each in found if each is not None]

    def top() -> str:
        command = [sys.executable, "-m", "kirsch", "top", "--once", address]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    gauges = ("http2_connections", "http2_streams", "http2_requests_total")
    assert site.page("/hello") == "Hello"
    assert metrics(*gauges) == [0, 0, 0]
    assert "HTTP/2" not in top()
    with Http2Peer.connect(site) as peer, Http2Peer.connect(site) as other:
        streams = [peer.ask(f"/wait?{gate}") for _ in range(3)]
        assert other.get("/hello").status == 200
        wait_until(lambda: metrics(*gauges) == [2, 3, 4], "connections and streams are counted", 20)
        wait_until(lambda: "RUNNING NOW" in top(), "what runs is published", 20)
        shown = top()
        assert "(HTTP/2 2, streams 3)" in shown
        assert re.search(r"GET /wait \(HTTP/2, id \d+, pid", shown)
        site.send(signal.SIGPWR)
        site.wait_for(r"\(2 of HTTP/2 with 3 streams\)", 20)
        site.wait_for(r"^GET /wait \(HTTP/2, id \d+\): running", 20)
        peer.reset(streams[0])
        # The call still runs, so the stream still counts.
        assert peer.get("/hello").status == 200
        wait_until(lambda: metrics("http2_streams", "requests_running") == [3, 3], "three calls run", 20)
        gate.touch()
        assert [peer.answer(stream).status for stream in streams[1:]] == [200, 200]
    wait_until(lambda: metrics(*gauges) == [0, 0, 5], "none is open", 20)
    assert metrics("requests_total") == [6]


def test_access_log_has_the_number_of_the_stream(serve: Serve) -> None:
    log = ("--access-logfile", "-", "--access-logformat")
    site = serve("waiting_app:app", *log, "json", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        for _ in range(2):
            assert peer.get("/hello").status == 200
    found = json.loads(site.wait_for_output(r'^\{.*"stream":3.*\}$', timeout=20).group())
    assert (found["path"], found["protocol"], found["status"]) == ("/hello", "HTTP/2.0", 200)
    assert site.page("/records")
    plain = json.loads(site.wait_for_output(r'^\{.*"path":"/records",.*\}$', timeout=20).group())
    assert "stream" not in plain
    site = serve("waiting_app:app", *log, "%(m)s %(U)s %(H)s %(S)s %(s)s", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        assert peer.get("/hello").status == 200
    site.wait_for_output(r"^GET /hello HTTP/2.0 1 200$", timeout=20)
    assert site.page("/hello") == "Hello"
    site.wait_for_output(r"^GET /hello HTTP/1.1 - 200$", timeout=20)
