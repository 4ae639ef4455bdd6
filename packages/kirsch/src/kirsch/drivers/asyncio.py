"""The driver ``asyncio``: ASGI applications in an event loop, one loop in each worker process.

The engine is part of the loop's selector, so the wait of the loop is also the wait of the engine. When requests are
ready, the selector itself calls the application: the loop is running, and no task is current. Each request is a
separate task, which begins at once (``eager_start``, from CPython 3.12 on) in a copy of the context in which the
lifespan started. asyncio itself provides transports, subprocesses, timers and signals. Mounted WSGI applications are
called in threads beside the loop (``wsgi_threads.py``).
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from time import monotonic

from kirsch.apps.signature import is_coroutine_function
from kirsch.drivers import ClientDisconnected, RequestTimeout, patched_by, patching_warnings
from kirsch.drivers.loops import new_uvloop
from kirsch.process import forks
from kirsch.process.real_threads import has_gil, original, run_in_loop
from kirsch.process.stacks import capture, capture_detached, entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from types import FrameType
    from typing import Any

    from kirsch._native import Call, NativeServer
    from kirsch.config.native import NativeConfig
    from kirsch.drivers.lifespan import Lifespan, Lifespans
    from kirsch.drivers.wsgi_threads import WsgiThreads
    from kirsch.process.stacks import Stack


# The seconds that cancelled tasks may take to unwind at the end.
_CANCEL_SECONDS = 1.0

# The seconds between two checks, while the stop waits for calls, whether its time was shortened.
_LOOK_SECONDS = 0.1


class AsyncioDriver:
    """A driver with its own event loop of CPython or uvloop (:meth:`run`), or in a loop that is already running
    (:meth:`serve`)."""

    def __init__(self, lifespans: Lifespans, loop: str, threads: WsgiThreads | None) -> None:
        self._lifespans = lifespans
        self._threads = threads
        self._uses_uvloop = loop == "uvloop"
        self._native: NativeServer | None = None
        self._poller: EnginePoller | None = None
        self._get_ident = original("get_ident")
        self._thread = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._selector: EngineSelector | None = None
        self._starting: asyncio.Task[Any] | None = None
        self._has_stopped = False
        self._stop_due: float | None = None

    def configure(self, config: NativeConfig) -> None:
        config.threads = 1
        config.spawn = None
        config.interface = "asgi"
        if self._threads is not None:
            from kirsch.drivers.wsgi_threads import Wait

            config.hand_over = self._threads.hand_over
            config.waiter = Wait
            config.wait = Wait.wait

    def begin(self) -> None:
        if asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "an event loop runs in this thread already, and start() has one of its own: write await server.serve()"
            )
        self._thread = self._get_ident()

    def start_up(self) -> None:
        """Create the loop and start the application's lifespan. Raises NotStartedError."""
        if self._uses_uvloop:
            self._loop = new_uvloop()
        else:
            self._selector = EngineSelector(self._on_stopped)
            self._loop = asyncio.SelectorEventLoop(self._selector)
        asyncio.set_event_loop(self._loop)
        try:
            self._complete(self._lifespans.start_up())
        except BaseException:
            self.shut_down()
            raise

    def complete(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run ``coroutine`` in the loop to its end, before the server serves."""
        self._complete(coroutine)

    def _complete(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        assert self._loop is not None
        self._starting = self._loop.create_task(coroutine)
        try:
            self._loop.run_until_complete(self._starting)
        except asyncio.CancelledError:
            if self._stop_due is None:
                raise
        finally:
            self._starting = None

    def begin_stop(self, timeout: float) -> None:
        """Begin the stop of the server: calls may run for ``timeout`` more seconds. Called in any thread or signal
        handler."""
        due = monotonic() + timeout
        self._stop_due = due if self._stop_due is None else min(due, self._stop_due)
        starting, loop = self._starting, self._loop
        if starting is not None and loop is not None:
            loop.call_soon_threadsafe(starting.cancel)

    def run(self, native: NativeServer) -> None:
        loop, selector = self._loop, self._selector
        assert loop is not None
        self._native = native
        poller = self._poller = None if selector is not None else EnginePoller(loop, native, self._on_stopped)
        self._attach(native, loop, poller)
        if selector is not None:
            selector.native = native
        try:
            while not self._has_stopped:
                try:
                    loop.run_forever()
                except (RequestTimeout, SystemExit):
                    # The task that raised it has the exception too; it reports the end of its request.
                    continue
            if selector is not None:
                selector.native = None
            loop.run_until_complete(self._end_calls(native))
        finally:
            if selector is not None:
                selector.native = None
            if poller is not None:
                poller.close()
            self._finish(native)

    def _attach(self, native: NativeServer, loop: asyncio.AbstractEventLoop, poller: EnginePoller | None) -> None:
        beside = None if self._selector is None else self._selector.fileno()
        native.attach([Lent(loop, lifespan, poller, beside) for lifespan in self._lifespans.each])
        if self._threads is not None:
            self._threads.start(loop)

    def _finish(self, native: NativeServer) -> None:
        native.finish()
        if self._threads is not None:
            self._threads.end()
        self._native = None

    def join(self) -> None:
        """Use the running loop of this thread to serve."""
        self._loop = asyncio.get_running_loop()
        self._thread = self._get_ident()

    async def start_up_in_loop(self) -> None:
        """Start the application's lifespan. Raises NotStartedError."""
        self._starting = asyncio.get_running_loop().create_task(self._lifespans.start_up())
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._stop_due is None:
                raise
        finally:
            self._starting = None

    async def serve(self, native: NativeServer) -> None:
        """Serve in the running loop until the native server has stopped. Cancelling this coroutine stops it
        gracefully."""
        loop = asyncio.get_running_loop()
        self._native = native
        stopped = asyncio.Event()
        poller = self._poller = EnginePoller(loop, native, stopped.set)
        self._attach(native, loop, poller)
        try:
            await stopped.wait()
            await self._end_calls(native)
        finally:
            poller.close()
            self._finish(native)

    async def shut_down_in_loop(self) -> None:
        """Shut down the application's lifespan. The loop and its other tasks belong to the program."""
        await self._lifespans.shut_down(max((self._stop_due or 0.0) - monotonic(), _CANCEL_SECONDS))
        self._loop = None

    def _on_stopped(self) -> None:
        assert self._loop is not None
        self._has_stopped = True
        self._loop.stop()

    async def _end_calls(self, native: NativeServer) -> None:
        """Wait for calls that continue after their responses, while the stop leaves them time; then cancel the rest."""
        tasks = [call.waiter for call in native.calls() if isinstance(call.waiter, asyncio.Task)]
        while tasks and (left := (self._stop_due or 0.0) - monotonic()) > 0:
            await asyncio.wait(tasks, timeout=min(left, _LOOK_SECONDS))
            tasks = [task for task in tasks if not task.done()]
        for task in tasks:
            task.cancel("the server ends")
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
        await asyncio.sleep(0)  # let the callbacks of the finished tasks run first

    def shut_down(self) -> None:
        """Shut down the application's lifespan, and close the loop as ``asyncio.run`` does."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        seconds = max((self._stop_due or 0.0) - monotonic(), _CANCEL_SECONDS)
        try:
            loop.run_until_complete(self._lifespans.shut_down(seconds))
            loop.run_until_complete(_cancel_all(loop))
            loop.run_until_complete(_shut_down_generators(loop))
            if sys.version_info >= (3, 12):
                loop.run_until_complete(loop.shutdown_default_executor(_CANCEL_SECONDS))
            elif (executor := getattr(loop, "_default_executor", None)) is not None:
                executor.shutdown(wait=False)  # shutdown_default_executor() has no timeout in this version
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def leave_in_child(self) -> None:
        """Stop using the loop, which belongs to the parent. The child exits when the forking coroutine returns or
        awaits."""
        if self._poller is not None:
            self._poller.leave()
        loop = self._loop
        if loop is None:
            return
        if self._get_ident() != self._thread:
            # A thread beside the loop has forked, for example one that runs synchronous code of the application. It
            # passes its result to the loop, which does not run in the child; exit then.
            loop.call_soon_threadsafe = lambda *_: forks.end(None)  # type: ignore[method-assign, assignment]
            return
        handle = asyncio.Handle(self._end_child, (_current_task(loop),), loop)
        try:
            # Before all callbacks that are ready: those run in the parent.
            loop._ready.appendleft(handle)  # type: ignore[attr-defined]
        except AttributeError:
            loop.call_soon(handle._run)  # uvloop

    def _end_child(self, task: asyncio.Task[Any] | None) -> None:
        if task is None:
            forks.end(None)
        elif not task.done():
            forks.end(RuntimeError(forks.AWAITS))
        else:
            forks.end(asyncio.CancelledError() if task.cancelled() else task.exception())

    def is_inside(self) -> bool:
        loop, ident = self._loop, self._get_ident()
        if self._threads is not None and self._threads.is_inside(ident):
            return True
        return loop is not None and loop.is_running() and ident == self._thread

    def wait(self, seconds: float) -> bool | None:  # noqa: ARG002
        return None

    def end(self) -> None:
        self._thread = 0

    def stacks(self, calls: Iterable[Call]) -> dict[int, Stack]:
        frames = sys._current_frames()
        running = frames.get(self._thread)
        look = capture if has_gil() else capture_detached
        return {
            call.number: self._stack(call.waiter, running)
            if call.worker is None
            else look(frames.get(call.thread or 0))
            for call in calls
            if call.thread is not None or call.waiter is not None  # otherwise the call has not begun
        }

    def _stack(self, task: asyncio.Task[Any] | None, running: FrameType | None) -> Stack:
        """Return the application's frames of a call, given its task and the running frame of its thread."""
        if task is None:
            return capture(running) if has_gil() else capture_detached(running)
        if not has_gil() and asyncio.current_task(self._loop) is task:
            # In CPython 3.14 without a GIL, other threads wait for seconds to read the frame of a running coroutine.
            return capture_detached(running, asyncio.Handle._run.__code__)
        return _waiting_stack(task, running)

    def interrupt(self, calls: Iterable[Call]) -> None:
        native = self._native
        if native is None:
            return  # the server has ended meanwhile
        if self._threads is not None:
            self._threads.interrupt(native, [call for call in calls if call.worker is not None])
        left = {call.number for call in calls if call.worker is None}
        if not left:
            return

        def cancel() -> None:
            for call in native.calls():
                if call.number in left and isinstance(call.waiter, asyncio.Task):
                    left.discard(call.number)
                    call.waiter.cancel("the request has missed its deadline")

        if self._in_loop(cancel):
            return
        # A call blocks the loop. If it is one of these calls, only an asynchronous exception ends it; the loop cancels
        # the others when it runs again. The call may end after this check, so that another call or the loop gets the
        # exception: run() then continues.
        for call in native.calls():
            if call.number in left and self._is_running(call) and native.interrupt(call.number):
                left.discard(call.number)

    def location(self, call: Call) -> str:
        if call.worker is not None and self._threads is not None:
            return self._threads.location(call)
        return "no task" if call.thread is None else "a task"

    def warnings(self) -> list[str]:
        return patching_warnings("asyncio") if patched_by() else []

    def _in_loop(self, function: Callable[[], None]) -> bool:
        """Let the loop call ``function``. Return True if it has, or if the loop is closed; False if it does not in
        time."""
        loop = self._loop
        if loop is None:
            return True
        try:
            return run_in_loop(loop.call_soon_threadsafe, function)
        except RuntimeError:
            return True  # the loop has been closed meanwhile

    def _is_running(self, call: Call) -> bool:
        """Return whether the loop's thread executes this call now. May be called in any thread."""
        if call.waiter is None:
            # The call has never awaited, or has not begun.
            return call.state != "queued"
        # cr_running of the coroutine cannot be used: without a GIL other threads read it as false (CPython 3.14).
        return asyncio.current_task(self._loop) is call.waiter


class EngineSelector(selectors.BaseSelector):
    """A selector for an asyncio loop that also waits for the engine, and lets the engine call the application."""

    def __init__(self, on_stopped: Callable[[], None]) -> None:
        self._others = selectors.DefaultSelector()
        self._on_stopped = on_stopped
        self.native: NativeServer | None = None

    def fileno(self) -> int:
        """Return the descriptor of asyncio's own selector, which is readable when one of its files is ready."""
        descriptor: int = self._others.fileno()  # epoll and kqueue selectors have it
        return descriptor

    @entry
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        native = self.native
        if native is None:
            return self._others.select(timeout)
        has_others, is_stopped = native.select(timeout)
        if is_stopped:
            self._on_stopped()
        return self._others.select(0) if has_others else []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._others.modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._others.get_key(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._others.get_map()

    def close(self) -> None:
        self._others.close()


class EnginePoller:
    """Polls the engine in a loop of any implementation, which watches the descriptor of the engine's poller. The loop
    does not know the engine's deadlines, so a timer is set for the next one. A step of a task may make that deadline
    earlier, or buffer the head of a response: then the engine is polled again before the loop waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, native: NativeServer, on_stopped: Callable[[], object]) -> None:
        self._loop = loop
        self._native: NativeServer | None = native
        self._on_stopped = on_stopped
        self._descriptor = native.fileno()
        self._get_ident = original("get_ident")
        self._thread = self._get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._is_due = False
        loop.add_reader(self._descriptor, self._poll)
        loop.call_soon(self._poll)

    def note_step(self) -> None:
        """Poll again soon: a task has used its request. Called in any thread."""
        if self._is_due or self._native is None:
            return
        self._is_due = True
        call = self._loop.call_soon if self._get_ident() == self._thread else self._loop.call_soon_threadsafe
        call(self._poll)

    def leave(self) -> None:
        """Stop polling, in a forked child."""
        self._native = None

    def close(self) -> None:
        self._native = None
        self._loop.remove_reader(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    @entry
    def _poll(self) -> None:
        native = self._native
        if native is None:
            return
        self._is_due = False
        try:
            native.select(0.0)
        except (RequestTimeout, SystemExit):
            pass  # as in run()
        if native.is_stopped():
            self._native = None  # report the stop only once
            self._on_stopped()
            return
        seconds = native.timeout()
        due = None if seconds is None else self._loop.time() + seconds
        timer = self._timer
        if timer is not None and (due is None or due < self._timer_due):
            timer.cancel()
            timer = None
        # The old timer may remain: if it fires too early, it sets the next one.
        if timer is None and due is not None:
            timer, self._timer_due = self._loop.call_at(due, self._poll_when_due), due
        self._timer = timer

    def _poll_when_due(self) -> None:
        self._timer = None
        self._poll()


class Lent:
    """The objects of the event loop with which the native server calls an ASGI application."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        lifespan: Lifespan,
        poller: EnginePoller | None,
        beside: int | None = None,
    ) -> None:
        self.beside = beside
        self.note_step = None if poller is None else poller.note_step
        self.event_loop = loop
        self.task_class = asyncio.Task
        self.make_task = _make_task(loop)
        self.context = lifespan.context
        self.state = lifespan.state
        self.disconnected = ClientDisconnected


def application(app: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Return ``app`` as a coroutine function, so that all of its code runs in the task of the request."""
    if is_coroutine_function(app):
        return app

    async def call(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await app(scope, receive, send)

    return call


def _make_task(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.Task[None]] | None:
    """Return a function that creates the task of a request; None if the native server can start tasks eagerly."""
    if loop.get_task_factory() not in (None, getattr(asyncio, "eager_task_factory", None)):
        # The application's startup has set a task factory, which must see each task.
        if sys.version_info >= (3, 11):
            return lambda coroutine, context, name: loop.create_task(coroutine, context=context, name=name)
        return lambda coroutine, context, name: context.run(lambda: loop.create_task(coroutine, name=name))
    if sys.version_info >= (3, 12):
        return None
    if sys.version_info >= (3, 11):
        return lambda coroutine, context, name: asyncio.Task(coroutine, loop=loop, context=context, name=name)
    return lambda coroutine, context, name: context.run(lambda: asyncio.Task(coroutine, loop=loop, name=name))


async def _shut_down_generators(loop: asyncio.AbstractEventLoop) -> None:
    """Close asynchronous generators that are not finished, and wait for their finally clauses."""
    closing = loop.create_task(loop.shutdown_asyncgens())
    done, _ = await asyncio.wait({closing}, timeout=_CANCEL_SECONDS)
    if not done:
        text = f"asynchronous generators did not end within {_CANCEL_SECONDS:g} s of the server's end"
        loop.call_exception_handler({"message": text})
        closing.cancel()
        await asyncio.wait({closing}, timeout=_CANCEL_SECONDS)


def _current_task(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task(loop)
    except RuntimeError:
        return None


async def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            message = "unhandled exception when the server ended"
            loop.call_exception_handler({"message": message, "exception": error, "task": task})


def _waiting_stack(task: asyncio.Task[Any], running: FrameType | None) -> Stack:
    """Return the application's frames of a call: the chain of awaiting coroutines, the outermost first."""
    links: Stack = []
    awaited: Any = task.get_coro()
    outermost = getattr(awaited, "cr_frame", None)
    if outermost is not None and getattr(awaited, "cr_running", False):
        frame = running
        while frame is not None:
            links.append((frame, frame.f_lineno))
            if frame is outermost:
                return links[::-1]
            frame = frame.f_back
        return []  # the call has awaited meanwhile
    while awaited is not None:
        frame = (
            getattr(awaited, "cr_frame", None)
            or getattr(awaited, "gi_frame", None)
            or getattr(awaited, "ag_frame", None)
        )
        if frame is None:
            break  # an awaitable that is not written in Python
        if frame.f_globals is not globals():
            links.append((frame, frame.f_lineno))
        awaited = (
            getattr(awaited, "cr_await", None)
            or getattr(awaited, "gi_yieldfrom", None)
            or getattr(awaited, "ag_await", None)
        )
    return links
