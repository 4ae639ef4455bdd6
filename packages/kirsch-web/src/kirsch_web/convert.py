"""Conversions of JSON to the types that handlers declare, and records: dataclasses and TypedDicts.

All are prepared when the application is mounted. :mod:`kirsch_web.texts` converts single texts, and
:mod:`kirsch_web.models` has the records of other libraries.
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
from kirsch_web.texts import DICTS, LISTS, is_text_in_json, many, plain, text_converter, union_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kirsch_web.constraints import Checks
    from kirsch_web.texts import FromText

    FromJson = Callable[[Any], Any]


class Invalid(Exception):
    """A value is not of its type; ``problems`` has a path such as ``price`` or ``items.0.id`` and a reason for each."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems

    @classmethod
    def one(cls, reason: str) -> Invalid:
        return cls([("", reason)])


# Records


class Field:
    """One field of a record."""

    __slots__ = ("annotation", "json", "many", "name", "required", "text")

    def __init__(self, name: str, annotation: Any, required: bool, is_foreign: bool = False) -> None:
        self.name = name
        self.annotation = annotation
        self.required = required
        self.text = text_converter(annotation)
        self.many = many(annotation)
        self.json = _json_any if is_foreign else json_converter(annotation)  # a library knows more types than this file


LIBRARIES = {
    "__pydantic_validator__": "PydanticRecord",
    "__attrs_attrs__": "AttrsRecord",
    "__struct_fields__": "StructRecord",
}
"""The records of other libraries in :mod:`kirsch_web.models`, by an attribute that each library's classes have."""


class Record:
    """A dataclass or a TypedDict, built from a form, a query or JSON; generic ones too."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.cls = class_of(annotation)
        self.fields: list[Field] = []

    def variables(self) -> dict[Any, Any]:
        """Return the types that stand for type variables in the fields."""
        return _type_variables(self.annotation)

    def resolve(self) -> None:
        """Read the types of the fields; apart from ``__init__``, because a record may contain itself."""
        cls = self.cls
        variables = self.variables()
        hints = {name: substituted(hint, variables) for name, hint in hints_of(cls).items()}
        if typing.is_typeddict(cls):
            self.fields = [Field(name, *_required(hint, name in cls.__required_keys__)) for name, hint in hints.items()]
        else:
            given = [each for each in dataclasses.fields(cls) if each.init]
            self.fields = [Field(each.name, hints[each.name], _has_no_default(each)) for each in given]
            for name, hint in hints.items():
                if isinstance(hint, dataclasses.InitVar) and _has_no_default(cls.__dataclass_fields__[name]):
                    raise ConfigError(
                        f"{describe(cls)}: {name} is an InitVar, which no request gives; it needs a default"
                    )

    @staticmethod
    def to_builtins(value: Any, otherwise: Callable[[Any], Any]) -> Any:
        """Return a value of the class in types that JSON has; ``otherwise`` converts what the library does not know."""
        raise NotImplementedError(f"{type(value)} {otherwise}")

    def schema(self, mode: str) -> dict[str, Any] | None:  # noqa: ARG002 - for subclasses
        """Return the JSON Schema of the class as its library makes it; None if it follows from the fields."""
        return None

    def from_json(self, value: Any) -> Any:
        """Return the record of a JSON object. Raises Invalid with every field that is wrong."""
        if type(value) is not dict:
            raise Invalid.one("is not an object")
        built: dict[str, Any] = {}
        problems: list[tuple[str, str]] = []
        for field in self.fields:
            if field.name in value:
                try:
                    built[field.name] = field.json(value[field.name])
                except Invalid as error:
                    problems += [(_join(field.name, path), reason) for path, reason in error.problems]
            elif field.required:
                problems.append((field.name, "is missing"))
        if problems:
            raise Invalid(problems)
        return self._build(built)

    def from_fields(self, values: Mapping[str, list[str]]) -> Any:
        """Return the record of a form or a query. Raises Invalid with every field that is wrong."""
        built: dict[str, Any] = {}
        problems: list[tuple[str, str]] = []
        for field in self.fields:
            texts = values.get(field.name)
            if texts is None:
                if field.required:
                    problems.append((field.name, "is missing"))
                continue
            try:
                if field.many is not None:
                    builder, item = field.many
                    built[field.name] = builder([item(text) for text in texts])
                elif len(texts) > 1:
                    problems.append((field.name, "is given more than once"))
                elif field.text is None:
                    problems.append((field.name, "cannot be given in a form; send JSON"))
                else:
                    built[field.name] = field.text(texts[0])
            except BadText as error:
                problems.append((field.name, f"is not {error}"))
        if problems:
            raise Invalid(problems)
        return self._build(built)

    def _build(self, values: dict[str, Any]) -> Any:
        try:
            return self.cls(**values)
        except (ValueError, TypeError) as error:  # of the class's own __post_init__
            raise Invalid.one(str(error)) from error


def class_of(annotation: Any) -> Any:
    """Return the class of ``Page[Book]``, which is ``Page``, and of other annotations themselves."""
    return typing.get_origin(annotation) or annotation


def _type_variables(annotation: Any) -> dict[Any, Any]:
    """Return the types for the type variables in the fields of ``Page[Book]``, and of a class that derives from it."""
    found: dict[Any, Any] = {}
    cls = class_of(annotation)
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) not in (None, typing.Generic):
            found.update(_type_variables(base))
    given = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(annotation)))  # noqa: B905 - those given
    return {**{variable: substituted(each, given) for variable, each in found.items()}, **given}


def substituted(hint: Any, variables: dict[Any, Any]) -> Any:
    """Return an annotation with types in place of its type variables; one that stands for nothing is its bound, or
    any."""
    if isinstance(hint, typing.TypeVar):
        return variables.get(hint, hint.__bound__ or Any)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or typing.get_origin(hint) is None:
        return hint
    return hint[tuple(substituted(each, variables) for each in parameters)]


def _join(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


@lru_cache(maxsize=1024)
def foreign_record(cls: type) -> type[Record] | None:
    """Return the class of the records of another library's class; None for other classes."""
    name = next((name for mark, name in LIBRARIES.items() if hasattr(cls, mark)), "")
    return getattr(import_module("kirsch_web.models"), name) if name else None


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _required(hint: Any, required: bool) -> tuple[Any, bool]:
    """Type of a TypedDict's field, and whether it is required.

    Python knows this only of annotations that are no text, as all are with ``from __future__ import annotations``.
    """
    while (name := getattr(typing.get_origin(hint), "_name", "")) in ("Required", "NotRequired", "ReadOnly"):
        required = {"Required": True, "NotRequired": False}.get(name, required)
        hint = typing.get_args(hint)[0]
    return hint, required


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
            found.resolve()
        except BaseException:
            del _records[annotation]
            raise
    return found


