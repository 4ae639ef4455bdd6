"""``wsgi.file_wrapper`` of PEP 3333: files and objects like files as bodies, and clients that leave meanwhile.

The application is ``wsgi_app.py``.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import socket
from typing import TYPE_CHECKING

import pytest

from proc import open_files, rss, wait_until
from raw import Peer, PeerClosed, build_request, exchange
from wsgi_site import MIB, SEED, assert_closed_once, connect, get, served

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running


site = pytest.fixture(scope="module")(served)


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 MB that repeat nowhere."""
    path = tmp_path_factory.mktemp("files") / "large"
    path.write_bytes(random.Random(SEED).randbytes(50_000_000))
    return path


def ask_for_file(kind: str, path: Path, length: int | None = None, method: str = "POST") -> bytes:
    return build_request(method, "/file", body=json.dumps([kind, str(path), length]).encode())


@pytest.mark.parametrize("kind", ["buffered", "raw", "from an offset", "temporary"])
def test_a_file_is_sent_whole(site: Running, large_file: Path, kind: str) -> None:
    data = large_file.read_bytes()[10 if kind == "from an offset" else 0 :]
    before, produced = rss(site.server_pid), len(data)
    with connect(site) as peer:
        peer.send(ask_for_file(kind, large_file))
        response = peer.read_response(timeout=60)
        assert (response.status, response.framing) == (200, "length")
        assert response.header("Content-Length") == str(produced)
        assert response.body == data
        peer.send(build_request("GET", "/file_closed"))
        assert peer.read_response().body == b"true"
    if kind != "temporary":  # which the application reads as a whole
        assert rss(site.server_pid) - before < 16 * MIB, "the file was read into memory"


@pytest.mark.parametrize("kind", ["buffered", "subclass", "reader", "bytes"])
def test_a_file_ends_where_its_length_says(site: Running, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000)
    with connect(site) as peer:
        peer.send(ask_for_file(kind, path, 100_001) + build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.header("Content-Length"), response.complete) == ("100001", True)
        assert response.body == path.read_bytes()[:100_001]
        assert peer.read_response().body == b"Hello"


def test_file_that_is_shorter_than_its_length_is_a_500(site: Running, tmp_path: Path) -> None:
    log = len(site.stderr)
    path = tmp_path / "file"
    path.write_bytes(b"only this")
    response = exchange(site.host, site.port, ask_for_file("buffered", path, 100))
    assert (response.status, response.complete) == (500, True)
    site.wait_for(r"shorter than its Content-Length \(declared: 100 bytes; produced: 9\), on POST /file", after=log)


@pytest.mark.parametrize("kind", ["subclass", "reader", "no close", "bytes", "gzip"])
def test_a_file_like_object_is_read(site: Running, tmp_path: Path, kind: str) -> None:
    """GzipFile has a fileno(), of the compressed file: what is sent is what read() returns."""
    path = tmp_path / "file"
    data = random.Random(SEED).randbytes(300_000)
    path.write_bytes(gzip.compress(data) if kind == "gzip" else data)
    response = exchange(site.host, site.port, ask_for_file(kind, path))
    assert (response.status, response.framing, response.complete) == (200, "chunked", True)
    assert response.body == data
    if kind in ("reader", "subclass"):
        assert_closed_once(site, str(path))


@pytest.mark.parametrize("kind", ["buffered", "bytes"])
def test_an_empty_file(site: Running, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.touch()
    response = exchange(site.host, site.port, ask_for_file(kind, path))
    assert (response.status, response.header("Content-Length"), response.body) == (200, "0", b"")


def test_a_text_file_is_refused(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    log = len(site.stderr)
    assert exchange(site.host, site.port, ask_for_file("text", path)).status == 500
    site.wait_for("^TypeError: .*bytes.*not str", after=log)


@pytest.mark.parametrize("length", [None, 9])
def test_head_of_a_file_is_its_head(site: Running, tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ninebytes")
    with connect(site) as peer:
        peer.send(ask_for_file("buffered", path, length, method="HEAD") + build_request("GET", "/file_closed"))
        response = peer.read_response("HEAD")
        assert response.status == 200
        assert response.header("Content-Length") in (None if length is None else "9", "9")
        assert peer.read_response().body == b"true"


def test_a_file_to_http_1_0_has_its_length(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ninebytes")
    body = json.dumps(["buffered", str(path), None]).encode()
    response = get(site, "/file", method="POST", body=body, version="HTTP/1.0")
    assert (response.framing, response.body) == ("length", b"ninebytes")


def test_a_file_after_write(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"then the file")
    response = get(site, "/file_after_write", method="POST", body=str(path).encode())
    assert (response.body, response.complete) == (b"written first, then the file", True)


def test_the_wrapper_is_an_iterator_for_every_caller(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1000)
    response = get(site, "/file_by_hand", method="POST", body=str(path).encode())
    assert response.body == b"ABC" * 1000


def test_a_client_that_goes_while_a_file_is_sent(site: Running, large_file: Path) -> None:
    log = len(site.stderr)
    before = open_files(site.server_pid)
    for _ in range(3):
        peer = connect(site)
        peer.send(ask_for_file("buffered", large_file))
        peer.read_head()
        peer.abort()
    get(site, "/file_closed")
    wait_until(lambda: open_files(site.server_pid) <= before, "the files and connections are closed")
    assert "Traceback" not in site.stderr[log:]


def test_a_file_that_shrinks_while_it_is_sent_is_cut(site: Running, tmp_path: Path) -> None:
    log = len(site.stderr)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 40_000_000)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.connect((site.host, site.port))
    with Peer(sock, timeout=20) as peer:
        peer.send(ask_for_file("buffered", path))
        assert peer.read_head().header("Content-Length") == "40000000"
        get(site, "/hello")
        os.truncate(path, 1000)
        body = peer.read_until_closed()
        assert len(body) < 40_000_000
    site.wait_for("became shorter while it was sent", after=log)
    assert get(site, "/hello").body == b"Hello"


def test_an_unread_response_does_not_keep_others_waiting(site: Running) -> None:
    with connect(site) as slow:
        slow.send(build_request("GET", "/endless?unread"))
        slow.read_head()
        for _ in range(20):
            assert get(site, "/hello").body == b"Hello"
    assert_closed_once(site, "unread")


def test_peers_that_send_nothing_get_nothing(site: Running) -> None:
    with connect(site) as peer:
        peer.end_sending()
        with pytest.raises(PeerClosed):
            peer.read_response()
