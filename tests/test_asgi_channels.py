"""The ``receive`` and ``send`` of an ASGI application, and how its requests share the loop with other tasks."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from interpreter import needs_freeing_at_once
from raw import Peer, build_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from running import Running, Serve

APP = """
import asyncio
import collections.abc
import inspect
import itertools
import json
import socket
import sys

kept = []
start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}


def raised(act, *args, **kwargs):
    try:
        act(*args, **kwargs)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def marked(function):
    is_marked = asyncio.iscoroutinefunction if sys.version_info < (3, 12) else inspect.iscoroutinefunction
    return is_marked(function)


async def awaits(awaitable):
    try:
        await awaitable
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


async def awaitables(receive, send):
    first, second, third, fourth = receive(), receive(), receive(), send(dict(start))
    found = {"coroutines": [isinstance(each, collections.abc.Coroutine) for each in (first, fourth)]}
    found["functions"] = [marked(each) for each in (receive, send)]
    found["throw"] = raised(first.throw, ValueError("thrown"))
    found["after throw"] = await awaits(first)
    found["throw a class"] = raised(second.throw, KeyError, KeyError("k"), None)
    found["throw nothing"] = raised(third.throw)
    third.close()
    found["after close"] = await awaits(third)
    fourth.close()
    found["arguments"] = [
        raised(send),
        raised(send, {}, {}),
        raised(send, {}, message={}),
        raised(send, other={}),
        raised(receive, 1),
        raised(receive, first=1),
    ]
    try:
        receive().send(None)
    except StopIteration as end:
        found["message"] = {name: repr(value) for name, value in end.value.items()}
    await send(message=dict(start))
    body = send({"type": "http.response.body", "body": json.dumps(found).encode()})
    assert [*body] == []
    assert (await awaits(body)).endswith("cannot reuse already awaited coroutine")


def unawaited(receive, send):
    # It leaves await out, and raises while one of them is gone.
    send(dict(start))
    receive()
    print(send(dict(start)), 1 / 0)


async def keeps(receive, send):
    kept.append((receive, send, send({"type": "http.response.body", "body": b"too late"}), receive()))
    await answer(send, "kept")


async def uses_kept(receive, send):
    found = []
    for old_receive, old_send, sending, receiving in kept:
        found.append([old_receive is receive, old_send is send, await awaits(sending), (await receiving)["type"]])
        found[-1].append(await awaits(old_send(dict(start))))
    kept.clear()
    await answer(send, found)


async def answer(send, value):
    await send(dict(start))
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})


async def app(scope, receive, send):
    kind, _, argument = scope["path"].strip("/").partition("/")
    if kind == "awaitables":
        await awaitables(receive, send)
    elif kind == "unawaited":
        unawaited(receive, send)
    elif kind == "keeps":
        await keeps(receive, send)
    elif kind == "uses-kept":
        await uses_kept(receive, send)
    elif kind == "later":
        loop = asyncio.get_running_loop()
        client = socket.create_connection(("127.0.0.1", int(argument)))
        loop.call_soon(client.sendall, b"soon ")
        loop.call_later(0.02, client.sendall, b"later ")
        loop.call_later(0.02, loop.call_later, 0.02, client.close)
        await answer(send, "scheduled")
    elif kind == "other":
        async def echo(reader, writer):
            while line := await reader.readline():
                writer.write(line)
                await writer.drain()
            writer.close()

        kept.append(await asyncio.start_server(echo, "127.0.0.1", 0))
        await answer(send, kept[-1].sockets[0].getsockname()[1])
    else:
        await answer(send, kind)
