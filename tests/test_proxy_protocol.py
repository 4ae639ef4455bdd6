"""The PROXY protocol on a listener (``?proxy``): real HAProxy and nginx in front, and headers by hand.

What a header may say is tested case by case in ``crates/wire/tests/proxy.rs``, deadlines in
``crates/engine/tests/proxies.rs``.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ports import free_port
from proc import wait_until
from raw import Peer
from test_proxies import APP, ask, client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Running, Serve

ROOT = Path(__file__).resolve().parent.parent
HEADER = b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\r\n"
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def field(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


def version_2(family: int, addresses: bytes, *fields: bytes, command: int = 1) -> bytes:
    variable = addresses + b"".join(fields)
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack(">H", len(variable)) + variable


def ipv4(source: str, port: int) -> bytes:
    return socket.inet_aton(source) + socket.inet_aton("203.0.113.1") + struct.pack(">HH", port, 443)


def ipv6(source: str, port: int) -> bytes:
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    return addresses + struct.pack(">HH", port, 443)


@pytest.fixture
def proxied(serve: Serve, write_app: Callable[[str], str]) -> Callable[..., Running]:
    def proxied(*arguments: str, bind: str = "127.0.0.1:0?proxy") -> Running:
        server = serve(f"{write_app(APP)}:app", "-b", bind, "--access-logfile", "-", *arguments)
        # Behind the address that each server under test has.
        server.port = int(server.addresses[-1].rpartition(":")[2])
        return server

    return proxied


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (HEADER, ("192.0.2.7", "56324", "http")),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n", ("2001:db8::7", "4711", "http")),
        (b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:192.0.2.1 4711 443\r\n", ("192.0.2.7", "4711", "http")),
        (b"PROXY UNKNOWN\r\n", None),
        (version_2(0x11, ipv4("192.0.2.7", 56324)), ("192.0.2.7", "56324", "http")),
        (version_2(0x21, ipv6("2001:db8::7", 4711)), ("2001:db8::7", "4711", "http")),
        (version_2(0x31, b"/front".ljust(108, b"\0") + b"/app".ljust(108, b"\0")), ("", "", "http")),
        (version_2(0x00, b"", command=0), None),
        (version_2(0x11, ipv4("192.0.2.7", 1), command=0), None),
        (version_2(0x11, ipv4("192.0.2.7", 1), field(0x20, b"\1\0\0\0\0" + field(0x21, b"TLSv1.3"))),
         ("192.0.2.7", "1", "https")),
    ],
    ids=["v1-ipv4", "v1-ipv6", "v1-mapped", "v1-unknown", "ipv4", "ipv6", "unix", "local", "local-addresses", "tls"],
)  # fmt: skip
def test_client_is_the_one_of_the_header(
    proxied: Callable[..., Running], header: bytes, expected: tuple[str, str, str] | None
) -> None:
    server = proxied()
    with Peer.connect(server.host, server.port) as peer:
        own = peer.sock.getsockname()
        peer.send(header)
        for _ in range(3):
            found = ask(peer)
            assert client(found) == (expected or (own[0], str(own[1]), "http"))
            assert found["kirsch.peer"] == f"127.0.0.1:{own[1]}"
    server.wait_for_output(rf"^{(expected or own)[0] or '-'} - - ")


def test_fields_of_the_header_are_in_the_environ(proxied: Callable[..., Running]) -> None:
    server = proxied()
    tls = field(0x20, b"\7\0\0\0\0" + field(0x21, b"TLSv1.3") + field(0x22, "Jörg".encode()))
    fields = [field(0x02, b"shop.example"), field(0x05, b"id-1"), field(0xEA, b"\x01vpce"), field(0x01, b"h2"), tls]
    with Peer.connect(server.host, server.port) as peer:
        peer.send(version_2(0x11, ipv4("192.0.2.7", 56324), *fields))
        for _ in range(3):
            assert ask(peer)["kirsch.proxy"] == {
                "destination": "203.0.113.1:443", "alpn": "h2", "authority": "shop.example", "unique_id": "id-1",
                "tls_version": "TLSv1.3", "tls_common_name": "Jörg", "tls_has_certificate": True,
                "tls_is_verified": True, "0xEA": "\x01vpce",
            }  # fmt: skip


@pytest.mark.parametrize(
    "sent",
    [
        REQUEST,
        b"\r\n" + REQUEST,
        b"PROXY TCP4 192.0.2.7 203.0.113.1 56324 443\n" + REQUEST,
        b"PROXY TCP4 " + b"1" * 200,
        SIGNATURE + b"\x21\x11\x00\x0b" + ipv4("192.0.2.7", 1) + REQUEST,
        SIGNATURE + b"\x21\x11\xff\xff" + b"x" * 9000,
        version_2(0x11, ipv4("192.0.2.7", 1), field(0x03, b"\0\0\0\0")) + REQUEST,
        version_2(0x11, ipv4("192.0.2.7", 1), command=5) + REQUEST,
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=["none", "blank", "line-feed", "long", "length-lies", "length-65535", "checksum", "command", "tls"],
)
def test_other_first_bytes_close_the_connection_without_an_answer(proxied: Callable[..., Running], sent: bytes) -> None:
    server = proxied()
    with Peer.connect(server.host, server.port) as peer:
        peer.send(sent)
        assert peer.read_until_closed() == b""
    server.wait_for(r"closed a connection without an answer: client 127\.0\.0\.1:\d+: ")
    with Peer.connect(server.host, server.port) as peer:
        peer.send(HEADER)
        assert client(ask(peer))[0] == "192.0.2.7"
    # No request was refused: nothing is logged as one.
    assert '" 400 ' not in server.stdout


def test_every_cut_of_a_header_gives_the_same(proxied: Callable[..., Running]) -> None:
    server = proxied()
    long = version_2(0x21, ipv6("2001:db8::7", 4711), field(0x05, b"u" * 100))
    for header, address in [(HEADER, "192.0.2.7"), (long, "2001:db8::7")]:
        for cut in range(1, len(header) + 1, 7):
            with Peer.connect(server.host, server.port) as peer:
                peer.send(header[:cut])
                peer.send(header[cut:])
                assert client(ask(peer))[0] == address


def test_only_named_peers_may_connect(proxied: Callable[..., Running]) -> None:
    server = proxied("--proxy-from", "10.0.0.0/8")
    with Peer.connect(server.host, server.port) as peer:
        assert peer.read_until_closed() == b""
    server.wait_for(r"client 127\.0\.0\.1:\d+: this peer is not among --proxy-from")
    server = proxied("--proxy-from", "127.0.0.0/8")
    with Peer.connect(server.host, server.port) as peer:
        peer.send(HEADER)
        assert client(ask(peer))[0] == "192.0.2.7"


def test_address_without_the_property_reads_no_header(serve: Serve, write_app: Callable[[str], str]) -> None:
    server = serve(f"{write_app(APP)}:app", "-b", "127.0.0.1:0?proxy", "--workers", "2")
    plain, proxied = (address.rpartition(":")[2] for address in server.addresses)
    with Peer.connect("127.0.0.1", int(plain)) as peer:
        peer.send(HEADER + REQUEST)
        assert peer.read_response().status == 400
    with Peer.connect("127.0.0.1", int(plain)) as peer:
        assert client(ask(peer))[0] == "127.0.0.1"
    with Peer.connect("127.0.0.1", int(proxied)) as peer:
        peer.send(HEADER)
        assert client(ask(peer))[0] == "192.0.2.7"


def test_unix_socket_takes_headers_beside_its_mode(
    serve: Serve, write_app: Callable[[str], str], tmp_path: Path
) -> None:
    path = tmp_path / "app.sock"
    bind = f"unix:{path}?mode=600&proxy"
    serve(f"{write_app(APP)}:app", "-b", "127.0.0.1:0", "-b", bind, "--proxy-from", "unix")
    assert path.stat().st_mode & 0o777 == 0o600
    with Peer.connect_unix(path) as peer:
        peer.send(HEADER)
        found = ask(peer)
        assert client(found) == ("192.0.2.7", "56324", "http")
        assert found["kirsch.peer"] == "unix:"


def test_address_of_the_header_is_trusted_or_not(proxied: Callable[..., Running]) -> None:
    """Behind a balancer that speaks the PROXY protocol may stand a proxy that writes X-Forwarded-For."""
    server = proxied("--trusted-proxies", "192.0.2.7")
    for source, expected in [("192.0.2.7", "203.0.113.9"), ("192.0.2.8", "192.0.2.8")]:
        with Peer.connect(server.host, server.port) as peer:
            peer.send(version_2(0x11, ipv4(source, 1)))
            for _ in range(4):
                found = ask(peer, "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https")
                assert client(found)[0] == expected
                assert ("HTTP_X_FORWARDED_FOR" in found) == (source == "192.0.2.7")


def test_property_survives_a_reload(proxied: Callable[..., Running]) -> None:
    server = proxied()
    server.said_at(signal.SIGHUP, "done")
    with Peer.connect(server.host, server.port) as peer:
        peer.send(HEADER)
        assert client(ask(peer))[0] == "192.0.2.7"


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("127.0.0.1:0?prox", "127.0.0.1:0?proxy"),
        ("127.0.0.1:0?mode=660", "127.0.0.1:0?proxy"),
        ("127.0.0.1:0?proxy&x", "127.0.0.1:0?proxy"),
        ("unix:/tmp/x?mode=9&proxy", "three octal digits"),
    ],
)
def test_wrong_property_is_explained(tmp_path: Path, bind: str, message: str) -> None:
    from test_proxies import check

    done = check(tmp_path, "-b", bind)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# --- real load balancers ---------------------------------------------------------------------------------------------


@pytest.fixture
def front(tmp_path: Path) -> Iterator[Callable[[list[str], int], None]]:
    """Start a load balancer in the foreground, and end it afterwards. Returns when its port accepts connections."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = []

    def front(command: list[str], port: int) -> None:
        log = tmp_path / f"front{len(started)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        started.append((process, log))

        def listens() -> bool:
            assert process.poll() is None, log.read_text("utf-8", "replace")
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        wait_until(listens, "the load balancer listens", 30)

    yield front
    for process, log in started:
        process.terminate()
        process.wait(20)
        print(f"---- {log.name}\n{log.read_text('utf-8', 'replace')}")


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        pytest.skip(f"there is no {name}; tests/system_packages.sh installs it")
    return found


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A key with its certificate for the front, and those of a client whom that certificate has signed."""
    openssl = program("openssl")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    name = ["-newkey", "rsa:2048", "-nodes"]
    run("req", "-x509", *name, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=localhost", "-days", "2")
    run("req", *name, "-keyout", "client.key", "-out", "client.csr", "-subj", "/CN=the client")
    signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
    run("x509", "-req", "-in", "client.csr", *signing, "-out", "client.pem")
    both = folder / "front.pem"
    both.write_bytes((folder / "ca.key").read_bytes() + (folder / "ca.pem").read_bytes())
    return both, folder / "client.pem", folder / "client.key"


def fetch(url: str, context: ssl.SSLContext | None = None) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=20, context=context) as response:
        found: dict[str, Any] = json.load(response)
        return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "option", ["send-proxy", "send-proxy-v2", "send-proxy-v2 proxy-v2-options crc32c,unique-id,authority,ssl,cert-cn"]
)
def test_haproxy_passes_its_client_on(
    proxied: Callable[..., Running], front: Callable[[list[str], int], None], tmp_path: Path, option: str
) -> None:
    server = proxied("--health-path", "/healthz", "--proxy-from", "127.0.0.1")
    port = free_port()
    unique = "unique-id-format conn-%pid-%rt\n    unique-id-header X-Unique" if "unique-id" in option else ""
    mode = "http" if unique else "tcp"
    (tmp_path / "haproxy.cfg").write_text(
        f"""
