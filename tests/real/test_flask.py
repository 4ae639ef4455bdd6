"""A Flask application: sessions, streaming, uploads, files in part, errors."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from typing import TYPE_CHECKING

import pytest
import requests

from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Running, Serve

FILE_BYTES = 1_000_000

APP = """
    import hashlib
    import os

    from flask import Flask, Response, abort, jsonify, redirect, request, send_file, session
    from flask import stream_with_context, url_for

    app = Flask(__name__)
    app.secret_key = "a key for tests alone"

    @app.post("/enter")
    def enter():
        session["name"] = request.form["name"]
        return redirect(url_for("greet"))

    @app.get("/")
    def greet():
        session["visits"] = session.get("visits", 0) + 1
        return f"{session.get('name', 'nobody')} {session['visits']}"

    @app.post("/leave")
    def leave():
        session.clear()
        return "", 204

    @app.get("/stream")
    def stream():
        @stream_with_context
        def pieces():
            yield "first of " + request.args["name"]
            # Nothing more until the client, which has seen the first piece, says so.
            with open(os.environ["GATE"], "rb", buffering=0) as gate:
                yield gate.read(6)
            yield "last"
        return Response(pieces(), mimetype="text/plain")

    @app.post("/upload")
    def upload():
        return jsonify({
            field: [file.filename, file.mimetype, hashlib.sha256(file.read()).hexdigest()]
            for field, file in request.files.items()
        } | {"note": request.form["note"]})

    @app.post("/lines")
    def lines():
        return jsonify([line.decode() for line in request.stream])

    @app.get("/file")
    def file():
        return send_file(os.environ["FILE"], mimetype="application/octet-stream", conditional=True)

    @app.route("/abort/<int:code>")
    def stop(code):
        abort(code)

    @app.get("/broken")
    def broken():
        raise LookupError("nothing in the flask")
"""


@pytest.fixture
def sent_file(tmp_path: Path) -> Path:
    path = tmp_path / "sent.bin"
    path.write_bytes(random.Random(7).randbytes(FILE_BYTES))
    return path


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[int]:
    """The writing end of the pipe that the streaming view waits at. It is open for reading too, so that neither side
    waits to open it, and its closing lets a waiting view go on whatever became of the test."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def site(serve: Serve, write_app: Callable[[str], str], tmp_path: Path, sent_file: Path) -> Running:
    return serve(f"{write_app(APP)}:app", env={"GATE": str(tmp_path / "gate"), "FILE": str(sent_file)})


def test_a_session_goes_round_by_its_cookie(site: Running, browser: requests.Session) -> None:
    assert browser.get(site.url, timeout=10).text == "nobody 1"
    greeting = browser.post(f"{site.url}/enter", data={"name": "Žofie & co"}, timeout=10)
    assert [step.status_code for step in greeting.history] == [302]
    assert greeting.text == "Žofie & co 2"
    assert browser.get(site.url, timeout=10).text == "Žofie & co 3"

    # Another visitor on another connection is nobody.
    with requests.Session() as other:
        other.trust_env = False
        assert other.get(site.url, timeout=10).text == "nobody 1"

    left = browser.post(f"{site.url}/leave", timeout=10)
    assert (left.status_code, left.content) == (204, b"")
    assert "Content-Length" not in left.headers
    assert browser.get(site.url, timeout=10).text == "nobody 1"