"""


def ask(site: Running, target: str) -> Any:
    with Peer.connect(site.host, site.port) as peer:
        return ask_on(peer, target)


def ask_on(peer: Peer, target: str) -> Any:
    peer.send(build_request("GET", target))
    response = peer.read_response("GET")
    assert response.status == 200, target
    return json.loads(response.body)


def test_awaitables_of_receive_and_send_have_the_methods_of_a_coroutine(
    serve: Serve, write_app: Callable[[str], str]
) -> None:
    site = serve(write_app(APP))
    for _ in range(3):
        found = ask(site, "/awaitables")
        assert found["coroutines"] == found["functions"] == [True, True]
        assert (found["throw"], found["throw a class"]) == ("ValueError: thrown", "KeyError: 'k'")
        assert found["throw nothing"].startswith("TypeError: throw takes an exception")
        assert found["after throw"] == found["after close"] == "RuntimeError: cannot reuse already awaited coroutine"
        assert [text.split(":")[0] for text in found["arguments"]] == ["TypeError"] * 6
        assert found["message"] == {"type": "'http.request'", "body": "b''", "more_body": "False"}
    site.stop()
    assert "Traceback" not in site.stderr
    assert "bug in kirsch" not in site.stderr


@needs_freeing_at_once
@pytest.mark.parametrize("action", ["default", "error"])
def test_message_that_is_not_awaited_is_warned_of(serve: Serve, write_app: Callable[[str], str], action: str) -> None:
    site = serve(write_app(APP), env={"PYTHONWARNINGS": f"{action}::RuntimeWarning"})
    with Peer.connect(site.host, site.port) as peer:
        peer.send(build_request("GET", "/unawaited"))
        assert peer.read_response("GET").status == 500
        assert ask_on(peer, "/plain") == "plain"
    # The exception of the application is the one that it has raised.
    site.wait_for("^ZeroDivisionError: division by zero$")
    site.stop()
    for name, count in (("send", 2), ("receive", 1)):
        assert site.stderr.count(f"RuntimeWarning: coroutine '{name}' was never awaited") == count, site.stderr
    assert "bug in kirsch" not in site.stderr


def test_receive_and_send_that_are_kept_stay_with_their_response(serve: Serve, write_app: Callable[[str], str]) -> None:
    site = serve(write_app(APP))
    with Peer.connect(site.host, site.port) as peer:
        for count in range(1, 4):
            for _ in range(count):
                assert ask_on(peer, "/keeps") == "kept"
                assert ask_on(peer, "/plain") == "plain"
            found = ask_on(peer, "/uses-kept")
            assert len(found) == count
            for same_receive, same_send, sent, received, started in found:
                assert (same_receive, same_send, received) == (False, False, "http.disconnect")
                assert sent.startswith("RuntimeError: http.response.body was sent after the response was complete")
                assert started.startswith("RuntimeError: http.response.start was sent")
            assert ask_on(peer, "/plain") == "plain"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_a_request_that_never_waits_has_scheduled_runs_without_another_request(
    serve: Serve, write_app: Callable[[str], str], loop: str
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    site = serve(write_app(APP), "--loop", loop)
    with socket.create_server(("127.0.0.1", 0)) as listener, Peer.connect(site.host, site.port) as peer:
        listener.settimeout(60)
        for _ in range(5):
            assert ask_on(peer, "/plain") == "plain"
            assert ask_on(peer, f"/later/{listener.getsockname()[1]}") == "scheduled"
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(60)
                text = b""
                while piece := connection.recv(100):
                    text += piece
                # uvloop runs a timer that is due before a callback that was scheduled meanwhile.
                assert sorted(text.split()) == [b"later", b"soon"]


def test_descriptors_of_the_loop_are_served_while_requests_come_without_a_pause(
    serve: Serve, write_app: Callable[[str], str]
) -> None:
    site = serve(write_app(APP))
    port = ask(site, "/other")
    is_over = threading.Event()
    is_loaded = threading.Barrier(3, timeout=60)
    ended: list[str] = []

    def load() -> None:
        with Peer.connect(site.host, site.port) as peer:
            for batch in itertools.count():
                peer.send(build_request("GET", "/plain") * 20)
                for _ in range(20):
                    assert peer.read_response("GET").status == 200
                if batch == 0:
                    is_loaded.wait()
                if is_over.is_set():
                    break
        ended.append("answered to the last request")

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        is_loaded.wait()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as other, other.makefile("rwb") as file:
            for number in range(50):
                file.write(b"%d\n" % number)
                file.flush()
                assert file.readline() == b"%d\n" % number
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    assert ended == ["answered to the last request"] * 2
