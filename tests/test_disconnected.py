"""Clients that leave: how an application learns of it, and what is no longer done for them."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from proc import wait_until
from raw import Peer, build_request
from waiting import (
    UnaffectedClients,
    ask,
    assert_answered,
    assert_serves,
    await_inside,
    await_turns,
    connect,
    connect_without_room,
    every_concurrent_driver,
    every_driver,
    flags,
    get_json,
    refuses,
    serve_waiting,
)

if TYPE_CHECKING:
    from pathlib import Path

    from running import Serve

every_farewell = pytest.mark.parametrize("farewell", ["close", "abort"])


def leave(peer: Peer, farewell: str) -> None:
    getattr(peer, farewell)()


@every_driver
@every_farewell
@pytest.mark.parametrize("looks", ["call", "thread"])
def test_the_application_can_tell_that_its_client_has_left(
    serve: Serve, driver: str, farewell: str, looks: str
) -> None:
    site = serve_waiting(serve, *flags(driver))
    for _ in range(2):
        log = len(site.stderr)
        peer = ask(site, f"/watch?{looks}")
        site.wait_for("^left: False$", after=log)
        leave(peer, farewell)
        site.wait_for("^left: True$", after=log)
    assert_serves(site)
    assert "Traceback" not in site.stderr, "a response without a client is no error"


@every_concurrent_driver
def test_it_is_about_this_client_and_no_other(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    stays, leaves = ask(site, "/watch?stays"), ask(site, "/watch?leaves")
    site.wait_for("^left: False\nleft: False$")
    leaves.close()
    site.wait_for("^left: True$")
    await_turns(site)
    assert_serves(site)
    assert site.stderr.count("left: True") == 1
    stays.close()
    wait_until(lambda: site.stderr.count("left: True") == 2, "both have left")


@every_driver
def test_a_client_that_is_there_has_not_left(serve: Serve, driver: str) -> None:
    """Neither with a body behind its head, nor with more requests behind this one."""
    site = serve_waiting(serve, *flags(driver))
    with connect(site) as peer:
        post = build_request("POST", "/keep_watch", body=b"x" * 100_000)
        for request in (build_request("GET", "/keep_watch"), post):
            peer.send(request * 3)
            for _ in range(3):
                assert_answered(peer, b"false")


@every_driver
def test_a_client_that_reads_slowly_has_not_left(serve: Serve, driver: str) -> None:
    """Also while its response is suspended, and holds no thread that could tell."""
    site = serve_waiting(serve, *flags(driver))
    with connect_without_room(site) as reader:
        reader.send(build_request("GET", "/large?100&slow"))
        assert reader.read_head().status == 200
        for _ in range(5):
            assert get_json(site, "/has_left?slow") is False
        while reader.read_chunk():
            pass
        wait_until(lambda: get_json(site, "/has_left?slow") is True, "the response is over")


@every_driver
def test_it_may_be_asked_when_the_request_is_over(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with connect(site) as other:
        with connect(site) as peer:
            # On the same connection, and on another one when this is gone.
            for _ in range(2):
                peer.send(build_request("GET", "/keep_watch") + build_request("GET", "/look_again"))
                assert_answered(peer, b"false")
                assert json.loads(peer.read_response().body) == [True] * 3
            peer.send(build_request("GET", "/keep_watch"))
            assert_answered(peer, b"false")
        other.send(build_request("GET", "/look_again"))
        assert json.loads(other.read_response().body) == [True] * 3


# Requests that wait for a thread


@every_farewell
def test_a_queued_request_whose_client_has_left_is_not_run(serve: Serve, farewell: str, tmp_path: Path) -> None:
    site = serve_waiting(serve, "--threads", "2")
    gate, second = tmp_path / "gate", tmp_path / "second"
    blockers = [ask(site, f"/wait?{gate}"), ask(site, f"/wait?{second}")]
    await_inside(site, gate)
    await_inside(site, second)
    queued = {}
    for number in range(9):
        queued[number] = ask(site, "/echo?" + str(number), "POST", body=b"x" * 1000)
        await_turns(site)
    for number in (0, 3, 4, 8):
        leave(queued.pop(number), farewell)
    await_turns(site)
    # One thread alone takes all of them, so that their order can be seen.
    gate.touch()
    for peer in queued.values():
        assert_answered(peer, b"x" * 1000)
    second.touch()
    for peer in blockers:
        assert_answered(peer, b"waited")
    journal = get_json(site, "/records")["journal"]
    assert journal[2:] == [*(f"/echo?{number}" for number in (1, 2, 5, 6, 7)), "/records"]
    for peer in [*queued.values(), *blockers]:
        peer.close()


@every_driver
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_client_that_only_ends_its_sending_is_answered(serve: Serve, driver: str, method: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    for _ in range(10):
        with connect(site) as peer:
            peer.send(build_request(method, "/echo", body=b"all there is" if method == "POST" else None))
            peer.end_sending()
            assert_answered(peer, b"all there is" if method == "POST" else b"")
            assert peer.read_until_closed() == b""


# Responses under way


@every_driver
@every_farewell
@pytest.mark.parametrize("page", ["ticks", "endless", "events"])
def test_an_iterable_is_closed_when_its_client_leaves(serve: Serve, driver: str, farewell: str, page: str) -> None:
    """Once, and soon: while a block is made (ticks), or while it waits for its client to read (the others)."""
    site = serve_waiting(serve, *flags(driver))
    peer = connect_without_room(site)
    peer.send(build_request("GET", f"/{page}?left"))
    assert peer.read_head().status == 200
    assert peer.read_chunk()
    if page != "ticks":
        # By then it has been suspended: the one thread could answer no other client before.
        assert_serves(site)
    leave(peer, farewell)
    site.wait_for("^closed left$")
    assert_serves(site)
    assert get_json(site, "/records")["closed"] == {"left": 1}
    assert "Traceback" not in site.stderr


@every_concurrent_driver
@every_farewell
def test_the_end_waits_for_a_call_whose_client_has_left(
    serve: Serve, driver: str, farewell: str, tmp_path: Path
) -> None:
    """The work of a request may matter to others than its client, so it is not interrupted."""
    site = serve_waiting(serve, *flags(driver))
    gate = tmp_path / "gate"
    peer = ask(site, f"/wait?{gate}")
    await_inside(site, gate)
    leave(peer, farewell)
    await_turns(site)
    site.process.send_signal(signal.SIGTERM)
    wait_until(lambda: refuses(site), "new connections are refused")
    # The server reports a stop that takes some time.
    site.wait_for("SIGTERM: stopping, up to 30 s for the requests in flight")
    gate.touch()
    assert site.process.wait(10) == 0
    site.stop()


@every_concurrent_driver
def test_clients_that_disconnect_do_not_disturb_others(serve: Serve, driver: str) -> None:
    site = serve_waiting(serve, *flags(driver))
    with UnaffectedClients(site) as unaffected:
        for number in range(60):
            page = ("ticks", "endless", "watch", "rest", "hello")[number % 5]
            query = "1" if page == "rest" else f"{page}{number}"
            peer = connect_without_room(site)
            peer.send(build_request("GET", f"/{page}?{query}"))
            if number % 3 == 0 and page != "watch":
                peer.read_head()
            leave(peer, "close" if number % 2 else "abort")
        unaffected.await_answers(20)
    # Whatever was begun for them is over.
    records = get_json(site, "/records")
    for target in records["journal"]:
        if target.startswith(("/ticks", "/endless")):
            site.wait_for(f"^closed {target.partition('?')[2]}$")
