"""HTTP/1.0 and 1.1 on real connections: persistence, pipelining, interim responses, forms of targets, and how a
connection ends (RFC 9110, RFC 9112)."""

from __future__ import annotations

import datetime
import email.utils
import json
import random
import socket
import textwrap
import threading
from typing import TYPE_CHECKING, Any

import pytest

from proc import wait_until
from raw import Peer, Response, build_request, exchange
from running import Running, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Serve

MIB = 1 << 20
SEED = 20_261_120
BODY_LIMIT = 100_000

APP = """
    import json

    gates = set()

    def app(environ, start_response):
        path = environ["PATH_INFO"]
        if path == "/open":
            gates.add(environ["QUERY_STRING"])
        if path == "/gated":
            return gated(environ, start_response)
        if path.startswith("/status/"):
            start_response(f"{path[8:]} Asked For", [("Content-Type", "text/plain")])
            return [b"a body"]
        if path == "/declared/304":
            start_response("304 Not Modified", [("Content-Length", "1234"), ("ETag", '"1"')])
            return []
        if path == "/large":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b"x" * 3_000_000]
        if path == "/stream":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return (bytes([48 + number % 10]) * 65536 for number in range(80))
        answer = [environ["REQUEST_METHOD"], environ["RAW_URI"], environ["wsgi.input"].read().decode("latin-1"),
                  environ["PATH_INFO"], environ.get("HTTP_HOST")]
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def gated(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        yield b"before "
        while environ["QUERY_STRING"] not in gates:
            yield b""
        yield b"after"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("http")
    (folder / "http_app.py").write_text(textwrap.dedent(APP), encoding="utf-8")
    site = start("http_app:app", ["--limit-request-body", str(BODY_LIMIT)], cwd=folder)
    yield site
    complaints = site.finish()
    print(f"---- standard error ----\n{site.stderr}")
    assert complaints == []


@pytest.fixture
def peer(site: Running) -> Iterator[Peer]:
    with Peer.connect(site.host, site.port) as peer:
        yield peer


def answer(response: Response) -> Any:
    assert response.status == 200, response
    return json.loads(response.body)


# Persistence (RFC 9112 section 9.3)


@pytest.mark.parametrize(
    ("version", "wish", "stays"),
    [
        ("HTTP/1.1", None, True),
        ("HTTP/1.1", "keep-alive", True),
        ("HTTP/1.1", "close", False),
        ("HTTP/1.1", "Close", False),
        ("HTTP/1.1", "keep-alive, close", False),
        ("HTTP/1.1", "x-unknown", True),
        ("HTTP/1.0", None, False),
        ("HTTP/1.0", "keep-alive", True),
        ("HTTP/1.0", "Keep-Alive", True),
        ("HTTP/1.0", "close", False),
        ("HTTP/1.2", None, True),
    ],
)
def test_connections_persist_as_the_version_and_the_wish_have_it(
    peer: Peer, version: str, wish: str | None, stays: bool
) -> None:
    fields = {"Host": "a"} | ({"Connection": wish} if wish else {})
    for number in range(3 if stays else 1):
        peer.send(build_request("GET", f"/{number}", version=version, headers=fields))
        response = peer.read_response()
        assert answer(response)[1] == f"/{number}"
        assert response.version == "HTTP/1.1"
        if not stays:
            assert response.header("Connection") == "close"
        elif version == "HTTP/1.0":
            assert response.header("Connection") == "keep-alive"
        else:
            assert response.header("Connection") is None
    if not stays:
        assert peer.read_until_closed() == b""
        assert not peer.reset


def test_a_body_without_a_length_ends_a_1_0_connection_that_wished_to_stay(peer: Peer) -> None:
    peer.send(build_request("GET", "/stream", version="HTTP/1.0", headers={"Connection": "keep-alive"}))
    response = peer.read_response()
    assert (response.framing, response.header("Connection")) == ("close", "close")
    assert (len(response.body), response.complete) == (80 * 65536, True)


def test_fifty_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    requests, expected = [], []
    for number in range(50):
        body = None
        fields = [("X-Number", str(number))]
        if number % 5 == 1:
            body = f"body {number}".encode()
            requests.append(build_request("POST", f"/{number}", headers=fields, body=body))
        elif number % 5 == 2:
            body = b"\r\nGET /smuggled HTTP/1.1\r\n\r\n"
            head = build_request("PUT", f"/{number}", headers=[*fields, ("Transfer-Encoding", "chunked")])
            requests.append(head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        else:
            requests.append(build_request("GET", f"/{number}", headers=fields))
        expected.append((f"/{number}", (body or b"").decode()))
    peer.send(b"".join(requests))
    assert [(a[1], a[2]) for a in (answer(peer.read_response()) for _ in requests)] == expected


def test_pipelined_responses_of_every_kind_stay_in_order(peer: Peer) -> None:
    kinds = [("GET", "/large"), ("HEAD", "/large"), ("GET", "/stream"), ("GET", "/status/204"), ("POST", "/x")]
    peer.send(b"".join(build_request(method, target, body=None) for method, target in kinds * 4))
    for method, target in kinds * 4:
        response = peer.read_response(method)
        assert response.complete
        if target == "/large":
            assert len(response.body) == (3_000_000 if method == "GET" else 0)
        elif target == "/stream":
            assert response.body == b"".join(bytes([48 + number % 10]) * 65536 for number in range(80))
        elif target == "/status/204":
            assert (response.status, response.body) == (204, b"")
        else:
            assert answer(response)[:2] == ["POST", "/x"]


def test_nothing_behind_a_last_request_is_read_as_another(site: Running, peer: Peer) -> None:
    peer.send(build_request("GET", "/first", headers={"Connection": "close"}) + build_request("GET", "/open?smuggled"))
    assert answer(peer.read_response())[1] == "/first"
    assert peer.read_until_closed() == b""
    with Peer.connect(site.host, site.port) as other:
        other.send(build_request("GET", "/gated?smuggled"))
        assert other.read_head().status == 200
        assert other.read_chunk() == b"before "
        exchange(site.host, site.port, build_request("GET", "/open?smuggled"))
        assert other.read_chunk() == b"after"


def test_a_refused_request_stops_what_is_pipelined_behind_it(peer: Peer) -> None:
    peer.send(build_request("GET", "/1") + b"GET /2 HTTP/1.1\r\n\r\n" + build_request("GET", "/3"))
    assert answer(peer.read_response())[1] == "/1"
    response = peer.read_response()
    assert (response.status, response.header("Connection")) == (400, "close")
    assert peer.read_until_closed() == b""


def test_a_client_that_pipelines_and_does_not_read_is_not_read_either(site: Running) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.connect((site.host, site.port))
    requests = build_request("GET", "/large") * 20
    with Peer(sock, timeout=30) as peer:
        peer.send(requests)
        # 60 MB of responses wait for it; others are served.
        for _ in range(5):
            assert exchange(site.host, site.port, build_request("GET", "/")).status == 200
        # More requests than the kernel's buffers hold: sending must come to a stop.
        more = build_request("GET", "/large", headers={"X-Long": "x" * 8000})
        with pytest.raises(TimeoutError):
            peer.send(more * 8000, timeout=1.0)


@pytest.mark.parametrize("seed", range(SEED, SEED + 8))
def test_random_conversations(site: Running, seed: int) -> None:
    """Requests of every kind on one connection, cut anywhere, pipelined or not: each gets its own answer, in order."""
    print("seed", seed)
    chance = random.Random(seed)
    pending: list[tuple[str, str, bytes, str]] = []
    with Peer.connect(site.host, site.port) as peer:
        for number in range(150):
            method = chance.choice(["GET", "GET", "POST", "HEAD", "PUT"])
            target = chance.choice([f"/{number}", f"/{number}?{number}", "/same", "/stream", "/large", "/status/204"])
            version = chance.choice(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"])
            fields = [("Host", "a"), ("Connection", "keep-alive")]
            if chance.random() < 0.3:
                fields.append((f"X-Only-{number}", "x" * chance.choice([0, 10, 3000])))
            body, wire = b"", b""
            if method in ("POST", "PUT"):
                body = chance.randbytes(chance.choice([0, 1, 100, 5000, 60_000]))
                if version == "HTTP/1.1" and chance.random() < 0.5:
                    fields.append(("Transfer-Encoding", "chunked"))
                    cut = chance.randint(0, len(body))
                    parts = [part for part in (body[:cut], body[cut:]) if part]
                    wire = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
                else:
                    fields.append(("Content-Length", str(len(body))))
                    wire = body
            if target == "/stream" and version == "HTTP/1.0":
                target = "/large"  # a body without a length would end the connection
            request = build_request(method, target, headers=fields, version=version) + wire
            at = 0
            while at < len(request):
                size = chance.choice([1, 5, 80, 4000, 70_000])
                peer.send(request[at : at + size])
                at += size
            pending.append((method, target, body, version))
            # Few enough that neither side's buffers fill while the other one only sends.
            while pending and (len(pending) > 10 or target in ("/stream", "/large") or chance.random() < 0.4):
                assert_is_answer_to(pending.pop(0), peer)
        for request_ in pending:
            assert_is_answer_to(request_, peer)


def assert_is_answer_to(request: tuple[str, str, bytes, str], peer: Peer) -> None:
    method, target, body, version = request
    response = peer.read_response(method)
    assert response.complete
    assert response.header("Connection") == ("keep-alive" if version == "HTTP/1.0" else None)
    if target == "/status/204":
        assert (response.status, response.body) == (204, b"")
    elif method == "HEAD":
        assert (response.status, response.body) == (200, b"")
    elif target == "/large":
        assert response.body == b"x" * 3_000_000
    elif target == "/stream":
        assert response.body == b"".join(bytes([48 + number % 10]) * 65536 for number in range(80))
    else:
        assert answer(response)[:3] == [method, target, body.decode("latin-1")]


def test_empty_lines_before_a_request_line(peer: Peer) -> None:
    """RFC 9112 section 2.2: old clients send one behind a body."""
    peer.send(build_request("POST", "/", body=b"x") + b"\r\n" + build_request("GET", "/2"))
    assert answer(peer.read_response())[2] == "x"
    assert answer(peer.read_response())[1] == "/2"


# Responses without a body (RFC 9110 sections 9.3.2, 15.3.5, 15.3.6, 15.4.5)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("status", [200, 204, 205, 304, 404])
def test_what_has_no_body_has_none_on_the_wire(peer: Peer, method: str, status: int) -> None:
    peer.send(build_request(method, f"/status/{status}") + build_request("GET", "/next"))
    response = peer.read_response(method)
    assert response.status == status
    assert response.body == (b"a body" if method != "HEAD" and status in (200, 404) else b"")
    assert response.header("Transfer-Encoding") is None
    if status == 204:
        assert response.header("Content-Length") is None
    if status == 205:
        assert response.header("Content-Length") == "0"
    assert answer(peer.read_response())[1] == "/next", "no stray byte before the next response"


def test_304_may_tell_the_length_that_200_would_have(peer: Peer) -> None:
    peer.send(build_request("GET", "/declared/304") + build_request("GET", "/next"))
    response = peer.read_response()
    assert (response.status, response.header("Content-Length"), response.body) == (304, "1234", b"")
    assert answer(peer.read_response())[1] == "/next"


def test_head_tells_a_refusal_without_its_page(peer: Peer) -> None:
    head = build_request("HEAD", "/", headers={"Content-Length": str(BODY_LIMIT + 1)})
    peer.send(head)
    response = peer.read_response("HEAD")
    assert response.status == 413
    assert peer.read_until_closed() == b""


# Expect (RFC 9110 section 10.1.1)

EXPECT = {"Expect": "100-continue"}


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_100_continue_is_sent_when_the_body_is_wanted(peer: Peer, framing: str) -> None:
    fields = {"Content-Length": "5"} if framing == "length" else {"Transfer-Encoding": "chunked"}
    for turn in range(3):
        peer.send(build_request("POST", f"/{turn}", headers={**EXPECT, **fields}))
        assert peer.read_response().status == 100
        peer.send(b"12345" if framing == "length" else b"5\r\n12345\r\n0\r\n\r\n")
        response = peer.read_response()
        assert answer(response)[1:3] == [f"/{turn}", "12345"]


@pytest.mark.parametrize(
    "request_",
    [
        build_request("POST", "/", headers=EXPECT, body=b"12345"),
        build_request("POST", "/", headers={**EXPECT, "Content-Length": "0"}),
        build_request("GET", "/", headers=EXPECT),
        build_request("POST", "/", headers={**EXPECT, "Transfer-Encoding": "chunked"}) + b"0\r\n\r\n",
        build_request("POST", "/", headers=EXPECT, body=b"12345", version="HTTP/1.0"),
    ],
    ids=["body is here", "length 0", "no body", "chunked is here", "HTTP/1.0"],
)
def test_100_continue_is_not_sent_when_nothing_is_waited_for(peer: Peer, request_: bytes) -> None:
    peer.send(request_)
    assert peer.read_response().status == 200


def test_100_continue_to_http_1_0_is_not_sent_even_if_it_waits(peer: Peer) -> None:
    peer.send(build_request("POST", "/", headers={**EXPECT, "Content-Length": "5"}, version="HTTP/1.0"))
    peer.send(b"12345")
    assert answer(peer.read_response())[2] == "12345"


def test_a_body_that_would_be_refused_is_not_asked_for(peer: Peer) -> None:
    peer.send(build_request("POST", "/", headers={**EXPECT, "Content-Length": str(BODY_LIMIT + 1)}))
    response = peer.read_response()
    assert (response.status, response.header("Connection")) == (413, "close")
    assert peer.read_until_closed() == b""


@pytest.mark.parametrize("value", ["200-ok", "100-continue, something", "100-continue=1"])
def test_an_unknown_expectation_is_refused(peer: Peer, value: str) -> None:
    peer.send(build_request("POST", "/", headers={"Expect": value, "Content-Length": "5"}))
    assert peer.read_response().status == 417
    assert peer.read_until_closed() == b""


# Upgrades and forms of targets


@pytest.mark.parametrize("protocol", ["websocket", "h2c", "TLS/1.0"])
def test_an_upgrade_is_ignored(peer: Peer, protocol: str) -> None:
    fields = {
        "Upgrade": protocol,
        "Connection": "Upgrade, HTTP2-Settings",
        "HTTP2-Settings": "AAMAAABkAAQCAAAAAAIAAAAA",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
        # gunicorn 20.0.4 read eight bytes of body for this one.
        "Sec-WebSocket-Key1": "x",
    }
    peer.send(build_request("GET", "/chat", headers=fields) + build_request("GET", "/next"))
    response = peer.read_response()
    assert answer(response)[1] == "/chat"
    assert response.header("Upgrade") is None
    assert answer(peer.read_response())[1] == "/next"


def test_options_asterisk(peer: Peer) -> None:
    peer.send(build_request("OPTIONS", "*") + build_request("GET", "/next"))
    method, uri, _, path, _ = answer(peer.read_response())
    # RFC 3875 section 4.1.5: PATH_INFO is empty or begins with a slash.
    assert (method, uri, path) == ("OPTIONS", "*", "")
    assert answer(peer.read_response())[1] == "/next"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (build_request("GET", "*"), 400),
        (build_request("CONNECT", "example.com:443"), 501),
        (build_request("GET", "example.com:80"), 400),
        (build_request("GET", "ftp://example.com/"), 400),
    ],
)
def test_targets_that_are_not_ours_are_refused(peer: Peer, request_: bytes, status: int) -> None:
    peer.send(request_)
    assert peer.read_response().status == status
    assert peer.read_until_closed() == b""


def test_absolute_form(peer: Peer) -> None:
    peer.send(build_request("GET", "http://other.example:81/a?b", host="this.example"))
    _, uri, _, path, host = answer(peer.read_response())
    assert (uri, path, host) == ("http://other.example:81/a?b", "/a", "other.example:81")


def test_the_probes_of_other_servers(site: Running) -> None:
    """HTTP/1.1 without Host, two Hosts, two framings, NUL in a value, space before a colon."""
    for head in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n",
    ):
        with Peer.connect(site.host, site.port) as peer:
            peer.send(head)
            response = peer.read_response()
            assert (response.status, response.header("Connection")) == (400, "close")
            assert peer.read_until_closed() == b""
            assert not peer.reset


# How connections end


@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 3 * MIB, 10 * MIB])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_refusal_reaches_a_client_that_is_still_sending(peer: Peer, size: int, framing: str) -> None:
    """RFC 9112 section 9.6: the client sends all that it has and reads only then. It stands in for one whose kernel
    would throw the response away at a reset."""
    body = b"x" * size
    if framing == "length":
        request = build_request("POST", "/", body=body)
    else:
        request = build_request("POST", "/", headers={"Transfer-Encoding": "chunked"})
        request += b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
    peer.offer(request)
    response = peer.read_response()
    assert (response.status, response.complete, response.header("Connection")) == (413, True, "close")


def test_a_refusal_is_followed_by_an_orderly_end_while_the_client_still_sends(peer: Peer) -> None:
    peer.send(b"BAD\r\n\r\n")
    for _ in range(50):
        # A reset would make one of these fail.
        peer.send(b"more and more of what is not read\r\n")
    response = peer.read_response()
    assert response.status == 400
    assert peer.read_until_closed() == b""
    assert not peer.reset


def test_a_last_response_reaches_a_client_that_has_sent_more(site: Running, peer: Peer) -> None:
    """Closing while bytes of the client lie unread is a reset, which would destroy what it has not read yet."""
    peer.send(build_request("GET", "/gated?has-sent-more", headers={"Connection": "close"}))
    assert peer.read_head().header("Connection") == "close"
    assert peer.read_chunk() == b"before "
    peer.send(b"x" * 32768)
    exchange(site.host, site.port, build_request("GET", "/open?has-sent-more"))
    assert peer.read_chunk() == b"after"
    assert peer.read_chunk() == b""
    assert peer.read_until_closed() == b""
    assert not peer.reset


@pytest.mark.parametrize("target", ["/plain", "/large"])
def test_an_empty_line_behind_the_last_body_is_no_trouble(peer: Peer, target: str) -> None:
    peer.send(build_request("POST", target, body=b"body", headers={"Connection": "close"}) + b"\r\n")
    assert peer.read_response().complete
    assert peer.read_until_closed() == b""
    assert not peer.reset


@pytest.mark.parametrize("target", ["/plain", "/large", "/stream"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_half_closed_client_gets_its_response(peer: Peer, target: str, version: str) -> None:
    peer.send(build_request("POST", target, body=b"body", version=version))
    peer.end_sending()
    response = peer.read_response()
    assert (response.status, response.complete) == (200, True)
    assert len(response.body) == {"/plain": len(response.body), "/large": 3_000_000, "/stream": 80 * 65536}[target]
    assert peer.read_until_closed() == b""
    assert not peer.reset


def test_a_half_closed_client_gets_all_its_pipelined_responses(peer: Peer) -> None:
    peer.send(b"".join(build_request("GET", target) for target in ("/1", "/large", "/stream", "/2")))
    peer.end_sending()
    assert answer(peer.read_response())[1] == "/1"
    assert len(peer.read_response().body) == 3_000_000
    assert len(peer.read_response().body) == 80 * 65536
    assert answer(peer.read_response())[1] == "/2"
    assert peer.read_until_closed() == b""


def test_a_half_closed_client_gets_a_response_that_takes_its_time(site: Running, peer: Peer) -> None:
    peer.send(build_request("GET", "/gated?half-closed"))
    peer.end_sending()
    assert peer.read_head().status == 200
    assert peer.read_chunk() == b"before "
    exchange(site.host, site.port, build_request("GET", "/open?half-closed"))
    assert peer.read_chunk() == b"after"
    assert peer.read_chunk() == b""


@pytest.mark.parametrize(
    "part",
    [b"GET / HTTP/1.1\r\nHost: a\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345", b"GE"],
    ids=["in the head", "in the body", "in the method"],
)
def test_a_request_that_ends_early_is_refused(peer: Peer, part: bytes) -> None:
    peer.send(part)
    peer.end_sending()
    assert peer.read_response().status == 400
    assert peer.read_until_closed() == b""


@pytest.mark.parametrize("ending", ["close", "abort"])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTT",
        build_request("GET", "/"),
        build_request("GET", "/large"),
        build_request("GET", "/stream"),
        build_request("POST", "/", headers={"Content-Length": "100"}) + b"half",
    ],
    ids=["nothing", "part of a line", "request", "large", "stream", "part of a body"],
)
def test_a_client_that_leaves_early_is_no_trouble(site: Running, sent: bytes, ending: str) -> None:
    log = len(site.stderr)
    for _ in range(10):
        peer = Peer.connect(site.host, site.port)
        peer.send(sent)
        getattr(peer, ending)()
    assert exchange(site.host, site.port, build_request("GET", "/")).status == 200
    assert "Traceback" not in site.stderr[log:]


# Responses of the server itself


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /<marker> HTTP/1.1\r\n\r\n",
        b"<marker> / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET <marker> HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / <marker>\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: <marker>\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n<marker>: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \0<marker>\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nExpect: <marker>\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: marker\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: <marker>\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n<marker>\r\n",
        b"GET /" + b"<marker>" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"<marker>" * 2000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n<marker>: a\r\n\r\n",
    ],
)
def test_an_error_page_never_repeats_what_the_client_sent(peer: Peer, request_: bytes) -> None:
    peer.send(request_)
    response = peer.read_response()
    assert 400 <= response.status < 600
    assert response.complete
    assert response.framing == "length"
    assert "marker" not in repr(response)
    assert response.header("Content-Type") == "text/plain; charset=utf-8"
    assert response.header("Connection") == "close"
    assert response.body, "the body names the error"
    assert peer.read_until_closed() == b""


def test_date_and_server(peer: Peer) -> None:
    for request in (build_request("GET", "/"), b"BAD\r\n\r\n"):
        peer.send(request)
        response = peer.read_response()
        assert response.header("Server") == "kirsch"
        date = response.header("Date")
        assert date is not None
        told = email.utils.parsedate_to_datetime(date)
        assert date == email.utils.format_datetime(told, usegmt=True)
        assert abs((told - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 5


def test_the_date_goes_on(site: Running, peer: Peer) -> None:
    dates = set()

    def two_dates() -> bool:
        peer.send(build_request("GET", "/"))
        dates.add(peer.read_response().header("Date"))
        return len(dates) >= 2

    wait_until(two_dates, "the Date changes")


@pytest.mark.parametrize(("value", "told"), [("", None), ("some/1.0 (thing)", "some/1.0 (thing)")])
def test_the_server_field_can_be_chosen(
    serve: Serve, write_app: Callable[[str], str], value: str, told: str | None
) -> None:
    site = serve(write_app(APP), "--server-header", value)
    for request in (build_request("GET", "/"), b"BAD\r\n\r\n"):
        response = exchange(site.host, site.port, request)
        assert response.header("Server") == told
        assert response.header("Date")


@pytest.mark.slow
def test_many_connections_at_a_time_get_their_own_answers(site: Running) -> None:
    failures: list[str] = []

    def client(name: int) -> None:
        try:
            with Peer.connect(site.host, site.port) as peer:
                for number in range(40):
                    body = f"{name}-{number}-".encode() * (1 + number * 20)
                    peer.send(build_request("POST", f"/{name}/{number}", body=body))
                    if answer(peer.read_response())[1:3] != [f"/{name}/{number}", body.decode()]:
                        failures.append(f"{name}/{number}")
        except Exception as error:  # noqa: BLE001 - any of them fails the test, which a thread cannot do by itself
            failures.append(repr(error))

    threads = [threading.Thread(target=client, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
