"""Records: what a handler declares as a dataclass, a TypedDict or a class of another library.

:mod:`kirsch_web.convert` makes them, and :mod:`kirsch_web.models` has those of other libraries.
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
    """A value is not of its type; ``problems`` has a path such as ``price`` or ``items.0.id`` and a reason for each."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__(problems)
        self.problems = problems

    @classmethod
    def one(cls, reason: str) -> Invalid:
        return cls([("", reason)])


class Field:
    """One field of a record. ``json`` converts its value in JSON."""

    __slots__ = ("annotation", "json", "many", "name", "required", "text")

    def __init__(self, name: str, annotation: Any, required: bool, json: Callable[[Any], Any] | None = None) -> None:
        """``json`` is None if the library of the record converts it."""
        self.name = name
        self.annotation = annotation
        self.required = required
        self.text = text_converter(annotation)
        self.many = many(annotation)
        self.json = json or as_it_is


def as_it_is(value: Any) -> Any:
    """Return the value."""
    return value


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

    def resolve(self, convert: Callable[[Any], Callable[[Any], Any]]) -> None:
        """Read the types of the fields; apart from ``__init__``, because a record may contain itself.

        ``convert`` returns a function from a value in JSON to a type.
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
                    problems += [(joined(field.name, path), reason) for path, reason in error.problems]
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


def joined(name: str, path: str) -> str:
    """Return the path of a value inside of a field."""
    return f"{name}.{path}" if path else name


def library_record(cls: type) -> str:
    """Return the name of the class in :mod:`kirsch_web.models` for another library's class; empty for other classes."""
    return next((name for mark, name in LIBRARIES.items() if hasattr(cls, mark)), "")


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


def is_record(annotation: Any) -> bool:
    """Return whether an annotation is one that a Record can be made of."""
    cls = class_of(annotation)
    return isinstance(cls, type) and (
        dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or library_record(cls) != ""
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
