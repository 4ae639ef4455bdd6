"""The current request, kept in a context variable, so that threads, greenlets and tasks each have their own."""

from __future__ import annotations

import operator
from contextvars import ContextVar
from typing import Any


class Frame:
    """The current request and response, and objects that tools add, such as the session."""

    def __init__(self, request: Any, response: Any) -> None:
        self.request = request
        self.response = response


_outside = Frame(None, None)  # for code outside of a request; _cprequest fills it
_frame: ContextVar[Frame] = ContextVar("kirsch_cherrypy", default=_outside)
current = _frame.get


class Serving:
    """``cherrypy.serving``. Its attributes are those of the current :class:`Frame`."""

    __slots__ = ()

    def load(self, request: Any, response: Any) -> None:
        """Make ``request`` and ``response`` the current ones."""
        _frame.set(Frame(request, response))

    def clear(self) -> None:
        """Reset to the request and response for code outside of a request."""
        _frame.set(_outside)

    def __getattr__(self, name: str) -> Any:
        return getattr(current(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(current(), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(current(), name)


serving = Serving()


class Proxy:
    """Forwards to an attribute of :data:`serving`, so that a global refers to the object of the current request."""

    __slots__ = ("_target",)

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_target", name)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(current(), self._target), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(getattr(current(), self._target), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(getattr(current(), self._target), name)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        found: dict[str, Any] = getattr(current(), self._target).__dict__
        return found


def _forwarded(call: Any) -> Any:
    return lambda self, *args: call(getattr(current(), self._target), *args)


# Python looks up special methods in the class.
for _name, _call in {
    "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__delitem__": operator.delitem,
    "__contains__": operator.contains, "__len__": len, "__iter__": iter, "__bool__": bool,
}.items():  # fmt: skip
    setattr(Proxy, _name, _forwarded(_call))
