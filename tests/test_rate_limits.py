"""Rate limits: who is refused, over each protocol, in all workers, after reloads, and by several hosts."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gateway_clients as by_hand
import kirsch
from http2_peer import Http2Peer
from interpreter import needs_gevent
from kirsch import _native
from kirsch.config.rate_limits import parse_rate_limits
from proc import wait_until
from raw import Peer, build_request, exchange
from test_groups_brokers import run_broker
from two_engines import COMMAND as TWO_ENGINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from raw import Response
    from running import Running, Serve

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = Path(HERE).parent
PATIENCE = 30.0
TARGETS = {
    "threads": ("quarantine_app:app", "--threads=24"),
    "gevent": ("quarantine_app:app", "--driver=gevent"),
    "asyncio": ("quarantine_app:asgi",),
}
HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


def start(serve: Serve, *args: str, target: str = "threads") -> Running:
    if target == "gevent":
        needs_gevent()
    name, *flags = TARGETS[target]
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
    return serve(name, *flags, *args, env={"PYTHONPATH": path})


def get(site: Running, target: str = "/", method: str = "GET", fields: Sequence[tuple[str, str]] = ()) -> Response:
    return exchange(site.host, site.port, build_request(method, target, headers=fields), timeout=PATIENCE)


def statuses(site: Running, count: int, target: str = "/", fields: Sequence[tuple[str, str]] = ()) -> list[int]:
    return [get(site, target, fields=fields).status for _ in range(count)]


def assert_refused(response: Response, seconds: int) -> None:
    assert response.status == 429, response
    assert 0 < int(response.header("Retry-After") or "0") <= seconds
    assert response.body == b"429 Too Many Requests\nThere were too many requests in a short time.\n"


@pytest.mark.parametrize("target", TARGETS)
def test_client_that_sends_too_much_is_refused_and_no_path_beside(serve: Serve, target: str) -> None:
    site = start(serve, "--rate-limit=/login=3/h, /free=off", target=target)
    assert statuses(site, 4, "/login") == [200, 200, 200, 429]
    assert_refused(get(site, "/login"), 1200)
    for other in ("/login/reset", "/%6cogin", "/login?again"):
        assert_refused(get(site, other), 1200)
    for other in ("/", "/log", "/logins", "/free", "/free/login"):
        assert get(site, other).status == 200
    said = site.wait_for(
        r"\[INFO\] refused with 429: client 127.0.0.1:\d+, GET /login: There were too many .*$"
    ).group()
    assert said.endswith("(--rate-limit /login=3/h)")
    assert site.stderr.count("refused with 429") == 1, "a client cannot fill the log"


def test_longest_path_decides_and_limits_of_one_path_all_apply(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h, /api=5/h by=all, /api=3/h by=header:X-Key, /api/free=off")
    one, two = [("X-Key", "one")], [("X-Key", "two")]
    assert statuses(site, 4, "/api", one) == [200, 200, 200, 429]
    assert statuses(site, 3, "/api", two) == [200, 200, 429], "five in all; what is refused is not counted"
    assert statuses(site, 9, "/api/free") == [200] * 9
    assert statuses(site, 3) == [200, 200, 429]


def test_request_without_the_field_counts_for_its_client(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h by=header:X-Key")
    assert statuses(site, 3) == [200, 200, 429]
    assert statuses(site, 3, "/", [("x-key", "1")]) == [200, 200, 429]


def test_client_is_the_one_that_a_trusted_proxy_names(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h", "--trusted-proxies=127.0.0.1")

    def of(client: str) -> list[int]:
        return statuses(site, 3, "/", [("X-Forwarded-For", client)])

    assert of("192.0.2.1") == [200, 200, 429]
    assert of("192.0.2.2") == [200, 200, 429]
    assert of("2001:db8:0:1::1") == [200, 200, 429]
    assert of("2001:db8:0:1:2:3:4:5") == [429, 429, 429], "an address of the same /64"
    assert of("2001:db8:0:2::1") == [200, 200, 429]
    assert of("::ffff:192.0.2.1") == [429, 429, 429], "an IPv4 address in another form"


def test_untrusted_client_cannot_name_another(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h")
    found = [get(site, "/", fields=[("X-Forwarded-For", f"192.0.2.{number}")]).status for number in range(3)]
    assert found == [200, 200, 429]


def test_connection_stays_open_unless_the_request_has_a_body(serve: Serve) -> None:
    site = start(serve, "--rate-limit=1/h, /free=off")
    assert get(site).status == 200
    with Peer.connect(site.host, site.port, PATIENCE) as peer:
        for _ in range(2):
            peer.send(build_request("GET"))
            assert_refused(peer.read_response(), 3600)
        peer.send(build_request("GET", "/free"))
        assert peer.read_response().status == 200
        peer.send(build_request("HEAD"))
        assert peer.read_head().status == 429
    with Peer.connect(site.host, site.port, PATIENCE) as peer:
        peer.send(build_request("POST", "/", body=b"x" * 200_000) + build_request("GET", "/free"))
        assert_refused(peer.read_response(), 3600)
        assert peer.read_until_closed() == b""


def test_stream_is_refused_over_http2_and_others_go_on(serve: Serve) -> None:
    site = start(serve, "--rate-limit=1/h, /free=off")
    with Http2Peer.connect(site) as peer:
        assert peer.get("/").status == 200
        refused = peer.get("/")
        assert (refused.status, 0 < int(refused.header("retry-after") or "0") <= 3600) == (429, True)
        assert peer.get("/free").status == 200


@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
def test_request_is_refused_over_protocols_of_web_servers(serve: Serve, tmp_path: Path, protocol: str) -> None:
    path = str(tmp_path / "socket")
    site = start(serve, "--rate-limit=2/h, /key=2/h by=header:X-Key", f"--bind={protocol}:unix:{path}")

    ask = functools.partial(by_hand.ask, protocol, path)
    assert [ask().status for _ in range(3)] == [200, 200, 429]
    assert ask().one("Retry-After") is not None
    assert [ask("/key", HTTP_X_KEY="one").status for _ in range(3)] == [200, 200, 429]
    assert ask("/key", HTTP_X_KEY="two").status == 200
    site.wait_for("refused with 429: client on a Unix socket, GET /: ")


def test_websocket_handshake_is_refused(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h", target="asyncio")
    assert statuses(site, 3, "/", HANDSHAKE) == [403, 403, 429]


def test_workers_engines_and_reloads_share_the_counts(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIRSCH_TEST_SERVER_COMMAND", TWO_ENGINES)
    site = start(serve, "--rate-limit=20/h", "-w3")
    assert sorted(statuses(site, 15)) == [200] * 15
    for number in (signal.SIGHUP, signal.SIGUSR2):
        site.said_at(number, rf"{number.name}: done")
    assert statuses(site, 8) == [200] * 5 + [429] * 3


def test_reload_changes_the_limits(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "kirsch.toml"
    config.write_text('rate-limit = "2/h"\n')
    site = start(serve, f"--config={config}")
    assert statuses(site, 3) == [200, 200, 429]
    config.write_text('[rate-limit]\n"/" = "4/h"\n"/other" = "off"\n')
    site.said_at(signal.SIGHUP, r"SIGHUP: done")
    assert statuses(site, 5) == [200] * 4 + [429], "a limit that has changed begins anew"
    assert get(site, "/other").status == 200
    config.write_text("")
    site.said_at(signal.SIGHUP, r"SIGHUP: done")
    assert statuses(site, 9) == [200] * 9


def test_client_is_served_again_after_its_wait(serve: Serve) -> None:
    site = start(serve, "--rate-limit=10/s burst=1")
    assert get(site).status == 200
    wait_until(lambda: get(site).status == 200, "a token has come", PATIENCE)


def test_limits_hold_without_a_supervisor(serve: Serve) -> None:
    assert statuses(start(serve, "--rate-limit=2/h", "--workers=0"), 3) == [200, 200, 429]


def test_refused_requests_are_counted_and_logged(serve: Serve) -> None:
    site = start(serve, "--rate-limit=2/h", "--metrics-bind=127.0.0.1:0", "--access-logfile=-")
    said = site.wait_for(r"^metrics on http://(?P<host>[^:]+):(?P<port>[0-9]+)$")

    def metrics() -> str:
        return exchange(said["host"], int(said["port"]), build_request("GET", "/metrics")).body.decode()

    assert "\nkirsch_requests_rate_limited_total 0\n" in metrics()
    assert statuses(site, 5) == [200, 200, 429, 429, 429]
    wait_until(lambda: "\nkirsch_requests_rate_limited_total 3\n" in metrics(), "they are counted", PATIENCE)
    assert "\nkirsch_requests_refused_total 3\n" in metrics()
    assert "\nkirsch_rate_limit_evictions_total 0\n" in metrics()
    site.wait_for_output(r'(?s)(?:"GET / HTTP/1.1" 429.*){3}')


def test_health_checks_and_static_files_are_not_counted(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    site = start(serve, "--rate-limit=1/h", "--health-path=/health", f"--static=/static={tmp_path}")
    for _ in range(3):
        assert get(site, "/health").status == 200
        assert get(site, "/static/a.txt").status == 200
    assert statuses(site, 2) == [200, 429]


@pytest.mark.parametrize("kind", ["redis", "postgresql", "nats"])
def test_hosts_with_one_broker_share_the_counts(serve: Serve, kind: str) -> None:
    with contextlib.contextmanager(run_broker)(kind) as broker:
        args = ("--rate-limit=1/h by=header:X-Key", f"--groups={broker.url}", "-w2")
        one, two = start(serve, *args), start(serve, *args)
        for here, there in ((one, two), (two, one)):
            used: list[str] = []

            def is_refused_there(here: Running = here, there: Running = there, used: list[str] = used) -> bool:
                used.append(f"{here.port} {len(used)}")
                assert get(here, fields=[("X-Key", used[-1])]).status == 200
                # One that was used some requests ago, and that this host has never seen.
                return len(used) > 20 and get(there, fields=[("X-Key", used[-20])]).status == 429

            wait_until(is_refused_there, "what was used on one host is refused by the other", PATIENCE)


EXAMPLES = {
    "20/s": [("", "20/s", 20, 1.0, 20, "client")],
    "30/10s burst=5": [("", "30/10s burst=5", 30, 10.0, 5, "client")],
    "/login=5/m,/api/=2/d by=header:X-Key": [
        ("/login", "5/m", 5, 60.0, 5, "client"),
        ("/api", "2/d by=header:X-Key", 2, 86400.0, 2, "x-key"),
    ],
    "/=1/h by=all, /static=off": [("", "1/h by=all", 1, 3600.0, 1, "all"), ("/static", "off", 0, 0.0, 0, "all")],
    "": [],
}


@pytest.mark.parametrize("text", EXAMPLES)
def test_limits_are_read(text: str) -> None:
    limits = tuple(EXAMPLES[text])
    assert parse_rate_limits(text) == limits
    read: Any = limits  # as the settings pass them on
    assert kirsch.Server(lambda *_: [], rate_limit=read)._options["rate_limit"] == limits
    texts = {prefix or "/": text for prefix, text, *_ in limits}
    assert kirsch.Server(lambda *_: [], rate_limit=texts)._options["rate_limit"] == limits


MISTAKES = {
    "20": "is not a rate; write 20/s",
    "0/s": "is not a rate",
    "20/0s": "is a rate in no time",
    "20/fortnight": "is not a duration",
    "20/s burst": "has the option 'burst'",
    "20/s by=header:": "names '', which is not a header field",
    "login=5/m": "did you mean '/login'",
    "/login": "lacks a limit; write /login=20/s",
    "/login?a=5/m": "is more than a path",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_limit_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(MISTAKES[text])):
        parse_rate_limits(text)


def test_debts_that_are_none_are_refused() -> None:
    memory = bytearray(_native.RATE_LIMIT_SIZE)
    _native.add_rate_limit_debts(memory, b"")
    with pytest.raises(ValueError, match="pairs of 8 bytes"):
        _native.add_rate_limit_debts(memory, b"seven..")
    with pytest.raises(ValueError, match="bytes at a multiple of"):
        _native.take_rate_limit_debts(bytearray(64))


def test_example_of_the_guide_does_what_it_says(serve: Serve, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "rate-limits.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```toml\n# kirsch.toml\n(.*?)```", text, re.DOTALL)
    config = tmp_path / "kirsch.toml"
    config.write_text(settings.replace("shop:app", "quarantine_app:app"))
    site = start(serve, f"--config={config}")
    assert statuses(site, 4, "/login") == [200, 200, 200, 429]
    assert get(site, "/login").header("Retry-After") == "12"
    assert statuses(site, 30, "/webhooks") == [200] * 30
    assert 429 in statuses(site, 200)
    assert get(site, "/api", fields=[("X-Api-Key", json.dumps("a"))]).status == 200
