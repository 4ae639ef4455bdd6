"""Records of other libraries: msgspec Structs, attrs classes, Pydantic models and dataclasses.

``records.LIBRARIES`` recognizes such a class by an attribute that its library sets. This module is imported only if an
application uses such a class; the library is in ``sys.modules`` then.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import typing
from typing import Any

from kirsch_web.constraints import library_of, marks
from kirsch_web.errors import ConfigError
from kirsch_web.records import Field, Invalid, Record, class_of, describe, hints_of, is_record, substituted
from kirsch_web.texts import plain, union_members

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _refuse_infinite(fields: Mapping[str, Field], values: Mapping[str, list[str]]) -> None:
    """Raise Invalid if a float field is given as NaN or infinity, which the libraries accept but JSON lacks."""
    for name, texts in values.items():
        if name in fields and _is_float(fields[name].annotation) and not all(map(_is_finite, texts)):
            raise Invalid([(name, "is not a number")])


def _is_float(annotation: Any) -> bool:
    annotation = plain(annotation)
    members = [plain(each) for each in (annotation, *typing.get_args(annotation))]
    return float in members and str not in members


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return True


# msgspec


class StructRecord(Record):
    """A msgspec Struct. msgspec converts and validates its values."""

    @staticmethod
    def to_builtins(value: Any, otherwise: Callable[[Any], Any]) -> Any:
        return sys.modules["msgspec"].to_builtins(value, enc_hook=otherwise)

    def resolve(self, _convert: Callable[[Any], Callable[[Any], Any]]) -> None:
        cls = self.cls
        variables = self.variables()
        hints = {name: substituted(hint, variables) for name, hint in hints_of(cls).items()}
        for name, hint in hints.items():
            mark = _not_of_msgspec(hint, {cls})
            if mark is not None:
                raise ConfigError(
                    f"{describe(cls)}: {name} has the constraint {mark!r}, which msgspec ignores; use msgspec.Meta"
                )
        required = _struct_required(cls)
        names = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
        self.fields = [Field(encoded, hints[name], name in required) for name, encoded in names]

    def from_json(self, value: Any) -> Any:
        return _struct_of(self.annotation, value, strict=True)

    def from_fields(self, values: Mapping[str, list[str]]) -> Any:
        named = {field.name: field for field in self.fields}
        _refuse_infinite(named, values)
        lists = {name: (each if named[name].many else each[-1]) for name, each in values.items() if name in named}
        return _struct_of(self.annotation, lists, strict=False)


def _struct_required(cls: Any) -> set[str]:
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    msgspec = sys.modules["msgspec"]
    optional = fields[len(fields) - len(defaults) :] if defaults else ()
    return set(fields) - {
        name for name, default in zip(optional, defaults, strict=True) if default is not msgspec.NODEFAULT
    }


def _struct_of(cls: Any, value: Any, *, strict: bool) -> Any:
    msgspec = sys.modules["msgspec"]
    try:
        return msgspec.convert(value, cls, strict=strict)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$.")
        raise Invalid([(path.rstrip("`").replace("[", ".").replace("]", ""), f"is wrong: {reason}")]) from None


def _not_of_msgspec(annotation: Any, seen: set[Any]) -> Any:
    """Return a constraint of another library that is in the annotation of a Struct's field, or nested in that
    annotation. Return None if there is none. ``seen`` has the classes that were searched."""
    for mark in marks(annotation):
        if library_of(mark) in ("annotated_types", "pydantic"):
            return mark
    annotation = plain(annotation)
    inner = [] if typing.get_origin(annotation) is typing.Literal else list(typing.get_args(annotation))
    cls = class_of(annotation)
    if is_record(annotation) and cls not in seen:
        seen.add(cls)
        inner += hints_of(cls).values()
    return next((found for each in inner if (found := _not_of_msgspec(each, seen)) is not None), None)


# attrs


class AttrsRecord(Record):
    """An attrs class. Its fields have the names of the constructor's parameters.

    The type of a field with a converter is the annotation of the converter's parameter, or ``Any`` without one.
    """

    @staticmethod
    def to_builtins(value: Any, _otherwise: Callable[[Any], Any]) -> Any:
        return {each.alias: getattr(value, each.name) for each in type(value).__attrs_attrs__ if each.init}

    def resolve(self, convert: Callable[[Any], Callable[[Any], Any]]) -> None:
        hints, variables = hints_of(self.cls), self.variables()
        nothing = sys.modules["attr"].NOTHING
        for each in self.cls.__attrs_attrs__:
            if each.init:
                hint = hints.get(each.name, each.type or Any)
                if each.converter is not None:
                    hint = _input_of(each.converter)
                hint = substituted(hint, variables)
                self.fields.append(Field(each.alias, hint, each.default is nothing, convert(hint)))

    def _build(self, values: dict[str, Any]) -> Any:
        try:
            return self.cls(**values)
        except (ValueError, TypeError) as error:  # raised by a validator, a converter or the class's own code
            about = error.args
            name = getattr(about[1], "alias", "") if len(about) > 1 else ""
            raise Invalid([(name if isinstance(name, str) else "", str(about[0]) if about else "is wrong")]) from error


def _input_of(converter: Any) -> Any:
    """Return the annotation of a converter's first parameter, or ``Any`` if there is none."""
    function = getattr(converter, "converter", converter)  # attrs.Converter wraps the function
    if isinstance(function, type):  # such as int, whose signature has no annotations
        return Any
    try:
        name = next(iter(inspect.signature(function).parameters))
    except (ValueError, TypeError, StopIteration):
        return Any
    try:
        return hints_of(function).get(name, Any)
    except ConfigError:
        return Any


