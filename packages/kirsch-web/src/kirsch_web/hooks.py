"""Hooks and tools, which run before and after a handler.

A *hook* is a callable that receives the request at one of eight points. A *tool* is a named set of hooks, with options
that the configuration sets path by path. Both are resolved when the application is mounted, so that a request only
calls tuples of callables.
"""

from __future__ import annotations

from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from kirsch_web.interfaces import Application
    from kirsch_web.request import Request

POINTS = (
    "on_start_resource",
    "before_request_body",
    "before_handler",
    "before_finalize",
    "on_end_resource",
    "on_end_request",
    "before_error_response",
    "after_error_response",
)
"""The hook points, the first six in the order in which a request passes them."""


class Hook:
    """A callable that runs at a hook point.

    Args:
        point: one of :data:`POINTS`.
        callback: called with the request. Under ASGI it may be a coroutine function, which runs in the event loop while
            the thread of the other hooks waits.
        priority: 0 to 100; the lowest runs first. Equal priorities run in the order in which they were attached.
        failsafe: whether the hook runs even if an earlier hook of the point has raised an exception.
        name: the name that ``explain`` shows.
        always: only for ``before_finalize``: whether the hook also runs for responses for which the other hooks do not
            run, such as that of an unexpected exception. It may run twice for one response.
    """

    __slots__ = ("always", "callback", "failsafe", "name", "point", "priority")

    def __init__(
        self,
        point: str,
        callback: Callable[[Request], object],
        *,
        priority: int = 50,
        failsafe: bool = False,
        name: str = "",
        always: bool = False,
    ) -> None:
        if point not in POINTS:
            raise ValueError(f"{point} is no hook point; there are {', '.join(POINTS)}")
        self.point = point
        self.callback = partial(_run_coroutine, callback) if is_asynchronous(callback) else callback
        self.priority = priority
        self.failsafe = failsafe
        self.always = always
        self.name = name or getattr(callback, "__qualname__", "") or type(callback).__name__

    def __repr__(self) -> str:
        return f"<Hook {self.point} {self.priority} {self.name}>"


COROUTINE = 0x80
"""The value of ``inspect.CO_COROUTINE``, whose import would cost 10 ms."""


def is_asynchronous(callback: Any, flags: int = COROUTINE) -> bool:
    """Return whether a callback is a coroutine function, or a method, partial or object that calls one.

    ``flags`` of a code object choose other kinds of functions.
    """
    while isinstance(callback, partial):
        callback = callback.func
    function = callback if hasattr(callback, "__code__") else getattr(type(callback), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & flags)


def _run_coroutine(callback: Callable[[Request], Any], request: Request) -> None:
    if "asgi.loop" not in request.environ:
        raise TypeError(f"the asynchronous hook {callback!r} needs ASGI: serve web.ASGI(app)")
    awaited(request, callback(request))


def awaited(request: Request, coroutine: Any) -> object:
    """Run a coroutine in the event loop, wait, and return its result. Under ASGI hooks run in threads, so the event
    loop is free."""
    import asyncio

    return asyncio.run_coroutine_threadsafe(coroutine, request.environ["asgi.loop"]).result()


def sort(hooks: Iterable[Hook]) -> dict[str, tuple[Hook, ...]]:
    """Return the hooks of each point, in the order in which they run."""
    found: dict[str, list[Hook]] = {}
    for hook in hooks:
        found.setdefault(hook.point, []).append(hook)
    return {point: tuple(sorted(each, key=lambda hook: hook.priority)) for point, each in found.items()}


def runner(point: str, hooks: tuple[Hook, ...]) -> Callable[[Request], object] | None:
    """Return a callable that sets the request's stage to ``point`` and runs the ``hooks``; None if there are none.

    After an exception only the failsafe hooks among the remaining ones run. The first exception propagates; later ones
    are dropped.
    """
    if not hooks:
        return None
    if any(hook.failsafe for hook in hooks[1:]):
        return partial(_run_failsafe, point, hooks)
    return partial(_run, point, tuple(hook.callback for hook in hooks))


def _run(point: str, callbacks: tuple[Callable[[Request], object], ...], request: Request) -> None:
    request.stage = point
    for callback in callbacks:
        callback(request)


def _run_failsafe(point: str, hooks: tuple[Hook, ...], request: Request) -> None:
    request.stage = point
    remaining = iter(hooks)
    try:
        for hook in remaining:
            hook.callback(request)
    except BaseException:
        for hook in remaining:
            if hook.failsafe:
                try:
                    hook.callback(request)
                except Exception:  # noqa: BLE001, S112 - the first exception is reported
                    continue
        raise


class Tool:
    """A set of hooks that the configuration switches on path by path: ``tools.NAME.on``, ``tools.NAME.OPTION``.

    Args:
        point: the hook point.
        callback: called with the request and, as keywords, the options that the configuration sets. Its keyword
            parameters are the options, and their annotations the types of the options.
        name: the tool's name in the configuration; default: the callable's name.
        priority: the priority of the tool's hook, see :class:`Hook`.
        failsafe: see :class:`Hook`.
        **options: default values of options.

    Subclasses override :meth:`hooks`, and :attr:`types` if they take options.
    """

    types: Mapping[str, Any] = {}
    """The names and types of the options of a tool without a callback. None as a type: the value is not checked."""

    def __init__(
        self,
        point: str = "before_handler",
        callback: Callable[..., object] | None = None,
        name: str = "",
        *,
        priority: int = 50,
        failsafe: bool = False,
        **options: Any,
    ) -> None:
        if point not in POINTS:
            raise ValueError(f"{point} is no hook point; there are {', '.join(POINTS)}")
        self.point = point
        self.callback = callback
        self.name = name or getattr(callback, "__name__", "") or type(self).__name__.lower()
        self.priority = priority
        self.failsafe = failsafe
        self.defaults = options

    def option_types(self) -> dict[str, Any]:
        """Return the names and types of the options. None as a type: the value is not checked."""
        if self.callback is None:
            return dict(self.types)
        from kirsch_web.shape import keyword_types

        return keyword_types(self.callback)

    def check(self, options: Mapping[str, Any]) -> Iterable[str]:  # noqa: ARG002 - for subclasses
        """Return one sentence for each mistake in the options. Their names and types are already checked."""
        return ()

    def hooks(self, options: Mapping[str, Any], app: Application) -> Iterable[Hook]:  # noqa: ARG002 - for subclasses
        """Return the hooks for a path. ``options`` are the configured values and the defaults."""
        assert self.callback is not None, "a Tool without a callback overrides hooks()"
        callback = partial(self.callback, **options) if options else self.callback
        yield Hook(self.point, callback, priority=self.priority, failsafe=self.failsafe, name=self.name)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"


def tool(point: str, *, name: str = "", priority: int = 50, failsafe: bool = False) -> Callable[..., Tool]:
    """Return a decorator that makes a function a :class:`Tool`."""

    def decorate(callback: Callable[..., object]) -> Tool:
        return Tool(point, callback, name, priority=priority, failsafe=failsafe)

    return decorate
