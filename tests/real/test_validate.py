"""``wsgiref.validate``, the standard library's referee of PEP 3333, between the server and an application that uses
everything the PEP lets one use. After each test the log must hold no complaint of the referee."""

from __future__ import annotations

import hashlib
import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from running import Running, Serve

APP = """
    import collections
    import hashlib
    import json
    import os
    import sys
    from wsgiref.validate import validator

    TEXT = [("Content-Type", "text/plain")]
    closed = collections.Counter()

    class Pieces:
        '''An iterable that counts the calls of its close().'''
        def __init__(self, name, pieces):
            self.name, self.pieces = name, iter(pieces)
        def __iter__(self):
            return self
        def __next__(self):
            return next(self.pieces)
        def close(self):
            closed[self.name] += 1

    def read_whole(body):
        return [body.read(-1)]
    def read_in_sizes(body):
        assert body.read(0) == b""
        pieces = [body.read(1), body.read(17)]
        while piece := body.read(10_007):
            pieces.append(piece)
        return pieces
    def read_lines(body):
        return list(iter(body.readline, b""))
    def read_line_parts(body):
        pieces = list(iter(lambda: body.readline(5), b""))
        assert all(len(piece) <= 5 for piece in pieces)
        return pieces
    def read_all_lines(body):
        return body.readlines()
    def read_lines_by_hint(body):
        pieces = []
        while lines := body.readlines(100):
            pieces += lines
        return pieces
    def read_by_iterating(body):
        return list(body)
    def read_mixed(body):
        return [body.read(3), body.readline(), *body.readlines(1), body.read(5), *body]

    def read(environ, start_response):
        style = environ["PATH_INFO"].rpartition("/")[2]
        pieces = globals()["read_" + style](environ["wsgi.input"])
        for _ in range(2):
            assert environ["wsgi.input"].read(1) == environ["wsgi.input"].readline() == b""
        assert all(type(piece) is bytes for piece in pieces)
        lines = [len(piece) for piece in pieces] if len(pieces) < 100 else len(pieces)
        found = {"sha256": hashlib.sha256(b"".join(pieces)).hexdigest(), "pieces": lines}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(found).encode()]

    def unread(environ, start_response):
        start_response("200 OK", TEXT)
        return [b"not looked at"]

    def write(environ, start_response):
        write = start_response("200 OK", TEXT)
        write(b"one ")
        write(b"")
        write(b"two ")
        return []

    def write_and_return(environ, start_response):
        write = start_response("200 OK", TEXT)
        write(b"written ")
        return Pieces("write_and_return", [b"returned ", b"too"])

    def write_declared(environ, start_response):
        write = start_response("200 OK", [*TEXT, ("Content-Length", "12")])
        write(b"exactly ")
        return [b"this"]

    def listed(environ, start_response):
        start_response("200 OK", TEXT)
        return [b"a list of one"]

    def tupled(environ, start_response):
        start_response("200 OK", TEXT)
        return (b"a tuple ", b"of two")

    def nothing(environ, start_response):
        start_response("200 OK", TEXT)
        return []

    def with_gaps(environ, start_response):
        start_response("200 OK", TEXT)
        return [b"", b"gaps ", b"", b"", b"do not end it", b""]

    def generator(environ, start_response):
        start_response("200 OK", TEXT)
        for number in range(1000):
            yield b"%d " % number

    def late_start(environ, start_response):
        # The PEP has the server call for the first item before it may miss start_response.
        def pieces():
            start_response("202 Accepted Late", TEXT)
            yield b"started "
            yield b"late"
        return pieces()

    def declared(environ, start_response):
        start_response("200 OK", [*TEXT, ("Content-Length", "8")])
        yield b"four"
        yield b"four"

    def closing(environ, start_response):
        start_response("200 OK", TEXT)
        return Pieces(environ["QUERY_STRING"], [b"to be ", b"closed"])

    def endless(environ, start_response):
        def pieces():
            while True:
                yield b"x" * 65536
        start_response("200 OK", TEXT)
        return Pieces(environ["QUERY_STRING"], pieces())

    def failing(environ, start_response):
        def pieces():
            yield b"before"
            raise LookupError("lost on the way")
        start_response("200 OK", TEXT)
        return Pieces(environ["QUERY_STRING"], pieces())

    def counts(environ, start_response):
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(closed).encode()]

    def replaced(environ, start_response):
        start_response("200 OK", [*TEXT, ("X-First", "yes")])
        try:
            raise LookupError("found out in time")
        except LookupError:
            start_response("503 Not Today", [("Content-Type", "text/html"), ("X-Second", "yes")], sys.exc_info())
        return [b"replaced"]

    def too_late(environ, start_response):
        start_response("200 OK", TEXT)
        yield b"x" * 10
        try:
            raise LookupError("found out too late")
        except LookupError:
            start_response("500 Sorry", TEXT, sys.exc_info())
        yield b"never"

    def raising(environ, start_response):
        raise LookupError("before anything")

    def no_content(environ, start_response):
        start_response("204 No Content", [("X-Kept", "yes")])
        return []

    def not_modified(environ, start_response):
        start_response("304 Not Modified", [("ETag", '"1"')])
        return []

    def head_fields(environ, start_response):
        start_response("299 Custom Reason, long", [
            ("Content-Type", "text/plain; charset=iso-8859-1"),
            ("Set-Cookie", "a=1; Path=/"), ("Set-Cookie", "b=2"), ("X-Latin", "caf\\xe9"), ("x-empty", ""),
        ])
        return [b"fields"]

    def file(environ, start_response):
        start_response("200 OK", TEXT)
        return environ["wsgi.file_wrapper"](open(os.environ["FILE"], "rb"), 4096)

    def complain(environ, start_response):
        errors = environ["wsgi.errors"]
        errors.write("a complaint: \\u010d\\n")
        errors.writelines(["and two ", "more of them\\n"])
        errors.flush()
        start_response("200 OK", TEXT)
        return [b"heard"]

    def show(environ, start_response):
        shown = {name: value for name, value in environ.items() if type(value) in (str, bool, tuple)}
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(shown).encode()]

    def application(environ, start_response):
        name = environ["PATH_INFO"].split("/")[1] if environ["PATH_INFO"].count("/") else "show"
        return globals()[name](environ, start_response)

    app = validator(application)

    def plain(environ, start_response):
        '''The same without the referee, who would hide the file wrapper from the server.'''
        return application(environ, start_response)
"""

