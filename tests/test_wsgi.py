"""PEP 3333 to the letter, seen from both sides: what the application gets, and what of its answer reaches the wire.

The application is ``wsgi_app.py``; ``probes`` in names are the rows in which other servers are known to fail.
The file is long because it follows the sections of PEP 3333, each sentence with a case.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pytest

import wsgi_app
from interpreter import FREES_AT_ONCE
from proc import open_files, rss, settled, wait_until
from raw import Peer, PeerClosed, Response, build_request, exchange
from running import Running, start

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from running import Serve

SEED = 20_261_120
MIB = 1 << 20
SECRET = "never-in-an-environ"


@pytest.fixture(scope="module")
def site() -> Iterator[Running]:
    """One server for all tests of this file: what a request leaves behind, the next test meets."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    site = start(
        "wsgi_app:app",
        ["--write-timeout", "20s"],
        env={"PYTHONPATH": path, "KIRSCH_TEST_SECRET": SECRET},
    )
    yield site
    complaints = site.finish()
    print(f"---- standard error ----\n{site.stderr}")
    assert complaints == []


def get(site: Running, target: str, **options: Any) -> Response:
    """The response to a GET (or what ``options`` of ``build_request`` say) on a connection of its own."""
    return exchange(site.host, site.port, build_request(options.pop("method", "GET"), target, **options))


def get_json(site: Running, target: str, **options: Any) -> Any:
    response = get(site, target, **options)
    assert response.status == 200, response
    return json.loads(response.body)


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port)


def count(site: Running, what: str, name: str) -> int:
    """How often close() was called (``closed``), or a block asked for (``produced``), under ``name``."""
    return int(get_json(site, "/counts")[what].get(name, 0))


def assert_closed_once(site: Running, name: str) -> None:
    wait_until(lambda: count(site, "closed", name) > 0, f"close() of {name} is called")
    assert count(site, "closed", name) == 1


