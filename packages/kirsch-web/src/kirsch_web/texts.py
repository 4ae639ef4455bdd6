"""Converters from text to the types that handlers declare. Each parameter or field has one, created before requests.

The grammars are stricter than Python's own: ``int`` accepts ASCII digits after an optional minus, whereas ``int()``
also accepts spaces, underscores and the digits of every script.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections import abc
from functools import partial
from typing import Any

from kirsch_web.constraints import check_types, constraints, failing
from kirsch_web.errors import BadText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_web.constraints import Checks

    FromText = Callable[[str], Any]

MAX_DIGITS = 100
"""The largest number of digits of an integer in text. Conversion takes quadratic time."""


def _int(text: str) -> int:
    digits = text[1:] if text[:1] == "-" else text
    if digits.isdigit() and digits.isascii() and len(digits) <= MAX_DIGITS:
        return int(text)
    raise BadText("a whole number")


_is_float = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?(?:[eE][+-]?[0-9]{1,3})?").fullmatch


def _float(text: str) -> float:
    if _is_float(text):
        value = float(text)
        if value not in (float("inf"), float("-inf")):
            return value
    raise BadText("a number")


_TRUE = frozenset(("true", "1", "on", "yes"))
_FALSE = frozenset(("false", "0", "off", "no"))


def _bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise BadText("true or false")


def _str(text: str) -> str:
    return text


def _bytes(text: str) -> bytes:
    return text.encode()


_is_uuid = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}").fullmatch


def _uuid(text: str) -> Any:
    import uuid

    if _is_uuid(text):
        return uuid.UUID(text)
    raise BadText("a UUID")


_is_date = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
_is_time = re.compile(_TIME).fullmatch
_is_datetime = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]" + _TIME).fullmatch


def _iso(text: str) -> str:
    """Return ``text`` as every supported Python parses it: with six fractional digits, and ``+00:00`` instead of Z."""
    if text.endswith("Z"):
        text = text[:-1] + "+00:00"
    head, dot, tail = text.partition(".")
    if dot:
        digits = re.match("[0-9]+", tail)
        assert digits is not None
        text = f"{head}.{digits[0]:0<6}{tail[digits.end() :]}"
    return text


def _moment(kind: str, grammar: Any, words: str, text: str) -> Any:
    """Parse ``text`` as the class ``kind`` of :mod:`datetime`. ``words`` describes the format in the error."""
    import datetime

    if grammar(text):
        try:
            return getattr(datetime, kind).fromisoformat(_iso(text))
        except ValueError:
            pass
    raise BadText(words)


_is_decimal = re.compile(r"-?[0-9]{1,100}(?:\.[0-9]{1,100})?").fullmatch


def _decimal(text: str) -> Any:
    import decimal

    if _is_decimal(text):
        return decimal.Decimal(text)
    raise BadText("a decimal number")


def _named(annotation: Any) -> str:
    return f"{getattr(annotation, '__module__', '')}.{getattr(annotation, '__qualname__', '')}"


_TEXTS: dict[Any, FromText] = {int: _int, float: _float, bool: _bool, str: _str, bytes: _bytes}
_NAMED_TEXTS: dict[str, FromText] = {  # by name, so that this module need not import the classes
    "uuid.UUID": _uuid,
    "datetime.date": partial(_moment, "date", _is_date, "a date, YYYY-MM-DD"),
    "datetime.time": partial(_moment, "time", _is_time, "a time, HH:MM:SS"),
    "datetime.datetime": partial(_moment, "datetime", _is_datetime, "a date and time, YYYY-MM-DDTHH:MM:SS"),
    "decimal.Decimal": _decimal,
}


def is_text_in_json(annotation: Any) -> bool:
    """Return whether JSON represents a type as a string: bytes, UUIDs, dates, times and decimals."""
    return annotation is bytes or _named(annotation) in _NAMED_TEXTS


def _choice(choices: dict[str, Any], text: str) -> Any:
    try:
        return choices[text]
    except KeyError:
        raise BadText("one of " + ", ".join(list(choices)[:20])) from None


def _first_of(converters: tuple[FromText, ...], text: str) -> Any:
    reasons = []
    for converter in converters:
        try:
            return converter(text)
        except BadText as error:
            reasons.append(str(error))
    raise BadText(" or ".join(reasons))


def _or_none(converter: FromText, text: str) -> Any:
    """Convert ``text``; return None if it is empty and not convertible. Browsers send empty inputs as empty text."""
    try:
        return converter(text)
    except BadText:
        if text:
            raise
        return None


def plain(annotation: Any) -> Any:
    """Return the annotation without ``Annotated``, with type aliases and NewTypes resolved."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            annotation = annotation.__origin__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):  # NewType
            annotation = annotation.__supertype__
        else:
            return annotation


