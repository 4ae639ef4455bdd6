"""The server's own future, which ``receive`` and ``send`` wait for, and which wakes its Task where the loop waits."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from raw import Peer, build_request
from test_websocket import closed, connect

if TYPE_CHECKING:
    from websockets.sync.connection import Connection

    from running import Running, Serve

HERE = os.path.dirname(__file__)

LOOPS = ["asyncio", "uvloop"]


def start(serve: Serve, loop: str = "asyncio", **env: str) -> Running:
    return serve("asgi_waiting_app:app", "--loop", loop, cwd=HERE, env=env)


def ask(client: Connection, text: str) -> Any:
    client.send(text)
    return json.loads(client.recv(timeout=30))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("debug", ["", "1"])
def test_task_that_is_woken_runs_as_any_step_of_its_loop(serve: Serve, loop: str, debug: str) -> None:
    site = start(serve, loop, PYTHONASYNCIODEBUG=debug)
    with connect(site, "/steps") as first, connect(site, "/steps") as second:
        one, two = ask(first, "one"), ask(second, "two")
        assert (one.pop("name"), two.pop("name")) == ("one", "two")
        assert one == two == {"task": True, "loop": True, "variable": ["started"], "waits for": True}
        # The context is the task's own: what it has set is there, and nobody else sees it.
        assert ask(first, "again")["variable"] == ["started", "one"]
        assert ask(second, "again")["variable"] == ["started", "two"]


@pytest.mark.parametrize("loop", LOOPS)
def test_each_message_goes_to_one_of_several_receivers(serve: Serve, loop: str) -> None:
    with connect(start(serve, loop), "/receivers") as client:
        for number in range(30):
            client.send(str(number))
        client.send("end")
        assert sorted(json.loads(client.recv(timeout=30))) == sorted([*map(str, range(30)), "end"])


@pytest.mark.parametrize("loop", LOOPS)
def test_message_wakes_a_task_of_another_loop_in_another_thread(serve: Serve, loop: str) -> None:
    with connect(start(serve, loop), "/elsewhere") as client:
        for number in range(20):
            client.send(f"message {number}")
            assert client.recv(timeout=30) == f"another loop has message {number}"


def test_cancellation_carries_its_message_and_waits_that_are_over_leave_nothing(serve: Serve) -> None:
    with connect(start(serve), "/cancelled") as client:
        found = ask(client, "go")
        assert found["messages"] == [["why"], []]
        assert found["waited"] == 200
        # One is waited for when it is looked, at most.
        assert found["futures left"] <= 1
        client.send("after all")
        assert client.recv(timeout=30) == "after all"


def test_tasks_that_wait_are_collected_with_what_they_wait_for(serve: Serve) -> None:
    with connect(start(serve), "/collected") as client:
        assert ask(client, "go") == {"collected": True}


@pytest.mark.parametrize("loop", LOOPS)
def test_system_exit_of_a_woken_task_ends_its_request_alone(serve: Serve, loop: str) -> None:
    site = start(serve, loop)
    with connect(site, "/steps") as other, connect(site, "/exits") as client:
        ask(other, "before")
        client.send("go")
        assert closed(client)[0] == 1011
        site.wait_for("SystemExit")
        assert ask(other, "after")["name"] == "after"


def test_deadline_interrupts_a_woken_task_that_holds_up_the_loop(serve: Serve) -> None:
    site = serve("asgi_waiting_app:app", "--timeout", "1", cwd=HERE)
    with connect(site, "/steps") as other:
        ask(other, "before")
        with Peer.connect(site.host, site.port, timeout=30) as peer:
            peer.send(build_request("POST", "/spins", headers={"Transfer-Encoding": "chunked"}))
            site.wait_for("waits to spin")
            peer.send(b"1\r\nx\r\n0\r\n\r\n")
            assert peer.read_head().status == 504
        site.wait_for("spinning was interrupted")
        assert ask(other, "after")["name"] == "after"


def test_request_body_that_trickles_in_wakes_its_task_for_each_part(serve: Serve) -> None:
    site = start(serve)
    with Peer.connect(site.host, site.port, timeout=30) as peer:
        peer.send(build_request("POST", "/parts", headers={"Transfer-Encoding": "chunked"}))
        site.wait_for("waits for a part")
        for number in range(5):
            peer.send(f"1\r\n{number}\r\n".encode())
            site.wait_for(f"has part {number}")
        peer.send(b"0\r\n\r\n")
        assert peer.read_response().body == b"01234"
