"""The quarantine of routes that crash workers: which route is refused, for how long, by whom it is lifted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import gateway_clients as by_hand
from gateway_clients import FastCgi, variables
from interpreter import needs_gevent
from kirsch.supervisor.crash_evidence import Crash, Evidence, RecordedRoute
from proc import wait_until
from raw import MalformedResponse, Peer, PeerClosed, Response, build_request, exchange
from two_engines import COMMAND as TWO_ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from running import Running, Serve

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 30.0
CRASHES_MAX = 12
"""More than are needed. The first crash is recorded by no worker, and others may be ambiguous."""

QUARANTINED = r"\[ERROR\] (?P<route>.*) is in quarantine for [0-9.]+ s .*$"

TARGETS = {
    "threads": ("quarantine_app:app", "--threads=24"),
    "one thread": ("quarantine_app:app", "--threads=1"),
    "gevent": ("quarantine_app:app", "--driver=gevent"),
    "asyncio": ("quarantine_app:asgi",),
}
every_target = pytest.mark.parametrize("target", TARGETS)

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


def start(serve: Serve, target: str, *args: str, gate: Path | None = None) -> Running:
    if target == "gevent":
        needs_gevent()
    name, *flags = TARGETS[target]
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
    return serve(name, *flags, *args, env={"PYTHONPATH": path, "GATE": str(gate or "")})


def get(site: Running, target: str, method: str = "GET", fields: Sequence[tuple[str, str]] = ()) -> Response:
    request = build_request(method, target, headers=fields)
    return exchange(site.host, site.port, request, timeout=PATIENCE)


def crash(site: Running, ask: Callable[[], Any], count: int = 1) -> None:
    """Have ``ask`` end a worker, and wait for the next one, ``count`` times."""
    for _ in range(count):
        seen = len(site.stderr)
        with contextlib.suppress(OSError, PeerClosed, MalformedResponse, by_hand.Broken, AssertionError):
            ask()
            raise RuntimeError(f"no worker has crashed:\n{site.stderr}")
        site.wait_for(r"\[ERROR\] worker [0-9]+ .*another is started", PATIENCE, seen)


def crash_until_quarantined(site: Running, ask: Callable[[], Any]) -> str:
    """Have ``ask`` end workers until a route is in quarantine; return its name."""
    before = len(re.findall(QUARANTINED, site.stderr, re.MULTILINE))
    for _ in range(CRASHES_MAX):
        crash(site, ask)
        if len(found := re.findall(QUARANTINED, site.stderr, re.MULTILINE)) > before:
            return str(found[-1])
    raise AssertionError(f"no route is in quarantine:\n{site.stderr}")


def assert_refused(response: Response, seconds: int = 60) -> None:
    assert (response.status, response.header("Connection")) == (503, "close"), response
    assert 0 < int(response.header("Retry-After") or "0") <= seconds
    assert b"crashed the server" in response.body


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kirsch", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@every_target
@pytest.mark.parametrize("cause", ["", "?exit", "?fault"])
def test_route_that_crashes_workers_is_refused_and_no_other(serve: Serve, target: str, cause: str) -> None:
    site = start(serve, target)
    crash(site, lambda: get(site, f"/boom{cause}"), 3)
    said = site.wait_for(QUARANTINED).group()
    how = {"": "was killed by SIGKILL", "?exit": "ended with status 9", "?fault": "was killed by SIGSEGV"}[cause]
    assert "GET /boom is in quarantine for 60 s (--quarantine)" in said
    assert len(re.findall(rf"worker [0-9]+ {how}", said)) == 2, "of the first crash nothing is known"
    assert "SIGHUP" in said
    assert "kirsch quarantine --lift" in said
    assert_refused(get(site, f"/boom{cause}"))
    assert_refused(get(site, "/boom?other=query"))
    assert_refused(get(site, "/%62oom"))
    for innocent in ("/", "/boo", "/boo%6D"[:5]):
        assert get(site, innocent).status == 200
    assert get(site, "/", "POST").status == 200
    assert site.stderr.count("is in quarantine") == 1


@every_target
def test_route_is_refused_by_all_of_several_workers(serve: Serve, target: str) -> None:
    site = start(serve, target, "-w4", "--quarantine=600")
    assert crash_until_quarantined(site, lambda: get(site, "/boom")) == "GET /boom"
    site.wait_for_workers(4)
    for _ in range(20):
        assert_refused(get(site, "/boom"), 600)
    assert get(site, "/").status == 200


@pytest.mark.parametrize("protocol", ["fastcgi", "uwsgi", "scgi"])
def test_route_is_refused_over_protocols_of_web_servers(serve: Serve, tmp_path: Path, protocol: str) -> None:
    socket_path = str(tmp_path / "socket")
    site = start(serve, "threads", f"--bind={protocol}:unix:{socket_path}")

    def ask(target: str) -> by_hand.Response:
        listed = variables(target=target)
        if protocol == "fastcgi":
            with FastCgi(socket_path) as front:
                return front.ask(target=target)
        data = by_hand.uwsgi(listed) if protocol == "uwsgi" else by_hand.scgi(listed)
        return by_hand.parse(by_hand.exchange(socket_path, data))

    crash(site, lambda: ask("/boom"), 3)
    site.wait_for(QUARANTINED)
    refused = ask("/boom")
    assert (refused.status, refused.one("Retry-After") is not None) == (503, True), refused
    assert ask("/").status == 200
    assert_refused(get(site, "/boom"))


def test_other_requests_of_a_fastcgi_connection_are_served_on(serve: Serve, tmp_path: Path) -> None:
    socket_path = str(tmp_path / "socket")
    site = start(serve, "threads", f"--bind=fastcgi:unix:{socket_path}")
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    with FastCgi(socket_path) as front:
        for _ in range(2):
            assert front.ask("GET", "/boom", b"x" * 100_000).status == 503
            assert front.ask(target="/boom").status == 503
            assert front.ask(target="/").status == 200


def test_refused_request_with_a_body_is_answered_and_its_connection_closed(serve: Serve) -> None:
    site = start(serve, "threads")
    crash(site, lambda: get(site, "/boom", "POST"), 3)
    site.wait_for(QUARANTINED)
    with Peer.connect(site.host, site.port, PATIENCE) as peer:
        peer.send(build_request("POST", "/boom", body=b"x" * 200_000) + build_request("GET", "/"))
        assert_refused(peer.read_response())
        assert peer.read_until_closed() == b""
    with Peer.connect(site.host, site.port, PATIENCE) as peer:
        peer.send(build_request("GET", "/") + build_request("POST", "/boom"))
        assert peer.read_response().status == 200
        assert_refused(peer.read_response())


def test_websocket_handshake_is_a_route_of_its_own(serve: Serve) -> None:
    site = start(serve, "asyncio")
    crash(site, lambda: get(site, "/boom", fields=HANDSHAKE), 3)
    assert site.wait_for(QUARANTINED)["route"] == "WEBSOCKET /boom"
    assert_refused(get(site, "/boom", fields=HANDSHAKE))
    assert get(site, "/", fields=HANDSHAKE).status == 403
    crash(site, lambda: get(site, "/boom"))


def test_route_belongs_to_its_application_where_there_are_several(serve: Serve) -> None:
    path = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH", "")]))
    mounts = ["--mount=/a=quarantine_app:app", "--mount=other.example/=quarantine_app:other"]
    site = serve("quarantine_app:asgi", *mounts, env={"PYTHONPATH": path})
    crash(site, lambda: get(site, "/a/boom"), 3)
    assert site.wait_for(QUARANTINED)["route"] == "GET /a/boom"
    assert_refused(get(site, "/a/boom"))
    assert get(site, "/a/good").status == 200
    crash(site, lambda: get(site, "/a/boom", fields=[("Host", "other.example")]))


def test_engines_of_a_process_share_the_quarantine(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KIRSCH_TEST_SERVER_COMMAND", TWO_ENGINES)
    site = start(serve, "threads")
    assert crash_until_quarantined(site, lambda: get(site, "/boom")) == "GET /boom"
    for _ in range(20):
        assert_refused(get(site, "/boom"))
        assert get(site, "/").status == 200


@pytest.mark.parametrize("target", ["threads", "gevent", "asyncio"])
def test_slow_requests_of_others_are_not_blamed_for_crashes(serve: Serve, tmp_path: Path, target: str) -> None:
    """Each crash ends 20 slow requests, which come again. None of them ever ends otherwise."""
    gate = tmp_path / "gate"
    site = start(serve, target, gate=gate)

    def ask() -> None:
        seen = site.stderr.count("inside /good\n")
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                peer = stack.enter_context(Peer.connect(site.host, site.port, PATIENCE))
                peer.send(build_request("GET", "/good"))
            wait_until(lambda: site.stderr.count("inside /good\n") >= seen + 20, "20 requests are inside", PATIENCE)
            get(site, "/boom")

    assert crash_until_quarantined(site, ask) == "GET /boom"
    assert_refused(get(site, "/boom"))
    gate.touch()
    assert get(site, "/good").status == 200
    assert re.findall(QUARANTINED, site.stderr, re.MULTILINE) == ["GET /boom"]


def test_page_that_everybody_opens_is_not_blamed_for_crashes(serve: Serve) -> None:
    """A page is open in each worker that ends, and is the newest request there, but its requests end as well."""
    site = start(serve, "asyncio", "--quarantine=600")

    def ask() -> None:
        for _ in range(3):
            assert get(site, "/").status == 200
        get(site, "/boom")

    assert crash_until_quarantined(site, ask) == "GET /boom"
    assert get(site, "/").status == 200


@every_target
def test_family_of_paths_is_refused_once_three_of_them_have_crashed_workers(serve: Serve, target: str) -> None:
    site = start(serve, target)
    numbers = iter(range(1, 100))
    assert crash_until_quarantined(site, lambda: get(site, f"/item/{next(numbers)}")) == "GET /item/*"
    assert next(numbers) == 5, "the first crash is not known; then three"
    assert_refused(get(site, "/item/1000"))
    assert get(site, "/item").status == 200


def test_one_path_with_a_number_is_refused_alone(serve: Serve) -> None:
    site = start(serve, "threads")
    crash(site, lambda: get(site, "/item/7"), 3)
    assert site.wait_for(QUARANTINED)["route"] == "GET /item/7"
    assert_refused(get(site, "/item/7"))
    crash(site, lambda: get(site, "/item/8"))


def test_long_paths_are_told_apart(serve: Serve) -> None:
    site = start(serve, "threads")
    long = "/" + "x" * 1000
    crash(site, lambda: get(site, f"{long}/boom"), 3)
    assert re.fullmatch(r"GET /x+\.\.\.", site.wait_for(QUARANTINED)["route"])
    assert_refused(get(site, f"{long}/boom"))
    assert get(site, f"{long}/moob").status == 200


def test_quarantine_ends_after_its_time(serve: Serve) -> None:
    site = start(serve, "threads", "--quarantine=3")
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    assert_refused(get(site, "/boom"), 3)
    site.wait_for(r"\[INFO\] GET /boom is no longer in quarantine: its time is over \(--quarantine\)$")
    crash(site, lambda: get(site, "/boom"))
    assert site.stderr.count("is in quarantine") == 1, "it is not enough that it was"
    crash(site, lambda: get(site, "/boom"), 2)
    site.wait_for(rf"(?s)no longer.*{QUARANTINED}")


@pytest.mark.parametrize("preload", [(), ("--preload",)])
@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGHUP, "the application was reloaded"), (signal.SIGUSR2, "the server was upgraded")]
)
def test_reload_and_upgrade_lift_the_quarantine(
    serve: Serve, preload: tuple[str, ...], number: signal.Signals, why: str
) -> None:
    site = start(serve, "threads", *preload)
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    assert_refused(get(site, "/boom"))
    before = site.worker_pids()
    site.send(number)
    site.wait_for(rf"\[INFO\] GET /boom is no longer in quarantine: {why}$")
    site.wait_for(rf"{number.name}: done")
    site.wait_for_workers(1, without=before)  # no old one, whose crash would not be that of a worker that serves
    crash(site, lambda: get(site, "/boom"))


def test_failed_reload_lifts_nothing(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> None:
    module = write_app(
        """
        import os
        if os.path.exists(os.environ["BROKEN"]):
            raise RuntimeError("broken")
        def app(environ, start_response):
            if environ["PATH_INFO"] == "/boom":
                os._exit(9)
            start_response("200 OK", [])
            return [b"ok"]
        """
    )
    broken = tmp_path / "broken"
    site = serve(f"{module}:app", env={"BROKEN": str(broken)})
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    assert get(site, "/").status == 200, "the last worker is there"
    broken.touch()
    site.said_at(signal.SIGHUP, r"SIGHUP: reload failed")
    assert_refused(get(site, "/boom"))


def test_command_lists_and_lifts_the_quarantine(serve: Serve, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    site = start(serve, "threads", f"--pid-file={pid_file}")
    assert run("quarantine", str(site.pid)).stdout == "no route is in quarantine\n"
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    listed = run("quarantine", "--pid-file", str(pid_file))
    assert re.fullmatch(r"GET /boom: for another [0-9]+ s\n", listed.stdout), listed
    lifted = run("quarantine", "--lift", str(site.pid))
    assert (lifted.returncode, lifted.stdout, lifted.stderr) == (0, "GET /boom: lifted\n", "")
    site.wait_for(r"\[INFO\] GET /boom is no longer in quarantine: kirsch quarantine --lift$")
    crash(site, lambda: get(site, "/boom"))


@pytest.mark.parametrize(
    ("args", "status", "problem"),
    [
        (["x"], 2, "argument PID: 'x' is no pid; kirsch quarantine --help tells more"),
        (["--lft"], 2, "there is no flag --lft; kirsch quarantine --help tells more"),
        (["1"], 1, r"(process 1 is no supervisor of Kirsch|this user may not read process 1)"),
        (["1", "--pid-file=x"], 1, "PID or --pid-file, not both"),
        (["--pid-file=/nowhere/x"], 1, "cannot read /nowhere/x: No such file or directory"),
    ],
)
def test_command_says_in_one_line_what_is_wrong(args: list[str], status: int, problem: str) -> None:
    found = run("quarantine", *args)
    assert (found.returncode, found.stdout) == (status, "")
    assert re.fullmatch(rf"kirsch quarantine: ({problem})\n", found.stderr), found.stderr


def test_quarantine_is_shown_wherever_the_server_is_watched(serve: Serve) -> None:
    site = start(serve, "threads", "--metrics-bind=127.0.0.1:0", "--access-logfile=-")
    said = site.wait_for(r"^metrics on http://(?P<host>[^:]+):(?P<port>[0-9]+)$")
    host, port = said["host"], int(said["port"])

    def page(path: str) -> str:
        return exchange(host, port, build_request("GET", path), timeout=PATIENCE).body.decode()

    assert "\nkirsch_routes_quarantined 0\n" in page("/metrics")
    assert json.loads(page("/status.json"))["quarantined"] == []
    crash(site, lambda: get(site, "/boom"), 3)
    site.wait_for(QUARANTINED)
    for _ in range(3):
        assert_refused(get(site, "/boom"))
    wait_until(lambda: "\nkirsch_requests_quarantined_total 3\n" in page("/metrics"), "it is counted", PATIENCE)
    text = page("/metrics")
    assert "\nkirsch_routes_quarantined 1\n" in text
    assert re.search(r'^kirsch_responses_total\{status="5xx"\} 3$', text, re.MULTILINE)
    (route,) = json.loads(page("/status.json"))["quarantined"]
    assert (route["route"], 0 < route["left"] <= 60) == ("GET /boom", True)
    assert "GET /boom" in page("/")
    assert re.search(
        r"^quarantine GET /boom, answered with 503 for another .* s$",
        run("top", "--once", str(site.pid)).stdout,
        re.MULTILINE,
    )
    assert len(re.findall(r'"GET /boom HTTP/1.1" 503', site.stdout)) == 3


def test_no_route_is_refused_without_a_quarantine(serve: Serve) -> None:
    site = start(serve, "threads", "--quarantine=0")
    crash(site, lambda: get(site, "/boom"), 5)
    assert "in quarantine" not in site.stderr


def test_crash_while_no_request_runs_is_nobodys(serve: Serve) -> None:
    site = start(serve, "threads")
    assert get(site, "/").status == 200
    for _ in range(4):
        (pid,) = site.wait_for_workers(1)
        assert get(site, "/").status == 200
        crash(site, lambda pid=pid: _kill(pid))  # type: ignore[misc]
    assert "is in quarantine" not in site.stderr


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    raise ConnectionResetError


# The judgement alone, with made-up crashes. The pages below are named by their keys.

BOOM, GOOD, OTHER, ITEMS = 1, 2, 3, 100


def ran(key: int, began: float, *, running: int = 1, ended: int = 0, family: int = 0) -> RecordedRoute:
    return RecordedRoute(key, family, False, running, ended, began, f"GET /{key}")


def family(key: int, began: float, *, running: int = 1, ended: int = 0) -> RecordedRoute:
    return RecordedRoute(key, 0, True, running, ended, began, f"GET /{key}/*")


def convict(*crashes: list[RecordedRoute] | None, step: float = 1.0, ended: dict[int, int] | None = None) -> int:
    """The key of the last route that these crashes convict, one every ``step`` seconds; 0: none."""
    evidence = Evidence()
    found = 0
    for number, records in enumerate(crashes):
        conviction = evidence.add(Crash(number * step, f"worker {number}", records), ended or {})
        found = conviction.key if conviction else found
    return found


def test_route_that_ran_alone_is_convicted_by_three_crashes() -> None:
    alone = [ran(BOOM, 5.0)]
    assert convict(alone, alone, alone) == BOOM
    assert convict(alone, alone) == 0
    assert convict(None, alone, alone) == BOOM, "the first one has no record"
    assert convict(None, alone) == 0
    assert convict(alone, alone, alone, step=31.0) == 0, "not within a minute"
    assert convict([ran(BOOM, 5.0, running=3)], alone, alone) == BOOM


def test_route_whose_calls_end_needs_more_crashes() -> None:
    busy = [ran(GOOD, 5.0, ended=100)]
    assert convict(busy, busy, busy, busy) == 0
    assert convict([ran(GOOD, 5.0, ended=90)], *[[ran(GOOD, 5.0)]] * 2) == GOOD
    alone = [ran(GOOD, 5.0)]
    assert convict(*[alone] * 5, ended={GOOD: 1000}) == 0
    assert convict(*[alone] * 13, ended={GOOD: 1000}) == GOOD


def test_newest_route_is_convicted_where_none_ran_alone() -> None:
    together = [ran(GOOD, 1.0, running=20), ran(BOOM, 5.0)]
    assert convict(together, together, together) == BOOM
    assert convict(None, together, together) == 0, "that is certain only where it ran alone"
    busy = [ran(GOOD, 1.0, ended=5), ran(BOOM, 5.0), ran(OTHER, 1.0)]
    assert convict(busy, busy, busy) == BOOM


def test_nobody_is_convicted_where_chance_has_a_part() -> None:
    at_once = [ran(GOOD, 5.002), ran(BOOM, 5.0)]
    assert convict(*[at_once] * 5) == 0
    several = [ran(BOOM, 1.0), ran(GOOD, 5.0, running=2)]
    assert convict(*[several] * 5) == 0
    together = [ran(GOOD, 1.0), ran(BOOM, 5.0)]
    assert convict(*[together] * 5, ended={BOOM: 1}) == 0
    together = [ran(GOOD, 6.0, ended=5), ran(BOOM, 5.0), ran(OTHER, 1.0)]
    assert convict(*[together] * 5) == 0
    assert convict(*[[]] * 5) == 0
    evidence = Evidence()
    for number in range(5):
        crash = Crash(number, "worker", [ran(BOOM, 5.0)], unrecorded=1)
        assert evidence.add(crash, {}) is None, "what is not recorded may be the cause"


def test_slow_route_is_not_convicted_by_slow_crashes() -> None:
    """A request that crashes its worker late may be older than a request of others, but not each time."""
    older = [ran(BOOM, 1.0), ran(GOOD, 5.0)]
    newer = [ran(GOOD, 1.0), ran(BOOM, 5.0)]
    assert convict(older, newer, older, older, older) == 0


def test_convicted_route_is_convicted_again_by_new_crashes_alone() -> None:
    evidence = Evidence()
    found = [evidence.add(Crash(float(at), "worker", [ran(BOOM, 5.0)]), {}) is not None for at in range(8)]
    assert found == [False, False, True, False, False, True, False, False]


def test_family_is_convicted_by_three_paths() -> None:
    def item(key: int) -> list[RecordedRoute]:
        return [ran(key, 5.0, family=ITEMS), family(ITEMS, 5.0)]

    assert convict(item(1), item(2), item(3)) == ITEMS
    assert convict(item(1), item(2), item(1)) == 0
    assert convict(item(1), item(1), item(1)) == 1
    assert convict(item(1), item(1), item(1), item(2), item(3)) == ITEMS
    assert convict(item(1), item(2), item(3), ended={ITEMS: 100}) == 0
    both = [ran(1, 5.0, family=ITEMS), ran(2, 5.0, family=ITEMS), family(ITEMS, 5.0, running=2)]
    assert convict(both, item(3), item(4)) == ITEMS
    with_good = [[ran(GOOD, 1.0), *item(key)] for key in (11, 12, 13)]
    assert convict(*with_good) == ITEMS
