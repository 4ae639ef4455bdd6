"""FastCGI, uwsgi and SCGI, spoken by hand: what a web server may rely on."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

import gateway_clients as by_hand
from gateway_clients import (
    ABORT,
    AUTHORIZER,
    BEGIN,
    COMPLETE,
    END,
    GET_VALUES,
    OVERLOADED,
    PARAMS,
    STDIN,
    STDOUT,
    UNKNOWN,
    UNKNOWN_ROLE,
    VALUES_RESULT,
    Broken,
    FastCgi,
    begin,
    pairs,
    record,
    request,
    stream,
    variables,
)
from proc import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

    Address = tuple[str, int] | str


class Gateway:
    """A server that speaks everything, and where."""

    def __init__(self, serve: Serve, folder: Path, *args: str) -> None:
        self.paths = {name: str(folder / f"{name}.sock") for name in ("fastcgi", "uwsgi", "scgi")}
        binds = [word for name, path in self.paths.items() for word in ("--bind", f"{name}:unix:{path}")]
        self.running: Running = serve("gateway_app:app", *binds, *args, env={"PYTHONPATH": os.path.dirname(__file__)})

    def fastcgi(self) -> FastCgi:
        return FastCgi(self.paths["fastcgi"])

    def once(self, protocol: str, listed: list[tuple[str, str | bytes]], body: bytes = b"") -> bytes:
        """One request over uwsgi or SCGI, and all that the server says until it closes the connection."""
        data = by_hand.uwsgi(listed, body) if protocol == "uwsgi" else by_hand.scgi(listed, body)
        return by_hand.exchange(self.paths[protocol], data)


@pytest.fixture
def gateway(serve: Serve, tmp_path: Path) -> Gateway:
    return Gateway(serve, tmp_path)


def test_the_names_of_protocols_are_those_of_the_engine() -> None:
    from kirsch._native import PROTOCOLS
    from kirsch.net import addresses

    assert (*addresses.HTTP_VERSIONS.values(), *addresses.GATEWAY_PROTOCOLS) == tuple(PROTOCOLS)


def environ(response: by_hand.Response) -> dict[str, Any]:
    assert response.status == 200
    content: dict[str, Any] = json.loads(response.body)
    return content


def test_all_protocols_are_served_by_one_process(gateway: Gateway) -> None:
    addresses = gateway.running.addresses
    assert [address.partition(":")[0] for address in addresses] == ["http", "fastcgi", "uwsgi", "scgi"]
    over_http = json.loads(gateway.running.page("/a%20b?x=1"))
    with gateway.fastcgi() as front:
        over_fastcgi = environ(front.ask(target="/a%20b?x=1"))
    listed = variables(target="/a%20b?x=1")
    once = [environ(by_hand.parse(gateway.once(protocol, listed))) for protocol in ("uwsgi", "scgi")]
    for found in (over_http, over_fastcgi, *once):
        assert (found["PATH_INFO"], found["QUERY_STRING"], found["SCRIPT_NAME"]) == ("/a b", "x=1", "")
        assert found["REQUEST_URI"] == found["RAW_URI"] == "/a%20b?x=1"
        assert found["SERVER_SOFTWARE"].startswith("kirsch/")
        assert found["has_input"]
    assert (over_fastcgi["REMOTE_ADDR"], over_fastcgi["SERVER_NAME"]) == ("192.0.2.7", "front.example")


def test_variables_become_the_environ(gateway: Gateway) -> None:
    fields = [
        ("Cookie", "a=1"),
        ("Cookie", "b=2"),
        ("X-Many", "1"),
        ("X-Many", "2"),
        ("Proxy", "evil"),
        ("Host", "h:1"),
    ]
    others: dict[str, Any] = {
        "HTTPS": "on",
        "CONTENT_TYPE": "",
        "SERVER_NAME": "_",
        "wsgi.input": "evil",
        "SSL_PROTOCOL": "TLSv1.3",
    }
    with gateway.fastcgi() as front:
        front.send(request(1, variables(fields=fields, **others)))
        found = environ(front.response()[0])
    assert (found["HTTP_COOKIE"], found["HTTP_X_MANY"], found["HTTP_HOST"]) == ("a=1; b=2", "1,2", "h:1")
    assert (found["wsgi.url_scheme"], found["HTTPS"], found["SSL_PROTOCOL"]) == ("https", "on", "TLSv1.3")
    assert found["SERVER_NAME"] not in ("", "_")
    assert not {"HTTP_PROXY", "CONTENT_TYPE", "CONTENT_LENGTH", "wsgi.input"} & set(found)


def test_requests_of_a_kept_connection_have_environs_of_their_own(gateway: Gateway) -> None:
    """Variables that a request shares with the request before it make no difference."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    choices: dict[str, list[list[tuple[str, str]]]] = {
        "port": [[("REMOTE_PORT", "1")], [("REMOTE_PORT", "2")], [("REMOTE_PORT", "1"), ("REMOTE_PORT", "3")]],
        "cookie": [[], [("HTTP_COOKIE", "a=1")], [("HTTP_COOKIE", "b=2")], [("HTTP_COOKIE", "")]],
        "more": [[], [("HTTP_COOKIE", "c=3")], [("HTTP_X_ONE", "1")], [("HTTP_PROXY", "evil")]],
        "https": [[], [("HTTPS", "on")], [("HTTPS", "off")]],
        "host": [[], [("HTTP_HOST", "a")], [("HTTP_HOST", "b:1")], [("HTTP_HOST", "")]],
        "uri": [[], [("REQUEST_URI", "/a?b")], [("REQUEST_URI", "/c%20d")], [("REQUEST_URI", "")]],
        "path": [[("SCRIPT_NAME", "/s"), ("PATH_INFO", "/p")], [("SCRIPT_NAME", "/a"), ("PATH_INFO", "")], []],
        "query": [[("QUERY_STRING", "q")], [("QUERY_STRING", "")], []],
        "type": [[], [("CONTENT_TYPE", "text/x")], [("CONTENT_TYPE", "")]],
        "user": [[], [("REMOTE_USER", "u")], [("REMOTE_USER", "v")]],
    }
    listed: list[list[tuple[str, str]]] = []
    with gateway.fastcgi() as kept:
        for _ in range(300):
            # A few variables change from one request to the next.
            changed = rng.sample(range(len(choices)), rng.randint(0, 3)) if listed else range(len(choices))
            now = [*listed] or [[] for _ in choices]
            for index in changed:
                now[index] = rng.choice(list(choices.values())[index])
            listed = now
            sent: list[tuple[str, str | bytes]] = [("REQUEST_METHOD", "GET"), ("SERVER_NAME", "s")]
            sent += (pair for some in listed for pair in some)
            kept.send(request(1, sent))
            found = kept.response()[0]
            with gateway.fastcgi() as other:
                other.send(request(1, sent))
                expected = other.response()[0]
            assert (found.status, found.body) == (expected.status, expected.body), sent


