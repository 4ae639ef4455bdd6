"""Constraints in ``Annotated``: those of annotated-types, ``msgspec.Meta`` and Pydantic, without importing any.

A constraint that cannot be applied is refused when the application is mounted. If it were ignored, values would be
accepted that the author of the annotation believes to be refused.
"""

from __future__ import annotations

import re
import typing
from functools import partial

from kirsch_web.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Checks = tuple["Constraint", ...]

COMPARISONS: dict[str, tuple[str, str, Callable[[Any, Any], bool]]] = {
    "gt": ("greater than", "exclusiveMinimum", lambda value, bound: value > bound),
    "ge": ("at least", "minimum", lambda value, bound: value >= bound),
    "lt": ("less than", "exclusiveMaximum", lambda value, bound: value < bound),
    "le": ("at most", "maximum", lambda value, bound: value <= bound),
    "multiple_of": ("a multiple of", "multipleOf", lambda value, bound: value % bound == 0),
    "min_length": ("of a length of at least", "minLength", lambda value, bound: len(value) >= bound),
    "max_length": ("of a length of at most", "maxLength", lambda value, bound: len(value) <= bound),
}
"""For each name of a bound in these libraries: the words of messages, JSON Schema's keyword, and the comparison."""


class Constraint:
    """One condition that a value has to meet.

    Args:
        words: the end of the sentence "the value is not ...".
        test: returns whether a value meets the constraint; raises TypeError for a value of a wrong type.
        schema: the keywords of JSON Schema that state the constraint.
    """

    __slots__ = ("schema", "test", "words")

    def __init__(self, words: str, test: Callable[[Any], bool], **schema: Any) -> None:
        self.words = words
        self.test = test
        self.schema = schema

    def holds(self, value: Any) -> bool:
        """Return whether the value meets the constraint. None does: the type decides whether None is allowed."""
        if value is None:
            return True
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, ArithmeticError):  # such as comparing times with and without a zone
            return False


def failing(checks: Checks, value: Any) -> str:
    """Return the words of the first constraint that the value violates; empty if it meets all."""
    for each in checks:
        if not each.holds(value):
            return each.words
    return ""


def marks(annotation: Any) -> Iterator[Any]:
    """Yield the metadata of ``Annotated``, also inside type aliases and NewType."""
    while True:
        if typing.get_origin(annotation) is typing.Annotated:
            yield from annotation.__metadata__
            annotation = annotation.__origin__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        else:
            return


def constraints(annotation: Any) -> Checks:
    """Return the constraints of an annotation, without those of its items. Raises ConfigError for an unknown one."""
    return tuple(each for mark in marks(annotation) for each in _of_mark(mark))


def library_of(mark: Any) -> str:
    """Return the library of a constraint: ``annotated_types``, ``msgspec`` or ``pydantic``. Empty for other metadata,
    which is ignored."""
    if hasattr(type(mark), "__is_annotated_types_grouped_metadata__"):
        return "annotated_types"
    for base in type(mark).__mro__:
        if base.__module__ == "annotated_types":
            return "annotated_types"
        if base.__module__.partition(".")[0] == "pydantic":
            return "pydantic"
        if (base.__module__, base.__name__) == ("msgspec", "Meta"):
            return "msgspec"
    return ""


def _of_mark(mark: Any) -> Iterator[Constraint]:
    library = library_of(mark)
    if not library:
        return
    names = {base.__name__ for base in type(mark).__mro__}
    if names & {"Unit", "Doc", "DocInfo", "Strict"}:  # strictness is fixed: none for text, strict for JSON
        return
    if "FieldInfo" in names:
        if mark.alias or mark.validation_alias or not mark.is_required():
            raise ConfigError(f"{mark!r}: aliases and defaults are for fields of a model, and have no effect here")
        for each in mark.metadata:
            yield from _of_mark(each)
        return
    func = getattr(mark, "func", None)
    if callable(func) and library != "pydantic":  # Pydantic's functions return a value, not a verdict
        name = getattr(func, "__qualname__", None) or repr(func)
        negated = "Not" in names
        yield Constraint(
            f"{'refused' if negated else 'accepted'} by {name}", lambda value: bool(func(value)) is not negated
        )
        return
    if library == "annotated_types" and hasattr(mark, "__iter__"):  # a group, such as Interval and Len
        for each in mark:
            yield from _of_mark(each)
        return
    known = False
    for name, (words, keyword, compare) in COMPARISONS.items():
        bound = getattr(mark, name, None)
        if bound is not None:
            known = True
            if name == "multiple_of" and not bound > 0:
                raise ConfigError(f"{mark!r}: a multiple is one of a number above 0")
            schema = {keyword: bound} if isinstance(bound, (int, float)) else {}
            yield Constraint(f"{words} {bound}", partial(_swapped, compare, bound), **schema)
    pattern = getattr(mark, "pattern", None)
    if pattern is not None:
        known = True
        search = re.compile(pattern).search
        yield Constraint(f"like {pattern}", lambda value: search(value) is not None, pattern=pattern)
    zone = getattr(mark, "tz", None)
    if zone in (True, False, ...) or (zone is None and "Timezone" in names):
        known = True
        wants = zone in (True, ...)
        yield Constraint(
            "with a time zone" if wants else "without a time zone", lambda value: (value.tzinfo is not None) is wants
        )
    elif zone is not None:
        raise ConfigError(f"{mark!r}: that a time has one certain zone is not checked; take ... or None")
    if any(getattr(mark, name, None) for name in ("strip_whitespace", "to_upper", "to_lower", "ascii_only")):
        known = False
    if not known and library != "msgspec":
        raise ConfigError(f"{mark!r}: this constraint is not known here and would be ignored")


def _swapped(compare: Callable[[Any, Any], bool], bound: Any, value: Any) -> bool:
    return compare(value, bound)


def check_types(annotation: Any, bare: Any, checks: Checks) -> None:
    """Raise ConfigError for a constraint that no value of the type ``bare`` can meet, such as the length of a
    number."""
    sample = _SAMPLES.get(typing.get_origin(bare) or bare) if _is_hashable(bare) else None
    if sample is None:
        return
    for each in checks:
        try:
            each.test(sample)
        except TypeError:
            raise ConfigError(f"{annotation!r}: no value of this type is {each.words}") from None
        except Exception:  # noqa: BLE001, S112 - a predicate may raise for the sample and accept real values
            continue


_SAMPLES: dict[Any, Any] = {
    int: 0, float: 0.0, bool: False, str: "", bytes: b"", list: [], tuple: (), set: set(), frozenset: frozenset(),
    dict: {},
}  # fmt: skip


def _is_hashable(annotation: Any) -> bool:
    try:
        hash(annotation)
    except TypeError:
        return False
    return True
