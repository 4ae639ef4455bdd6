"""Many requests are late at once: the report of each shows its own stack, and that of no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from interpreter import needs_gevent
from raw import build_request
from waiting import PATIENCE, connect, get

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from running import Running, Serve

COUNT = 12
ALONE = "--workers=0"

# Each path ends in a function of its own. Those that wait are late together; one that blocks holds up the others of its
# poll, which have no stack then.
APP = '''\
    import os, sys, time

    def gate_is_shut():
        return not os.path.exists(GATE)

    def make(number):
        names = {"time": time, "gate_is_shut": gate_is_shut}
        source = f"""
    def own_wsgi_{number}():
        while gate_is_shut():
            time.sleep(0.01)

    async def own_asgi_{number}(sleep):
        while gate_is_shut():
            await sleep(0.01)

    def own_block_{number}():
        time.sleep(0.6)
    """
        import textwrap
        exec(textwrap.dedent(source), names)
        return names

    made = {str(number): make(number) for number in range(COUNT)}

    def wsgi(environ, start_response):
        path, _, number = environ["PATH_INFO"].rpartition("/")
        if number in made:
            made[number][f"own_block_{number}" if path.endswith("block") else f"own_wsgi_{number}"]()
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"over"]

    async def asgi(scope, receive, send):
        import asyncio
        if scope["type"] == "lifespan":
            return
        path, _, number = scope["path"].rpartition("/")
        if path.endswith("block"):
            made[number][f"own_block_{number}"]()
        elif number in made:
            await made[number][f"own_asgi_{number}"](asyncio.sleep)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"over"})
'''

SITES = {
    "threads": ["{module}:wsgi", "--threads=16"],
    "gevent": ["{module}:wsgi", "--driver=gevent"],
    "asyncio": ["{module}:asgi"],
    "threads, mounted": ["--mount=/a={module}:wsgi", "--mount=/b={module}:wsgi", "--threads=16"],
    "gevent, mounted": ["--mount=/a={module}:wsgi", "--driver=gevent"],
    "asyncio, mounted": ["--mount=/a={module}:asgi", "--mount=/b={module}:asgi"],
    "mixed, wsgi": ["--mount=/a={module}:wsgi", "--mount=/b={module}:asgi", "--threads=16"],
    "mixed, asgi": ["--mount=/a={module}:asgi", "--mount=/b={module}:wsgi", "--threads=16"],
}

QUICK = ("threads, mounted", "asyncio")


@pytest.fixture
def start(serve: Serve, write_app: Callable[[str], str], tmp_path: Path) -> Callable[..., tuple[Running, Path, str]]:
    def start(name: str, *args: str) -> tuple[Running, Path, str]:
        if "gevent" in name:
            needs_gevent()
        gate = tmp_path / "gate"
        module = write_app(APP.replace("GATE", repr(str(gate))).replace("COUNT", str(COUNT)))
        site = serve(*(each.format(module=module) for each in SITES[name]), ALONE, *args)
        return site, gate, "/a" if "mixed" in name or "mounted" in name else ""

    return start


def reports(site: Running, words: str) -> dict[str, str]:
    """The stack in the report of each number."""
    entries = re.split(r"^(?=\[\d{4}-)", site.stderr, flags=re.MULTILINE)
    found = [(re.search(r"\] GET \S*/(\d+) \(id \d+\) " + words, entry), entry) for entry in entries]
    return {match[1]: entry for match, entry in found if match is not None}


def wrong(found: dict[str, str]) -> dict[str, str]:
    """The reports that show a function of another request."""
    of_others = {
        number: set(re.findall(r"own_\w+?_(\d+)$", entry, re.MULTILINE)) - {number} for number, entry in found.items()
    }
    return {number: found[number] for number, others in of_others.items() if others}


@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in SITES]
)
def test_each_slow_request_is_reported_with_its_own_stack(
    start: Callable[..., tuple[Running, Path, str]], name: str
) -> None:
    site, gate, place = start(name, "--slow-request=300ms")
    peers = [connect(site) for _ in range(COUNT)]
    for number, peer in enumerate(peers):
        peer.send(build_request("GET", f"{place}/wait/{number}"))
    for number in range(COUNT):
        site.wait_for(rf"\] GET \S*/wait/{number} \(id \d+\) takes longer", PATIENCE)
    site.wait_for(r"in own_")
    gate.touch()
    for peer in peers:
        assert peer.read_response().body == b"over"
        peer.close()
    assert site.stop() == 0
    found = reports(site, "takes longer")
    assert wrong(found) == {}
    own = [number for number, entry in found.items() if re.search(rf"in own_\w+_{number}$", entry, re.MULTILINE)]
    assert len(own) == COUNT, f"each has its stack: {set(found) - set(own)} have none\n{site.stderr}"


@pytest.mark.parametrize(
    "name",
    [
        "asyncio",
        *(pytest.param(each, marks=pytest.mark.slow) for each in SITES if "threads" not in each and each != "asyncio"),
    ],
)
def test_requests_held_up_by_another_are_not_reported_with_its_stack(
    start: Callable[..., tuple[Running, Path, str]], name: str
) -> None:
    """A call blocks the event loop while others of the same poll have not begun."""
    site, _, place = start(name, "--timeout=300ms", "--graceful-timeout=20s")
    peers = [connect(site) for _ in range(6)]
    for number, peer in enumerate(peers):
        peer.send(build_request("GET", f"{place}/block/{number}"))
    for peer in peers:
        peer.read_response()
        peer.close()
    assert get(site, f"{place}/").body == b"over"
    site.stop()
    found = reports(site, "has passed its deadline")
    assert found, site.stderr
    assert wrong(found) == {}
