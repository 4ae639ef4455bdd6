"""Uses that applications make of the task of a request. ``SCENARIOS`` run in an ordinary task too, to compare;
``MARKS`` leave something behind that another request must not find."""

from __future__ import annotations

import asyncio
import contextvars
import json
import sys
import traceback
import weakref
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE", default="default")
SHARED: contextvars.ContextVar[Any] = contextvars.ContextVar("SHARED", default=None)

WEAK: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
kept: list[Any] = []
called: list[str] = []
shared: list[Any] = []
names: list[str] = []


# Not all that is used here came with CPython 3.10.
aio: Any = asyncio


def current() -> Any:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancelled(awaitable: Awaitable[Any]) -> list[Any]:
    """The arguments of the cancellation with which ``awaitable`` ends, and what is left of it."""
    try:
        await awaitable
    except asyncio.CancelledError as error:
        left = [current().cancelling(), current().uncancel()]
        await asyncio.sleep(0)
        return ["cancelled", list(error.args), *left, current().cancelling()]
    return ["not cancelled"]


async def expires() -> Any:
    try:
        async with aio.timeout(0.01):
            await asyncio.sleep(60)
    except TimeoutError:
        return ["expired", current().cancelling()]


async def expires_at_once() -> Any:
    try:
        async with aio.timeout(0):
            await asyncio.sleep(60)
    except TimeoutError:
        return ["expired", current().cancelling()]


async def does_not_expire() -> Any:
    async with aio.timeout(60):
        VARIABLE.get()
    return current().cancelling()


async def task_group() -> Any:
    async with aio.TaskGroup() as group:
        task = group.create_task(asyncio.sleep(0.001, "child"))
    return task.result()


async def task_group_fails() -> Any:
    async def fail() -> None:
        raise ValueError("child")

    try:
        async with aio.TaskGroup() as group:
            group.create_task(fail())
            await asyncio.sleep(60)
    except Exception as group:  # noqa: BLE001  # an ExceptionGroup, which CPython 3.10 does not have
        children: Any = group
        return [[str(each) for each in children.exceptions], current().cancelling()]


async def cancelled_before_it_waits() -> Any:
    current().cancel("why")
    return await cancelled(asyncio.sleep(60))


async def cancelled_before_a_bare_yield() -> Any:
    current().cancel("why")
    return await cancelled(asyncio.sleep(0))


async def cancelled_before_a_future_that_is_done() -> Any:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Done:
        def __await__(self) -> Generator[Any, None, None]:
            future._asyncio_future_blocking = True
            yield future

    future.set_result(None)
    current().cancel("why")
    return await cancelled(Done())


async def cancelled_and_taken_back_before_it_waits() -> Any:
    current().cancel()
    current().uncancel()
    # CPython 3.12 cancels what it waits for all the same.
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        return ["cancelled", current().cancelling()]
    return ["not cancelled", current().cancelling()]


async def cancelled_while_it_waits() -> Any:
    asyncio.get_running_loop().call_later(0.001, current().cancel, "late")
    return await cancelled(asyncio.sleep(60))


async def cancelled_twice() -> Any:
    current().cancel()
    current().cancel("second")
    return await cancelled(asyncio.sleep(60))


async def waits_for_itself() -> Any:
    try:
        await current()
    except RuntimeError as error:
        return "await on itself" in str(error)


class Yields:
    def __await__(self) -> Generator[Any, None, None]:
        yield 5


async def yields_a_number() -> Any:
    try:
        await Yields()
    except RuntimeError as error:
        return "bad yield: 5" in str(error)


async def cancelled_before_it_yields_a_number() -> Any:
    current().cancel("why")
    return await cancelled(Yields())


async def keeps_its_variables() -> Any:
    VARIABLE.set("mine")
    seen: list[Any] = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(VARIABLE.get()))
    await asyncio.sleep(0)
    child = await asyncio.create_task(anyio.to_thread.run_sync(VARIABLE.get))
    same = current().get_context()[VARIABLE] if sys.version_info >= (3, 12) else "mine"
    return [*seen, child, VARIABLE.get(), same]


async def is_known() -> Any:
    before = current()
    found = [before in asyncio.all_tasks(), before.done(), asyncio.current_task() is before]
    await asyncio.sleep(0.001)
    return [*found, before in asyncio.all_tasks(), asyncio.current_task() is before]


