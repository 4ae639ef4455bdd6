"""PEP 3333 from the client's side: what reaches the wire of ``start_response``, ``write``, iterables, lengths and
exceptions.

The application is ``wsgi_app.py``; ``probe`` in a name marks what other servers are known to get wrong.
"""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import quote_plus

import pytest

import wsgi_app
from interpreter import FREES_AT_ONCE
from proc import rss, settled
from raw import Peer, build_request
from wsgi_site import MIB, assert_closed_once, connect, count, get, served

if TYPE_CHECKING:
    from running import Running


site = pytest.fixture(scope="module")(served)


# start_response and write


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize(
    ("target", "body", "framing"),
    [
        ("/write_then_iterable", b"one two three four", "chunked"),
        ("/write_then_one_item", b"one two", "chunked"),
        ("/write_only", b"only 1", "length"),
        ("/write_in_iterable", b"one two three four", "chunked"),
    ],
)
def test_probe_write(site: Running, version: str, target: str, body: bytes, framing: str) -> None:
    response = get(site, target, version=version)
    assert response.status == 200
    assert (response.body, response.complete) == (body, True)
    assert response.framing == ("close" if (version, framing) == ("HTTP/1.0", "chunked") else framing)


def test_write_waits_for_a_slow_client_without_piling_up(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/write_large?write_large"))
        body = peer.read_response().body
        assert body == b"".join(bytes([number]) * 65536 for number in range(64))
    assert count(site, "produced", "write_large") == 64


def test_write_takes_bytes_only(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/write_str").status == 500
    site.wait_for(r"TypeError: write takes bytes \(PEP 3333\), not str: 'text'", after=log)


def test_write_of_too_much_raises_and_sends_nothing_of_it(site: Running) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("GET", "/write_too_much") + build_request("GET", "/hello"))
        assert peer.read_response().body == b"abc"
        assert peer.read_response().body == b"Hello"
    site.wait_for("^write raised ValueError$", after=log)
    site.wait_for("longer than its Content-Length .*, on GET /write_too_much", after=log)


def test_callables_of_an_earlier_request_do_not_reach_this_one(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/keep_callables") + build_request("GET", "/use_kept_callables"))
        assert peer.read_response().body == b"kept"
        response = peer.read_response()
        assert json.loads(response.body) == ["RuntimeError", "RuntimeError"]
        assert response.header("X-Stray") is None


def test_start_response_takes_keywords(site: Running) -> None:
    response = get(site, "/keywords")
    assert (response.status, response.reason, response.body) == (201, "Made", b"made")


def test_exc_info_before_the_first_byte_replaces_the_response(site: Running) -> None:
    response = get(site, "/error_page")
    assert (response.status, response.reason, response.body) == (503, "Come Back", b"sorry")
    assert response.header("X-First") is None
    assert (response.header("X-Second"), response.header("Content-Length")) == ("2", "5")


def test_exc_info_after_the_first_byte_raises_the_exception_again(site: Running) -> None:
    log = len(site.stderr)
    response = get(site, "/error_page_too_late?error_page_too_late")
    assert (response.status, response.body, response.complete) == (200, b"one block", False)
    site.wait_for("^raised again: True$", after=log)
    site.wait_for("^LookupError: after the first byte$", after=log)
    assert_closed_once(site, "error_page_too_late")


def test_a_second_call_without_exc_info_is_refused(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/started_twice").status == 500
    site.wait_for("^AssertionError: start_response was called again without exc_info", after=log)
    response = get(site, "/started_twice_caught")
    assert (response.status, response.body) == (200, b"the first one counts")


@pytest.mark.parametrize("target", ["/never_started", "/never_started_generator", "/never_started_empty"])
def test_start_response_that_is_never_called_is_a_500(site: Running, target: str) -> None:
    log = len(site.stderr)
    response = get(site, f"{target}?{target}")
    assert (response.status, response.complete) == (500, True)
    assert b"never" not in response.body
    site.wait_for("start_response was not called before the first block", after=log)
    if target != "/never_started":
        assert_closed_once(site, target)


def test_start_response_may_be_called_late(site: Running) -> None:
    """A class as the application, whose __iter__ starts the response; its first block leaves before the second is
    made."""
    with connect(site) as peer:
        peer.send(build_request("GET", "/late?gate-1.1"))
        head = peer.read_head()
        assert (head.status, head.header("X-Late")) == (200, "yes")
        assert head.header("Transfer-Encoding") == "chunked"
        assert peer.read_chunk() == b"Hello "
        get(site, "/open_gate?gate-1.1")
        assert peer.read_chunk() == b"World"
        assert peer.read_chunk() == b""
    with connect(site) as peer:
        peer.send(build_request("GET", "/late?gate-1.0", version="HTTP/1.0"))
        assert peer.read_head().header("Connection") == "close"
        assert peer.read_until(b"Hello ") == b"Hello "
        get(site, "/open_gate?gate-1.0")
        assert peer.read_until_closed() == b"World"
        assert not peer.reset


@pytest.mark.parametrize("name", wsgi_app.REFUSED)
def test_what_no_response_may_say_is_refused(site: Running, name: str) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("GET", f"/refused?{quote_plus(name)}", headers={"Connection": "close"}))
        wire = peer.read_until_closed()
    assert wire.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert b"X-A" not in wire
    assert b"Injected" not in wire
    assert b"never" not in wire
    message = site.wait_for(r"^(?:Type|Value)Error: (.*)$", after=log)[1]
    assert wsgi_app.REFUSED[name][2] in message
    site.wait_for("GET /refused", after=log)


@pytest.mark.parametrize("name", wsgi_app.REFUSED_ARGUMENTS)
def test_wrong_arguments_are_refused(site: Running, name: str) -> None:
    log = len(site.stderr)
    assert get(site, f"/refused_arguments?{quote_plus(name)}").status == 500
    site.wait_for("^TypeError: start_response (takes|needs)", after=log)


def test_a_refused_response_leaves_nothing_behind(site: Running) -> None:
    response = get(site, "/refused_then_mended")
    assert (response.status, response.body) == (202, b"mended")
    assert response.header("X-Left") is None
    assert response.header("Content-Length") == "6"


def ask_for(status: str, fields: list[tuple[str, str]]) -> bytes:
    return build_request("POST", "/headers", body=json.dumps([status, fields]).encode())


@pytest.mark.parametrize(
    "status", ["299 Custom Reason", "200 OK", "404 Nicht gef\xfcnden", "200 ", "999 Last", "600 \t tabs", "418 I'm"]
)
def test_probe_reason_phrases_are_kept(site: Running, status: str) -> None:
    with connect(site) as peer:
        peer.send(ask_for(status, []))
        line = peer.read_until(b"\r\n")
    assert line == f"HTTP/1.1 {status}\r\n".encode("latin-1")


def test_fields_reach_the_client_as_they_are(site: Running) -> None:
    fields = [
        ("Set-Cookie", "a=1"),
        ("X-Latin", "caf\xe9"),
        ("set-cookie", "b=2; Path=/"),
        ("X-Empty", ""),
        ("X-Tab", "a\tb"),
        ("!#$%&'*+-.^_`|~09AZaz", "token"),
        ("Server", "mine"),
        ("Date", "Fri, 20 Nov 2026 00:00:00 GMT"),
    ]
    with connect(site) as peer:
        peer.send(ask_for("200 OK", fields))
        response = peer.read_response()
    assert list(response.headers[: len(fields)]) == fields
    assert response.all("Server") == ["mine"]
    assert len(response.all("Date")) == 1


@pytest.mark.parametrize("value", ["close", "Close", "keep-alive, close"])
def test_a_wish_to_close_is_honoured(site: Running, value: str) -> None:
    with connect(site) as peer:
        peer.send(ask_for("200 OK", [("Connection", value)]) + build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.header("Connection"), response.body) == ("close", b"body")
        assert peer.read_until_closed() == b""


def test_a_wish_to_keep_alive_changes_nothing(site: Running) -> None:
    with connect(site) as peer:
        for _ in range(2):
            peer.send(ask_for("200 OK", [("Connection", "keep-alive")]))
            assert peer.read_response().header("Connection") is None
    with connect(site) as peer:
        request = build_request("GET", "/hello", version="HTTP/1.0")
        peer.send(request)
        assert peer.read_response().header("Connection") == "close"
        assert peer.read_until_closed() == b""


# Iterables and their ends


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("name", wsgi_app.ITERABLES)
def test_any_iterable_is_a_body(site: Running, version: str, name: str) -> None:
    framing = wsgi_app.ITERABLES[name][1]
    response = get(site, f"/iterable?{quote_plus(name)}", version=version)
    assert (response.status, response.body, response.complete) == (200, b"one two", True)
    assert response.framing == ("close" if (version, framing) == ("HTTP/1.0", "chunked") else framing)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("target", ["/empty_list", "/one_empty_block"])
def test_an_empty_body_has_length_0(site: Running, version: str, target: str) -> None:
    response = get(site, target, version=version)
    assert (response.framing, response.header("Content-Length")) == ("length", "0")


@pytest.mark.parametrize("name", wsgi_app.NOT_ITERABLE)
def test_what_is_no_body_is_a_500(site: Running, name: str) -> None:
    log = len(site.stderr)
    response = get(site, f"/not_iterable?{quote_plus(name)}")
    assert (response.status, response.complete) == (500, True)
    site.wait_for(f"^TypeError: .*{wsgi_app.NOT_ITERABLE[name][1]}", after=log)


def test_a_wrong_block_later_cuts_the_response(site: Running) -> None:
    log = len(site.stderr)
    response = get(site, "/wrong_block_later?wrong_block_later")
    assert (response.status, response.body, response.complete) == (200, b"right", False)
    site.wait_for("^TypeError: .*bytes.*not str", after=log)
    assert_closed_once(site, "wrong_block_later")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("/blocks", 200, b"one two three"),
        ("/no_content", 204, b""),
        ("/not_modified", 304, b""),
        ("/write_then_iterable", 200, b"one two three four"),
        ("/declared", 200, b"one two"),
    ],
)
def test_close_is_called_once(site: Running, version: str, method: str, target: str, status: int, body: bytes) -> None:
    name = f"{target}-{method}-{version}"
    response = get(site, f"{target}?{name}", method=method, version=version)
    assert response.status == status
    assert response.complete
    assert response.body == (b"" if method == "HEAD" else body)
    assert_closed_once(site, name)