def union_members(annotation: Any) -> tuple[Any, ...] | None:
    """Return the members of a union, or None for other annotations."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or origin is getattr(types, "UnionType", None):
        return typing.get_args(annotation)
    return None


def text_converter(annotation: Any) -> FromText | None:
    """Return a function that converts text to the type and checks constraints; None if text cannot express the type."""
    converter = _text_converter(plain(annotation))
    checks = constraints(annotation)
    if converter is None or not checks:
        return converter
    check_types(annotation, plain(annotation), checks)
    return partial(_checked_text, converter, checks)


def _checked_text(converter: Callable[[Any], Any], checks: Checks, text: Any) -> Any:
    value = converter(text)
    words = failing(checks, value)
    if words:
        raise BadText(words)
    return value


def _is_text(converter: FromText) -> bool:
    """Return whether ``converter`` is that of ``str``, with or without constraints."""
    return converter is _str or (isinstance(converter, partial) and converter.args[:1] == (_str,))


def _text_converter(annotation: Any) -> FromText | None:
    if annotation in (Any, object, None):
        return _str
    try:
        found = _TEXTS.get(annotation)
    except TypeError:
        return None
    if found is not None:
        return found
    if typing.get_origin(annotation) is typing.Literal:
        values = typing.get_args(annotation)
        return partial(_choice, {_literal_text(value): value for value in values})
    members = union_members(annotation)
    if members is not None:
        converters = [text_converter(member) for member in members if member is not type(None)]
        if any(each is None for each in converters):
            return None
        # str accepts every text, so it is tried last.
        found_converters = sorted((each for each in converters if each is not None), key=_is_text)
        one = found_converters[0] if len(found_converters) == 1 else partial(_first_of, tuple(found_converters))
        return partial(_or_none, one) if type(None) in members and _str not in found_converters else one
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return partial(_choice, {_literal_text(member.value): member for member in annotation})
        return _NAMED_TEXTS.get(_named(annotation))
    return None


def _literal_text(value: Any) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    return str(value).lower() if isinstance(value, bool) else str(value)


LISTS: dict[Any, Callable[[Any], Any]] = {
    list: list, set: set, frozenset: frozenset, tuple: tuple,
    abc.Sequence: list, abc.Iterable: list, abc.Collection: list, abc.MutableSequence: list, abc.Set: frozenset,
}  # fmt: skip
DICTS = (dict, abc.Mapping, abc.MutableMapping)


def many(annotation: Any) -> tuple[Callable[[Any], Any], FromText] | None:
    """Return the type to build and the converter of an item for annotations such as ``list[int]``; else None."""
    found = _many(plain(annotation))
    checks = constraints(annotation)
    if found is None or not checks:
        return found
    check_types(annotation, plain(annotation), checks)
    return partial(_checked_text, found[0], checks), found[1]


def _many(annotation: Any) -> tuple[Callable[[Any], Any], FromText] | None:
    members = union_members(annotation)
    if members is not None:
        others = [member for member in members if member is not type(None)]
        return many(others[0]) if len(others) == 1 else None
    origin = typing.get_origin(annotation) or annotation
    builder = LISTS.get(origin) if isinstance(origin, type) else None
    if builder is None:
        return None
    arguments = [each for each in typing.get_args(annotation) if each is not Ellipsis]
    if builder is tuple and len(arguments) > 1:
        return None
    item = text_converter(arguments[0]) if arguments else _str
    return None if item is None else (builder, item)
