"""Tests of ``kirsch bench`` over HTTP/2 and TLS: against python-h2 as a server that does what a test says, against
Kirsch and against nginx."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import pytest

from authority import Authority
from benching import bench, measured
from ports import free_port
from proc import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Serve

    Respond = Callable[["Connection", int, int], None]

HELLO = b"Hello"
APPLICATION = """
def app(environ, start_response):
    body = environ["wsgi.input"].read()
    text = body or f"{environ['SERVER_PROTOCOL']} {environ['wsgi.url_scheme']} {environ['HTTP_HOST']}".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
    return [text]
"""


class Connection:
    """One connection of a :class:`Server`. ``asked`` counts its requests."""

    def __init__(self, server: Server, sock: socket.socket, number: int) -> None:
        self.server, self.sock, self.number = server, sock, number
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.bodies: dict[int, bytes] = {}
        self.fields: dict[int, dict[str, str]] = {}
        self.asked = 0

    def answer(self, stream: int, body: bytes = HELLO, status: str = "200", **fields: str) -> None:
        self.h2.send_headers(stream, [(":status", status), ("content-length", str(len(body))), *fields.items()])
        self.h2.send_data(stream, body, end_stream=True)

    def serve(self) -> None:
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self.server.streams})
        self.flush()
        while data := self.sock.recv(65536):
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.fields[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                    self.bodies[event.stream_id] = b""
                elif isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self.asked += 1
                    self.server.ask(self, event.stream_id)
                elif isinstance(event, h2.events.StreamReset):
                    self.server.resets.append(event.error_code)
            self.flush()

    def flush(self) -> None:
        self.sock.sendall(self.h2.data_to_send())

    def send_raw(self, data: bytes) -> None:
        self.flush()
        self.sock.sendall(data)

    def close(self) -> None:
        self.flush()
        self.sock.shutdown(socket.SHUT_RDWR)


class Server:
    """A server of HTTP/2 in clear whose ``respond`` gets each whole request: its connection, its stream, its number."""

    def __init__(self, respond: Respond, streams: int) -> None:
        self.respond, self.streams = respond, streams
        self.asked, self.connections = 0, 0
        self.resets: list[int] = []
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/x?y"
        threading.Thread(target=self._accept, daemon=True).start()

    def ask(self, connection: Connection, stream: int) -> None:
        with self._lock:
            number, self.asked = self.asked, self.asked + 1
        self.respond(connection, stream, number)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._socket.accept()
                connection = Connection(self, sock, self.connections)
                self.connections += 1
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    @staticmethod
    def _serve(connection: Connection) -> None:
        with connection.sock, contextlib.suppress(OSError):
            connection.serve()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextlib.contextmanager
def serving(
    respond: Respond = lambda connection, stream, _: connection.answer(stream), streams: int = 100
) -> Iterator[Server]:
    server = Server(respond, streams)
    try:
        yield server
    finally:
        server.close()


def errors_of(document: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(error["class"], error["detail"]): error["count"] for error in document["result"]["errors"]}


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.mark.parametrize("model", [("-c", "2"), ("--rate", "2000", "--max-connections", "4")], ids=["closed", "open"])
def test_each_request_is_answered_on_its_stream(model: tuple[str, ...]) -> None:
    with serving(streams=7) as server:
        document = measured(server.url, "--http2", "--streams", "16", "-n", "300", *model)
    result = document["result"]
    assert (result["ok"], result["requests"], result["errors"]) == (300, 300, [])
    assert result["statuses"] == {"200": 300}
    assert result["bytes"]["bodies"] == 300 * len(HELLO)
    assert result["samples"][0]["head"].startswith("HTTP/2 200\ncontent-length: 5")
    assert document["load"]["version"] == "2"


def test_request_has_the_fields_and_the_body_of_http2(tmp_path: Path) -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    def respond(connection: Connection, stream: int, _: int) -> None:
        seen.append((connection.fields[stream], connection.bodies[stream]))
        connection.answer(stream)

    body = "x" * 200_000
    (tmp_path / "body").write_text(body)
    with serving(respond) as server:
        measured(
            server.url, "--http2", "-n", "3", "-d", f"@{tmp_path}/body", "-H", "Connection: close", "-H", "X-Up: Y"
        )
    for fields, received in seen:
        assert received.decode() == body
        assert fields[":method"] == "POST"
        assert (fields[":scheme"], fields[":path"]) == ("http", "/x?y")
        assert f"http://{fields[':authority']}/x?y" == server.url
        assert (fields["content-length"], fields["x-up"]) == ("200000", "Y")
        assert not {"host", "connection"} & fields.keys()


def test_recorded_requests_are_replayed(tmp_path: Path) -> None:
    seen: dict[str, tuple[dict[str, str], bytes]] = {}

    def respond(connection: Connection, stream: int, _: int) -> None:
        fields = connection.fields[stream]
        seen[fields[":path"]] = (fields, connection.bodies[stream])
        connection.answer(stream, status="201" if fields[":method"] == "POST" else "200")

    def entry(method: str, path: str, status: int, **more: Any) -> dict[str, Any]:
        headers = [{"name": ":authority", "value": "shop.example"}, {"name": "X-Own", "value": path}]
        return {
            "startedDateTime": "2026-10-10T10:00:00Z",
            "request": {"method": method, "url": f"https://shop.example{path}", "headers": headers, **more},
            "response": {"status": status},
        }

    entries = [entry("GET", "/cart?x=1", 200), entry("POST", "/order", 201, postData={"text": "item=7"})]
    (tmp_path / "shop.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    with serving(respond) as server:
        document = measured(server.url, "--http2", "--replay", f"{tmp_path}/shop.har")
    assert (document["result"]["ok"], document["result"]["failed"]) == (2, 0)
    get, post = seen["/cart?x=1"], seen["/order"]
    assert (get[0][":method"], get[0]["x-own"], get[1]) == ("GET", "/cart?x=1", b"")
    assert (post[0][":method"], post[0]["x-own"], post[1]) == ("POST", "/order", b"item=7")
    assert f"http://{get[0][':authority']}/x?y" == server.url


def test_hosts_make_one_load(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    shell.chmod(0o755)
    hosts = ("--on", "a,b", "--ssh", str(shell), "--remote-kirsch", f"{sys.executable} -m kirsch")
    with serving() as server:
        document = measured(server.url, "--http2", "--streams", "5", *hosts, "-c", "2", "-n", "41")
    found = document["result"]
    assert (found["requests"], found["ok"], found["latency"]["count"]) == (41, 41, 41)
    assert sorted(host["requests"] for host in found["hosts"]) == [20, 21]
    assert server.asked >= 41


def test_refused_requests_are_sent_again_and_then_fail() -> None:
    def respond(connection: Connection, stream: int, number: int) -> None:
        if number % 2:
            connection.answer(stream)
        else:
            connection.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)

    with serving(respond) as server:
        document = measured(server.url, "--http2", "-c", "1", "-n", "10")
    assert (document["result"]["ok"], document["result"]["resent"]) == (10, 10)

    def refuse(connection: Connection, stream: int, _: int) -> None:
        connection.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)

    with serving(refuse) as server:
        document = measured(server.url, "--http2", "-c", "1", "-n", "5", status=1)
    assert errors_of(document) == {("stream", "REFUSED_STREAM"): 5}
    assert server.asked == 20


def test_reset_fails_one_request_alone() -> None:
    def respond(connection: Connection, stream: int, number: int) -> None:
        if number == 3:
            connection.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)
        else:
            connection.answer(stream)

    with serving(respond) as server:
        document = measured(server.url, "--http2", "--streams", "4", "-c", "1", "-n", "40", status=1)
    assert document["result"]["ok"] == 39
    assert errors_of(document) == {("stream", "INTERNAL_ERROR"): 1}
    assert document["result"]["connections"]["opened"] == 1


def test_goaway_moves_unprocessed_requests_to_another_connection() -> None:
    """The first connection answers two of its four requests, and says that it has not processed the others."""
    waiting: list[int] = []

    def respond(connection: Connection, stream: int, _: int) -> None:
        # Connection 0 is that which finds out whether there is a server.
        if connection.number > 1 or connection.asked == 1:
            return connection.answer(stream)
        waiting.append(stream)
        if len(waiting) == 4:
            connection.send_raw(frame(7, 0, 0, struct.pack(">II", waiting[1], 0)))
            for answered in waiting[:2]:
                connection.answer(answered)
        return None

    with serving(respond) as server:
        document = measured(server.url, "--http2", "--streams", "4", "-c", "1", "-n", "30")
    assert (document["result"]["ok"], document["result"]["resent"]) == (30, 2)
    assert document["result"]["connections"]["opened"] == 2


def test_goaway_with_an_error_fails_unprocessed_requests() -> None:
    def respond(connection: Connection, stream: int, number: int) -> None:
        if number == 4:
            connection.send_raw(frame(7, 0, 0, struct.pack(">II", 0, 11)))
            connection.close()
        else:
            connection.answer(stream)

    with serving(respond) as server:
        document = measured(server.url, "--http2", "-c", "1", "-n", "20", status=1)
    assert errors_of(document) == {("goaway", "ENHANCE_YOUR_CALM"): 1}
    assert document["result"]["ok"] == 19


def _cut(connection: Connection, stream: int) -> None:
    connection.h2.send_headers(stream, [(":status", "200"), ("content-length", "100")])
    connection.h2.send_data(stream, b"part")
    connection.close()


def _short(connection: Connection, stream: int) -> None:
    connection.h2.send_headers(stream, [(":status", "200")])
    connection.flush()
    connection.send_raw(frame(0, 1, stream, b"Hell"))


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (lambda connection, stream: connection.answer(stream, status="503"), ("status", "503")),
        (_short, ("length", "")),
        (lambda connection, stream: connection.answer(stream, b"Other"), ("hash", "")),
        (lambda connection, _: connection.close(), ("unanswered", "")),
        (_cut, ("closed_early", "")),
        (lambda connection, stream: connection.send_raw(frame(1, 5, stream, b"\x80")),
         ("malformed", "CompressionInvalid")),
        (lambda connection, _: connection.send_raw(b"HTTP/1.1 400 Bad\r\n"), ("malformed", "FrameTooLarge")),
        (lambda connection, stream: connection.send_raw(frame(1, 5, stream, b"\x88\x0f\x0d\x011")),
         ("malformed", "ContentLengthWrong")),
    ],
    ids=["status", "short", "other", "unanswered", "cut", "hpack", "http1", "content-length"],
)  # fmt: skip
def test_error_is_counted_by_kind(act: Callable[[Connection, int], None], expected: tuple[str, str]) -> None:
    def respond(connection: Connection, stream: int, number: int) -> None:
        if number == 2:
            act(connection, stream)
        else:
            connection.answer(stream)

    with serving(respond) as server:
        document = measured(server.url, "--http2", "-c", "1", "-n", "6", status=1)
    assert errors_of(document) == {expected: 1}
    assert document["result"]["ok"] == 5


def test_late_request_is_cancelled_and_the_others_go_on() -> None:
    def respond(connection: Connection, stream: int, number: int) -> None:
        if number != 3:
            connection.answer(stream)

    with serving(respond) as server:
        document = measured(
            server.url, "--http2", "--streams", "2", "-c", "1", "-n", "20", "--timeout", "500ms", status=1
        )
        wait_until(lambda: bool(server.resets), "the server has seen the reset")
    assert errors_of(document) == {("timeout", "head"): 1}
    assert server.resets == [h2.errors.ErrorCodes.CANCEL]
    assert (document["result"]["ok"], document["result"]["connections"]["opened"]) == (19, 1)


def test_keep_alive_bounds_the_requests_of_a_connection() -> None:
    with serving() as server:
        document = measured(server.url, "--http2", "--streams", "4", "--keep-alive", "5", "-c", "1", "-n", "20")
    assert (document["result"]["ok"], document["result"]["connections"]["opened"]) == (20, 4)


def test_stall_counts_for_all_requests_that_were_due_meanwhile() -> None:
    """The server's 20th request is answered after 0.4 s; at 500 requests a second some 200 were due in that time."""
    release = threading.Event()

    def respond(connection: Connection, stream: int, number: int) -> None:
        if number == 20:
            release.wait(0.4)
        connection.answer(stream)

    with serving(respond) as server:
        document = measured(
            server.url,
            "--http2",
            "--streams",
            "500",
            "--rate",
            "500",
            "--max-connections",
            "1",
            "-z",
            "2s",
            "--warmup",
            "0s",
        )
    latency = document["result"]["latency"]
    assert document["result"]["failed"] == 0
    # 10 % of 1,000 requests waited for 0.2 s or longer.
    assert latency["percentiles"]["90"] >= 0.1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--streams", "2", "http://127.0.0.1:1/"), "--streams means nothing without --http2"),
        (("--http2", "--pipeline", "2", "http://127.0.0.1:1/"), "--streams"),
        (("--insecure", "http://127.0.0.1:1/"), "--insecure means nothing without https://"),
        (("--ca-certs", "/none", "https://127.0.0.1:1/"), "cannot"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(args: tuple[str, ...], words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = bench(*(word.replace(":1/", f":{listener.getsockname()[1]}/") for word in args))
    assert done.returncode == 2
    assert words in done.stderr


# ------------------------------------------------------------------------------------------------------ real servers


@pytest.mark.parametrize("flags", [(), ("--http2", "--streams", "8")], ids=["http1", "http2"])
@pytest.mark.parametrize("model", [("-c", "3"), ("--stages", "500ms:400,500ms:0")], ids=["closed", "stages"])
def test_kirsch_over_tls(
    serve: Serve, authority: Authority, tmp_path: Path, flags: tuple[str, ...], model: tuple[str, ...]
) -> None:
    certificate, key = authority.issue("server")
    (tmp_path / "echoing.py").write_text(APPLICATION)
    running = serve("echoing:app", "--chdir", str(tmp_path), "--certfile", certificate, "--keyfile", key)
    url = f"https://localhost:{running.port}/"
    trust = ("--ca-certs", authority.certificate)
    number = () if "--stages" in model else ("-n", "200")
    document = measured(url, *trust, *flags, *model, *number, "--fail-if", "errors > 0%")
    result = document["result"]
    assert result["ok"] == result["requests"] >= (100 if "--stages" in model else 200)
    assert result["samples"][0]["length"] == len(f"HTTP/{'2.0' if flags else '1.1'} https localhost:{running.port}")
    assert "BEGIN CERTIFICATE" not in json.dumps(document)
    (tmp_path / "body").write_text("y" * 300_000)
    upload = measured(url, "--insecure", *flags, "-n", "5", "-d", f"@{tmp_path}/body")
    assert upload["result"]["bytes"]["bodies"] == 5 * 300_000


def test_certificate_is_checked(serve: Serve, authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("other", "elsewhere.test")
    (tmp_path / "echoing.py").write_text(APPLICATION)
    running = serve("echoing:app", "--chdir", str(tmp_path), "--certfile", certificate, "--keyfile", key)
    url = f"https://localhost:{running.port}/"
    other = Authority(tmp_path)
    for trusted in (authority, other):
        done = bench(url, "-n", "5", "--ca-certs", trusted.certificate)
        assert done.returncode != 0
        assert "certificate" in done.stdout
    assert measured(url, "-n", "5", "--insecure")["result"]["ok"] == 5


def test_server_without_http2_in_its_handshake_is_named(authority: Authority) -> None:
    certificate, key = authority.issue("old")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def shake_hands() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as wrapped:
                    wrapped.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=shake_hands, daemon=True).start()
        done = bench(f"https://localhost:{listener.getsockname()[1]}/", "--http2", "--insecure", "-n", "1", "-q")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.returncode != 0
    assert "does not offer HTTP/2" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["clear", "tls"])
def test_nginx(secure: bool, authority: Authority, tmp_path: Path) -> None:
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed (apt install nginx-light)")
    certificate, key = authority.issue("nginx")
    port = free_port()
    (tmp_path / "page").write_bytes(b"z" * 100_000)
    listen = f"127.0.0.1:{port}{' ssl' if secure else ''} http2"
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; user root;\nevents {{}}\nhttp {{ access_log off;\n"
        f"client_body_temp_path {tmp_path}/body; keepalive_requests 50;\n"
        f"server {{ listen {listen}; ssl_certificate {certificate}; ssl_certificate_key {key}; root {tmp_path}; }} }}\n"
    )
    nginx = subprocess.Popen(["nginx", "-p", str(tmp_path), "-e", f"{tmp_path}/log", "-c", f"{tmp_path}/nginx.conf"])
    try:
        wait_until(lambda: _listens(port), "nginx listens")
        url = f"http{'s' if secure else ''}://localhost:{port}/page"
        trust = ("--ca-certs", authority.certificate) if secure else ()
        result = measured(url, *trust, "--http2", "--streams", "10", "-c", "2", "-n", "1000")["result"]
    finally:
        nginx.terminate()
        nginx.wait(20)
    assert (result["ok"], result["failed"]) == (1000, 0)
    assert result["bytes"]["bodies"] == 1000 * 100_000
    # nginx ends each connection after 50 requests, with GOAWAY.
    assert result["connections"]["opened"] >= 1000 / 50


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
