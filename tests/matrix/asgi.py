"""An ASGI application that misbehaves: the path names the behaviour, MATRIX_LIFESPAN what its lifespan does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
from typing import Any

import matrix.interpreter
import matrix.process
import matrix.resources  # noqa: F401
from matrix.process import KEPT
from matrix.table import DEEDS, Behaviour, Table
from matrix.wsgi import Own, Text

TABLE = Table()
LIFESPANS = Table()
START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
BODY = {"type": "http.response.body", "body": b"x"}
MORE = {"type": "http.response.body", "body": b"x", "more_body": True}

_HELLO = ({**START, "headers": [(b"content-length", b"5")]}, {"type": "http.response.body", "body": b"hello"})
_write = os.write
_begins = {}


async def app(scope: Any, receive: Any, send: Any) -> None:
    kind = scope["type"]
    if kind == "lifespan":
        await _lifespan(scope, receive, send)
        return
    path = scope["path"]
    if path == "/hello":
        await send(_HELLO[0])
        await send(_HELLO[1])
        return
    _write(2, _begins[path])
    await TABLE[path[1:]].act(scope, receive, send)


def _deed(behaviour: Behaviour) -> Behaviour:
    async def act(scope: Any, receive: Any, send: Any) -> None:
        behaviour.act()
        await send(START)
        await send(BODY)

    return Behaviour(**{**behaviour.__dict__, "act": act})


for _each in DEEDS.values():
    TABLE.add(_deed(_each))

# Exceptions of each kind, at each place

PLACES = ("before_start", "after_start", "in_the_body", "after_the_end", "behind_receive", "in_a_task")


def _raises(error: type[BaseException], place: str) -> None:
    async def fail() -> None:
        raise error("matrix")

    async def act(scope: Any, receive: Any, send: Any) -> None:
        if place == "before_start":
            await fail()
        if place == "behind_receive":
            await receive()
            await fail()
        if place == "in_a_task":
            KEPT.append(asyncio.get_running_loop().create_task(fail()))
            await asyncio.sleep(0.05)
        await send(START)
        if place == "after_start":
            await fail()
        await send(MORE)
        if place == "in_the_body":
            await fail()
        await send(BODY)
        if place == "after_the_end":
            await fail()

    is_silent = place == "in_a_task" or (error is asyncio.CancelledError and place == "after_the_end")
    cause = None if is_silent else rf"{error.__name__}|[Cc]ancelled"
    alone = place == "in_a_task" or error in (KeyboardInterrupt, SystemExit)
    TABLE.add(Behaviour(f"exceptions-{error.__name__}_{place}", "exceptions", act, cause, alone=alone))


for _error in (
    ValueError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
    asyncio.CancelledError,
    Own,
    StopAsyncIteration,
):
    for _place in PLACES:
        _raises(_error, _place)
_raises(OSError, "before_start")
_raises(TimeoutError, "in_the_body")
_raises(BrokenPipeError, "in_the_body")
_raises(RecursionError, "before_start")
_raises(MemoryError, "before_start")

# send and receive in every order

messages = TABLE.group("messages")
MISUSE = r"Error|ASGI|[Mm]essage|response|Expected|without|status|header|body|type|returned"


def _sends(name: str, *sent: Any, fine: bool = False, group: str = "messages") -> None:
    async def act(scope: Any, receive: Any, send: Any) -> None:
        for message in sent:
            await send(message)

    TABLE.add(Behaviour(f"{group}-{name}", group, act, None if fine else MISUSE))


_sends("nothing")
_sends("start_alone", START)
_sends("body_alone", BODY)
_sends("start_twice", START, START, BODY)
_sends("start_after_body", START, MORE, START)
_sends("body_after_end", START, BODY, BODY)
_sends("unfinished_body", START, MORE)
_sends("none", None)
_sends("text", "http.response.start")
_sends("empty", {})
_sends("list", [START, BODY])
_sends("unknown_type", {"type": "http.response.nonsense"})
_sends("type_integer", {"type": 5})
_sends("type_subclass", {**START, "type": Text("http.response.start")}, BODY, fine=True)
_sends("request_message", {"type": "http.request", "body": b""})
_sends("disconnect_message", START, {"type": "http.disconnect"})
_sends("lifespan_message", {"type": "lifespan.startup.complete"})
_sends("websocket_message", {"type": "websocket.accept"})
_sends("websocket_send", {"type": "websocket.send", "text": "x"})
_sends("trailers_unannounced", START, BODY, {"type": "http.response.trailers", "headers": []})
_sends("trailers_missing", {**START, "trailers": True}, BODY, fine=True)
_sends("push", START, {"type": "http.response.push", "path": "/", "headers": []}, BODY)
_sends("pathsend_missing", START, {"type": "http.response.pathsend", "path": "/nowhere/at/all"})
_sends("pathsend_directory", START, {"type": "http.response.pathsend", "path": "/"})
_sends("zerocopy_wrong", START, {"type": "http.response.zerocopysend", "file": 999})
_sends("early_hint_late", START, {"type": "http.response.early_hint", "links": [b"x"]}, BODY, fine=True)
_sends("debug", {"type": "http.response.debug", "info": object()}, START, BODY)
for _name, _status in {
    "none": None, "text": "200", "float": 200.5, "zero": 0, "negative": -1, "four_digits": 2000, "huge": 10**30,
    "list": [200], "99": 99, "100": 100, "101": 101,
}.items():  # fmt: skip
    _sends(f"status_{_name}", {**START, "status": _status}, BODY)
_sends("status_missing", {"type": "http.response.start"}, BODY)
_sends("status_204_with_body", {**START, "status": 204, "headers": []}, {**BODY, "body": b"x" * 100}, fine=True)
_sends("status_304_with_body", {**START, "status": 304, "headers": []}, {**BODY, "body": b"x" * 100}, fine=True)
for _name, _headers in {
    "none": None, "text": "x: y", "integer": 5, "flat": [b"x", b"y"], "of_text": [("x", "y")], "triple": [(b"x", b"y", b"z")],
    "value_none": [(b"x", None)], "value_integer": [(b"x", 1)], "line_end": [(b"x", b"y\r\nz: 1")], "colon": [(b"x:", b"y")],
    "space": [(b"x y", b"z")], "empty_name": [(b"", b"y")], "nul": [(b"x", b"\0")], "of_integers": [1, 2],
    "length_text": [(b"content-length", b"many")], "length_negative": [(b"content-length", b"-1")],
    "length_twice": [(b"content-length", b"1"), (b"content-length", b"2")],
    "length_too_long": [(b"content-length", b"10")], "length_too_short": [(b"content-length", b"0")],
    "transfer_encoding": [(b"transfer-encoding", b"chunked")], "upgrade": [(b"connection", b"upgrade")],
}.items():  # fmt: skip
    _sends(
        f"headers_{_name}", {**START, "headers": _headers}, BODY, fine=_name in ("none", "transfer_encoding", "upgrade")
    )
_sends("headers_of_1_mb", {**START, "headers": [(b"x", b"y" * 1_000_000)]}, BODY, fine=True)
_sends("headers_10_000", {**START, "headers": [(b"x-%d" % n, b"y") for n in range(10_000)]}, BODY, fine=True)
for _name, _body in {"none": None, "text": "x", "integer": 5, "list": [b"x"]}.items():
    _sends(f"body_{_name}", START, {**BODY, "body": _body}, fine=_name == "none")
_sends("body_memoryview", START, {**BODY, "body": memoryview(b"x")}, fine=True)
_sends("body_missing", START, {"type": "http.response.body"}, fine=True)
_sends("body_of_100_mb", START, {**BODY, "body": bytes(100 << 20)}, fine=True)
_sends("more_body_text", START, {**BODY, "more_body": "no"}, BODY, fine=True)
_sends("ten_thousand_parts", START, *[MORE] * 10_000, BODY, fine=True)
_sends("empty_parts", START, *[{**MORE, "body": b""}] * 10_000, BODY, fine=True)


@messages(cause=MISUSE)
async def send_not_awaited(scope: Any, receive: Any, send: Any) -> None:
    send(START)
    send(BODY)


@messages
async def send_in_tasks(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    await asyncio.gather(*[send(MORE) for _ in range(20)])
    await send(BODY)


@messages
async def send_from_a_thread(scope: Any, receive: Any, send: Any) -> None:
    def use() -> None:
        with contextlib.suppress(BaseException):
            asyncio.run(send(START))
        with contextlib.suppress(BaseException):
            send(BODY).send(None)

    await asyncio.to_thread(use)
    with contextlib.suppress(Exception):
        await send(START)
    with contextlib.suppress(Exception):
        await send(BODY)


@messages
async def send_after_the_return(scope: Any, receive: Any, send: Any) -> None:
    async def later() -> None:
        await asyncio.sleep(0.2)
        with contextlib.suppress(Exception):
            await send(MORE)
        with contextlib.suppress(Exception):
            await receive()

    KEPT.append(asyncio.ensure_future(later()))
    await send(START)
    await send(BODY)


@messages
async def receive_after_the_end(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    await send(BODY)
    for _ in range(100):
        await receive()


@messages
async def receive_in_tasks(scope: Any, receive: Any, send: Any) -> None:
    KEPT.extend(asyncio.ensure_future(receive()) for _ in range(20))
    await asyncio.sleep(0)
    await send(START)
    await send(BODY)


@messages
async def receive_not_awaited(scope: Any, receive: Any, send: Any) -> None:
    receive()
    await send(START)
    await send(BODY)


@messages
async def receive_for_ever(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@messages
async def send_after_the_disconnect(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await receive()
    with contextlib.suppress(OSError):
        await send(START)
        await send(BODY)


@messages(blocks=True)
async def infinite(scope: Any, receive: Any, send: Any) -> None:
    await send(START)
    while True:
        await send({**MORE, "body": b"x" * 10_000})


@messages
async def sends_a_message_changed_later(scope: Any, receive: Any, send: Any) -> None:
    message = dict(START)
    await send(message)
    message.clear()
    part = dict(MORE)
    await send(part)
    part["body"] = None
    await send(BODY)


@messages(cause="Error|awaitable|None|object|callable")
async def returns_junk(scope: Any, receive: Any, send: Any) -> Any:
    return object()


# The scope

scopes = TABLE.group("scope")


async def _answer(send: Any) -> None:
    await send(START)
    await send(BODY)


@scopes
async def cleared(scope: Any, receive: Any, send: Any) -> None:
    scope.clear()
    await _answer(send)


@scopes
async def junk(scope: Any, receive: Any, send: Any) -> None:
    for key in list(scope):
        scope[key] = object()
    await _answer(send)


@scopes
async def headers_changed(scope: Any, receive: Any, send: Any) -> None:
    with contextlib.suppress(AttributeError, TypeError):
        scope["headers"].clear()
        scope["headers"].append(5)
    await _answer(send)


@scopes
async def state_changed(scope: Any, receive: Any, send: Any) -> None:
    with contextlib.suppress(KeyError):
        scope["state"].clear()
        scope["state"]["scope"] = scope
    await _answer(send)


@scopes
async def nested_changed(scope: Any, receive: Any, send: Any) -> None:
    for name in ("asgi", "extensions"):
        with contextlib.suppress(KeyError, AttributeError):
            scope[name].clear()
            scope[name][5] = None
    await _answer(send)


@scopes
async def odd_keys(scope: Any, receive: Any, send: Any) -> None:
    scope.update({1: 2, None: None})
    scope["itself"] = scope
    await _answer(send)


@scopes
async def kept(scope: Any, receive: Any, send: Any) -> None:
    KEPT.append((scope, receive, send))
    await _answer(send)


# The event loop

loop = TABLE.group("loop", alone=True)


def _loop() -> Any:
    return asyncio.get_running_loop()


def _on_loop(name: str, use: Any, cause: str | None = None, **options: Any) -> None:
    async def act(scope: Any, receive: Any, send: Any) -> None:
        use(_loop())
        await asyncio.sleep(0.05)
        await _answer(send)

    TABLE.add(Behaviour(f"loop-{name}", "loop", act, cause, alone=True, **options))


def _fail(*_: object, **__: object) -> Any:
    raise ValueError("matrix")


def _interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


async def _swallows() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


async def _exits_later() -> None:
    await asyncio.sleep(0.01)
    sys.exit(9)


async def _spins() -> None:
    until = time.monotonic() + 2
    while time.monotonic() < until:
        await asyncio.sleep(0)


def _remove_readers(loop: Any) -> None:
    for fd in range(64):
        with contextlib.suppress(Exception):
            loop.remove_reader(fd)


def _remove_from_poller(loop: Any) -> None:
    for key in list(loop._selector.get_map().values()):
        loop._selector.unregister(key.fd)


def _add_readers(loop: Any) -> None:
    for fd in range(64):
        with contextlib.suppress(Exception):
            loop.add_reader(fd, int)


STOPPED = r"[Ll]oop|stopped|closed|Runtime|Error"
_on_loop("stop", lambda loop: loop.stop())
_on_loop("close", lambda loop: loop.close(), STOPPED)
_on_loop("stop_later", lambda loop: loop.call_later(0.01, loop.stop))
_on_loop("selector_closed", lambda loop: loop._selector.close(), STOPPED)
_on_loop("selector_emptied", _remove_from_poller)
_on_loop("readers_removed", _remove_readers)
_on_loop("readers_added", _add_readers)
_on_loop("ready_cleared", lambda loop: loop._ready.clear())
_on_loop("scheduled_cleared", lambda loop: loop._scheduled.clear())
_on_loop("cancel_all", lambda loop: [task.cancel() for task in asyncio.all_tasks()], r"[Cc]ancel|500|returned")
_on_loop("cancel_itself", lambda loop: asyncio.current_task().cancel(), r"[Cc]ancel|500|returned")  # type: ignore[union-attr]
_on_loop("tasks_left", lambda loop: KEPT.extend(loop.create_task(asyncio.sleep(600)) for _ in range(100)))
_on_loop("task_swallows_cancel", lambda loop: KEPT.append(loop.create_task(_swallows())))
_on_loop("task_exits", lambda loop: KEPT.append(loop.create_task(_exits_later())))
_on_loop("task_spins", lambda loop: KEPT.append(loop.create_task(_spins())))
_on_loop("callback_raises", lambda loop: loop.call_soon(_fail), "ValueError")
_on_loop("callback_interrupts", lambda loop: loop.call_soon(_interrupt), "KeyboardInterrupt|SIGINT")
_on_loop("callback_exits", lambda loop: loop.call_soon(sys.exit, 9))
_on_loop("callback_blocks", lambda loop: loop.call_soon(time.sleep, 1.2), blocks=True)
_on_loop(
    "exception_handler_raises", lambda loop: (loop.set_exception_handler(_fail), loop.call_soon(int, "x")), "Error"
)
_on_loop("task_factory_raises", lambda loop: loop.set_task_factory(_fail))
_on_loop("task_factory_returns_none", lambda loop: loop.set_task_factory(lambda *_, **__: None))
_on_loop("debug", lambda loop: loop.set_debug(True))
_on_loop("executor_shut_down", lambda loop: loop.run_in_executor(None, int) and loop._default_executor.shutdown(False))
_on_loop("executor_left_busy", lambda loop: loop.run_in_executor(None, time.sleep, 600), "thread", late=True)
_on_loop("term_handler", lambda loop: loop.add_signal_handler(signal.SIGTERM, int))
_on_loop("term_handler_removed", lambda loop: loop.remove_signal_handler(signal.SIGTERM))
_on_loop("event_loop_set_to_none", lambda loop: asyncio.set_event_loop(None))
_on_loop("running_loop_set_to_none", lambda loop: asyncio._set_running_loop(None))
_on_loop("policy_broken", lambda loop: setattr(asyncio, "get_running_loop", _fail))
_on_loop("current_task_broken", lambda loop: setattr(asyncio.tasks, "_enter_task", _fail))
_on_loop("timers_100_000", lambda loop: [loop.call_later(600, int) for _ in range(100_000)])
_on_loop("asyncgen_hooks_raise", lambda loop: sys.set_asyncgen_hooks(_fail, _fail))
_on_loop("call_soon_broken", lambda loop: setattr(loop, "call_soon", _fail))
_on_loop("time_broken", lambda loop: setattr(loop, "time", _fail))
_on_loop(
    "run_nested", lambda loop: contextlib.suppress(RuntimeError).__enter__() or loop.run_until_complete(None), "Error"
)
_on_loop("interrupt_thread", lambda loop: threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start())


@loop(cause=None)
async def future_never_retrieved(scope: Any, receive: Any, send: Any) -> None:
    future = _loop().create_future()
    future.set_exception(ValueError("nobody asks"))
    del future
    gc.collect()
    await _answer(send)


@loop(cause="in a group|ValueError")
async def task_group_raises(scope: Any, receive: Any, send: Any) -> None:
    if not hasattr(asyncio, "TaskGroup"):
        raise ValueError("in a group")
    async with asyncio.TaskGroup() as group:
        group.create_task(_swallow_nothing())
        group.create_task(asyncio.sleep(600))


async def _swallow_nothing() -> None:
    raise ValueError("in a group")


@loop(keeps=True)
async def subprocess_left(scope: Any, receive: Any, send: Any) -> None:
    KEPT.append(await asyncio.create_subprocess_exec("sleep", "60"))
    await _answer(send)


@loop
async def asyncgen_left(scope: Any, receive: Any, send: Any) -> None:
    async def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(600)

    generator = endless()
    await generator.__anext__()
    KEPT.append(generator)
    await _answer(send)


@loop
async def lock_left(scope: Any, receive: Any, send: Any) -> None:
    lock = asyncio.Lock()
    await lock.acquire()
    KEPT.append(_loop().create_task(lock.acquire()))
    await _answer(send)


@loop
async def server_of_its_own(scope: Any, receive: Any, send: Any) -> None:
    KEPT.append(await asyncio.start_server(lambda *_: None, "127.0.0.1", 0))
    await _answer(send)


@loop
async def pollers_emptied(scope: Any, receive: Any, send: Any) -> None:
    for fd in range(64):
        with contextlib.suppress(OSError, ValueError):
            if "eventpoll" in os.readlink(f"/proc/self/fd/{fd}"):
                poller = select.epoll.fromfd(os.dup(fd))
                for each in range(64):
                    with contextlib.suppress(OSError):
                        poller.unregister(each)
    await _answer(send)


@loop(lasts=True, cause=r"(?i)timed? ?out|deadline|does not|504|[Cc]ancel")
async def waits_for_ever(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(60)


@loop(lasts=True, cause=r"(?i)timed? ?out|deadline|does not|stuck|504|[Cc]ancel|killed")
async def waits_and_swallows_cancel(scope: Any, receive: Any, send: Any) -> None:
    await _swallows()


# Lifespans: what they do from the start to the stop

lifespan = LIFESPANS.group("lifespan", alone=True)
STARTUP_COMPLETE = {"type": "lifespan.startup.complete"}
SHUTDOWN_COMPLETE = {"type": "lifespan.shutdown.complete"}


async def _lifespan(scope: Any, receive: Any, send: Any) -> None:
    name = os.environ.get("MATRIX_LIFESPAN")
    if name is not None:
        await LIFESPANS[name].act(scope, receive, send)
        return
    await receive()
    await send(STARTUP_COMPLETE)
    await receive()
    await send(SHUTDOWN_COMPLETE)


def _lives(name: str, startup: Any = (), shutdown: Any = (), cause: str | None = None, **options: Any) -> None:
    """``startup`` and ``shutdown`` are messages to send, exceptions to raise, and functions to await."""

    async def step(steps: Any, send: Any) -> None:
        for each in steps:
            if isinstance(each, dict):
                await send(each)
            elif isinstance(each, type):
                raise each("matrix")
            else:
                await each()

    async def act(scope: Any, receive: Any, send: Any) -> None:
        if startup is None:
            return
        await receive()
        await step(startup, send)
        if shutdown is not None:
            await receive()
            await step(shutdown, send)

    LIFESPANS.add(Behaviour(f"lifespan-{name}", "lifespan", act, cause, alone=True, **options))


async def _sleep() -> None:
    await asyncio.sleep(600)


async def _leave_task() -> None:
    KEPT.append(asyncio.ensure_future(_swallows()))


async def _block() -> None:
    time.sleep(1.2)


async def _segfault() -> None:
    os.abort()


C, D = STARTUP_COMPLETE, SHUTDOWN_COMPLETE
_lives("none", None)
_lives("returns_at_once", (), None)
_lives("startup_failed", [{"type": "lifespan.startup.failed", "message": "no database"}], None, "no database")
_lives("startup_failed_silently", [{"type": "lifespan.startup.failed"}], None, "[Ll]ifespan|start-?up")
_lives("raises_in_startup", [ValueError], None, "ValueError|[Ll]ifespan")
_lives("exits_in_startup", [SystemExit], None, "SystemExit|[Ll]ifespan|exit")
_lives("interrupts_in_startup", [KeyboardInterrupt], None, "KeyboardInterrupt|[Ll]ifespan|SIGINT")
_lives("cancelled_in_startup", [asyncio.CancelledError], None, "[Cc]ancel|[Ll]ifespan")
_lives("aborts_in_startup", [_segfault], None, r"SIGABRT|[Aa]bort|-6|signal 6")
_lives("blocks_in_startup", [_block, C], [D])
_lives("junk_in_startup", [{"type": "nonsense"}, C], [D], "nonsense|message|Error|[Ll]ifespan", calls=True)
_lives("shutdown_complete_first", [D], [D], "Error|message|[Ll]ifespan", calls=True)
_lives("complete_twice", [C, C], [D], "Error|message|[Ll]ifespan", calls=True)
_lives("raises_when_serving", [C, ValueError], None, "ValueError|[Ll]ifespan")
_lives("exits_when_serving", [C, SystemExit], None, "SystemExit|[Ll]ifespan|exit")
_lives("returns_when_serving", [C], None)
_lives("leaves_tasks", [_leave_task, C], [D])
_lives("shutdown_failed", [C], [{"type": "lifespan.shutdown.failed", "message": "still busy"}], "still busy")
_lives("raises_in_shutdown", [C], [ValueError], "ValueError|[Ll]ifespan")
_lives("exits_in_shutdown", [C], [SystemExit], "SystemExit|[Ll]ifespan|exit")
_lives("hangs_in_shutdown", [C], [_sleep], "(?i)shut-?down|lifespan|timed? ?out|cancel")
_lives("blocks_in_shutdown", [C], [_block, D])
_lives("returns_in_shutdown", [C], [])
_lives("junk_in_shutdown", [C], [{"type": "nonsense"}, D], "nonsense|message|Error|[Ll]ifespan", calls=True)

_begins.update({f"/{name}": f"matrix: {name} begins\n".encode() for name in TABLE})
