"""Bodies handed over as they arrive (``--request-buffering off``), and responses that leave as they are made."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import random
import select
from typing import TYPE_CHECKING

import pytest

import wsgi_app
from proc import files_without_name, rss, settled
from raw import PeerClosed, build_request
from waiting import (
    HERE,
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    connect,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get_json,
    serve_waiting,
)

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

SEED = 20_261_121
MIB = 1 << 20
UNBUFFERED = "--request-buffering=off"

every_framing = pytest.mark.parametrize("framing", ["length", "chunked"])


def head_of(target: str, framing: str, length: int, **fields: str) -> bytes:
    framed = {"Content-Length": str(length)} if framing == "length" else {"Transfer-Encoding": "chunked"}
    return build_request("POST", target, headers={**framed, **fields})


def part_of(data: bytes, framing: str) -> bytes:
    return data if framing == "length" else b"%x\r\n%s\r\n" % (len(data), data)


def end_of(framing: str) -> bytes:
    return b"" if framing == "length" else b"0\r\n\r\n"


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


# In


@every_driver
@every_framing
def test_the_application_reads_what_is_there_before_the_rest_is_sent(serve: Serve, driver: str, framing: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    with connect(site) as peer:
        for turn in range(2):
            log = len(site.stderr)
            rest = random.Random(SEED + turn).randbytes(300_000)
            peer.send(head_of("/sip?5", framing, 5 + len(rest)) + part_of(b"first", framing))
            site.wait_for("^sipped first$", after=log)
            peer.send(part_of(rest, framing) + end_of(framing))
            assert_answered(peer, sha256(b"first" + rest))


@pytest.mark.usefixtures("one_engine")
@every_concurrent_driver
def test_a_call_that_waits_for_its_body_does_not_stop_the_others(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    # One fewer than there are threads.
    uploads = [connect(site) for _ in range(3)]
    for number, peer in enumerate(uploads):
        peer.send(head_of("/sip?1", "length", 11) + str(number).encode())
        site.wait_for(f"^sipped {number}$")
    with UnaffectedClients(site) as unaffected:
        unaffected.await_answers(20)
        for number, peer in enumerate(uploads):
            peer.send(b"0123456789")
            assert_answered(peer, sha256(str(number).encode() + b"0123456789"))
            peer.close()


@every_driver
@every_framing
@pytest.mark.parametrize("method", ["read1", "readinto", "readline", "iteration"])
def test_pieces_are_read_as_they_come(serve: Serve, driver: str, framing: str, method: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    pieces = [f"piece {number}\n".encode() for number in range(5)]
    with connect(site) as peer:
        peer.send(head_of(f"/read_what_comes?{method}", framing, sum(map(len, pieces))))
        for number, piece in enumerate(pieces):
            peer.send(part_of(piece, framing))
            site.wait_for(f"^{method} piece {number}$")
        peer.send(end_of(framing))
        assert_answered(peer, method.encode())


@every_driver
@every_framing
def test_the_input_reads_like_a_file(serve: Serve, driver: str, framing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a buffered body's stream can do, of bodies that come in pieces."""
    print("seed", SEED)
    monkeypatch.setenv("PYTHONPATH", HERE, prepend=os.pathsep)
    site = serve("wsgi_app:app", *flags(driver), UNBUFFERED)
    chance = random.Random(SEED)
    bodies = [b"", b"a\nbb\nccc\n", b"\n".join(chance.randbytes(chance.choice([0, 9, 4000])) for _ in range(60))]
    peer = connect(site)
    for body in bodies:
        for style, reading in wsgi_app.READINGS.items():
            peer.send(head_of(f"/read?{style}", framing, len(body)))
            at = 0
            while at < len(body):
                size = chance.choice([1, 70, 5000, 70_000])
                peer.send(part_of(body[at : at + size], framing))
                at += size
            peer.send(end_of(framing))
            response = peer.read_response()
            assert (response.status, style) == (200, style), site.stderr[-2000:]
            assert json.loads(response.body) == wsgi_app.digest(reading(io.BytesIO(body))), style
            if response.header("Connection") == "close":
                assert style == "readline_four_times", "only where the rest was not read, and may not have been here"
                peer.close()
                peer = connect(site)
    peer.close()