@pytest.mark.parametrize(
    ("setting", "script_name", "path_info", "expected"),
    [
        ("auto", "/app/x", "", ("", "/app/x")),
        ("auto", "/app", "/x", ("/app", "/x")),
        ("/app", "/app/x", "", ("/app", "/x")),
        ("/app", "/app", "", ("/app", "")),
        ("/", "/app", "/x", ("", "/app/x")),
        ("/", "/index.fcgi", "/", ("", "/")),
    ],
)
def test_script_name_setting_splits_the_path(
    serve: Serve, tmp_path: Path, setting: str, script_name: str, path_info: str, expected: tuple[str, str]
) -> None:
    gateway = Gateway(serve, tmp_path, "--fastcgi-script-name", setting)
    with gateway.fastcgi() as front:
        found = environ(front.ask(SCRIPT_NAME=script_name, PATH_INFO=path_info))
    assert (found["SCRIPT_NAME"], found["PATH_INFO"]) == expected


@pytest.mark.parametrize(
    ("mounts", "script_name", "path_info", "target", "expected"),
    [
        # nginx: `uwsgi_param SCRIPT_NAME /app;` beside `include uwsgi_params;`, which has the whole path as PATH_INFO.
        ([], "/app", "/app/x", "/app/%78?q", ("/app", "/x")),
        (["/app"], "/app", "/app/x", "/app/%78?q", ("/app", "/x")),
        (["/app"], "/app", "/app", "/app", ("/app", "")),
        (["/app"], "/app", "/x", "/app/x", ("/app", "/x")),
        (["/app"], "", "/app/x", "/app/x", ("/app", "/x")),
        # The client asked for a path that has the same beginning twice.
        (["/app"], "/app", "/app/x", "/app/app/x", ("/app/app", "/x")),
        # The web server serves everything below another path.
        (["/app"], "/site", "/app/x", "/site/app/x", ("/site/app", "/x")),
        (["/app"], "/site", "/x", "/site/x", ("/site", "/x")),
        (["/app", "/app/deep"], "/app", "/deep/x", "/app/deep/x", ("/app/deep", "/x")),
    ],
)
def test_a_prefix_that_the_web_server_names_is_counted_once(
    serve: Serve,
    tmp_path: Path,
    mounts: list[str],
    script_name: str,
    path_info: str,
    target: str,
    expected: tuple[str, str],
) -> None:
    gateway = Gateway(serve, tmp_path, *(f"--mount={path}=gateway_app:app" for path in mounts))
    others: dict[str, Any] = {"SCRIPT_NAME": script_name, "PATH_INFO": path_info}
    listed = variables(target=target, **others)
    with gateway.fastcgi() as front:
        found = [environ(front.ask(target=target, **others))]
    found += [environ(by_hand.parse(gateway.once(protocol, listed))) for protocol in ("uwsgi", "scgi")]
    # `uwsgi_modifier1 30;`, which the documentation of uWSGI demands beside such a SCRIPT_NAME.
    asked = by_hand.uwsgi(listed, modifiers=(30, 0))
    found.append(environ(by_hand.parse(by_hand.exchange(gateway.paths["uwsgi"], asked))))
    assert [(each["SCRIPT_NAME"], each["PATH_INFO"]) for each in found] == [expected] * 4