def test_a_piece_of_a_stream_arrives_before_the_next_is_made(gate: int, site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/stream?name=stream"))
        head = peer.read_head()
        assert (head.status, head.header("Transfer-Encoding")) == (200, "chunked")
        assert peer.read_chunk() == b"first of stream"
        os.write(gate, b"second")
        rest = b""
        while chunk := peer.read_chunk():
            rest += chunk
        assert rest == b"secondlast"
        peer.send(build_request("GET", "/"))
        assert peer.read_response().body == b"nobody 1"


def test_a_stream_to_http_1_0_ends_with_the_connection(gate: int, site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/stream?name=old", version="HTTP/1.0"))
        peer.read_until(b"\r\n\r\nfirst of old")
        os.write(gate, b"second")
        assert peer.read_until_closed() == b"secondlast"
        assert not peer.reset


def test_a_client_that_leaves_in_the_middle_of_a_stream(gate: int, site: Running, browser: requests.Session) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/stream?name=deserter"))
        peer.read_until(b"first of deserter")
        peer.abort()
    os.write(gate, b"second")
    assert browser.get(site.url, timeout=10).text == "nobody 1"


def test_upload_files_in_a_form(site: Running, browser: requests.Session) -> None:
    large, small = random.Random(9).randbytes(2_000_000), b"\r\n--not a boundary\r\n"
    answer = browser.post(
        f"{site.url}/upload",
        data={"note": "dvě"},
        files={"large": ("l.bin", large, "image/png"), "small": ("s.txt", small, "text/plain")},
        timeout=30,
    ).json()
    assert answer == {
        "large": ["l.bin", "image/png", hashlib.sha256(large).hexdigest()],
        "small": ["s.txt", "text/plain", hashlib.sha256(small).hexdigest()],
        "note": "dvě",
    }


def test_a_chunked_body_is_read_to_its_end(site: Running, browser: requests.Session) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one\ntw"
        yield b"o\n"
        yield b"three"

    answer = browser.post(f"{site.url}/lines", data=pieces(), timeout=10)
    assert answer.json() == ["one\n", "two\n", "three"]
    assert browser.get(site.url, timeout=10).text == "nobody 1"


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("bytes=0-99", slice(0, 100)),
        ("bytes=500000-", slice(500_000, None)),
        ("bytes=-1", slice(FILE_BYTES - 1, None)),
        ("bytes=300000-800000", slice(300_000, 800_001)),
    ],
)
def test_a_file_in_part(
    site: Running, browser: requests.Session, sent_file: Path, wanted: str, part: slice[int | None]
) -> None:
    content = sent_file.read_bytes()[part]
    answer = browser.get(f"{site.url}/file", headers={"Range": wanted}, timeout=10)
    assert answer.status_code == 206
    assert answer.headers["Content-Length"] == str(len(content))
    first, last, _ = part.indices(FILE_BYTES)
    assert answer.headers["Content-Range"] == f"bytes {first}-{last - 1}/{FILE_BYTES}"
    assert answer.content == content


def test_a_file_whole_or_not_again(site: Running, browser: requests.Session, sent_file: Path) -> None:
    whole = browser.get(f"{site.url}/file", timeout=10)
    assert (whole.status_code, whole.content) == (200, sent_file.read_bytes())
    same = browser.get(f"{site.url}/file", headers={"If-None-Match": whole.headers["ETag"]}, timeout=10)
    assert (same.status_code, same.content) == (304, b"")
    beyond = browser.get(f"{site.url}/file", headers={"Range": "bytes=1000000-"}, timeout=10)
    assert beyond.status_code == 416
    head = browser.head(f"{site.url}/file", timeout=10)
    assert (head.headers["Content-Length"], head.content) == (str(FILE_BYTES), b"")


@pytest.mark.parametrize("code", [400, 401, 403, 404, 405, 410, 413, 418, 422, 429, 500, 501, 503])
def test_aborts_keep_their_status_and_the_connection(site: Running, code: int) -> None:
    with Peer.connect(site.host, site.port) as peer:
        for _ in range(2):
            peer.send(build_request("GET", f"/abort/{code}"))
            answer = peer.read_response()
            assert (answer.status, answer.framing) == (code, "length")
            assert b"<title>%d " % code in answer.body


def test_an_exception_is_a_500_and_in_the_log(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/broken"))
        assert peer.read_response().status == 500
        peer.send(build_request("GET", "/"))
        assert peer.read_response().body == b"nobody 1"
    site.wait_for("LookupError: nothing in the flask")


def test_many_visitors_do_not_share_a_session(site: Running) -> None:
    with contextlib.ExitStack() as stack:
        visitors = []
        for number in range(20):
            browser = stack.enter_context(requests.Session())
            browser.trust_env = False
            browser.post(f"{site.url}/enter", data={"name": f"visitor{number}"}, timeout=10)
            visitors.append(browser)
        greetings = [browser.get(site.url, timeout=10).text for browser in reversed(visitors)]
    assert greetings == [f"visitor{number} 2" for number in reversed(range(20))]
