"""Workers and embedded servers of ASGI applications are replaced under load, in each loop and in Python's development
mode: no request is lost, and Python warns of nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from proc import wait_until
from running import Transcript
from test_no_request_lost import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from running import Serve

APP = """
    import asyncio, hashlib, os

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        digest, more = hashlib.sha256(), True
        while more:
            message = await receive()
            digest.update(message["body"])
            more = message["more_body"]
        if scope["path"].endswith("0"):
            await asyncio.sleep(0.01)
        answer = f"{scope['method']} {scope['path']} {digest.hexdigest()}".encode()
        headers = [(b"content-length", str(len(answer)).encode()), (b"x-pid", str(os.getpid()).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})
"""

# Serves on one socket, by one server after the other: a line on standard input asks for the next.
EMBEDDED = """
import asyncio, os, socket, sys

import kirsch
from demo import app


async def main():
    sock = socket.create_server(("127.0.0.1", 0))

    async def started():
        server = kirsch.Server(app, bind=f"fd://{os.dup(sock.fileno())}")
        ready = asyncio.Event()
        task = asyncio.create_task(server.serve(ready.set))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return server, task

    server, task = await started()
    print("port", sock.getsockname()[1], file=sys.stderr, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        before, before_task = server, task
        server, task = await started()
        # The successor serves already, so a client that has connected to this one has half a second to ask.
        before.begin_stop(30)
        await before_task
        print("replaced", file=sys.stderr, flush=True)
    task.cancel()
    await asyncio.wait({task})
    sock.close()


if sys.argv[1:] == ["uvloop"]:
    import uvloop

    uvloop.run(main())
else:
    asyncio.run(main())
"""

WARNINGS = ("Warning", "never awaited", "never retrieved", "was destroyed", "Traceback")

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


@pytest.fixture
def load() -> Iterator[Callable[..., list[Client]]]:
    """Starts clients of a site; at the end each has the right answer to each request."""
    clients: list[Client] = []

    def load(site: Any, kinds: tuple[bool, ...]) -> list[Client]:
        clients.extend(Client(site, is_kept, seed) for seed, is_kept in enumerate(kinds))
        for client in clients:
            client.start()
        return clients

    yield load
    for client in clients:
        client.stop()
    assert [failure for client in clients for failure in client.failures] == []
    print([client.requests for client in clients], "requests")
    assert all(client.requests > 50 for client in clients)


def warnings_in(text: str) -> list[str]:
    """Lines in which Python warns of something, without two that a loaded machine makes: of a step that took long, and
    of the supervisor's fork, where the kernel still counts the thread that has written its log."""
    lines = [line for line in text.splitlines() if any(word in line for word in WARNINGS)]
    return [line for line in lines if "Executing <" not in line and "is multi-threaded, use of fork()" not in line]


def await_progress(clients: list[Client]) -> None:
    """Wait until each client has sent twenty requests more."""
    wanted = [client.requests + 20 for client in clients]
    wait_until(
        lambda: all(client.requests >= count for client, count in zip(clients, wanted, strict=True)),
        "the clients go on",
        30,
    )


@pytest.mark.slow
@LOOPS
def test_no_request_is_lost_when_workers_are_replaced_under_load(
    serve: Serve, write_app: Callable[[str], str], load: Callable[..., list[Client]], loop: str
) -> None:
    site = serve(f"{write_app(APP)}:app", "--loop", loop, "--workers", "2", env={"PYTHONDEVMODE": "1"})
    clients = load(site, (True, False, True))
    pids = site.wait_for_workers(2, timeout=60)
    for _ in range(4):
        await_progress(clients)
        site.send(signal.SIGHUP)
        pids = site.wait_for_workers(2, without=pids, timeout=60)
    await_progress(clients)
    for client in clients:
        client.stop()
    assert site.stop() == 0
    assert warnings_in(site.stderr) == []


@pytest.mark.slow
@LOOPS
def test_no_request_is_lost_when_embedded_servers_replace_each_other(
    tmp_path: Any, load: Callable[..., list[Client]], loop: str
) -> None:
    (tmp_path / "demo.py").write_text(textwrap.dedent(APP), encoding="utf-8")
    (tmp_path / "program.py").write_text(EMBEDDED, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-X", "dev", "program.py", loop],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    try:
        assert process.stdin is not None
        assert process.stderr is not None
        said = Transcript(process.stderr)
        port = int(said.wait_for(r"^port (\d+)$", 60).group(1))
        clients = load(SimpleNamespace(host="127.0.0.1", port=port), (False, False))
        for _ in range(4):
            await_progress(clients)
            at = len(said.text)
            process.stdin.write(b"next\n")
            process.stdin.flush()
            said.wait_for("^replaced$", 60, at)
        await_progress(clients)
        for client in clients:
            client.stop()
        process.stdin.close()
        assert process.wait(60) == 0
        said.wait_for_end(20)
        assert warnings_in(said.text) == []
    finally:
        process.kill()
        process.wait()