async def has_a_stack() -> Any:
    def look() -> list[Any]:
        coroutine: Any = task.get_coro()
        return [
            [frame.f_code.co_name for frame in task.get_stack()][-1:],
            coroutine.cr_frame is not None,
            coroutine.cr_running,
            coroutine.cr_await is not None,
            asyncio.iscoroutine(coroutine),
            coroutine.__qualname__,
        ]

    task = current()
    before = look()
    later: list[Any] = []
    asyncio.get_running_loop().call_soon(lambda: later.extend(look()))
    await asyncio.sleep(0.001)
    return [before[1:4], later[1:5]]


async def has_a_traceback() -> Any:
    try:
        await asyncio.sleep(0.001)
        raise ValueError("raised")
    except ValueError as error:
        return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


async def anyio_scopes() -> Any:
    found: list[Any] = [anyio.get_cancelled_exc_class().__name__]
    with anyio.move_on_after(0.01) as scope:
        await anyio.sleep(60)
    found.append(scope.cancelled_caught)
    with anyio.CancelScope() as outer:
        outer.cancel()
        await anyio.sleep(60)
    found.append(outer.cancelled_caught)
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.sleep, 60)
        await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    found.append(await anyio.to_thread.run_sync(lambda: 42))
    return [*found, current().cancelling()]


async def waits_for_all_others() -> Any:
    """A task that is parked would never end."""
    others = {task for task in asyncio.all_tasks() if task.get_name().startswith("Request-")} - {current()}
    await asyncio.wait_for(asyncio.gather(*others), 10)
    return len(others)


SCENARIOS: dict[str, Callable[[], Awaitable[Any]]] = {
    function.__name__: function
    for function in (
        expires,
        expires_at_once,
        does_not_expire,
        task_group,
        task_group_fails,
        cancelled_before_it_waits,
        cancelled_before_a_bare_yield,
        cancelled_before_a_future_that_is_done,
        cancelled_and_taken_back_before_it_waits,
        cancelled_while_it_waits,
        cancelled_twice,
        waits_for_itself,
        yields_a_number,
        cancelled_before_it_yields_a_number,
        keeps_its_variables,
        is_known,
        has_a_stack,
        has_a_traceback,
        anyio_scopes,
        waits_for_all_others,
    )
}


def mark_callback(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(lambda done: called.append(f"{done.get_name()} {done is task} {done.cancelled()}"))


def mark_cancelled_and_taken_back(task: Any) -> None:
    task.cancel()
    task.uncancel()


# Marks that a request leaves on its task without waiting for anything.
MARKS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda task: setattr(task, "mark", 1),
    "weak": lambda task: WEAK.update({task: "mark"}),
    "strong": kept.append,
    "coroutine": lambda task: kept.append(task.get_coro()),
    # CPython 3.11 has no get_context.
    "context": lambda task: kept.append(task.get_context() if sys.version_info >= (3, 12) else None),
    "callback": mark_callback,
    "name": lambda task: task.set_name("mark"),
    "name that is kept": lambda task: names.append(task.get_name()),
    "hash of the name": lambda task: hash(task.get_name()),
    "variable": lambda task: VARIABLE.set("mark"),
    "equal variable": lambda task: SHARED.set([]),
    "cancelled": lambda task: task.cancel(),
    "cancelled and taken back": mark_cancelled_and_taken_back,
}


def shown() -> dict[str, Any]:
    """Returns the state of the task that a request finds: nothing of it may depend on another request."""
    task = current()
    return {
        "name": task.get_name(),
        "attribute": hasattr(task, "mark"),
        "weak": task in WEAK,
        "weak references": weakref.getweakrefcount(task),
        "variable": VARIABLE.get(),
        "is shared": SHARED.get() is shared,
        "cancelling": task.cancelling() if hasattr(task, "cancelling") else 0,
        "known": task in asyncio.all_tasks(),
        "kept": any(each is task for each in kept),
    }


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        await receive()
        SHARED.set(shared)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        # A task that is parked would never end.
        others = asyncio.all_tasks() - {current()}
        await asyncio.gather(*(task for task in others if task.get_name().startswith("Request-")))
        print("the lifespan has ended", file=sys.stderr, flush=True)
        await send({"type": "lifespan.shutdown.complete"})
        return
    _, kind, name = scope["path"].split("/")
    is_parked = type(current().get_coro()).__name__ == "RequestCoroutine"
    if kind == "scenario":
        result = await SCENARIOS[name]()
    elif kind == "mark":
        MARKS[name](current())
        result = current().get_name()
    elif kind == "called":
        result = called
    elif kind == "names":
        result = names
    else:
        result = shown()
    body = json.dumps({"parked": is_parked, "result": result}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
