"""HTTP/2: a request over it is served as one of HTTP/1.1 is, under every driver."""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from http2_peer import PING, Http2Peer, environ, frame
from interpreter import parametrize_drivers
from native_site import DRIVERS, every_driver, native_site

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve


HERE = os.path.dirname(__file__)
# The only thread reads nothing while it runs a call.
polled_meanwhile = parametrize_drivers("threads", "gevent")


# Requests, under every driver


@every_driver
def test_requests_of_one_connection_are_answered_with_what_each_asked_for(driver: str) -> None:
    with native_site(health_path="/healthz", **DRIVERS[driver]) as site, Http2Peer.connect(site) as peer:
        streams = {peer.ask(f"/rest?0&{number}"): f"0&{number}" for number in range(90)}
        for stream, text in streams.items():
            answer = peer.answer(stream)
            assert (answer.status, answer.body.decode()) == (200, text)
        body = bytes(range(256)) * 5000
        assert peer.answer(peer.ask("/echo", method="POST", body=body)).body == body
        head = peer.get("/hello", method="HEAD")
        assert (head.status, head.body, head.header("content-type")) == (200, b"", "text/plain")
        assert len(peer.get("/large?32&x").body) == 32 * 65536
        # A health check does not end a connection that has other streams.
        assert peer.get("/healthz").status == 200
        assert peer.get("/hello").status == 200


@every_driver
def test_upload_may_come_in_parts_beside_other_requests(driver: str) -> None:
    with native_site(**DRIVERS[driver]) as site, Http2Peer.connect(site) as peer:
        uploads = [peer.ask("/echo", method="POST", ends=False) for _ in range(3)]
        for part in range(5):
            for stream in uploads:
                peer.send_body(stream, b"%d" % part * 1000, ends=False)
            assert peer.get("/hello").status == 200
        for stream in uploads:
            peer.end(stream)
            assert peer.answer(stream).body == b"".join(b"%d" % part * 1000 for part in range(5))


@every_driver
def test_slow_reader_of_one_stream_delays_no_other_and_holds_no_thread(driver: str, tmp_path: Path) -> None:
    with native_site(**DRIVERS[driver]) as site, Http2Peer.connect(site, window=1000, gives_credit=False) as peer:
        slow = [peer.ask(f"/large?32&slow{number}") for number in range(8)]
        peer.wait(lambda: all(len(peer.answers[stream].body) == 1000 for stream in slow), "the windows are used up")
        # More than there are threads wait for their client.
        for _ in range(3):
            assert peer.get("/hello").status == 200
        for stream in slow:
            peer.credit(stream, 3 << 20)
        for stream in slow:
            assert len(peer.answer(stream).body) == 32 * 65536


@polled_meanwhile
def test_reset_stream_is_a_client_that_has_left(driver: str) -> None:
    with native_site(**DRIVERS[driver]) as site, Http2Peer.connect(site) as peer:
        stream = peer.ask("/ticks?gone")
        peer.wait(lambda: len(peer.answers[stream].body) > 20, "the response has begun")
        peer.reset(stream)
        site.wait_for("closed gone")
        assert peer.get("/hello").status == 200


@polled_meanwhile
def test_connection_that_breaks_off_is_a_client_that_has_left(driver: str) -> None:
    with native_site(**DRIVERS[driver]) as site:
        with Http2Peer.connect(site) as peer:
            streams = [peer.ask(f"/ticks?gone{number}") for number in range(3)]
            peer.wait(lambda: all(peer.answers[stream].body for stream in streams), "the responses have begun")
        for number in range(3):
            site.wait_for(f"closed gone{number}")


@every_driver
def test_response_that_fails_midway_is_reset_and_no_other(driver: str) -> None:
    with native_site(**DRIVERS[driver]) as site, Http2Peer.connect(site) as peer:
        other = peer.ask("/large?16&other")
        broken = peer.get("/raises_midway?x")
        assert (broken.body, broken.reset, broken.is_complete) == (b"one block", 2, False)  # INTERNAL_ERROR
        assert len(peer.answer(other).body) == 16 * 65536
        site.wait_for("LookupError: after one block")


