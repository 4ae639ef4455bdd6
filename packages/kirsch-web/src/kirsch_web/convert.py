"""Converters from JSON to the types that handlers declare.

They are made when the application is mounted. :mod:`kirsch_web.texts` converts single texts;
:mod:`kirsch_web.records` converts to dataclasses, TypedDicts and models of other libraries.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
import typing
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from kirsch_web.constraints import check_types, constraints, failing
from kirsch_web.errors import BadText, ConfigError
from kirsch_web.records import Invalid, Record, as_it_is, class_of, is_record, joined, library_record
from kirsch_web.texts import DICTS, LISTS, is_text_in_json, plain, text_converter, union_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kirsch_web.constraints import Checks
    from kirsch_web.texts import FromText

    FromJson = Callable[[Any], Any]


@lru_cache(maxsize=1024)
def foreign_record(cls: type) -> type[Record] | None:
    """Return the subclass of Record for a model class of another library, such as Pydantic; None for other classes."""
    name = library_record(cls)
    return getattr(import_module("kirsch_web.models"), name) if name else None


@lru_cache(maxsize=1024)
def record_fields(cls: Any) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None for other classes."""
    return tuple(field.name for field in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


_records: dict[Any, Record] = {}


def record(annotation: Any) -> Record | None:
    """Return the Record of a dataclass, a TypedDict or a model of another library; None for other annotations."""
    annotation = plain(annotation)
    members = union_members(annotation)
    if members is not None:
        others = [member for member in members if member is not type(None)]
        return record(others[0]) if len(others) == 1 else None
    if not is_record(annotation):
        return None
    found = _records.get(annotation)
    if found is None:
        found = _records[annotation] = (foreign_record(class_of(annotation)) or Record)(annotation)
        try:
            found.resolve(json_converter)
        except BaseException:
            del _records[annotation]
            raise
    return found


# JSON


def _exactly(expected: type, reason: str, value: Any) -> Any:
    if type(value) is expected:
        return value
    raise Invalid.one(reason)


def _json_float(value: Any) -> Any:
    if type(value) in (int, float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Invalid.one("is not a number")


def _json_text(converter: FromText, value: Any) -> Any:
    if type(value) is str:
        try:
            return converter(value)
        except BadText as error:
            raise Invalid.one(f"is not {error}") from None
    raise Invalid.one("is not a string")


def _json_choice(choices: list[tuple[Any, Any]], value: Any) -> Any:
    for allowed, result in choices:
        if type(value) is type(allowed) and value == allowed:
            return result
    raise Invalid.one("is not one of " + ", ".join(repr(allowed) for allowed, _ in choices[:20]))


class _Unions(threading.local):
    """The results of converting values to unions, for the body that this thread converts.

    They bound the work: without them each member of a union converts the values inside of a value again. If the records
    A and B both have a child ``A | B``, a body with 100 levels would cost 2 ** 100 conversions.
    """

    found: dict[tuple[int, int], tuple[Any, Invalid | None]] | None = None


_unions = _Unions()


def _json_union(converters: tuple[FromJson, ...], value: Any) -> Any:
    if type(value) not in (dict, list):
        return _one_of(converters, value)
    found = _unions.found
    is_outermost = found is None
    if found is None:
        found = _unions.found = {}
    key = id(converters), id(value)
    try:
        if key not in found:
            try:
                found[key] = _one_of(converters, value), None
            except Invalid as error:
                found[key] = None, error
        result, invalid = found[key]
        if invalid is not None:
            raise Invalid(invalid.problems)
        return result
    finally:
        if is_outermost:
            _unions.found = None


def _one_of(converters: tuple[FromJson, ...], value: Any) -> Any:
    reasons: list[str] = []
    for converter in converters:
        try:
            return converter(value)
        except Invalid as error:
            reasons += [f"{path + ' ' if path else ''}{reason}" for path, reason in error.problems]
    raise Invalid.one(" and ".join(dict.fromkeys(reasons)))


def _json_list(builder: Callable[[Any], Any], item: FromJson, value: Any) -> Any:
    if type(value) is not list:
        raise Invalid.one("is not an array")
    built, problems = [], []
    for number, each in enumerate(value):
        try:
            built.append(item(each))
        except Invalid as error:
            problems += [(joined(str(number), path), reason) for path, reason in error.problems]
            if len(problems) > 20:
                break
    if problems:
        raise Invalid(problems)
    try:
        return builder(built)
    except TypeError:  # a set of what cannot be in a set
        raise Invalid.one("has items that cannot be in a set") from None


def _json_tuple(items: tuple[FromJson, ...], value: Any) -> Any:
    if type(value) is not list or len(value) != len(items):
        raise Invalid.one(f"is not an array of {len(items)}")
    return tuple(item(each) for item, each in zip(items, value, strict=True))


def _json_dict(key: FromText, item: FromJson, value: Any) -> Any:
    if type(value) is not dict:
        raise Invalid.one("is not an object")
    built, problems = {}, []
    for name, each in value.items():
        try:
            built[key(name)] = item(each)
        except Invalid as error:
            problems += [(joined(name, path), reason) for path, reason in error.problems]
        except BadText as error:
            problems.append((name, f"is a key that is not {error}"))
    if problems:
        raise Invalid(problems)
    return built


def _json_record(annotation: Any, value: Any) -> Any:
    # Looked up at each use, because a record that contains itself does not exist yet when its converter is made.
    found = record(annotation)
    assert found is not None
    return found.from_json(value)


_JSONS: dict[Any, FromJson] = {
    int: partial(_exactly, int, "is not a whole number"),
    str: partial(_exactly, str, "is not a string"),
    bool: partial(_exactly, bool, "is not true or false"),
    float: _json_float,
    type(None): partial(_exactly, type(None), "is not null"),
    None: partial(_exactly, type(None), "is not null"),
    Any: as_it_is,
    object: as_it_is,
    dict: partial(_exactly, dict, "is not an object"),
    list: partial(_exactly, list, "is not an array"),
}


def json_converter(annotation: Any) -> FromJson:
    """Return a function that converts a value parsed from JSON to the type of ``annotation``. Raises ConfigError for an
    unsupported type."""
    converter = _json_converter(plain(annotation))
    checks = constraints(annotation)
    if not checks:
        return converter
    check_types(annotation, plain(annotation), checks)
    return partial(checked_json, converter, checks)


def checked_json(converter: FromJson, checks: Checks, value: Any) -> Any:
    """Return ``value`` converted by ``converter``. Raises Invalid, naming the constraint that it violates."""
    built = converter(value)
    words = failing(checks, built)
    if words:
        raise Invalid.one(f"is not {words}")
    return built


def _json_converter(annotation: Any) -> FromJson:
    try:
        found = _JSONS.get(annotation)
    except TypeError:
        found = None
    if found is not None:
        return found
    members = union_members(annotation)
    if members is not None:
        return partial(_json_union, tuple(json_converter(member) for member in members))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return partial(
            _json_choice, [(value.value if isinstance(value, enum.Enum) else value, value) for value in arguments]
        )
    target = origin or annotation
    if target is tuple and len(arguments) != 0 and arguments[-1] is not Ellipsis:
        return partial(_json_tuple, tuple(json_converter(each) for each in arguments))
    if isinstance(target, type) and target in LISTS:
        return partial(_json_list, LISTS[target], json_converter(arguments[0]) if arguments else as_it_is)
    if target in DICTS:
        if not arguments:
            return _JSONS[dict]
        key = text_converter(arguments[0])
        if key is not None:
            return partial(_json_dict, key, json_converter(arguments[1]))
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return partial(_json_choice, [(member.value, member) for member in annotation])
        if is_text_in_json(annotation):
            converter = text_converter(annotation)
            assert converter is not None
            return partial(_json_text, converter)
    if is_record(annotation):
        return partial(_json_record, annotation)
    raise ConfigError(f"{annotation!r} is not a type that a request can be converted to")
