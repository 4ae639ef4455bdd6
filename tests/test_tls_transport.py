"""Encrypted connections: what clients of TLS see of a server, whichever driver serves."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from authority import first_message
from native_site import DRIVERS, every_driver, native_site

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A certificate for localhost and its key, made for this run."""
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl makes the certificate, and is not installed (apt install openssl)")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -keyout {key} -out {certificate}".split(),
        check=True,
        capture_output=True,
    )
    return [certificate, key]


class Client(http.client.HTTPSConnection):
    """A connection of TLS that trusts the certificate alone."""

    def __init__(self, site: Running, certificate: list[str], **options: Any) -> None:
        context = ssl.create_default_context(cafile=certificate[0])
        for name, value in options.items():
            setattr(context, name, value)
        super().__init__("localhost", site.port, timeout=20, context=context)
        raw = socket.create_connection((site.host, site.port), timeout=20)
        # An end that is not told (close_notify) is an error.
        self.tls = context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False)
        self.sock = self.tls

    def ask(self, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the body of a response."""
        self.request("GET" if body is None else "POST", target, body)
        with self.getresponse() as response:
            return response.status, response.read()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@every_driver
@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_requests_are_served_over_tls(driver: str, version: str, certificate: list[str]) -> None:
    only = dict.fromkeys(("minimum_version", "maximum_version"), ssl.TLSVersion[version])
    with (
        native_site(certificate=certificate, health_path="/healthz", **DRIVERS[driver]) as site,
        Client(site, certificate, **only) as client,
    ):
        name = version.replace("_", ".")
        assert client.tls.version() == name
        for _ in range(3):
            status, body = client.ask("/encryption")
            environ = json.loads(body)
            assert (status, environ["wsgi.url_scheme"], environ["HTTPS"]) == (200, "https", "on")
            assert (environ["SSL_PROTOCOL"], environ["SSL_TLS_SNI"]) == (name, "localhost")
            assert environ["SSL_CLIENT_VERIFY"] == "NONE"
            assert environ["SSL_CIPHER"].startswith("TLS")
        body = bytes(range(256)) * 5000
        assert client.ask("/echo", body) == (200, body)
        status, large = client.ask("/large?100&tls")
        assert (status, len(large)) == (200, 100 * 65536)
        # A health check ends the connection.
        assert client.ask("/healthz")[0] == 200


def test_client_without_tls_is_told_to_use_https(certificate: list[str]) -> None:
    with native_site(certificate=certificate, **DRIVERS["threads"]) as site:
        with socket.create_connection((site.host, site.port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"use https://" in answer
        site.wait_for("TLS with client 127.0.0.1:[0-9]+ failed: the client speaks HTTP without TLS")


def test_client_that_speaks_something_else_gets_an_alert(certificate: list[str]) -> None:
    with native_site(certificate=certificate, **DRIVERS["threads"]) as site:
        with socket.create_connection((site.host, site.port), timeout=20) as client:
            client.sendall(b"\x16\x03\x01\x00\x05\x63\x00\x00\x01\x00")
            answer = b"".join(iter(lambda: client.recv(4096), b""))
        # An alert (RFC 8446 section 6): fatal.
        assert (answer[:1], answer[5:6]) == (b"\x15", b"\x02")


@every_driver
def test_handshakes_that_do_not_end_hold_up_nobody(driver: str, certificate: list[str]) -> None:
    with native_site(certificate=certificate, header_timeout=1.0, **DRIVERS[driver]) as site:
        first = first_message()
        waiting = [socket.create_connection((site.host, site.port), timeout=20) for _ in range(100)]
        for index, each in enumerate(waiting):
            # Nothing, a part of the first message, or all of it without the second.
            each.sendall(first[: len(first) * (index % 3) // 2])
        with Client(site, certificate) as client:
            assert client.ask("/hello")[0] == 200
        for each in waiting:
            # The deadline of a head ends them.
            with each:
                while each.recv(65536):
                    pass


# close_notify in a record that is not encrypted (RFC 8446 section 6.1).
CLOSE_NOTIFY = b"\x15\x03\x03\x00\x02\x01\x00"


@every_driver
def test_connection_ends_at_close_notify_before_the_end_of_the_handshake(driver: str, certificate: list[str]) -> None:
    # Not the deadline ends them.
    with native_site(certificate=certificate, header_timeout=3600.0, **DRIVERS[driver]) as site:
        for before in (b"", first_message()):
            with socket.create_connection((site.host, site.port), timeout=20) as client:
                client.sendall(before + CLOSE_NOTIFY)
                while client.recv(65536):
                    pass


def end_with_close_notify(client: Client) -> None:
    # It is an error for OpenSSL that the response of the application follows.
    with contextlib.suppress(ssl.SSLError):
        client.tls.unwrap()
    client.close()


def end_without_close_notify(client: Client) -> None:
    with socket.socket(fileno=client.tls.detach()) as raw:
        raw.settimeout(20)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65536):
            pass


def reset(client: Client) -> None:
    with socket.socket(fileno=client.tls.detach()) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


ENDS = [end_with_close_notify, end_without_close_notify, reset]


@every_driver
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("framing", ["Content-Length: 100000", "Transfer-Encoding: chunked"])
def test_truncated_upload_is_an_error_of_its_reader(
    driver: str, end: Callable[[Client], None], framing: str, certificate: list[str]
) -> None:
    part = b"half" * 5000
    if "chunked" in framing:
        part = b"%x\r\n%s\r\n" % (len(part), part)
    with native_site(certificate=certificate, request_buffering=False, **DRIVERS[driver]) as site:
        client = Client(site, certificate)
        client.tls.sendall(f"POST /read_carefully HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n".encode() + part)
        site.wait_for("reading")
        end(client)
        site.wait_for("read raised .*, OSError: True")


UPLOAD_APP = """
import sys

async def app(scope, receive, send):
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        print("received", message["type"], "more" if more else "no more", file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize("end", ENDS)
def test_truncated_upload_is_a_disconnect_for_asgi(
    serve: Serve, end: Callable[[Client], None], certificate: list[str], tmp_path: Path
) -> None:
    (tmp_path / "upload_app.py").write_text(UPLOAD_APP)
    files = ["--certfile", certificate[0], "--keyfile", certificate[1]]
    running = serve("upload_app:app", "--chdir", str(tmp_path), "--lifespan", "off", *files)
    client = Client(running, certificate)
    client.tls.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nhalf")
    running.wait_for("received http.request more")
    end(client)
    running.wait_for("received http.disconnect no more")
    assert "http.request no more" not in running.stderr


def test_client_that_ends_without_saying_so_is_no_error(certificate: list[str]) -> None:
    with native_site(certificate=certificate, **DRIVERS["threads"]) as site:
        client = Client(site, certificate)
        assert client.ask("/hello")[0] == 200
        socket.socket(fileno=client.tls.detach()).close()
        cut = Client(site, certificate)
        cut.tls.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
        with socket.socket(fileno=cut.tls.detach()) as raw:
            raw.settimeout(20)
            raw.shutdown(socket.SHUT_WR)
            # A body that is shorter than declared is refused, however the connection ends: 400, encrypted.
            assert raw.recv(65536)[:1] == b"\x17"
        site.wait_for("refused with 400")