@every_driver
def test_client_that_takes_nothing_of_a_response_loses_its_stream_alone(driver: str) -> None:
    with (
        native_site(write_timeout=1.0, **DRIVERS[driver]) as site,
        Http2Peer.connect(site, window=100, gives_credit=False) as peer,
    ):
        stuck = peer.get("/large?4&stuck")
        assert (len(stuck.body), stuck.reset) == (100, 2)
        assert peer.get("/hello").status == 200


@every_driver
def test_client_that_takes_too_little_of_a_response_loses_its_stream(driver: str) -> None:
    with (
        native_site(write_timeout=0.5, min_rate=10_000, **DRIVERS[driver]) as site,
        Http2Peer.connect(site, window=100, gives_credit=False) as peer,
    ):
        stream = peer.ask("/large?4&slow")
        answer = peer.answers[stream]
        for _ in range(200):
            if answer.has_ended:
                break
            peer.credit(stream, 10)
            wanted = len(answer.body) + 10
            peer.wait(lambda wanted=wanted: len(answer.body) >= wanted or answer.has_ended, "ten bytes")  # type: ignore[misc]
            time.sleep(0.02)
        assert answer.reset == 2


@every_driver
def test_upload_that_stops_is_answered_408_on_its_stream(driver: str) -> None:
    with native_site(body_timeout=0.5, **DRIVERS[driver]) as site, Http2Peer.connect(site) as peer:
        stream = peer.ask("/echo", method="POST", ends=False)
        peer.send_body(stream, b"a part", ends=False)
        assert peer.answer(stream).status == 408
        assert peer.get("/hello").status == 200


def test_request_that_waits_too_long_for_a_thread_is_answered_503(tmp_path: Path) -> None:
    with native_site(driver="threads", threads=2, queue_timeout=0.5) as site, Http2Peer.connect(site) as peer:
        gate = tmp_path / "gate"
        first = peer.ask(f"/wait?{gate}")
        site.wait_for("waiting for")
        # One thread is left, and is for other connections.
        late = peer.answer(peer.ask("/hello"))
        assert late.status == 503
        assert late.header("retry-after")
        with Http2Peer.connect(site) as other:
            assert other.get("/hello").status == 200
        gate.touch()
        assert peer.answer(first).status == 200
        assert peer.get("/hello").status == 200


def test_one_connection_does_not_take_all_threads(tmp_path: Path) -> None:
    with native_site(driver="threads", threads=4) as site, Http2Peer.connect(site) as greedy:
        gate = tmp_path / "gate"
        waiting = [greedy.ask(f"/wait?{gate}") for _ in range(50)]
        site.wait_for("(?s)(waiting for.*){3}")
        for _ in range(5):
            assert site.page("/hello") == "Hello"
        assert json.loads(site.page("/records"))["inside"]["most"] == 3
        gate.touch()
        assert all(greedy.answer(stream).status == 200 for stream in waiting)


def test_trusted_proxy_may_use_all_threads(tmp_path: Path) -> None:
    options = {"trusted_proxies": "127.0.0.1", "forwarded": "x", "forwarded_host": False, "forwarded_prefix": False}
    with native_site(driver="threads", threads=4, **options) as site, Http2Peer.connect(site) as proxy:
        gate = tmp_path / "gate"
        waiting = [proxy.ask(f"/wait?{gate}") for _ in range(4)]
        site.wait_for("(?s)(waiting for.*){4}")
        gate.touch()
        assert all(proxy.answer(stream).status == 200 for stream in waiting)


# The environ and the scope