def test_close_is_called_once_after_endless_blocks_for_head(site: Running) -> None:
    response = get(site, "/endless?endless-head", method="HEAD")
    assert (response.status, response.body) == (200, b"")
    assert_closed_once(site, "endless-head")


@pytest.mark.parametrize("farewell", ["close", "abort"])
@pytest.mark.parametrize("target", ["/endless", "/until_the_client_goes"])
def test_close_is_called_once_when_the_client_goes(site: Running, farewell: str, target: str) -> None:
    name = f"{target}-{farewell}"
    peer = connect(site)
    peer.send(build_request("GET", f"{target}?{name}"))
    assert peer.read_head().status == 200
    assert peer.read_chunk()
    getattr(peer, farewell)()
    assert_closed_once(site, name)
    asked = count(site, "produced", name)
    assert count(site, "produced", name) == asked, "and no further block is made"


def test_an_exception_in_close_is_logged_and_the_response_whole(site: Running) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("GET", "/close_raises?close_raises") + build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.body, response.complete) == (b"one two", True)
        assert peer.read_response().body == b"Hello"
    site.wait_for(r"^LookupError: in close\(\)$", after=log)
    assert_closed_once(site, "close_raises")


def test_an_exception_in_iter_is_a_500(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/iter_raises?iter_raises").status == 500
    site.wait_for(r"^LookupError: in __iter__\(\)$", after=log)
    assert_closed_once(site, "iter_raises")


def test_blocks_are_asked_for_as_fast_as_the_client_reads(site: Running) -> None:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.connect((site.host, site.port))
    before = rss(site.server_pid)
    with Peer(sock, timeout=20) as peer:
        peer.send(build_request("GET", "/thousand_blocks?thousand_blocks"))
        assert peer.read_head().status == 200
        stalled = settled(lambda: count(site, "produced", "thousand_blocks"), tolerance=0)
        grown = rss(site.server_pid) - before
        print(f"{stalled} blocks of 64 KiB for a client that does not read; {grown} bytes more in the server")
        # The kernel's buffers hold some MiB; what is beyond them is one block.
        assert stalled < 200
        assert grown < (2 if FREES_AT_ONCE else 32) * MIB
        for number in range(1000):
            block = bytearray()
            while len(block) < 65536:
                chunk = peer.read_chunk()
                assert chunk
                block += chunk
            assert block == bytes([number % 251]) * 65536
        assert peer.read_chunk() == b""
    assert_closed_once(site, "thousand_blocks")


# Lengths and exceptions


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("/too_long", r"longer than its Content-Length \(declared: 5 bytes; produced: at least 8\)"),
        ("/too_short", r"shorter than its Content-Length \(declared: 50 bytes; produced: 5\)"),
        ("/too_short_empty", r"shorter than its Content-Length \(declared: 50 bytes; produced: 0\)"),
    ],
)
def test_body_of_another_length_than_declared_is_a_500_when_nothing_was_sent(
    site: Running, version: str, target: str, what: str
) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        fields = {"Connection": "keep-alive"}
        peer.send(build_request("GET", f"{target}?{version}", version=version, headers=fields))
        peer.send(build_request("GET", "/hello", version=version))
        response = peer.read_response()
        assert (response.status, response.complete) == (500, True)
        assert b"12345" not in response.body
        # The request was read as a whole, so the connection goes on.
        assert peer.read_response().body == b"Hello"
    site.wait_for(f"{what}, on GET {target}\\?{version}; 500 was sent", after=log)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize(
    ("target", "body", "what"),
    [
        ("/too_long_in_blocks", b"123", r"longer than its Content-Length \(declared: 5 bytes; produced: at least 8\)"),
        ("/too_short_in_blocks", b"12345", r"shorter than its Content-Length \(declared: 50 bytes; produced: 5\)"),
    ],
)
def test_probe_a_body_of_another_length_than_declared_is_cut_when_a_part_was_sent(
    site: Running, version: str, target: str, body: bytes, what: str
) -> None:
    log = len(site.stderr)
    name = f"{target}-{version}"
    with connect(site) as peer:
        fields = {"Connection": "keep-alive"}
        peer.send(build_request("GET", f"{target}?{name}", version=version, headers=fields))
        peer.send(build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.body, response.complete) == (body, False)
    site.wait_for(f"{what}, on GET {target}\\?{name}; the connection is cut", after=log)
    assert_closed_once(site, name)