def is_record(annotation: Any) -> bool:
    """Return whether an annotation is one that a Record can be made of."""
    cls = class_of(annotation)
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or foreign_record(cls) is not None
    )


def hints_of(thing: Any) -> dict[str, Any]:
    """Return the resolved annotations. Raises ConfigError that names what could not be resolved."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"{describe(thing)}: an annotation names {error.name!r}, which is not found where it is defined; "
            "import it there outside of `if TYPE_CHECKING`"
        ) from None
    except TypeError as error:
        raise ConfigError(f"{describe(thing)}: an annotation cannot be evaluated: {error}") from None


def describe(thing: Any) -> str:
    """``shop.Books.show``."""
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', repr(thing))}"


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


def _json_none(value: Any) -> Any:
    if value is None:
        return None
    raise Invalid.one("is not null")


def _json_any(value: Any) -> Any:
    return value


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
    """The results of unions for the values of the body that this thread converts, by union and value.

    Without it each member of a union would convert what is inside of a value again: twice for each level of
    ``A | B`` whose records have a child ``A | B``, and so 2 ** 100 times.
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
            problems += [(_join(str(number), path), reason) for path, reason in error.problems]
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
            problems += [(_join(name, path), reason) for path, reason in error.problems]
        except BadText as error:
            problems.append((name, f"is a key that is not {error}"))
    if problems:
        raise Invalid(problems)
    return built


class _JsonRecord:
    """Found when it is first used, because a record may contain itself."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls

    def __call__(self, value: Any) -> Any:
        found = record(self.cls)
        assert found is not None
        return found.from_json(value)


_JSONS: dict[Any, FromJson] = {
    int: partial(_exactly, int, "is not a whole number"),
    str: partial(_exactly, str, "is not a string"),
    bool: partial(_exactly, bool, "is not true or false"),
    float: _json_float,
    type(None): _json_none,
    None: _json_none,
    Any: _json_any,
    object: _json_any,
    dict: partial(_exactly, dict, "is not an object"),
    list: partial(_exactly, list, "is not an array"),
}


def json_converter(annotation: Any) -> FromJson:
    """Return a function from a value that JSON can say to the type. Raises ConfigError for a type that it does not
    know."""
    converter = _json_converter(plain(annotation))
    checks = constraints(annotation)
    if not checks:
        return converter
    check_types(annotation, plain(annotation), checks)
    return partial(checked_json, converter, checks)


def checked_json(converter: FromJson, checks: Checks, value: Any) -> Any:
    """Return the value of a converter, or Invalid with the constraint that it does not meet."""
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
        return partial(_json_list, LISTS[target], json_converter(arguments[0]) if arguments else _json_any)
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
        return _JsonRecord(annotation)
    raise ConfigError(f"{annotation!r} is not a type that a request can be converted to")
