"""Requests that wait for a thread: how long, how many, and that none of them is lost without a word."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from raw import Peer, build_request
from waiting import ask, assert_answered, await_inside, await_turns, get_json, serve_waiting

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve


def test_a_request_that_waited_too_long_is_refused_and_never_run(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=2", "--queue-timeout=300ms")
    gate = tmp_path / "gate"
    blockers = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    queued = [ask(site, f"/echo?{number}", "POST", body=b"x") for number in range(3)]
    for peer in queued:
        response = peer.read_response()
        assert response.status == 503
        assert re.fullmatch("[1-9][0-9]*", response.header("Retry-After") or "")
        peer.close()
    gate.touch()
    for peer in blockers:
        # These have run for longer than that: it is about waiting.
        assert_answered(peer, b"waited")
        peer.close()
    assert get_json(site, "/records")["journal"] == [f"/wait?{gate}"] * 2 + ["/records"]


def test_request_refused_by_the_queue_timeout_is_in_the_json_access_log(serve: Serve, tmp_path: Path) -> None:
    log, gate = tmp_path / "access", tmp_path / "gate"
    site = serve_waiting(
        serve, "--threads=2", "--queue-timeout=300ms", "--access-logfile", str(log), "--access-logformat=json"
    )
    blockers = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    with ask(site, "/echo?late") as queued:
        assert queued.read_response().status == 503
    gate.touch()
    for peer in blockers:
        assert_answered(peer, b"waited")
        peer.close()
    assert site.stop() == 0
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    (refused,) = [record for record in records if record["status"] == 503]
    assert (refused["method"], refused["path"], refused["query"]) == ("GET", "/echo", "late")
    assert refused["request_id"] is None  # the application was not called


def test_without_a_queue_timeout_a_request_waits(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=2", "--queue-timeout=0", "--timeout=300ms", "--timeout-path=/wait=0")
    gate = tmp_path / "gate"
    with ask(site, f"/wait?{gate}") as one, ask(site, f"/wait?{gate}") as other:
        await_inside(site, gate, 2)
        with ask(site, "/hello") as queued:
            await_turns(site)
            gate.touch()
            assert_answered(queued, b"Hello")
        assert_answered(one, b"waited")
        assert_answered(other, b"waited")


def test_full_queue_drops_no_request(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=2", "--queue=5")
    gate = tmp_path / "gate"
    blockers = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    queued: list[Peer] = []
    for number in range(60):
        peer = ask(site, f"/echo?{number}", "POST", body=b"x" * number)
        # Half of them leave the decision to the server how much it reads of them.
        if number % 2:
            peer.send(build_request("POST", f"/echo?{number}.2", body=b"second"))
        queued.append(peer)
    gate.touch()
    for number, peer in enumerate(queued):
        assert_answered(peer, b"x" * number)
        if number % 2:
            assert_answered(peer, b"second")
        peer.close()
    for peer in blockers:
        assert_answered(peer, b"waited")
        peer.close()
    journal = get_json(site, "/records")["journal"]
    assert len(journal) == len(set(journal)) + 1 == 2 + 60 + 30 + 1


def test_queued_request_of_a_client_that_left_is_not_called_overload(serve: Serve, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads=2")
    gate = tmp_path / "gate"
    blockers = [ask(site, f"/wait?{gate}") for _ in range(2)]
    await_inside(site, gate, 2)
    for number in range(3):
        ask(site, f"/echo?{number}").close()
    await_turns(site)
    gate.touch()
    for peer in blockers:
        assert_answered(peer, b"waited")
        peer.close()
    assert get_json(site, "/records")["journal"] == [f"/wait?{gate}"] * 2 + ["/records"]
    site.stop()
    lines = [line for line in site.stderr.splitlines() if "503" in line]
    assert "/echo?0: The client closed its side of the connection while the request was queued." in lines[0]
    assert "and 2 more requests were refused with 503" in lines[1]
    assert not [line for line in lines if "too much to do" in line]
