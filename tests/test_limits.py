"""Limits of everything that a client can make grow, except time, and what happens at each: sizes, connections,
descriptors, work, disc space; and hostile bytes.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import socket
import statistics
import subprocess
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest

import running
from limits_site import APP, MIB, SEED, assert_serves, connect, connect_without_room
from proc import (
    cpu_share,
    descriptors,
    files_without_name,
    open_files,
    raise_descriptor_limit,
    rss,
    settled,
    wait_until,
)
from raw import MalformedResponse, PeerClosed, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Running, Serve


def start_through(monkeypatch: pytest.MonkeyPatch, *wrapper: str) -> None:
    """Let ``serve`` start its server through ``wrapper``, a command that ends by executing its arguments."""
    command = " ".join(f"'{word}'" if " " in word else word for word in wrapper)
    # Doubled, braces are what they are; single, they are the variable's own syntax.
    command = command.replace("{", "{{").replace("}", "}}")
    monkeypatch.setenv(
        running.COMMAND_VARIABLE, f"{command} {{python}} -m kirsch {{target}} --bind 127.0.0.1:0 {{args}}"
    )


# Sizes

LINE, FIELDS, FIELD, HEAD, BODY = 200, 5, 300, 600, 1000


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("narrow")
    (folder / "narrow_app.py").write_text(textwrap.dedent(APP), encoding="utf-8")
    sizes = {"line": LINE, "fields": FIELDS, "field-size": FIELD, "head": HEAD, "body": BODY}
    args = [f"--limit-request-{name}={size}" for name, size in sizes.items()]
    site = running.start("narrow_app:app", args, cwd=folder)
    yield site
    assert site.finish() == []


def line_of(size: int) -> bytes:
    target = "/" + "a" * (size - len("GET / HTTP/1.1"))
    return f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def fields_of(count: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * (count - 1) + b"\r\n"


def field_of(size: int) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * (size - 3) + b"\r\n\r\n"


def head_of(size: int) -> bytes:
    """Fields with the empty line behind them, of ``size`` bytes together and each within the limit of one."""
    long = b"X: " + b"y" * 250 + b"\r\n"
    rest = size - len(b"Host: a\r\n\r\n") - 2 * len(long) - len(b"Z: \r\n")
    return b"GET / HTTP/1.1\r\nHost: a\r\n" + long * 2 + b"Z: " + b"y" * rest + b"\r\n\r\n"


def body_of(size: int) -> bytes:
    return build_request("POST", "/", body=b"b" * size)


def chunk_of(size: int) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (size, b"b" * size)


def chunks_of(size: int) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"1\r\nb\r\n" * size + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("make", "limit", "status"),
    [
        (line_of, LINE, 414),
        (fields_of, FIELDS, 431),
        (field_of, FIELD, 431),
        (head_of, HEAD, 431),
        (body_of, BODY, 413),
        (chunk_of, BODY, 413),
        (chunks_of, BODY, 413),
    ],
)
def test_each_size_is_bounded(narrow: Running, make: Callable[[int], bytes], limit: int, status: int) -> None:
    with connect(narrow) as peer:
        for _ in range(2):
            peer.send(make(limit))
            assert peer.read_response().status == 200
        peer.send(make(limit + 1))
        response = peer.read_response()
        assert (response.status, response.header("Connection")) == (status, "close")
        assert peer.read_until_closed() == b""
    assert_serves(narrow)


@pytest.mark.parametrize(
    ("start", "more", "statuses"),
    [
        (b"GET /", b"a", (414,)),
        (b"A", b"A", (501,)),
        (b"GET / HTTP/1.1\r\nX", b"x", (431,)),
        (b"GET / HTTP/1.1\r\nX: ", b"y", (431,)),
        (b"GET / HTTP/1.1\r\n", b"X: y\r\n", (431,)),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"e", (400,)),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;e\r\nb\r\n", (400, 413)),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n", (431,)),
        (b"", b"\r\n", (400,)),
    ],
)
def test_what_never_ends_is_refused(narrow: Running, start: bytes, more: bytes, statuses: tuple[int, ...]) -> None:
    with connect(narrow) as peer:
        peer.offer(start + more * 100_000)
        assert peer.read_response().status in statuses


# Numbers


def test_connections_beyond_the_bound_wait_for_room(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP), "--worker-connections=5")
    peers = [connect(site) for _ in range(5)]
    for peer in peers:
        peer.send(build_request("GET", "/"))
        assert peer.read_response().status == 200
    with connect(site) as late:
        late.send(build_request("GET", "/"))
        report = site.wait_for("^.*accepting pauses.*$")[0]
        assert "worker-connections" in report, "it names the bound that was reached"
        assert "ulimit" not in report, "and no other"
        for peer in peers:
            peer.send(build_request("GET", "/"))
            assert peer.read_response().status == 200, "those inside are served"
        assert not select.select([late.sock], [], [], 0.3)[0]
        assert cpu_share(site.server_pid, 0.3) < 0.3
        peers.pop().close()
        assert late.read_response().status == 200
    for peer in peers:
        peer.close()
    assert_serves(site)


def test_running_out_of_descriptors_is_survived(
    serve: Serve, write_app: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_through(monkeypatch, "bash", "-c", 'ulimit -n 48 && exec "$@"', "bash")
    site = serve(write_app(APP))
    first = connect(site)
    first.send(build_request("GET", "/"))
    assert first.read_response().status == 200
    peers = [connect(site) for _ in range(80)]
    try:
        site.wait_for("accepting pauses.*ulimit -n")
        first.send(build_request("GET", "/"))
        assert first.read_response().status == 200, "who is inside is served"
        used = cpu_share(site.server_pid, 0.5)
        print(f"out of descriptors: {used:.1%} of a processor")
        assert used < 0.3
        # Room for the others comes bit by bit.
        while peers:
            for peer in peers[:20]:
                peer.send(build_request("GET", "/"))
            for peer in peers[:20]:
                assert peer.read_response().status == 200
                peer.close()
            del peers[:20]
    finally:
        for peer in peers:
            peer.close()
    assert_serves(site)
    first.send(build_request("GET", "/"))
    assert first.read_response().status == 200
    first.close()
    assert site.stop() == 0
    assert site.stderr.count("accepting pauses") == 1


@pytest.mark.slow
def test_ten_thousand_slow_clients_do_not_delay_a_fast_one(serve: Serve, write_app: Callable[[str], str]) -> None:
    number = 10_000
    if not raise_descriptor_limit(number + 200):
        pytest.skip(f"the hard limit on open files is below {number + 200} (ulimit -Hn)")
    site = serve(write_app(APP), "--header-timeout=300s")
    with contextlib.ExitStack() as stack:
        slow: list[socket.socket] = []
        for index in range(number):
            # Several addresses, because one has fewer than 30,000 free ports.
            sock = socket.socket()
            stack.callback(sock.close)
            sock.settimeout(20)
            sock.bind((f"127.0.0.{2 + index % 5}", 0))
            sock.connect((site.host, site.port))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
            slow.append(sock)
        fast = stack.enter_context(connect(site))
        times = []
        for _ in range(3):
            for begin in range(0, number, 100):
                for sock in slow[begin : begin + 100]:
                    sock.sendall(b"x")
                began = time.monotonic()
                fast.send(build_request("GET", "/"))
                assert fast.read_response().status == 200
                times.append(time.monotonic() - began)
        print(f"among {number} slow clients: median {statistics.median(times) * 1e3:.2f} ms, max {max(times):.3f} s")
        assert statistics.median(times) < 0.05
        assert max(times) < 2
        for sock in slow:
            sock.sendall(b"\r\n\r\n")
        for sock in slow:
            assert sock.recv(15) == b"HTTP/1.1 200 OK"


# Work


class TinyChunks(threading.Thread):
    """Sends bodies in chunks of one byte on so many connections, as fast as the server takes them, until stopped."""

    BLOCK = b"1\r\nx\r\n" * 10_000

    def __init__(self, site: Running, connections: int) -> None:
        super().__init__(daemon=True)
        self._sockets = [socket.create_connection((site.host, site.port), timeout=20) for _ in range(connections)]
        self._over = threading.Event()
        self.sent = 0
        self.failure: OSError | None = None

    def run(self) -> None:
        head = build_request("POST", "/", headers={"Transfer-Encoding": "chunked"})
        places = dict.fromkeys(self._sockets, 0)
        for sock in self._sockets:
            sock.sendall(head)
            sock.setblocking(False)
        try:
            while not self._over.is_set():
                for sock in select.select([], self._sockets, [], 0.1)[1]:
                    count = sock.send(self.BLOCK[places[sock] :])
                    places[sock] = (places[sock] + count) % len(self.BLOCK)
                    self.sent += count
        except OSError as error:
            self.failure = error

    def wait_beyond(self, count: int) -> None:
        """Wait until more than ``count`` bytes have been sent."""
        wait_until(lambda: self.sent > count, "the uploads get on", timeout=60)

    def stop(self) -> None:
        self._over.set()
        self.join(30)
        for sock in self._sockets:
            sock.close()


@pytest.mark.parametrize("buffering", ["on", "off"])
@pytest.mark.slow
def test_get_is_answered_while_others_upload_in_tiny_chunks(
    serve: Serve, write_app: Callable[[str], str], buffering: str
) -> None:
    """Each of the chunks was a write to the body's file once, and a GET took minutes.

    The limits are as generous as a busy machine needs: what matters is that the uploads get on meanwhile.
    """
    # Without buffering each upload is a call.
    site = serve(write_app(APP), "--body-memory=1k", f"--request-buffering={buffering}", "--threads=24")
    uploads = TinyChunks(site, 16)
    uploads.start()
    try:
        uploads.wait_beyond(4 * MIB)
        times = []
        with connect(site) as kept:
            for _ in range(10):
                before, began = uploads.sent, time.monotonic()
                kept.send(build_request("GET", "/"))
                assert kept.read_response().status == 200
                assert_serves(site)
                times.append(time.monotonic() - began)
                uploads.wait_beyond(before)
        print(f"among uploads in tiny chunks: median {statistics.median(times):.3f} s, max {max(times):.3f} s")
        assert uploads.failure is None
    finally:
        uploads.stop()


def test_work_for_repeated_fields_grows_with_their_bytes(serve: Serve, write_app: Callable[[str], str]) -> None:
    """Fields of one name become one variable. To join them anew for each took time with the square of their number."""
    limits = ["--limit-request-fields=100000", "--limit-request-head=4MiB"]
    site = serve(write_app(APP), *limits)

    def cost(count: int) -> float:
        """Of a request with so many fields of one name: the least time of several."""
        # No two requests are the same, or the second would be a copy of the first.
        times = []
        for attempt in range(5):
            fields = b"".join(b"X-Many: %d-%d\r\n" % (attempt, number) for number in range(count))
            with connect(site) as peer:
                began = time.perf_counter()
                peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")
                assert peer.read_response().status == 200
                times.append(time.perf_counter() - began)
        return min(times)

    few, many = cost(1000), cost(32_000)
    print(f"fields of one name: 1,000 in {few * 1e3:.2f} ms, 32,000 in {many * 1e3:.2f} ms")
    # 32 times as many: 32 times the work and not 1,024 times. What a request costs anyway makes the factor smaller.
    assert many < 300 * few


# Request bodies in files


def test_a_body_is_kept_in_a_file_without_a_name(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    site = serve(write_app(APP), "--body-memory=64k", env={"TMPDIR": str(spool)})

    def held() -> int:
        """Open files in the folder, with or without a name."""
        return sum(name.startswith(str(spool)) for name in descriptors(site.server_pid).values())

    begun = build_request("POST", "/", headers={"Content-Length": str(3 * MIB)}) + b"x" * 2 * MIB
    with connect(site) as peer:
        peer.send(begun)
        wait_until(lambda: held() == 1, "the body is kept in a file")
        assert list(spool.iterdir()) == [], "which no crash can leave behind"
        peer.send(b"x" * MIB)
        assert peer.read_response().body == f"{3 * MIB} bytes".encode()
        assert held() == 0
    for farewell in ("close", "abort"):
        peer = connect(site)
        peer.send(begun)
        wait_until(lambda: held() == 1, "the body is kept in a file")
        getattr(peer, farewell)()
        wait_until(lambda: held() == 0, "the file of a client that left is closed")
    with connect(site) as peer:
        peer.send(build_request("POST", "/", body=b"x" * 65536))
        assert peer.read_response().status == 200
        peer.send(build_request("POST", "/", headers={"Transfer-Encoding": "chunked"}) + b"186a0\r\n" + b"x" * 100_000)
        wait_until(lambda: held() == 1, "a chunked body is kept in a file")
        peer.send(b"\r\n!\r\n")
        assert peer.read_response().status == 400
        wait_until(lambda: held() == 0, "the file of a request that was refused is closed")
    assert list(spool.iterdir()) == []


def test_stalled_uploads_share_a_bound_of_memory(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    """Each may keep 1 MiB in memory, but all together only 2 MiB: the others are in files, and none is lost."""
    spool = tmp_path / "spool"
    spool.mkdir()
    site = serve(write_app(APP), "--body-memory-total=2MiB", env={"TMPDIR": str(spool)})
    assert_serves(site)
    length, number = 200_000, 60
    before = settled(lambda: rss(site.server_pid), MIB)
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(connect(site)) for _ in range(number)]
        for index, peer in enumerate(peers):
            if index % 2:
                head = build_request("POST", "/", headers={"Content-Length": str(length)})
            else:
                head = build_request("POST", "/", headers={"Transfer-Encoding": "chunked"}) + b"%x\r\n" % length
            peer.send(head + b"x" * (length - 1))
        # As many as fit, with what a body in chunks reserves beyond its length, and no more, are kept in memory.
        in_files = number - 2 * MIB // length
        wait_until(lambda: files_without_name(site.server_pid) >= in_files, "the others are in files")
        grown = settled(lambda: rss(site.server_pid), MIB) - before
        print(f"{number} stalled uploads of {length:,} bytes: {grown / MIB:.1f} MiB")
        assert grown < 8 * MIB, "all of them are 11 MiB"
        assert_serves(site)
        for index, peer in enumerate(peers):
            peer.send(b"x" if index % 2 else b"x\r\n0\r\n\r\n")
            assert peer.read_response().body == b"%d bytes" % length
    wait_until(lambda: files_without_name(site.server_pid) == 0, "the files are gone")
    # Their disk space is free again.
    with connect(site) as peer:
        peer.send(build_request("POST", "/", headers={"Content-Length": str(length)}) + b"x" * (length - 1))
        assert_serves(site)
        peer.send(b"x")
        assert peer.read_response().body == b"%d bytes" % length
    assert list(spool.iterdir()) == []


def test_a_full_disc_is_answered_507(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount"]
    mount = f"mount -t tmpfs -o size=512k tmpfs {spool}"
    if shutil.which("unshare") is None or subprocess.run([*unshare, "sh", "-c", mount], check=False).returncode:
        pytest.skip("a small file system cannot be mounted here (unshare, mount -t tmpfs)")
    start_through(monkeypatch, *unshare, "sh", "-c", f'{mount} && exec "$@"', "sh")
    site = serve(write_app(APP), "--body-memory=64k", env={"TMPDIR": str(spool)})
    for framing in ("length", "chunked"):
        with connect(site) as peer:
            if framing == "length":
                peer.offer(build_request("POST", "/", body=b"x" * 3 * MIB))
            else:
                head = build_request("POST", "/", headers={"Transfer-Encoding": "chunked"})
                peer.offer(head + b"%x\r\n%s\r\n0\r\n\r\n" % (3 * MIB, b"x" * 3 * MIB))
            response = peer.read_response()
            assert (response.status, response.header("Connection")) == (507, "close")
        site.wait_for("could not be kept in a temporary file in .+: No space left on device .*TMPDIR")
        # Its disk space is free again.
        fits = exchange(site.host, site.port, build_request("POST", "/", body=b"x" * 400_000))
        assert fits.body == b"400000 bytes"


# Nonsense and malice


def test_storms_of_connections_leave_no_spin(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP))
    assert_serves(site)
    before = open_files(site.server_pid)
    for part in (b"", b"GET / HTTP/1.1\r\n", build_request("GET", "/"), build_request("GET", "/endless")):
        for _ in range(100):
            peer = connect(site)
            if part:
                peer.send(part)
            peer.abort()
    for _ in range(100):
        peer = connect(site)
        peer.end_sending()
        peer.close()
    assert_serves(site)
    wait_until(lambda: open_files(site.server_pid) <= before, "all connections are let go")
    used = cpu_share(site.server_pid, 0.5)
    print(f"after the storms: {used:.1%} of a processor")
    assert used < 0.1


def test_half_open_clients_leave_no_spin(serve: Serve, write_app: Callable[[str], str]) -> None:
    """Sockets that can be read (end of stream) and written at any time, while the response is not ready."""
    site = serve(write_app(APP))
    peers = [connect_without_room(site) for _ in range(20)]
    for peer in peers:
        peer.send(build_request("GET", "/endless"))
        peer.end_sending()
    for peer in peers:
        peer.read_head()
    assert_serves(site)
    wait_until(lambda: cpu_share(site.server_pid, 0.2) < 0.1, "the server waits for its clients")
    for peer in peers:
        peer.close()
    assert_serves(site)


# A TLS 1.2 ClientHello as curl sends it, shortened.
CLIENT_HELLO = bytes.fromhex("160301008d0100008903035c") + bytes(range(1, 130))
GARBAGE = {
    "TLS": CLIENT_HELLO,
    "HTTP/2 cut": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\n\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
    "PROXY": b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "SMTP": b"EHLO example.com\r\n",
    "HTTP/0.9": b"GET /\r\n",
    "zeros": bytes(100_000),
    "line feeds": b"\n" * 100_000,
    "UTF-16": "GET / HTTP/1.1\r\nHost: a\r\n\r\n".encode("utf-16"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused(narrow: Running, name: str) -> None:
    with connect(narrow) as peer:
        peer.offer(GARBAGE[name])
        response = peer.read_response()
        assert response.status in (400, 414, 501, 505)
        assert response.header("Connection") == "close"
    assert_serves(narrow)


def test_random_bytes_get_a_status_or_an_end(narrow: Running) -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    for _ in range(200):
        data = chance.randbytes(chance.choice([1, 10, 100, 5000]))
        if chance.random() < 0.5:
            cut = chance.randrange(1, 40)
            data = build_request("POST", "/", body=b"body")[:cut] + data
        with connect(narrow) as peer:
            peer.offer(data)
            with contextlib.suppress(OSError):
                peer.end_sending()
            with contextlib.suppress(PeerClosed, MalformedResponse):
                # Whatever it is answered, it is answered, and not waited with.
                assert peer.read_response().status in (200, 400, 413, 414, 417, 431, 501, 505), data
    assert_serves(narrow)
