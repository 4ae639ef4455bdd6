"""``wsgi.errors`` of a WSGI application goes to the log, and over FastCGI also to the web server."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

import gateway_clients as by_hand
from fronts import for_each, front
from gateway_clients import COMPLETE, END, STDERR, STDOUT, FastCgi, request, variables
from proc import wait_until
from test_fronts import ask

if TYPE_CHECKING:
    from pathlib import Path

    from running import Running, Serve

TESTS = os.path.dirname(__file__)
MOST = 64 << 10


class Served:
    """A server, and the FastCGI socket that it listens on."""

    def __init__(self, serve: Serve, folder: Path, *args: str) -> None:
        self.path = str(folder / "fastcgi.sock")
        bind = ["--bind", f"fastcgi:unix:{self.path}"]
        self.running: Running = serve("gateway_app:app", *bind, *args, env={"PYTHONPATH": TESTS})

    def connect(self) -> FastCgi:
        return FastCgi(self.path)

    def errors(self, target: str) -> bytes:
        """Returns the STDERR that the web server gets for a request with a complete response."""
        with self.connect() as connection:
            connection.send(request(1, variables(target=target)))
            response, errors, status = connection.response()
            assert (response.status, status) == (200, COMPLETE)
            return errors


@pytest.mark.parametrize("driver", ["threads", "gevent"])
def test_lines_go_to_the_web_server_and_to_the_log(serve: Serve, tmp_path: Path, driver: str) -> None:
    if driver == "gevent":
        pytest.importorskip("gevent")
    served = Served(serve, tmp_path, "--driver", driver)
    assert served.errors("/errors?one") == b"to the log: one\n"
    served.running.wait_for(r"^to the log: one$")
    assert served.errors("/environ") == b""
    assert served.errors("/surrogate") == "\\udcffé\n".encode()


def test_haproxy_gets_no_lines_because_it_would_crash(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        # The second request repeats the first one, and the third one does not.
        for software, expected in [
            ("HAProxy 2.6.12", b""), ("HAProxy 2.6.12", b""), ("nginx/1.22", b"to the log: line\n"),
        ]:  # fmt: skip
            connection.send(request(1, variables(target="/errors?line", SERVER_SOFTWARE=software)))
            response, errors, status = connection.response()
            assert (response.status, errors, status) == (200, expected, COMPLETE)
    served.running.wait_for(r"^to the log: line$")


def test_lines_come_before_the_end_of_their_request_and_among_its_parts(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        connection.send(request(1, variables(target="/between?50")))
        records = list(connection.records())
    assert records[-1].kind == END
    errors = b"".join(record.content for record in records if record.kind == STDERR)
    assert errors == b"".join(b"before part %d\n" % number for number in range(50))
    body = b"".join(record.content for record in records if record.kind == STDOUT).partition(b"\r\n\r\n")[2]
    assert body == b"".join(b"%07d\n" % number for number in range(50))


def test_line_is_sent_while_the_application_still_works(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        connection.send(request(1, variables(target="/early")))
        received = connection.receive()
        assert (received.kind, received.id, received.content) == (STDERR, 1, b"before the wait\n")
        with served.connect() as other:
            assert other.ask(target="/open").status == 200
        assert connection.response()[0].status == 200


@pytest.mark.parametrize("target", ["/early", "/much?1000", "/between?50", "/errors?a"])
def test_nginx_gets_lines_behind_the_head_of_the_response(serve: Serve, tmp_path: Path, target: str) -> None:
    """It answers 502 where its buffer of a page ends within the header of a record before the head."""
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        for _ in range(2):
            named = variables(target=target, SERVER_SOFTWARE="nginx/1.22.1")
            connection.send(request(1, named))
            if target == "/early":
                served.running.wait_for(r"^before the wait$")
                with served.connect() as other:
                    assert other.ask(target="/open").status == 200
            records = list(connection.records())
            kinds = [record.kind for record in records]
            assert (kinds[0], kinds[-1]) == (STDOUT, END)
            assert b"\r\n\r\n" in records[0].content
            errors = b"".join(record.content for record in records if record.kind == STDERR)
            assert errors.startswith((b"before the wait\n", b"line 0 x", b"before part 0\n", b"to the log: a\n"))
            if target == "/early":
                break


def test_requests_of_one_connection_have_errors_of_their_own(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        numbers = range(1, 31)
        connection.send(b"".join(request(n, variables(target=f"/errors?request-{n}")) for n in numbers))
        errors = dict.fromkeys(numbers, b"")
        ended: set[int] = set()
        while len(ended) < len(numbers):
            received = connection.receive()
            assert received.id not in ended
            if received.kind == STDERR:
                errors[received.id] += received.content
            elif received.kind == END:
                ended.add(received.id)
    assert errors == {n: b"to the log: request-%d\n" % n for n in numbers}


def test_errors_that_are_used_again_hold_nothing_of_another_request(serve: Serve, tmp_path: Path) -> None:
    """The object of one request is that of the next one, if nothing refers to it."""
    served = Served(serve, tmp_path, "--threads", "1")

    def errors(connection: FastCgi, target: str) -> bytes:
        connection.send(request(1, variables(target=target)))
        response, errors, status = connection.response()
        assert (response.status, status) == (200, COMPLETE)
        return errors

    with served.connect() as connection:
        for _ in range(3):
            assert errors(connection, "/part") == b""
            assert errors(connection, "/errors?next") == b"to the log: next\n"
            # Each may write as much as the others.
            assert len(errors(connection, "/much?2000")) > MOST


def test_web_server_gets_a_bounded_part_and_the_log_all(serve: Serve, tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    served = Served(serve, tmp_path, "--error-logfile", str(log))
    errors = served.errors("/much?1000")
    assert errors.startswith(b"line 0 xxx")
    assert errors.endswith(b"\nkirsch: the rest is in the log of Kirsch alone\n")
    assert MOST < len(errors) < MOST + 100
    # The next request has its own bound.
    assert served.errors("/errors?next") == b"to the log: next\n"
    served.running.stop()
    assert re.findall(r"^line (\d+) x+$", log.read_text(), re.M) == [str(number) for number in range(1000)]


def test_web_server_that_does_not_read_gets_its_response_and_the_application_goes_on(
    serve: Serve, tmp_path: Path
) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        listed = [variables(target="/much?1000")] * 60
        connection.send(b"".join(request(n, each) for n, each in enumerate(listed, 1)))
        # All calls have run, although nothing has been read.
        with served.connect() as other:
            assert other.ask(target="/environ").status == 200
        ends = sum(received.kind == END for _ in listed for received in connection.records())
    assert ends == len(listed)


def test_stream_that_the_application_has_kept_writes_to_the_log_alone(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path)
    with served.connect() as connection:
        connection.send(request(1, variables(target="/kept")))
        assert connection.response()[1] == b""
        connection.send(request(1, variables(target="/late")))
        assert connection.response()[1] == b""
        assert connection.ask(target="/environ").status == 200
    served.running.wait_for(r"^late$")


def test_setting_keeps_the_text_in_the_log(serve: Serve, tmp_path: Path) -> None:
    served = Served(serve, tmp_path, "--fastcgi-stderr", "off")
    assert served.errors("/errors?off") == b""
    served.running.wait_for(r"^to the log: off$")


@pytest.mark.parametrize("protocol", ["uwsgi", "scgi"])
def test_protocol_without_a_channel_has_the_text_in_the_log(serve: Serve, tmp_path: Path, protocol: str) -> None:
    path = str(tmp_path / "gateway.sock")
    running = serve("gateway_app:app", "--bind", f"{protocol}:unix:{path}", env={"PYTHONPATH": TESTS})
    make = by_hand.uwsgi if protocol == "uwsgi" else by_hand.scgi
    answer = by_hand.exchange(path, make(variables(target="/errors?here")))
    assert by_hand.parse(answer).status == 200
    assert b"to the log" not in answer
    running.wait_for(r"^to the log: here$")


@pytest.mark.slow
@for_each(
    "nginx-fastcgi-kept",
    "nginx-fastcgi-closed",
    "apache-fastcgi-kept",
    "apache-fastcgi-closed",
    "apache-fcgid",
    "lighttpd-external",
    "lighttpd-spawned",
)
def test_error_log_of_the_web_server_has_the_line(name: str) -> None:
    with front(name) as running:
        for number in range(3):
            assert ask(running.port, target=f"/errors?line-{number}").status == 200
            assert len(ask(running.port, target="/much?1000").body) == 2
        wait_until(lambda: all(f"to the log: line-{number}" in running.log for number in range(3)), "the log has them")
        assert "the rest is in the log of Kirsch alone" in running.log
        for number in range(3):
            assert len(ask(running.port, target=f"/between?{1000 + number}").body) == 8 * (1000 + number)


@pytest.mark.slow
@for_each("caddy", "haproxy")
def test_web_server_that_ignores_the_lines_passes_the_response_on(name: str) -> None:
    with front(name) as running:
        assert ask(running.port, target="/errors?line").status == 200
        assert len(ask(running.port, target="/between?1000").body) == 8000
        assert running.kirsch is not None
        running.kirsch.wait_for(r"^to the log: line$")
