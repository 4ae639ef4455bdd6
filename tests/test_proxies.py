"""Trusted proxies: who is the client of a request behind one, in the environ, the access log and ``kirsch check``.

What the fields mean is tested case by case in ``crates/wire/tests/forwarded.rs``; here a server runs, and its requests
come from a trusted peer, from a stranger, and through a real nginx.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
from interpreter import ENGINES
from raw import Peer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

APP = """\
    import json

    def app(environ, start_response):
        shown = ("HTTP_", "REMOTE_", "SCRIPT_NAME", "PATH_INFO", "wsgi.url_scheme", "kirsch.peer", "kirsch.proxy")
        found = {name: value for name, value in environ.items() if name.startswith(shown)}
        if "kirsch.proxy" in found:
            found["kirsch.proxy"] = {
                key: value.decode("latin-1") if isinstance(value, bytes) else value
                for key, value in found["kirsch.proxy"].items()
            }
        environ["kirsch.peer"] = environ["REMOTE_ADDR"] = "changed by the application"
        body = json.dumps(found).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]
"""


@pytest.fixture
def proxied(serve: Serve, write_app: Callable[[str], str]) -> Callable[..., Running]:
    def proxied(*arguments: str) -> Running:
        return serve(f"{write_app(APP)}:app", "--access-logfile", "-", *arguments)

    return proxied


def ask(peer: Peer, *lines: str, path: str = "/") -> dict[str, Any]:
    """The variables of a request with these field lines."""
    fields = "".join(f"{line}\r\n" for line in lines)
    peer.send(f"GET {path} HTTP/1.1\r\nHost: app.example\r\n{fields}\r\n".encode("latin-1"))
    response = peer.read_response()
    assert response.status == 200, response
    found: dict[str, Any] = json.loads(response.body)
    return found


def client(found: dict[str, Any]) -> tuple[str, str, str]:
    return found["REMOTE_ADDR"], found["REMOTE_PORT"], found["wsgi.url_scheme"]


def test_client_is_the_first_stranger_from_the_right(proxied: Callable[..., Running]) -> None:
    server = proxied("--trusted-proxies", "127.0.0.1,10.0.0.0/8")
    with Peer.connect(server.host, server.port) as peer:
        address = peer.sock.getsockname()
        found = ask(peer, "X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.3", "X-Forwarded-Proto: https")
        assert client(found) == ("192.0.2.7", "", "https")
        assert found["kirsch.peer"] == f"127.0.0.1:{address[1]}"
        # The fields themselves stay.
        assert found["HTTP_X_FORWARDED_FOR"] == "6.6.6.6, 192.0.2.7, 10.0.0.3"
        assert client(ask(peer, "X-Forwarded-For: [2001:db8::7]:4711")) == ("2001:db8::7", "4711", "http")
        assert client(ask(peer)) == ("127.0.0.1", str(address[1]), "http")
    server.wait_for_output(r"^192\.0\.2\.7 - - ")
    server.wait_for_output(r"^2001:db8::7 - - ")
    server.wait_for_output(r"^127\.0\.0\.1 - - ")


def test_requests_of_one_connection_keep_their_own_clients(proxied: Callable[..., Running]) -> None:
    """Heads that repeat are not read again: the next client's must not get the last one's address, scheme or host."""
    server = proxied("--trusted-proxies", "127.0.0.1", "--forwarded-host", "--forwarded-prefix")
    heads = [
        [f"X-Forwarded-For: {address}", f"X-Forwarded-Proto: {scheme}", f"X-Forwarded-Host: {host}", "Accept: */*"]
        for address in ("192.0.2.1", "192.0.2.2")
        for scheme in ("http", "https")
        for host in ("a.example", "b.example")
    ]
    others = [["Accept: */*"], ["X-Forwarded-Prefix: /shop", "Accept: */*"], ["Forwarded: for=6.6.6.6", "Accept: */*"]]
    with Peer.connect(server.host, server.port) as peer:
        own = peer.sock.getsockname()
        for turn in range(400):
            # Runs of the same head, and changes between them.
            head = heads[turn // 7 % len(heads)] if turn % 11 else heads[turn % len(heads)]
            head = others[turn % 3] if turn % 13 == 0 else head
            given = dict(line.split(": ", 1) for line in head)
            found = ask(peer, *head)
            expected = (
                given.get("X-Forwarded-For", "127.0.0.1"),
                "" if "X-Forwarded-For" in given else str(own[1]),
                given.get("X-Forwarded-Proto", "http"),
            )
            assert client(found) == expected, (turn, head)
            assert found["HTTP_HOST"] == given.get("X-Forwarded-Host", "app.example"), (turn, head)
            assert found["SCRIPT_NAME"] == given.get("X-Forwarded-Prefix", ""), (turn, head)
            assert found["kirsch.peer"] == f"127.0.0.1:{own[1]}"
            assert "HTTP_FORWARDED" not in found


def test_fields_of_a_stranger_are_removed(proxied: Callable[..., Running]) -> None:
    server = proxied("--trusted-proxies", "192.0.2.0/24", "--access-logformat", "%(h)s %({x-forwarded-for}i)s")
    with Peer.connect(server.host, server.port) as peer:
        port = str(peer.sock.getsockname()[1])
        for _ in range(5):
            lines = ["X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https", "X-Real-IP: 192.0.2.7", "Accept: a"]
            found = ask(peer, *lines, "Forwarded: for=192.0.2.7;proto=https")
            assert client(found) == ("127.0.0.1", port, "http")
            assert {name for name in found if name.startswith("HTTP_")} == {"HTTP_HOST", "HTTP_ACCEPT"}
            found = ask(peer, "Accept: b")
            assert {name for name in found if name.startswith("HTTP_")} == {"HTTP_HOST", "HTTP_ACCEPT"}
    server.wait_for_output(r"^127\.0\.0\.1 -$")


def test_nothing_is_read_or_removed_without_proxies(proxied: Callable[..., Running]) -> None:
    server = proxied()
    with Peer.connect(server.host, server.port) as peer:
        port = str(peer.sock.getsockname()[1])
        found = ask(peer, "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: gopher", "Forwarded: x")
        assert client(found) == ("127.0.0.1", port, "http")
        assert found["HTTP_X_FORWARDED_FOR"] == "192.0.2.7"
        assert found["HTTP_FORWARDED"] == "x"
        assert "kirsch.peer" not in found


def test_all_takes_the_last_address_and_never_the_first(proxied: Callable[..., Running]) -> None:
    server = proxied("--forwarded-allow-ips", "*")
    with Peer.connect(server.host, server.port) as peer:
        assert client(ask(peer, "X-Forwarded-For: 6.6.6.6, 192.0.2.7"))[0] == "192.0.2.7"


def test_forwarded_is_read_where_it_is_chosen(proxied: Callable[..., Running]) -> None:
    server = proxied("--trusted-proxies", "127.0.0.1", "--forwarded", "rfc7239", "--forwarded-host")
    with Peer.connect(server.host, server.port) as peer:
        line = 'Forwarded: for="x, for=6.6.6.6, for="[2001:db8::7]:4711";proto=https;host="shop.example"'
        found = ask(peer, line, "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: http", "X-Forwarded-Host: evil.example")
        assert client(found) == ("2001:db8::7", "4711", "https")
        assert found["HTTP_HOST"] == "shop.example"
        assert "HTTP_X_FORWARDED_FOR" not in found
        assert "HTTP_X_FORWARDED_HOST" not in found


def test_host_and_prefix_count_only_by_their_own_settings(proxied: Callable[..., Running]) -> None:
    lines = ["X-Forwarded-Host: shop.example", "X-Forwarded-Prefix: /caf%C3%A9/"]
    server = proxied("--trusted-proxies", "127.0.0.1")
    with Peer.connect(server.host, server.port) as peer:
        found = ask(peer, *lines, path="/menu")
        assert (found["HTTP_HOST"], found["SCRIPT_NAME"], found["PATH_INFO"]) == ("app.example", "", "/menu")
    server = proxied("--trusted-proxies", "127.0.0.1", "--forwarded-host", "--forwarded-prefix")
    with Peer.connect(server.host, server.port) as peer:
        found = ask(peer, *lines, path="/menu")
        assert found["HTTP_HOST"] == "shop.example"
        assert found["SCRIPT_NAME"] == "/café".encode().decode("latin-1")
        assert found["PATH_INFO"] == "/menu"


@pytest.mark.parametrize(
    "lines",
    [
        ["X-Forwarded-Proto: https", "X-Forwarded-Ssl: off"],
        ["X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https, http"],
        ["X-Forwarded-Proto: gopher"],
    ],
)
def test_contradiction_is_refused_and_not_run(proxied: Callable[..., Running], lines: list[str]) -> None:
    server = proxied("--trusted-proxies", "127.0.0.1")
    with Peer.connect(server.host, server.port) as peer:
        fields = "".join(f"{line}\r\n" for line in lines)
        peer.send(f"GET /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
        assert peer.read_response().status == 400
    server.wait_for(r"refused with 400: client 127\.0\.0\.1:\d+, GET /x: .*proxy names the client")


def test_unix_peers_are_trusted_by_name(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "app.sock"
    module = write_app(APP)
    server = serve(f"{module}:app", "-b", "127.0.0.1:0", "-b", f"unix:{path}", "--trusted-proxies", "unix")
    with Peer.connect_unix(path) as peer:
        found = ask(peer, "X-Forwarded-For: 192.0.2.7")
        assert client(found) == ("192.0.2.7", "", "http")
        assert found["kirsch.peer"] == "unix:"
        assert client(ask(peer)) == ("", "", "http")
    with Peer.connect(server.host, server.port) as peer:
        assert client(ask(peer, "X-Forwarded-For: 192.0.2.7"))[0] == "127.0.0.1"


@pytest.mark.parametrize("driver", ["threads", "gevent"])
def test_program_trusts_proxies_by_keyword(driver: str, write_app: Callable[[str], str]) -> None:
    pytest.importorskip("gevent") if driver == "gevent" else None
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"trusted_proxies": "10.0.0.1/8"}, "10.0.0.0/8"),
        ({"trusted_proxies": "example.org"}, "neither an IP address nor a network"),
        ({"proxy_from": "0.0.0.0/0"}, "write all"),
        ({"forwarded": "both"}, "rfc7239"),
    ]
    for given, message in mistakes:
        with pytest.raises(ValueError, match=message):
            kirsch.Server(lambda *_: [], driver=driver, **given)
    kirsch.Server(lambda *_: [], trusted_proxies="10.0.0.0/8,unix", driver=driver).check()


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "hello.py").write_text("def app(environ, start_response): ...\n", encoding="utf-8")
    command = [sys.executable, "-m", "kirsch", "check", *arguments, "hello:app"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_check_shows_who_would_be_the_client_of_a_sample_line(tmp_path: Path) -> None:
    done = check(tmp_path, "--trusted-proxies", "10.0.0.0/8,unix")
    assert done.returncode == 0, done.stderr
    assert "X-Forwarded-For: 198.51.100.99, 203.0.113.7, 10.0.0.0" in done.stdout, done.stdout
    assert "the client is 203.0.113.7" in done.stdout
    done = check(tmp_path, "--trusted-proxies", "192.0.2.1", "--forwarded", "rfc7239")
    assert "Forwarded: for=198.51.100.99, for=203.0.113.7, for=192.0.2.1" in done.stdout, done.stdout
    assert "the client is 203.0.113.7" in done.stdout
    done = check(tmp_path, "--trusted-proxies", "all")
    assert "X-Forwarded-For: 198.51.100.99, 203.0.113.7\n" in done.stdout
    assert "the client is 203.0.113.7" in done.stdout
    assert "Proxies" not in check(tmp_path).stdout


def test_check_warns_of_trust_that_anybody_has(tmp_path: Path) -> None:
    public = check(tmp_path, "--trusted-proxies", "all", "-b", "0.0.0.0:0", "--strict")
    assert "--trusted-proxies: all trusts" in public.stdout
    assert public.returncode == 1
    assert "all trusts" not in check(tmp_path, "--trusted-proxies", "all", "-b", "127.0.0.1:0").stdout
    assert "all trusts" not in check(tmp_path, "--trusted-proxies", "all", "-b", f"unix:{tmp_path}/a.sock").stdout
    assert "claim any address" in check(tmp_path, "-b", "0.0.0.0:0?proxy").stdout
    assert "claim any address" not in check(tmp_path, "-b", "127.0.0.1:0?proxy").stdout
    assert "claim any address" not in check(tmp_path, "-b", "0.0.0.0:0?proxy", "--proxy-from", "10.0.0.1").stdout
    assert "--trusted-proxies" in check(tmp_path, "--forwarded-host").stdout
    assert "no address has ?proxy" in check(tmp_path, "--proxy-from", "10.0.0.1").stdout
    limit = ("--rate-limit", "/login=5/m, /=20/s by=all")
    shared = "all of its clients share one count"
    for bind in ("127.0.0.1:0", f"unix:{tmp_path}/a.sock"):
        assert shared in check(tmp_path, *limit, "-b", bind).stdout
        assert shared not in check(tmp_path, *limit, "-b", bind, "--trusted-proxies", "127.0.0.1,unix").stdout
        assert shared not in check(tmp_path, "--rate-limit", "20/s by=all", "-b", bind).stdout
    for bind in ("0.0.0.0:0", "127.0.0.1:0?proxy", "fastcgi:127.0.0.1:0"):
        assert shared not in check(tmp_path, *limit, "-b", bind).stdout
    prefix = check(tmp_path, "--trusted-proxies", "10.0.0.1", "--forwarded", "rfc7239", "--forwarded-prefix").stdout
    assert "has no prefix" in prefix


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10.0.0.1/8", "write 10.0.0.0/8 for the network"),
        ("localhost", "write 127.0.0.1,::1"),
        ("10.0.0.0/8,*", "write all"),
        ("0.0.0.0/0", "write all"),
        ("10.0.0.0/99", "1 to 32"),
    ],
)
def test_wrong_address_is_explained(tmp_path: Path, value: str, message: str) -> None:
    done = check(tmp_path, "--trusted-proxies", value)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# --- A web server that speaks uwsgi, with a trusted proxy in front of it ---------------------------------------------


def uwsgi(**variables: str) -> bytes:
    """A request as ``uwsgi_pass`` sends it."""
    common = {"REQUEST_METHOD": "GET", "REQUEST_URI": "/", "PATH_INFO": "/", "SERVER_PROTOCOL": "HTTP/1.1"}
    pairs = b"".join(
        struct.pack("<H", len(part)) + part.encode("latin-1")
        for name, value in {**common, "HTTP_HOST": "app.example", **variables}.items()
        for part in (name, value)
    )
    return struct.pack("<BHB", 0, len(pairs), 0) + pairs


def ask_uwsgi(server: Running, request: bytes) -> dict[str, Any]:
    port = int(server.addresses[-1].rpartition(":")[2])
    with Peer.connect("127.0.0.1", port) as peer:
        peer.send(request)
        head, _, body = peer.read_until_closed().partition(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], head
    found: dict[str, Any] = json.loads(body)
    return found


def test_web_server_passes_on_what_its_trusted_proxy_says(proxied: Callable[..., Running]) -> None:
    server = proxied("-b", "uwsgi:127.0.0.1:0", "--trusted-proxies", "10.0.0.0/8")
    fields = {
        "HTTP_X_FORWARDED_FOR": "6.6.6.6, 192.0.2.7",
        "HTTP_X_FORWARDED_PROTO": "https",
        "HTTP_FORWARDED": "for=6.6.6.6",
    }
    found = ask_uwsgi(server, uwsgi(REMOTE_ADDR="10.0.0.1", REMOTE_PORT="5", **fields))
    assert client(found) == ("192.0.2.7", "", "https")
    assert found["kirsch.peer"].startswith("127.0.0.1:")
    assert "HTTP_FORWARDED" not in found
    # The web server's client is a stranger, whose fields are not read.
    found = ask_uwsgi(server, uwsgi(REMOTE_ADDR="192.0.2.9", REMOTE_PORT="5", HTTPS="on", **fields))
    assert client(found) == ("192.0.2.9", "5", "https")
    assert not {"HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO"} & found.keys()
    server.wait_for_output(r"^192\.0\.2\.7 - - ")
    server.wait_for_output(r"^192\.0\.2\.9 - - ")


def test_header_of_the_proxy_protocol_comes_before_any_protocol(proxied: Callable[..., Running]) -> None:
    server = proxied("-b", "uwsgi:127.0.0.1:0?proxy")
    header = b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n"
    found = ask_uwsgi(server, header + uwsgi(REMOTE_ADDR="192.0.2.9", REMOTE_PORT="5"))
    assert client(found) == ("192.0.2.9", "5", "http")
    port = int(server.addresses[-1].rpartition(":")[2])
    with Peer.connect("127.0.0.1", port) as peer:
        peer.send(uwsgi(REMOTE_ADDR="192.0.2.9"))
        assert peer.read_until_closed() == b""


# --- Names that frameworks take for those of forwarding fields -------------------------------------------------------

STRANGE = [
    "X_Forwarded_Proto: https",
    "X-Forwarded_Proto: https",
    "x_forwarded_proto: https",
    "X_Forwarded_For: 6.6.6.6",
    "X_Real_IP: 6.6.6.6",
    "Front_End_Https: on",
]


SCOPE = """\
    import json

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            return
        names = json.dumps([scope["scheme"], scope["client"][0], *(name.decode() for name, _ in scope["headers"])])
        if scope["type"] == "websocket":
            kind, status = "websocket.http.response", 403
        else:
            kind, status = "http.response", 200
        await send({"type": f"{kind}.start", "status": status, "headers": []})
        await send({"type": f"{kind}.body", "body": names.encode()})