global
    maxconn 100
defaults
    mode {mode}
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend public
    bind 127.0.0.1:{port}
    {unique}
    default_backend kirsch
backend kirsch
    option httpchk GET /healthz
    server one 127.0.0.1:{server.port} {option} check inter 200ms
""",
        encoding="utf-8",
    )
    front([program("haproxy"), "-db", "-f", str(tmp_path / "haproxy.cfg")], port)
    for _ in range(3):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.connect()
        own = connection.sock.getsockname()
        for _ in range(3):
            connection.request("GET", "/")
            found = json.load(connection.getresponse())
            assert found["kirsch.peer"] != f"127.0.0.1:{own[1]}"
            assert client(found) == ("127.0.0.1", str(own[1]), "http")
            if unique:
                assert found["kirsch.proxy"]["unique_id"].startswith("conn-")
        connection.close()
    # Its health checks come with a header too, and none of them is a mistake.
    assert "closed a connection" not in server.stderr


@pytest.mark.slow
def test_haproxy_tells_of_tls_and_of_the_certificate(
    proxied: Callable[..., Running], front: Callable[[list[str], int], None], tmp_path: Path
) -> None:
    server = proxied()
    port = free_port()
    both, certificate, key = certificates(tmp_path)
    (tmp_path / "haproxy.cfg").write_text(
        f"""
