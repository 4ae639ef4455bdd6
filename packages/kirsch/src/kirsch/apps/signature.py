"""Detection of the interface of an application by its signature: WSGI (called with two positional arguments) or ASGI
(called with three, returns an awaitable). The application is not called. Only objects that certainly cannot be called
this way are refused; objects that are not written in Python or have their own metaclass are accepted. For a decorated
function the wrapper counts, because the server calls that. :mod:`inspect` uses the wrapped function instead, and takes
as long to import as this whole package.
"""

from __future__ import annotations

from types import FunctionType, MethodType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any

# Flags of a code object: inspect.CO_*
_VARARGS = 0x04
_VARKEYWORDS = 0x08
_GENERATOR = 0x20
_COROUTINE = 0x80
_ITERABLE_COROUTINE = 0x100
_ASYNC_GENERATOR = 0x200

_WSGI_ARGUMENTS = 2
_WSGI_NAMES = ("environ", "start_response")
_ASGI_ARGUMENTS = 3
_ASGI_NAMES = ("scope", "receive", "send")


def interface_of(found: Any) -> str:
    """Return ``asgi`` if the signature is certainly that of an ASGI 3 application: a coroutine function with three
    arguments, or a callable with the arguments scope, receive and send. Return ``wsgi`` for everything else."""
    function = _function(found)
    if function is None or not function.takes(_ASGI_ARGUMENTS):
        return "wsgi"
    if function.code.co_flags & _ASYNC_GENERATOR:
        return "wsgi"  # an asynchronous generator cannot be awaited
    # The instance of a class may be awaitable, as of Starlette's HTTPEndpoint.
    is_coroutine = bool(function.code.co_flags & _COROUTINE) or (
        isinstance(found, type) and hasattr(found, "__await__")
    )
    is_named = function.open_arguments[:_ASGI_ARGUMENTS] == _ASGI_NAMES
    return "asgi" if is_coroutine or (is_named and not function.takes(_WSGI_ARGUMENTS)) else "wsgi"


def interface_problem(found: Any, interface: str) -> str:
    """Return why ``found`` certainly is no application of ``interface``, and how to correct that, as the
    continuation of a message that begins with its name. Empty if it may be one."""
    if interface == "wsgi":
        why = "takes three arguments, as an ASGI application does" if interface_of(found) == "asgi" else ""
        return why and f"{why}, and --interface wsgi would call it with two; omit that, or write asgi"
    why = _why_not_asgi(found)
    return why and f"{why}, and --interface asgi would call and await it with three arguments; omit that, or write wsgi"


def _why_not_asgi(found: Any) -> str:
    function = _function(found)
    if function is None:
        return "is a class that takes no arguments" if _is_bare(found) else ""
    if not function.takes(_ASGI_ARGUMENTS):
        return f"cannot take three arguments: its parameters are ({', '.join(function.open_arguments)})"
    flags = function.code.co_flags
    if function.open_arguments[:_WSGI_ARGUMENTS] == _WSGI_NAMES and not flags & _COROUTINE:
        return "takes environ and start_response, as a WSGI application does"
    if flags & _ASYNC_GENERATOR or (flags & _GENERATOR and not flags & _ITERABLE_COROUTINE):
        return "is a generator function"
    return ""


class CallProblem:
    """The reason why an object cannot be called as a WSGI application; the text follows its name in a message. ``call``
    is the parentheses to write after the name, if it is probably a factory.
    """

    def __init__(self, text: str, *, is_asgi: bool = False, is_factory: bool = False, call: str = "") -> None:
        self._text = text
        self.is_asgi = is_asgi
        self.is_factory = is_factory
        self.call = call

    def __str__(self) -> str:
        return self._text


class _Function:
    """The Python function that runs when an object is called, and the arguments that are bound before the call's
    own."""

    def __init__(self, function: Any, bound: int, keywords: frozenset[str]) -> None:
        self.code: CodeType = function.__code__
        self.bound = bound
        self.keywords = keywords
        count = self.code.co_argcount
        self.positional = self.code.co_varnames[:count]
        self.required = count - len(function.__defaults__ or ())
        only = self.code.co_varnames[count : count + self.code.co_kwonlyargcount]
        self.keyword_only = frozenset(only)
        self.keyword_required = self.keyword_only - frozenset(function.__kwdefaults__ or ()) - keywords

    @property
    def open_arguments(self) -> tuple[str, ...]:
        """The positional parameters that the call has to fill."""
        return tuple(name for name in self.positional[self.bound :] if name not in self.keywords)

    @property
    def open_required(self) -> tuple[str, ...]:
        return tuple(name for name in self.positional[self.bound : self.required] if name not in self.keywords)

    def takes(self, count: int) -> bool:
        """Return whether it can be called with ``count`` further positional arguments."""
        given = self.bound + count
        if given > len(self.positional) and not self.code.co_flags & _VARARGS:
            return False
        if any(name not in self.keywords for name in self.positional[given : self.required]):
            return False
        if self.keywords.intersection(self.positional[self.code.co_posonlyargcount : given]):
            return False  # one argument would have two values
        return not self.keyword_required


