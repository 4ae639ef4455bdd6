"""Extensions of ASGI's HTTP responses: path send, zero copy send, early hints, trailers (ASGI, Extensions)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from raw import Response
    from running import Running, Serve

HERE = os.path.dirname(__file__)
BIG = os.urandom(8 << 20)
TRAILERS = {"TE": "trailers"}


@pytest.fixture
def site(serve: Serve, tmp_path: Path) -> Running:
    (tmp_path / "big").write_bytes(BIG)
    (tmp_path / "small").write_bytes(b"0123456789")
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    return serve("asgi_extensions_app:app", cwd=HERE, env={"FILES": str(tmp_path)})


def get(site: Running, name: str, method: str = "GET", **more: Any) -> Response:
    return exchange(site.host, site.port, build_request(method, f"/{name}", **more))


def test_scope_announces_the_extensions_of_its_version(site: Running) -> None:
    both = "http.response.pathsend http.response.zerocopysend"
    # The application changes the dictionaries, which are each request's own.
    for _ in range(2):
        expected = f"http.response.early_hint {both.replace(' ', ' http.response.trailers ')}"
        assert get(site, "extensions").body.decode() == expected
        assert get(site, "extensions", version="HTTP/1.0").body.decode() == both


def test_path_is_sent_as_the_whole_body(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/path"))
            answer = peer.read_response()
            assert (answer.header("content-length"), answer.header("x-a")) == (str(len(BIG)), "1")
            assert answer.body == BIG
            peer.send(build_request("HEAD", "/path"))
            assert peer.read_response("HEAD").body == b""
        peer.send(build_request("GET", "/path-empty"))
        assert (peer.read_response().body, peer.ended) == (b"", False)
        # A file that is longer ends where the response says, as it may have grown since the application looked.
        peer.send(build_request("GET", "/path-length"))
        assert peer.read_response().body == BIG[:10]
        peer.send(build_request("GET", "/path-trailers", headers=TRAILERS))
        answer = peer.read_response()
        assert (answer.body, answer.trailers) == (b"0123456789", (("x-sum", "1"),))


def test_path_to_a_client_that_reads_slowly_holds_up_nobody(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/path"))
        peer.read_head()
        assert get(site, "hint-none").body == b"page"
        assert peer.read_until(BIG[-100:]).endswith(BIG[-1000:])


def test_parts_of_files_are_sent_among_other_parts(site: Running) -> None:
    answer = get(site, "zero_copies")
    assert answer.body == b"6789|1234789" + b"0123456789"
    assert get(site, "zero_copy_big").body == BIG


def test_message_of_an_extension_that_is_wrong_says_what_to_write(site: Running, tmp_path: Path) -> None:
    answer = get(site, "wrong")
    expected = [
        "RuntimeError: http.response.pathsend was sent before http.response.start: send the status",
        "RuntimeError: http.response.zerocopysend was sent before http.response.start",
        "RuntimeError: http.response.trailers was sent before http.response.start",
        "TypeError: the links of http.response.early_hint must be an iterable of bytes such as [b'",
        "TypeError: a link must be bytes such as b'</a.css>; rel=preload; as=style', not str",
        "ValueError: a header value must not contain control characters such as CR, LF or NUL: b'</a.css>",
        "ValueError: http.response.early_hint has no 'links'",
        "ValueError: http.response.pathsend has no 'path', such as '/srv/files/report.pdf'",
        f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/absent'",
        f"IsADirectoryError: [Errno 21] Is a directory: '{tmp_path}'",
        "ValueError: the path of http.response.pathsend must be absolute, such as os.path.abspath(path): 'small'",
        "TypeError: the path of http.response.pathsend must be a str such as '/srv/files/report.pdf', not bytes",
        "TypeError: the path of http.response.pathsend must be a str such as '/srv/files/report.pdf', not PosixPath",
        "ValueError: the path of http.response.pathsend must be that of a regular file; read what is there",
        "ValueError: the path of http.response.pathsend is none: ",
        "ValueError: http.response.zerocopysend has no 'file', such as open(path, 'rb')",
        "TypeError: the file of http.response.zerocopysend must have a descriptor; send the content of others with",
        "ValueError: I/O operation on closed file",
        "TypeError: the file of http.response.zerocopysend must be a file with a descriptor, such as open(path, 'rb')",
        "TypeError: the file of http.response.zerocopysend must be a file with a descriptor",
        "ValueError: the file of http.response.zerocopysend must be a regular file; read others, and send",
        "OSError: [Errno 9] Bad file descriptor",
        "TypeError: the offset of http.response.zerocopysend must be an int of at least 0, not int: -1",
        "TypeError: the count of http.response.zerocopysend must be an int of at least 0, not str: '5'",
        "TypeError: the count of http.response.zerocopysend must be an int of at least 0, not bool: True",
        "RuntimeError: http.response.trailers was not announced: send 'trailers': True in http.response.start",
        "RuntimeError: http.response.pathsend was sent after a part of the body: the file is the whole body; send",
    ]
    said = answer.body.decode().split("\n")
    assert [line for line, start in zip(said, expected, strict=False) if not line.startswith(start)] == []
    assert len(said) == len(expected)
    assert answer.header("x-a") == "1"
    assert get(site, "path-first").status == 500


@pytest.mark.parametrize("name", ["hint", "hint-first", "hint_then_wait"])
def test_early_hints_come_before_the_head(site: Running, name: str) -> None:
    links = ["</a.css>; rel=preload; as=style", "</b.js>; rel=preload"][: 2 if name == "hint" else 1]
    with Peer.connect(site.host, site.port) as peer:
        for _ in range(2):
            peer.send(build_request("GET", f"/{name}"))
            interim = peer.read_head()
            assert (interim.status, interim.reason, interim.all("link")) == (103, "Early Hints", links)
            if name == "hint":
                assert peer.read_head().all("link") == ["</c.png>; rel=preload"]
            answer = peer.read_response()
            assert (answer.status, answer.all("link"), answer.body) == (200, [], b"page")
    # RFC 9110 section 15.2: a client of HTTP/1.0 gets none.
    assert get(site, name, version="HTTP/1.0").body == b"page"


@pytest.mark.parametrize("name", ["hint-none", "hint-late"])
def test_early_hints_that_come_too_late_are_left_out(site: Running, name: str) -> None:
    answer = get(site, name)
    assert (answer.status, answer.body) == (200, b"page")


@pytest.mark.parametrize("name", ["trailers", "trailers-length", "trailers-none"])
def test_trailers_go_to_clients_that_take_them(site: Running, name: str) -> None:
    sent = {
        "trailers": (("x-sum", "1"), ("x-time", "2")),
        "trailers-length": (("x-sum", "1"),),
        "trailers-none": (),
    }[name]
    with Peer.connect(site.host, site.port) as peer:
        for te in ("trailers", "gzip;q=0.5, Trailers"):
            peer.send(build_request("GET", f"/{name}", headers={"TE": te, "Connection": "TE"}))
            answer = peer.read_response()
            assert (answer.body, answer.framing, answer.trailers) == (b"body", "chunked", sent)
            assert answer.all("content-length") == []
            assert answer.header("trailer") == ("x-sum, x-time" if name == "trailers" else None)
        for headers in ({}, {"TE": "gzip"}):
            peer.send(build_request("GET", f"/{name}", headers=headers))
            answer = peer.read_response()
            assert (answer.body, answer.trailers, answer.all("trailer")) == (b"body", (), [])
        peer.send(build_request("HEAD", f"/{name}", headers=TRAILERS))
        assert peer.read_response("HEAD").body == b""
    assert get(site, name, version="HTTP/1.0", headers=TRAILERS).body == b"body"


def test_trailers_that_are_wrong_are_not_sent(site: Running) -> None:
    answer = get(site, "wrong_trailers", headers=TRAILERS)
    assert answer.body == b"body"
    said = dict(answer.trailers)["x-said"].split(" // ")
    expected = [
        "RuntimeError: http.response.trailers was sent before the body was complete",
        "RuntimeError: http.response.body was sent after the body was complete: send http.response.trailers",
        "ValueError: this header is of no use behind the body: send it with the status",
        "ValueError: a header value must not contain control characters",
        "TypeError: a header name must be bytes such as",
        "RuntimeError: http.response.early_hint was sent after the body was complete",
    ]
    assert [line for line, start in zip(said, expected, strict=False) if not line.startswith(start)] == []
    assert len(said) == len(expected)
    site.wait_for_output("behind the end: http.response.trailers was sent after the response was complete")


def test_response_whose_trailers_do_not_come_is_cut(site: Running) -> None:
    answer = get(site, "ends_without_trailers", headers=TRAILERS)
    assert (answer.complete, answer.trailers) == (False, ())
    site.wait_for("the application returned without completing its response")
    assert get(site, "hint-none").body == b"page"
