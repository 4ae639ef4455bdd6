"""PEP 3333 from the application's side: ``wsgi.input`` and ``environ``, and that nothing of one request is in another.

The application is ``wsgi_app.py``; ``probe`` in a name marks what other servers are known to get wrong.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import socket
from typing import TYPE_CHECKING

import pytest

import wsgi_app
from proc import open_files, rss
from raw import Peer, build_request, exchange
from wsgi_site import MIB, SECRET, SEED, connect, get, get_json, post, served

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve


site = pytest.fixture(scope="module")(served)

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
