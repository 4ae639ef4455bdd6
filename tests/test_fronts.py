"""A client gets the same answers over every protocol and behind every web server."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from fronts import FRONTS, Front, for_each, front
from proc import wait_until
from running import children, descendants, title

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

SECONDS = 60.0


class Response:
    """A response that a client has received as a whole."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> dict[str, Any]:
        assert self.status == 200, (self.status, self.body[:500])
        found: dict[str, Any] = json.loads(self.body)
        return found


def ask(
    port: int,
    method: str = "GET",
    target: str = "/",
    fields: Sequence[tuple[str, str]] = (),
    body: bytes | Iterable[bytes] | None = None,
) -> Response:
    """One request on a connection of its own; a body that is no bytes is sent in chunks."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in fields:
            connection.putheader(name, value)
        is_chunked = body is not None and not isinstance(body, bytes)
        if isinstance(body, bytes):
            connection.putheader("Content-Length", str(len(body)))
        elif is_chunked:
            connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders(body, encode_chunked=is_chunked)
        return Response(connection.getresponse())
    finally:
        connection.close()


@pytest.fixture(scope="module", params=list(FRONTS))
def served(request: pytest.FixtureRequest) -> Iterator[Front]:
    with front(request.param, "--access-logfile", "-") as running:
        yield running


SEES_CUTS = {
    "http", "nginx-http", "nginx-http2", "nginx-short", "apache-http", "haproxy-http", "haproxy-http2", "envoy-http2",
    "nginx-fastcgi-kept", "apache-fastcgi-kept", "apache-fastcgi-closed", "haproxy",
}  # fmt: skip
"""The web servers behind which a client sees a cut; others may hide it (docs/design/gateways.md)."""


@pytest.mark.slow
class TestEveryFront:
    """The cases of HTTP."""

    @pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    def test_method(self, served: Front, method: str) -> None:
        body = b"" if method in ("POST", "PUT", "PATCH") else None
        assert ask(served.port, method, "/m", body=body).json["REQUEST_METHOD"] == method

    @pytest.mark.parametrize(
        ("target", "path"),
        [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a%20b", "/a b"),
            ("/%C3%A9t%C3%A9", "/été"),
            ("/a+b;c=d@e:f,g", "/a+b;c=d@e:f,g"),
            ("/100%25", "/100%"),
            ("/a%3Fb%23c", "/a?b#c"),
            ("/deep/er/", "/deep/er/"),
        ],
    )
    def test_path(self, served: Front, target: str, path: str) -> None:
        found = ask(served.port, target=target).json
        assert found["SCRIPT_NAME"] == ""
        assert found["PATH_INFO"].encode("latin-1").decode() == path
        assert found["REQUEST_URI"].rpartition("/shop")[2].startswith("/")

    @pytest.mark.parametrize("query", ["", "a=1&b=%20", "x", "=&&", "q=%C3%A9"])
    def test_query(self, served: Front, query: str) -> None:
        assert ask(served.port, target=f"/q?{query}").json["QUERY_STRING"] == query

    def test_environ(self, served: Front) -> None:
        fields = [("Cookie", "a=1; b=2"), ("X-One", "1"), ("Authorization", "Basic dTpw"), ("Proxy", "evil")]
        found = ask(served.port, "POST", "/e", [*fields, ("Content-Type", "text/x")], b"body").json
        assert (found["HTTP_COOKIE"], found["HTTP_X_ONE"]) == ("a=1; b=2", "1")
        assert (found["CONTENT_TYPE"], found["CONTENT_LENGTH"]) == ("text/x", "4")
        assert found["HTTP_AUTHORIZATION"] == "Basic dTpw"
        assert "HTTP_PROXY" not in found
        assert found["wsgi.url_scheme"] == "http"
        assert (found["SERVER_PROTOCOL"] == "HTTP/2.0") == (served.name in HTTP2)
        assert found["SERVER_NAME"]
        assert found["SERVER_PORT"].isdigit()
        assert found["SERVER_SOFTWARE"].startswith("kirsch/")
        if served.name == "envoy-http2":
            # Envoy names a client of its own machine by the machine's address in a network, if there is one.
            assert found["REMOTE_ADDR"] == found["HTTP_X_FORWARDED_FOR"]
        elif served.name != "http":
            assert found["REMOTE_ADDR"] == "127.0.0.1"

    @pytest.mark.parametrize("size", [0, 1, 1000, 8192, 65_535, 65_536, 200_000, 5_000_000])
    def test_body(self, served: Front, size: int) -> None:
        body = os.urandom(size)
        found = ask(served.port, "POST", "/echo", body=body).json
        assert (found["size"], found["sha"]) == (size, hashlib.sha256(body).hexdigest())

    def test_chunked_body_is_whole_or_refused(self, served: Front) -> None:
        """It is never run with an empty body."""
        parts = [os.urandom(5000) for _ in range(20)]
        if served.name == "haproxy":
            # It passes on bodies of known length only, and may say so while the client still sends.
            with contextlib.suppress(ConnectionError):
                assert ask(served.port, "POST", "/echo", body=iter(parts)).status == 400
            return
        response = ask(served.port, "POST", "/echo", body=iter(parts))
        if served.name in ("apache-uwsgi", "apache-scgi"):
            # Apache says no length, and these protocols have no other end of a body.
            assert response.status == 411
            return
        found = response.json
        assert (found["size"], found["length"]) == (100_000, "100000")

    @pytest.mark.parametrize("size", [0, 1, 4096, 65_536, 1_000_000, 20_000_000])
    def test_large_response(self, served: Front, size: int) -> None:
        response = ask(served.port, target=f"/large?{size}")
        assert response.status == 200
        assert len(response.body) == size

    def test_streamed_response(self, served: Front) -> None:
        response = ask(served.port, target="/stream?5000")
        assert response.body == b"".join(b"%07d\n" % number for number in range(5000))

    @pytest.mark.parametrize("status", [200, 201, 204, 301, 304, 404, 418, 503])
    def test_status(self, served: Front, status: int) -> None:
        response = ask(served.port, target=f"/status?{status}")
        assert response.status == status
        assert response.headers["X-Said"] == str(status)
        assert response.body == (b"" if status in (204, 304) else b"said\n")

    def test_head(self, served: Front) -> None:
        response = ask(served.port, "HEAD", "/large?1000")
        assert (response.status, response.body) == (200, b"")

    def test_cookies_are_not_joined(self, served: Front) -> None:
        response = ask(served.port, target="/cookies", fields=[("Cookie", "c=3")])
        assert response.headers.get_all("Set-Cookie") == ["a=1; Path=/", "b=2; Path=/"]
        assert response.body == b"c=3"

    def test_error_of_the_application(self, served: Front) -> None:
        assert ask(served.port, target="/error").status == 500
        assert ask(served.port).status == 200

    def test_cut_response_is_no_whole_one(self, served: Front) -> None:
        try:
            response = ask(served.port, target="/broken")
        except (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected):
            pass
        else:
            # A web server that has not begun to pass it on says so itself.
            assert response.status in (500, 502) or served.name not in SEES_CUTS, response.status
        assert ask(served.port).status == 200

    def test_cut_response_with_a_length_is_seen(self, served: Front) -> None:
        if served.name in ("apache-scgi", "nginx-fastcgi-closed"):
            pytest.skip("this web server drops the length, or lets the client wait for the rest: see the design page")
        try:
            response = ask(served.port, target="/cut")
        except (http.client.IncompleteRead, ConnectionError, http.client.RemoteDisconnected):
            pass
        else:
            assert response.status in (500, 502), (response.status, len(response.body))

    def test_client_that_has_gone_ends_the_response(self, served: Front) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=SECONDS)
        connection.request("GET", "/endless")
        assert connection.getresponse().read(10) == b"x" * 10
        connection.close()
        assert ask(served.port, target="/closed").json["closed"]


KEPT = ("http", "nginx-http", "nginx-fastcgi-kept", "nginx-fastcgi-closed", "nginx-uwsgi", "nginx-scgi")
KEPT_AND_CLOSED = (*KEPT, "apache-fastcgi-kept", "apache-fastcgi-closed", "lighttpd-external", "caddy", "haproxy")


def load(
    port: int, clients: int, requests: int, until: threading.Event | None = None, *, direct: bool = False
) -> tuple[int, list[str]]:
    """Have so many clients ask ``requests`` times each, or until the event. Return how many asked and what failed.

    A web server may close a connection that it has kept at any time, also while a request is on its way to it: Apache
    does when all its threads are busy. As browsers do, a client then asks once more on a new connection (RFC 9112
    section 9.3.1). What Kirsch closes is seen all the same, because the web server answers 502 or 503. A client that
    asks Kirsch itself (``direct``) asks once only.
    """
    done = [0] * clients
    failed: list[str] = []

    def answer(connection: http.client.HTTPConnection, number: int) -> http.client.HTTPResponse:
        kept = connection.sock is not None
        try:
            connection.request("GET", f"/load?{number}")
            return connection.getresponse()
        except ConnectionError:
            if direct or not kept:
                raise
            connection.close()
            connection.request("GET", f"/load?{number}")
            return connection.getresponse()

    def run(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        try:
            while (until is None and done[number] < requests) or (until is not None and not until.is_set()):
                response = answer(connection, number)
                content = json.loads(response.read()) if response.status == 200 else {"QUERY_STRING": response.status}
                if content["QUERY_STRING"] != str(number):
                    failed.append(f"client {number}: {content['QUERY_STRING']}")
                done[number] += 1
        except (OSError, http.client.HTTPException, ValueError) as error:
            failed.append(f"client {number}: {error!r}")
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done), failed


@contextlib.contextmanager
def under_load(port: int, clients: int) -> Iterator[list[str]]:
    """Have so many clients ask all the time. What failed is in the list at the end; more than 100 requests are made."""
    stop = threading.Event()
    outcome: list[tuple[int, list[str]]] = []
    failed: list[str] = []
    loader = threading.Thread(target=lambda: outcome.append(load(port, clients, 0, stop)))
    loader.start()
    try:
        yield failed
    finally:
        stop.set()
        loader.join()
    ((count, found),) = outcome
    print(f"{len(found)} of {count} requests failed")
    failed += found
    assert count > 100, found


@pytest.mark.slow
@for_each(*KEPT_AND_CLOSED)
@pytest.mark.parametrize("clients", [10, 200, 1000])
def test_no_request_is_dropped(name: str, clients: int) -> None:
    """flup drops 41 % of them (docs/deploy/gateways.md)."""
    if name.startswith("apache") and clients > 200:
        pytest.skip("Apache itself serves 256 connections at a time in this configuration")
    with front(name) as running:
        count, failed = load(running.port, clients, 3, direct=name == "http")
    assert failed == []
    assert count == 3 * clients


@pytest.mark.slow
@for_each(*KEPT, "apache-fastcgi-kept", "apache-fastcgi-closed", "haproxy")
def test_rolling_reload_loses_no_request(name: str) -> None:
    with front(name, "--workers", "2") as running:
        kirsch = running.kirsch
        assert kirsch is not None
        if name == "http":
            pytest.skip("tests/test_no_request_lost.py shows it")
        with under_load(running.port, 16) as failed:
            for _ in range(3):
                before = kirsch.worker_pids()
                kirsch.send(signal.SIGHUP)
                kirsch.wait_for_workers(2, without=before, timeout=60)
                # The next one comes while the workers of this one serve.
                assert ask(running.port).status == 200
    assert failed == []


@pytest.mark.slow
@for_each("nginx-fastcgi-kept", "apache-fastcgi-kept", "haproxy", "caddy", "lighttpd-external")
def test_script_name_setting_makes_a_mount(name: str) -> None:
    with front(name, "--fastcgi-script-name", "/shop") as running:
        for target, path in [("/shop", ""), ("/shop/", "/"), ("/shop/a%20b", "/a b")]:
            found = ask(running.port, target=target).json
            assert (found["SCRIPT_NAME"], found["PATH_INFO"]) == ("/shop", path)


@pytest.mark.slow
def test_requests_share_a_connection_of_haproxy() -> None:
    """It multiplexes: more requests are under way than there are connections to Kirsch."""
    with front("haproxy", "--threads", "8") as running:
        threads = [threading.Thread(target=ask, args=(running.port, "GET", "/wait")) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: ask(running.port, target="/count").status == 200, "another one is served meanwhile")
        assert ask(running.port, target="/open").status == 200
        for thread in threads:
            thread.join()


HTTP2 = ("haproxy-http2", "caddy-http2", "envoy-http2", "nginx-http2")
HTTP_KEPT = ("nginx-http", "nginx-short", "apache-http", "caddy-http", "haproxy-http", *HTTP2)


@pytest.mark.slow
@for_each(*HTTP_KEPT, "lighttpd-http")
def test_connections_to_kirsch_are_kept_where_the_page_says(name: str) -> None:
    with front(name, "--metrics-bind", "127.0.0.1:0") as running:
        assert running.kirsch is not None
        metrics = running.kirsch.wait_for(r"^metrics on (\S+)$")[1]

        def accepted() -> int:
            with urllib.request.urlopen(f"{metrics}/metrics", timeout=20) as response:
                found = re.search(r"^kirsch_connections_accepted_total (\d+)$", response.read().decode(), re.M)
            assert found is not None
            return int(found[1])

        load(running.port, 1, 1)
        before = accepted()
        count, failed = load(running.port, 1, 30)
        assert (count, failed) == (30, [])
        # Each process of a web server has connections of its own.
        limit = 5 if name in HTTP_KEPT else 30
        wait_until(lambda: accepted() - before <= limit and (name in HTTP_KEPT or accepted() - before == 30), name)


def kirsch_pids(running: Front) -> list[int]:
    """The supervisors: ours, or those that the web server has started."""
    if running.kirsch is not None:
        return [running.kirsch.pid]
    assert running.process is not None
    found = descendants(running.process.pid)
    return [pid for pid in found if any(title(each).startswith("kirsch: worker") for each in children(pid))]


def worker_pids(supervisor: int) -> set[int]:
    return {pid for pid in children(supervisor) if title(pid).startswith("kirsch: worker")}


@pytest.mark.slow
@for_each(
    *HTTP_KEPT, "lighttpd-http", "lighttpd-external", "lighttpd-spawned", "lighttpd-uwsgi", "caddy", "apache-fcgid"
)
def test_reload_loses_no_request_over_http_or_closed_connections(name: str) -> None:
    with front(name, "--workers", "2") as running:
        # A web server that starts Kirsch by itself has started as many as the load needs.
        assert load(running.port, 8, 3)[1] == []
        with under_load(running.port, 8) as failed:
            for _ in range(3):
                workers = {pid: worker_pids(pid) for pid in kirsch_pids(running)}
                assert workers
                for pid in workers:
                    os.kill(pid, signal.SIGHUP)
                for pid, before in workers.items():
                    wait_until(
                        lambda: len(worker_pids(pid)) == 2 and not worker_pids(pid) & before,  # noqa: B023
                        f"{pid} has new workers",
                        60,
                    )
                assert ask(running.port).status == 200
    assert failed == []
