"""Signatures: the parameters of a handler, the source of each one's value and its conversion.

A handler's signature is read once, when its plan is made.
"""

from __future__ import annotations

import copy
import inspect
import types
from functools import partial
from typing import Annotated, Any, get_args, get_origin

from kirsch_web import convert, records, texts
from kirsch_web.constraints import constraints
from kirsch_web.errors import ConfigError
from kirsch_web.forms import Upload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FromHeader:
    """Marks a parameter whose value is a header field: ``Annotated[str, web.FromHeader("X-Token")]``."""

    def __init__(self, name: str) -> None:
        self.name = name


class FromCookie:
    """Marks a parameter whose value is a cookie: ``Annotated[str, web.FromCookie("theme")]``."""

    def __init__(self, name: str) -> None:
        self.name = name


class Parameter:
    """One parameter of a handler.

    ``source`` is ``value`` (from path, query, form or JSON), ``record`` (from the whole body or the query), ``upload``,
    ``inject`` (the annotation's ``__from_request__`` makes the value), ``header`` or ``cookie``.
    """

    __slots__ = (
        "annotation", "checks", "copies_default", "default", "field", "inject", "json", "many", "name", "none_allowed",
        "positional", "record", "required", "source", "text", "uploads",
    )  # fmt: skip

    def __init__(self, name: str, annotation: Any, default: Any, positional: bool, where: str) -> None:
        self.name = name
        self.annotation = annotation
        self.required = default is inspect.Parameter.empty
        self.default = None if self.required else default
        self.copies_default = not self.required and is_mutable(default)
        """True if the default is mutable, such as a list, so that each request needs a copy."""
        self.positional = positional
        self.source = "value"
        self.inject: Callable[[Any], Any] | None = None
        self.record: records.Record | None = None
        self.field = ""
        self.uploads = False
        self.text: Callable[[str], Any] | None = None
        self.many: tuple[Callable[[Any], Any], Callable[[str], Any]] | None = None
        self.json: Callable[[Any], Any] | None = None
        self._resolve(where)

    def _resolve(self, where: str) -> None:
        annotation = self.annotation
        if annotation is inspect.Parameter.empty:
            annotation = self.annotation = Any
        marks = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
        for mark in marks:
            if isinstance(mark, (FromHeader, FromCookie)):
                self.source = "header" if isinstance(mark, FromHeader) else "cookie"
                self.field = mark.name
        plain = texts.plain(annotation)
        self.checks = constraints(annotation)
        members = texts.union_members(plain)
        if members is not None:
            others = [member for member in members if member is not type(None)]
            if len(others) == 1:
                plain = texts.plain(others[0])
                self.checks += constraints(others[0])
        inject = getattr(plain, "__from_request__", None)
        if inject is not None and self.source == "value":
            self.source, self.inject = "inject", inject
            self._refuse_constraints(where)
            return
        if _is_upload(plain) or (get_origin(plain) is list and get_args(plain) and _is_upload(get_args(plain)[0])):
            self.source = "upload"
            self.uploads = not _is_upload(plain)
            self._refuse_constraints(where)
            return
        if self.source == "value":
            self.record = convert.record(plain)
            items = get_args(plain)
            if (
                self.record is not None
                or (get_origin(plain) or plain) in texts.DICTS
                or (get_origin(plain) in texts.LISTS and items and convert.record(items[0]) is not None)
            ):
                self.source = "record"
                self.json = partial(convert.checked_json, convert.json_converter(plain), self.checks)
                return
        self.many = texts.many(annotation)
        self.text = texts.text_converter(annotation)
        if self.text is None and self.many is None:
            raise ConfigError(
                f"{where}: parameter {self.name} is annotated {annotation!r}, which no text can be converted to"
            )
        if self.source == "value":
            self.json = convert.json_converter(annotation)

    def _refuse_constraints(self, where: str) -> None:
        if self.checks:
            raise ConfigError(
                f"{where}: parameter {self.name} is annotated {self.annotation!r}, a type of which no constraint is "
                "checked"
            )