COMPLAINTS = ("AssertionError", "WSGIWarning", "garbage collected without being closed")


@pytest.fixture
def referee(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Serve the application, refereed unless another name in the module is given; look at the log afterwards."""
    module = write_app(APP)
    sites: list[Running] = []

    def referee(name: str = "app") -> Running:
        sites.append(serve(f"{module}:{name}", env={"FILE": str(tmp_path / "file")}))
        return sites[-1]

    yield referee
    for site in sites:
        site.stop()
        assert not [complaint for complaint in COMPLAINTS if complaint in site.stderr], site.stderr


@pytest.fixture
def site(referee: Callable[..., Running]) -> Running:
    return referee()


def ask_json(site: Running, target: str) -> Any:
    return json.loads(exchange(site.host, site.port, build_request("GET", target)).body)


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def lines(count: int) -> bytes:
    generator = random.Random(count)
    return b"\n".join(b"x" * generator.randrange(40) for _ in range(count))


EXPECTED_PIECES: dict[str, Callable[[bytes], list[bytes]]] = {
    "lines": lambda body: body.splitlines(keepends=True),
    "all_lines": lambda body: body.splitlines(keepends=True),
    "lines_by_hint": lambda body: body.splitlines(keepends=True),
    "by_iterating": lambda body: body.splitlines(keepends=True),
}


@pytest.mark.parametrize(
    "style",
    ["whole", "in_sizes", "lines", "line_parts", "all_lines", "lines_by_hint", "by_iterating", "mixed"],
)
def test_the_body_is_the_same_however_it_is_read(site: Running, style: str) -> None:
    # Nothing; a line without its end; empty lines; what fits in a packet; what fits in memory; what does not.
    bodies = [b"", b"a", b"\n\n\n", b"a\nbb\nccc\n", lines(50), lines(2_000), lines(40_000)]
    with Peer.connect(site.host, site.port) as peer:
        for body in bodies:
            for request in (
                build_request("POST", f"/read/{style}", body=body),
                build_request(
                    "POST",
                    f"/read/{style}",
                    headers={"Transfer-Encoding": "chunked"},
                    body=chunked(body, max(1, len(body) // 7)),
                ),
            ):
                peer.send(request)
                response = peer.read_response()
                assert response.status == 200, site.stderr
                found = json.loads(response.body)
                assert found["sha256"] == hashlib.sha256(body).hexdigest(), f"{len(body)} bytes"
                if split := EXPECTED_PIECES.get(style):
                    lengths = [len(piece) for piece in split(body)]
                    assert found["pieces"] == (lengths if len(lengths) < 100 else len(lengths))


def test_a_body_that_nobody_reads_is_not_the_next_request(site: Running) -> None:
    trap = b"GET /raising HTTP/1.1\r\nHost: x\r\n\r\n"
    with Peer.connect(site.host, site.port) as peer:
        for body in (trap, trap * 20_000):
            peer.send(build_request("POST", "/unread", body=body))
            assert peer.read_response().body == b"not looked at"
        peer.send(build_request("POST", "/unread", headers={"Transfer-Encoding": "chunked"}, body=chunked(trap, 9)))
        assert peer.read_response().body == b"not looked at"
        peer.send(build_request("GET", "/listed"))
        assert peer.read_response().body == b"a list of one"


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize(
    ("target", "status", "reason", "body"),
    [
        ("/write", 200, "OK", b"one two "),
        ("/write_and_return", 200, "OK", b"written returned too"),
        ("/write_declared", 200, "OK", b"exactly this"),
        ("/listed", 200, "OK", b"a list of one"),
        ("/tupled", 200, "OK", b"a tuple of two"),
        ("/nothing", 200, "OK", b""),
        ("/with_gaps", 200, "OK", b"gaps do not end it"),
        ("/generator", 200, "OK", b"".join(b"%d " % number for number in range(1000))),
        ("/late_start", 202, "Accepted Late", b"started late"),
        ("/declared", 200, "OK", b"fourfour"),
        ("/replaced", 503, "Not Today", b"replaced"),
        ("/no_content", 204, "No Content", b""),
        ("/not_modified", 304, "Not Modified", b""),
        ("/head_fields", 299, "Custom Reason, long", b"fields"),
    ],
)
def test_every_way_to_answer(site: Running, version: str, target: str, status: int, reason: str, body: bytes) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", target, version=version))
        response = peer.read_response()
        assert (response.status, response.reason, response.body) == (status, reason, body)
        assert response.complete
        if version == "HTTP/1.0":
            assert response.framing != "chunked"
            return
        # HEAD: the same fields of the application's, no body, and the connection is in order for what follows.
        peer.send(build_request("HEAD", target))
        head = peer.read_response("HEAD")
        assert (head.status, head.reason) == (status, reason)
        assert head.all("Content-Type") == response.all("Content-Type")
        peer.send(build_request("GET", "/listed"))
        assert peer.read_response().body == b"a list of one"


def test_lengths_are_inferred_declared_or_chunked(site: Running) -> None:
    framings = {
        target: exchange(site.host, site.port, build_request("GET", target)).framing
        for target in ("/listed", "/declared", "/write_declared", "/generator", "/write")
    }
    assert framings["/declared"] == framings["/write_declared"] == "length"
    assert framings["/generator"] == framings["/write"] == "chunked"


def test_fields_as_the_application_gave_them(site: Running) -> None:
    response = exchange(site.host, site.port, build_request("GET", "/head_fields"))
    assert response.all("Set-Cookie") == ["a=1; Path=/", "b=2"]
    assert response.header("X-Latin") == "caf\xe9"
    assert response.header("X-Empty") == ""
    replaced = exchange(site.host, site.port, build_request("GET", "/replaced"))
    assert (replaced.header("X-First"), replaced.header("X-Second")) == (None, "yes")
    assert replaced.header("Content-Type") == "text/html"


def test_close_is_called_once_whatever_happens(site: Running) -> None:
    # In full, without a body to send, cut by the application, and cut by the client.
    exchange(site.host, site.port, build_request("GET", "/closing?get"))
    exchange(site.host, site.port, build_request("HEAD", "/closing?head"))
    cut = exchange(site.host, site.port, build_request("GET", "/failing?failing"))
    assert not cut.complete
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/endless?endless"))
        peer.read_head()
        peer.read_chunk()
        peer.abort()
    # The server learns of the reset no sooner than it looks at that connection again; each question lets it look.
    deadline = time.monotonic() + 5
    while "endless" not in (counts := ask_json(site, "/counts")):
        assert time.monotonic() < deadline, "the iterable of a client that left is not closed"
    assert counts == {"get": 1, "head": 1, "failing": 1, "endless": 1}
    site.wait_for("LookupError: lost on the way")


def test_an_exception_before_the_first_byte_is_a_500(site: Running) -> None:
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/raising"))
        assert peer.read_response().status == 500
    site.wait_for("LookupError: before anything")


def test_exc_info_after_the_first_byte_cuts_the_response(site: Running) -> None:
    response = exchange(site.host, site.port, build_request("GET", "/too_late"))
    assert response.status == 200
    assert response.body in (b"", b"x" * 10)
    assert not response.complete
    site.wait_for("LookupError: found out too late")


@pytest.mark.parametrize("name", ["app", "plain"])
@pytest.mark.parametrize("size", [0, 1, 4096, 1_000_000])
def test_file_wrapper(referee: Callable[..., Running], tmp_path: Path, name: str, size: int) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(content)
    site = referee(name)
    with Peer.connect(site.host, site.port) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/file"))
            response = peer.read_response()
            assert (response.status, response.complete) == (200, True)
            assert response.body == content


def test_errors_stream(site: Running) -> None:
    assert exchange(site.host, site.port, build_request("GET", "/complain")).body == b"heard"
    site.wait_for("a complaint: (\u010d|\\\\u010d)\nand two more of them\n")


def test_environ(site: Running) -> None:
    request = build_request(
        "POST",
        "/show/%C5%99eka%2Fa%20b;x?q=%20a&b",
        headers={
            "Host": "kirsch.example:81",
            "Content-Type": "text/x-test",
            "X-Twice": "one",
            "x-twice": "two",
            "Cookie": "a=1",
            "X-Latin": "caf\xe9",
        },
        body=b"body",
    )
    environ = json.loads(exchange(site.host, site.port, request).body)
    expected = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/show/\xc5\x99eka/a b;x",
        "QUERY_STRING": "q=%20a&b",
        "CONTENT_TYPE": "text/x-test",
        "CONTENT_LENGTH": "4",
        "SERVER_PORT": str(site.port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "kirsch.example:81",
        "HTTP_COOKIE": "a=1",
        "HTTP_X_LATIN": "caf\xe9",
        "wsgi.version": [1, 0],
        "wsgi.url_scheme": "http",
        "wsgi.run_once": False,
    }
    assert {name: environ.get(name) for name in expected} == expected
    assert [value.strip() for value in environ["HTTP_X_TWICE"].split(",")] == ["one", "two"]
    assert environ["SERVER_NAME"]
    assert environ["wsgi.multithread"] in (True, False)
    assert environ["wsgi.multiprocess"] in (True, False)
    assert not {"HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH", "PATH", "HOME"} & environ.keys()


def test_other_targets_and_methods(site: Running) -> None:
    """An absolute target is its path; `*` has no path; a method unheard of is the application's to judge."""
    absolute = ask_json(site, "http://127.0.0.1/show/it?q=1")
    assert (absolute["PATH_INFO"], absolute["QUERY_STRING"]) == ("/show/it", "q=1")
    asterisk = json.loads(exchange(site.host, site.port, build_request("OPTIONS", "*")).body)
    assert (asterisk["REQUEST_METHOD"], asterisk["PATH_INFO"]) == ("OPTIONS", "")
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = json.loads(exchange(site.host, site.port, build_request(method, "/show")).body)
        assert answer["REQUEST_METHOD"] == method


def test_pipelined_requests_of_every_kind(site: Running) -> None:
    answers = {
        "/listed": b"a list of one",
        "/write": b"one two ",
        "/generator": b"".join(b"%d " % number for number in range(1000)),
        "/no_content": b"",
        "/declared": b"fourfour",
        "/late_start": b"started late",
    }
    targets = random.Random(23).choices(list(answers), k=60)
    with Peer.connect(site.host, site.port) as peer:
        peer.send(b"".join(build_request("GET", target) for target in targets))
        for target in targets:
            assert peer.read_response().body == answers[target]
