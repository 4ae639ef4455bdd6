"""Defects reported of other ASGI servers, and wrong messages of applications: each is one case here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from asgi_reports_app import BAD
from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from raw import Response
    from running import Running, Serve

HERE = os.path.dirname(__file__)


@pytest.fixture
def start(serve: Serve) -> Callable[..., Running]:
    def start(*args: str, app: str = "asgi_reports_app:app", **env: str) -> Running:
        return serve(app, *args, cwd=HERE, env=env)

    return start


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port)


def get(site: Running, target: str, method: str = "GET", **more: Any) -> Response:
    return exchange(site.host, site.port, build_request(method, target, **more))


def dictionaries(site: Running) -> None:
    with connect(site) as peer:
        for _ in range(3):
            peer.send(build_request("GET", "/dictionaries"))
            assert json.loads(peer.read_response().body) == [[], 2]


def types(site: Running) -> None:
    expected = ["int", "int", "bytes", "bytes", True, "/types/\ufffd"]
    assert json.loads(get(site, "/types/%ff", headers={"X-UPPER": "1"}).body) == expected


def after_body(site: Running) -> None:
    for method, body in (("POST", b"fib=10"), ("GET", None)):
        with connect(site) as peer:
            for _ in range(2):
                peer.send(build_request(method, "/after-body", body=body))
                assert peer.read_response().body == b"0"
        site.wait_for(f"^waiter of {method}: http.disconnect, then http.disconnect$")


def listener(site: Running) -> None:
    assert get(site, "/listener", "POST", body=b"x").body == b"cancelled"
    assert "Traceback" not in site.stderr


def stream(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/stream"))
        peer.read_head()
        peer.read_chunk()
        peer.abort()
    site.wait_for("^stream ends by OSError$")
    site.wait_for("^stream cleaned up$")
    assert get(site, "/").body == b"hello"
    assert "Traceback" not in site.stderr


def full(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/full"))
        peer.read_head()
    site.wait_for("^full send woken$")


def two(site: Running) -> None:
    body = os.urandom(700_000)
    assert get(site, "/two", "POST", body=body).body == b"700000"
    site.wait_for("^both ended$")


def cancelled_receive(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("POST", "/cancelled-receive", headers={"Content-Length": "300000"}))
        for _ in range(30):
            peer.send(b"x" * 10_000)
        assert peer.read_response().body == b"300000"


def cancelled_waits(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/cancelled-waits"))
        found = site.wait_for(r"^futures left: \[(-?\d+), (-?\d+)\]$", timeout=30)
        assert max(int(found[1]), int(found[2])) < 20, found.group()


def timeout(site: Running) -> None:
    assert get(site, "/timeout").body == b"timed out"


def collected(site: Running) -> None:
    assert get(site, "/collected").body == b"kept"


def raises_group(site: Running) -> None:
    assert get(site, "/raises-group").status == 500
    site.wait_for("ValueError: in a task")


def early(site: Running) -> None:
    with connect(site) as peer:
        for _ in range(2):
            peer.send(build_request("POST", "/early", body=b"x" * 1000))
            assert peer.read_response().body == b"early"
        # Nothing of a body that is not here yet is taken for the next request.
        peer.send(build_request("POST", "/early", headers={"Content-Length": "50"}) + b"GET / HTTP/1.1\r\n")
        assert peer.read_response().body == b"early"
        peer.offer(b"Host: h\r\n\r\n" + b"x" * 23)
        assert b"hello" not in peer.read_until_closed()


def no_body(site: Running) -> None:
    with connect(site) as peer:
        for status in (204, 304, 205):
            peer.send(build_request("GET", f"/status/{status}"))
            answer = peer.read_response()
            assert (answer.status, answer.body, answer.header("x-a")) == (status, b"", "1")
        peer.send(build_request("HEAD", "/status/200"))
        assert peer.read_response("HEAD").status == 200
        peer.send(build_request("GET", "/"))
        assert peer.read_response().body == b"hello"


def closing(site: Running) -> None:
    with connect(site) as peer:
        peer.send(build_request("GET", "/", headers={"Connection": "close"}) + build_request("GET", "/"))
        assert peer.read_response().body == b"hello"
        assert peer.read_until_closed() == b""


def headers(site: Running) -> None:
    answer = get(site, "/cookies")
    assert (answer.all("set-cookie"), answer.header("x-latin")) == (["a=1", "b=2"], "caf\xe9")


def later(site: Running) -> None:
    with connect(site) as peer:
        for number in range(3):
            peer.send(build_request("GET", "/later"))
            said = json.loads(peer.read_response().body)
            assert said == (["RuntimeError", "http.disconnect"] if number else [])


# The defects, and where they were reported.
REPORTS: dict[str, Callable[[Running], None]] = {
    "uvicorn #2976, #1902: asgi dict, state and headers shared between requests": dictionaries,
    "granian: client port as str; uvicorn: undecodable path answered with 500": types,
    "uvicorn #119, #126, #147, #241: receive() behind the body or the response": after_body,
    "gunicorn #3627, granian #525: cancelled receive() returns http.disconnect": listener,
    "granian #286, #412: a stream is not cleaned up when its client leaves": stream,
    "uvicorn #336: deadlock when the client leaves while send() waits": full,
    "hypercorn: a part is lost where two tasks receive": two,
    "granian: a receive() that is cancelled loses its part": cancelled_receive,
    "waits that are cancelled while nothing happens leave futures behind": cancelled_waits,
    "granian #323, #476: asyncio.timeout without a task": timeout,
    "granian #436: a request that waits is garbage collected": collected,
    "granian #387: exceptions of awaited tasks pass uncaught": raises_group,
    "hypercorn #18: connection not in a reusable state when the body was not read": early,
    "starlette #1764: a body with 204 or 304 raises": no_body,
    "uvicorn #2238: a request behind Connection: close is answered": closing,
    "uvicorn: a header that repeats, an iterator of headers, latin-1": headers,
    "uvicorn: send of an earlier request on the same connection": later,
}


@pytest.mark.parametrize("report", REPORTS)
def test_behaviour_that_was_reported_of_other_servers(start: Callable[..., Running], report: str) -> None:
    site = start()
    REPORTS[report](site)
    assert get(site, "/").body == b"hello"


# The beginning of what each message raises.
RAISED = {
    "bool": "TypeError: the status must be an int such as 200, not bool: True",
    "huge": "ValueError: the status is 1000000000000000000000000000000: it must be from 200 to 999",
    "float": "TypeError: the status must be an int such as 200, not float: 200.0",
    "none": "TypeError: the status must be an int such as 200, not NoneType: None",
    "length-twice": "ValueError: Content-Length is given twice",
    "length-text": "ValueError: Content-Length must be a decimal number",
    "length-negative": "ValueError: Content-Length must be a decimal number",
    "headers-none": "TypeError: the headers must be an iterable of (name, value) pairs of bytes, not NoneType",
    "headers-dict": "TypeError: each header must be a (name, value) pair such as (b'content-type', b'text/html'), not",
    "name-empty": "ValueError: a header name must be a token",
    "name-crlf": "ValueError: a header name must be a token",
    "value-int": "TypeError: a header value must be bytes such as b'text/html', not int: 5",
    "pseudo": "ValueError: a header name must be a token",
    "more-body": "ValueError: no truth",
    "message-none": "TypeError: a message must be a dict such as {'type': 'http.response.start'",
    "type-none": "TypeError: the type of a message must be a str such as 'http.response.start', not NoneType",
    "lifespan": "RuntimeError: lifespan.startup.complete cannot be sent here: this is an http scope",
    "body-list": "TypeError: the body of http.response.body must be bytes such as b'hello', not list",
}


def test_bad_message_raises_and_the_application_can_go_on(start: Callable[..., Running]) -> None:
    assert RAISED.keys() == BAD.keys()
    site = start()
    with connect(site) as peer:
        for name, text in RAISED.items():
            peer.send(build_request("GET", f"/bad/{name}"))
            answer = peer.read_response()
            assert (answer.status, answer.body.decode().startswith(text)) == (200, True), answer.body


@pytest.mark.parametrize("place", ["nothing", "start"])
def test_application_that_never_answers_is_ended_at_its_deadline(start: Callable[..., Running], place: str) -> None:
    site = start("--timeout", "0.3s")
    with connect(site) as peer:
        peer.send(build_request("GET", f"/silent/{place}"))
        if place == "start":
            assert peer.read_head().status == 200
            assert peer.read_until_closed() == b""
        else:
            assert peer.read_response().status == 504
    site.wait_for(rf"GET /silent/{place} was ended by kirsch.RequestTimeout", timeout=20)
    assert get(site, "/").body == b"hello"


def test_application_that_swallows_its_cancellation_gets_its_worker_replaced(start: Callable[..., Running]) -> None:
    site = start("--timeout", "0.3s", "--graceful-timeout", "1s")
    before = site.server_pid
    with connect(site) as peer:
        peer.send(build_request("GET", "/swallows/x"))
        assert peer.read_response().status == 504
    site.wait_for("^swallowed one$")
    site.wait_for_workers(1, without=[before], timeout=30)
    assert get(site, "/").body == b"hello"


def test_send_in_a_thread_without_a_loop_and_late_sends_meet_their_own_response(start: Callable[..., Running]) -> None:
    site = start()
    for _ in range(3):
        assert get(site, "/thread").body == b"from a thread"


EXITS = {
    "cancel": "CancelledError",
    "cancelled-error": "CancelledError",
    "generator-exit": "GeneratorExit",
    "stop-async": "StopAsyncIteration",
    "stop": "RuntimeError: coroutine raised StopIteration",
    **({"group": "ExceptionGroup: two"} if sys.version_info >= (3, 11) else {}),
}


def test_exception_of_any_kind_is_a_500_and_the_worker_lives(start: Callable[..., Running]) -> None:
    site = start()
    before = site.server_pid
    for kind, text in EXITS.items():
        seen = len(site.stderr)
        assert get(site, f"/exit/{kind}").status == 500, kind
        site.wait_for(text, after=seen)
    assert (site.server_pid, get(site, "/").body) == (before, b"hello")


@pytest.mark.parametrize(("name", "text"), [("returns_none", "NoneType"), ("returns_text", "str")])
def test_application_that_returns_nothing_to_await_is_answered_with_500(
    start: Callable[..., Running], name: str, text: str
) -> None:
    site = start("--interface", "asgi", "--lifespan", "off", app=f"asgi_reports_app:{name}")
    assert get(site, "/").status == 500
    site.wait_for(f"TypeError: .*{text}")
    assert get(site, "/").status == 500


SILENT = ["nothing", "framework", "cancelled", "send", *(["group"] if sys.version_info >= (3, 11) else [])]
LOGGED = {
    "key": "KeyError: 'a bug'",
    "file": "FileNotFoundError: a missing file",
    **({"mixed": "ValueError: a bug in a group"} if sys.version_info >= (3, 11) else {}),
}
WEBSOCKET = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


@pytest.mark.parametrize("farewell", ["close", "abort"])
@pytest.mark.parametrize(
    ("headers", "when"),
    [({}, "(after its client had left, )?"), (WEBSOCKET, "after its client had closed the WebSocket, ")],
)
def test_exception_after_the_client_has_left_is_logged_unless_it_says_that(
    start: Callable[..., Running], headers: dict[str, str], when: str, farewell: str
) -> None:
    site = start()
    for kind in [*SILENT, *LOGGED]:
        with connect(site) as peer:
            peer.send(build_request("GET", f"/raises-when-left/{kind}", headers=headers))
            site.wait_for(f"^waits {kind}$")
            getattr(peer, farewell)()
        site.wait_for(f"^raises {kind}$")
        if kind in LOGGED:
            site.wait_for(rf"raised an exception {when}on GET /raises-when-left/{kind}\n(.*\n)*?.*{LOGGED[kind]}")
    assert site.stderr.count("the application raised an exception") == len(LOGGED)
    assert get(site, "/").body == b"hello"


def test_exception_after_the_body_has_broken_off_is_logged(start: Callable[..., Running]) -> None:
    site = start()
    for kind in ("framework", "key"):
        with connect(site) as peer:
            chunked = build_request("POST", f"/raises-when-left/{kind}", headers={"Transfer-Encoding": "chunked"})
            peer.send(chunked + b"no chunk\r\n")
            assert peer.read_response().status == 400
    site.wait_for(
        r"after the body of its request had broken off, on POST /raises-when-left/key\n(.*\n)*?KeyError: 'a bug'"
    )
    assert site.stderr.count("the application raised an exception") == 1


# Limits, and what operators use


def test_request_beyond_the_limit_on_concurrency_gets_503(start: Callable[..., Running]) -> None:
    site = start("--limit-concurrency", "2", "--health-path", "/healthz", "--graceful-timeout", "0")
    with connect(site) as waiting, connect(site) as behind, connect(site) as peer:
        waiting.send(build_request("GET", "/wait/a"))
        site.wait_for("^waits /wait/a$")
        # A call that goes on behind its response counts.
        behind.send(build_request("GET", "/behind/a"))
        assert behind.read_response().body == b"answered"
        site.wait_for("^goes on /behind/a$")
        for method, body in (("GET", None), ("POST", b"x" * 100), ("HEAD", None)):
            peer.send(build_request(method, "/", body=body))
            answer = peer.read_response(method)
            assert (answer.status, answer.header("retry-after")) == (503, "1")
        assert get(site, "/healthz").status == 200
        site.wait_for("refused with 503: client .*, GET /: The server has too much to do at the moment")
        # A client that leaves cancels nothing, so its call counts until it ends.
        waiting.abort()
        assert get(site, "/").status == 503


def test_limit_on_concurrency_admits_again_when_calls_end(start: Callable[..., Running]) -> None:
    site = start("--limit-concurrency", "1")
    with connect(site) as peer:
        peer.send(build_request("GET", "/timeout"))
        assert peer.read_response().body == b"timed out"
    wait_until(lambda: get(site, "/").status == 200, "the call to end")
    assert [get(site, "/").status for _ in range(5)] == [200] * 5


def test_limit_on_concurrency_holds_for_wsgi(serve: Serve, write_app: Callable[[str], str]) -> None:
    name = write_app("""
        import threading
        gate = threading.Event()
        def app(environ, start_response):
            if environ["PATH_INFO"] == "/wait":
                environ["wsgi.errors"].write("waits\\n")
                environ["wsgi.errors"].flush()
                gate.wait(30)
            start_response("200 OK", [])
            return [b"hello"]
    """)
    site = serve(name, "--limit-concurrency", "1", "--graceful-timeout", "0")
    with connect(site) as peer:
        peer.send(build_request("GET", "/wait"))
        site.wait_for("^waits$")
        assert get(site, "/").status == 503


def test_request_buffering_that_is_asked_for_is_a_warning(start: Callable[..., Running]) -> None:
    site = start("--request-buffering", "on")
    site.wait_for("--request-buffering has no effect: an ASGI application receives a body as it arrives")


def test_dump_and_top_show_the_coroutines_of_requests(start: Callable[..., Running]) -> None:
    site = start("--graceful-timeout", "0")
    with connect(site) as peer:
        peer.send(build_request("GET", "/wait/dump"))
        site.wait_for("^waits /wait/dump$")
        # The loop has gone on when it answers another request.
        assert get(site, "/").body == b"hello"
        os.kill(site.server_pid, signal.SIGPWR)
        site.wait_for(r"driver asyncio: 1 running(.*\n)*?GET /wait/dump .*, a task\n(.*\n)*? +await gate\(scope\)")
        command = [sys.executable, "-m", "kirsch", "top", str(site.pid), "--once"]

        def is_shown() -> bool:
            shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
            return "GET /wait/dump" in shown and re.search(r"busy +1 ", shown) is not None

        # The scoreboard is written once a second.
        wait_until(is_shown, "the request in kirsch top", timeout=30)


# What the application does on the lifespan scope, and what the log says of it.
LIFESPANS = {
    "messages": [
        "TypeError: a message must be a dict such as {'type': 'lifespan.startup.complete'}, not str",
        "RuntimeError: the application sent None on the lifespan scope, which expects lifespan.startup.complete or ",
        "RuntimeError: the application sent 'lifespan.shutdown.complete' on the lifespan scope, which",
        "RuntimeError: the application sent 'http.response.start' on the lifespan scope",
        "RuntimeError: the application sent 'lifespan.shutdown.complete' on the lifespan scope, which expects no",
    ],
    "receive": ["after time-outs: lifespan.shutdown"],
    "later": ["the application raised an exception in its lifespan, after its start-up; it is served on", "ValueError"],
    "returns": [],
    "cancels": ["the application raised CancelledError in its lifespan, and is served without one"],
    "swallows": ["the application's lifespan did not end within", "lifespan swallowed one"],
}


@pytest.mark.parametrize("odd", LIFESPANS)
def test_lifespan_that_misbehaves_is_reported_and_the_application_served(
    start: Callable[..., Running], odd: str
) -> None:
    site = start("--graceful-timeout", "1s", ODD=odd)
    assert [get(site, "/").body for _ in range(2)] == [b"hello"] * 2
    # A task that cannot be cancelled ends with its process: by itself, or cut when its time is up.
    assert site.stop(timeout=30) in ((0, 1) if odd == "swallows" else (0,))
    assert [text for text in LIFESPANS[odd] if text not in site.stderr] == []


def test_lifespan_that_is_cancelled_is_refused_where_it_must_be_there(start: Callable[..., Running]) -> None:
    with pytest.raises(AssertionError, match="it raised CancelledError on the lifespan scope, and --lifespan is on"):
        start("--lifespan", "on", ODD="cancels")