def test_connection_is_reset_when_more_follows_a_body_of_the_declared_length(site: Running) -> None:
    """The client has all that was declared, and can see by nothing else that there was more."""
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("GET", "/too_long_behind_its_end?name") + build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.status, response.body, response.complete) == (200, b"12345", True)
        with pytest.raises(ConnectionResetError):
            peer.sock.recv(1)
    what = r"longer than its Content-Length \(declared: 5 bytes; produced: at least 6\)"
    site.wait_for(f"{what}, on GET /too_long_behind_its_end.*; the connection is cut", after=log)
    assert_closed_once(site, "name")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_connection_goes_on_after_an_exception_before_the_first_byte(site: Running, version: str) -> None:
    with connect(site) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/raises", version=version, headers={"Connection": "keep-alive"}))
            response = peer.read_response()
            assert (response.status, response.complete) == (500, True)
            assert response.header("Connection") in (None, "keep-alive")
        peer.send(build_request("POST", "/raises", body=b"read whole", headers={"Connection": "close"}))
        assert peer.read_response().header("Connection") == "close"
        assert peer.read_until_closed() == b""


def test_an_exception_before_the_first_byte_is_a_500(site: Running) -> None:
    log = len(site.stderr)
    for method in ("GET", "POST"):
        response = get(site, "/raises?secret=1", method=method, body=b"" if method == "POST" else None)
        assert (response.status, response.complete) == (500, True)
        assert b"LookupError" not in response.body
        assert b"<b>" not in response.body
        assert b"Traceback" not in response.body
        report = site.wait_for(rf"{method} /raises\?secret=1\nTraceback [^\0]*?^LookupError: (.*)$", after=log)
        assert report[1] == "the app <b>failed</b> at once"
        assert "wsgi_app.py" in report[0]
        log = len(site.stderr)


