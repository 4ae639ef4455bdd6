"""Objects that can be called with environ and start_response, and others that certainly cannot: no false alarm."""

from __future__ import annotations

import functools
import operator
import types
import unittest.mock
from typing import Any

import pytest

from kirsch.apps.signature import direct_call, find_problem, interface_of, interface_problem


def plain(environ: Any, start_response: Any) -> Any: ...


def wrapper(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@wrapper
def decorated_and_narrow() -> None:
    """Its ``__wrapped__`` takes nothing, the wrapper takes everything; the wrapper is what is called."""


def lying(environ: Any, start_response: Any) -> Any: ...


lying.__signature__ = None  # type: ignore[attr-defined]


class Instance:
    def __call__(self, environ: Any, start_response: Any) -> Any: ...

    def method(self, environ: Any, start_response: Any) -> Any: ...

    @classmethod
    def of_class(cls, environ: Any, start_response: Any) -> Any: ...

    @staticmethod
    def static(environ: Any, start_response: Any) -> Any: ...


class PerRequest:
    def __init__(self, environ: Any, start_response: Any) -> None: ...


class MadeByNew:
    def __new__(cls, environ: Any, start_response: Any) -> Any: ...


class BothMakers:
    def __new__(cls, *args: Any) -> Any: ...

    def __init__(self) -> None: ...


class Meta(type):
    def __call__(cls, *args: Any) -> Any: ...


class OfMeta(metaclass=Meta):
    def __init__(self) -> None: ...


class StaticCall:
    @staticmethod
    def __call__(environ: Any, start_response: Any) -> Any: ...


class ClassCall:
    @classmethod
    def __call__(cls, environ: Any, start_response: Any) -> Any: ...


class Proxy:
    """As werkzeug's LocalProxy: every attribute is another object's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(plain, name)

    def __call__(self, *args: Any) -> Any: ...


FINE = {
    "plain": plain,
    "lambda": lambda environ, start_response: [],
    "positional-only": eval("lambda environ, start_response, /: []"),
    "args": lambda *args: [],
    "one and args": lambda environ, *rest: [],
    "defaults": lambda environ=None, start_response=None, more=1: [],
    "keyword with default": lambda environ, start_response, *, debug=False: [],
    "named scope": lambda environ, scope: [],
    "decorated": decorated_and_narrow,
    "lying signature": lying,
    "cached": functools.lru_cache(plain),
    "instance": Instance(),
    "bound": Instance().method,
    "class method": Instance.of_class,
    "static": Instance.static,
    "class": PerRequest,
    "class with new": MadeByNew,
    "class with both": BothMakers,
    "metaclass": OfMeta,
    "static call": StaticCall(),
    "class call": ClassCall(),
    "partial": functools.partial(lambda config, environ, start_response: [], 1),
    "partial keyword": functools.partial(lambda environ, start_response, config: [], config=1),
    "partial of partial": functools.partial(functools.partial(lambda a, b, environ, start_response: [], 1), 2),
    "partial method": types.MethodType(lambda self, environ, start_response: [], object()),
    "proxy": Proxy(),
    "mock": unittest.mock.Mock(),
    "builtin": print,
    "builtin of one argument": len,  # written in C: not judged
    "operator": operator.itemgetter(0),
    "builtin class": dict,
    "exception class": ValueError,
    "derived from C": type("Derived", (dict,), {"__init__": lambda self, a, b: None}),
}


@pytest.mark.parametrize("name", FINE)
def test_what_may_be_callable_is_not_refused(name: str) -> None:
    assert find_problem(FINE[name]) is None


class Bare: ...


class NarrowCall:
    def __call__(self, environ: Any) -> Any: ...


class NoArguments:
    def __init__(self) -> None: ...


async def asgi(scope: Any, receive: Any, send: Any) -> None: ...


REFUSED = {
    "nothing": (lambda: None, "takes no arguments", "()"),
    "one": (lambda config: None, "takes one argument, config", "(config=...)"),
    "one with default": (lambda config=None: None, "takes one argument, config", "()"),
    "three": (lambda a, b, c: None, "takes 3 arguments (a, b, c)", ""),
    "keyword": (lambda a, b, *, c: None, "cannot be called without the keyword c", ""),
    "partial": (functools.partial(plain, 1), "takes one argument, start_response", "(start_response=...)"),
    "partial keyword": (functools.partial(plain, start_response=1), "takes one argument, environ", "(environ=...)"),
    "bare class": (Bare, "is a class that takes no arguments", "()"),
    "class without arguments": (NoArguments, "takes no arguments", "()"),
    "narrow instance": (NarrowCall(), "takes one argument, environ", "(environ=...)"),
    "bound": (types.MethodType(lambda self: None, 1), "takes no arguments", "()"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_called_is_refused_with_the_call_that_was_probably_meant(name: str) -> None:
    found, text, call = REFUSED[name]
    refused = find_problem(found)
    assert refused is not None
    assert (str(refused), refused.call, refused.is_asgi) == (text, call, False)
    if not isinstance(found, type):
        with pytest.raises(TypeError):
            found({}, print)  # type: ignore[operator]


class AsgiInstance:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...
    async def method(self, one: Any, two: Any, three: Any) -> None: ...


class AsgiClass:
    def __init__(self, scope: Any, receive: Any, send: Any) -> None: ...


class AsgiInSlot:
    """The method that is called is the object's own, as with Sentry's middleware."""

    __slots__ = ("__call__",)

    def __init__(self, call: Any) -> None:
        self.__call__ = call


class AwaitableClass:
    """The object that is awaited is of this class."""

    def __init__(self, a: Any, b: Any, c: Any) -> None: ...

    def __await__(self) -> Any: ...


class OfBoth:
    def __call__(self, environ: Any, start_response: Any, more: Any = None) -> None: ...


async def generator(scope: Any, receive: Any, send: Any) -> Any:
    yield


def test_interface_is_that_of_the_signature() -> None:
    instance = AsgiInstance()
    awaitable = lambda scope, receive, send: None  # noqa: E731
    of_asgi: tuple[Any, ...] = (asgi, functools.partial(asgi), instance, instance.method, AsgiClass, awaitable)
    of_asgi += (AsgiInSlot(asgi), AsgiInSlot(instance.method), AwaitableClass)
    for found in of_asgi:
        assert interface_of(found) == "asgi", found
    of_wsgi: tuple[Any, ...] = (plain, OfBoth(), generator, lambda scope: None, lambda a, b, c: None, print, len, 7)
    of_wsgi += (AsgiInSlot(plain), AsgiInSlot(None), AsgiInSlot.__new__(AsgiInSlot))
    for found in of_wsgi:
        assert interface_of(found) == "wsgi", found


def test_asgi_is_called_asgi() -> None:
    for found in (asgi, lambda scope, receive, send: None, lambda scope: None, functools.partial(asgi)):
        refused = find_problem(found)
        assert refused is not None
        assert refused.is_asgi


def generates(scope: Any, receive: Any, send: Any) -> Any:
    yield scope


@types.coroutine
def old_coroutine(scope: Any, receive: Any, send: Any) -> Any:
    yield scope


class MadeElsewhere:
    """The result may be of any type."""

    def __new__(cls, scope: Any, receive: Any, send: Any) -> Any: ...


def test_interface_that_contradicts_the_signature_is_found() -> None:
    instance = AsgiInstance()
    of_asgi: tuple[Any, ...] = (asgi, functools.partial(asgi), instance, instance.method, AsgiClass, AwaitableClass)
    for found in of_asgi:
        assert "--interface wsgi" in interface_problem(found, "wsgi"), found
        assert interface_problem(found, "asgi") == "", found
    three: Any = functools.partial(lambda a, environ, start_response, more=1: [], 1)
    of_wsgi: tuple[str, ...] = (
        "plain",
        "lambda",
        "positional-only",
        "instance",
        "bound",
        "class method",
        "static",
        "class",
    )
    of_wsgi += ("class with new", "static call", "class call", "partial", "partial keyword", "partial of partial")
    for found in (*(FINE[name] for name in of_wsgi), three, generator, generates, OfBoth(), type("Bare", (), {})):
        assert "--interface asgi" in interface_problem(found, "asgi"), found


def test_interface_is_believed_if_the_signature_does_not_tell() -> None:
    for name, found in FINE.items():
        assert interface_problem(found, "wsgi") == "", name
    unknown: tuple[str, ...] = (
        "args",
        "one and args",
        "decorated",
        "lying signature",
        "cached",
        "class with both",
        "metaclass",
        "proxy",
    )
    unknown += ("mock", "builtin", "builtin of one argument", "operator", "builtin class", "derived from C")
    taken: tuple[Any, ...] = (lambda a, b, c: None, lambda a, b, c=None: None, old_coroutine, MadeElsewhere)
    for found in (*(FINE[name] for name in unknown if name not in ("lying signature", "derived from C")), *taken):
        assert interface_problem(found, "asgi") == "", found


class Returning:
    def __call__(self, *args: Any) -> Any:
        return self, args


class Inheriting(Returning): ...


class StaticReturning:
    @staticmethod
    def __call__(*args: Any) -> Any:
        return args


def test_direct_call_is_the_method_of_an_object_and_returns_the_same() -> None:
    shadowed = Returning()
    vars(shadowed)["__call__"] = plain  # which a call of the object does not use
    for found in (Returning(), Inheriting(), shadowed):
        assert isinstance(direct_call(found), types.MethodType)
        assert direct_call(found)(1, 2) == found(1, 2)
    for other in (StaticReturning(), ClassCall(), plain, PerRequest, print, functools.partial(plain)):
        assert direct_call(other) is other