global
    maxconn 100
defaults
    mode tcp
    timeout connect 10s
    timeout client 30s
    timeout server 30s
listen public
    bind 127.0.0.1:{port} ssl crt {both} ca-file {tmp_path}/ca.pem verify optional
    server one 127.0.0.1:{server.port} send-proxy-v2-ssl-cn proxy-v2-options ssl,cert-cn,ssl-cipher,authority,crc32c
""",
        encoding="utf-8",
    )
    front([program("haproxy"), "-db", "-f", str(tmp_path / "haproxy.cfg")], port)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    found = fetch(f"https://localhost:{port}/", context)
    assert found["wsgi.url_scheme"] == "https"
    assert found["kirsch.proxy"]["tls_version"].startswith("TLSv1")
    assert found["kirsch.proxy"]["authority"] == "localhost"
    assert found["kirsch.proxy"]["tls_has_certificate"] is False
    context.load_cert_chain(certificate, key)
    found = fetch(f"https://localhost:{port}/", context)
    assert found["kirsch.proxy"]["tls_common_name"] == "the client"
    assert found["kirsch.proxy"]["tls_is_verified"] is True


@pytest.mark.slow
def test_nginx_stream_passes_its_client_on(
    proxied: Callable[..., Running], front: Callable[[list[str], int], None], tmp_path: Path
) -> None:
    executable = program("nginx")
    modules = [
        Path(folder) / "ngx_stream_module.so" for folder in ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules")
    ]
    module = next((path for path in modules if path.exists()), None)
    built = subprocess.run([executable, "-V"], capture_output=True, text=True, timeout=20, check=False).stderr
    if module is None and "--with-stream " not in built:
        pytest.skip("nginx has no stream module here (Debian: libnginx-mod-stream)")
    server = proxied()
    port = free_port()
    (tmp_path / "nginx.conf").write_text(
        f"""
{f"load_module {module};" if module else ""}
daemon off;
pid {tmp_path}/nginx.pid;
events {{ worker_connections 64; }}
stream {{
    server {{
        listen 127.0.0.1:{port};
        proxy_pass 127.0.0.1:{server.port};
        proxy_protocol on;
    }}
}}
""",
        encoding="utf-8",
    )
    front([executable, "-p", str(tmp_path), "-e", f"{tmp_path}/error.log", "-c", str(tmp_path / "nginx.conf")], port)
    with Peer.connect("127.0.0.1", port) as peer:
        own = peer.sock.getsockname()
        for _ in range(3):
            assert client(ask(peer)) == ("127.0.0.1", str(own[1]), "http")