@every_driver
@every_framing
@pytest.mark.slow
def test_a_body_that_is_not_read_stays_with_the_client(serve: Serve, driver: str, framing: str, tmp_path: Path) -> None:
    """Backpressure: what the application does not take, the client cannot send, and the server does not buffer."""
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    assert_serves(site)
    gate = tmp_path / "gate"
    body = random.Random(SEED).randbytes(1 << 16) * 1024
    wire = part_of(body, framing) + end_of(framing)
    sent = 0
    with connect(site) as peer:
        before = rss(site.server_pid)
        peer.send(head_of(f"/read_late?{gate}", framing, len(body)))
        await_inside(site, gate)
        peer.sock.setblocking(False)

        def send_more() -> int:
            nonlocal sent
            while select.select([], [peer.sock], [], 0)[1]:
                sent += peer.sock.send(wire[sent : sent + 1_000_000])
            return sent

        settled(send_more, tolerance=0)
        grown = rss(site.server_pid) - before
        print(f"{sent} bytes taken, {grown} bytes more memory")
        # The kernel's buffers of both ends are some MiB, as far as it likes to let them grow.
        assert sent < 16 * MIB
        assert grown < 4 * MIB
        assert files_without_name(site.server_pid) == 0
        gate.touch()
        peer.send(wire[sent:])
        assert_answered(peer, sha256(body))
        peer.send(build_request("GET", "/hello"))
        assert_answered(peer, b"Hello")


@every_driver
@every_framing
def test_the_client_is_asked_to_go_on_when_the_application_reads(
    serve: Serve, driver: str, framing: str, tmp_path: Path
) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    gate = tmp_path / "gate"
    with connect(site) as peer:
        peer.send(head_of(f"/read_late?{gate}", framing, 4, Expect="100-continue"))
        await_inside(site, gate)
        assert not select.select([peer.sock], [], [], 0.1)[0], "100 Continue was sent before the application read"
        gate.touch()
        assert peer.read_head().status == 100
        peer.send(part_of(b"body", framing) + end_of(framing))
        assert_answered(peer, sha256(b"body"))
        # A client that does not wait is not asked.
        peer.send(head_of("/sip?4", framing, 4, Expect="100-continue") + part_of(b"body", framing) + end_of(framing))
        response = peer.read_response(skip_interim=True)
        assert (response.status, response.body) == (200, sha256(b"body"))


@every_driver
def test_the_client_is_not_asked_for_a_body_that_nobody_reads(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    with connect(site) as peer:
        peer.send(head_of("/unread", "length", 1000, Expect="100-continue"))
        response = peer.read_response()
        assert (response.status, response.body) == (200, b"not read")
        # Only the client knows if the body is still to come: no further request can be told from it (RFC 9110
        # section 10.1.1).
        assert response.header("Connection") == "close"
        assert peer.read_until_closed() == b""


@every_driver
@every_framing
@pytest.mark.parametrize("ending", ["stands still", "ends", "is reset"])
def test_read_raises_when_the_body_breaks_off(serve: Serve, driver: str, framing: str, ending: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED, "--body-timeout=300ms")
    peer = connect(site)
    peer.send(head_of("/read_carefully", framing, 1000) + part_of(b"half", framing))
    site.wait_for("^reading$")
    if ending == "ends":
        peer.end_sending()
    elif ending == "is reset":
        peer.abort()
    site.wait_for(r"^read raised \w+, OSError: True$")
    if ending != "is reset":
        # An application that catches the error may answer, and nothing else can follow on this connection.
        response = peer.read_response()
        assert (response.status, response.body) == (400, b"half a body")
        assert response.header("Connection") == "close"
        assert peer.read_until_closed() == b""
        peer.close()
    assert_serves(site)
    assert "Traceback" not in site.stderr


@every_driver
def test_a_body_that_stands_still_is_answered_408_for_an_application_that_lets_it(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver), UNBUFFERED, "--body-timeout=300ms")
    with connect(site) as peer:
        peer.send(head_of("/sip?4", "length", 1000) + b"half")
        site.wait_for("^sipped half$")
        response = peer.read_response()
        assert (response.status, response.header("Connection")) == (408, "close")
        assert peer.read_until_closed() == b""
    assert_serves(site)


