"""ASGI in another loop than the driver's own: uvloop's, and one that a program runs already."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import kirsch
import test_asgi
from asgi_app import app
from interpreter import needs_uvloop
from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from running import Running, Serve

# If uvloop has no release for an interpreter, CPython's own loop stands for loops that are not the driver's.
LOOPS = ["asyncio", "uvloop"]


def run_in(loop: str, function: Callable[[], Awaitable[None]]) -> None:
    """Run ``function`` as ``asyncio.run`` does, in a loop of this name."""

    async def main() -> None:
        await function()

    if loop == "asyncio":
        asyncio.run(main())
    else:
        import uvloop

        uvloop.run(main())


def wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Length", "0")])
    return [b""]


async def fetch(server: kirsch.Server, target: str) -> bytes:
    def load() -> bytes:
        with urllib.request.urlopen(f"{server.urls[0]}{target}", timeout=60) as answer:
            return bytes(answer.read())

    return await asyncio.to_thread(load)


@pytest.mark.parametrize(
    "test",
    [
        test_asgi.test_scope_has_what_the_specification_says,
        test_asgi.test_parts_of_a_body_are_passed_on_as_they_come,
        test_asgi.test_body_that_breaks_is_a_disconnect_and_its_client_is_told_why,
        test_asgi.test_response_without_length_is_chunked_or_ends_the_connection,
        test_asgi.test_pipelined_requests_are_answered_in_order,
        test_asgi.test_head_leaves_when_the_application_gives_up_its_turn,
        test_asgi.test_many_requests_wait_at_a_time,
        test_asgi.test_sender_waits_for_a_client_that_reads_slowly,
        test_asgi.test_connection_goes_on_while_the_call_behind_its_response_does,
        test_asgi.test_exception_within_the_body_cuts_the_response,
        test_asgi.test_tasks_timeouts_and_cancellation_work_as_asyncio_has_them,
        test_asgi.test_each_request_has_its_own_context_and_dictionaries,
        test_asgi.test_send_works_from_a_thread_with_a_loop_of_its_own,
        test_asgi.test_slow_request_is_logged_with_the_stack_of_its_coroutines,
        test_asgi.test_lifespan_shutdown_comes_after_the_last_request,
        test_asgi.test_worker_is_replaced_after_max_requests_and_no_request_is_lost,
        test_asgi.test_cancelled_requests_leave_nothing_behind,
    ],
)
@pytest.mark.slow
@needs_uvloop
def test_uvloop_serves_as_the_loop_of_cpython_does(serve: Serve, test: Callable[[Serve], None]) -> None:
    def serve_with_uvloop(application: str, *args: str, **more: Any) -> Running:
        return serve(application, "--loop", "uvloop", *args, **more)

    test(serve_with_uvloop)  # type: ignore[arg-type]  # a Serve has no other use here


@needs_uvloop
def test_uvloop_runs_and_is_named_where_it_is_missing(serve: Serve, write_app: Callable[[str], str]) -> None:
    name = write_app("""
        import asyncio

        async def app(scope, receive, send):
            loop = type(asyncio.get_running_loop()).__module__
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": loop.encode()})
    """)
    assert serve(f"{name}:app", "--loop", "uvloop").page() == "uvloop"
    assert "asyncio" in serve(f"{name}:app", "--loop", "asyncio").page()
    program = "import sys; sys.modules['uvloop'] = None; sys.argv[1:] = ['--loop', 'uvloop', 'asgi_app:app']\n"
    program += "from kirsch.__main__ import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=os.path.dirname(__file__), capture_output=True, text=True, timeout=120
    )
    assert run.returncode != 0
    assert "--loop uvloop needs the package uvloop: pip install uvloop, or leave --loop out" in run.stderr
    assert "Traceback" not in run.stderr


def test_unknown_loop_is_refused_with_those_that_there_are() -> None:
    command = [sys.executable, "-m", "kirsch", "--loop", "uvlop", "asgi_app:app"]
    run = subprocess.run(command, cwd=os.path.dirname(__file__), capture_output=True, text=True, timeout=120)
    assert run.returncode == 2
    assert "auto, asyncio, uvloop" in run.stderr


@pytest.mark.parametrize("loop", LOOPS)
def test_server_serves_in_a_loop_that_runs_until_its_task_is_cancelled(loop: str) -> None:
    events: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            assert (await receive())["type"] == "lifespan.startup"
            events.append("start-up")
            await send({"type": "lifespan.startup.complete"})
            await receive()
            events.append("shutdown")
            await send({"type": "lifespan.shutdown.complete"})
            return
        await app(scope, receive, send)

    async def main() -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)]
        server = kirsch.Server(application, bind="127.0.0.1:0", keep_alive=1.0)
        ready = asyncio.Event()
        task = asyncio.create_task(server.serve(ready.set))
        await asyncio.wait_for(ready.wait(), 60)
        assert events == ["start-up"]
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)] == handlers
        pages = await asyncio.gather(*(fetch(server, target) for target in ["/", "/stream", "/threads"] * 5))
        assert pages == [b"hello", b"0\n1\n2\n3\n4\n", b"from a thread"] * 5
        # The head leaves by itself though nothing else happens in the loop.
        peer = await asyncio.to_thread(Peer.connect, *server.addresses[0])
        peer.send(build_request("GET", "/gate/in-loop"))
        assert (await asyncio.to_thread(peer.read_head)).status == 200
        # A cancellation is a graceful stop: what runs is answered to its end.
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        from asgi_app import gates

        gates["in-loop"].set()
        assert b"open" in await asyncio.to_thread(peer.read_until_closed)
        peer.close()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert events == ["start-up", "shutdown"]
        # The loop goes on, and nothing of the server is left in it.
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in(loop, main)


@pytest.mark.parametrize("loop", LOOPS)
def test_deadlines_of_the_engine_hold_in_a_loop_that_runs(loop: str) -> None:
    async def main() -> None:
        server = kirsch.Server(app, bind="127.0.0.1:0", keep_alive=0.5, timeout=0.5, lifespan="off")
        ready = asyncio.Event()
        task = asyncio.create_task(server.serve(ready.set))
        await asyncio.wait_for(ready.wait(), 60)

        def converse() -> int:
            with Peer.connect(*server.addresses[0]) as peer:
                peer.send(build_request("GET", "/stream"))
                assert peer.read_response("GET").status == 200
                # Idle for half a second, the connection is closed.
                assert peer.read_until_closed() == b""
            with Peer.connect(*server.addresses[0]) as peer:
                peer.send(build_request("GET", "/sleeps"))
                return int(peer.read_response("GET").status)

        assert await asyncio.to_thread(converse) == 504
        server.stop()
        await asyncio.wait_for(task, 60)

    run_in(loop, main)


def test_two_servers_share_a_loop_and_one_is_stopped_from_a_thread() -> None:
    async def main() -> None:
        servers = [kirsch.Server(app, bind="127.0.0.1:0", lifespan="off") for _ in range(2)]
        events = [asyncio.Event() for _ in servers]
        tasks = [asyncio.create_task(server.serve(event.set)) for server, event in zip(servers, events, strict=True)]
        for event in events:
            await asyncio.wait_for(event.wait(), 60)
        assert await asyncio.gather(*(fetch(server, "/") for server in servers)) == [b"hello", b"hello"]
        assert await asyncio.to_thread(servers[0].stop)
        await asyncio.wait_for(tasks[0], 60)
        assert await fetch(servers[1], "/tasks")
        with pytest.raises(RuntimeError, match="has served already"):
            await servers[0].serve()
        tasks[1].cancel()
        await asyncio.wait({tasks[1]})
        assert tasks[1].cancelled()

    asyncio.run(main())


def test_wsgi_application_and_failed_start_up_are_refused_in_a_loop_that_runs() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    async def main() -> None:
        with pytest.raises(TypeError, match="this is a WSGI application"):
            await kirsch.Server(wsgi, bind="127.0.0.1:0").serve()
        server = kirsch.Server(fails, bind="127.0.0.1:0")
        with pytest.raises(Exception, match="no database"):
            await server.serve()
        with pytest.raises(RuntimeError, match=r"await server\.serve\(\)"):
            kirsch.Server(app, bind="127.0.0.1:0").start()

    asyncio.run(main())