"""


@pytest.mark.parametrize("mount", [[], ["--mount=/wsgi=wsgi:{module}:wsgi", "--mount=/=asgi:{module}:app"]])
def test_asgi_scope_has_no_forwarding_field_in_any_spelling(
    serve: Serve, write_app: Callable[[str], str], mount: list[str]
) -> None:
    module = write_app(
        SCOPE + textwrap.indent("\ndef wsgi(environ, start_response):\n    raise AssertionError\n", "    ")
    )
    places = [each.format(module=module) for each in mount] or [f"{module}:app"]
    server = serve(*places, "--trusted-proxies", "192.0.2.0/24")
    fields = [*STRANGE, "X_Remote_User: admin", "X-Remote-User: guest", "X_Other: kept"]
    expected = ["http", "127.0.0.1", "host", "x-remote-user", "x_other"]
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    with Peer.connect(server.host, server.port) as peer:
        for _ in range(3):
            assert list(ask(peer, *fields)) == expected
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        lines = "".join(f"{line}\r\n" for line in [*upgrade, key, *fields])
        peer.send(f"GET / HTTP/1.1\r\nHost: app.example\r\n{lines}\r\n".encode())
        names = json.loads(peer.read_response().body)
        assert names[0] == "ws"
        assert {name for name in names[2:] if "_" in name} == {"x_other"}
        assert "x-remote-user" in names


def test_variables_in_other_spellings_pose_as_no_field(proxied: Callable[..., Running]) -> None:
    """Frameworks read HTTP_x_forwarded_proto and HTTP_X-FORWARDED-PROTO under the name X-Forwarded-Proto."""
    server = proxied("-b", "uwsgi:127.0.0.1:0", "--trusted-proxies", "10.0.0.0/8")
    odd = {"HTTP_x_forwarded_proto": "https", "HTTP_X-FORWARDED-FOR": "6.6.6.6", "HTTP_proxy": "http://6.6.6.6"}
    for address in ("10.0.0.1", "192.0.2.9"):
        found = ask_uwsgi(server, uwsgi(REMOTE_ADDR=address, **odd))
        assert {name for name in found if name.startswith("HTTP_")} == {"HTTP_HOST"}


# --- Who may speak to an address for web servers ---------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
def test_address_for_web_servers_that_others_reach_is_warned_of(
    tmp_path: Path, serve: Serve, write_app: Callable[[str], str], protocol: str
) -> None:
    said = f"{protocol}:0.0.0.0:0 believes everybody who can connect"
    done = check(tmp_path, "-b", f"{protocol}:0.0.0.0:0", "--strict")
    assert said in done.stdout
    assert "--trusted-proxies" in done.stdout
    assert done.returncode == 1
    assert "believes everybody" in check(tmp_path, "-b", f"{protocol}:0.0.0.0:0", "--trusted-proxies", "all").stdout
    for quiet in (
        ["-b", f"{protocol}:127.0.0.1:0"],
        ["-b", f"{protocol}:unix:{tmp_path}/a.sock"],
        ["-b", "0.0.0.0:0"],
        ["-b", f"{protocol}:0.0.0.0:0", "--trusted-proxies", "10.0.0.0/8"],
        ["-b", f"{protocol}:0.0.0.0:0?proxy", "--proxy-from", "10.0.0.1"],
    ):
        assert "believes everybody" not in check(tmp_path, *quiet).stdout, quiet
    server = serve(f"{write_app(APP)}:app", "-b", "127.0.0.1:0", "-b", f"{protocol}:0.0.0.0:0")
    server.wait_for(rf"\[WARNING\] {protocol}:0\.0\.0\.0:\d+ believes everybody who can connect")
    assert server.stop() == 0
    assert server.stderr.count("believes everybody") == 1, "once, and not by each worker"


def test_only_trusted_peers_speak_to_an_address_for_web_servers(proxied: Callable[..., Running]) -> None:
    """The header of the PROXY protocol gives the peer an address that this machine does not have."""
    server = proxied("-b", "uwsgi:127.0.0.1:0?proxy", "-b", "uwsgi:127.0.0.1:0", "--trusted-proxies", "10.0.0.0/8")
    request = uwsgi(REMOTE_ADDR="192.0.2.9", REMOTE_PORT="5", HTTPS="on")
    # A web server on this machine needs no mention.
    assert client(ask_uwsgi(server, request)) == ("192.0.2.9", "5", "https")
    port = int(server.addresses[-2].rpartition(":")[2])

    def answer(address: str) -> bytes:
        with Peer.connect("127.0.0.1", port) as peer:
            peer.send(f"PROXY TCP4 {address} 10.0.0.2 1 2\r\n".encode() + request)
            return peer.read_until_closed()

    assert b" 200 " in answer("10.0.0.1")
    for _ in range(20):
        assert answer("203.0.113.5") == b""
    server.wait_for(r"closed a connection without an answer: client [\d.:]+: this peer is not among --trusted-proxies")
    assert b" 200 " in answer("10.0.0.1")
    assert server.stop() == 0
    lines = server.stderr.count("client ")
    assert 1 <= lines <= ENGINES, "the log has one line of them, and how many more there were"
    more = re.findall(r"and (\d+) more connections? w\w+ closed without an answer", server.stderr)
    assert lines + sum(map(int, more)) == 20


def test_stranger_is_closed_at_once_at_an_address_for_web_servers(proxied: Callable[..., Running]) -> None:
    """With an address of this machine that is not a loopback one, if it has any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but its loopback one")
        own = sock.getsockname()[0]
    server = proxied("-b", f"fastcgi:{own}:0", "--trusted-proxies", "203.0.113.0/24")
    with Peer.connect(own, int(server.addresses[-1].rpartition(":")[2])) as peer:
        assert peer.read_until_closed() == b"", "closed before it has sent anything"
    server.wait_for(rf"client {re.escape(own)}:\d+: this peer is not among --trusted-proxies")
