"""Hooks: what runs at the points of a request."""

from __future__ import annotations

import functools
from typing import Any

from kirsch_web.compat.cherrypy._cperror import STOPS, InternalRedirect
from kirsch_web.compat.cherrypy._local import serving

_QUIET = (*STOPS, InternalRedirect)


class Hook:
    """A callback at a hook point with its options. The lowest priority runs first."""

    def __init__(self, callback: Any, failsafe: bool | None = None, priority: int | None = None, **kwargs: Any) -> None:
        self.callback = callback
        self.failsafe = getattr(callback, "failsafe", False) if failsafe is None else failsafe
        self.priority = getattr(callback, "priority", 50) if priority is None else priority
        self.kwargs = kwargs

    def __lt__(self, other: Hook) -> bool:
        return self.priority < other.priority

    def __call__(self) -> Any:
        return self.callback(**self.kwargs)

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.kwargs.items())
        return f"Hook(callback={self.callback!r}, failsafe={self.failsafe!r}, priority={self.priority!r}{options})"


class HookMap(dict[str, list[Hook]]):
    """The hooks of each point."""

    def __init__(self, points: Any = ()) -> None:
        super().__init__(points if isinstance(points, dict) else {point: [] for point in points})

    def __missing__(self, point: str) -> list[Hook]:
        hooks: list[Hook] = []
        self[point] = hooks
        return hooks

    def attach(
        self, point: str, callback: Any, failsafe: bool | None = None, priority: int | None = None, **kwargs: Any
    ) -> None:
        """Add a hook; ``kwargs`` are the options that the callback is called with."""
        self[point].append(Hook(callback, failsafe, priority, **kwargs))

    def run(self, point: str) -> None:
        """Run the hooks of a point.

        After one that raises, only failsafe hooks run; then the first exception is raised again.
        """
        hooks = self.get(point)
        if not hooks:
            return
        if len(hooks) > 1:
            hooks.sort()
        failure: BaseException | None = None
        for hook in tuple(hooks):
            if failure is not None and not hook.failsafe:
                continue
            try:
                hook.callback(**hook.kwargs)
            except (KeyboardInterrupt, SystemExit):
                raise
            except _QUIET as error:
                failure = failure or error
            except Exception as error:  # noqa: BLE001 - the first one is raised below
                app = serving.request.app
                if failure is not None and app:
                    app.log("A failsafe hook failed", "HTTP", traceback=True, severity=40)
                failure = failure or error
        if failure is not None:
            try:
                raise failure
            finally:
                failure = None

    def copy(self) -> HookMap:
        return HookMap({point: list(hooks) for point, hooks in self.items()})

    def __repr__(self) -> str:
        return f"HookMap(points={list(self)!r})"


no_hooks = functools.partial(dict.__new__, HookMap)
"""Makes an empty HookMap without calling its ``__init__``."""
