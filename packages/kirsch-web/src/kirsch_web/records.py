"""Records: parameters and results that a handler declares as a dataclass, a TypedDict or a class of another library.

:mod:`kirsch_web.convert` creates records, and :mod:`kirsch_web.models` has the record classes for other libraries.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from kirsch_web.errors import BadText, ConfigError
from kirsch_web.texts import many, text_converter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Invalid(Exception):
    """A value does not match its type. ``problems`` lists pairs of a path such as ``items.0.id`` and a reason."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems

    @classmethod
    def one(cls, reason: str) -> Invalid:
        return cls([("", reason)])


class Field:
    """One field of a record. ``json`` converts a decoded JSON value to the field's type."""

    __slots__ = ("annotation", "json", "many", "name", "required", "text")

    def __init__(self, name: str, annotation: Any, required: bool, json: Callable[[Any], Any] | None = None) -> None:
        """Create a field. ``json`` is None if the library of the record converts the value."""
        self.name = name
        self.annotation = annotation
        self.required = required
        self.text = text_converter(annotation)
        self.many = many(annotation)
        self.json = json or as_it_is


def as_it_is(value: Any) -> Any:
    """Return ``value`` unchanged."""
    return value


LIBRARIES = {
    "__pydantic_validator__": "PydanticRecord",
    "__attrs_attrs__": "AttrsRecord",
    "__struct_fields__": "StructRecord",
}
"""The record classes in :mod:`kirsch_web.models`, by an attribute that marks the classes of each library."""


class Record:
    """A dataclass or a TypedDict, generic or not, that is built from a form, a query string or JSON."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation
        self.cls = class_of(annotation)
        self.fields: list[Field] = []

    def variables(self) -> dict[Any, Any]:
        """Return the type that replaces each type variable in the fields."""
        return _type_variables(self.annotation)

    def resolve(self, convert: Callable[[Any], Callable[[Any], Any]]) -> None:
        """Set ``fields``. This is separate from ``__init__`` because a record may contain itself.

        ``convert`` takes an annotation and returns a function that converts a decoded JSON value to that type.
        """
        cls = self.cls
        variables = self.variables()
        hints = {name: substituted(hint, variables) for name, hint in hints_of(cls).items()}
        if typing.is_typeddict(cls):
            kinds = {name: _required(hint, name in cls.__required_keys__) for name, hint in hints.items()}
            self.fields = [Field(name, *kind, convert(kind[0])) for name, kind in kinds.items()]
        else:
            given = [(each, hints[each.name]) for each in dataclasses.fields(cls) if each.init]
            self.fields = [Field(each.name, hint, _has_no_default(each), convert(hint)) for each, hint in given]
            for name, hint in hints.items():
                if isinstance(hint, dataclasses.InitVar) and _has_no_default(cls.__dataclass_fields__[name]):
                    raise ConfigError(
                        f"{describe(cls)}: {name} is an InitVar, which no request gives; it needs a default"
                    )

    @staticmethod
    def to_builtins(value: Any, otherwise: Callable[[Any], Any]) -> Any:
        """Return ``value`` converted to JSON's types. ``otherwise`` converts values that the library does not know."""
        raise NotImplementedError(f"{type(value)} {otherwise}")

    def schema(self, mode: str) -> dict[str, Any] | None:  # noqa: ARG002 - for subclasses
        """Return the JSON Schema that the library generates for the class, or None to derive it from the fields."""
        return None

    def from_json(self, value: Any) -> Any:
        """Build the record from a JSON object. Raises Invalid that lists every invalid field."""
        if type(value) is not dict:
            raise Invalid.one("is not an object")
        built: dict[str, Any] = {}
        problems: list[tuple[str, str]] = []
        for field in self.fields:
            if field.name in value:
                try:
                    built[field.name] = field.json(value[field.name])
                except Invalid as error:
                    problems += [(joined(field.name, path), reason) for path, reason in error.problems]
            elif field.required:
                problems.append((field.name, "is missing"))
        if problems:
            raise Invalid(problems)
        return self._build(built)

    def from_fields(self, values: Mapping[str, list[str]]) -> Any:
        """Build the record from the fields of a form or a query string. Raises Invalid listing every invalid field."""
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
        except (ValueError, TypeError) as error:  # raised by the class's own __post_init__
            raise Invalid.one(str(error)) from error


def class_of(annotation: Any) -> Any:
    """Return the class of a generic annotation (``Page`` for ``Page[Book]``). Return other annotations unchanged."""
    return typing.get_origin(annotation) or annotation


def _type_variables(annotation: Any) -> dict[Any, Any]:
    """Return the type of each type variable of ``annotation``, such as ``Page[Book]``, and of its generic bases."""
    found: dict[Any, Any] = {}
    cls = class_of(annotation)
    for base in getattr(cls, "__orig_bases__", ()):
        if typing.get_origin(base) not in (None, typing.Generic):
            found.update(_type_variables(base))
    given = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(annotation)))  # noqa: B905 - those given
    return {**{variable: substituted(each, given) for variable, each in found.items()}, **given}


def substituted(hint: Any, variables: dict[Any, Any]) -> Any:
    """Return ``hint`` with its type variables replaced. A variable without a type becomes its bound, or ``Any`` if it
    has no bound."""
    if isinstance(hint, typing.TypeVar):
        return variables.get(hint, hint.__bound__ or Any)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or typing.get_origin(hint) is None:
        return hint
    return hint[tuple(substituted(each, variables) for each in parameters)]


def joined(name: str, path: str) -> str:
    """Return ``path``, which is relative to the field ``name``, with that name in front."""
    return f"{name}.{path}" if path else name


def library_record(cls: type) -> str:
    """Return the name of the record class for a class of another library, or an empty string for other classes."""
    return next((name for mark, name in LIBRARIES.items() if hasattr(cls, mark)), "")


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _required(hint: Any, required: bool) -> tuple[Any, bool]:
    """Return the type of a TypedDict's field, and whether the field is required.

    ``__required_keys__`` is wrong with ``from __future__ import annotations``: Python does not evaluate the texts.
    """
    while (name := getattr(typing.get_origin(hint), "_name", "")) in ("Required", "NotRequired", "ReadOnly"):
        required = {"Required": True, "NotRequired": False}.get(name, required)
        hint = typing.get_args(hint)[0]
    return hint, required


def is_record(annotation: Any) -> bool:
    """Return whether a Record can be created from an annotation."""
    cls = class_of(annotation)
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or library_record(cls) != ""
    )


def hints_of(thing: Any) -> dict[str, Any]:
    """Return the evaluated annotations of a class or function. Raises ConfigError that names an unknown name."""
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
    """Return the module and qualified name of a function or class, such as ``shop.Books.show``."""
    return f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', repr(thing))}"