def chunked(body: bytes, seed: int = SEED) -> bytes:
    """``body`` as chunks of seeded random sizes, with an extension here and there and a trailer."""
    sizes = random.Random(seed)
    wire, at = bytearray(), 0
    most = max(8, len(body) // 40)
    while at < len(body):
        chunk = body[at : at + sizes.randint(1, most)]
        extension = b";name=value" if sizes.random() < 0.1 else b""
        wire += b"%x%s\r\n%s\r\n" % (len(chunk), extension, chunk)
        at += len(chunk)
    return bytes(wire) + b"0\r\nX-Trailer: dropped\r\n\r\n"


def post(target: str, body: bytes, framing: str = "length") -> bytes:
    if framing == "length":
        return build_request("POST", target, body=body)
    return build_request("POST", target, headers={"Transfer-Encoding": "chunked"}) + chunked(body)


# wsgi.input

LINES = b"a\nbb\nccc\n"


def text_of(size: int) -> bytes:
    """``size`` bytes of lines: some empty, some long, some ended by CRLF, the last one not ended at all."""
    words = random.Random(SEED)
    lines = bytearray()
    while len(lines) < size:
        lines += words.randbytes(words.choice([0, 0, 1, 20, 200, 5000])).replace(b"\n", b"-")
        lines += words.choice([b"\n", b"\r\n"])
    return bytes(lines[: size - 1]).rstrip(b"\n").ljust(size, b".")


BODIES = {"nothing": b"", "lines": LINES, "small": text_of(700), "300 KB": text_of(300_000), "3 MB": text_of(3_000_000)}


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", BODIES)
def test_the_input_reads_like_a_file(site: Running, framing: str, size: str) -> None:
    print("seed", SEED)
    body = BODIES[size]
    with connect(site) as peer:
        for style, reading in wsgi_app.READINGS.items():
            peer.send(post(f"/read?{style}", body, framing))
            response = peer.read_response()
            assert (response.status, style) == (200, style), site.stderr[-2000:]
            assert json.loads(response.body) == wsgi_app.digest(reading(io.BytesIO(body))), style


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_probe_readline_four_times(site: Running, framing: str) -> None:
    with connect(site) as peer:
        peer.send(post("/read?readline_four_times", LINES, framing))
        assert json.loads(peer.read_response().body) == ["a\n", "bb\n", "ccc\n", ""]
        peer.send(post("/read?iterate", LINES, framing))
        assert json.loads(peer.read_response().body) == ["a\n", "bb\n", "ccc\n"]


def test_a_request_without_a_body_has_an_input_at_its_end(site: Running) -> None:
    log = len(site.stderr)
    for style, reading in wsgi_app.READINGS.items():
        response = get_json(site, f"/read?{style}")
        assert response == wsgi_app.digest(reading(io.BytesIO())), style
    get(site, "/hello")
    # No message of a wrapper around the input when it is freed ("Exception ignored in …").
    assert site.stderr[log:] == ""


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("size", ["small", "300 KB", "3 MB"])
def test_a_body_that_nobody_reads_is_not_the_next_request(site: Running, framing: str, size: str) -> None:
    body = BODIES[size]
    with connect(site) as peer:
        peer.send(post("/hello", body, framing) + post("/echo", b"second"))
        assert peer.read_response().body == b"Hello"
        assert peer.read_response().body == b"second"


def test_a_body_arrives_whole_however_it_is_cut(site: Running) -> None:
    print("seed", SEED)
    cuts = random.Random(SEED)
    body = cuts.randbytes(3000)
    for framing in ("length", "chunked"):
        request = post("/echo", body, framing)
        with connect(site) as peer:
            at = 0
            while at < len(request):
                size = cuts.choice([1, 2, 3, 50, 700])
                peer.send(request[at : at + size])
                at += size
            assert peer.read_response().body == body


def test_a_body_in_a_file_leaves_no_descriptor(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/hello"))
        peer.read_response()
        before = open_files(site.server_pid)
        for target in ("/hello", "/read?readline", "/hello"):
            peer.send(post(target, BODIES["3 MB"]) + build_request("GET", "/hello"))
            assert peer.read_response().status == 200
            peer.read_response()
        assert open_files(site.server_pid) <= before  # fewer, where connections of other tests have ended meanwhile


def test_a_body_in_a_file_leaves_no_warning(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes the files that it opened: ``python -X dev`` must not blame the application."""
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.abspath(__file__)), prepend=os.pathsep)
    site = serve("wsgi_app:app", env={"PYTHONWARNINGS": "always::ResourceWarning"})
    for target in ("/hello", "/read?readline"):
        assert exchange(site.host, site.port, post(target, BODIES["3 MB"])).status == 200
    assert site.stop() == 0
    assert "ResourceWarning" not in site.stderr


# environ


def test_environ_has_all_that_the_pep_asks_for(site: Running) -> None:
    with connect(site) as peer:
        host, port = peer.sock.getsockname()
        peer.send(build_request("GET", "/environ/a?b=c&d", headers={"Accept": "text/html", "User-Agent": "probe"}))
        answer = json.loads(peer.read_response().body)
    assert answer["class"] == "builtins.dict"
    assert answer["values"] == {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/environ/a",
        "QUERY_STRING": "b=c&d",
        "RAW_URI": "/environ/a?b=c&d",
        "REQUEST_URI": "/environ/a?b=c&d",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": str(site.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_SOFTWARE": answer["values"]["SERVER_SOFTWARE"],
        "GATEWAY_INTERFACE": "CGI/1.1",
        "REMOTE_ADDR": host,
        "REMOTE_PORT": str(port),
        "HTTP_HOST": "127.0.0.1",
        "HTTP_ACCEPT": "text/html",
        "HTTP_USER_AGENT": "probe",
        "wsgi.version": [1, 0],
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }
    assert re.fullmatch(r"kirsch/[0-9]+\.[0-9]+\.[0-9]+\S*", answer["values"]["SERVER_SOFTWARE"])
    others = set(answer["types"]) - set(answer["values"])
    assert others == {"wsgi.input", "wsgi.errors", "wsgi.file_wrapper", "kirsch.disconnected"}
    text = {key for key, kind in answer["types"].items() if not key.startswith(("wsgi.", "kirsch.")) and kind != "str"}
    assert text == set(), "CGI variables are of type str exactly"


def test_environ_of_a_body(site: Running) -> None:
    values = get_json(site, "/environ", method="POST", body=b"12345", headers={"Content-Type": "a/b"})["values"]
    assert (values["CONTENT_LENGTH"], values["CONTENT_TYPE"]) == ("5", "a/b")
    assert not {"HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"} & set(values)
    for body, length in ((b"", "0"), (b"12345", "5"), (BODIES["3 MB"], "3000000")):
        response = exchange(site.host, site.port, post("/environ", body, "chunked"))
        values = json.loads(response.body)["values"]
        assert values["CONTENT_LENGTH"] == length
        assert not {key for key in values if "TRANSFER_ENCODING" in key or "TRAILER" in key}


def test_nothing_of_the_process_environment_is_in_environ(site: Running) -> None:
    values = get_json(site, "/environ")["values"]
    assert SECRET not in str(values)
    assert not {"PATH", "HOME", "PYTHONPATH", "PYTHONFAULTHANDLER"} & set(values)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/environ/plain", "/environ/plain", ""),
        ("/environ/?", "/environ/", ""),
        ("/environ/a%2Fb%2fc", "/environ/a/b/c", ""),
        ("/environ/%00%0D%0A", "/environ/\0\r\n", ""),
        ("/environ/%C3%BC", "/environ/\xc3\xbc", ""),
        ("/environ/%FF", "/environ/\xff", ""),
        ("/environ/\xc3\xbc", "/environ/\xc3\xbc", ""),
        ("/environ/%zz%4%", "/environ/%zz%4%", ""),
        ("/environ/%2525", "/environ/%25", ""),
        ("/environ/%3Fno=query?real=query", "/environ/?no=query", "real=query"),
        ("/environ/a?b%20c+d?e%2F%zz\xff", "/environ/a", "b%20c+d?e%2F%zz\xff"),
        ("/environ/a;b/../c//d/.", "/environ/a;b/../c//d/.", ""),
        ("/environ/+", "/environ/+", ""),
    ],
)
def test_targets_become_path_and_query(site: Running, target: str, path: str, query: str) -> None:
    values = get_json(site, target)["values"]
    assert (values["PATH_INFO"], values["QUERY_STRING"]) == (path, query)
    assert values["RAW_URI"] == values["REQUEST_URI"] == target


def test_an_absolute_target_overrides_host(site: Running) -> None:
    with connect(site) as peer:
        # Before, between and after requests whose header block is the same to the byte.
        for target, path, host in (
            ("/environ/1", "/environ/1", "from.header"),
            ("http://from.target:81/environ/2?q", "/environ/2", "from.target:81"),
            ("/environ/3", "/environ/3", "from.header"),
            ("HTTP://from.target/environ/4", "/environ/4", "from.target"),
            ("/environ/5", "/environ/5", "from.header"),
        ):
            peer.send(build_request("GET", target, host="from.header"))
            values = json.loads(peer.read_response().body)["values"]
            assert (values["PATH_INFO"], values["HTTP_HOST"], values["RAW_URI"]) == (path, host, target)


def test_no_field_says_who_the_client_is(site: Running) -> None:
    """Trust in a proxy is decided in the application, or later by a setting; by default no proxy is trusted."""
    claims = {
        "Forwarded": "for=192.0.2.1;proto=https;host=evil.example",
        "X-Forwarded-For": "192.0.2.1",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "evil.example",
        "X-Real-IP": "192.0.2.1",
        "X-Client-IP": "192.0.2.1",
        "Script-Name": "/evil",
    }
    with connect(site) as peer:
        peer.send(build_request("GET", "/environ", headers=claims))
        values = json.loads(peer.read_response().body)["values"]
    assert (values["REMOTE_ADDR"], values["wsgi.url_scheme"], values["SCRIPT_NAME"]) == ("127.0.0.1", "http", "")
    assert values["SERVER_NAME"] == "127.0.0.1"


def test_fields_become_variables(site: Running) -> None:
    fields = [
        ("X-One", "1"),
        ("x-many", "a"),
        ("X-Many", "b, c"),
        ("X-MANY", ""),
        ("Cookie", "a=1"),
        ("cookie", "b=2; c=3"),
        ("X-Spaces", " \t in  between \t "),
        ("X-Latin", "caf\xe9 \xa0\xff"),
        ("X-Utf8", "caf\xc3\xa9"),
        ("X-Empty", ""),
        ("X_Under", "dropped"),
        ("X-Under_Score", "dropped"),
        ("Proxy", "http://evil.example"),
        ("pRoXy", "http://evil.example"),
        ("Proxy-Connection", "kept"),
        ("Upgrade", "websocket"),
        ("!#$%&'*+.^`|~", "token"),
        ("Content_Length", "999"),
    ]
    with connect(site) as peer:
        peer.send(build_request("GET", "/environ", headers=fields) * 3)
        for _ in range(3):
            values = json.loads(peer.read_response().body)["values"]
            assert {key: value for key, value in values.items() if key.startswith("HTTP_")} == {
                "HTTP_HOST": "127.0.0.1",
                "HTTP_X_ONE": "1",
                "HTTP_X_MANY": "a,b, c,",
                "HTTP_COOKIE": "a=1; b=2; c=3",
                "HTTP_X_SPACES": "in  between",
                "HTTP_X_LATIN": "caf\xe9 \xa0\xff",
                "HTTP_X_UTF8": "caf\xc3\xa9",
                "HTTP_X_EMPTY": "",
                "HTTP_PROXY_CONNECTION": "kept",
                "HTTP_UPGRADE": "websocket",
                "HTTP_!#$%&'*+.^`|~": "token",
            }
            assert "CONTENT_LENGTH" not in values


def test_host_is_what_the_client_sent(site: Running) -> None:
    assert get_json(site, "/environ", host="example.com:8080")["values"]["HTTP_HOST"] == "example.com:8080"
    values = get_json(site, "/environ", version="HTTP/1.0")["values"]
    assert "HTTP_HOST" not in values
    assert values["SERVER_PROTOCOL"] == "HTTP/1.0"
    assert values["SERVER_NAME"], "PEP 3333: never empty"


def test_each_request_has_an_environ_of_its_own(site: Running) -> None:
    """The same head five times, and each time the application spoils its environ."""
    fields = {"X-Mark": "kept", "Accept": "*/*", "Cookie": "a=b"}
    for request in (
        build_request("GET", "/vandal?q=1", headers=fields),
        post("/vandal?q=2", b"body"),
        post("/vandal?q=3", b"body", "chunked"),
        build_request("GET", "/vandal?q=4", version="HTTP/1.0", headers={"Connection": "keep-alive"}),
        build_request("GET", "http://example.com/vandal?q=5", headers=fields),
    ):
        with connect(site) as peer:
            answers = []
            for _ in range(5):
                peer.send(request)
                answers.append(json.loads(peer.read_response().body))
        assert answers[0]["REQUEST_METHOD"] in ("GET", "POST")
        assert answers[0]["PATH_INFO"] == "/vandal"
        assert answers[1:] == answers[:1] * 4
        assert "spoiled" not in str(answers)


def test_a_repeated_block_with_another_request_line(site: Running) -> None:
    """The server may keep the fields of one request for the next, but not its first line."""
    print("seed", SEED)
    order = random.Random(SEED)
    fields = {"Accept": "*/*", "User-Agent": "the same"}
    with connect(site) as peer:
        for number in range(200):
            method = order.choice(["GET", "OPTIONS", "DELETE", "GET", "BREW"])
            version = order.choice(["HTTP/1.1", "HTTP/1.1", "HTTP/1.0"])
            query = order.choice(["", f"?q={number}", "?same"])
            target = order.choice([f"/environ/{order.randrange(3)}", "/environ/a%20b", f"/environ/{number}"]) + query
            headers = {"Host": "a.example", "Connection": "keep-alive", **fields}
            peer.send(build_request(method, target, version=version, headers=headers))
            values = json.loads(peer.read_response(method).body)["values"]
            assert values["REQUEST_METHOD"] == method
            assert values["RAW_URI"] == target
            assert values["QUERY_STRING"] == query[1:]
            assert values["PATH_INFO"] == target.partition("?")[0].replace("%20", " ")
            assert values["SERVER_PROTOCOL"] == version
            assert (values["HTTP_HOST"], values["HTTP_USER_AGENT"]) == ("a.example", "the same")


def test_environ_of_a_kept_connection_is_that_of_a_new_one_when_some_fields_change(site: Running) -> None:
    """Requests on one connection differ in some fields, sometimes in which there are; each is sent on a new one too."""
    print("seed", SEED)
    order = random.Random(SEED)
    choices = {
        "X-Request-Id": lambda: str(order.randrange(1000)),
        "Cookie": lambda: f"a={order.randrange(3)}",
        "Referer": lambda: order.choice(["", "/one", "/two"]),
        "X_Dropped": lambda: order.choice(["x", "y"]),
        "Proxy": lambda: order.choice(["x", "y"]),
        "Accept": lambda: order.choice(["*/*", "text/html"]),
        "Content-Type": lambda: order.choice(["text/plain", "text/html"]),
        "Host": lambda: order.choice(["a.example", "a.example", "b.example"]),
    }
    names = list(choices)
    with connect(site) as peer:
        lines = [f"{name}: {choices[name]()}" for name in names]
        for number in range(300):
            for _ in range(order.randrange(3)):
                place = order.randrange(len(lines))
                name = lines[place].partition(":")[0]
                lines[place] = f"{name}: {choices[name]()}"
            if order.random() < 0.1:
                place = order.randrange(len(lines))
                if lines[place].startswith("Host"):
                    pass
                elif order.random() < 0.5:
                    del lines[place]
                else:
                    name = lines[place].partition(":")[0]  # comes twice from now on
                    lines.insert(place, f"{name}: {choices[name]()}")
            target = f"/environ?{number % 7}"
            request = "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode()
            peer.send(request)
            kept = json.loads(peer.read_response().body)["values"]
            with connect(site) as newcomer:
                newcomer.send(request)
                new = json.loads(newcomer.read_response().body)["values"]
            kept.pop("REMOTE_PORT"), new.pop("REMOTE_PORT")
            assert kept == new, lines


def test_nothing_of_one_visitor_reaches_another(site: Running) -> None:
    """Many connections, interleaved, with lines that differ only in their ends."""
    peers = [connect(site) for _ in range(20)]
    try:
        for turn in range(5):
            for number, peer in enumerate(peers):
                fields = {"Cookie": f"id={number}", "X-Number": f"{number % 4}", f"X-Only-{number}": "x"}
                peer.send(build_request("GET", f"/environ?{turn}", headers=fields))
            for number, peer in enumerate(peers):
                values = json.loads(peer.read_response().body)["values"]
                assert (values["HTTP_COOKIE"], values["HTTP_X_NUMBER"]) == (f"id={number}", f"{number % 4}")
                assert [key for key in values if "ONLY" in key] == [f"HTTP_X_ONLY_{number}"]
                assert values["REMOTE_PORT"] == str(peer.sock.getsockname()[1])
    finally:
        for peer in peers:
            peer.close()


def test_other_kinds_of_sockets(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(os.path.abspath(__file__)), prepend=os.pathsep)
    path = tmp_path / "kirsch.sock"
    binds = ["--bind", f"unix:{path}"]
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            print("this machine has no IPv6: only the Unix socket is tested")
        else:
            binds += ["--bind", "[::1]:0"]
    site = serve("wsgi_app:app", *binds)
    with Peer.connect_unix(path) as peer:
        peer.send(build_request("GET", "/environ"))
        values = json.loads(peer.read_response().body)["values"]
        assert (values["REMOTE_ADDR"], values["REMOTE_PORT"]) == ("", "")
        assert values["SERVER_NAME"]
        assert values["SERVER_PORT"].isdigit()
        assert values["HTTP_HOST"] == "127.0.0.1"
    if len(site.addresses) > 2:
        port = int(site.addresses[2].rpartition(":")[2])
        with Peer.connect("::1", port) as peer:
            peer.send(build_request("GET", "/environ", host=f"[::1]:{port}"))
            values = json.loads(peer.read_response().body)["values"]
            assert (values["SERVER_NAME"], values["SERVER_PORT"]) == ("::1", str(port))
            assert (values["REMOTE_ADDR"], values["REMOTE_PORT"]) == ("::1", str(peer.sock.getsockname()[1]))
            assert values["HTTP_HOST"] == f"[::1]:{port}"


def test_wsgi_errors_is_the_log(site: Running) -> None:
    log = len(site.stderr)
    assert get(site, "/errors").body == b"Hello"
    site.wait_for("^one for the log: snow \N{SNOWMAN}\ntwo for the log\nthree for the log$", after=log)


@pytest.mark.slow
def test_names_and_paths_without_number_do_not_fill_memory(site: Running) -> None:
    def send(begin: int, end: int) -> None:
        """Names, values and paths that no other request has, each head twice so that it is worth remembering."""
        with connect(site) as peer:
            for number in range(begin, end, 50):
                fields = [
                    (f"X-Name-{number + field}-{'n' * 80}", f"{number + field}" + "v" * 80) for field in range(50)
                ]
                requests = [build_request("GET", f"/environ/{number + path}{'p' * 80}?{number}") for path in range(50)]
                peer.send(build_request("GET", "/hello", headers=fields) * 2 + b"".join(requests) * 2)
                for _ in range(102):
                    assert peer.read_response().status == 200

    send(0, 2000)
    before = rss(site.server_pid)
    send(2000, 22_000)
    grown = rss(site.server_pid) - before
    print(f"20,000 names and paths: {grown} bytes more")
    # Kept whole they would be far more than 10 MiB.
    assert grown < 2 * MIB


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


# wsgi.file_wrapper


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 MB that repeat nowhere."""
    path = tmp_path_factory.mktemp("files") / "large"
    path.write_bytes(random.Random(SEED).randbytes(50_000_000))
    return path


def ask_for_file(kind: str, path: Path, length: int | None = None, method: str = "POST") -> bytes:
    return build_request(method, "/file", body=json.dumps([kind, str(path), length]).encode())


@pytest.mark.parametrize("kind", ["buffered", "raw", "from an offset", "temporary"])
def test_a_file_is_sent_whole(site: Running, large_file: Path, kind: str) -> None:
    data = large_file.read_bytes()[10 if kind == "from an offset" else 0 :]
    before, produced = rss(site.server_pid), len(data)
    with connect(site) as peer:
        peer.send(ask_for_file(kind, large_file))
        response = peer.read_response(timeout=60)
        assert (response.status, response.framing) == (200, "length")
        assert response.header("Content-Length") == str(produced)
        assert response.body == data
        peer.send(build_request("GET", "/file_closed"))
        assert peer.read_response().body == b"true"
    if kind != "temporary":  # which the application reads as a whole
        assert rss(site.server_pid) - before < 16 * MIB, "the file was read into memory"


@pytest.mark.parametrize("kind", ["buffered", "subclass", "reader", "bytes"])
def test_a_file_ends_where_its_length_says(site: Running, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 1000)
    with connect(site) as peer:
        peer.send(ask_for_file(kind, path, 100_001) + build_request("GET", "/hello"))
        response = peer.read_response()
        assert (response.header("Content-Length"), response.complete) == ("100001", True)
        assert response.body == path.read_bytes()[:100_001]
        assert peer.read_response().body == b"Hello"


def test_file_that_is_shorter_than_its_length_is_a_500(site: Running, tmp_path: Path) -> None:
    log = len(site.stderr)
    path = tmp_path / "file"
    path.write_bytes(b"only this")
    response = exchange(site.host, site.port, ask_for_file("buffered", path, 100))
    assert (response.status, response.complete) == (500, True)
    site.wait_for(r"shorter than its Content-Length \(declared: 100 bytes; produced: 9\), on POST /file", after=log)


@pytest.mark.parametrize("kind", ["subclass", "reader", "no close", "bytes", "gzip"])
def test_a_file_like_object_is_read(site: Running, tmp_path: Path, kind: str) -> None:
    """GzipFile has a fileno(), of the compressed file: what is sent is what read() returns."""
    path = tmp_path / "file"
    data = random.Random(SEED).randbytes(300_000)
    path.write_bytes(gzip.compress(data) if kind == "gzip" else data)
    response = exchange(site.host, site.port, ask_for_file(kind, path))
    assert (response.status, response.framing, response.complete) == (200, "chunked", True)
    assert response.body == data
    if kind in ("reader", "subclass"):
        assert_closed_once(site, str(path))


@pytest.mark.parametrize("kind", ["buffered", "bytes"])
def test_an_empty_file(site: Running, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.touch()
    response = exchange(site.host, site.port, ask_for_file(kind, path))
    assert (response.status, response.header("Content-Length"), response.body) == (200, "0", b"")


def test_a_text_file_is_refused(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    log = len(site.stderr)
    assert exchange(site.host, site.port, ask_for_file("text", path)).status == 500
    site.wait_for("^TypeError: .*bytes.*not str", after=log)


@pytest.mark.parametrize("length", [None, 9])
def test_head_of_a_file_is_its_head(site: Running, tmp_path: Path, length: int | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ninebytes")
    with connect(site) as peer:
        peer.send(ask_for_file("buffered", path, length, method="HEAD") + build_request("GET", "/file_closed"))
        response = peer.read_response("HEAD")
        assert response.status == 200
        assert response.header("Content-Length") in (None if length is None else "9", "9")
        assert peer.read_response().body == b"true"


def test_a_file_to_http_1_0_has_its_length(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ninebytes")
    body = json.dumps(["buffered", str(path), None]).encode()
    response = get(site, "/file", method="POST", body=body, version="HTTP/1.0")
    assert (response.framing, response.body) == ("length", b"ninebytes")


def test_a_file_after_write(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"then the file")
    response = get(site, "/file_after_write", method="POST", body=str(path).encode())
    assert (response.body, response.complete) == (b"written first, then the file", True)


def test_the_wrapper_is_an_iterator_for_every_caller(site: Running, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc" * 1000)
    response = get(site, "/file_by_hand", method="POST", body=str(path).encode())
    assert response.body == b"ABC" * 1000


def test_a_client_that_goes_while_a_file_is_sent(site: Running, large_file: Path) -> None:
    log = len(site.stderr)
    before = open_files(site.server_pid)
    for _ in range(3):
        peer = connect(site)
        peer.send(ask_for_file("buffered", large_file))
        peer.read_head()
        peer.abort()
    get(site, "/file_closed")
    wait_until(lambda: open_files(site.server_pid) <= before, "the files and connections are closed")
    assert "Traceback" not in site.stderr[log:]


def test_a_file_that_shrinks_while_it_is_sent_is_cut(site: Running, tmp_path: Path) -> None:
    log = len(site.stderr)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 40_000_000)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sock.connect((site.host, site.port))
    with Peer(sock, timeout=20) as peer:
        peer.send(ask_for_file("buffered", path))
        assert peer.read_head().header("Content-Length") == "40000000"
        get(site, "/hello")
        os.truncate(path, 1000)
        body = peer.read_until_closed()
        assert len(body) < 40_000_000
    site.wait_for("became shorter while it was sent", after=log)
    assert get(site, "/hello").body == b"Hello"


def test_an_unread_response_does_not_keep_others_waiting(site: Running) -> None:
    with connect(site) as slow:
        slow.send(build_request("GET", "/endless?unread"))
        slow.read_head()
        for _ in range(20):
            assert get(site, "/hello").body == b"Hello"
    assert_closed_once(site, "unread")


def test_peers_that_send_nothing_get_nothing(site: Running) -> None:
    with connect(site) as peer:
        peer.end_sending()
        with pytest.raises(PeerClosed):
            peer.read_response()