def find_problem(found: Any) -> CallProblem | None:
    """Return the problem of calling ``found`` with environ and start_response; None if there is none, or it is unknown.
    A coroutine function is a problem too: it can be called, but its return value cannot be sent.
    """
    function = _function(found)
    if function is None:
        return (
            CallProblem("is a class that takes no arguments", is_factory=True, call="()") if _is_bare(found) else None
        )
    names = function.open_arguments
    is_asgi = names[-3:] == ("scope", "receive", "send") or names[-1:] == ("scope",)
    if function.code.co_flags & (_COROUTINE | _ASYNC_GENERATOR):
        return CallProblem("is a coroutine function", is_asgi=True)
    if function.takes(_WSGI_ARGUMENTS):
        return None
    if is_asgi:
        return CallProblem("takes the arguments of ASGI", is_asgi=True)
    required = function.open_required
    if function.keyword_required:
        needed = ", ".join(sorted(function.keyword_required))
        return CallProblem(f"cannot be called without the keyword {needed}")
    if not names:
        return CallProblem("takes no arguments", is_factory=True, call="()")
    if len(names) == 1:
        call = f"({names[0]}=...)" if required else "()"
        return CallProblem(f"takes one argument, {names[0]}", is_factory=True, call=call)
    shown = required if len(required) > _WSGI_ARGUMENTS else names
    return CallProblem(f"takes {len(shown)} arguments ({', '.join(shown)})")


def direct_call(found: Any) -> Any:
    """Return the method that a call of the object ``found`` runs, if its class defines it in Python; else ``found``.

    CPython calls a method with 770 instructions less than an object with ``__call__``. A ``__call__`` that the class
    gets later is not seen.
    """
    for cls in type(found).__mro__:
        if "__call__" in vars(cls):
            call = vars(cls)["__call__"]
            return MethodType(call, found) if isinstance(call, FunctionType) else found
    return found


def is_coroutine_function(found: Any) -> bool:
    function = _function(found)
    return function is not None and bool(function.code.co_flags & _COROUTINE)


def _function(found: Any) -> _Function | None:
    """Return the function that runs when ``found`` is called; None if it is not certainly a Python function."""
    bound = 0
    keywords: frozenset[str] = frozenset()
    if type(found).__module__ == "kirsch._native":
        found = getattr(found, "traced", found)  # of kirsch.tracing
    while _is_partial(found):
        bound += len(found.args)
        keywords |= frozenset(found.keywords)
        found = found.func
    if type(_looked_up(type(found), "__call__")).__name__ == "member_descriptor":
        found = getattr(found, "__call__", found)  # noqa: B004 - each object has its own, as Sentry's middleware for ASGI
    if isinstance(found, type):
        function = _constructor(found)
        bound += 1
    elif hasattr(found, "__func__") and hasattr(found, "__self__"):  # a bound method
        function = found.__func__
        bound += 1
    elif _is_function(found):
        function = found
    else:
        function = _looked_up(type(found), "__call__")
        if isinstance(function, staticmethod):
            function = function.__func__
        elif isinstance(function, classmethod):
            function = function.__func__
            bound += 1
        elif _is_function(function):
            bound += 1
    return _Function(function, bound, keywords) if _is_function(function) else None


def _constructor(kind: type) -> object:
    """Return ``__new__`` or ``__init__``, whichever takes the arguments, if only one of them does."""
    if _looked_up(type(kind), "__call__") is not vars(type)["__call__"]:
        return None
    new, init = _looked_up(kind, "__new__"), _looked_up(kind, "__init__")
    if new is vars(object)["__new__"]:
        return init
    if init is vars(object)["__init__"]:
        return new.__func__ if isinstance(new, staticmethod) else new
    return None


def _is_bare(found: object) -> bool:
    """Return whether ``found`` is a class that has neither ``__new__`` nor ``__init__``."""
    return isinstance(found, type) and _constructor(found) is vars(object)["__init__"]


def _is_partial(found: object) -> bool:
    return type(found).__name__ == "partial" and type(found).__module__ == "functools"


def _is_function(found: object) -> bool:
    return type(found).__name__ == "function" and type(found).__module__ == "builtins"


def _looked_up(kind: type, name: str) -> object:
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
