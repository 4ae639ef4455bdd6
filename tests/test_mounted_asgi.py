"""WSGI and ASGI applications side by side in one process, through sockets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect as connect_websocket

import kirsch
import mounted_app
from proc import wait_until
from raw import Peer, build_request, exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from raw import Response
    from running import Running, Serve

HERE = os.path.dirname(__file__)


@pytest.fixture
def both(serve: Serve) -> Any:
    """Starts a server of both, with further arguments; nothing serves what is not mounted."""

    def start(*args: str, **env: str) -> Running:
        # The first word is the application's place in the command; a mount can stand there, too.
        return serve("--mount=/shop=mounted_app:wsgi", "--mount=/api=mounted_app:api", *args, env=env, cwd=HERE)

    return start


def connect(site: Running) -> Peer:
    return Peer.connect(site.host, site.port, timeout=20)


def ask(site: Running, target: str, method: str = "GET", **more: Any) -> Response:
    return exchange(site.host, site.port, build_request(method, target, **more), timeout=20)


def asked(site: Running, target: str, method: str = "GET", **more: Any) -> Peer:
    peer = connect(site)
    peer.send(build_request(method, target, **more))
    return peer


def test_each_application_sees_its_place_as_its_interface_says(both: Any) -> None:
    site = both("--mount=/api/admin=mounted_app:admin", "--mount=api.example.org=mounted_app:admin")
    with connect(site) as peer:  # one connection serves all

        def where(target: str, **headers: str) -> Any:
            peer.send(build_request("GET", target, headers=headers))
            response = peer.read_response()
            assert response.status == 200, response
            return json.loads(response.body)

        assert where("/api/where?a=1") == {
            "name": "api",
            "root_path": "/api",
            "path": "/api/where",
            "raw_path": "/api/where",
            "query": "a=1",
            "state": {"of": "api"},
        }
        for target in ("/shop/where?b=2", "/%73hop/where?b=2"):
            assert where(target) == {
                "SCRIPT_NAME": "/shop",
                "PATH_INFO": "/where",
                "RAW_URI": target,
                "QUERY_STRING": "b=2",
                "HTTP_HOST": site.host,
                "wsgi.multithread": True,
                "in_loop": False,
            }
        assert where("/api/admin/where")["state"] == {"of": "admin"}
        found = where("/where", Host="api.example.org")
        assert (found["name"], found["root_path"], found["path"]) == ("admin", "", "/where")
        for target in ("/", "/shopping", "/apis/where"):
            peer.send(build_request("GET", target))
            response = peer.read_response()
            assert (response.status, response.body) == (404, b"404 Not Found\nNo application is mounted here.\n")
    assert (
        "serving mounted_app:wsgi at /shop (WSGI), mounted_app:api at /api (ASGI), mounted_app:admin at /api/admin "
        "(ASGI), mounted_app:admin at api.example.org (ASGI)" in site.stderr
    )


PLACES = [
    "/shop",
    "/shop/admin",
    "/größe",
    "example.org",
    "*.example.org",
    "*.eu.example.org",
    "*.example.org/shop",
    "api.example.org/v1",
    "[::1]",
]
HOSTS = ["", "a", "example.org", "EXAMPLE.org:8000", "example.org.", "example.org:", ".example.org", "www.example.org"]
HOSTS += ["a.b.example.org:80", "a.eu.example.org", "eu.example.org", "notexample.org", "api.example.org", "[::2]"]
HOSTS += ["API.example.org:000080", "[::1]:8000", "[::1]", "xn--bcher-kva.example.org"]
TARGETS = [
    "/",
    "/shop",
    "/shop/",
    "/shop//x",
    "/shopping",
    "//shop",
    "/shop/admin",
    "/shop/admin/x",
    "/shop/administrator",
    "/gr%C3%B6%C3%9Fe/x",
    "/gr%f6%dfe",
    "/%73hop/x",
    "/shop%2Fadmin",
    "/v1",
    "/v1/x",
    "/shop/../v1",
    "/SHOP",
    "/shop;x",
    "/sho%70?q=/shop/admin",
    "http://example.org/shop",
    "http://www.example.org:1/shop/x",
    "*",
]


def test_request_goes_to_the_same_place_whichever_interfaces_are_mounted(
    serve: Serve, write_app: Callable[[str], str]
) -> None:
    # WSGI applications alone are called in the threads of the pool; beside ASGI applications, in threads beside a loop.
    name = write_app("""
        def make(name):
            def app(environ, start_response):
                start_response("200 OK", [("X-App", name), ("X-Script", environ["SCRIPT_NAME"])])
                return [environ["PATH_INFO"].encode("latin-1")]
            return app

        for number in range(20):
            globals()[f"app{number}"] = make(str(number))

        async def asgi(scope, receive, send):
            raise AssertionError
    """)
    mounts = [f"--mount={place}={name}:app{number}" for number, place in enumerate(PLACES, 1)]
    found = []
    for more in ([], [f"--mount=/asgi={name}:asgi"]):
        site = serve(f"{name}:app0", *mounts, *more)
        with connect(site) as peer:
            for host in HOSTS:
                for target in TARGETS:
                    method = "OPTIONS" if target == "*" else "GET"
                    peer.send(build_request(method, target, headers={"Host": host}))
                    response = peer.read_response()
                    seen = (response.status, response.header("x-app"), response.header("x-script"), response.body)
                    found.append((host, target, *seen))
    count = len(HOSTS) * len(TARGETS)
    assert found[:count] == found[count:]
    assert {each[3] for each in found} == {str(number) for number in range(len(PLACES) + 1)}, "each place has requests"


def test_bodies_and_responses_of_both_are_as_when_they_serve_alone(both: Any) -> None:
    site = both()
    for target in ("/shop/echo", "/api/echo"):
        for body in (b"", b"short", os.urandom(300_000)):
            assert ask(site, target, "POST", body=body).body == body
        with connect(site) as peer:
            head = build_request("POST", target, headers={"Transfer-Encoding": "chunked"})
            peer.send(head + b"3\r\nabc\r\n" + b"2\r\nde\r\n0\r\n\r\n")
            assert peer.read_response().body == b"abcde"
    assert ask(site, "/shop/lines", "POST", body=b"a\nb\nc").body == b"a\n|b\n|c"
    assert ask(site, "/shop/write").body == b"written and returned"
    assert ask(site, "/shop/file").body == Path(mounted_app.__file__).read_bytes()
    assert ask(site, "/api/stream").body == b"0 1 2 end"
    assert ask(site, "/shop/parts?3").body == bytes(3 * 65536)
    # A body that is not here yet holds no thread, and the application is not called.
    with asked(site, "/shop/upload", "POST", headers={"Content-Length": "10"}) as peer:
        peer.send(b"12345")
        assert ask(site, "/shop/").body == b"shop"
        assert "WSGI was called" not in site.stderr
        peer.send(b"67890")
        assert peer.read_response().body == b"10"


def test_wsgi_response_waits_for_a_slow_client_without_a_thread_and_in_its_own(both: Any) -> None:
    site = both("--threads", "1")
    slow = asked(site, "/shop/parts?400")
    slow.read_head()
    # The only thread does not wait for this client.
    assert ask(site, "/shop/").body == b"shop"
    assert sum(len(slow.read_chunk() or b"") for _ in range(400)) == 400 * 65536
    slow.close()
    gone = asked(site, "/shop/parts?400")
    gone.read_head()
    gone.abort()
    wait_until(lambda: site.stderr.count("WSGI parts are closed") == 2, "both responses are closed", 20)
    assert "the thread has changed" not in site.stderr


def test_exception_in_one_application_does_not_reach_the_others(both: Any) -> None:
    site = both()
    for name, mount in (("WSGI", "/shop"), ("ASGI", "/api")):
        assert ask(site, f"{mount}/raise").status == 500
        site.wait_for(f"the application raised an exception on GET {mount}/raise")
        site.wait_for(f"ValueError: raised in {name}")
    assert not ask(site, "/shop/late").complete
    assert ask(site, "/shop/").body == b"shop"
    assert ask(site, "/api/").body == b"api"


def test_loop_goes_on_while_all_threads_are_in_calls(both: Any, tmp_path: Path) -> None:
    site = both("--threads", "2", "--queue", "1", "--queue-timeout", "60")
    gate = tmp_path / "gate"
    waiting = [asked(site, f"/shop/wait?{gate}") for _ in range(2)]
    wait_until(lambda: site.stderr.count("WSGI waits") == 2, "both threads are taken", 20)
    waiting.append(asked(site, f"/shop/wait?{gate}"))
    assert ask(site, "/api/").body == b"api"
    # One waits for a thread, and no more may.
    refused = ask(site, "/shop/")
    assert (refused.status, refused.header("Retry-After") is not None) == (503, True)
    gate.touch()
    assert [peer.read_response().body for peer in waiting] == [b"waited"] * 3
    assert ask(site, "/shop/").body == b"shop"
    for peer in waiting:
        peer.close()


def test_request_that_waits_too_long_for_a_thread_is_answered_with_503(both: Any, tmp_path: Path) -> None:
    site = both("--threads", "1", "--queue-timeout", "0.2")
    gate = tmp_path / "gate"
    waiting = asked(site, f"/shop/wait?{gate}")
    site.wait_for("WSGI waits", timeout=20)
    assert ask(site, "/shop/").status == 503
    gate.touch()
    assert waiting.read_response().body == b"waited"
    waiting.close()


def test_message_that_no_thread_is_free_for_closes_with_1013(both: Any, tmp_path: Path) -> None:
    site = both("--threads", "1", "--queue", "1", "--queue-timeout", "60")
    gate = tmp_path / "gate"
    url = f"ws://{site.host}:{site.port}/shop/handler"
    more: Any = {"open_timeout": 20, "close_timeout": 20, "ping_interval": None, "proxy": None}
    with connect_websocket(url, **more) as first, connect_websocket(url, **more) as second:
        with connect_websocket(url, **more) as third:
            first.send(f"wait {gate}")
            site.wait_for("handler waits", timeout=20)
            second.send("waits for the thread")
            for _ in range(2):  # the loop has seen the message when it answers the second of these
                assert ask(site, "/api/").body == b"api"
            third.send("one too many")
            with pytest.raises(ConnectionClosed) as raised:
                third.recv(timeout=20)
            assert raised.value.rcvd is not None
            assert raised.value.rcvd.code == 1013
            site.wait_for("handler closed with 1013", timeout=20)
        gate.touch()
        assert first.recv(timeout=20) == "waited"
        assert second.recv(timeout=20) == "waits for the thread"
        first.send("still there")
        assert first.recv(timeout=20) == "still there"


def test_deadline_is_the_same_for_both(both: Any) -> None:
    site = both("--timeout", "0.3", "--threads", "1")
    for name, mount in (("WSGI", "/shop"), ("ASGI", "/api")):
        assert ask(site, f"{mount}/hang").status == 504
        site.wait_for(f"{name} hangs")
        # The thread is free again.
        assert ask(site, f"{mount}/").status == 200
    said = site.wait_for("GET /shop/hang .*has passed its deadline of 0.3 s, and its client was sent 504.*", timeout=20)
    assert "kirsch-0" in said.group()
    site.wait_for("mounted_app.py.*, in wsgi", timeout=20)
    site.wait_for("GET /shop/hang was ended by kirsch.RequestTimeout", timeout=20)


def test_call_that_waits_for_its_body_is_interrupted_at_its_deadline(both: Any) -> None:
    site = both("--timeout", "0.3", "--threads", "1", "--request-buffering", "off")
    with asked(site, "/shop/upload", "POST", headers={"Content-Length": "10"}) as peer:
        assert peer.read_response().status == 504
    site.wait_for("missed its deadline, of POST /shop/upload|POST /shop/upload was ended by", timeout=20)
    assert ask(site, "/shop/").body == b"shop"


def test_slow_request_in_a_thread_is_logged_with_its_stack(both: Any, tmp_path: Path) -> None:
    site = both("--slow-request", "0.2s")
    gate = tmp_path / "gate"
    for name, mount in (("WSGI", "/shop"), ("ASGI", "/api")):
        with asked(site, f"{mount}/wait?{gate}") as peer:
            site.wait_for(f"{name} waits", timeout=20)
            site.wait_for(f"GET {mount}/wait .*running for", timeout=20)
            gate.touch()
            assert peer.read_response().body == b"waited"
        gate.unlink()
    assert "in wait_for_file" in site.stderr


def test_lifespans_start_in_their_order_and_end_in_the_opposite_one(both: Any) -> None:
    site = both("--mount=/admin=mounted_app:admin", "--mount=/also=mounted_app:api", "--workers", "0")
    assert ask(site, "/shop/").body == b"shop"
    assert site.stop() == 0
    said = re.findall(r"^(api|admin) (starts|shuts down)$", site.stderr, re.MULTILINE)
    assert said == [("api", "starts"), ("admin", "starts"), ("admin", "shuts down"), ("api", "shuts down")]


def test_start_up_that_fails_ends_those_before_it_and_nothing_serves() -> None:
    mounts = ["--mount=/shop=mounted_app:wsgi", "--mount=/api=mounted_app:api", "--mount=/admin=mounted_app:admin"]
    run = subprocess.run(
        [sys.executable, "-m", "kirsch", "--bind", "127.0.0.1:0", *mounts],
        cwd=HERE,
        env={**os.environ, "FAILS": "admin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 3
    assert "the application cannot start: mounted_app:admin at /admin: no database for admin" in run.stderr
    assert "api shuts down" in run.stderr
    assert "Traceback" not in run.stderr


def test_reload_whose_start_up_fails_keeps_the_workers(both: Any, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("from mounted_app import admin as app\n", encoding="utf-8")
    site = both("--mount=/admin=other:app", f"--pythonpath={tmp_path}")
    before = site.worker_pids()
    failing = "async def app(scope, receive, send):\n    await receive()\n"
    failing += "    await send({'type': 'lifespan.startup.failed', 'message': 'no disk'})\n"
    (tmp_path / "other.py").write_text(failing, encoding="utf-8")
    site.said_at(signal.SIGHUP, "reload failed, keeping the current workers: .*other:app at /admin: no disk")
    assert ask(site, "/shop/").body == b"shop"
    site.wait_for_workers(1, timeout=20)
    assert site.worker_pids() == before
    (tmp_path / "other.py").write_text("from mounted_app import api as app\n", encoding="utf-8")
    site.send(signal.SIGHUP)
    site.wait_for_workers(1, without=before, timeout=30)
    wait_until(lambda: json.loads(ask(site, "/admin/where").body)["name"] == "api", "the new one serves", 20)


def test_drain_waits_for_requests_of_both(both: Any, tmp_path: Path) -> None:
    site = both("--graceful-timeout", "30", "--workers", "0")
    gate = tmp_path / "gate"
    peers = [asked(site, f"{mount}/wait?{gate}") for mount in ("/shop", "/api")]
    for name in ("WSGI", "ASGI"):
        site.wait_for(f"{name} waits", timeout=20)
    site.send(signal.SIGTERM)
    site.wait_for("SIGTERM: stopping", timeout=20)
    gate.touch()
    for peer in peers:
        assert peer.read_response().body == b"waited"
        peer.close()
    assert site.stop() == 0


def test_websocket_goes_to_the_application_that_its_path_names(both: Any) -> None:
    site = both("--mount=/api/admin=mounted_app:admin")
    url = f"ws://{site.host}:{site.port}"
    more: Any = {"open_timeout": 20, "close_timeout": 20, "proxy": None}
    for path, greeting in (("/api/chat", "api /api /api/chat"), ("/api/admin/x", "admin /api/admin /api/admin/x")):
        with connect_websocket(url + path, **more) as client:
            assert client.recv(timeout=20) == greeting
            client.send("héllo")
            assert client.recv(timeout=20) == "héllo"
    with pytest.raises(InvalidStatus) as raised, connect_websocket(f"{url}/nowhere", **more):
        pass
    assert raised.value.response.status_code == 404


def test_ready_path_is_asked_of_the_application_at_that_path(both: Any) -> None:
    for path in ("/shop/", "/api/"):
        assert ask(both("--ready-path", path), path).status == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_both_are_served_by_either_loop(both: Any, loop: str) -> None:
    site = both("--loop", loop)
    for _ in range(3):
        assert ask(site, "/shop/echo", "POST", body=b"x" * 100_000).body == b"x" * 100_000
        assert ask(site, "/api/echo", "POST", body=b"x" * 100_000).body == b"x" * 100_000


def test_interface_of_a_mount_can_be_written(both: Any) -> None:
    site = both("--mount=/opaque=asgi:mounted_app:opaque")
    assert json.loads(ask(site, "/opaque/where").body)["root_path"] == "/opaque"


def check(tmp_path: Path, toml: str, *args: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "kirsch.toml").write_text(toml, encoding="utf-8")
    command = [sys.executable, "-m", "kirsch", "check", "--pythonpath", HERE, *args]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)


def test_check_shows_each_mount_with_its_interface_and_refuses_what_cannot_be_served(tmp_path: Path) -> None:
    tables = '[[mount]]\npath = "/shop"\napp = "mounted_app:wsgi"\n[[mount]]\npath = "/api"\n'
    good = tables + 'app = "mounted_app:opaque"\ninterface = "asgi"\n'
    run = check(tmp_path, good)
    assert run.returncode == 0, run.stderr
    assert "mounted_app:wsgi at /shop (WSGI), mounted_app:opaque at /api (ASGI) is ok" in run.stdout
    for toml, args, complaint in [
        (
            tables + 'app = "mounted_app:opaque"\ninterface = "asgy"\n',
            (),
            "interface is 'asgy', and one of auto, wsgi, asgi is wanted",
        ),
        (good, ("--driver", "gevent"), "the driver gevent serves WSGI applications"),
        ("", ("--mount", "/x=asgy:mounted_app:api"), "'asgy:mounted_app:api' begins with 'asgy', which is none of"),
    ]:
        run = check(tmp_path, toml, *args)
        assert run.returncode != 0, (toml, args)
        assert complaint in run.stderr, run.stderr
        assert "Traceback" not in run.stderr, run.stderr


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return bytes(answer.read())


def test_program_serves_mounts_by_start_and_in_its_own_loop() -> None:
    mounts = {"/shop": mounted_app.wsgi, "/api": mounted_app.api}
    server = kirsch.Server(mounts=mounts, bind="127.0.0.1:0")
    with server:
        thread = threading.Thread(target=server.start)
        thread.start()
        assert fetch(f"{server.urls[0]}/shop/") == b"shop"
        assert json.loads(fetch(f"{server.urls[0]}/api/where"))["root_path"] == "/api"
    thread.join(20)
    assert not thread.is_alive()

    async def main() -> None:
        server = kirsch.Server(mounted_app.admin, bind="127.0.0.1:0", mounts=mounts)
        server.listen()
        serving = asyncio.create_task(server.serve())
        assert await asyncio.to_thread(fetch, f"{server.urls[0]}/shop/") == b"shop"
        assert await asyncio.to_thread(fetch, f"{server.urls[0]}/x") == b"admin"
        server.stop()
        await asyncio.wait_for(serving, 20)

    asyncio.run(main())
    names = [thread.name for thread in threading.enumerate() if thread.name.startswith("kirsch-")]
    assert not names, "threads are left behind"


def test_program_is_told_what_cannot_be_mounted() -> None:
    for mounts, app, complaint in [
        ({"/shop": mounted_app.wsgi, "/x y?": mounted_app.api}, None, "is more than a path"),
        ({"shop": mounted_app.wsgi}, None, "did you mean /shop"),
        ({"/shop": None}, None, "mounts: what is at '/shop' must be callable"),
        ({"/": mounted_app.wsgi}, mounted_app.api, "is for every request"),
    ]:
        with pytest.raises((TypeError, ValueError), match=complaint):
            kirsch.Server(app, mounts=mounts)  # type: ignore[arg-type]  # that is what is tested


def test_load_of_both_at_once_is_answered_rightly(both: Any) -> None:
    site = both("--threads", "4")
    wrong: list[str] = []

    def talk(number: int) -> None:
        with connect(site) as peer:
            for turn in range(60):
                body = os.urandom((number * 7919 + turn * 104_729) % 70_000)
                mount = "/shop" if (number + turn) % 2 else "/api"
                peer.send(build_request("POST", f"{mount}/echo", body=body))
                if peer.read_response().body != body:
                    wrong.append(f"{mount} {number} {turn}")

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(8)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    print(f"480 requests took {time.monotonic() - began:.1f} s")
    assert not wrong
