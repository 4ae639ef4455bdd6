"""WebSockets of ASGI applications, by the client library ``websockets`` and by frames on raw sockets."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import struct
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_websocket
from websockets.typing import Subprotocol

from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from pathlib import Path

    from websockets.sync.connection import Connection

    from running import Running, Serve

HERE = os.path.dirname(__file__)

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


def serve_app(serve: Serve, *args: str, app: str = "websocket_app:app", **env: str) -> Running:
    return serve(app, *args, cwd=HERE, env=env)


def connect(site: Running, path: str, **more: Any) -> Connection:
    """A client that sends no pings of its own, and hangs in no test."""
    settings = {"ping_interval": None, "open_timeout": 20, "close_timeout": 20, "proxy": None, **more}
    return connect_websocket(f"ws://{site.host}:{site.port}{path}", **settings)


def upgraded(site: Running, path: str = "/echoes", behind: bytes = b"", **headers: str) -> Peer:
    """A connection that is a WebSocket, for frames that no client library sends."""
    peer = Peer.connect(site.host, site.port, timeout=20)
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    peer.send(build_request("GET", path, headers=HANDSHAKE | more) + behind)
    assert peer.read_head().status == 101
    return peer


def frame(opcode: int, payload: bytes = b"", *, first: int = 0x80, mask: bytes | None = b"\x01\x02\x03\x04") -> bytes:
    length = len(payload)
    start = bytes([first | opcode])
    bit = 0x80 if mask else 0
    if length < 126:
        start += bytes([bit | length])
    elif length < 65_536:
        start += bytes([bit | 126]) + struct.pack("!H", length)
    else:
        start += bytes([bit | 127]) + struct.pack("!Q", length)
    if mask is None:
        return start + payload
    return start + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def read_frame(peer: Peer) -> tuple[int, bytes]:
    start, length = peer.read_exactly(2)
    if length == 126:
        (length,) = struct.unpack("!H", peer.read_exactly(2))
    elif length == 127:
        (length,) = struct.unpack("!Q", peer.read_exactly(8))
    return start, peer.read_exactly(length)


def close_code(peer: Peer) -> int:
    """The code of the Close frame that comes next; the connection ends behind it."""
    start, payload = read_frame(peer)
    assert start == 0x88
    assert peer.read_until_closed() == b""
    return int(struct.unpack("!H", payload[:2])[0])


def closed(client: Connection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as raised:
        client.recv(timeout=20)
    assert raised.value.rcvd is not None
    return raised.value.rcvd.code, raised.value.rcvd.reason


def test_messages_come_back_as_they_were(serve: Serve) -> None:
    site = serve_app(serve)
    with connect(site, "/echoes") as client:
        for message in ("", "héllo", "x" * 125, "y" * 200_000, b"", b"\x00\xff", bytes(70_000)):
            client.send(message)
            assert client.recv(timeout=20) == message
        client.send(part for part in ("frag", "ment", "ed"))
        assert client.recv(timeout=20) == "fragmented"
        client.ping("are you there").wait(20)
        client.close(4001, "enough")
    site.wait_for(r"disconnect 4001 'enough'")


def test_scope_has_what_the_specification_says(serve: Serve) -> None:
    site = serve_app(serve)
    more = {"additional_headers": {"X-Test": "yes"}, "subprotocols": [Subprotocol("one"), Subprotocol("two")]}
    with connect(site, "/scope?a=%20b", **more) as client:
        assert client.subprotocol == "two"
        assert client.response is not None
        assert client.response.headers.get_all("x-one") == ["1", "2"]
        scope = json.loads(client.recv(timeout=20))
        assert closed(client) == (3000, "that is all")
    headers = dict(scope.pop("headers"))
    assert headers["x-test"] == "yes"
    assert scope.pop("client")[0] == site.host
    assert scope == {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": "/scope",
        "root_path": "",
        "query_string": "a=%20b",
        "server": [site.host, site.port],
        "subprotocols": ["one", "two"],
        "extensions": {"websocket.http.response": {}},
    }
    site.wait_for(re.escape('then {"type": "websocket.disconnect", "code": 3000, "reason": "that is all"}'))
    site.wait_for("RuntimeError: websocket.send was sent after the WebSocket was closed or denied")


def test_websocket_that_is_denied_is_an_ordinary_response(serve: Serve) -> None:
    site = serve_app(serve)
    with Peer.connect(site.host, site.port) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/denies", headers=HANDSHAKE))
            response = peer.read_response("GET")
            assert (response.status, response.body) == (403, b"")
        peer.send(build_request("GET", "/responds", headers=HANDSHAKE))
        response = peer.read_response("GET")
        assert (response.status, response.body) == (401, b"who are you?")
        assert response.header("www-authenticate") == "Bearer"
        peer.send(build_request("GET", "/"))
        assert peer.read_response("GET").body == b"hello"
    site.wait_for(re.escape('denied, then {"type": "websocket.disconnect", "code": 1006, "reason": ""}'))


def test_application_that_fails_is_500_before_it_accepts_and_1011_after(serve: Serve) -> None:
    site = serve_app(serve)
    for path in ("/raises-early", "/returns-early"):
        with pytest.raises(InvalidStatus) as refused:
            connect(site, path)
        assert refused.value.response.status_code == 500
    site.wait_for("ValueError: raised before accepting")
    site.wait_for("without answering the WebSocket: send websocket.accept")
    with connect(site, "/raises") as client:
        assert closed(client) == (1011, "")
    site.wait_for("ValueError: raised after accepting")
    with connect(site, "/returns") as client:
        assert client.recv(timeout=20) == "one"
        assert closed(client) == (1000, "")
    assert site.page() == "hello"


def test_wrong_messages_raise_and_the_websocket_goes_on(serve: Serve) -> None:
    site = serve_app(serve)
    with connect(site, "/wrong") as client:
        found = json.loads(client.recv(timeout=20))
    assert {name: kind for name, (kind, _) in found.items()} == {
        "no type": "ValueError",
        "both": "ValueError",
        "neither": "ValueError",
        "None": "ValueError",
        "text is bytes": "TypeError",
        "bytes is str": "TypeError",
        "surrogate": "ValueError",
        "accept twice": "RuntimeError",
        "http": "RuntimeError",
        "denial": "RuntimeError",
        "close code": "ValueError",
        "close text": "TypeError",
        "close reason": "TypeError",
    }
    assert found["close code"][1].startswith("the close code is 1006: it must be one of 1000 to 1003")
    with connect(site, "/wrong-accept") as client:
        kinds = [kind for kind, _ in json.loads(client.recv(timeout=20))]
    assert kinds == ["RuntimeError", "ValueError", "TypeError", "TypeError", "ValueError", "ValueError"]


def test_send_raises_oserror_when_the_client_has_left(serve: Serve) -> None:
    site = serve_app(serve)
    for abort in (False, True):
        before = len(site.stderr)
        peer = upgraded(site, "/left")
        if abort:
            peer.abort()
        else:
            peer.close()
        site.wait_for(r"send raised kirsch\.\S*ClientDisconnected", after=before)
        site.wait_for("close raised nothing", after=before)


def test_cancelled_receive_loses_no_message(serve: Serve) -> None:
    site = serve_app(serve)
    with connect(site, "/cancels") as client:
        for number in range(100):
            client.send(str(number))
        assert json.loads(client.recv(timeout=30)) == [str(number) for number in range(100)]


def test_receive_that_began_before_accepting_gets_the_first_message(serve: Serve) -> None:
    with connect(serve_app(serve), "/receives-early") as client:
        client.send("first")
        assert client.recv(timeout=20) == "first"


def test_many_senders_wait_for_a_client_that_reads_slowly(serve: Serve) -> None:
    site = serve_app(serve)
    with connect(site, "/floods", max_size=None, compression=None) as client:
        found = {client.recv(timeout=30)[:3].rstrip("x") for _ in range(300)}  # type: ignore[arg-type]
        assert found == {str(number) for number in range(300)}
        site.wait_for("all sent")


def test_frames_behind_the_handshake_are_kept(serve: Serve) -> None:
    site = serve_app(serve)
    peer = upgraded(site, behind=frame(1, b"early") + frame(9, b"ping") + frame(1, b"late")[:3])
    with peer:
        assert read_frame(peer) in ((0x81, b"early"), (0x8A, b"ping"))
        assert read_frame(peer) in ((0x81, b"early"), (0x8A, b"ping"))
        peer.send(frame(1, b"late")[3:])
        assert read_frame(peer) == (0x81, b"late")


BROKEN = {
    "unmasked": (frame(1, b"x", mask=None), 1002),
    "reserved bit": (frame(1, b"x", first=0xA0), 1002),
    "compressed where that was not agreed on": (frame(1, b"x", first=0xC0), 1002),
    "unknown opcode": (frame(3), 1002),
    "long control frame": (frame(9, bytes(126)), 1002),
    "fragmented control frame": (frame(9, first=0), 1002),
    "continuation of nothing": (frame(0, b"x"), 1002),
    "message within a message": (frame(1, b"x", first=0) + frame(1, b"y"), 1002),
    "no UTF-8": (frame(1, b"ab\xff"), 1007),
    "no UTF-8 in the middle": (frame(1, b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90", first=0), 1007),
    "UTF-8 cut": (frame(1, b"\xe2\x82"), 1007),
    "close code of no frame": (frame(8, struct.pack("!H", 1005)), 1002),
    "close frame of one byte": (frame(8, b"x"), 1002),
    "close reason without UTF-8": (frame(8, struct.pack("!H", 1000) + b"\xff"), 1007),
    "too long": (frame(2, bytes(1001)), 1009),
    "too long in fragments": (frame(2, bytes(600), first=0) + frame(0, bytes(600)), 1009),
    "length of 2^62": (b"\x82\xff" + struct.pack("!Q", 1 << 62) + bytes(4), 1009),
    "length with its highest bit": (b"\x82\xff" + struct.pack("!Q", 1 << 63) + bytes(4), 1002),
}


def test_broken_frames_close_with_their_codes_and_the_worker_lives(serve: Serve) -> None:
    site = serve_app(serve, "--ws-max-size", "1000")
    pid = site.worker_pids()
    for name, (sent, code) in BROKEN.items():
        with upgraded(site) as peer:
            peer.send(frame(1, b"before"))
            assert read_frame(peer) == (0x81, b"before"), name
            peer.send(sent)
            assert close_code(peer) == code, name
    # A bomb: 100 MiB in a frame of 100 KiB.
    compressor = zlib.compressobj(wbits=-15)
    bomb = compressor.compress(bytes(100 << 20)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    with upgraded(site, Sec_WebSocket_Extensions="permessage-deflate") as peer:
        peer.offer(frame(2, bomb[:-4], first=0xC0))
        assert close_code(peer) == 1009
    assert site.page() == "hello"
    assert site.worker_pids() == pid


def test_handshakes_that_break_a_rule_are_refused(serve: Serve) -> None:
    site = serve_app(serve)
    key = "Sec-WebSocket-Key"
    cases = [
        ({"Sec-WebSocket-Version": "8"}, 426),
        ({key: "short"}, 400),
        ({key: base64.b64encode(bytes(15)).decode()}, 400),
        ({"Connection": "keep-alive"}, 400),
    ]
    for changed, status in cases:
        response = exchange(site.host, site.port, build_request("GET", "/echoes", headers=HANDSHAKE | changed))
        assert response.status == status, changed
        assert response.header("sec-websocket-version") == ("13" if status == 426 else None)


def test_request_of_http_1_0_is_no_handshake(serve: Serve) -> None:
    """RFC 9110 section 7.8: its Upgrade must be ignored. Later requests of the connection are looked at anew."""
    site = serve_app(serve)
    fields = {"Host": "localhost", **HANDSHAKE, "Connection": "keep-alive, upgrade"}
    with Peer.connect(site.host, site.port, timeout=20) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/echoes", headers=fields, version="HTTP/1.0"))
            response = peer.read_response()
            assert (response.status, response.body) == (200, b"hello")
        peer.send(build_request("GET", "/echoes", headers=fields))
        assert peer.read_head().status == 101


def test_ping_flood_of_a_client_that_does_not_read_harms_nobody(serve: Serve) -> None:
    site = serve_app(serve)
    flood = frame(9, bytes(125)) * 1000
    with upgraded(site) as peer:
        for _ in range(40):
            peer.send(flood)
        assert site.page() == "hello"
        peer.send(frame(1, b"still here"))
        # Pings that came while much waited to be sent are answered by the last pong.
        got = (0x8A, b"")
        while got[0] == 0x8A:
            got = read_frame(peer)
        assert got == (0x81, b"still here")


def test_client_is_pinged_and_silence_ends_it(serve: Serve) -> None:
    site = serve_app(serve, "--ws-ping-interval", "0.2s", "--ws-ping-timeout", "3s")
    with upgraded(site) as peer, connect(site, "/echoes") as client:
        for _ in range(3):
            assert read_frame(peer) == (0x89, b"")
            peer.send(frame(10))
        while (got := read_frame(peer)) == (0x89, b""):
            pass
        assert got == (0x88, struct.pack("!H", 1011) + b"keepalive ping timeout")
        site.wait_for("disconnect 1006 ''")
        client.send("alive all the time")
        assert client.recv(timeout=20) == "alive all the time"


def test_reload_closes_with_1012_and_clients_connect_again(serve: Serve) -> None:
    site = serve_app(serve, "--workers", "2")
    clients = [connect(site, "/echoes") for _ in range(20)]
    before = site.worker_pids()
    failures: list[Exception] = []
    is_over = threading.Event()

    def request_pages() -> None:
        while not is_over.is_set():
            try:
                assert site.page() == "hello"
            except Exception as error:  # noqa: BLE001 - whatever it is, a request was lost
                failures.append(error)

    requests = threading.Thread(target=request_pages)
    requests.start()
    site.send(signal.SIGHUP)
    for client in clients:
        assert closed(client) == (1012, "")
    site.wait_for_workers(2, without=before, timeout=30)
    is_over.set()
    requests.join()
    assert failures == []
    with connect(site, "/echoes") as client:
        client.send("again")
        assert client.recv(timeout=20) == "again"
        site.send(signal.SIGTERM)
        assert closed(client) == (1001, "")
    assert site.finish() == []


def test_client_that_does_not_answer_is_cut_at_the_graceful_timeout(serve: Serve) -> None:
    site = serve_app(serve, "--graceful-timeout", "1s")
    with upgraded(site) as peer:
        site.send(signal.SIGTERM)
        start, payload = read_frame(peer)
        assert (start, payload) == (0x88, struct.pack("!H", 1001))
        site.stop()


def test_slow_application_stops_the_client(serve: Serve, tmp_path: Path) -> None:
    wake = tmp_path / "wake"
    site = serve_app(serve, "--ws-max-queue", "4", WAKE=str(wake))
    with connect(site, "/sleeps", max_queue=None) as client:
        site.wait_for("sleeps")

        def send_all() -> None:
            for _ in range(300):
                client.send(bytes(60_000))

        sender = threading.Thread(target=send_all)
        sender.start()
        for _ in range(5):
            assert site.page() == "hello"
        wake.touch()
        for _ in range(300):
            assert client.recv(timeout=30) == bytes(60_000)
        sender.join()


@pytest.mark.slow
def test_a_thousand_websockets_at_once(serve: Serve) -> None:
    site = serve_app(serve)
    peers: list[Peer] = []
    try:
        peers.extend(upgraded(site) for _ in range(1000))
        for number, peer in enumerate(peers):
            peer.send(frame(1, b"%d" % number))
        for number, peer in enumerate(peers):
            assert read_frame(peer) == (0x81, b"%d" % number)
        for peer in peers:
            peer.send(frame(8, struct.pack("!H", 1000)))
        for peer in peers:
            assert close_code(peer) == 1000
    finally:
        for peer in peers:
            peer.close()
    wait_until(lambda: site.stderr.count("disconnect 1000") == 1000, "all calls have ended", timeout=30)


def test_access_log_has_a_line_for_the_handshake_at_its_end(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    site = serve_app(serve, "--access-logfile", str(log), "--access-logformat", "%(r)s %(s)s %(b)s")
    with connect(site, "/echoes") as client:
        client.send("four")
        assert client.recv(timeout=20) == "four"
        assert site.page() == "hello"
    site.wait_for("disconnect 1000")
    site.stop()
    assert log.read_text().splitlines() == ["GET / HTTP/1.1 200 5", "GET /echoes HTTP/1.1 101 4"]


def test_websocket_has_no_deadline_and_is_not_slow(serve: Serve) -> None:
    site = serve_app(serve, "--timeout", "0.2s", "--slow-request", "0.1s")
    with connect(site, "/echoes") as client:
        for _ in range(5):
            # A page takes some time, and that of the deadline passes.
            with pytest.raises(TimeoutError):
                client.recv(timeout=0.1)
            assert site.page() == "hello"
        client.send("there")
        assert client.recv(timeout=20) == "there"
    assert "takes longer" not in site.stderr
