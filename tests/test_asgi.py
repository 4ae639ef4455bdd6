"""ASGI applications over HTTP: scope, receive and send (specification 2.5), tasks, lifespan, the life of a worker."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import kirsch
from asgi_app import WRONG
from interpreter import needs_gevent
from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

HERE = os.path.dirname(__file__)
begins_at_once = pytest.mark.skipif(
    sys.version_info < (3, 12),
    reason="before CPython 3.12 a request's task begins in the loop: a head leaves although the application fails",
)
EXTENSIONS = ("early_hint", "pathsend", "trailers", "zerocopysend")


def serve_asgi(serve: Serve, *args: str, app: str = "asgi_app:app", **env: str) -> Running:
    return serve(app, *args, cwd=HERE, env=env)


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port)


def get(site: Running, target: str, **more: Any) -> Any:
    return exchange(site.host, site.port, build_request("GET", target, **more))


@pytest.mark.parametrize("name", ["app", "instance", "Awaitable", "create_app()"])
def test_asgi_application_is_recognised_by_its_signature(serve: Serve, name: str) -> None:
    site = serve_asgi(serve, app=f"asgi_app:{name}")
    assert site.page() == "hello"
    assert site.page("/echo") == ""


def test_interface_that_is_named_wins_over_the_signature(serve: Serve, write_app: Callable[[str], str]) -> None:
    name = write_app("""
        def app(*arguments):
            return run(*arguments)

        async def run(scope, receive, send):
            if scope["type"] == "http":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"asgi"})
    """)
    assert serve(f"{name}:app", "--interface", "asgi").page() == "asgi"


def test_scope_has_what_the_specification_says(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        for _ in range(3):
            peer.send(
                b"GET /scope/caf%C3%A9%2F/%ff?a=%20&b HTTP/1.1\r\nHost: h:1\r\nX-One: 1\r\nx-two: a b\r\nX-One: 2\r\n"
                b"X_under: 3\r\n\r\n"
            )
            found = json.loads(peer.read_response("GET").body)
            scope = found["scope"]
            client = scope.pop("client")
            assert client == [peer.sock.getsockname()[0], peer.sock.getsockname()[1]]
            assert scope == {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.5"},
                "http_version": "1.1",
                "method": "GET",
                "scheme": "http",
                "path": "/scope/caf\u00e9//\ufffd",
                "raw_path": "/scope/caf%C3%A9%2F/%ff",
                "query_string": "a=%20&b",
                "root_path": "",
                "headers": [["host", "h:1"], ["x-one", "1"], ["x-two", "a b"], ["x-one", "2"], ["x_under", "3"]],
                "server": [site.host, site.port],
                "state": {"numbers": [1], "name": "shared"},
                "extensions": {f"http.response.{name}": {} for name in EXTENSIONS},
            }
            assert {"raw_path:bytes", "query_string:bytes", "headers:list", "client:tuple", "server:tuple"} <= set(
                found["types"]
            )


@pytest.mark.parametrize(
    ("request_line", "path", "host"),
    [
        ("OPTIONS * HTTP/1.1", None, None),
        ("GET http://other:8/scope?x HTTP/1.1", "/scope", "other:8"),
        ("GET /scope HTTP/1.0", "/scope", "h"),
    ],
)
def test_scope_of_other_targets_and_versions(
    serve: Serve, request_line: str, path: str | None, host: str | None
) -> None:
    site = serve_asgi(serve)
    answer = exchange(site.host, site.port, f"{request_line}\r\nHost: h\r\n\r\n".encode())
    assert answer.status == 200
    if path is not None:
        scope = json.loads(answer.body)["scope"]
        assert (scope["path"], dict(scope["headers"])["host"]) == (path, host)
        assert scope["http_version"] == request_line[-3:]


def test_scope_at_unix_socket_names_its_path(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    site = serve_asgi(serve, "--bind", f"unix:{path}")
    assert site.page() == "hello"
    with Peer.connect_unix(path) as peer:
        peer.send(build_request("GET", "/scope"))
        scope = json.loads(peer.read_response("GET").body)["scope"]
    assert (scope["server"], scope["client"]) == ([str(path), None], None)


def test_scope_has_the_client_that_a_trusted_proxy_names(serve: Serve) -> None:
    site = serve_asgi(serve, "--trusted-proxies", "127.0.0.1", "--forwarded-prefix", "--forwarded-host")
    headers = {
        "X-Forwarded-For": "192.0.2.7",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Prefix": "/scope",
        "X-Forwarded-Host": "shop.example",
    }
    scope = json.loads(get(site, "/x?y", headers=headers).body)["scope"]
    assert (scope["client"], scope["scheme"], scope["root_path"]) == (["192.0.2.7", 0], "https", "/scope")
    # The path includes the root path, as uvicorn and Starlette have it.
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/scope/x", "/scope/x", "y")
    assert dict(scope["headers"])["host"] == "shop.example"


@pytest.mark.parametrize("length", [0, 1, 70_000, 3_000_000])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_request_body_arrives_as_it_was_sent(serve: Serve, length: int, framing: str) -> None:
    site = serve_asgi(serve)
    body = os.urandom(length)
    with connect(site) as peer:
        for _ in range(2):
            if framing == "length":
                peer.send(build_request("POST", "/echo", body=body))
            else:
                peer.send(build_request("POST", "/echo", headers={"Transfer-Encoding": "chunked"}))
                for at in range(0, length, 50_000):
                    piece = body[at : at + 50_000]
                    peer.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                peer.send(b"0\r\n\r\n")
            answer = peer.read_response("POST")
            assert (answer.status, answer.body) == (200, body)


def test_parts_of_a_body_are_passed_on_as_they_come(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("POST", "/parts", headers={"Content-Length": "9"}) + b"123")
        site.wait_for("^part of 3$")
        peer.send(b"4567")
        site.wait_for("^part of 4$")
        peer.send(b"89")
        assert json.loads(peer.read_response("POST").body) == [3, 4, 2]


def test_client_that_expects_100_continue_is_told_when_the_body_is_received(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("POST", "/echo", headers={"Content-Length": "3", "Expect": "100-continue"}))
        assert peer.read_head().status == 100
        peer.send(b"abc")
        assert peer.read_response("POST").body == b"abc"


def test_body_that_breaks_is_a_disconnect_and_its_client_is_told_why(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("POST", "/parts", headers={"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n")
        site.wait_for("^part of 3$")
        peer.send(b"nonsense\r\n")
        assert peer.read_response("POST").status == 400
    assert site.page() == "hello"


def test_response_of_one_part_has_head_and_body_in_one_piece(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/"))
        answer = peer.read_response("GET")
    assert (answer.status, answer.reason, answer.body) == (200, "OK", b"hello")
    assert (answer.header("content-length"), answer.header("content-type")) == ("5", "text/plain")


def test_response_without_length_is_chunked_or_ends_the_connection(serve: Serve) -> None:
    site = serve_asgi(serve)
    assert get(site, "/stream").body == b"0\n1\n2\n3\n4\n"
    assert get(site, "/stream", version="HTTP/1.0").body == b"0\n1\n2\n3\n4\n"


@pytest.mark.parametrize("target", ["/", "/stream", "/scope"])
def test_head_gets_the_head_alone(serve: Serve, target: str) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        for _ in range(2):
            peer.send(build_request("HEAD", target))
            answer = peer.read_response("HEAD")
            assert (answer.status, answer.body) == (200, b"")
        peer.send(build_request("GET", "/"))
        assert peer.read_response("GET").body == b"hello"


def test_pipelined_requests_are_answered_in_order(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        requests = [("POST", "/echo", b"one"), ("GET", "/stream", None), ("GET", "/", None), ("POST", "/echo", b"two")]
        peer.send(b"".join(build_request(method, target, body=body) for method, target, body in requests))
        answers = [peer.read_response(method).body for method, _, _ in requests]
    assert answers == [b"one", b"0\n1\n2\n3\n4\n", b"hello", b"two"]


def test_head_leaves_when_the_application_gives_up_its_turn(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/gate/a"))
        head = peer.read_head()
        assert (head.status, head.header("x-gate")) == (200, "a")
        assert site.page("/open/a") == "opened"
        assert peer.read_chunk() == b"open"


def test_many_requests_wait_at_a_time(serve: Serve) -> None:
    site = serve_asgi(serve)
    peers = [connect(site) for _ in range(50)]
    for number, peer in enumerate(peers):
        peer.send(build_request("GET", f"/gate/n{number}"))
        site.wait_for(f"^gate n{number} waits$")
    for number, peer in reversed(list(enumerate(peers))):
        assert site.page(f"/open/n{number}") == "opened"
        assert peer.read_response("GET").body == b"open"
        peer.close()


def test_sender_waits_for_a_client_that_reads_slowly(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/big"))
        peer.read_head()
        site.wait_for("^part 0 was taken$")
        # Others are served meanwhile, and what the kernel does not take is not produced.
        assert site.page() == "hello"
        assert "part 40 was taken" not in site.stderr
        total = 0
        while chunk := peer.read_chunk():
            total += len(chunk)
        assert total == 64 << 20


@pytest.mark.parametrize("farewell", ["close", "abort"])
def test_client_that_leaves_is_a_disconnect_and_send_raises_an_oserror(serve: Serve, farewell: str) -> None:
    site = serve_asgi(serve)
    peer = connect(site)
    peer.send(build_request("GET", "/watch"))
    site.wait_for("^watch waits$")
    getattr(peer, farewell)()
    site.wait_for("^watch received http.disconnect$")
    site.wait_for("^send raised kirsch.ClientDisconnected$")
    assert site.page() == "hello"
    assert "Traceback" not in site.stderr


def test_client_that_leaves_in_the_middle_of_its_body_is_no_error(serve: Serve) -> None:
    site = serve_asgi(serve)
    peer = connect(site)
    peer.send(build_request("POST", "/parts", headers={"Content-Length": "9"}) + b"123")
    site.wait_for("^part of 3$")
    peer.close()
    site.wait_for("the client left before its request body was complete, of POST /parts")
    assert site.page() == "hello"


def test_connection_goes_on_while_the_call_behind_its_response_does(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/after"))
        assert peer.read_response("GET").body == b"answered"
        peer.send(build_request("GET", "/"))
        assert peer.read_response("GET").body == b"hello"
    site.wait_for("^after waits$")
    assert site.page("/open/after") == "opened"
    site.wait_for("^after goes on$")
    site.wait_for("^after receives http.disconnect$")


@pytest.mark.parametrize("where", ["early", "late", pytest.param("started", marks=begins_at_once)])
def test_exception_before_a_byte_has_left_is_answered_with_500(serve: Serve, where: str) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", f"/raises/{where}"))
        assert peer.read_response("GET").status == 500
        peer.send(build_request("GET", "/"))
        assert peer.read_response("GET").status == 200
    site.wait_for(f"the application raised an exception on GET /raises/{where}\n(.*\n)*ValueError: raised {where}")


def test_exception_within_the_body_cuts_the_response(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/raises/within"))
        assert peer.read_head().header("content-length") == "10"
        assert peer.read_until_closed() in (b"12345", b"")
    site.wait_for("the application raised an exception on GET /raises/within")
    assert site.page() == "hello"


def test_exception_behind_the_response_is_reported(serve: Serve) -> None:
    site = serve_asgi(serve)
    assert get(site, "/raises/behind").body == b"answered"
    site.wait_for("the application raised an exception after its response, on GET /raises/behind")


@pytest.mark.parametrize("where", ["unstarted", pytest.param("started", marks=begins_at_once)])
def test_application_that_returns_without_a_response_gets_500(serve: Serve, where: str) -> None:
    site = serve_asgi(serve)
    assert get(site, f"/nothing/{where}").status == 500
    site.wait_for("RuntimeError: the application returned without completing its response: send http.response.start")


def test_application_that_returns_within_its_body_has_its_response_cut(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/nothing/within"))
        peer.read_head()
        assert not peer.read_until_closed().endswith(b"0\r\n\r\n")
    site.wait_for("RuntimeError: the application returned without completing its response")


# The exception, and a part of what it says: the rule, and what to write.
RULES = {
    "body-first": ("RuntimeError", "before http.response.start: send the status"),
    "start-twice": ("RuntimeError", "sent twice"),
    "no-dict": ("TypeError", "a message must be a dict such as {'type': 'http.response.start'"),
    "no-type": ("ValueError", "the message has no 'type', such as 'http.response.start'"),
    "type-bytes": ("TypeError", "the type of a message must be a str such as 'http.response.start', not bytes"),
    "unknown": ("RuntimeError", "http.response.strat cannot be sent here"),
    "websocket": ("RuntimeError", "websocket.accept cannot be sent here: this is an http scope"),
    "no-status": ("ValueError", "has no 'status', such as 200"),
    "status-text": ("TypeError", "the status must be an int such as 200, not str: '200'"),
    "status-1000": ("ValueError", "the status is 1000: it must be from 200 to 999"),
    "status-100": ("ValueError", "the status is 100: a final status is expected"),
    "status-negative": ("ValueError", "the status is -1"),
    "headers-int": ("TypeError", "the headers must be an iterable of (name, value) pairs of bytes, not int: 5"),
    "header-str": ("TypeError", "a header name must be bytes such as b'content-type', not str: 'a'"),
    "value-str": ("TypeError", "a header value must be bytes such as b'text/html', not str: 'b'"),
    "header-single": ("TypeError", "each header must be a (name, value) pair"),
    "header-crlf": ("ValueError", "a header value must not contain control characters such as CR, LF or NUL"),
    "header-nul": ("ValueError", "a header value must not contain control characters"),
    "name-space": ("ValueError", "a header name must be a token"),
    "body-str": ("TypeError", "the body of http.response.body must be bytes such as b'hello', not str: 'text'"),
    "body-none": ("TypeError", "the body of http.response.body must be bytes"),
    "after-end": ("RuntimeError", "after the response was complete: send more_body=True"),
    "too-long": (
        "ValueError",
        "the response body is longer than its Content-Length (declared: 2 bytes; produced: at least 5)",
    ),
    "too-short": (
        "ValueError",
        "the response body is shorter than its Content-Length (declared: 9 bytes; produced: 5)",
    ),
}


def test_message_that_breaks_a_rule_raises_what_to_write_instead(serve: Serve) -> None:
    assert RULES.keys() == WRONG.keys()
    site = serve_asgi(serve)
    for name, (kind, text) in RULES.items():
        seen = len(site.stderr)
        answer = get(site, f"/wrong/{name}")
        # See `begins_at_once`.
        is_cut = sys.version_info < (3, 12) and not answer.complete
        assert is_cut or answer.status == (200 if name == "after-end" else 500), name
        # The application writes the exception too, and perhaps before the log of the request before this one.
        said = site.wait_for(rf"GET /wrong/{name}\n(?:.*\n)*?({kind}: .*)\n", after=seen)[1]
        assert text in said, name
    assert site.page() == "hello"


@pytest.mark.parametrize("name", ["body-first", "no-status", "header-crlf", "status-text", "unknown"])
def test_application_that_catches_the_exception_can_still_answer(serve: Serve, name: str) -> None:
    site = serve_asgi(serve)
    answer = get(site, f"/wrong/{name}?recover")
    assert (answer.status, answer.body.decode().partition(":")[0]) == (200, RULES[name][0])


def test_fields_of_the_connection_are_ignored(serve: Serve, write_app: Callable[[str], str]) -> None:
    name = write_app("""
        async def app(scope, receive, send):
            # As Apache and Node answer, whose fields an application may pass on.
            headers = [[b"Transfer-Encoding", b"chunked"], [b"Keep-Alive", b"timeout=5"], [b"upgrade", b"h2,h2c"]]
            headers += [[b"Connection", b"Upgrade, Keep-Alive"], [b"trailer", b"x"], [b"X-A", b"1"]]
            await send({"type": "http.response.start", "status": 299, "headers": iter(headers)})
            await send({"type": "http.response.body", "body": bytearray(b"ab"), "more_body": True})
            await send({"type": "http.response.body", "body": memoryview(b"cd")})
    """)
    with connect(serve(name)) as peer:
        for _ in range(2):
            peer.send(build_request("GET", "/"))
            answer = peer.read_response()
            assert (answer.status, answer.body, answer.header("x-a")) == (299, b"abcd", "1")
            assert answer.all("transfer-encoding") == ["chunked"]
            assert not {"keep-alive", "upgrade", "connection", "trailer"} & {name.lower() for name, _ in answer.headers}


def test_tasks_timeouts_and_cancellation_work_as_asyncio_has_them(serve: Serve) -> None:
    site = serve_asgi(serve)
    for _ in range(2):
        assert json.loads(site.page("/tasks")) == {
            "names": 1,
            "message": "http.request",
            "cancelled": True,
            "timeout": True,
            "unstarted": True,
            "gathered": "slept",
            "self-cancelled": True,
        }
    assert "never" not in site.stderr
    assert "Traceback" not in site.stderr


def test_debug_mode_and_dev_mode_find_nothing(serve: Serve) -> None:
    site = serve_asgi(serve, PYTHONASYNCIODEBUG="1", PYTHONDEVMODE="1")
    for target in ("/", "/tasks", "/stream", "/echo", "/context", "/threads"):
        assert get(site, target).status == 200
    site.stop()
    for word in ("never awaited", "never retrieved", "ResourceWarning", "Traceback", "was destroyed"):
        assert word not in site.stderr


def test_each_request_has_its_own_context_and_dictionaries(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        for number, target in enumerate(["/context", "/context/wait", "/context", "/context/wait"], 2):
            peer.send(build_request("GET", target))
            before, started, size, numbers = json.loads(peer.read_response("GET").body)
            assert (before, started, size) == ("clean", "in the lifespan", 3)
            # The copy of the state is shallow (ASGI, Lifespan State).
            assert numbers == list(range(1, number + 1))
        scope = json.loads(exchange(site.host, site.port, build_request("GET", "/scope")).body)["scope"]
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert (sorted(scope["extensions"]), sorted(scope["state"])) == (
        [f"http.response.{name}" for name in EXTENSIONS],
        ["name", "numbers"],
    )


def test_send_works_from_a_thread_with_a_loop_of_its_own(serve: Serve) -> None:
    site = serve_asgi(serve)
    for _ in range(5):
        assert site.page("/threads") == "from a thread"


def test_access_log_and_statistics_count_asgi_requests(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    site = serve_asgi(serve, "--access-logfile", str(log))
    site.page("/scope?x=1")
    get(site, "/raises/early")
    get(site, "/stream")
    site.stop()
    lines = log.read_text().splitlines()
    assert ['"GET /scope?x=1 HTTP/1.1" 200' in lines[0], '"GET /raises/early HTTP/1.1" 500' in lines[1]] == [True, True]
    assert '"GET /stream HTTP/1.1" 200 10' in lines[2]


def test_health_checks_are_answered_by_the_engine(serve: Serve) -> None:
    site = serve_asgi(serve, "--health-path", "/healthz")
    assert json.loads(site.page("/healthz"))["status"] == "alive"


def test_slow_request_is_logged_with_the_stack_of_its_coroutines(serve: Serve) -> None:
    site = serve_asgi(serve, "--slow-request", "200ms", "--graceful-timeout", "0")
    with connect(site) as peer:
        peer.send(build_request("GET", "/sleeps"))
        said = site.wait_for(r"GET /sleeps \(id \d+\) takes longer than 0.2 s(.*\n)*?.*asyncio.sleep\(60\)", timeout=20)
    assert "in app" in said.group()
    assert "in sleeps" in said.group()
    assert "drivers/asyncio" not in said.group()


@pytest.mark.parametrize("target", ["/sleeps", "/blocks"])
def test_request_that_misses_its_deadline_gets_504_and_ends(serve: Serve, target: str) -> None:
    site = serve_asgi(serve, "--timeout", "0.3s")
    with connect(site) as peer:
        peer.send(build_request("GET", target))
        assert peer.read_response("GET").status == 504
    site.wait_for(rf"GET {target} \(id \d+\) has passed its deadline of 0.3 s")
    site.wait_for(rf"GET {target} was ended by kirsch.RequestTimeout", timeout=20)
    assert site.page() == "hello"


def test_deadline_counts_the_time_in_which_a_body_arrives_slowly(serve: Serve) -> None:
    site = serve_asgi(serve, "--timeout", "0.5s")
    with connect(site) as peer:
        peer.send(build_request("POST", "/echo", headers={"Content-Length": "1000"}))
        # The application waits for each byte anew, and no single wait is long.
        for _ in range(200):
            peer.send(b"x")
            if select.select([peer.sock], [], [], 0.05)[0]:
                break
        else:
            pytest.fail("the deadline passes while the body arrives")
        assert peer.read_response("POST").status == 504


def test_lifespan_shutdown_comes_after_the_last_request(serve: Serve) -> None:
    site = serve_asgi(serve)
    with connect(site) as peer:
        peer.send(build_request("GET", "/gate/last"))
        peer.read_head()
        with connect(site) as other:
            other.send(build_request("GET", "/pid"))
            worker = int(other.read_response("GET").body)
            os.kill(worker, 0)
            site.send(signal.SIGTERM)
            # It runs still, and so does the lifespan.
            other.send(build_request("GET", "/open/last"))
            assert other.read_response("GET").body == b"opened"
        assert peer.read_chunk() == b"open"
    assert site.stop() == 0
    assert site.stderr.count("lifespan.shutdown received") == 1


@pytest.mark.parametrize(
    ("lifespan", "mode", "words"),
    [
        ("fails", "auto", "the application cannot start: no database"),
        ("unsupported", "on", "it raised ValueError on the lifespan scope, and --lifespan is on"),
        ("returns", "on", "it returned before it sent lifespan.startup.complete"),
    ],
)
def test_application_that_cannot_start_is_not_served(serve: Serve, lifespan: str, mode: str, words: str) -> None:
    with pytest.raises(AssertionError, match=r"exit status 3") as failed:
        serve_asgi(serve, "--lifespan", mode, LIFESPAN=lifespan)
    assert words in str(failed.value)


@pytest.mark.parametrize("lifespan", ["unsupported", "returns"])
def test_application_without_lifespan_is_served_without_a_word(serve: Serve, lifespan: str) -> None:
    site = serve_asgi(serve, LIFESPAN=lifespan)
    assert site.page() == "hello"
    site.stop()
    assert "lifespan" not in site.stderr


def test_exception_in_the_start_up_is_reported_and_the_application_served(serve: Serve) -> None:
    site = serve_asgi(serve, LIFESPAN="raises")
    assert site.page() == "hello"
    site.wait_for("the application raised ValueError in its lifespan, and is served without one")


def test_lifespan_off_is_not_asked(serve: Serve) -> None:
    site = serve_asgi(serve, "--lifespan", "off", LIFESPAN="fails")
    assert "state" not in json.loads(site.page("/scope"))["scope"]


@pytest.mark.parametrize(
    ("lifespan", "words"),
    [("hangs", "lifespan did not end within"), ("shutdown-fails", "shutdown has failed: still busy")],
)
def test_shutdown_that_does_not_end_well_is_reported(serve: Serve, lifespan: str, words: str) -> None:
    site = serve_asgi(serve, "--graceful-timeout", "1s", LIFESPAN=lifespan)
    assert site.page() == "hello"
    site.stop()
    assert words in site.stderr


def test_server_that_is_stopped_while_it_starts_ends() -> None:
    command = [sys.executable, "-m", "kirsch", "--bind", "127.0.0.1:0", "--workers", "0", "asgi_app:app"]
    environment = {**os.environ, "LIFESPAN": "waits"}
    with subprocess.Popen(command, cwd=HERE, env=environment, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while b"start-up waits" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_reload_that_fails_in_the_start_up_keeps_the_workers(serve: Serve, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    (tmp_path / "reloaded.py").write_text(
        f"""