def is_mutable(default: Any) -> bool:
    """Return whether a deep copy of a value is another object, as for a list, a set or a record."""
    try:
        return copy.deepcopy(default) is not default
    except Exception:  # noqa: BLE001 - objects such as locks cannot be copied
        return False


def _is_upload(annotation: Any) -> bool:
    return annotation is Upload


class Shape:
    """The signature of a handler without ``self``."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.where = records.describe(function)
        try:
            signature = inspect.signature(function)
        except (ValueError, TypeError):
            raise ConfigError(f"{self.where}: its signature cannot be read") from None
        target: Any = function
        while isinstance(target, types.MethodType) or hasattr(target, "__wrapped__"):
            target = target.__func__ if isinstance(target, types.MethodType) else target.__wrapped__
        if not isinstance(target, types.FunctionType):
            target = type(target).__call__ if not isinstance(target, type) else vars(target).get("__init__", target)
        hints = records.hints_of(target)
        self.returns = hints.get("return", Any)
        self.parameters: list[Parameter] = []
        self.rest: Callable[[str], Any] | None = None
        """The converter for each segment of ``*path``; None if there is no such parameter."""
        self.rest_name = ""
        self.rest_annotation: Any = None
        self.keywords = ""
        """The name of ``**params``; empty if there is no such parameter."""
        self.keyword: Parameter | None = None
        """The type of each value of an annotated ``**params``. None: each is a str, or a list if its name repeats."""
        code = None if target is function else getattr(target, "__code__", None)
        self.instance = "" if code is None or code.co_posonlyargcount else "".join(code.co_varnames[:1])
        """The name of the method's first parameter, usually ``self``. A field of this name is refused."""
        for each in signature.parameters.values():
            annotation = hints.get(each.name, inspect.Parameter.empty)
            if each.kind is inspect.Parameter.VAR_POSITIONAL:
                self.rest_name = each.name
                self.rest_annotation = Any if annotation is inspect.Parameter.empty else annotation
                self.rest = texts.text_converter(self.rest_annotation)
                if self.rest is None:
                    raise ConfigError(
                        f"{self.where}: *{each.name} is annotated {annotation!r}, which no text converts to"
                    )
            elif each.kind is inspect.Parameter.VAR_KEYWORD:
                self.keywords = each.name
                if annotation not in (inspect.Parameter.empty, Any, object, str):
                    self.keyword = Parameter(each.name, annotation, each.empty, False, self.where)
                    if self.keyword.source not in ("value", "record"):
                        raise ConfigError(f"{self.where}: **{each.name} are fields, and cannot be {annotation!r}")
            else:
                parameter = Parameter(each.name, annotation, each.default, each.kind in POSITIONAL, self.where)
                if each.kind is inspect.Parameter.POSITIONAL_ONLY and parameter.source != "value":
                    raise ConfigError(f"{self.where}: parameter {each.name} is positional-only; a path cannot give it")
                self.parameters.append(parameter)
        takers = [each.name for each in self.parameters if each.source == "record"]
        if len(takers) > 1:
            raise ConfigError(f"{self.where}: {' and '.join(takers)} each take the whole body; only one can")


_shapes: dict[Any, Shape] = {}


def shape_of(function: Callable[..., object]) -> Shape:
    """Return the shape of a handler. Methods of one function share it, whatever object they are bound to."""
    key: Any = function
    if isinstance(function, types.MethodType):
        key = (function.__func__,)
    try:
        found = _shapes.get(key)
    except TypeError:
        return Shape(function)
    if found is None:
        found = Shape(function)
        if len(_shapes) < 10_000:
            _shapes[key] = found
    return found


def keyword_types(function: Callable[..., object]) -> dict[str, Any]:
    """Return the names and annotations of all parameters but the first. For a tool's callable these are its options."""
    hints = records.hints_of(
        function if isinstance(function, types.FunctionType) else getattr(function, "__func__", function)
    )
    names = list(inspect.signature(function).parameters.values())[1:]
    return {
        each.name: hints.get(each.name)
        for each in names
        if each.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
