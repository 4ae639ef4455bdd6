"""WebSockets of WSGI applications, by the client library ``websockets`` and by frames on raw sockets."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from proc import raise_descriptor_limit, rss, wait_until
from raw import Peer, build_request
from test_websocket import HANDSHAKE, closed, connect, frame, read_frame, serve_app, upgraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

APP = "websocket_wsgi_app:app"
DRIVERS = [("--threads", "4"), ("--threads", "1"), ("--driver", "gevent")]


def serve_wsgi(serve: Serve, *args: str, **env: str) -> Running:
    return serve_app(serve, *args, app=APP, **env)


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
def test_call_takes_messages_and_a_handler_does(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_wsgi(serve, *driver, "--access-logfile", "-")
    for path, first in (("/echoes", None), ("/handles?ann", None), ("/handles-inside", "first")):
        with connect(site, path) as client:
            if first:
                assert client.recv(timeout=20) == first
            for message in ("", "héllo", "x" * 125, "y" * 200_000, b"", b"\x00\xff", bytes(70_000)):
                client.send(message)
                assert client.recv(timeout=20) == message
            client.close(4001, "enough")
    site.wait_for("closed 4001 'enough'")
    site.wait_for("^open ann$")
    site.wait_for("close ann 4001 4001 'enough'")
    site.wait_for_output(r'"GET /echoes HTTP/1.1" 101 270133')
    site.wait_for_output(r'"GET /handles\?ann HTTP/1.1" 101 270133')
    assert site.page() == "hello"
    assert "ignored" not in site.stderr


def test_application_accepts_with_subprotocol_and_headers(serve: Serve) -> None:
    site = serve_wsgi(serve)
    with connect(site, "/accepts", subprotocols=[Subprotocol("one"), Subprotocol("two")]) as client:
        assert client.subprotocol == "two"
        assert client.response is not None
        assert client.response.headers.get_all("x-one") == ["1", "2"]
        assert json.loads(client.recv(timeout=20)) == [["one", "two"], "two", False, None]
        assert closed(client) == (3000, "that is all")
    site.wait_for("then True 3000 'that is all'")
    with connect(site, "/handles") as client:
        assert client.response is not None
        assert client.response.headers["x-handler"] == "yes"
    site.wait_for("close  1000 1000 ''")
    assert "Traceback" not in site.stderr


def test_request_that_asks_and_is_answered_is_an_ordinary_request(serve: Serve) -> None:
    site = serve_wsgi(serve)
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        for path, body in (("/", b"hello, you who ask"), ("/yields-a-response", b"one two")):
            for _ in range(2):
                peer.send(build_request("GET", path, headers=HANDSHAKE))
                response = peer.read_response("GET")
                assert (response.status, response.body) == (200, body)
        peer.send(build_request("GET", "/"))
        assert peer.read_response("GET").body == b"hello"
        # The same connection can still become one, with frames right behind the handshake.
        peer.send(build_request("GET", "/echoes", headers=HANDSHAKE) + frame(1, b"early") + frame(1, b"late")[:3])
        assert peer.read_head().status == 101
        assert read_frame(peer) == (0x81, b"early")
        peer.send(frame(1, b"late")[3:])
        assert read_frame(peer) == (0x81, b"late")


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
def test_connection_ends_with_a_handshake_that_breaks_a_rule(serve: Serve, driver: tuple[str, str]) -> None:
    """The application is asked as always. A proxy that takes any answer for 101 would pass on requests as frames."""
    site = serve_wsgi(serve, *driver)
    for broken in ({"Sec-WebSocket-Version": "8"}, {"Sec-WebSocket-Key": "short"}):
        for path, status in (("/", 200), ("/handles", 400)):
            with Peer.connect(site.host, site.port, timeout=20) as peer:
                smuggled = build_request("GET", "/smuggled")
                peer.send(build_request("GET", path, headers=HANDSHAKE | broken) + smuggled)
                answer = peer.read_response("GET")
                assert (answer.status, answer.header("connection")) == (status, "close")
                assert answer.header("sec-websocket-version") == ("13" if status == 400 else None)
                assert peer.read_until_closed() == b"", "nothing behind it is read as a request"
    # A request that asks for no WebSocket is an ordinary one, whatever other fields of a handshake it has.
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        for ordinary in ({"Upgrade": "h2c"}, {"Connection": "keep-alive"}) * 2:
            peer.send(build_request("GET", "/", headers=HANDSHAKE | ordinary))
            assert peer.read_response("GET").body == b"hello"


def test_what_the_application_returns_or_raises_ends_the_websocket(serve: Serve) -> None:
    site = serve_wsgi(serve)
    with pytest.raises(InvalidStatus) as refused:
        connect(site, "/raises-early")
    assert refused.value.response.status_code == 500
    site.wait_for("ValueError: raised before accepting")
    with connect(site, "/raises") as client:
        assert closed(client) == (1011, "")
    site.wait_for("ValueError: raised after accepting")
    with connect(site, "/answers-after") as client:
        assert client.recv(timeout=20) == "accepted"
        assert closed(client) == (1000, "")
    site.wait_for(r"the response of the application on GET /answers-after is ignored")
    with connect(site, "/fails-after") as client:
        assert client.recv(timeout=20) == "accepted"
        assert closed(client) == (1011, "")
    site.wait_for(r"the application answered 500 on GET /fails-after after it had accepted the WebSocket")
    with connect(site, "/yields") as client:
        client.send("echo")
        assert client.recv(timeout=20) == "echo"
        assert client.recv(timeout=20) == "behind what it has yielded"
        assert closed(client) == (1000, "")
    site.wait_for(r"the response of the application on GET /yields is ignored")
    # A client that leaves without a word is no error of the application.
    with upgraded(site) as peer:
        peer.send(frame(1, b"x"))
        assert read_frame(peer) == (0x81, b"x")
        peer.abort()
    site.wait_for("closed 1006 ''")
    assert site.page() == "hello"


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
def test_no_http_follows_when_a_response_accepts_late(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_wsgi(serve, *driver)
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        fields = HANDSHAKE | {"Sec-WebSocket-Protocol": "one"}
        peer.send(build_request("GET", "/accepts-while-read", headers=fields))
        assert peer.read_head().status == 101
        assert read_frame(peer) == (0x88, b"\x03\xf3")
        peer.send(frame(8, b"\x03\xf3"))
        assert peer.read_until_closed() == b""
    site.wait_for(
        "the application accepted the WebSocket on GET /accepts-while-read while a part of its response was read"
    )
    assert site.page() == "hello"


def test_misuse_raises_and_the_websocket_goes_on(serve: Serve) -> None:
    site = serve_wsgi(serve)
    with connect(site, "/misuses", subprotocols=[Subprotocol("one")]) as client:
        found = json.loads(client.recv(timeout=20))
        client.send("still here")
        assert client.recv(timeout=20) == "still here"
    assert {name: kind for name, (kind, _) in found.items()} == {
        "not offered": "ValueError",
        "subprotocol bytes": "TypeError",
        "header bytes": "TypeError",
        "header dict": "TypeError",
        "header CR": "ValueError",
        "header reserved": "ValueError",
        "group of ints": "TypeError",
        "send int": "TypeError",
        "send None": "TypeError",
        "send surrogate": "ValueError",
        "timeout": "ValueError",
        "code 1006": "ValueError",
        "code text": "TypeError",
        "reason bytes": "TypeError",
        "reason long": "ValueError",
        "accept again": "RuntimeError",
        "no handler": "TypeError",
        "class as handler": "TypeError",
    }
    assert found["send int"][1] == "a message must be str (text) or bytes (binary), not int: 1"
    assert found["not offered"][1].endswith("""'three'; the client offers ["one"]""".replace("'", '"'))


@pytest.mark.parametrize("driver", DRIVERS, ids=" ".join)
def test_receive_and_send_wait_as_long_as_they_are_told(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_wsgi(serve, *driver)
    with connect(site, "/times-out") as client:
        assert client.recv(timeout=20) == "no message has come in 0 s"
        assert client.recv(timeout=20) == "no message has come in 0.05 s"
        client.send("here it is")
        assert client.recv(timeout=20) == "here it is"
        assert closed(client) == (1000, "")
    with upgraded(site, "/floods") as peer:
        site.wait_for(r"queue full: the client has more than 64 KiB still to read, and the message was not sent")
        site.wait_for("still full")
        while (got := read_frame(peer)[1]) != b"last":
            assert got == b"x" * 10_000
        site.wait_for("sent [0-9]+")
        assert read_frame(peer) == (0x88, b"\x03\xe8")
        # The server waits for the client's answer.
        peer.send(frame(8, b"\x03\xe8"))
        assert peer.read_until_closed() == b""


def test_call_that_waits_for_messages_keeps_no_other_request_waiting(serve: Serve) -> None:
    site = serve_wsgi(serve, "--threads", "2")
    with connect(site, "/echoes") as client:
        client.send("one")
        assert client.recv(timeout=20) == "one"
        for _ in range(5):
            assert site.page() == "hello"
        client.send("two")
        assert client.recv(timeout=20) == "two"
        with connect(site, "/handles") as other:
            other.send("three")
            assert other.recv(timeout=20) == "three"
    with connect(site, "/from-threads") as client:
        assert client.recv(timeout=20) == "from a thread"
        client.send("me")
        assert client.recv(timeout=20) == "heard me"


def test_idle_handlers_hold_no_thread(serve: Serve) -> None:
    site = serve_wsgi(serve, "--threads", "2")
    before = int(site.page("/threads"))
    with contextlib.ExitStack() as open_ones:
        peers = [open_ones.enter_context(upgraded(site, "/handles")) for _ in range(100)]
        # The server's own threads are a few; those of calls are two and one in reserve.
        assert int(site.page("/threads")) <= before + 3
        for number, peer in enumerate(peers):
            peer.send(frame(1, f"{number} one".encode()) + frame(1, b"two"))
        for number, peer in enumerate(peers):
            assert read_frame(peer) == (0x81, f"{number} one".encode())
            assert read_frame(peer) == (0x81, b"two")
        assert site.page() == "hello"


@pytest.mark.parametrize("driver", [("--threads", "4"), ("--driver", "gevent")], ids=" ".join)
def test_handler_that_raises_closes_with_1011_and_the_worker_lives(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_wsgi(serve, *driver)
    pid = site.worker_pids()
    with connect(site, "/handles?bob") as client:
        client.send("one")
        assert client.recv(timeout=20) == "one"
        client.send("receive")
        assert "go to its handler" in str(client.recv(timeout=20))
        client.send("from a thread")
        assert client.recv(timeout=20) == "sent by a thread"
        client.send("raise")
        client.send("is not handled any more")
        assert closed(client) == (1011, "")
    site.wait_for("ValueError: raised in message")
    site.wait_for("close bob 1011 1011 ''")
    for message, code in (("close", 4001), ("closed by a thread", 4002)):
        with connect(site, f"/handles?{code}") as client:
            client.send(message)
            assert closed(client)[0] == code
        site.wait_for(f"close {code} {code} {code}")
    with connect(site, "/handles-badly") as client:
        assert closed(client) == (1011, "")
    site.wait_for("ValueError: raised in open")
    site.wait_for("opened and closed with 1011")
    site.wait_for("ValueError: raised in close")
    with connect(site, "/handles-nothing") as client:
        client.send("nobody takes this")
    site.wait_for("nothing was closed with 1000")
    with upgraded(site, "/handles?gone") as peer:
        peer.abort()
    site.wait_for("close gone 1006 1006 ''")
    assert site.worker_pids() == pid
    assert site.page() == "hello"


def test_message_that_misses_its_deadline_closes_with_1011(serve: Serve) -> None:
    site = serve_wsgi(serve, "--threads", "2", "--timeout", "1.5s", "--slow-request", "0.3s")
    with connect(site, "/handles?cat") as client:
        # Neither waiting for a message nor a call that takes them is late.
        client.send("one")
        assert client.recv(timeout=20) == "one"
        with connect(site, "/echoes") as other:
            client.send("sleep")
            assert closed(client) == (1011, "the application did not answer in time")
            other.send("not late")
            assert other.recv(timeout=20) == "not late"
    site.wait_for(r"GET /handles \(id [0-9]+\) takes longer than 0.3 s: running.*\n(.*\n)*?.*in act")
    site.wait_for(r"GET /handles \(id [0-9]+\) has passed its deadline of 1.5 s")
    site.wait_for("a message of GET /handles.cat was ended by kirsch.RequestTimeout")
    site.wait_for("close cat 1011")
    assert "GET /echoes (id" not in site.stderr
    assert site.page() == "hello"


def test_generator_replies_and_is_told_of_the_end(serve: Serve) -> None:
    site = serve_wsgi(serve)
    with connect(site, "/counts") as one, connect(site, "/counts") as other:
        for client, letter in ((one, "a"), (other, "bb")):
            assert client.recv(timeout=20) == "ready"
            client.send(letter)
            assert client.recv(timeout=20) == str(len(letter))
        one.send("quiet")
        one.send("abc")
        assert one.recv(timeout=20) == "9"
        one.send("enough")
        assert one.recv(timeout=20) == "good-bye"
        assert closed(one) == (1000, "")
        other.close(4004, "bored")
    site.wait_for(re.escape("generator closed: the WebSocket is closed: 4004 bored (4004)"))
    assert "Traceback" not in site.stderr


def test_group_sends_to_all_that_read_and_forgets_those_that_left(serve: Serve) -> None:
    site = serve_wsgi(serve, "--threads", "4")
    with contextlib.ExitStack() as open_ones:
        clients = [open_ones.enter_context(connect(site, "/joins")) for _ in range(10)]
        for client in clients:
            assert str(client.recv(timeout=20)).startswith("welcome ")
        text = "news " * 100
        clients[0].send(text)
        assert [client.recv(timeout=20) for client in clients] == [text] * 10
        for client in clients[5:]:
            client.close()
        wait_until(lambda: site.page("/members") == "5", "those that left are forgotten")
        lazy = open_ones.enter_context(upgraded(site, "/joins"))
        assert read_frame(lazy)[1].startswith(b"welcome ")
        chunk = "x" * 50_000
        seen = 0
        while "1 of 6 are full" not in site.stderr:
            clients[0].send(chunk)
            assert [client.recv(timeout=20) for client in clients[:5]] == [chunk] * 5
            seen += 1
            assert seen < 1000
        assert site.page() == "hello"


@pytest.mark.parametrize("driver", [("--threads", "4"), ("--driver", "gevent")], ids=" ".join)
def test_reload_closes_with_1012_and_stop_with_1001(serve: Serve, driver: tuple[str, str]) -> None:
    site = serve_wsgi(serve, *driver)
    before = site.worker_pids()
    with connect(site, "/echoes") as call, connect(site, "/handles?dan") as handled:
        site.send(signal.SIGHUP)
        assert closed(call) == (1012, "")
        assert closed(handled) == (1012, "")
    site.wait_for("close dan 1012 1012 ''")
    site.wait_for("closed 1012 ''")
    site.wait_for_workers(1, without=before)
    with connect(site, "/echoes") as call, connect(site, "/handles?eve") as handled:
        site.send(signal.SIGTERM)
        assert closed(call) == (1001, "")
        assert closed(handled) == (1001, "")
    assert site.process.wait(20) == 0
    site.wait_for("close eve 1001 1001")


@pytest.mark.slow
@pytest.mark.parametrize("driver", [("--threads", "4"), ("--driver", "gevent")], ids=" ".join)
def test_ten_thousand_idle_peers_hold_no_thread_and_little_memory(serve: Serve, driver: tuple[str, str]) -> None:
    count = 10_000
    if not raise_descriptor_limit(count + 200):
        pytest.skip(f"the hard limit on open files is below {count + 200}")
    site = serve_wsgi(serve, *driver, "--ws-ping-interval", "0")
    pid = site.server_pid
    for _ in range(20):
        site.page()
    threads, before = int(site.page("/threads")), rss(pid)
    peers: list[socket.socket] = []
    try:
        handshake = build_request("GET", "/handles", headers=HANDSHAKE)
        for _ in range(count):
            peers.append(socket.create_connection((site.host, site.port), timeout=60))
            peers[-1].sendall(handshake)
        for peer in peers:
            # The whole answer, which has no body, before anything else is sent.
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += peer.recv(65_536)
        each = (rss(pid) - before) / count
        print(f"{each:.0f} bytes each")
        assert each < 6_000
        assert int(site.page("/threads")) <= threads + 4
        for peer in peers[::97]:
            peer.sendall(frame(1, b"are you there?"))
        for peer in peers[::97]:
            assert peer.recv(100) == b"\x81\x0eare you there?"
        assert site.page() == "hello"
    finally:
        for peer in peers:
            peer.close()
    wait_until(lambda: site.stderr.count("close  1006") == count, "all are told of the end", timeout=60)


EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$",
    (Path(__file__).parent.parent / "docs" / "websocket.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)


# The last two are Flask's and Django's.
@pytest.mark.parametrize("number", [0, 1, 2, *(pytest.param(each, marks=pytest.mark.slow) for each in (3, 4))])
def test_example_of_the_documentation_works(serve: Serve, write_app: Callable[[str], str], number: int) -> None:
    assert len(EXAMPLES) == 5
    site = serve(f"{write_app(EXAMPLES[number])}:app")
    with connect(site, "/echo") as client:
        if "tally" in EXAMPLES[number]:
            assert client.recv(timeout=20) == "send me numbers"
            client.send("20")
            client.send("22")
            assert [client.recv(timeout=20) for _ in range(2)] == ["20", "42"]
        else:
            client.send("hello")
            assert client.recv(timeout=20) == "hello"


def test_room_passes_messages_on(serve: Serve) -> None:
    site = serve("room:app", cwd=Path(__file__).parent.parent / "examples")
    assert "<title>Room</title>" in site.page()
    with connect(site, "/") as one, connect(site, "/") as other:
        # A client that receives its own message is in the room. The handshake comes before that.
        for client, text in ((one, "one"), (other, "other"), (one, "hello, room")):
            client.send(text)
            while client.recv(timeout=20) != text:
                pass
        while other.recv(timeout=20) != "hello, room":
            pass