def test_environ_tells_the_version_and_what_http1_tells(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    headers = [
        ("cookie", "a=1"), ("cookie", "b=2"), ("x-twice", "1"), ("x-twice", "2"), ("x_forged", "no"),
        ("proxy", "http://evil.example"), ("script-name", "/no"), ("te", "trailers"), ("x-forwarded-proto", "https"),
    ]  # fmt: skip
    with Http2Peer.connect(site) as peer:
        found = environ(peer, "/environ/a%20b?c=d", headers=headers, authority="app.example:8000")
        address = peer.sock.getsockname()
    assert found["SERVER_PROTOCOL"] == "HTTP/2.0"
    assert found["REQUEST_METHOD"] == "GET"
    assert (found["PATH_INFO"], found["QUERY_STRING"], found["SCRIPT_NAME"]) == ("/environ/a b", "c=d", "")
    assert found["HTTP_HOST"] == "app.example:8000"
    assert found["HTTP_COOKIE"] == "a=1; b=2"
    assert found["HTTP_X_TWICE"] == "1,2"
    assert (found["REMOTE_ADDR"], found["REMOTE_PORT"]) == (address[0], str(address[1]))
    assert found["wsgi.url_scheme"] == "http"
    assert not found.keys() & {"HTTP_X_FORGED", "HTTP_PROXY", "HTTP_HTTP2_SETTINGS"}
    assert not [name for name in found if ":" in name or name.startswith("HTTP_:")]


def test_scheme_of_a_stranger_is_not_believed(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        assert environ(peer, scheme="https")["wsgi.url_scheme"] == "http"


def test_scheme_of_a_trusted_proxy_is_that_of_the_request(serve: Serve) -> None:
    site = serve("wsgi_app:app", "--trusted-proxies", "127.0.0.1", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        # The heads repeat: their schemes must not get mixed up.
        for scheme in ("https", "http", "https", "https", "http") * 3:
            assert environ(peer, scheme=scheme)["wsgi.url_scheme"] == scheme
        # A field that names the scheme of the client wins.
        proxied = [("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "https")]
        found = environ(peer, headers=proxied)
        assert (found["wsgi.url_scheme"], found["REMOTE_ADDR"]) == ("https", "192.0.2.7")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("host", "localhost")], 200),
        ([("host", "LOCALHOST")], 200),
        ([("host", "other.example")], None),
        ([("host", "localhost"), ("host", "other.example")], None),
        ([("connection", "close")], None),
        ([("transfer-encoding", "chunked")], None),
        ([("upgrade", "websocket")], None),
        ([("te", "gzip")], None),
        ([("content-length", "5")], None),
    ],
)
def test_fields_are_judged_before_the_application_sees_them(
    serve: Serve, headers: list[tuple[str, str]], status: int | None
) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        peer.h2.config.validate_outbound_headers = False
        peer.h2.config.normalize_outbound_headers = False
        answer = peer.get("/hello", headers=headers)
        if status is None:
            assert (answer.reset, answer.headers) == (1, [])  # PROTOCOL_ERROR
        else:
            assert answer.status == status
        assert peer.get("/hello").status == 200


def test_asgi_scope_is_that_of_version_2(serve: Serve) -> None:
    site = serve("asgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        answer = peer.get("/scope/a%20b?c=d", authority="app.example", headers=[("cookie", "a=1"), ("cookie", "b=2")])
    scope = json.loads(answer.body)["scope"]
    assert (scope["type"], scope["http_version"], scope["scheme"]) == ("http", "2", "http")
    assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/scope/a b", "/scope/a%20b", "c=d")
    fields = [tuple(pair) for pair in scope["headers"]]
    assert ("host", "app.example") in fields
    assert ("cookie", "a=1; b=2") in fields
    assert not [name for name, _ in fields if name.startswith(":")]


def test_asgi_application_learns_of_a_reset(serve: Serve) -> None:
    site = serve("asgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        stream = peer.ask("/watch")
        site.wait_for("watch waits")
        peer.reset(stream)
        site.wait_for(r"watch received http\.disconnect")
        site.wait_for("send raised")
        assert peer.get("/hello").status == 200


def test_asgi_application_that_sends_much_waits_for_its_own_client_alone(serve: Serve) -> None:
    site = serve("asgi_app:app", cwd=HERE)
    with Http2Peer.connect(site, window=1000, gives_credit=False) as peer:
        slow = peer.ask("/big")
        peer.wait(lambda: len(peer.answers[slow].body) == 1000, "the window is used up")
        assert peer.get("/hello").status == 200
        assert "part 1 was taken" not in site.stderr
        peer.reset(slow)


@pytest.mark.parametrize("accepts", [True, False])
def test_asgi_trailers_and_early_hints(serve: Serve, accepts: bool) -> None:
    site = serve("asgi_extensions_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        te = [("te", "trailers")] if accepts else []
        answer = peer.get("/trailers", headers=te)
        assert answer.is_complete
        assert bool(answer.trailers) == accepts
        hinted = peer.get("/hint-first")
        assert [dict(fields)[":status"] for fields in hinted.interim] == ["103"]
        assert dict(hinted.interim[0])["link"]
        assert (hinted.status, hinted.body) == (200, b"page")


def test_trailers_of_a_request_end_its_body(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        stream = peer.ask("/echo", method="POST", body=b"body", ends=False)
        peer.h2.send_headers(stream, [("x-sum", "1")], end_stream=True)
        peer.flush()
        answer = peer.answer(stream)
        assert (answer.status, answer.body) == (200, b"body")


def test_client_that_expects_100_is_told_to_continue(serve: Serve) -> None:
    site = serve("wsgi_app:app", "--limit-request-body", "1000", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        expects = [("expect", "100-continue"), ("content-length", "4")]
        stream = peer.ask("/echo", method="POST", headers=expects, ends=False)
        peer.wait(lambda: bool(peer.answers[stream].interim), "100")
        assert dict(peer.answers[stream].interim[0])[":status"] == "100"
        peer.send_body(stream, b"body")
        assert peer.answer(stream).body == b"body"
        # A body that would be refused is not asked for.
        expects = [("expect", "100-continue"), ("content-length", "1001")]
        refused = peer.answer(peer.ask("/echo", method="POST", headers=expects, ends=False))
        assert (refused.status, refused.interim) == (413, [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [([("x", "y" * 9000)], 431), ([(f"x{number}", "") for number in range(101)], 431)],
)
def test_head_beyond_a_limit_is_answered_with_its_status(
    serve: Serve, headers: list[tuple[str, str]], status: int
) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        assert peer.get("/hello", headers=headers).status == status
        assert peer.get("/" + "a" * 9000).status == 414
        assert peer.get("/hello").status == 200


# Static files, logs, numbers


def test_static_files_are_served_with_ranges_and_conditions(serve: Serve, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "file.bin").write_bytes(content)
    site = serve("wsgi_app:app", "--static", f"/static={tmp_path}", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        whole = peer.get("/static/file.bin")
        assert (whole.status, hashlib.sha256(whole.body).digest()) == (200, hashlib.sha256(content).digest())
        part = peer.get("/static/file.bin", headers=[("range", "bytes=1000-200999")])
        assert (part.status, part.body) == (206, content[1000:201000])
        assert part.header("content-range") == f"bytes 1000-200999/{len(content)}"
        several = peer.get("/static/file.bin", headers=[("range", "bytes=0-9,20-29")])
        assert several.status == 206
        assert (several.header("content-type") or "").startswith("multipart/byteranges")
        etag = whole.header("etag")
        assert etag is not None
        cached = peer.get("/static/file.bin", headers=[("if-none-match", etag)])
        assert (cached.status, cached.body) == (304, b"")
        head = peer.get("/static/file.bin", method="HEAD")
        assert (head.status, head.header("content-length"), head.body) == (200, str(len(content)), b"")
        assert peer.get("/static/none").status == 404
        assert peer.get("/static/file.bin", headers=[("range", "bytes=9999999-")]).status == 416


def test_access_log_has_the_version(serve: Serve) -> None:
    site = serve("wsgi_app:app", "--access-logfile", "-", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        peer.get("/hello?x")
        peer.get("/" + "a" * 9000)
    site.wait_for_output(r'"GET /hello\?x HTTP/2\.0" 200 5')
    site.wait_for_output(r'"GET /a+[^"]*" 414')


def test_request_that_breaks_a_rule_is_reported_with_its_client(serve: Serve) -> None:
    site = serve("wsgi_app:app", cwd=HERE)
    with Http2Peer.connect(site) as peer:
        peer.send_raw(frame(PING, payload=b"short"))
        peer.wait_for_end()
    assert peer.goaways == [(0, 6)]  # FRAME_SIZE_ERROR
    site.wait_for(r"refused with 400: client 127\.0\.0\.1:\d+: The client broke a rule of HTTP/2")
