"""Hooks: callbacks that run at named points of a request."""

from __future__ import annotations

from typing import Any

from kirsch_cherrypy._local import serving


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

    def __missing__(self, point: str) -> list[Hook]:
        hooks: list[Hook] = []
        self[point] = hooks
        return hooks

    def attach(
        self, point: str, callback: Any, failsafe: bool | None = None, priority: int | None = None, **kwargs: Any
    ) -> None:
        """Add a hook. The callback is called with the options ``kwargs``."""
        self[point].append(Hook(callback, failsafe, priority, **kwargs))

    def run(self, point: str) -> None:
        """Run the hooks of a point.

        After a hook has raised an exception only failsafe hooks run; then this exception is raised again.
        """
        self[point].sort()
        remaining = iter(tuple(self[point]))
        try:
            for hook in remaining:
                hook.callback(**hook.kwargs)
        except Exception:
            for hook in remaining:
                if hook.failsafe:
                    try:
                        hook()
                    except Exception:  # noqa: BLE001 - the first one is raised below
                        serving.request.app.log("A failsafe hook failed", "HTTP", traceback=True, severity=40)
            raise

    def copy(self) -> HookMap:
        return HookMap({point: list(hooks) for point, hooks in self.items()})