def test_connection_is_kept_or_closed_as_the_flag_says(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        for _ in range(5):
            assert front.ask().status == 200
        front.send(request(1, variables(), keep=False))
        assert front.response()[0].status == 200
        assert front.is_closed()


def test_connection_is_not_closed_while_its_web_server_still_sends(gateway: Gateway) -> None:
    """Caddy and Apache write the end of STDIN by itself, and take an error in that for one of the response."""
    with gateway.fastcgi() as front:
        front.send(begin(1, keep=False) + stream(PARAMS, 1, pairs(variables(CONTENT_LENGTH="0"))))
        response, _, _ = front.response()
        assert response.status == 200
        for _ in range(3):
            front.send(record(STDIN, 1))
        assert front.is_closed()


def test_requests_of_one_connection_run_at_the_same_time(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        front.send(request(1, variables(target="/wait")))
        front.send(request(2, variables(target="/environ")))
        assert {received.id for received in front.records()} == {2}
        # Interleaved records of two requests whose bodies differ.
        bodies = {3: b"3" * 70_000, 4: b"4" * 70_000}
        heads = [begin(n) + stream(PARAMS, n, pairs(variables("POST", "/echo", body=bodies[n]))) for n in bodies]
        front.send(heads[0] + heads[1])
        for at in range(0, 70_000, 7_000):
            front.send(b"".join(record(STDIN, n, bodies[n][at : at + 7_000]) for n in bodies))
        front.send(record(STDIN, 4) + record(STDIN, 3))
        out: dict[int, bytes] = {3: b"", 4: b""}
        ends = 0
        while ends < 2:
            received = front.receive()
            ends += received.kind == END
            out[received.id] += received.content if received.kind == STDOUT else b""
        for number, body in bodies.items():
            assert json.loads(by_hand.parse(out[number]).body)["size"] == len(body)
        front.send(request(5, variables(target="/open")))
        assert sorted(r.id for _ in range(2) for r in front.records() if r.kind == END) == [1, 5]


def test_management_records_are_answered(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        front.send(record(GET_VALUES, 0, pairs([("FCGI_MPXS_CONNS", ""), ("FCGI_MAX_REQS", ""), ("FCGI_NONE", "")])))
        answer = front.receive()
        assert (answer.kind, answer.id) == (VALUES_RESULT, 0)
        assert answer.content == pairs([("FCGI_MPXS_CONNS", "1"), ("FCGI_MAX_REQS", "100")])
        front.send(record(200, 0, b"abc", padding=5))
        assert front.receive() == (UNKNOWN, 0, bytes([200, 0, 0, 0, 0, 0, 0, 0]))
        front.send(begin(7, role=AUTHORIZER))
        assert front.receive() == (END, 7, bytes([0, 0, 0, 0, UNKNOWN_ROLE, 0, 0, 0]))
        assert front.ask().status == 200


def test_health_check_is_answered_over_fastcgi(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--health-path", "/healthz")
    with gateway.fastcgi() as front:
        assert front.ask(target="/healthz").status == 200
        # This one is for the application.
        assert environ(front.ask(target="/healthz/x"))["PATH_INFO"] == "/healthz/x"


def test_request_beyond_the_limit_is_overloaded(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        front.send(b"".join(begin(number) for number in range(1, 102)))
        assert front.receive() == (END, 101, bytes([0, 0, 0, 0, OVERLOADED, 0, 0, 0]))


@pytest.mark.parametrize("how", ["abort", "close"])
def test_client_that_has_gone_ends_the_response(gateway: Gateway, how: str) -> None:
    with gateway.fastcgi() as front:
        front.send(request(1, variables(target="/endless")))
        while front.receive().kind != STDOUT:
            pass
        if how == "abort":
            front.send(record(ABORT, 1))
            assert [received.kind for received in front.records()][-1] == END
            assert environ(front.ask(target="/closed"))["closed"]
        else:
            front.socket.close()
            with gateway.fastcgi() as other:
                assert environ(other.ask(target="/closed"))["closed"]


def test_number_may_be_used_again_after_an_abort(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        front.send(request(1, variables(target="/wait")) + record(ABORT, 1))
        assert front.receive().kind == END
        # The call of the first one still runs.
        assert environ(front.ask("POST", "/echo", b"x" * 10))["size"] == 10
        assert front.ask(target="/open").status == 200


@pytest.mark.parametrize("size", [0, 1, 8191, 65_535, 65_536, 300_000, 3_000_000])
def test_body_arrives_whole(gateway: Gateway, size: int) -> None:
    body = os.urandom(size)
    with gateway.fastcgi() as front:
        found = environ(front.ask("POST", "/echo", body))
        assert found["size"] == size
        # Without a declared length, as Apache passes on a chunked body.
        front.send(request(2, variables("POST", "/echo"), body, piece=10_000))
        assert environ(front.response(2)[0])["sha"] == found["sha"]
    for protocol in ("uwsgi", "scgi"):
        once = gateway.once(protocol, variables("POST", "/echo", body=body), body)
        assert environ(by_hand.parse(once))["sha"] == found["sha"]


def test_body_is_read_as_it_arrives(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--request-buffering", "off")
    body = os.urandom(2_000_000)
    with gateway.fastcgi() as front:
        assert environ(front.ask("POST", "/echo", body))["size"] == len(body)
        front.send(request(2, variables("POST", "/echo"), body, piece=65_535))
        assert environ(front.response(2)[0])["size"] == len(body)
        assert front.ask("POST", "/unread", body[:500_000]).status == 200
        assert front.ask().status == 200


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 5_000_000])
def test_response_is_whole(gateway: Gateway, size: int) -> None:
    listed = variables(target=f"/large?{size}")
    with gateway.fastcgi() as front:
        assert front.ask(target=f"/large?{size}").body == b"x" * size
        pieces = min(size // 8, 20_000)
        assert len(front.ask(target=f"/stream?{pieces}").body) == pieces * 8
    for protocol in ("uwsgi", "scgi"):
        assert by_hand.parse(gateway.once(protocol, listed)).body == b"x" * size


@pytest.mark.parametrize("target", ["/broken", "/short"])
def test_cut_response_has_no_end(gateway: Gateway, target: str) -> None:
    with gateway.fastcgi() as front:
        front.send(request(1, variables(target=target)))
        try:
            response, _, status = front.response()
        except Broken:
            pass
        else:
            # Nothing had been sent: the server answers for the application.
            assert (response.status, status) == (500, COMPLETE)
            assert target == "/short"
    with gateway.fastcgi() as front:
        assert front.ask().status == 200


def test_application_error_is_a_500(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        assert front.ask(target="/error").status == 500
        assert front.ask().status == 200
    for protocol in ("uwsgi", "scgi"):
        assert by_hand.parse(gateway.once(protocol, variables(target="/error"))).status == 500
    gateway.running.wait_for("RuntimeError: on purpose")


def test_head_and_statuses_without_a_body(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        head = front.ask("HEAD", "/large?1000")
        assert (head.status, head.body) == (200, b"")
        for status in (204, 304):
            response = front.ask(target=f"/status?{status}")
            assert (response.status, response.body, response.one("X-Said")) == (status, b"", str(status))


@pytest.mark.parametrize("length", ["1x", "-1", "+5", "0x5", "9223372036854775808", " 5"])
def test_unreadable_length_closes_the_connection(gateway: Gateway, length: str) -> None:
    """Another server takes it for 0, and reads the body as the next request."""
    evil = request(2, variables(target="/open"))
    with gateway.fastcgi() as front:
        front.send(request(1, variables("POST", CONTENT_LENGTH=length), evil))
        response, _, _ = front.response()
        assert response.status == 400
        assert front.is_closed()
    for protocol in ("uwsgi", "scgi"):
        listed = variables("POST", CONTENT_LENGTH=length)
        if protocol == "scgi":
            block = b"".join(f"{name}\0{value}\0".encode("latin-1") for name, value in [("CONTENT_LENGTH", length)])
            data = b"%d:%sREQUEST_METHOD\0POST\0," % (len(block) + 20, block)
        else:
            data = by_hand.uwsgi(listed)
        answer = by_hand.exchange(gateway.paths[protocol], data + evil)
        assert by_hand.parse(answer).status == 400
        assert answer.count(b"400 Bad Request") == 2, "one response, whose page repeats its status"


def test_request_that_breaks_a_rule_is_refused_alone(gateway: Gateway) -> None:
    with gateway.fastcgi() as front:
        cases: list[tuple[list[tuple[str, str | bytes]], int]] = [
            ([("REQUEST_METHOD", "G T")], 400),
            (variables(fields=[("X", "y" * 9000)]), 431),
            (variables(target="/" + "a" * 9000), 414),
            (variables(fields=[(f"X{number}", "") for number in range(200)]), 431),
        ]
        for listed, status in cases:
            front.send(request(1, listed))
            assert front.response()[0].status == status
        assert front.ask().status == 200
    gateway.running.wait_for("refused")


@pytest.mark.parametrize(
    "data",
    [
        b"\x02" + bytes(7),
        b"GET / HTTP/1.1\r\n\r\n",
        begin(1) + begin(1),
        record(BEGIN, 0, bytes(8)),
        record(BEGIN, 1, b"x"),
    ],
)
def test_malformed_record_ends_the_connection(gateway: Gateway, data: bytes) -> None:
    with gateway.fastcgi() as front:
        front.send(data)
        assert front.is_closed()
    with gateway.fastcgi() as front:
        assert front.ask().status == 200


def test_code_of_uwsgi_variables_is_not_loaded(gateway: Gateway, tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n")
    names: dict[str, Any] = {
        "UWSGI_FILE": str(evil),
        "UWSGI_SCRIPT": "evil",
        "UWSGI_MODULE": "evil",
        "UWSGI_PYHOME": str(tmp_path),
    }
    found = environ(by_hand.parse(gateway.once("uwsgi", variables(**names, UWSGI_SETENV="A=B", UWSGI_SCHEME="https"))))
    assert not [name for name in found if name.startswith("UWSGI_")]
    assert found["wsgi.url_scheme"] == "https"
    assert not (tmp_path / "loaded").exists()


def test_head_that_does_not_come_ends_the_connection(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--header-timeout", "1")
    with gateway.fastcgi() as front:
        front.send(begin(1) + record(PARAMS, 1, b"\x05"))
        assert front.is_closed()
    with gateway.fastcgi() as front:
        assert front.ask().status == 200


def test_body_that_does_not_come_is_a_408_of_its_request(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--body-timeout", "1")
    with gateway.fastcgi() as front:
        front.send(begin(1) + stream(PARAMS, 1, pairs(variables("POST", "/echo", CONTENT_LENGTH="5"))))
        assert front.response()[0].status == 408
        assert front.ask().status == 200


def test_late_call_is_a_504_of_its_request(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--timeout", "1")
    with gateway.fastcgi() as front:
        front.send(request(1, variables(target="/wait")))
        assert front.response()[0].status == 504
        assert front.ask(target="/open").status == 200


def test_access_log_names_the_client_of_the_web_server(serve: Serve, tmp_path: Path) -> None:
    gateway = Gateway(serve, tmp_path, "--access-logfile", "-")
    with gateway.fastcgi() as front:
        front.send(
            request(1, variables("POST", "/echo?q=1", [("User-Agent", "agent/1"), ("Referer", "r")], b"xx"), b"xx")
        )
        assert front.response()[0].status == 200
    line = r'^192\.0\.2\.7 - - \[.*\] "POST /echo\?q=1 HTTP/1\.1" 200 \d+ "r" "agent/1"$'
    gateway.running.wait_for_output(line)


def test_stop_answers_what_has_begun(gateway: Gateway) -> None:
    with gateway.fastcgi() as front, gateway.fastcgi() as idle:
        assert idle.ask().status == 200
        front.send(request(1, variables(target="/wait")))
        front.send(request(2, variables(target="/environ")))
        assert {received.id for received in front.records()} == {2}
        gateway.running.send(signal.SIGTERM)
        assert idle.ask(target="/open").status == 200, "an idle connection may ask once more"
        assert idle.is_closed()
        response, _, status = front.response()
        assert (response.status, status) == (200, COMPLETE)
        assert front.is_closed()
    assert gateway.running.stop() == 0


def test_reload_loses_no_request_of_connections_that_nginx_keeps(gateway: Gateway) -> None:
    """The last response of a connection says to nginx that there is no further one."""
    stop = threading.Event()
    asked = [0] * 4
    lost: list[Exception] = []

    def ask_on(number: int) -> None:
        try:
            while not stop.is_set():
                with gateway.fastcgi() as front:
                    # nginx keeps no connection of which anything follows END_REQUEST.
                    while not stop.is_set() and not front.has_more:
                        assert front.ask(SERVER_SOFTWARE="nginx/1.22.1").status == 200
                        asked[number] += 1
        except (AssertionError, OSError, Broken) as error:
            lost.append(error)

    threads = [threading.Thread(target=ask_on, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before = gateway.running.worker_pids()
            gateway.running.send(signal.SIGHUP)
            gateway.running.wait_for_workers(len(before), without=before)
            count = sum(asked)
            wait_until(lambda count=count: sum(asked) > count + 20 or bool(lost), "requests go on")  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not lost, lost


@pytest.mark.parametrize("family", ["unix", "tcp"])
@pytest.mark.parametrize("how", ["command", "serve"])
def test_descriptor_0_is_served_when_a_web_server_starts_it(tmp_path: Path, family: str, how: str) -> None:
    """As lighttpd, mod_fcgid and spawn-fcgi do (FastCGI specification, section 2.2)."""
    own = "import kirsch, gateway_app; kirsch.serve(gateway_app.app)"
    address: Any = str(tmp_path / "s") if family == "unix" else ("127.0.0.1", 0)
    with socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET) as listener:
        listener.bind(address)
        listener.listen()
        command = [sys.executable, *(["-m", "kirsch", "gateway_app:app"] if how == "command" else ["-c", own])]
        env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
        process = subprocess.Popen(command, stdin=listener.fileno(), stderr=subprocess.PIPE, env=env)
        try:
            with FastCgi(listener.getsockname()) as front:
                assert front.ask().status == 200
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert how == "serve" or b"\non fastcgi:" in errors


def test_server_without_an_address_takes_the_sockets_of_systemd(tmp_path: Path) -> None:
    program = (
        "import os, kirsch, gateway_app\n"
        "os.dup2(0, 3), os.close(0)\n"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
        "kirsch.serve(gateway_app.app)\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        env = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
        process = subprocess.Popen([sys.executable, "-c", program], stdin=listener.fileno(), env=env)
        try:
            answer = by_hand.exchange(str(tmp_path / "s"), b"GET / HTTP/1.0\r\nHost: a\r\n\r\n")
        finally:
            process.terminate()
            process.wait(30)
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ("fastcgi:", "lacks a host or a port"),
        ("fastcgi:9000", "did you mean fastcgi:127.0.0.1:9000 or fastcgi::9000?"),
        ("fastcgi:unix:", "names no path"),
        ("uwsgi:http://x", "is not an address"),
    ],
)
def test_bad_address_says_what_to_write(bind: str, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kirsch", "-b", bind, "gateway_app:app"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_metrics_are_not_served_over_fastcgi() -> None:
    command = [sys.executable, "-m", "kirsch", "--metrics-bind", "fastcgi::9100", "gateway_app:app"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "HTTP is spoken here; did you mean ':9100'" in done.stderr
