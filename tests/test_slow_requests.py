"""``--slow-request``: a request that takes long is reported while it still runs, with its stack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from raw import build_request
from waiting import (
    ask,
    assert_answered,
    await_inside,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get,
    serve_waiting,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

LIMIT = "--slow-request=200ms"
ALONE = "--workers=0"


def warnings(site: Running) -> list[str]:
    """Returns the reports of slow requests, each with the lines that follow it."""
    entries = re.split(r"^(?=\[\d{4}-)", site.stderr, flags=re.MULTILINE)
    return [entry for entry in entries if "takes longer than" in entry]


@every_driver
def test_slow_request_is_reported_once_while_it_runs_and_at_its_end(serve: Serve, driver: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, ALONE, *flags(driver), LIMIT)
    gate = tmp_path / "gate"
    peers = [ask(site, f"/wait?{gate}", "PUT", headers={"X-Request-ID": "abc-123"})]
    site.wait_for(r"\[WARNING\] PUT /wait \(id abc-123\) takes longer than 0\.2 s: running for 0\.\d+ s, ")
    site.wait_for(r"in wait_for_gate$")
    if driver != "one thread":
        # Another request is reported in its turn, and this one not again.
        peers.append(ask(site, f"/wait?{gate}"))
        site.wait_for(r"\[WARNING\] GET /wait \(id \d+\) takes longer")
    assert "is over" not in site.stderr
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"waited")
        peer.close()
    site.wait_for(r"\[INFO\] PUT /wait \(id abc-123\) is over after \d+\.\d s$")
    assert site.stop() == 0
    assert len(warnings(site)) == len(peers)


@every_driver
def test_fast_request_is_not_reported(serve: Serve, driver: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, ALONE, *flags(driver), LIMIT)
    for _ in range(50):
        assert get(site, "/hello").status == 200
    gate = tmp_path / "gate"
    with ask(site, f"/wait?{gate}") as peer:
        site.wait_for("takes longer than")
        gate.touch()
        assert_answered(peer, b"waited")
    site.stop()
    assert "/hello" not in site.stderr


STUCK = """
import time, sys
monkey = sys.modules.get("gevent.monkey")
sleep = monkey.get_original("time", "sleep") if monkey else time.sleep

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/deep":
        down(500)
    if environ["PATH_INFO"] == "/holds-everything":
        hold()
    return [b"over"]

def down(levels):
    down(levels - 1) if levels else time.sleep(1)

def hold():
    sleep(1.5)
"""


@every_concurrent_driver
def test_call_that_blocks_the_hub_is_reported(serve: Serve, write_app: Callable[[str], str], driver: str) -> None:
    """Under gevent this is what people look for: a greenlet that blocks the hub."""
    site = serve(f"{write_app(STUCK)}:app", ALONE, *flags(driver), LIMIT)
    with ask(site, "/holds-everything") as peer:
        site.wait_for(r"GET /holds-everything \(id \d+\) takes longer than 0.2 s")
        site.wait_for(r"in hold$")
        assert "is over" not in site.stderr
        assert_answered(peer, b"over")


def test_deep_stack_is_reported_with_its_inner_end(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(f"{write_app(STUCK)}:app", ALONE, LIMIT)
    with ask(site, "/deep") as peer:
        site.wait_for(r"^  \.\.\. \d+ more frames \.\.\.$")
        site.wait_for("is over after")
        assert_answered(peer, b"over")


@every_concurrent_driver
def test_response_that_waits_for_its_client_is_reported_as_suspended(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, ALONE, *flags(driver), LIMIT)
    with connect_without_room(site) as peer:
        peer.send(build_request("GET", "/large?200&slow"))
        site.wait_for(r"GET /large \(id \d+\) takes longer than 0\.2 s: (suspended|waiting) for ")


def test_many_slow_requests_are_reported_with_few_stacks(serve: Serve, tmp_path: Path) -> None:
    count = 40
    site = serve_waiting(serve, ALONE, "--threads", str(count), LIMIT)
    gate = tmp_path / "gate"
    peers = [ask(site, f"/wait?{gate}") for _ in range(count)]
    await_inside(site, gate, count)
    for number in range(1, count + 1):
        site.wait_for(rf"\(id {number}\) takes longer than 0\.2 s")
    gate.touch()
    for peer in peers:
        assert_answered(peer, b"waited")
        peer.close()
    assert len(warnings(site)) == count