# Pydantic


class PydanticRecord(Record):
    """A Pydantic model or dataclass. Pydantic validates its values: JSON bodies in JSON mode, and forms in Python mode,
    which is not strict and so converts text.

    Invariant: ``fields`` have the names that requests use: the alias of a field that has one.
    """

    @staticmethod
    def to_builtins(value: Any, _otherwise: Callable[[Any], Any]) -> Any:
        return type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True)

    def resolve(self, _convert: Callable[[Any], Callable[[Any], Any]]) -> None:
        pydantic = sys.modules["pydantic"]
        try:
            self._adapter = pydantic.TypeAdapter(self.annotation)
            if not getattr(self.cls, "__pydantic_complete__", True):
                self._adapter.rebuild()
        except pydantic.errors.PydanticUserError as error:
            raise ConfigError(f"{describe(self.cls)}: {error.message}") from None
        except NameError as error:
            raise ConfigError(f"{describe(self.cls)}: an annotation cannot be evaluated: {error}") from None
        known = getattr(self.cls, "__pydantic_fields__", None)
        for name, info in (self.cls.model_fields if known is None else known).items():
            given = _aliases(info.validation_alias or info.alias)
            self.fields.append(Field(given[0] if given else name, info.annotation, info.is_required()))

    def from_json(self, value: Any) -> Any:
        # Validate in JSON mode: a strict model accepts a date as text there, and only a date object in Python mode.
        return self._validated(self._adapter.validate_json, json.dumps(value))

    def from_fields(self, values: Mapping[str, list[str]]) -> Any:
        named = {field.name: field for field in self.fields}
        given: dict[str, Any] = {}
        problems = []
        for name, texts in values.items():
            field = named.get(name)
            if (field is not None and field.many is not None) or (field is None and len(texts) > 1):
                given[name] = texts
            elif len(texts) > 1:
                problems.append((name, "is given more than once"))
            else:
                # A browser sends an empty string for an input that was left empty.
                given[name] = None if field is not None and not texts[0] and _is_optional(field) else texts[0]
        if problems:
            raise Invalid(problems)
        _refuse_infinite(named, values)
        return self._validated(self._adapter.validate_python, given, strict=False)

    @staticmethod
    def _validated(validate: Callable[..., Any], value: Any, **options: Any) -> Any:
        try:
            return validate(value, **options)
        except sys.modules["pydantic"].ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise Invalid([(_path(each["loc"]), _reason(each)) for each in found]) from None

    def schema(self, mode: str) -> dict[str, Any]:
        """Return the JSON Schema of the model's input (``mode`` is ``validation``) or output (``serialization``).
        ``$defs`` has the schemas of the models that it refers to."""
        found: dict[str, Any] = self._adapter.json_schema(mode=mode)
        return found


def _aliases(alias: Any) -> list[str]:
    """Return the keys of the outermost object that an alias matches: of an AliasPath, its first key."""
    if alias is None or isinstance(alias, str):
        return [alias] if alias else []
    choices = getattr(alias, "choices", [alias])  # AliasChoices has choices, AliasPath has a path
    return [str(each if isinstance(each, str) else each.path[0]) for each in choices]


def _is_optional(field: Field) -> bool:
    members = union_members(plain(field.annotation)) or ()
    return type(None) in members and str not in members


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(each) for each in location)


def _reason(problem: Mapping[str, Any]) -> str:
    return "is missing" if problem["type"] == "missing" else f"is wrong: {problem['msg']}"
