"""The task of an ASGI request. One that is used again behaves as a new one, whatever the request before has done."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from asgi_tasks_app import MARKS, SCENARIOS
from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

HERE = os.path.dirname(__file__)

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="asyncio.timeout, TaskGroup and Task.uncancel came with CPython 3.11"
)

asyncio_task: Any = asyncio.Task

# True if the server uses tasks again under this interpreter.
REUSES = (3, 12) <= sys.version_info < (3, 16) and getattr(sys, "_is_gil_enabled", lambda: True)()


def serve_tasks(serve: Serve, **env: str) -> Running:
    return serve("asgi_tasks_app:app", cwd=HERE, env=env)


class Asker:
    """A client with one connection, so that its requests come one after the other."""

    def __init__(self, site: Running) -> None:
        self.peer = Peer.connect(site.host, site.port)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.peer.close()

    def ask(self, kind: str, name: str = "") -> Any:
        self.peer.send(build_request("GET", f"/{kind}/{name.replace(' ', '%20')}"))
        answer = self.peer.read_response("GET")
        assert answer.status == 200, (kind, name)
        return json.loads(answer.body)

    def settle(self) -> None:
        """Ask until the next request gets the task that is parked."""
        for _ in range(300):
            if self.ask("show")["parked"] and self.ask("show")["parked"]:
                return
        raise AssertionError("no request got a parked task")


async def in_ordinary_task(name: str) -> Any:
    """The result of a scenario in a task as asyncio makes it."""

    async def run() -> Any:
        return await SCENARIOS[name]()

    task: asyncio.Task[Any]
    if sys.version_info >= (3, 12):
        task = asyncio_task(run(), loop=asyncio.get_running_loop(), eager_start=True)
    else:
        task = asyncio.create_task(run())
    await asyncio.wait({task})
    return task.result()


@pytest.mark.parametrize("debug", ["", "1"])
def test_task_of_a_request_behaves_as_an_ordinary_one(serve: Serve, debug: str) -> None:
    site = serve_tasks(serve, PYTHONASYNCIODEBUG=debug, PYTHONDEVMODE=debug)
    reuses = REUSES and not debug
    with Asker(site) as asker:
        for name in SCENARIOS:
            expected = json.loads(json.dumps(asyncio.run(in_ordinary_task(name))))
            for _ in range(2):
                if reuses:
                    asker.settle()
                found = asker.ask("scenario", name)
                assert (found["result"], found["parked"]) == (expected, bool(reuses)), name
    site.stop()
    assert "the lifespan has ended" in site.stderr
    for word in ("Traceback", "never awaited", "never retrieved", "was destroyed", "bug in kirsch"):
        assert word not in site.stderr


def test_request_finds_nothing_that_another_has_left_with_its_task(serve: Serve) -> None:
    site = serve_tasks(serve)
    clean = {
        "attribute": False,
        "weak": False,
        "variable": "default",
        "is shared": True,
        "cancelling": 0,
        "known": True,
        "kept": False,
    }
    names, kept = set(), ""
    with Asker(site) as asker:
        for mark in MARKS:
            if REUSES:
                asker.settle()
            marked = asker.ask("mark", mark)
            assert marked["parked"] == REUSES, mark
            if mark == "name that is kept":
                kept = marked["result"]
            for _ in range(6):
                found = asker.ask("show")["result"]
                names.add(found.pop("name"))
                # asyncio itself has weak references.
                assert found.pop("weak references") <= 1, mark
                assert found == clean, mark
        assert len(names) == 6 * len(MARKS)
        assert asker.ask("names")["result"] == [kept]
        # The callback was called once, with its own task.
        (called,) = asker.ask("called")["result"]
        assert called.startswith("Request-")
        assert called.endswith("True False")
    site.stop()
    assert "Traceback" not in site.stderr


def test_requests_at_a_time_have_tasks_of_their_own(serve: Serve) -> None:
    site = serve_tasks(serve)
    names = sorted(SCENARIOS)
    expected = {name: json.loads(json.dumps(asyncio.run(in_ordinary_task(name)))) for name in names}
    failed: list[object] = []

    def ask(first: int) -> None:
        try:
            with Asker(site) as asker:
                for number in range(3 * len(names)):
                    name = names[(first + number) % len(names)]
                    if name != "waits_for_all_others":
                        assert asker.ask("scenario", name)["result"] == expected[name], name
                    assert asker.ask("show")["result"]["variable"] == "default"
        except BaseException as error:  # noqa: BLE001  # it is raised in the main thread
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(5 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed
    site.stop()
    assert "the lifespan has ended" in site.stderr
    assert "Traceback" not in site.stderr


FACTORY = """
import asyncio

made = []


def factory(loop, coroutine, **options):
    made.append(coroutine)
    return asyncio.Task(coroutine, loop=loop, **options)


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        VARIABLE.set("of the start-up")
        asyncio.get_running_loop().set_task_factory(factory)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    name = asyncio.current_task().get_name()
    if scope["path"] == "/waits":
        await asyncio.sleep(0)
    text = f"{name} {len(made)} {VARIABLE.get()}"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})


import contextvars
VARIABLE = contextvars.ContextVar("VARIABLE", default="none")
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_task_factory_of_the_application_makes_the_tasks_of_requests(
    serve: Serve, write_app: Callable[[str], str], loop: str
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    site = serve(write_app(FACTORY), "--loop", loop)
    with Peer.connect(site.host, site.port) as peer:
        for number in range(1, 7):
            peer.send(build_request("GET", "/" if number % 2 else "/waits"))
            assert peer.read_response("GET").body.decode() == f"Request-{number} {number} of the start-up"
    site.stop()
    assert "Traceback" not in site.stderr