@every_driver
@every_framing
@pytest.mark.parametrize("size", [50, 3 * MIB])
def test_an_unread_body_is_never_a_request(serve: Serve, driver: str, framing: str, size: int) -> None:
    """It is read past or the connection is closed, also where the rest of it comes after the answer."""
    site = serve_waiting(serve, *flags(driver), UNBUFFERED)
    smuggled = build_request("GET", "/hello?smuggled")
    body = smuggled * (size // len(smuggled) + 1)
    for at_once in (0, size // 2, len(body)):
        # Cut where what follows looks like a request.
        cut = at_once - at_once % len(smuggled)
        first, rest = (part_of(piece, framing) if piece else b"" for piece in (body[:cut], body[cut:]))
        with connect(site) as peer:
            peer.offer(head_of("/unread", framing, len(body)) + first)
            assert_answered(peer, b"not read")
            peer.offer(rest + end_of(framing) + build_request("GET", "/hello?sincere"))
            with contextlib.suppress(PeerClosed):
                assert_answered(peer, b"Hello")
                assert not select.select([peer.sock], [], [], 0)[0]
    assert_serves(site)
    journal = get_json(site, "/records")["journal"]
    assert set(journal) <= {"/unread", "/hello?sincere", "/echo", "/records"}
    assert journal.count("/unread") == 3


# Out


@every_driver
def test_a_block_is_on_the_wire_before_the_next_is_made(serve: Serve, driver: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, *flags(driver))
    gate = tmp_path / "gate"
    with ask(site, f"/steps?{gate}") as peer:
        assert peer.read_head().status == 200
        assert peer.read_chunk() == b"one"
        (tmp_path / "gate.2").touch()
        assert peer.read_chunk() == b"two"
        (tmp_path / "gate.3").touch()
        assert peer.read_chunk() == b"three"
        assert peer.read_chunk() == b""
    site.wait_for(f"^closed {gate}$")


@every_concurrent_driver
def test_many_streams_are_made_step_by_step(serve: Serve, driver: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, *flags(driver))
    gates = [tmp_path / f"gate{number}" for number in range(4)]
    peers = [ask(site, f"/steps?{gate}") for gate in gates]
    for step, block in enumerate((b"one", b"two", b"three"), start=1):
        # The other way round, so that each waits for its own gate.
        for gate, peer in reversed(list(zip(gates, peers, strict=True))):
            if step == 1:
                assert peer.read_head().status == 200
            else:
                gate.with_suffix(f".{step}").touch()
            assert peer.read_chunk() == block
    for peer in peers:
        assert peer.read_chunk() == b""
        peer.close()


@every_driver
def test_a_generator_that_raises_midway_is_a_visible_cut(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with ask(site, "/raises_midway?cut") as peer:
        response = peer.read_response()
        assert (response.status, response.body, response.complete) == (200, b"one block", False)
    site.wait_for("^closed cut$")
    site.wait_for("^LookupError: after one block$")
    assert_serves(site)
    assert get_json(site, "/records")["closed"] == {"cut": 1}


@every_driver
def test_server_sent_events_flow_and_end_with_their_client(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with ask(site, "/events?source") as peer:
        assert peer.read_head().header("Content-Type") == "text/event-stream"
        events = peer.read_until(b"x\n\n")
        assert b"data: x" in events
        for _ in range(1000):
            peer.read_until(b"x\n\n")
    site.wait_for("^closed source$")
    assert_serves(site)


@every_driver
def test_write_to_a_slow_reader_is_whole_and_in_order(serve: Serve, driver: str) -> None:
    site: Running = serve_waiting(serve, *flags(driver))
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/write_large?200&slow"))
        assert peer.read_head().status == 200
        # The call waits, or what it wrote does; others are served.
        assert_serves(site)
        body = bytearray()
        while chunk := peer.read_chunk():
            body += chunk
        assert hashlib.sha256(body).digest() == hashlib.sha256(bytes(range(256)) * 256 * 200).digest()
    site.wait_for("^written slow$")