def test_an_exception_in_the_first_block_is_a_500(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/raises_in_first_block?raises_in_first_block").status == 500
    site.wait_for("^KeyError: 'nothing of this name, in the first block'$", after=log)
    assert_closed_once(site, "raises_in_first_block")


def test_system_exit_ends_the_request_and_not_the_server(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/exits").status == 500
    site.wait_for("^SystemExit: the app wants to leave$", after=log)
    assert get(site, "/hello").body == b"Hello"


def test_probe_an_exception_midway_is_seen_by_the_client(site: Running) -> None:
    log = len(site.stderr)
    with connect(site) as peer:
        peer.send(build_request("GET", "/raises_midway?midway-1.1") + build_request("GET", "/hello"))
        assert peer.read_head().status == 200
        assert peer.read_chunk() == b"one block"
        assert peer.read_until_closed() == b"", "neither a last chunk nor another response"
    report = site.wait_for(
        r"GET /raises_midway\?midway-1\.1\nTraceback [^\0]*?^LookupError: after one block$", after=log
    )
    assert "wsgi_app.py" in report[0]
    assert_closed_once(site, "midway-1.1")


def test_an_exception_midway_resets_where_the_close_would_pass_for_the_end(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/raises_midway?midway-1.0", version="HTTP/1.0"))
        response = peer.read_response()
        assert (response.status, response.framing) == (200, "close")
        assert (response.complete, peer.reset) == (False, True)
    assert_closed_once(site, "midway-1.0")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_an_exception_midway_with_a_length_leaves_it_short(site: Running, version: str) -> None:
    name = f"midway-length-{version}"
    response = get(site, f"/raises_midway_with_length?{name}", version=version)
    assert (response.status, response.body, response.complete) == (200, b"one block", False)
    assert_closed_once(site, name)


def test_the_log_repeats_no_control_characters_of_a_target(site: Running) -> None:
    """A byte from 0x80 to 0x9f is a control character to a terminal, and reaches RAW_URI unescaped."""
    log = len(site.stderr)
    assert get(site, "/raises?\x9b31m\x85\xff").status == 500
    site.wait_for("^LookupError", after=log)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", site.stderr[log:])