import os
from pathlib import Path

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if Path({str(flag)!r}).exists():
            await send({{"type": "lifespan.startup.failed", "message": "no database"}})
            return
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": str(os.getpid()).encode()}})
"""
    )
    site = serve("reloaded:app", cwd=tmp_path)
    before = site.page()
    flag.touch()
    site.said_at(signal.SIGHUP, "reload failed.*(\n.*)*no database")
    assert site.page() == before
    flag.unlink()
    site.send(signal.SIGHUP)
    wait_until(lambda: site.page() != before, "a worker of the next generation", timeout=20)


def test_worker_is_replaced_after_max_requests_and_no_request_is_lost(serve: Serve) -> None:
    site = serve_asgi(serve, "--max-requests", "20")
    first = site.page("/pid")
    # Each of the requests meanwhile is answered, or page() raises.
    wait_until(lambda: site.page("/pid") != first, "an answer of the next worker", timeout=20)


def test_server_in_a_program_serves_asgi_and_stops() -> None:
    import asgi_app

    server = kirsch.Server(asgi_app.app, bind="127.0.0.1:0")
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        parts = urlsplit(server.urls[0])
        assert exchange(str(parts.hostname), int(parts.port or 0), build_request("GET", "/")).body == b"hello"
        assert server.stop()
        thread.join(10)
    assert not thread.is_alive()


def test_drivers_that_do_not_fit_are_refused(serve: Serve) -> None:
    needs_gevent()
    import asgi_app
    import wsgi_app

    with pytest.raises(ValueError, match="the driver gevent serves WSGI applications"):
        kirsch.Server(asgi_app.app, driver="gevent")
    with pytest.raises(ValueError, match="the driver asyncio serves ASGI applications"):
        kirsch.Server(wsgi_app.app, driver="asyncio")
    with pytest.raises(AssertionError, match="the driver gevent serves WSGI applications"):
        serve_asgi(serve, "--driver", "gevent")


def test_asgi_application_is_refused_where_it_cannot_be_served(serve: Serve) -> None:
    for more in ((), ("--mount", "/x=asgi_app:app")):
        with pytest.raises(AssertionError, match="an ASGI application is served over HTTP"):
            serve_asgi(serve, *more, "--bind", "fastcgi:127.0.0.1:0")


def test_ready_path_is_asked_after_the_start_up(serve: Serve) -> None:
    site = serve_asgi(serve, "--ready-path", "/")
    assert site.page() == "hello"
    with pytest.raises(
        AssertionError, match=r"it answered --ready-path /wrong/unready with 500|raised KeyError at --ready-path"
    ):
        serve_asgi(serve, "--ready-path", "/wrong/unready")


def test_cancelled_requests_leave_nothing_behind(serve: Serve) -> None:
    site = serve_asgi(serve)
    kept = json.loads(site.page("/tasks-left"))
    for turn in range(30):
        peers = [connect(site) for _ in range(10)]
        for peer in peers:
            peer.send(build_request("GET", "/watch" if turn % 2 else "/big"))
        for number, peer in enumerate(peers):
            if number < turn % 10:
                peer.close()
            else:
                peer.abort()
    wait_until(lambda: json.loads(site.page("/tasks-left")) == kept, "the tasks of clients that left", timeout=20)
